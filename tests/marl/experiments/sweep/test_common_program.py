"""Points that differ in numbers alone are trained by one program, as each is by its own."""

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load

from marl.commands import COMMANDS, describe
from marl.experiments import learner_training
from marl.experiments.shaping.jobs import make_shaping
from marl.experiments.sweep import plan
from marl.experiments.sweep.common_program import groups_of, train_together
from meta import RunDirectory
from tests.nightly import MARKS

MFOS = (
    "mfos ipd --evolution.generations 3 --evolution.population_size 8 --meta_steps 4 --trials 2 --hidden_units 4"
    " --evaluation_trials 4 --start random"
)
SAMPLED = (
    "mfos ipd_sampled --evolution.generations 2 --evolution.population_size 4 --meta_steps 3 --trials 1 --num_envs 2"
    " --episode_length 4 --evaluation_trials 2 --start random --environment ipd(episode_length=4)"
    " --shaper shaper(hidden_units=3)"
)
TRAIN = (
    "train CartPole-v1 --num_envs 2 --steps_per_update 8 --total_steps 64 --evaluation_episodes 2"
    " --learner ppo(hidden=[4],minibatches=2)"
)


def points_of(line):
    words, found = plan.split(line.split())
    sweep = plan.Sweep(words[0], words[1], {name: plan.values_of(name, some) for name, some in found.items()})
    return plan.points_of(sweep, describe(COMMANDS[sweep.command].module))


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        (f"{MFOS} --evolution.sigma 0.1,0.2 --opponent naive,tft", [2, 2]),
        (f"{MFOS} --evolution.learning_rate 0.1,0.2 --evolution.sigma_end 0.1,0.2 --seed 0,1", [8]),
        (f"{MFOS} --evolution.population_size 8,16".replace(" --evolution.population_size 8 ", " "), [1, 1]),
        (f"{MFOS} --opponent self_play --evolution.sigma 0.1,0.2", [1, 1]),
        (f"{MFOS} --opponent naive+lola --evolution.sigma 0.1,0.2", [1, 1]),
        (f"{MFOS} --evolution.sigma 0.1,0.2".replace("--start random", "--start screened"), [1, 1]),
        (f"{MFOS} --opponent.learning_rate 0.5,1 --opponent naive", [2]),
        (f"{TRAIN} --learner.learning_rate 0.001,0.01 --seed 0,1", [4]),
        (f"{TRAIN} --learner.epochs 1,2 --seed 0,1", [2, 2]),
    ],
)
def test_groups(line, sizes):
    points = points_of(line)
    groups = groups_of(points)
    assert [len(group) for group in groups] == sizes
    assert sorted(point.name for group in groups for point in group) == sorted(point.name for point in points)


def test_a_command_without_traced_numbers_has_a_program_for_each_point():
    sweep = plan.Sweep("discover", "drift CartPole-v1", {"evolution.sigma": [["0.1"], ["0.2"]]})
    assert [len(group) for group in groups_of(plan.points_of(sweep, describe("marl.discover")))] == [1, 1]


def arrays(run, generation):
    _, _, rest = (run.path / "checkpoints" / f"{generation:08d}").read_bytes().split(b"\n", 2)
    return load(rest)


def alone(point, run):
    if isinstance(point.config, learner_training.TrainConfig):
        learner_training.train(point.config, store=run)
    else:
        experiment = make_shaping(point.config)
        experiment.train_shapers(experiment.keys, store=run)


@pytest.mark.system
@pytest.mark.parametrize(
    ("line", "last"),
    [
        pytest.param(f"{MFOS} --evolution.sigma 0.1,0.4 --evolution.learning_rate_end 0.1,1", 3, marks=MARKS),
        pytest.param(f"{MFOS} --opponent.learning_rate 0.5,1 --evolution.sigma 0.1 --seeds 2", 3, marks=MARKS),
        pytest.param(
            f"{SAMPLED} --opponent.learning_rate 0.05,1 --opponent reinforce --evolution.sigma 0.1", 2, marks=MARKS
        ),
        (f"{TRAIN} --learner.learning_rate 0.001,0.05", 4),
        pytest.param(f"{TRAIN} --learner.learning_rate 0.001,0.05 --seeds 2", 4, marks=MARKS),
    ],
)
def test_checkpoints_are_those_of_separate_programs(line, last, tmp_path):
    points = points_of(line)
    (group,) = groups_of(points)
    runs = [RunDirectory.create(tmp_path / point.name, point.config) for point in group]
    train_together(group, runs, Console(quiet=True))
    found = []
    for point, run in zip(group, runs, strict=True):
        other = RunDirectory.create(tmp_path / "alone" / point.name, point.config)
        alone(point, other)
        together, separate = arrays(run, last), arrays(other, last)
        assert together.keys() == separate.keys()
        for name, values in separate.items():
            assert together[name].shape == values.shape
            np.testing.assert_allclose(together[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
        found.append(np.concatenate([x.ravel().astype(np.float64) for x in together.values()]))
    assert not np.allclose(found[0], found[1], rtol=1e-3, atol=1e-3, equal_nan=True)  # the points are not the same
