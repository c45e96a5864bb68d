"""The examples of the API reference and the blocks of the concept pages run, and have the results that they promise."""

import contextlib
import io
import re

import pytest

from attacks.messages import MESSAGES
from docs.site import api
from docs.site.examples import EXAMPLES
from docs.site.links import ROOT
from docs.site.names import public_names
from marl.learners import registry as learners
from marl.shapers import registry as shapers
from tests.nightly import MARKS, nightly

pytestmark = pytest.mark.system

# Numbers and modules, of which examples would say nothing that the names beside them do not.
WITHOUT = {
    *("attacks.control", "attacks.defences", "attacks.messages", "marl.distributed", "marl.objectives", "marl.shapers"),
    "marl.value_losses",
    *("games.zd.CO_PLAYERS", "games.zd.IN_A_ROW", "games.zd.MAX_RESIDUAL", "games.zd.REPEAT"),
    "marl.objectives.NO_DRIFT",
}
# Examples of a template, of which those of naive, PPO and undefended are always tested.
EXACT = ("lookahead", "lola", "hola", "sos", "sga", "cgd", "pola", "best_response", "q_learning")
SAMPLED = (
    "a2c",
    "impala",
    "a3c",
    "naive_dice",
    "loqa",
    "reciprocator",
    "lola_dice",
    "pola_dice",
    "dqn",
    "ape_x",
    "r2d2",
)
ALIKE = {f"marl.{name}" for name in (*EXACT, *SAMPLED, "td3", "sac", "reinforce")}
ALIKE |= {"marl.advantage_alignment", "marl.proximal_advantage_alignment"}
DEFENCES = ("ensemble", "masking", "input_noise", "input_decay", "message_dropout", "disturbed", "seeing")
ALIKE |= {f"attacks.defences.{name}" for name in DEFENCES}
# Examples that take a second or more, of functions that have tests of their own.
LONG = ("learning", "past_selves", "SavedRun", "stale", "TrainedAgent", "population", "shapers.Policy", "shapers.mfos")
LONG += ("Trajectory", "widen", "History", "load_run", "Member", "convolutional", "recurrent", "shapers.counts")
LONG += ("shapers.shaper",)
ALIKE |= {f"marl.{name}" for name in LONG} | {"games.SocialMetrics"}
ATTACKS = ("control.oracle", "Defence", "train_time_trial", "control_trial", "train_in", "control.controller_ppo")
ATTACKS += ("control.goal_reward", "control.Puppet", "defences.power_regularization")
ALIKE |= {f"attacks.{name}" for name in ATTACKS}
ONCE = {code: name for name, code in reversed(EXAMPLES.items())}  # names with the same code are tested once


@pytest.fixture(autouse=True)
def _forget():
    """Drops what an example registered, because other tests use all names."""
    known = [(registry, set(registry.names())) for registry in (learners.FORMULA, shapers.FORMULA, MESSAGES)]
    yield
    for registry, names in known:
        for name in set(registry.names()) - names:
            registry.unregister(name)


def run(code):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    return output.getvalue()


def block(page):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "concepts" / f"{page}.md").read_text(), re.S)
    return code


def test_every_public_name_has_an_example():
    assert {*ONCE.values()} >= ALIKE
    public = {name for name in public_names() if not api.has_doctest(name)}
    assert public - set(EXAMPLES) == {name for name in WITHOUT if not api.has_doctest(name)}
    assert set(EXAMPLES) <= set(public_names())


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=name, marks=MARKS if name in ALIKE else ()) for code, name in ONCE.items()]
)
def test_an_example_of_the_api_runs(code, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    exec(code, {})
    output = capfd.readouterr().out  # of the file descriptor, because JaxMARL puts back another `sys.stdout`
    assert output or "animate" in code
    assert "nan" not in output.lower()


def test_evolution_finds_a_fixed_policy_that_gains_more_than_defection():
    first, last = map(float, re.findall(r"-?\d\.\d+", run(block("functions"))))
    assert first < -2 < -1.5 < last


def test_exact_and_sampled_play_agree():
    assert list(map(float, run(block("games")).split())) == pytest.approx([-2.04, -2.04], abs=1e-4)


@nightly
def test_lola_cooperates_and_naive_learners_defect():
    naive, lola = re.findall(r"(\S+) (\S+)\n", run(block("learners")))
    assert float(naive[0]) == pytest.approx(-2, abs=0.02)
    assert float(lola[1]) > 0.75


@nightly
def test_an_evolved_shaper_gains_from_its_opponent():
    untrained, evolved = re.findall(r"\w+ (\S+) (\S+)\n", run(block("shapers")))
    assert float(untrained[0]) < -2 < -1.2 < float(evolved[0])


@nightly
def test_victims_of_cheap_talk_learn():
    returns = re.findall(r"\w+ (\S+)\n", run(block("cheap_talk")))
    assert len(returns) == 2
    assert all(22 < float(number) <= 100 for number in returns)  # random play has 22 steps


@nightly
def test_the_error_over_trainings_is_larger_than_that_over_trials():
    means, within, between = re.findall(r"\[([^\]]*)\] \[([^\]]*)\] (\S+)", run(block("errors")))[0]
    assert len(means.split()) == len(within.split()) == 3
    assert float(between) > 3 * max(map(float, within.split()))
