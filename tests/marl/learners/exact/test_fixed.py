"""Fixed strategies by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, chicken, matching_pennies, prisoners_dilemma, symmetric
from games.registry import make_game
from marl import learn, make_learner, memory_one

GAME = InfinitelyRepeated(prisoners_dilemma)
VECTORS = {
    "all_c": [1, 1, 1, 1, 1],
    "all_d": [0, 0, 0, 0, 0],
    "tft": [1, 1, 0, 1, 0],
    "wsls": [1, 1, 0, 0, 1],
    "grim": [1, 1, 0, 0, 0],
    "random": [0.5] * 5,
    "random(probability=0.2)": [0.2] * 5,
    "gtft(generosity=0.25)": [1, 1, 0.25, 1, 0.25],
    "gtft": [1, 1, 0.5, 1, 0.5],  # min(1 - 1/2, 1/2) for payoffs -1, -3, 0, -2
    "memory_one(probabilities=[0.9, 1, 0, 0.5, 0.1])": [0.9, 1, 0, 0.5, 0.1],
    "0.9,1,0,0.5,0.1": [0.9, 1, 0, 0.5, 0.1],
}


def probabilities(spec, game=GAME):
    return np.asarray(jax.nn.sigmoid(make_learner(spec, game, 1).init(jax.random.key(0)).logits))


@pytest.mark.parametrize("spec", VECTORS)
def test_a_name_is_its_textbook_vector(spec):
    np.testing.assert_allclose(probabilities(spec), VECTORS[spec], atol=1e-6)


def test_generous_tit_for_tat_forgives_a_third_with_the_conventional_payoffs():
    game = InfinitelyRepeated(symmetric("conventional", ((3.0, 0.0), (5.0, 1.0))))
    assert probabilities("gtft", game)[2] == pytest.approx(1 / 3)
    alternation = InfinitelyRepeated(symmetric("alternation pays", ((3.0, 0.0), (7.0, 1.0))))
    assert probabilities("gtft", alternation)[2] == pytest.approx(0, abs=1e-6)  # 1 - 4 / 3 is below it


def test_famous_pairs_get_their_known_payoffs():
    """Payoffs per round of the prisoner's dilemma in the limit of many rounds: Nowak and Sigmund (1993)."""
    expected = {
        ("tft", "tft"): (-1, -1),
        ("all_d", "all_c"): (0, -3),
        ("wsls", "all_d"): (-2.5, -1),
        ("grim", "wsls"): (-1, -1),
    }
    game = InfinitelyRepeated(prisoners_dilemma, 0.9999)
    for pair, payoffs in expected.items():
        history = learn(jax.random.key(0), game, [make_learner(n, game, i) for i, n in enumerate(pair)], num_updates=1)
        assert [float(x[0]) for x in history.rewards] == pytest.approx(payoffs, abs=2e-3), pair


def test_a_zero_determinant_opponent_extorts_from_the_second_seat():
    learners = [make_learner("0.3,0.9,0.8,0.4,0.6", GAME, 0), make_learner("zd(chi=3)", GAME, 1)]
    own, other = (float(x[0]) for x in learn(jax.random.key(0), GAME, learners, num_updates=1).rewards)
    assert other + 2 == pytest.approx(3 * (own + 2), abs=1e-5)


def test_naive_takes_its_settings():
    learner = make_learner("naive(learning_rate=0.5, init_scale=0.0)", GAME, 1)
    np.testing.assert_array_equal(learner.init(jax.random.key(0)).logits, 0)


def test_one_shot_games_take_strategies_that_need_no_memory():
    once = InfinitelyRepeated(chicken, 0.0)
    assert probabilities("all_c", once) == pytest.approx([1.0])
    assert make_learner("naive", once, 1).init(jax.random.key(0)).logits.shape == (1,)


def test_one_probability_is_a_strategy_of_a_single_sampled_round():
    learner = make_learner("1", make_game("ipd(episode_length=1)"), 1)
    action, *_ = learner.act(jax.random.key(0), (), (), jnp.eye(5))
    assert not action.any()  # cooperation
    with pytest.raises(ValueError, match=r"play_memory_one: got observations \[2, 10\]; \[..., 5\]"):
        learner.act(jax.random.key(0), (), (), jnp.eye(10)[:2])
    with pytest.raises(ValueError, match="got 2 of them; 1 are needed"):
        make_learner("0.5,0.5", make_game("ipd(episode_length=1)"), 1)


@pytest.mark.parametrize(
    ("spec", "game", "message"),
    [
        ("naiv", GAME, "did you mean naive"),
        ("titfortat", GAME, "one of naive, lookahead, lola"),
        ("naive(lr=1)", GAME, "has no setting 'lr'; it takes learning_rate, init_scale"),
        ("naive(learning_rate='fast')", GAME, "learning_rate: got 'fast'; a number"),
        ("naive(1)", GAME, "a name such as naive"),
        ("__import__('os')", GAME, "a name such as naive"),
        ("naive(", GAME, "a name such as naive"),
        ("zd(chi=0.2)", GAME, "chi: got 0.2"),
        ("0.5,0.5", GAME, "probabilities: got 2 of them; 5 are needed"),
        ("0.5,0.5,2,0,0", GAME, r"five probabilities in \[0, 1\]"),
        ("tft", InfinitelyRepeated(chicken, 0.0), "a discount above 0"),
        ("zd", InfinitelyRepeated(chicken, 0.0), "a discount above 0"),
        ("gtft", InfinitelyRepeated(matching_pennies), "no prisoner's dilemma"),
    ],
)
def test_bad_specs_are_refused_in_one_line(spec, game, message):
    with pytest.raises(ValueError, match=message) as error:
        make_learner(spec, game, 1, field="opponent")
    assert str(error.value).startswith("opponent: ")
    assert "\n" not in str(error.value)


def test_probabilities_are_checked():
    with pytest.raises(ValueError, match="five probabilities"):
        memory_one([0.1, float("nan"), 0.2, 0.3, 0.4])
