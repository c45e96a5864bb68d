"""`python -m marl.discover`: its files and its config."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
from PIL import Image

from configs.specs import read
from marl import make_learner
from marl.experiments.discovery import experiment, figures
from marl.experiments.discovery.config import DiscoveryConfig, config_of
from marl.learners.sampled.objective_registry import Form, load_objective
from tests.marl.sampled_steps import CART_POLE
from tests.nightly import nightly

pytestmark = pytest.mark.system

TINY = (
    "--learner=ppo(hidden=[4], minibatches=1, epochs=2, shared=True)",  # few operations, because it is compiled often
    "--total-steps=64", "--num-envs=2", "--steps-per-update=8", "--hidden=3", "--evaluation-trials=3",
    "--tuning.population-size=4", "--tuning.generations=1", "--tuning.chunk-size=4",
    "--evolution.population-size=4", "--evolution.chunk-size=4", "--evolution.checkpoint-seconds=0",
)  # fmt: skip
PAIR = "ipd(episode_length=4)"
GAME = "CartPole-v1(max_steps_in_episode=8)"


@pytest.fixture
def discover(within, tmp_path):
    def run(*arguments):
        result = within(*arguments, cwd=tmp_path, module="marl.discover")
        assert result.returncode == 0, result.stderr
        return tmp_path, result.stdout

    return run


@nightly
def test_a_run_leaves_a_summary_figures_and_a_learner_of_any_game(discover, within):
    steady = ("--evolution.learning-rate-end=1", "--evolution.sigma-end=1", "--searches=2")
    seen = ("--unseen", "--longer=1", "--wider=1")
    folder, _ = discover("drift", GAME, *TINY, *steady, *seen, "--evolution.generations=1", "--out=run")
    _, shown = discover("--resume=run", "--evolution.generations=2", "--longer=2")
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert (summary["environment"], summary["kind"], summary["num_trials"]) == (GAME, "drift", 3)
    differences = ("difference_from_tuned", "difference_from_plain")
    for name in ("evolved", "tuned_baseline", "plain_baseline", "dpo", "begun", *differences):
        assert set(summary[name]) == {"mean", "standard_error"} | ({"each"} if name in differences else set())
    each = [one["mean"] for one in summary["difference_from_tuned"]["each"]]
    assert summary["difference_from_tuned"]["mean"] == pytest.approx(np.mean(each), abs=1e-6)
    assert summary["difference_from_tuned"]["standard_error"] == pytest.approx(abs(each[0] - each[1]) / 2, abs=1e-6)
    assert set(summary["transfer"]) == {f"{GAME}, 2 times as long"}
    assert [one["seed"] for one in summary["runs"]] == [0, 1]
    assert summary["evolved"]["mean"] == pytest.approx(np.mean([one["evolved"]["mean"] for one in summary["runs"]]))
    found = summary["environments"][GAME]
    difference = found["evolved"]["mean"] - found["tuned"]["mean"]
    assert found["difference_from_tuned"]["mean"] == pytest.approx(difference, abs=1e-4)
    assert found["evolved"] == pytest.approx(summary["evolved"])
    assert all(0 < found[arm]["mean"] <= 8 for arm in ("plain", "begun", "tuned", "dpo", "evolved"))
    assert all(len(x) == 2 for x in summary["scales"].values())
    for words in (
        "PPO",
        "tuned",
        "DPO",
        "evolved",
        "between searches",
        f"use it as {summary['learners'][0]}",
    ):
        assert words in shown
    for name in ("evolution", "objective", "learning_curves"):
        assert np.asarray(Image.open(folder / "run" / "figures" / f"{name}.png").convert("L")).std() > 10
    for spec in summary["learners"]:
        make_learner(spec.replace("='run", f"='{folder}/run"), CART_POLE)
        assert "value_loss='huber(delta=" in spec
        assert "hidden=[4]" in spec
    form, parameters, clip = load_objective(str(folder / "run"))
    assert form == Form("drift", "ppo", 3, timed=False)
    assert clip == pytest.approx(summary["scales"]["clip"][0])
    assert parameters["w1"].shape == (8, 3)
    few = ("--total-steps=16", "--num-envs=2", "--steps-per-update=8", "--evaluation-episodes=2")
    spec = "--learner=ppo(objective='./run', hidden=[4])"
    assert within(GAME, spec, *few, cwd=folder, module="marl.train").returncode == 0


@nightly
def test_a_drift_that_sees_the_time_is_searched_over_two_lengths(discover):
    lengths = ("--timed", "--lengths", "1", "2", "--unseen", "--longer=2", "--wider=1", "--evolution.generations=1")
    folder, shown = discover("drift", GAME, *TINY, *lengths, "--out=timed")
    summary = json.loads((folder / "timed" / "summary.json").read_text())
    long = f"{GAME}, 2 times as long"
    assert list(summary["environments"]) == [GAME, long]
    assert summary["transfer"] == {}
    assert "of 64 and 128 environment steps" in shown
    units = json.loads((folder / "timed" / "units.json").read_text())
    for arm, whole in (("evolved", "evolved"), ("tuned", "tuned_baseline")):
        parts = [(summary["environments"][name][arm]["mean"] - zero) / unit for name, (zero, unit) in units.items()]
        assert summary[whole]["mean"] == pytest.approx(np.mean(parts), abs=1e-4)
    assert load_objective(str(folder / "timed"))[0].timed


@nightly
def test_a_distance_of_values_for_two_players_and_beside_one_without_it(discover):
    games = ("--environments", PAIR, "--unseen", "--longer=1", "--wider=3", "--out=value", "--evolution.generations=1")
    tiny = (word.replace("hidden=[4]", "hidden=[4], clip=0.3") for word in TINY)
    folder, _ = discover("value_loss", GAME, *tiny, *games)
    summary = json.loads((folder / "value" / "summary.json").read_text())
    assert {"l2", "clipped_l2", "tuned_baseline"} <= set(summary)
    assert "clip=0.3" in summary["learners"][0]  # a distance of values leaves the policy's clip
    assert set(summary["shape"][0]) == {"asymmetry", "convex", "tail"}
    beside = summary["beside_tuned"][PAIR]
    apart = beside["evolved"]["mean"] - beside["tuned"]["mean"]
    assert beside["difference"]["mean"] == pytest.approx(apart, abs=1e-5)
    assert set(summary["scales"]) == {"learning_rate", "max_gradient_norm", "value_coefficient"}  # no Huber's width
    assert summary["still"]["mean"] == pytest.approx(-3.0, abs=0.6)  # without learning: -1.5 each, over 96 rounds
    assert set(summary["transfer"]) == {f"{PAIR}, 3 times as wide"}
    make_learner(f"ppo(value_loss='{folder / 'value'}')", CART_POLE)


def test_a_drift_that_began_at_zero_is_drawn(tmp_path):
    form = Form("drift", "zero", 3, timed=False)
    parameters = form.network().init(jax.random.key(0))
    file = figures.draw_objective(tmp_path, form, [parameters], {"learning_rate": 0.001})
    assert np.asarray(Image.open(file).convert("L")).std() > 10


@pytest.mark.parametrize(
    ("given", "wide"),
    [
        ("", [192, 192]),
        ("hidden=[4, 8]", [12, 24]),
        ("network='convolutional'", [384]),
        ("hidden=[]", []),
        ("network='recurrent(hidden=[32], memory=8)'", [96]),
    ],
)
def test_wider_learners_have_as_many_layers(given, wide):
    config = DiscoveryConfig(learner=f"ppo({given})", wider=3)
    found = read("learner", config.wider_learner, "ppo")[1]
    assert found["hidden"] == wide
    assert found.get("network", "") in ("", "convolutional()", "recurrent(memory=8)")


def test_work_counts_the_updates_of_all_lengths():
    """Two lengths are as much work as two games of the mean length."""
    sizes = {"environments": ("CartPole-v1",), "unseen": (), "wider": 1, "total_steps": 20_480}
    several = DiscoveryConfig(**sizes, lengths=(1, 3), longer=3)
    games = DiscoveryConfig(**sizes | {"environments": ("CartPole-v1", "Acrobot-v1")}, longer=1)
    assert several.steps_of_a_generation == 2 * games.steps_of_a_generation == 64 * 4 * 20_480
    assert several.num_trainings == 4 * games.num_trainings
    beside = dataclasses.replace(several, longer=5)
    assert beside.num_trainings - several.num_trainings == 5 * 4 * 256  # of four objectives


def test_units_are_those_of_trainings_as_long_as_the_search_has(monkeypatch):
    """One task needs no unit, and a few steps show the speed of the machine."""
    monkeypatch.setattr(experiment, "fresh_trial", lambda arena, *_: arena)
    sizes = {"environments": (GAME,), "unseen": (), "wider": 1, "num_envs": 4, "steps_per_update": 8, "longer": 3}
    config = DiscoveryConfig(**sizes, total_steps=2 * experiment.MEASURED_STEPS, evaluation_trials=2)
    (only,) = experiment.Discovery(config).measured.values()
    assert 0 < only.num_updates < config.num_updates
    several = experiment.Discovery(dataclasses.replace(config, lengths=(1, 3)))
    assert [arena.num_updates for arena in several.measured.values()] == [config.num_updates, 3 * config.num_updates]
    assert several.measured_share == 1


def test_the_shape_of_l2_by_hand():
    """Parameters of the L2 distance itself give its shape."""
    found = figures.shape_of(Form("value_loss", "l2", 3), {"w1": np.ones(3), "b1": np.zeros(3), "w2": np.zeros(3)})
    assert found == pytest.approx({"asymmetry": 0.0, "convex": 1.0, "tail": 3.0}, abs=1e-3)


REFUSED = {
    "start": ({"start": "l2"}, "start: got 'l2' of a drift; one of auto, ppo, zero is needed"),
    "timed": ({"kind": "value_loss", "timed": True}, "timed: got True of a value_loss"),
    "learner": ({"learner": "dqn"}, "learner: got 'dqn'; ppo, with settings in brackets"),
    "objective": ({"learner": "ppo(objective='dpo')"}, "learner: objective: got 'dpo'; the search has its own"),
    "no clip": ({"learner": "ppo(max_gradient_norm=None)"}, "max_gradient_norm: got None; a number above 0"),
    "steps": ({"total_steps": 100}, "total_steps: got 100; at least num_envs times steps_per_update, 512"),
    "none": ({"environments": ()}, "environments: got none"),
    "twice": ({"environments": ("ipd", "ipd")}, "environments: got ('ipd', 'ipd'); at least one game, each once"),
    "lengths": ({"lengths": (2, 4)}, "lengths: got (2, 4); whole numbers that rise from 1 to at most"),
    "falling lengths": ({"lengths": (1, 4, 2)}, "lengths: got (1, 4, 2); whole numbers that rise from 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_configs_are_refused(name):
    settings, words = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        DiscoveryConfig(**settings)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("drfit cartpole", "kind: got 'drfit'; did you mean drift?"),
        ("drift", "environment: none given; a game's name, or one of"),
        ("drift cartpol", "environment: got 'cartpol'; did you mean cartpole"),
    ],
)
def test_unknown_first_arguments_are_refused(first, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        config_of(first)
