"""Points of a sweep: combinations, draws, settings inside of specs, and what is refused."""

import math

import pytest

from configs import ConfigError
from marl.commands import COMMANDS, describe
from marl.experiments.sweep import plan
from marl.experiments.sweep.plan import Sweep, SweepOptions


def sweep_of(line, **settings):
    words, found = plan.split(line.split())
    options = {name: plan.values_of(name, some) for name, some in found.items()}
    return Sweep(words[0], " ".join(words[1:]), options, **settings)


def points_of(line, **settings):
    sweep = sweep_of(line, **settings)
    return plan.points_of(sweep, describe(COMMANDS[sweep.command].module))


def test_a_grid_has_all_combinations():
    points = points_of("mfos ipd --evolution.sigma 0.1,0.2 --opponent naive,lola(learning_rate=0.5) --seeds 3")
    assert [(p.config.evolution.sigma, p.config.opponent) for p in points] == [
        (0.1, "naive"),
        (0.1, "lola(learning_rate=0.5)"),
        (0.2, "naive"),
        (0.2, "lola(learning_rate=0.5)"),
    ]
    assert {point.config.seeds for point in points} == {3}
    assert points[0].name == "evolution.sigma=0.1-opponent=naive"
    assert points[0].values == {"evolution.sigma": "0.1", "opponent": "naive"}
    assert len({point.name for point in points}) == 4


def test_commas_inside_of_brackets_and_quotes_separate_nothing():
    assert plan.values_of("opponent", ["zd(chi=2, phi=0.1),axelrod(name='a,b')"]) == [
        ["zd(chi=2, phi=0.1)"],
        ["axelrod(name='a,b')"],
    ]
    assert plan.values_of("unseen", ["tft", "lola"]) == [["tft", "lola"]]


def test_a_setting_of_a_spec_stands_inside_of_it():
    points = points_of("mfos ipd --opponent.learning_rate 0.1,1 --opponent naive,lola(order=2)")
    assert [point.config.opponent for point in points] == [
        "naive(learning_rate=0.1)",
        "lola(order=2, learning_rate=0.1)",
        "naive(learning_rate=1)",
        "lola(order=2, learning_rate=1)",
    ]
    (point,) = points_of("train CartPole-v1 --learner.hidden [32,32]")
    assert point.config.learner == "ppo(hidden=[32, 32])"


def test_flags_of_truth_values():
    points = points_of("distributed CartPole-v1 --processes true,false")
    assert [point.config.processes for point in points] == [True, False]


def test_a_random_search_is_the_same_for_the_same_seed_and_within_its_ranges():
    line = "mfos ipd --evolution.sigma 0.001..1 --trials 1..3 --evolution.sigma-end 0..1 --opponent naive,lola"
    points = points_of(line, samples=200)
    assert [p.words for p in points_of(line, samples=50)] == [p.words for p in points[:50]]
    assert points_of(line, samples=5, sample_seed=1)[0].words != points[0].words
    assert {point.config.trials for point in points} == {1, 2, 3}
    assert {point.config.opponent for point in points} == {"naive", "lola"}
    sigmas = [point.config.evolution.sigma for point in points]
    assert all(0.001 <= sigma <= 1 for sigma in sigmas)
    # A third of the logarithmic range each; the standard deviation of such a share of 200 is 0.033.
    for low in (0.001, 0.01, 0.1):
        assert math.isclose(sum(low <= sigma < 10 * low for sigma in sigmas) / 200, 1 / 3, abs_tol=0.12)
    ends = [point.config.evolution.sigma_end for point in points]
    assert math.isclose(sum(ends) / 200, 0.5, abs_tol=0.08)  # evenly, because 0 has no logarithm
    assert len({point.name for point in points}) == 200


def test_points_of_a_random_search_all_differ_and_are_as_many_as_there_are():
    points = points_of("mfos ipd --opponent naive,lola --trials 1..2", samples=9)
    assert len({(point.config.opponent, point.config.trials) for point in points}) == len(points) == 4
    sizes = [
        point.config.evolution.population_size
        for point in points_of("mfos ipd --evolution.population-size 64..256", samples=20)
    ]
    assert len(set(sizes)) == 20
    assert all(size % 2 == 0 for size in sizes)  # of antithetic pairs


def test_points_of_one_name_get_numbers():
    names = [point.name for point in points_of("mfos ipd --seed 1,1")]
    assert names == ["0-seed=1", "1-seed=1"]


def test_a_file_says_what_a_command_line_says(tmp_path):
    line = "mfos ipd --evolution.sigma 0.1,0.2 --unseen tft lola --seeds 3"
    sweep = sweep_of(line, samples=4, sample_seed=2, imports=("--import", "mine"))
    plan.write(tmp_path / "sweep.yaml", sweep)
    assert plan.from_file(tmp_path / "sweep.yaml") == sweep
    hand_written = "command: mfos\nfirst: ipd\noptions: {evolution.sigma: [0.1, 2e-1], unseen: [[tft, lola]], seeds: 3}"
    (tmp_path / "own.yaml").write_text(hand_written)
    own = plan.points_of(plan.from_file(tmp_path / "own.yaml"), describe("marl.mfos"))
    assert [point.config for point in own] == [point.config for point in points_of(line)]


def test_a_sweep_of_as_many_points_as_there_may_be_is_read_again(tmp_path):
    sweep = Sweep("mfos", "ipd", {"seed": [[str(1_000_000 + seed)] for seed in range(plan.MOST_POINTS)]})
    plan.write(tmp_path / "sweep.yaml", sweep)
    assert plan.from_file(tmp_path / "sweep.yaml") == sweep


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{seed: []}", "seed: got no value; one at least is needed"),
        ("{opponent: [null], opponent.learning_rate: [0.1..1.0]}", "opponent.learning_rate: got "),
    ],
)
def test_options_without_values_in_a_file_are_refused(options, message, tmp_path):
    (tmp_path / "own.yaml").write_text(f"command: mfos\nfirst: ipd\noptions: {options}\nsamples: 2\n")
    with pytest.raises(ValueError, match=message):
        plan.points_of(plan.from_file(tmp_path / "own.yaml"), describe("marl.mfos"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mfos ipd --evolution.sigma 0.1,-1", "evolution.sigma: got -1"),
        ("mfos ipd --evolution.sigma 0.1,,1", "evolution.sigma: got '0.1,,1'"),
        ("mfos ipd --evolution.sigma 0.1..1", "--samples N"),
        ("mfos ipd --sigma 0.1,1", "unknown option --sigma"),
        ("mfos nonsense --trials 1,2", "preset: got 'nonsense'"),
        ("mfos ipd --out.learning_rate 1,2", "unknown option"),
        ("mfos ipd --opponent naive+lola --opponent.learning_rate 1,2", "opponent: got 'naive+lola'"),
        ("mfos ipd --meta_ppo.iterations 1,2", "has no effect"),
        ("mfos ipd --seed 1 --seed 2", "--seed: given twice"),
        ("mfos ipd --seed " + ",".join(map(str, range(200))) + " --trials " + ",".join(["1"] * 60), "12000 points"),
    ],
)
def test_bad_values_are_refused(line, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (its message is looked at below)
        points_of(line)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_range_needs_its_lowest_number_first():
    with pytest.raises(ConfigError, match=r"evolution.sigma: got '1..0.1'"):
        points_of("mfos ipd --evolution.sigma 1..0.1", samples=2)


def test_no_command_has_an_option_of_the_sweep_itself():
    for name in plan.SWEPT:
        command = describe(COMMANDS[name].module)
        fields = {field for first in command.names[:1] for field in command.kind(first).__dataclass_fields__}
        assert not fields & SweepOptions.__dataclass_fields__.keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": -1}, "samples: got -1"),
        ({"sample_seed": 1}, "sample_seed: has no effect"),
        ({"slurm": ("a=1",)}, "slurm: has no effect"),
        ({"slurm": ("a",), "on": "slurm"}, "slurm: got 'a'"),
    ],
)
def test_bad_options_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SweepOptions(**settings)
