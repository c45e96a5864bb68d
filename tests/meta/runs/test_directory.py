"""Run directories: damage, refusals and resumption, with a command that takes no time."""

import dataclasses
import json
import os
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import configs
from configs import files
from meta import RunDirectory
from meta.loop import iterate
from meta.runs import provenance
from meta.runs.command import Command
from meta.runs.execution import execute
from tests.fault_injection import damages
from tests.fault_injection.damages import go, results, verdict

GENERATIONS, LONGER = 12, 20


@dataclasses.dataclass(frozen=True)
class Walk:
    """Settings of the walk."""

    generations: int = GENERATIONS
    """Steps."""
    sigma: float = 0.5
    """Length of one."""

    def __post_init__(self):
        configs.check_least(self, generations=1)


@dataclasses.dataclass(frozen=True)
class WalkConfig(configs.CommandConfig):
    """A random walk."""

    seed: int = 0
    """Seed of all draws."""
    evaluation_trials: int = 2
    """Number of trials."""
    falls: bool = False
    """Lets the step length depend on the number of steps."""
    walk: Walk = dataclasses.field(default_factory=Walk)

    @property
    def may_rise(self):
        return {"walk.generations": ["walk.sigma"] if self.falls else []}

    @property
    def may_change(self):
        return ("evaluation_trials",)


def walk(config, run, console):
    fall = config.walk.generations if config.falls else 1.0

    def step(key, number, state):
        x = state["x"] + config.walk.sigma / fall * jax.random.normal(jax.random.fold_in(key, number), (3,))
        mean = jax.numpy.where(number == 2, jax.numpy.nan, x.mean())
        return {"x": x, "key": jax.random.fold_in(state["key"], number)}, {"mean": mean, "each": x}

    state = {"x": jax.numpy.zeros(3), "key": jax.random.key(7)}
    key = jax.random.key(config.seed)
    found = iterate(step, state, key, config.walk.generations, store=run, report=REPORT[0], checkpoint_seconds=0)
    run.write_summary({"x": found.state["x"].tolist(), "trials": config.evaluation_trials, "wall_seconds": 1})


REPORT = [None]
COMMAND = Command({"there": WalkConfig, "back": WalkConfig}, walk, "python -m walk", "Walks.", first="way")
main = partial(execute, COMMAND)


def test_metrics_are_json_for_all_numbers(tmp_path):
    def refuse(word):
        raise AssertionError(word)

    run = RunDirectory(tmp_path, print)
    run.append([{"generation": 1, "kl": [float("inf"), 0.5], "gain": -float("inf"), "loss": float("nan")}])
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=refuse) == {"generation": 1, "kl": [None, 0.5], "gain": None, "loss": None}


def test_a_resumed_run_connects_by_its_new_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    connected = []
    choose = lambda config: connected.append(config.evaluation_trials)  # noqa: E731
    elsewhere = partial(execute, COMMAND._replace(choose_devices=choose, connects=("evaluation_trials",)))
    assert elsewhere(["there", "--evaluation-trials=3", "--out=run"]) == 0
    assert elsewhere(["--resume=run", "--evaluation-trials", "5"]) == 0
    assert elsewhere(["--resume=run"]) == 0
    assert connected == [3, 5, 5]


def stop(generation, metrics, seconds):
    if generation >= 5:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a whole run and a stopped one."""
    folder = tmp_path_factory.mktemp("runs")
    calls = pytest.MonkeyPatch()
    calls.setattr("meta.loop.MAX_ITERATIONS_PER_CALL", 3)  # so that a stop is possible between calls
    try:
        assert go(main, "there", "--out", str(folder / "whole")) == (0, "")
        REPORT[0] = stop
        assert go(main, "there", "--out", str(folder / "stopped"))[0] == 130
        REPORT[0] = None
        yield folder
    finally:
        calls.undo()


def test_a_stopped_run_ends_as_an_unbroken_one(runs, tmp_path):
    path = damages.copy(runs / "stopped", tmp_path / "run")
    done = len((path / "metrics.jsonl").read_text().splitlines())
    assert 5 <= done < GENERATIONS
    assert not (path / "summary.json").exists()
    assert verdict(main, path, results(runs / "whole")) == "equal"
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [row["generation"] for row in rows] == list(range(1, GENERATIONS + 1))
    assert rows[2]["mean"] is None  # NaN
    assert results(path)["metrics.jsonl"] == results(runs / "whole")["metrics.jsonl"]


@pytest.mark.parametrize("damage", damages.DAMAGES)
@pytest.mark.parametrize("base", ["whole", "stopped"])
def test_a_run_with_a_damaged_file_ends_as_an_unbroken_one_or_is_refused(base, damage, runs, tmp_path):
    expected, found = results(runs / "whole"), {}
    for file in damages.files(runs / base):
        path = damages.copy(runs / base, tmp_path / "run")
        damage(path / file)
        found[str(file)] = verdict(main, path, expected)
    assert set(found.values()) <= {"equal", "refused"}, found
    # Files that are stored twice, or written again, are no reason for a refusal.
    kept = {name for name in found if name.startswith("checkpoints") or name in ("run.json", ".lock")}
    kept |= {"metrics.jsonl"} | ({"config.yaml"} if damage is damages.removed else set())
    if damage is not damages.a_folder:
        assert {found[name] for name in kept} == {"equal"}, found


def test_a_changed_config_is_refused_with_the_old_and_the_new_value(runs, tmp_path):
    def edit(**fields):
        path = damages.copy(runs / "stopped", tmp_path / "run")
        text = (path / "config.yaml").read_text()
        config = yaml.safe_load(text)
        for name, value in fields.items():
            holder, _, field = name.rpartition("__")
            (config[holder] if holder else config)[field or name] = value
        (path / "config.yaml").write_text(text.partition("\n")[0] + "\n" + yaml.safe_dump(config, sort_keys=False))
        before = damages.contents(path)
        status, said = go(main, "--resume", str(path))
        assert (status, said.count("\n")) == (2, 1), said
        assert damages.contents(path) == before
        return said

    assert "seed: was 0 and is 3 now; a run goes on as it was begun, but for walk.generations" in edit(seed=3)
    assert "walk.sigma: was 0.5 and is 0.25 now" in edit(walk__sigma=0.25)
    assert "walk.generations: got 11; at least 12, as so far, is needed" in edit(walk__generations=11)
    path = damages.copy(runs / "stopped", tmp_path / "run")
    for contents, words in {
        "": "config.yaml: the run was begun as python -m walk there, which its first line does not say",
        "# python -m walk there\n": "config.yaml: seed is missing, and was 0; without config.yaml, it is written as",
        "# python -m walk back\n": "config.yaml: the run was begun as python -m walk there",
        "# python -m walk there\nseed: 0\nevaluation_trials: 2\nfalls: false\n": "walk.generations is missing",
    }.items():
        (path / "config.yaml").write_text(contents)
        for run in (path, damages.copy(path, tmp_path / "none")):  # with checkpoints, and before the first
            if run != path:
                shutil.rmtree(run / "checkpoints")
            status, said = go(main, "--resume", str(run))
            assert (status, said.count("\n"), words in said) == (2, 1, True), said
    os.unlink(path / "run.json")
    shutil.rmtree(path / "checkpoints")
    shutil.copy(runs / "whole" / "config.yaml", path)
    status, said = go(main, "--resume", str(path))
    assert (status, "neither run.json nor a checkpoint says with which config" in said) == (2, True), said


def test_a_state_of_half_precision_is_restored(tmp_path):
    state = {name: jnp.arange(3, dtype=name) / 7 for name in ("bfloat16", "float16")} | {"key": jax.random.key(3)}
    with RunDirectory.create(tmp_path / "run", {}, "python -m marl.mfos") as run:
        run.save(1, state, {"return": np.asarray(jnp.ones(1, jnp.bfloat16))})
        generation, found, metrics = run.restore(jax.eval_shape(lambda: state), 2)
    assert (generation, metrics["return"].tolist()) == (1, [1.0])
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, state)
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: bool((x == y).all()), found, state)))


def test_a_config_with_the_line_ends_of_windows_is_the_same(runs, tmp_path):
    path = damages.copy(runs / "stopped", tmp_path / "run")
    text = (path / "config.yaml").read_bytes()
    (path / "config.yaml").write_bytes(text.replace(b"\n", b"\r\n"))
    assert verdict(main, path, results(runs / "whole")) == "equal"


def test_a_checkpoint_of_another_run_is_refused(runs, tmp_path):
    assert go(main, "there", "--seed=1", "--out", str(tmp_path / "other"))[0] == 0
    path = damages.copy(runs / "stopped", tmp_path / "run")
    shutil.copy(tmp_path / "other" / "checkpoints" / "00000012", path / "checkpoints")
    status, said = go(main, "--resume", str(path))
    assert (status, said.count("\n")) == (1, 1)
    assert "00000012: is of another run: seed is 1 there and 0 here" in said
    assert (path / "checkpoints" / "00000012").exists()
    run = RunDirectory(tmp_path / "other")
    like = {"key": jax.random.key(0), "x": jax.numpy.zeros(3)}
    assert run.restore(like, 12)[0] == 12
    with pytest.raises(ValueError, match="12 generations are done; got 11 of them, and no fewer are needed"):
        run.restore(like, 11)
    with pytest.raises(ValueError, match="belongs to a run with other settings"):
        run.restore(like | {"x": jax.numpy.zeros(4)}, 12)
    assert len(list((run.path / "checkpoints").iterdir())) == 3


@pytest.mark.parametrize("base", ["whole", "stopped"])
def test_a_lengthened_run_has_the_results_of_a_long_one(base, runs, tmp_path):
    more = f"--walk.generations={LONGER}"
    assert go(main, "there", more, "--out", str(tmp_path / "long")) == (0, "")
    path = damages.copy(runs / base, tmp_path / "run")
    assert go(main, "--resume", str(path), more, "--evaluation-trials=5", "--quiet") == (0, "")
    expected, found = results(tmp_path / "long"), results(path)
    summary = found.pop("summary.json")
    assert found == {name: x for name, x in expected.items() if name != "summary.json"}
    assert summary["x"] == expected["summary.json"]["x"]
    assert summary["trials"] == 5
    reached = {"whole": 12, "stopped": len((runs / "stopped" / "metrics.jsonl").read_text().splitlines())}[base]
    assert summary["changes"] == [
        {"field": "evaluation_trials", "before": 2, "now": 5, "generation": reached},
        {"field": "walk.generations", "before": 12, "now": 20, "generation": reached},
    ]
    assert f"generations: {LONGER}" in (path / "config.yaml").read_text()
    for fewer in (12, 19, 0):
        status, said = go(main, "--resume", str(path), f"--walk.generations={fewer}")
        assert (status, said.count("\n"), f"generations: got {fewer}" in said) == (2, 1, True), said
    assert "unknown option --seed" in go(main, "--resume", str(path), "--seed=3")[1]
    # An older checkpoint belongs to the same run after a change too.
    newest = max((path / "checkpoints").iterdir())
    damages.cut(newest)
    status, said = go(main, "--resume", str(path), "--quiet")
    assert (status, said.count("\n"), "is damaged and left out" in said) == (0, 1, True)
    assert results(path)["metrics.jsonl"] == expected["metrics.jsonl"]


def test_a_lengthened_run_with_a_schedule_reports_the_difference(runs, tmp_path):
    path = tmp_path / "run"
    assert go(main, "there", "--falls", "--out", str(path)) == (0, "")
    status, said = go(main, "--resume", str(path), f"--walk.generations={LONGER}")
    assert (status, said.count("\n")) == (0, 1)
    change = "because of walk.sigma, which falls over it, the result differs from that of a run that begins with"
    assert f"; {change} {LONGER}" in said
    assert results(path)["summary.json"]["changes"][0]["generation"] == GENERATIONS


def test_help_lists_the_options_of_a_resumed_run(runs, capsys):
    for arguments in (["--resume", "--help"], ["--resume", str(runs / "whole"), "--help"]):
        with pytest.raises(SystemExit):
            main(arguments)
        shown = capsys.readouterr().out
        for words in (
            "--walk.generations INT",
            "At least as many as so far. (default: 12)",
            "--evaluation-trials INT",
            "Number of trials.",
        ):
            assert words in shown
        assert "--seed" not in shown
    with pytest.raises(SystemExit):
        main(["there", "--help"])
    assert "--resume STR" in capsys.readouterr().out


def test_another_machine_is_reported_once_and_recorded(runs, tmp_path, monkeypatch):
    path = damages.copy(runs / "stopped", tmp_path / "run")
    here, done = provenance.place(), len((path / "metrics.jsonl").read_text().splitlines())
    monkeypatch.setattr(provenance, "place", lambda: "64 x cpu, 64 core(s), jax 9")
    status, said = go(main, "--resume", str(path), "--quiet")
    assert (status, said.count("\n")) == (0, 1)
    assert f"so far on {here}, now on 64 x cpu, 64 core(s), jax 9: numbers agree but for rounding" in said
    changes = results(path)["summary.json"]["changes"]
    assert changes == [{"field": "devices", "before": here, "now": provenance.place(), "generation": done}]
    assert go(main, "--resume", str(path), "--quiet") == (0, "")


LINES = {
    "a byte that is no text": lambda lines: [*lines[:-1], lines[-1] + b"\xff"],
    "a bad line": lambda lines: [*lines[:2], b"{nonsense\n", *lines[3:]],
    "a missing line": lambda lines: lines[:3] + lines[4:],
    "a doubled line": lambda lines: lines[:3] + lines[2:],
    "another number": lambda lines: [line.replace(b'"generation": 2', b'"generation": 3') for line in lines],
    "another digit": lambda lines: [lines[0], lines[1].replace(b"0.", b"1.", 1), *lines[2:]],
    "no file": None,
}


@pytest.mark.parametrize("name", LINES)
def test_metrics_come_from_the_checkpoint_if_their_file_is_damaged(name, runs, tmp_path):
    path = damages.copy(runs / "stopped", tmp_path / "run")
    file, before = path / "metrics.jsonl", sorted((path / "checkpoints").iterdir())
    if change := LINES[name]:
        lines = file.read_bytes().splitlines(keepends=True)
        assert change(lines) != lines
        file.write_bytes(b"".join(change(lines)))
    else:
        file.unlink()
    status, said = go(main, "--resume", str(path), "--quiet")
    changed = name != "a byte that is no text"  # it is after the end of the last line, in no generation
    assert (status, said.count("\n")) == (0, int(changed)), said
    assert not changed or "metrics.jsonl: damaged from line" in said
    assert results(path) == results(runs / "whole")
    assert not [file for file in before if file.with_name(f"{file.name}.damaged").exists()]


@pytest.mark.parametrize("attack", damages.ATTACKS)
def test_no_file_outside_a_run_directory_is_changed(attack, runs, tmp_path):
    outside = damages.make_outside(tmp_path / "outside")
    before = damages.contents(outside)
    names = [*map(str, damages.files(runs / "whole")), ".metrics.jsonl", ".summary.json", "checkpoints/.00000012"]
    for name in names:
        path = damages.copy(runs / "whole", tmp_path / "run")
        (path / name).touch()
        attack(path / name, outside)
        status, said = go(main, "--resume", str(path))
        assert (status, said.count("\n")) == (2, 1), said
        assert "is no file of its own; a run holds neither links nor pipes" in said
    for folder in ("checkpoints", "figures"):
        path = damages.copy(runs / "whole", tmp_path / "run")
        shutil.rmtree(path / folder, ignore_errors=True)
        (path / folder).symlink_to(outside / "checkpoints")
        assert go(main, "--resume", str(path))[0] == 2
    (tmp_path / "empty").mkdir()
    attack_lock = tmp_path / "empty" / ".lock"
    attack_lock.touch()
    attack(attack_lock, outside)
    status, said = go(main, "there", "--out", str(tmp_path / "empty"))
    assert (status, said.count("\n")) == (2, 1), said
    assert damages.contents(outside) == before


def test_a_huge_checkpoint_is_refused_before_it_is_read(runs, tmp_path, monkeypatch):
    path = damages.copy(runs / "stopped", tmp_path / "run")
    huge = path / "checkpoints" / "00000011"
    huge.touch()
    os.truncate(huge, 6 * 2**30)  # zeros take no space
    read = files.read

    def guarded(path, **limits):
        assert path != huge
        return read(path, **limits)

    monkeypatch.setattr(files, "read", guarded)
    for run_json in (True, False):  # the size of checkpoints comes from run.json or from an older checkpoint
        if not run_json:
            (path / "run.json").unlink()
        status, said = go(main, "--resume", str(path))
        assert (status, said.count("\n")) == (1, 1), said
        assert "00000011: it is larger than a checkpoint of this run" in said
    assert huge.exists()


BOMB = "a: &a [x, x]\n" + "".join(f"{y}: &{y} [*{x}, *{x}]\n" for x, y in zip("abcdefghij", "bcdefghijk", strict=True))


@pytest.mark.parametrize("name", ["aliases", "nested", "large", "pipe", "zeros", "long"])
def test_malicious_presets_are_refused_in_one_line(name, tmp_path, within, monkeypatch):
    file, words = tmp_path / "preset.yaml", "cannot be read as text"
    if name == "aliases":
        file.write_text(BOMB)
        words = "not valid YAML (aliases such as *a are not read)"
    elif name == "nested":
        file.write_text("opponent: " + "[" * 20_000)
        words = "not valid YAML (more than 16 levels are not read)"
    elif name == "large":
        file.write_text("#" * 2**17)
    elif name == "pipe":
        os.mkfifo(file)
    elif name == "zeros":
        file = "/dev/zero"
    else:
        file, words = "x" * 5000, "preset: got 'xxx"
    result = within(str(file), cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert words in result.stderr
    assert len(result.stderr) < 1500
    assert within("ipd", "--resume", "x" * 5000, cwd=tmp_path).stderr.count("\n") == 1
    (tmp_path / "bad.yaml").write_text("out: ../../x\n")
    assert "unknown field out" in within("bad.yaml", cwd=tmp_path).stderr


def test_a_directory_with_only_a_lock_is_empty(runs, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".lock").touch()
    status, said = go(main, "--resume", str(path))
    assert (status, said.count("\n"), "the directory of a run (with config.yaml) is needed" in said) == (2, 1, True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "link").symlink_to(path)
    status, said = go(main, "--resume", str(tmp_path / "other"))  # what is in a folder that is no run is not looked at
    assert (status, said.count("\n"), "the directory of a run (with config.yaml) is needed" in said) == (2, 1, True)
    assert go(main, "there", "--out", str(path)) == (0, "")
    assert results(path) == results(runs / "whole")


def test_paths_that_are_too_long_are_refused_in_one_line(tmp_path):
    for path in ("x" * 5000, "x/" * 2500):
        for arguments in (["there", "--out", path], ["--resume", path]):
            status, said = go(main, *arguments)
            assert (status, said.count("\n")) == (2, 1)
            assert len(said) < 700
