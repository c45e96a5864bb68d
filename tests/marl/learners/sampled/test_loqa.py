"""LOQA against its definition in float64 NumPy, and in its game."""

import jax
import numpy as np
import pytest

from games import make
from marl import learn, make_learner
from marl.blocks.networks import feed_forward
from marl.learners.sampled.fixed import always_defect
from marl.learners.sampled.loqa import loqa
from tests.marl.sampled_steps import CART_POLE, DISCOUNT, ENVS, STEPS, gradient, linear, log_softmax, single, some_steps
from tests.nightly import nightly

GAME, AHEAD, TEMPERATURE, INFLUENCE, ENTROPY, RATE = make("three_player_ipd"), 0.7, 1.3, 0.6, 0.05, 0.5


def chosen(x, actions):
    return np.take_along_axis(x, actions[..., None], -1)[..., 0]


def huber(x):
    return np.where(abs(x) < 1, 0.5 * x**2, abs(x) - 0.5)


def after(t, values):
    """Discounted values of the next observation, 0 after a termination."""
    return np.where(t.done & ~t.truncated, 0, DISCOUNT * (t.next_obs @ values))


@pytest.fixture(scope="module")
def steps():
    t, rng = some_steps(), np.random.default_rng(5)
    later = np.concatenate([t.obs[1:], t.next_obs[-1:]])
    return t._replace(
        next_obs=np.where(t.done[..., None], t.next_obs, later),
        others=tuple(rng.integers(2, size=(2, STEPS, ENVS))),
        others_reward=tuple(rng.normal(size=(2, STEPS, ENVS))),
        first_memory=(),
        last_memory=(),
    )


@pytest.fixture(scope="module")
def updated(steps):
    """Parameters before and after an update with another target network, and the metrics."""
    learner = loqa(
        GAME, network=linear(), learning_rate=RATE, value_learning_rate=RATE, discount=DISCOUNT, tau=0.25,
        influence_discount=AHEAD, temperature=TEMPERATURE, influence=INFLUENCE, entropy_coefficient=ENTROPY,
        # Adam's first step is rate * g / (|g| + 1e-8): of a gradient cut to a length of 1e-8 the direction is left.
        max_gradient_norm=1e-8,
    )  # fmt: skip

    @jax.jit
    def run():
        state = learner.init(jax.random.key(0))
        target = learner.init(jax.random.key(1)).target
        new, metrics = learner.update(jax.random.key(2), state._replace(target=target), single(steps))
        return state.params, target, new.params, new.target, metrics

    return jax.tree.map(lambda x: np.asarray(x, np.float64), run())


def test_the_actor_follows_the_gradient_of_the_definition(steps, updated):
    first, _, second, _, metrics = updated
    t = steps
    advantage = t.reward + after(t, first.own[:, -1]) - t.obs @ first.own[:, -1]
    old = chosen(log_softmax(t.obs @ first.actor[:, :-1]), t.action)

    def log_answer(log_prob, values, reward, answers):
        follows = after(t, values[:, -1])  # where the episode or the batch ends
        returns = np.zeros((STEPS, ENVS))
        for i in reversed(range(STEPS)):
            goes_on = np.zeros(ENVS, bool) if i == STEPS - 1 else ~t.done[i]
            returns[i] = reward[i] + np.where(goes_on, DISCOUNT * returns[min(i + 1, STEPS - 1)], follows[i])
        baseline = t.obs @ values[:, -1]
        later = np.zeros((STEPS, ENVS))
        for i in range(STEPS):
            for env in range(ENVS):
                for u in range(i + 1, STEPS):
                    if not t.done[i:u, env].any():
                        box = np.exp(log_prob[u, env] - old[u, env]) - 1
                        own_part = box * (returns[u, env] - baseline[u, env])
                        later[i, env] += DISCOUNT * (DISCOUNT * AHEAD) ** (u - i - 1) * own_part
        taken = (returns + later)[..., None]
        found = np.where(answers[..., None] == np.arange(2), taken, t.obs @ values[:, :-1]) / TEMPERATURE
        return chosen(log_softmax(found), answers)

    def gain(params):
        log_p = log_softmax(t.obs @ params[:, :-1])
        log_prob = chosen(log_p, t.action)
        answers = sum(log_answer(log_prob, *x) for x in zip(first.others, t.others_reward, t.others, strict=True))
        entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
        return (advantage * (log_prob + INFLUENCE * answers)).mean() + ENTROPY * entropy

    slope = gradient(gain, first.actor)
    direction = slope / np.linalg.norm(slope)
    expected = first.actor + RATE * direction / (abs(direction) + 1)
    np.testing.assert_allclose(second.actor, expected, atol=1e-4)
    log_p = log_softmax(t.obs @ first.actor[:, :-1])
    assert metrics["entropy"] == pytest.approx(-(np.exp(log_p) * log_p).sum(-1).mean(), rel=1e-5)


def test_values_follow_the_gradient_of_their_loss(steps, updated):
    first, target, second, new_target, metrics = updated
    t = steps

    def loss(params):
        wanted = t.reward + after(t, target[0][:, -1])
        found = huber(t.obs @ params[0][:, -1] - wanted).mean()
        for values, goal, reward, answers in zip(params[1:], target[1:], t.others_reward, t.others, strict=True):
            wanted = reward + after(t, goal[:, -1])
            found += huber(t.obs @ values[:, -1] - wanted).mean()
            found += huber(chosen(t.obs @ values[:, :-1], answers) - wanted).mean()
        return found

    before = np.stack([first.own, *first.others])
    assert metrics["value_loss"] == pytest.approx(loss(before), rel=1e-5)
    slope = gradient(loss, before)
    assert (slope == 0).sum() == 8  # no loss reads the player's own action values
    np.testing.assert_allclose(np.stack([second.own, *second.others]), before - RATE * np.sign(slope), atol=1e-4)
    values = second.own, *second.others
    expected = tuple(0.75 * old + 0.25 * new for old, new in zip(target, values, strict=True))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), new_target, expected)


@nightly
def test_loqa_plays_with_a_memory():
    game = make("ipd", episode_length=3)
    players = [make_learner("random", game, 0), make_learner("loqa(network='recurrent', hidden=[], memory=3)", game, 1)]
    run = jax.jit(lambda key: learn(key, game, players, num_updates=2, steps_per_update=4, num_envs=2))
    history = run(jax.random.key(0))
    found = jax.tree.leaves((history.metrics[1], history.states[1].params))
    assert found
    assert all(np.isfinite(x).all() for x in found)


def test_other_games_and_bad_settings_are_refused():
    with pytest.raises(ValueError, match="loqa: got a game of 1 players; one of two or more is needed"):
        loqa(CART_POLE)
    with pytest.raises(ValueError, match=r"temperature: got 0; a number above 0 is needed"):
        loqa(GAME, temperature=0)


@pytest.mark.slow
def test_two_loqa_learners_cooperate_and_one_learns_to_defect_against_a_defector():
    """Two LOQA learners cooperate; two of PPO do not, in `test_alignment.py`."""
    game = make("ipd", episode_length=10)
    network = feed_forward((5,), 2, hidden=(16,), shared=True)
    pair = [loqa(game, seat, network=network) for seat in range(2)]

    def last(players, field):
        def run(key):
            return getattr(learn(key, game, players, num_updates=2000, steps_per_update=10, num_envs=64), field)

        return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 3))

    assert (last(pair, "infos")["cooperation"][:, -100:].mean((1, 2)) > 0.95).all()
    assert (last([pair[0], always_defect(game, 1)], "rewards")[0][:, -100:].mean(1) > -2.05).all()
