"""The Axelrod library's strategies as ours, and ours as its players.

The library takes ten seconds to import, and only these tests need it: the first of them to run imports it.
"""

import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games import InfinitelyRepeated, discounted_payoffs, prisoners_dilemma, symmetric
from marl import Learner, learn, load_agent, make_learner, memory_one, play_memory_one
from marl.experiments.shaping.agents import save_agent
from marl.experiments.shaping.config import SampledShapingConfig
from tests.nightly import MARKS

pytestmark = MARKS

OURS = symmetric("axelrod", ((3.0, 0.0), (5.0, 1.0)))  # the game that the library plays
DISCOUNT = 0.96


@pytest.fixture(scope="module")
def axelrod():
    import axelrod

    return axelrod


@pytest.fixture(scope="module")
def ours(axelrod):
    from marl.learners.exact import axelrod as ours

    return ours


@pytest.fixture(scope="module")
def names(axelrod):
    return {cls.name: cls for cls in axelrod.all_strategies}


def test_textbook_strategies_have_their_textbook_vectors(ours):
    vectors = {
        "Cooperator": [1, 1, 1, 1, 1],
        "Defector": [0, 0, 0, 0, 0],
        "Tit For Tat": [1, 1, 0, 1, 0],
        "Suspicious Tit For Tat": [0, 1, 0, 1, 0],
        "Alternator": [1, 0, 0, 1, 1],
        "Bully": [0, 0, 1, 0, 1],
        "Win-Stay Lose-Shift": [1, 1, 0, 0, 1],
        "GTFT": [1, 1, 1 / 3, 1, 1 / 3],
        "Random": [0.5] * 5,
        "ZD-Extort-2": [1, 8 / 9, 1 / 2, 1 / 3, 0],  # Stewart and Plotkin (2012)
        "First by Grofman": [1, 1, 2 / 7, 2 / 7, 1],
        "Desperate": [0.5, 0, 0, 0, 1],
        "Negation": [0.5, 0, 1, 0, 1],
    }
    for name, vector in vectors.items():
        assert ours.strategy(name) == pytest.approx(vector), name


def test_no_memory_one_strategy_is_forgotten(axelrod, ours, names):
    """All strategies that inherit a four-vector have it, and all with a memory of one round are here, except one."""
    short = [name for name, cls in names.items() if cls().classifier["memory_depth"] <= 1]
    assert set(short) - set(ours.strategies()) == {"Random Tit for Tat"}  # it counts rounds
    vectors = {name: cls() for name, cls in names.items() if issubclass(cls, axelrod.MemoryOnePlayer)}
    assert len(vectors) > 10
    for name, theirs in vectors.items():
        first = float(theirs._initial == axelrod.Action.C)
        assert ours.strategy(name) == pytest.approx([first, *theirs._four_vector.values()]), name


def test_a_strategy_plays_the_probabilities_of_its_vector_in_long_matches(axelrod, ours, names):
    """Frequencies after each state in 5 matches of 200 rounds against random play, within four standard errors."""
    assert len(ours.strategies()) > 20
    defect = axelrod.Action.D
    for name, (first, *after) in ours.strategies().items():
        match = axelrod.Match((names[name](), axelrod.Random()), turns=200, seed=1)
        counts = np.zeros((4, 2))
        for _ in range(5):
            rounds = match.play()
            for (own, other), (then, _) in itertools.pairwise(rounds):
                counts[2 * (own == defect) + (other == defect), int(then == defect)] += 1
            assert 0 < first < 1 or rounds[0][0] == (axelrod.Action.C if first else defect), name
        n, p = counts.sum(1), np.array(after)
        tolerance = 4 * np.sqrt(np.clip(p * (1 - p), 0, None) * n) + 1e-9
        assert (np.abs(counts[:, 0] - p * n) <= tolerance).all(), name


def exact(own, other):
    """(own, other's) expected total scores, from the closed form."""
    logits = [memory_one(p).init(jax.random.key(0)).logits for p in (own, other)]
    return np.array(discounted_payoffs(OURS, *logits, DISCOUNT))


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ([0.9, 0.8, 0.3, 0.6, 0.1], [0.2, 0.7, 0.1, 0.5, 0.4]),
        ([0.3, 1, 0, 1, 0], "ZD-Extort-2"),
        ([0, 0.9, 0.5, 0.5, 0.2], "Win-Stay Lose-Shift"),
        ("ALLCorALLD", "Stochastic Cooperator"),
    ],
)
def test_matches_of_a_random_length_score_the_closed_form(own, other, axelrod, ours, names):
    """An end with probability 0.04 after every round is a discount of 0.96: an independent Monte Carlo."""
    pair = [names[p]() if isinstance(p, str) else ours.player(p) for p in (own, other)]
    policies = [ours.strategy(p) if isinstance(p, str) else p for p in (own, other)]
    match = axelrod.Match(pair, prob_end=1 - DISCOUNT, seed=7)
    scores = []
    for _ in range(1000):
        match.play()
        scores.append(match.final_score())
    error = np.std(scores, 0) / np.sqrt(len(scores))
    assert (np.abs(np.mean(scores, 0) - exact(*policies)) < 4 * error).all()


def test_a_player_plays_in_tournaments(axelrod, ours):
    policies = [[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0.5, 0.9, 0.1, 0.8, 0.2]]
    players = [ours.player(jnp.array(p)) for p in policies]
    results = axelrod.Tournament(players, turns=10, repetitions=2, seed=1).play(progress_bar=False)
    assert results.payoffs[0][1] == pytest.approx([0.9, 0.9])  # a round of 0 and nine of 1
    assert results.payoffs[1][0] == pytest.approx([1.4, 1.4])
    assert len(set(results.players)) == 3
    for made, p in zip(players, policies, strict=True):
        assert made.clone() == made
        assert axelrod.Classifiers["stochastic"](made) == (not set(p) <= {0, 1})
    C, D = axelrod.Action.C, axelrod.Action.D
    assert axelrod.Match((players[0], axelrod.Alternator()), turns=4).play() == [(C, C), (C, D), (D, C), (C, D)]


@pytest.mark.usefixtures("promoted")
def test_a_learner_plays_in_matches(axelrod, ours):
    """A learner observes the joint action of each round from its own seat and learns after a whole update."""
    C, D = axelrod.Action.C, axelrod.Action.D
    game = games.make("ipd", episode_length=1000)
    for seat in (0, 1):
        tft = ours.player(play_memory_one([1, 1, 0, 1, 0]), game, seat=seat)
        assert axelrod.Match((tft, axelrod.Alternator()), turns=4).play() == [(C, C), (C, D), (D, C), (C, D)]
        assert axelrod.Match((axelrod.Alternator(), tft), turns=4).play() == [(C, C), (D, C), (C, D), (D, C)]

    def update(key, action, seen):
        assert seen.action.shape == seen.others[0].shape == (3, 1)
        paid = jnp.array([[-1, -3], [0, -2]])[seen.action, seen.others[0]]
        return jnp.where((paid == seen.reward).all(), (seen.others[0].mean() > 0.5).astype(int), 9), {"paid": paid}

    copies = Learner(
        init=lambda key: jnp.int32(0),
        act=lambda key, action, memory, obs: (jnp.full(len(obs), action), memory, ()),
        update=update,  # the co-player's more frequent action
    )
    copy = ours.player(copies, game, rounds_per_update=3)
    played = axelrod.Match((copy, axelrod.Cycler("DDCCDCDC")), turns=8).play()
    assert [own for own, _ in played] == [C] * 3 + [D] * 3 + [C] * 2
    assert copy.clone() == copy.clone() != copy
    assert str(ours.player(copies, game, name="Copy")) == "Copy"


def test_a_learner_of_the_exact_game_estimates_the_policy_of_the_co_player(axelrod, ours):
    """Gradient ascent against a cooperator ends in defection; its estimate of the co-player is nearly a cooperator."""
    game = InfinitelyRepeated(prisoners_dilemma)
    naive = make_learner("naive(learning_rate=3)", game, 0)
    seen = []

    def update(key, state, trajectory):
        jax.debug.callback(seen.append, trajectory.others[0], ordered=True)
        return naive.update(key, state, trajectory)

    made = ours.player(naive._replace(update=update), game, rounds_per_update=40)
    played = axelrod.Match((made, axelrod.Cooperator()), turns=400, seed=1).play()
    jax.effects_barrier()
    own = np.array([a == axelrod.Action.D for a, _ in played])
    assert own[-40:].mean() > 0.9 > own[:40].mean()
    assert len(seen) == 9
    probabilities = jax.nn.sigmoid(jnp.stack(seen)[:, 0, 0])
    assert (probabilities.max(1) > 0.9).all()  # from counts of 40 rounds in at most four states
    assert probabilities[0, 0] == pytest.approx(2 / 3)  # one start
    assert (probabilities >= 0.5 - 1e-6).all()


def test_a_trained_shaper_of_sampled_games_plays_in_a_tournament(axelrod, ours, tmp_path):
    """A shaper plays from its file with its memory; matches with equal seeds are equal, others are not."""
    config = SampledShapingConfig(
        environment="ipd(episode_length=20)", shaper="shaper(hidden_units=4)", opponent="tabular_ppo"
    )
    parameters = config.make_shaper().init(jax.random.key(3))
    save_agent(tmp_path / "agent.safetensors", config, parameters)
    agent = load_agent(tmp_path)
    made = ours.player(agent.learner(agent.parameters), config.make_game(), rounds_per_update=20, name="Shaper")
    matches = [axelrod.Match((made, axelrod.TitForTat()), turns=50, seed=seed).play() for seed in (1, 1, 2)]
    assert matches[0] == matches[1] != matches[2]
    results = axelrod.Tournament([made, axelrod.TitForTat()], turns=5, repetitions=2, seed=1).play(progress_bar=False)
    assert "Shaper" in results.players


def test_games_of_other_kinds_are_refused(ours):
    learner = play_memory_one([1, 1, 0, 1, 0])
    for game in (None, games.make("coin_game"), games.make("rock_paper_scissors"), games.make("three_player_ipd")):
        with pytest.raises(ValueError, match="a repeated game of two players with two actions is needed") as error:
            ours.player(learner, game)
        assert len(str(error.value)) < 400
    with pytest.raises(ValueError, match="rounds_per_update: got 0"):
        ours.player(learner, games.make("ipd"), rounds_per_update=0)


def test_an_opponent_by_its_name(ours):
    game = InfinitelyRepeated(prisoners_dilemma)
    learner = make_learner("axelrod(name='ZD-Extort-2')", game, 1)
    np.testing.assert_allclose(
        jax.nn.sigmoid(learner.init(jax.random.key(0)).logits), ours.strategy("ZD-Extort-2"), atol=1e-6
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("axelrod(name='Tit for Tit')", "name: got 'Tit for Tit'; did you mean Tit For Tat"),
        ("axelrod(name='Gradual')", "name: got 'Gradual'"),  # a longer memory than one round
        ("axelrod", "name: got ''; one of ALLCorALLD, .* is needed"),
        ("axelrod(name=3)", "axelrod: name: got 3; text in quotes is needed"),
        ("axelrod(nam='Bully')", "has no setting 'nam'; it takes name"),
    ],
)
def test_bad_specs_are_refused_in_one_line(spec, message):
    with pytest.raises(ValueError, match=message) as error:
        make_learner(spec, InfinitelyRepeated(prisoners_dilemma), 1, field="opponent")
    assert str(error.value).startswith("opponent: ")
    assert "\n" not in str(error.value)


def test_policies_are_checked(ours):
    for policy in ([0.5] * 4, [0.5, 0.5, 2, 0, 0], [float("nan")] * 5):
        for make in (ours.player, play_memory_one):
            with pytest.raises(ValueError, match=r"five probabilities in \[0, 1\] are needed"):
                make(policy)


def test_without_the_library_one_line_names_the_extra():
    code = """
import sys
sys.modules["axelrod"] = None
import games, marl
marl.make_learner("tft", games.InfinitelyRepeated(games.prisoners_dilemma), 1)
try:
    marl.make_learner("axelrod(name='Bully')", games.InfinitelyRepeated(games.prisoners_dilemma), 1)
except ValueError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True).stdout
    assert "pip install 'marl-shaping[axelrod]'" in out
    assert out.count("\n") == 1


def test_sampled_policies_have_the_returns_of_the_closed_form():
    """Two policies play `games.suite.rounds` with the discount as the probability of a further round."""
    own, other = [0.9, 0.8, 0.3, 0.6, 0.1], [0.2, 0.7, 0.1, 0.5, 0.4]
    game = games.make("ipd", payoffs=np.stack([OURS.row, OURS.column], -1), discount=DISCOUNT)
    num_envs, steps = 500, 400
    history = learn(
        jax.random.key(0), game, [play_memory_one(own), play_memory_one(other)],
        num_updates=1, steps_per_update=steps, num_envs=num_envs, keep_trajectories=True,
    )  # fmt: skip
    transition = history.trajectories[0]
    mean = [float(x[0]) for x in history.rewards]
    # The frequency of each state is a mean over 200,000 rounds of about 8,000 games.
    np.testing.assert_allclose(mean, (1 - DISCOUNT) * exact(own, other), rtol=0.02)
    assert set(np.unique(transition.action)) == {0, 1}


def test_certain_policies_never_slip():
    act = play_memory_one([1, 1, 0, 1, 0]).act
    state = jax.nn.one_hot(jnp.arange(5), 5)[:, None].repeat(100_000, 1)
    actions, _, _ = act(jax.random.key(0), (), (), state)
    assert (actions == jnp.array([0, 0, 1, 0, 1])[:, None]).all()
