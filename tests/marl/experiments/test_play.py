"""Games of a person against an agent."""

import io
import re

import jax
import numpy as np
import pytest

from games import InfinitelyRepeated, matrix_games
from marl.experiments.play import Person, make_agent_step
from marl.experiments.shaping.agents import AGENT_FILE, make_agent, save_agent
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig

pytestmark = pytest.mark.system

GAME = InfinitelyRepeated(matrix_games["prisoners_dilemma"])


@pytest.fixture
def play(within, monkeypatch, tmp_path):
    def run(*arguments, keys):
        monkeypatch.setattr("sys.stdin", keys if hasattr(keys, "readline") else io.StringIO(keys))
        return within(*arguments, cwd=tmp_path, module="marl.play")

    return run


def test_tit_for_tat_answers_the_last_action(play):
    result = play("ipd", "tft", keys="c\nd\nD\nwhat\n c\nc\n")  # then the input ends
    assert result.returncode == 0, result.stderr
    rounds = re.findall(
        r"you (\w), agent (\w): you get (\S+), the agent (\S+); on average (\S+) and (\S+)", result.stdout
    )
    assert [r[:2] for r in rounds] == [("C", "C"), ("D", "C"), ("D", "D"), ("C", "D"), ("C", "C")]
    assert [tuple(map(float, r[2:4])) for r in rounds] == [(-1, -1), (0, -3), (-2, -2), (-3, 0), (-1, -1)]
    assert tuple(map(float, rounds[-1][4:])) == (-1.4, -1.4)
    # After every round, and before the first; its own action first, the situation of the next round in brackets.
    shown = re.findall(r"agent's probability of C:(.*)", result.stdout)
    assert [re.search(r"\[(\w+) ([\d.]+)\]", line).groups() for line in shown] == [
        ("start", "1.000"),
        ("CC", "1.000"),
        ("CD", "0.000"),
        ("DD", "0.000"),
        ("DC", "1.000"),
        ("CC", "1.000"),
    ]
    assert "got 'what'; c, d or q is needed" in result.stdout
    sentence = "you played C in 60% and got -1.400 per round; the agent played C in 60% and got -1.400"
    assert f"Over 5 rounds {sentence} (both C: -1 and -1; both D: -2 and -2)." in result.stdout
    assert "(C + 1) / (rounds + 2)" in result.stdout


def test_a_trained_shaper_changes_its_policy_after_every_round_until_the_game_ends(play, tmp_path):
    config = ExactShapingConfig(hidden_units=4)
    save_agent(tmp_path / AGENT_FILE, config, config.make_shaper().init(jax.random.key(1)))
    result = play("ipd", str(tmp_path), "--rounds", "3", keys="c\nd\nc\nd\nd\n")
    assert result.returncode == 0, result.stderr
    shown = re.findall(r"agent's probability of C:(.*)", result.stdout)
    assert len(shown) == 4
    policies = [re.findall(r"\w+ ([\d.]+)", line) for line in shown]
    assert all(len(policy) == 5 for policy in policies)
    assert len({tuple(policy) for policy in policies}) == 4
    assert "Over 3 rounds" in result.stdout


class Interrupted(io.StringIO):
    """Input that ends with Ctrl-C."""

    def readline(self, *size):
        if line := super().readline(*size):
            return line
        raise KeyboardInterrupt


def test_ctrl_c_ends_with_the_result(play):
    result = play("ipd", "all_d", keys=Interrupted("c\n"))
    assert result.returncode == 130
    sentence = "you played C in 100% and got -3.000 per round; the agent played C in 0% and got 0.000"
    assert f"Over 1 round {sentence} (both C" in result.stdout
    assert result.stderr == "python -m marl.play: stopped; nothing was written\n"


def test_a_person_s_policy_is_estimated_by_the_rule_of_succession():
    person = Person(5)
    np.testing.assert_allclose(person.estimate, 0.5)
    for state, action in ((0, 1), (3, 0), (3, 0), (3, 1)):
        person.saw(state, action)
    np.testing.assert_allclose(person.estimate, [1 / 3, 0.5, 0.5, 3 / 5, 0.5], rtol=1e-6)


def test_a_learner_learns_from_the_estimate():
    begin, step = make_agent_step(GAME, make_agent("best_response", GAME, 0).learner(()))
    mind = begin(jax.random.key(0))
    assert np.asarray(mind.policy)[1:].max() < 1e-6  # the best response to random actions is defection
    tit_for_tat = np.array([0.999, 0.999, 0.001, 0.999, 0.001], np.float32)
    mind = step(jax.random.key(1), mind, tit_for_tat)
    assert np.asarray(mind.policy)[[0, 1]].min() > 0.999  # and to tit for tat cooperation


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stag.yaml"], "agent: none given"),
        (["ipd", "nothing"], "got 'nothing'"),
        (
            ["ipd", "mfos"],
            "agent: mfos has to be trained first: python -m marl.mfos ipd --game prisoners_dilemma --discount 0.96",
        ),
        (["ipd", "mfos(hidden_units=8)"], "--shaper 'mfos(hidden_units=8)' --opponent naive --out DIR, and then DIR"),
        (["chicken", "shaper:lola"], "--game chicken --discount 0.0 --shaper shaper --opponent lola --out DIR"),
        (["chicken", "tft"], "agent: tft: "),
        (["ipd", "a/b.safetensors"], "got 'a/b.safetensors'"),
    ],
)
def test_agents_that_cannot_play_are_refused_in_one_line(play, arguments, words, tmp_path):
    (tmp_path / "stag.yaml").write_text("game: stag_hunt\n")
    result = play(*arguments, keys="")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr


def test_a_sampled_game_is_played_step_by_step_and_a_learner_learns_after_its_episode(play):
    arguments = ["random", "--environment", "ipd(episode_length=2)", "--episode-length", "4", "--rounds", "5"]
    result = play("ipd", *arguments, keys="c\n1\n2\nd\n0\nd\nd\n")
    assert result.returncode == 0, result.stderr
    steps = re.findall(r"you (\d), agent (\d): you get (\S+), the agent (\S+);", result.stdout)
    assert [int(step[0]) for step in steps] == [0, 1, 1, 0, 1]
    payoffs = {(0, 0): (-1, -1), (0, 1): (-3, 0), (1, 0): (0, -3), (1, 1): (-2, -2)}
    for own, other, mine, theirs in steps:
        assert (float(mine), float(theirs)) == payoffs[int(own), int(other)]
    # Observations, own action first: the start after every second step, otherwise the last joint action.
    seen = re.findall(r"you see (.*)", result.stdout)
    joint = ["CD"[int(own)] + "CD"[int(other)] for own, other, *_ in steps]
    assert seen == ["the start", joint[0], "the start", joint[2], "the start"]
    assert "CC: -1 / -1   CD: -3 / 0   DC: 0 / -3   DD: -2 / -2" in result.stdout
    assert "got '2'; a number from 0 to 1, or q, is needed" in result.stdout
    assert result.stdout.count("a learner has learned from it") == 1
    own, other = (np.mean([float(step[i]) for step in steps]) for i in (2, 3))
    assert f"Over 5 steps you got {own:.3f} per step, and the agent {other:.3f}." in result.stdout


@pytest.mark.parametrize("environment", ["", "coin_game"])
def test_a_run_directory_is_a_game_and_an_agent(play, tmp_path, environment):
    sampled = {"environment": environment, "shaper": "mfos(hidden_units=2)", "episode_length": 3}
    config = SampledShapingConfig(**sampled) if environment else ExactShapingConfig(hidden_units=2, game="stag_hunt")
    (tmp_path / "run").mkdir()
    save_agent(tmp_path / "run" / AGENT_FILE, config, config.make_shaper().init(jax.random.key(1)))
    result = play("run", "--rounds", "4", keys="0\n0\n0\n0\n" if environment else "c\nc\nc\nc\n")
    assert result.returncode == 0, result.stderr
    assert ("coin_game" if environment else "stag_hunt") in result.stdout
    assert result.stdout.count("a learner has learned from it") == bool(environment)
    assert "Over 4 " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ipd", "random", "--environment", "harvest"], "environment: got Harvest; a game of two players with actions"),
        (["ipd", "random", "--environment", "cournot"], "environment: got Cournot; a game of two players with actions"),
        (["ipd", "lola", "--environment", "ipd"], "agent: got 'lola', which is there for games that are formulas"),
        (["ipd", "tft", "--episode-length", "3"], "episode_length: got 3, which has no effect in prisoners_dilemma"),
        (["ipd", "random", "--environment", "ipd", "--discount", "0.5"], "discount: got 0.5, which has no effect"),
    ],
)
def test_games_that_a_person_cannot_play_are_refused_in_one_line(play, arguments, words):
    result = play(*arguments, keys="")
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
