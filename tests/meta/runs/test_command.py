"""Behaviour common to all commands: --help, --version, and refusals in one line."""

import dataclasses
import importlib
import json
import os
import re
import resource
from importlib import metadata

import jax
import pytest
from jax.errors import JaxRuntimeError

import configs
from marl import commands
from meta import RunDirectory
from meta.cluster.connection import OnCluster
from meta.runs import command
from meta.runs.array_files import replace_arrays
from meta.runs.execution import _parse, execute
from meta.xla import numerics

# A first argument, another one, an option with an unsuitable value, and the message about it.
COMMANDS = {
    "marl.mfos": ("ipd", "imp", "--trials=0", "trials: got 0"),
    "marl.train": ("cartpole", "CartPole-v1", "--seeds=0", "seeds: got 0"),
    "marl.crossplay": ("ipd", "imp", "--evaluation-trials=1", "evaluation_trials: got 1"),
    "marl.reproduce": ("zd", "mfos", "--seed=-1", "seed: got -1"),
    "marl.bound": ("ipd", "imp", "--num-states=0", "num_states: got 0"),
    "marl.schelling": ("harvest", "cleanup", "--episodes=1", "episodes: got 1"),
    "marl.cola": ("ipd", "imp", "--batch=0", "batch: got 0"),
    "marl.meva": ("ipd", "imp", "--rollout=0", "rollout: got 0"),
    "marl.mmaml": ("ipd", "imp", "--meta-steps=0", "meta_steps: got 0"),
    "marl.play": ("ipd", "imp", "--rounds=0", "rounds: got 0"),
    "marl.compare": ("", "", "--resamples=0", "resamples: got 0"),
    "marl.export": ("", "", "--number=-1", "number: got -1"),
    "marl.discover": ("drift cartpole", "value_loss acrobot", "--evaluation-trials=1", "evaluation_trials: got 1"),
    "attacks.act": ("cartpole", "pendulum", "--evaluation-trials=1", "evaluation_trials: got 1"),
    "attacks.reproduce": ("act", "acts.yaml", "--seed=-1", "seed: got -1"),
    "attacks.examine": ("", "", "--evaluation-trials=1", "evaluation_trials: got 1"),
}
RUNS = [
    "marl.mfos",
    "marl.train",
    "marl.discover",
    "marl.crossplay",
    "marl.schelling",
    "marl.reproduce",
    "attacks.act",
    "attacks.reproduce",
]
FILES = ["marl.bound", "marl.cola", "marl.meva", "marl.mmaml"]
every = pytest.mark.parametrize("module", COMMANDS)
every_run = pytest.mark.parametrize("module", RUNS)
every_file = pytest.mark.parametrize("module", FILES)


def test_the_table_here_has_all_commands():
    modules = {entry.module for entry in commands.COMMANDS.values()}
    others = {"marl.distributed", "marl.agents", "marl.report", "marl.sweep", "marl.bench", "games"}
    assert modules == {*COMMANDS} | others


def test_no_public_name_is_spelled_like_a_command():
    for module in COMMANDS:
        package, _, name = module.partition(".")
        assert name not in importlib.import_module(package).__all__


@pytest.fixture
def refused(within, tmp_path):
    """Runs a command that has to refuse its arguments, and returns its one line of error."""

    def run(module, *arguments):
        before = sorted(tmp_path.rglob("*"))
        result = within(*arguments, cwd=tmp_path, module=module)
        assert (result.returncode, result.stdout) == (2, ""), result.stderr
        assert result.stderr.count("\n") == 1, result.stderr
        assert result.stderr.startswith(f"python -m {module}: ")
        assert sorted(tmp_path.rglob("*")) == before
        return result.stderr

    return run


@every
def test_help_explains_every_field(module, within, tmp_path):
    first, *_ = COMMANDS[module]
    general = within("--help", cwd=tmp_path, module=module)
    special = within(*filter(None, [first]), "--help", cwd=tmp_path, module=module)
    for result in (general, special):
        assert (result.returncode, result.stderr) == (0, "")
        assert f"python -m {module}" in result.stdout
    assert set(first.split()) <= set(re.findall(r"\w+", general.stdout))
    about = commands.describe(module)
    words = " ".join(re.sub("[│╭╮╰╯─]", " ", special.stdout).split())
    kinds = [about.kind(first), about.output]
    for field in [field for kind in kinds for field in dataclasses.fields(kind)]:
        if not dataclasses.is_dataclass(field.type) and field.name not in ("agent", "directory", "runs"):
            assert f"--{field.name.replace('_', '-')}" in words
    assert "Directory to write to" in words or module not in RUNS
    assert "File to write" in words or module not in FILES


@every
def test_the_version_is_that_of_the_package_and_of_jax(module, within, tmp_path):
    result = within("--version", cwd=tmp_path, module=module)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"marl-shaping {metadata.version('marl-shaping')}, jax {jax.__version__}\n"


def test_a_directory_of_runs_that_cannot_be_written_is_refused(refused, tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere" / "at_all")  # as for a disk that is not mounted
    assert "out: cannot write there: " in refused("marl.mfos", "ipd", "--evolution.generations=1")


@every
def test_without_arguments_the_needed_ones_are_named(module, refused):
    first = commands.describe(module).first or ("runs" if module == "marl.compare" else "directory")
    message = refused(module)
    assert f"{first}: none given; " in message
    assert set(COMMANDS[module][0].split()) <= set(re.findall(r"\w+", message))


@every
def test_unknown_options_are_refused(module, refused):
    first, _, bad, message = COMMANDS[module]
    needed = [first] if first else []
    option = "--number" if module == "marl.export" else "--seed"
    near = f"{option[:-2]}{option[-1]}{option[-2]}"
    assert f"unknown option {near}=3; did you mean {option}" in refused(module, *needed, f"{near}=3")
    assert message in refused(module, *needed, bad)
    assert option in refused(module, *needed, f"{option}=many")
    assert option in refused(module, *needed, option)


@pytest.mark.parametrize("module", [name for name, (first, *_) in COMMANDS.items() if first])
def test_unknown_first_arguments_are_refused(module, refused):
    first, *_ = COMMANDS[module]
    name = commands.describe(module).first
    last = first.split()[-1]
    assert re.search(rf"(preset|environment|{name}): got '{last}x'; .*{last}", refused(module, f"{first}x"))
    assert f"{name}: got '--seed=3' first; " in refused(module, "--seed=3")


@every_run
def test_existing_directories_are_not_overwritten(module, refused, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    first, *_ = COMMANDS[module]
    assert "taken: already holds something" in refused(module, first, "--out=taken")
    assert "taken/notes: already holds something" in refused(module, first, "--out=taken/notes")
    assert "out: cannot be written to: /proc/run" in refused(module, first, "--out=/proc/run")


@every_file
def test_existing_files_are_not_overwritten(module, refused, tmp_path):
    (tmp_path / "taken").write_text("mine")
    assert "out: taken already exists" in refused(module, "ipd", "--out=taken")
    assert "out: got 'nowhere/file'; a file in a directory that exists is needed" in refused(
        module, "ipd", "--out=nowhere/file"
    )
    (tmp_path / "stopped.run").mkdir()
    (tmp_path / "stopped.run" / "config.yaml").touch()
    assert "go on with --resume stopped.run" in refused(module, "ipd", "--out=stopped")


@every_file
def test_a_file_that_cannot_be_written_is_refused_before_any_work(module, refused):
    assert "out: cannot be written to: /proc/x.run" in refused(module, "ipd", "--out=/proc/x")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))  # as on a full disk
    try:
        assert "out: cannot be written to: " in refused(module, "ipd", "--out=file")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("module", [*RUNS, *FILES])
def test_a_command_resumes_only_its_own_runs(module, refused, tmp_path):
    first, other, *_ = COMMANDS[module]
    run = "file.run" if module in FILES else "run"
    (tmp_path / "empty").mkdir()
    for missing in ("nowhere", "empty"):
        assert f"--resume: got '{missing}'; the directory of a run" in refused(module, "--resume", missing)
    default = commands.describe(module).kind(first)()
    RunDirectory.create(tmp_path / run, default, f"python -m {module} {first}")
    config = tmp_path / run / "config.yaml"
    text = configs.to_text(default)
    assert config.read_text() == f"# python -m {module} {first}\n{text}"
    assert f"got '{other}'; {run} was begun as python -m {module} {first}" in refused(module, other, "--resume", run)
    assert "unknown option --seed" in refused(module, "--resume", run, "--seed=3")
    config.write_text(f"# python -m marl.other {first}\n{text}")
    assert f"--resume: got '{run}', a run of python -m marl.other" in refused(module, first, "--resume", run)
    config.write_text(f"# python -m {module} {first}\nunknown_field: 3\n")
    assert "unknown field unknown_field" in refused(module, first, "--resume", run)
    config.write_bytes(b"\xff\xfe\x80")
    needed = [first] if module == "marl.reproduce" else []  # the first argument alone determines the config
    assert "config.yaml: cannot be read as text" in refused(module, *needed, "--resume", run)


@every_file
def test_a_run_of_a_file_overwrites_only_its_own_file(module, refused, tmp_path):
    config = commands.describe(module).kind("ipd")()
    for folder in ("file.run", "elsewhere"):
        RunDirectory.create(tmp_path / folder, config, f"python -m {module} ipd")
    assert "--resume: got 'elsewhere'; a directory FILE.run" in refused(module, "--resume=elsewhere")
    expected = "out: file already exists, and is not of this run"
    (tmp_path / "file").write_text("mine")
    assert expected in refused(module, "--resume=file.run")
    (tmp_path / "file").unlink()
    replace_arrays(tmp_path / "file", {}, {"config": configs.plain(config) | {"seed": 3}})
    assert expected in refused(module, "--resume=file.run")


@dataclasses.dataclass(frozen=True)
class Inner:
    """A part."""

    size: int = 1
    """Its size."""


@dataclasses.dataclass(frozen=True)
class ToyConfig(configs.CommandConfig):
    """A toy."""

    words: str = "done"
    """The output, or the name of a failure."""
    idle: int = 0
    """Has an effect only if it works."""
    works: bool = True
    """Turns the others on."""
    inner: Inner = dataclasses.field(default_factory=Inner)

    @property
    def without_effect(self):
        return {} if self.works else {"idle": "where nothing works", "inner": "where nothing works"}


FAILURES = {
    "bad": (ValueError("two\nlines"), 1, "two lines"),
    "device": (JaxRuntimeError("RESOURCE_EXHAUSTED: too large\nand more"), 1, "RESOURCE_EXHAUSTED: too large"),
    "disk": (OSError(28, "No space left on device", "file"), 1, "file: No space left on device; go on with "),
    "stop": (KeyboardInterrupt(), 130, "stopped; go on with "),
}


def run_toy(config, run, console):
    if config.words in FAILURES:
        raise FAILURES[config.words][0]
    console.print(config.words)
    (run.path / "summary.json").write_text(json.dumps([config.words, config.idle]))


TOY = command.Command(
    program="python -m toy",
    description="Plays.",
    config={"ball": ToyConfig, "top": ToyConfig},
    run=run_toy,
    name=lambda first, config: f"{first} {config.words}",
    first="toy",
)


@pytest.fixture
def toy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, about=TOY):
        status = execute(about, arguments)
        return status, *capsys.readouterr()

    return run


def test_a_run_has_a_directory_of_its_own_and_can_be_resumed(toy, tmp_path):
    assert toy("ball", "--words=a/b", "--idle=2") == (0, "a/b\n", "")
    assert toy("ball", "--words=a/b", "--quiet") == (0, "", "")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["ball-a-b", "ball-a-b-2"]
    path = tmp_path / "runs" / "ball-a-b"
    assert (path / "config.yaml").read_text().startswith("# python -m toy ball --words=a/b --idle=2\nwords: a/b\n")
    assert toy("ball", "--words=two\nlines: 3", "--out=odd")[0] == 0
    first, second, *_ = (tmp_path / "odd" / "config.yaml").read_text().split("\n")
    assert first == "# python -m toy ball '--words=two lines: 3' --out=odd"  # the comment is one line
    assert second.startswith("words: ")
    for arguments in (["--resume", str(path)], ["ball", f"--resume={path}"]):
        (path / "summary.json").unlink()
        assert toy(*arguments) == (0, "a/b\n", "")
        assert json.loads((path / "summary.json").read_text()) == ["a/b", 2]
    status, out, error = toy("top", f"--resume={path}")
    assert (status, out) == (2, "")
    assert error == f"python -m toy: toy: got 'top'; {path} was begun as python -m toy ball\n"


def test_a_resumed_run_keeps_its_settings_of_rounding(toy, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    seen = []
    about = TOY._replace(run=lambda config, run, console: seen.append(os.environ["XLA_FLAGS"]))
    for options in (
        ("ball", "--deterministic", "--out=run"),
        ("--resume=run",),
        ("--resume=run", "--no-deterministic"),
    ):
        assert toy(*options, "--quiet", about=about) == (0, "", "")
    assert seen == [numerics.DETERMINISTIC, numerics.DETERMINISTIC, ""]
    status, _, error = toy("--resume=run", "--precision=tensorfloat32")
    assert (status, error) == (2, "python -m toy: precision: got tensorfloat32; float32 is needed on a cpu\n")


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_one_line_with_their_status(name, toy):
    _, expected, message = FAILURES[name]
    status, out, error = toy("ball", f"--words={name}", "--out=run")
    assert (status, out, error.count("\n")) == (expected, "", 1)
    assert error.startswith(f"python -m toy: {message}")
    assert error.endswith("python -m toy --resume run\n") or "go on" not in message


def test_options_without_effect_are_refused(toy):
    for option in ("--idle=3", "--inner.size=2"):
        status, _, error = toy("ball", "--no-works", option)
        assert (status, error.count("\n")) == (2, 1)
        assert f"{option[2:].split('=')[0]}: has no effect where nothing works" in error
    assert toy("ball", "--no-works")[0] == 0


def test_bad_settings_are_refused_before_anything_is_written(toy, tmp_path):
    def prepare(config):
        raise ValueError(f"words: got {config.words!r}; others are needed")

    status, _, error = toy("ball", about=TOY._replace(prepare=prepare))
    assert (status, error) == (2, "python -m toy: words: got 'done'; others are needed\n")
    assert list(tmp_path.iterdir()) == []


def test_a_stop_before_the_run_is_reported_too(toy):
    def prepare(config):
        raise KeyboardInterrupt

    expected = "python -m toy: stopped; nothing was written\n"
    assert toy("ball", about=TOY._replace(prepare=prepare)) == (130, "", expected)


def test_a_run_of_a_table_may_be_extended(toy, tmp_path):
    about = TOY._replace(output=command.ToTable)
    assert toy("ball", "--out=run", about=about)[0] == 0
    assert toy("ball", "--out=run", "--words=more", about=about) == (0, "more\n", "")
    assert "words: more" in (tmp_path / "run" / "config.yaml").read_text()
    # A run killed between writing the two files of its config, and started again.
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("words: more", "words: all"))
    status, _, error = toy("ball", "--out=run", "--words=most", about=about)
    assert (status, "words: was 'more' and is 'all' now" in error) == (2, True)
    assert toy("ball", "--out=run", "--words=all", about=about) == (0, "all\n", "")
    assert toy("ball", "--out=run", "--words=most", about=about)[0] == 0
    (tmp_path / "run" / "config.yaml").write_text("others: 3\n")
    status, _, error = toy("ball", "--out=run", about=about)
    assert (status, "unknown field others" in error) == (2, True)


def test_a_file_is_named_by_the_command_or_by_out(toy, tmp_path):
    def write(config, run, console):
        command.file_of(run.path).write_text(config.words)

    about = TOY._replace(output=command.ToFile, run=write)
    assert toy("ball", about=about)[0] == toy("ball", "--out=mine", about=about)[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ball done", "ball done.run", "mine", "mine.run"]
    stop = about._replace(run=run_toy)
    expected = "python -m toy: stopped; go on with python -m toy --resume other.run\n"
    assert toy("ball", "--words=stop", "--out=other", about=stop) == (130, "", expected)
    (tmp_path / "mine").unlink()
    assert toy("--resume", "mine.run", about=about)[0] == 0
    assert (tmp_path / "mine").read_text() == "done"


def test_a_stopped_command_without_a_directory_names_its_own_line(toy, tmp_path):
    about = TOY._replace(config=ToyConfig, first="", output=command.Quiet, run=run_toy)
    expected = "python -m toy: stopped; go on with python -m toy --words stop --idle=2\n"
    assert toy("--words", "stop", "--idle=2", about=about) == (130, "", expected)
    assert toy("--words", "stop", about=about._replace(output=command.Nothing))[2].endswith(
        "stopped; nothing was written\n"
    )
    assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass(frozen=True)
class Checked(configs.CommandConfig):
    """A config that checks itself."""

    size: int = 1
    """A number."""

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size: got {self.size}; at least 1 is needed")


@pytest.mark.parametrize("output", [command.ToDirectory, command.Nothing])
@pytest.mark.parametrize("evolves", [False, True])
def test_every_class_of_options_checks_its_own_fields(output, evolves):
    config, options, _, place = _parse(TOY._replace(evolves=evolves), Checked(), output, ["--size=2"], "", "")
    assert (config, options, place) == (Checked(2), output(), OnCluster())
    with pytest.raises(ValueError, match="size: got 0"):
        _parse(TOY._replace(evolves=evolves), Checked(), output, ["--size=0"], "", "")
    with pytest.raises(ValueError, match="cluster: got 'nonsense'" if evolves else "unknown option --cluster"):
        _parse(TOY._replace(evolves=evolves), Checked(), output, ["--cluster=nonsense"], "", "")
