"""A sample of the lines of `python -m tests.fault_injection.commands`, and bad lines that once were not refused."""

import dataclasses
import io
import os

import pytest
from rich.console import Console

import configs
from attacks.experiments import transfer
from attacks.experiments.config import AttackConfig
from configs import flags
from marl.experiments.crossplay import experiment as crossplay
from marl.experiments.shaping.config import ExactShapingConfig
from meta import Evolution, RunDirectory, evolve
from meta.xla.memory import TooLarge, check_bytes
from tests.fault_injection.commands import Ended, draw, faults, prepare, written
from tests.fault_injection.lines import Line

LINES = 60


@pytest.fixture
def tried(within, tmp_path):
    """Runs a line in a directory of its own; returns its end."""

    def run(number, line):
        folder = tmp_path / str(number)
        folder.mkdir()
        before, began = prepare(line, folder), os.times()
        module = "games.__main__" if line.module == "games" else line.module
        result = within(*line.arguments, cwd=folder, module=module)
        seconds = os.times().user - began.user
        new = sorted(map(str, set(written(folder)) ^ set(before)))
        return Ended(result.returncode, result.stdout, result.stderr, new, seconds)

    return run


def test_bad_lines_are_refused_in_one_line_before_anything_is_written(tried):
    for number, line in enumerate(draw(7, LINES)):
        assert faults(line, tried(number, line)) == [], line


MET = {
    "--trials=99999999999999999999": ("marl.mfos", "ipd", "trials: got 99999999999999999999; a whole number of"),
    "--evaluation-trials=2000000000": ("marl.mfos", "ipd", "evaluation_trials: got 2000000000, which needs "),
    "--evolution.weight-decay=inf": ("marl.mfos", "ipd", "--evolution.weight-decay: got 'inf'; a finite number"),
    "--evolution.chunk-size=-1": ("marl.mfos", "ipd", "chunk_size: got -1; a whole number of at least 0 is needed"),
    "--opponent=sos(b=5)": ("marl.mfos", "ipd", "sos: b: got 5; a number in (0, 1) is needed"),
    "--opponent=hola(order=0)": ("marl.mfos", "ipd", "hola: order: got 0; a whole number from 1 to 3 is needed"),
    "--opponent=naive(learning_rate=[3, 0.1])": ("marl.mfos", "ipd", "got [3, 0.1]; a number, or [lowest, highest]"),
    "--learner=dqn(buffer_size=2000000000)": ("marl.train", "cartpole", "2000000000)', which needs"),
    "--learner=ppo(hidden=[10000000000])": ("marl.train", "cartpole", "hidden: got [10000000000]; a list of whole"),
    "--learner=ppo(hidden=[1000000, 1000000])": ("marl.train", "cartpole", "got 'ppo(hidden=[1000000, 1000000])"),
    "--learner=ppo(max_gradient_norm=0)": ("marl.train", "cartpole", "max_gradient_norm: got 0; a number above 0"),
    "--learner=ppo(minibatches=7)": ("marl.train", "cartpole", "minibatches: got 7; a divisor of the 512 steps"),
    "--victim=ppo(minibatches=7)": ("attacks.act", "cartpole", "minibatches: got 7; a divisor of the 1024 steps"),
    "--environment=CartPole-v1(gravity=None)": (
        "marl.train",
        "cartpole",
        "CartPole-v1: gravity: got None; a value such",
    ),
    "--warm-up.generations=0": ("attacks.act", "cartpole", "act: warm_up.generations: got 0; a whole number from 1"),
    "stray": ("marl.mfos", "ipd", "unknown argument stray; --help shows what there is"),
    "--row-payoffs=1": ("marl.mfos", "ipd", "--row-payoffs: got '1'; 4 finite numbers or None is needed"),
    "--sead=3": ("marl.mfos", "ipd", "unknown option --sead=3; did you mean --seed"),
    f"--game={'x' * 5000}": ("marl.mfos", "ipd", "game: got 'xxx"),
    f"--out={'x' * 5000}": ("marl.bound", "ipd", "out: cannot be written to: xxx"),
}  # fmt: skip


def test_bad_input_that_once_passed_or_broke_is_refused(tried):
    for number, (argument, (module, first, message)) in enumerate(MET.items()):
        line = Line(module, (first, argument), "", (message,), argument)
        assert faults(line, tried(number, line)) == [], line


def test_damaged_results_are_reported_in_one_line(tmp_path):
    cells = {"row_return": 1.0, "row_standard_error": None, "column_return": 2.0, "column_standard_error": 0.5}
    run = RunDirectory(tmp_path)
    good = crossplay._line("a", cells).encode()
    for bad in (b"\xff\n", b"{}\n", b"[]\n", b"null\n", b'{"cell": {}}\n', good.replace(b"1.0", b'"x"'), b"[" * 9999):
        (tmp_path / "pairs.jsonl").write_bytes(good + bad)
        text = io.StringIO()
        assert crossplay._read_known(run, Console(file=text, width=400)) == {"a": cells}
        assert "pairs.jsonl: 1 of 2 lines are damaged; their pairs are played again" in text.getvalue()
        assert (tmp_path / "pairs.jsonl").read_bytes() == good
        (tmp_path / "examination.json").write_bytes(bad)
        console = Console(file=(text := io.StringIO()), width=400)
        found = transfer._read_known(tmp_path / "examination.json", lambda *result: "", console)
        assert found["transfer"] == found["defences"] == {}
        assert text.getvalue().count("\n") == 1


def test_a_file_has_each_key_once():
    with pytest.raises(configs.ConfigError, match=r"^here: seed is given twice; once is needed$"):
        configs.from_text(dict, "seed: 1\ntrials: 3\nseed: 2\n", "here")


@dataclasses.dataclass(frozen=True)
class _Numbers:
    seed: int = 0
    rate: float = 0.0


def test_whole_numbers_of_a_file_are_decimal():
    assert configs.from_text(_Numbers, "seed: 1_000\nrate: 010", "here") == _Numbers(1000, 10.0)
    for text in ("1.5", "-.5", "1_0.5e-3", "2."):
        assert configs.values(f"x: {text}", "here") == {"x": float(text.replace("_", ""))}
    with pytest.raises(configs.ConfigError, match=r"rate: got '1:30.5'"):
        configs.from_text(_Numbers, "rate: 1:30.5", "here")
    for text in ("010", "0x10", "1:30"):  # 8, 16 and 90 in YAML 1.1
        with pytest.raises(configs.ConfigError, match=f"seed: got '{text}'; a whole number is needed"):
            configs.from_text(_Numbers, f"seed: {text}", "here")


def test_parts_of_a_file_keep_the_defaults_of_their_field():
    """`warm_up` of an attack has others than `Evolution` by itself."""
    found, default = configs.from_text(AttackConfig, "warm_up: {sigma: 0.5}", "here"), AttackConfig()
    assert found.warm_up == dataclasses.replace(default.warm_up, sigma=0.5) != Evolution(sigma=0.5)
    assert found.evolution == default.evolution


@pytest.mark.parametrize("text", ["!!int ''", "!!float ''", "!!bool 'x'", "!!timestamp 'x'"])
def test_a_tag_whose_text_does_not_fit_is_refused(text):
    with pytest.raises(configs.ConfigError, match="here: not valid YAML"):
        configs.values(f"seed: {text}", "here")


def test_an_evolution_needs_trials():
    for number in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match=f"num_trials: got {number}; a whole number from 1"):
            evolve(None, None, None, num_trials=number)


def test_values_are_shown_in_two_hundred_characters():
    for message in (
        f"a: got {'x' * 999}; b is needed",
        f"a: got '{'x y ' * 999}'; b is needed",
        f"a: got {list(range(999))}; b is needed",
        f"a {'x' * 999} is unknown",
    ):
        line = configs.one_line(message)
        assert len(line) < configs.LONGEST + 30
        assert line.startswith(message[:20])
    assert configs.one_line("two\nlines\x1b") == "two lines"
    assert len(configs.shown(10**5000)) <= configs.LONGEST


def test_arrays_that_no_memory_holds_are_named():
    with pytest.raises(TooLarge, match=r"^trials: got 3, which needs 931,322\.6 GiB of memory; one that needs less"):
        check_bytes("trials", 3, 1e15)
    check_bytes("trials", 3, 1.0)


def test_a_value_may_be_written_in_every_usual_way():
    """With a space, with `=`, and in all spellings of the numbers and lists."""

    def config(*arguments):
        return flags.parse(ExactShapingConfig(), arguments)

    assert config("--seed", "3", "--trials=4", "--evolution.population_size", "8").evolution.population_size == 8
    assert config("--row-payoffs", "-1", "-3.5", "0", "1e-1").row_payoffs == (-1.0, -3.5, 0.0, 0.1)
    assert config("--row-payoffs=1", "2", "3", "4", "--seed=1").row_payoffs == (1.0, 2.0, 3.0, 4.0)
    assert config("--row-payoffs", "None").row_payoffs is None
    assert config("--unseen", "lola", "tft").unseen == ("lola", "tft")
    assert config("--unseen").unseen == ()
    assert config("--opponent=--x=1").opponent == "--x=1"
    assert config("--meta-learner", "ppo").meta_learner == "ppo"
