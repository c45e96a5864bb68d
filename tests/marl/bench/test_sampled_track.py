"""The sampled track of Shaping Bench: payoffs of trials by hand, methods that fit some games, and the command."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marl
from configs.specs import read
from marl.bench import sampled, sampled_methods
from marl.bench.protocol import FASTER, LONGER, TRAINED, WIDER, Budget
from marl.bench.sampled_methods import make_method
from marl.bench.tracks import track_of
from marl.core.learn import learn
from meta.run_keys import RunBranch
from tests.nightly import MARKS, nightly

SHORT = {"meta_steps": 3, "episode_length": 4, "num_envs": 2}
TINY = Budget("small", 2, 4, 1, **SHORT)


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Short trials: what is compared is computed from the same constants."""
    with pytest.MonkeyPatch.context() as patch:
        for name, task in sampled.TASKS.items():
            patch.setitem(sampled.TASKS, name, task._replace(**SHORT))
        patch.setattr(sampled, "TRIALS", 3)
        yield


@pytest.fixture(scope="module")
def played():
    """Tit for tat against A2C in the prisoner's dilemma, two trainings."""
    return sampled.play_track(make_method("tft"), "a2c", ("ipd",), TINY, seed=4, seeds=2)


@pytest.mark.system
@pytest.mark.parametrize(
    ("form", "settings", "updates"),
    [
        (TRAINED, "hidden=[16], learning_rate=0.03", 3),
        (FASTER, "hidden=[16], learning_rate=0.06", 3),
        (LONGER, "hidden=[16], learning_rate=0.03", 6),
        pytest.param(WIDER, "hidden=[32], learning_rate=0.03", 3, marks=MARKS),
    ],
)
def test_payoffs_are_those_of_trials_with_this_form(played, form, settings, updates):
    game = sampled.TASKS["ipd"].game
    opponent = marl.make_learner(f"a2c({settings}, discount=0.96, normalize_advantages=True)", game, 1)
    players = [marl.make_learner("tft", game), opponent]
    keys = jax.random.split(jax.random.fold_in(sampled.root_key(5, "ipd", "a2c"), RunBranch.EVALUATION), 3)

    def trial(key):  # keys of the learning steps are split by their number: the longer trial is played for all forms
        number = 3 if form == WIDER else 6
        rewards = learn(key, game, players, num_updates=number, steps_per_update=4, num_envs=2).rewards
        return [reward[:updates].mean() for reward in rewards]

    found = [side[form][0, 1] for side in played]  # seed 5 is the second training
    np.testing.assert_allclose(found, [float(x.mean()) for x in jax.vmap(trial)(keys)], rtol=1e-4)


def test_pairs_and_forms_are_what_the_protocol_says():
    track = track_of("sampled")
    assert len(track.parts) == 16
    pairs = {(part.tasks[0], part.opponent) for part in track.parts}
    assert {task for task, opponent in pairs if opponent == "lola_dice"} == {"ipd"}
    assert {task for task, opponent in pairs if opponent == "tabular_ppo"} == {"ipd", "three_player_ipd"}
    assert WIDER not in track.forms("ipd", "tabular_ppo")
    assert len(sampled.make_opponents("harvest", "ppo")) == 2
    for part in track.parts:  # every scale has every form
        row = track.reference(part.tasks[0], part.opponent, 0)
        assert set(row.zero) == set(track.forms(part.tasks[0], part.opponent))
        assert row.one >= row.zero[TRAINED][0]
        assert row.room > 0


@pytest.mark.system
def test_a_strategy_plays_in_the_games_that_it_can_and_in_no_other():
    method = make_method("tft")
    keys = jax.random.split(jax.random.key(0), 2)
    fitting = [task for task in sampled.TASKS if method.train(task, "ppo", TINY, keys)]
    assert fitting == ["ipd"]
    with pytest.raises(ValueError, match=r"^method: got 'nothing'"):
        make_method("nothing")


@nightly
def test_a_learner_with_the_name_of_an_opponent_has_its_settings_but_for_those_that_are_given():
    key = jax.random.key(0)

    def states(spec):
        (trained,) = make_method(spec).train("ipd", "a2c", TINY, jax.random.split(key, 1))
        return trained.learner((), "ipd").init(key)

    opponent = sampled.make_opponents("ipd", "advantage_alignment", 0)[0].init(key)
    jax.tree.map(np.testing.assert_array_equal, states("advantage_alignment"), opponent)
    given = sampled_methods._with_settings("advantage_alignment(baseline='group')", "harvest")
    settings = {"hidden": [16], "learning_rate": 0.03, "discount": 0.9, "baseline": "group"}
    assert read("method", given, given) == ("advantage_alignment", settings)
    smaller = "advantage_alignment(hidden=[8], learning_rate=0.03, discount=0.96)"
    assert sampled_methods._with_settings("advantage_alignment(hidden=[8])", "ipd") == smaller
    assert sampled_methods._with_settings("loqa(hidden=[8])", "ipd") == "loqa(hidden=[8])"


def test_an_agent_plays_in_the_game_of_its_training_alone():
    method = make_method("hub:shaper-ipd_sampled-tabular_ppo")
    keys = jax.random.split(jax.random.key(0), 2)
    assert [task for task in sampled.TASKS if method.train(task, "ppo", TINY, keys)] == ["ipd"]
    with pytest.raises(ValueError, match="one of a sampled game is needed"):
        make_method("hub:mfos-ipd-naive")


def test_a_function_of_ones_own_gets_all_opponents_and_the_lengths_of_a_trial(monkeypatch):
    def train(game, opponent, budget, key):
        assert len(opponent) == game.num_agents - 1 == 2
        assert budget.lengths == SHORT
        return lambda parameters: marl.make_learner("always_defect", game), jnp.zeros(1)

    monkeypatch.setitem(sys.modules, "own_sampled", type(sys)("own_sampled"))
    sys.modules["own_sampled"].train = train
    keys = jax.random.split(jax.random.key(0), 3)
    (trained,) = make_method("own_sampled:train").train("three_player_ipd", "ppo", TINY, keys, None, None)
    assert [*trained.runs] == [0, 1, 2]
    assert trained.parameters.shape == (3, 1)


@nightly
def test_each_training_of_a_shaper_is_its_own():
    """The second of two trainings together is the one that is trained alone."""
    method, keys = make_method("shaper"), jax.random.split(jax.random.key(0))
    both, one = (method.train("ipd", "tabular_ppo", TINY, some, None, None)[0] for some in (keys, keys[1:]))
    assert [*both.runs] == [0, 1]
    first, second, alone = (np.asarray(x["policy_w"]) for x in (*split(both), *split(one)))
    np.testing.assert_allclose(second, alone, rtol=1e-5)
    assert not np.allclose(first, second, atol=1e-3)


def split(trained):
    return [jax.tree.map(lambda x, i=i: x[i], trained.parameters) for i in trained.runs]


@pytest.mark.system
def test_the_command_writes_a_result_of_the_track_and_verifies_it(within, tmp_path):
    """Against the table of PPO, in the two games where it is an opponent."""
    line = ["tft", "--track=sampled", "--opponents", "tabular_ppo", "--seeds=1", "--quiet", "--out=run"]
    done = within(*line, cwd=tmp_path, module="marl.bench.__main__")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["track"] == "sampled"
    assert np.isfinite(result["tasks"]["ipd"]["tabular_ppo"]["payoffs"]["slower"]).all()
    assert result["tasks"]["three_player_ipd"]["tabular_ppo"]["payoffs"]["slower"] == [[None], [None]]
    checked = within("verify", "run", cwd=tmp_path, module="marl.bench.__main__")
    assert checked.returncode == 0, checked.stderr
    assert "the result is identical bit for bit" in checked.stdout.replace("\n", " ")
