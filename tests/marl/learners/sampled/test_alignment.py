"""Advantage alignment against its definition in float64 NumPy, by hand, and in its games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl import learn, make_learner
from marl.blocks.advantages import align
from marl.blocks.networks import feed_forward
from marl.core.learn import check_update
from marl.core.learner import keep_state
from marl.learners.sampled.alignment import advantage_alignment, proximal_advantage_alignment
from marl.learners.sampled.fixed import always_defect, random
from marl.learners.sampled.ppo import a2c, ppo
from tests.marl.sampled_steps import (
    CART_POLE,
    DISCOUNT,
    ENVS,
    STEPS,
    following,
    gradient,
    linear,
    log_softmax,
    single,
    some_steps,
)
from tests.nightly import MARKS

IPD, BETA, LAMBDA = make("ipd"), 0.6, 0.8


def test_products_with_earlier_advantages_by_hand():
    own, others = jnp.array([[1.0], [2.0], [-4.0], [8.0], [1.0]]), jnp.array([[9.0], [1.0], [10.0], [7.0], [-1.0]])
    done = jnp.array([[False], [False], [True], [False], [False]])
    # The first step of an episode has 0, the next half of 1, then half of 2 and a quarter of 1; then a new episode.
    np.testing.assert_allclose(align(own, others, done, 0.5)[:, 0], [0, 0.5 * 1, 1.25 * 10, 0, 4 * -1])
    with pytest.raises(AssertionError):
        align(own, others[:, 0], done, 0.5)


def aligned(own, others, done):
    """A_t + BETA sum_k DISCOUNT^(t - k) A_k B_t over the k before t in the same episode."""
    found = own.copy()
    for t in range(STEPS):
        for env in range(ENVS):
            for k in range(t):
                if not done[k:t, env].any():
                    found[t, env] += BETA * DISCOUNT ** (t - k) * own[k, env] * others[t, env]
    return found


def estimate(t, reward, value, next_value):
    """Generalised advantages, from their definition."""
    after = np.where(t.done & ~t.truncated, 0, next_value)
    found, later = np.zeros((STEPS, ENVS)), np.zeros(ENVS)
    for i in reversed(range(STEPS)):
        later = reward[i] + DISCOUNT * after[i] - value[i] + np.where(t.done[i], 0, DISCOUNT * LAMBDA * later)
        found[i] = later
    return found


def standard(x):
    return (x - x.mean()) / x.std()


@pytest.mark.parametrize("proximal", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_step_follows_the_gradient_of_the_definition(proximal, normalize):
    epsilon, rate, t = 100.0, 50.0, some_steps()
    rng = np.random.default_rng(3)
    values = rng.normal(size=(STEPS, ENVS, 2))
    others_reward = rng.normal(size=(2, STEPS, ENVS))  # two co-players, whose rewards add up
    t = t._replace(extras=t.extras._replace(value=values, carry=((), ())), others_reward=tuple(others_reward))
    make_learner = proximal_advantage_alignment if proximal else advantage_alignment
    learner = make_learner(
        IPD, network=linear(), alignment=BETA, learning_rate=rate, discount=DISCOUNT, gae_lambda=LAMBDA,
        value_coefficient=0.7, entropy_coefficient=0.03, max_gradient_norm=1e9,
        details={"adam_epsilon": epsilon, "normalize_advantages": normalize},
        **({"epochs": 1, "minibatches": 1} if proximal else {}),
    )  # fmt: skip

    @jax.jit
    def step():
        state = learner.init(jax.random.key(0))
        carry = {"first_memory": t.first_memory._replace(carry=((), ())), "last_memory": t.last_memory}
        seen = single(t)._replace(**carry)
        return state.params, learner.update(jax.random.key(1), state, seen)[0].params

    first, second = step()
    own, critic = (np.asarray(x, np.float64) for x in first)
    pairs = (own, t.reward), (critic, others_reward.sum(0))
    next_values = following(t.done, values, np.stack([t.next_obs @ params[:, -1] for params, _ in pairs], -1))
    parts = [estimate(t, reward, values[..., i], next_values[..., i]) for i, (_, reward) in enumerate(pairs)]
    advantage = aligned(*(standard(x) if normalize else x for x in parts), t.done)
    advantage = standard(advantage) if normalize else advantage

    def loss(params):
        log_p = log_softmax(t.obs @ params[0][:, :-1])
        log_ratio = np.take_along_axis(log_p, t.action[..., None], -1)[..., 0] - t.extras.log_prob
        ratio = np.exp(log_ratio)
        surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.9, 1.1) * advantage)
        gain = (surrogate if proximal else log_ratio * advantage).mean()
        found = np.stack([t.obs @ one[:, -1] for one in params], -1)
        target = values + np.stack(parts, -1)
        error = (found - target) ** 2
        if proximal:
            error = np.maximum(error, (values + np.clip(found - values, -0.2, 0.2) - target) ** 2)
        entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
        return 0.7 * 0.5 * error.mean() - 0.03 * entropy - gain

    g = gradient(loss, np.stack([own, critic]))
    change = np.stack([np.asarray(after) - before for after, before in zip(second, (own, critic), strict=True)])
    np.testing.assert_allclose(change, -rate * g / (abs(g) + epsilon), rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(change[1][:, :-1], 0, atol=1e-6)  # no gradient in the critic's action outputs


def test_a_group_has_the_others_mean_return_as_baseline():
    """A* from its definition, with a baseline of the other environment, and the gradient of its policy alone."""
    rate, t = 50.0, some_steps()
    rng = np.random.default_rng(4)
    others_reward = rng.normal(size=(1, STEPS, ENVS))
    t = t._replace(
        extras=t.extras._replace(value=rng.normal(size=(STEPS, ENVS, 2)), carry=((), ())),
        others_reward=tuple(others_reward),
    )
    learner = advantage_alignment(
        IPD, network=linear(), alignment=BETA, baseline="group", learning_rate=rate, discount=DISCOUNT,
        entropy_coefficient=0.0, max_gradient_norm=1e9,
        details={"adam_epsilon": 100.0, "normalize_advantages": False},
    )  # fmt: skip

    @jax.jit
    def step():
        state = learner.init(jax.random.key(0))
        carry = {"first_memory": t.first_memory._replace(carry=((), ())), "last_memory": t.last_memory}
        return state.params, learner.update(jax.random.key(1), state, single(t)._replace(**carry))[0].params

    (own, critic), (after, same) = jax.tree.map(lambda x: np.asarray(x, np.float64), step())

    def relative(reward):
        found = np.zeros((STEPS, ENVS))
        for i in range(STEPS):
            for env in range(ENVS):
                ends = np.flatnonzero(t.done[i:, env])
                last = i + ends[0] if len(ends) else STEPS - 1
                found[i, env] = sum(DISCOUNT ** (k - i) * reward[k, env] for k in range(i, last + 1))
        return found - (found.sum(1, keepdims=True) - found) / (ENVS - 1)

    advantage = aligned(relative(t.reward), relative(others_reward[0]), t.done)

    def loss(params):
        log_p = log_softmax(t.obs @ params[:, :-1])
        return -(np.take_along_axis(log_p, t.action[..., None], -1)[..., 0] * advantage).mean()

    g = gradient(loss, own)
    np.testing.assert_allclose(after - own, -rate * g / (abs(g) + 100.0), rtol=2e-3, atol=2e-5)
    np.testing.assert_array_equal(same, critic)  # no critic learns


@pytest.mark.system
@pytest.mark.parametrize(
    ("make_learner", "plain"),
    [(advantage_alignment, a2c), pytest.param(proximal_advantage_alignment, ppo, marks=MARKS)],
)
def test_without_alignment_it_is_the_policy_gradient(make_learner, plain):
    settings = {"network": feed_forward((5,), 2, hidden=(4,)), "discount": 0.9, "gae_lambda": 0.7}
    settings |= {"entropy_coefficient": 0.0, "learning_rate": 0.01, "max_gradient_norm": 1e9}
    settings |= {"details": {"normalize_advantages": True}} | ({"epochs": 2} if plain is ppo else {})
    players = [
        make_learner(IPD, 0, alignment=0.0, **({"clip": 0.2} if plain is ppo else {}), **settings),
        plain(IPD, 0, **settings),
    ]
    start = players[0].init(jax.random.key(0))

    @jax.jit
    def logits():
        found = []
        for player, params in zip(players, (start.params, start.params[0]), strict=True):
            state = player.init(jax.random.key(0))._replace(params=params)
            learners = [player._replace(init=lambda key, state=state: state), random(IPD, 1)]
            history = learn(jax.random.key(1), IPD, learners, num_updates=3, steps_per_update=8, num_envs=4)
            own = history.states[0].params
            found.append(own[0] if player is players[0] else own)
        return found

    ours, theirs = logits()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-5), ours, theirs)


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param("negotiation", "hidden=[4]", marks=MARKS),
        pytest.param("ipd", "network='recurrent', hidden=[], memory=3", marks=MARKS),
        pytest.param("coin_game", "network='convolutional', channels=1, hidden=[4]", marks=MARKS),
        ("three_player_ipd", "hidden=[], shared=True, normalize_observations=True"),
    ],
)
def test_advantage_alignment_plays_the_games_of_ppo(name, settings):
    game = make(name, episode_length=3)
    spec = f"proximal_advantage_alignment({settings}, minibatches=2)"
    *others, last = range(game.num_agents)
    players = [*(random(game, seat) for seat in others), make_learner(spec, game, last)]
    run = jax.jit(lambda key: learn(key, game, players, num_updates=2, steps_per_update=4, num_envs=2))
    history = run(jax.random.key(0))
    found = jax.tree.leaves((history.metrics[last], history.states[last].params))
    assert found
    assert all(np.isfinite(x).all() for x in found)


def test_a_game_without_co_players_is_refused():
    with pytest.raises(ValueError, match=r"alignment: got 3.0 in a game of one player; a co-player is needed"):
        advantage_alignment(CART_POLE)
    with pytest.raises(ValueError, match=r"alignment: got -1; a number of at least 0 is needed"):
        proximal_advantage_alignment(IPD, alignment=-1)
    with pytest.raises(ValueError, match=r"baseline: got 'mean'; one of value, group is needed"):
        advantage_alignment(IPD, baseline="mean")
    alone = make_learner("advantage_alignment(baseline='group')", IPD)
    with pytest.raises(ValueError, match=r"baseline: got 'group' in one environment; two at least are needed"):
        check_update(IPD, [alone, random(IPD, 1)], steps_per_update=4, num_envs=1)


def test_the_co_players_rewards_are_in_the_trajectory():
    game = make("three_player_ipd", episode_length=3)
    players = [make_learner("random", game, seat) for seat in range(3)]
    length = {"num_updates": 1, "steps_per_update": 4, "num_envs": 2}
    run = jax.jit(lambda key: learn(key, game, players, keep_trajectories=True, **length))
    first, second, third = run(jax.random.key(0)).trajectories
    np.testing.assert_array_equal(second.others_reward, np.stack([first.reward, third.reward]))


@pytest.mark.slow
def test_two_of_them_cooperate_where_ppo_defects_and_are_not_exploited():
    game = make("ipd", episode_length=32)
    network, length = feed_forward((5,), 2, hidden=(16,)), {"steps_per_update": 32, "num_envs": 64}

    def run(make_learner, **settings):
        players = [make_learner(game, seat, network=network, learning_rate=0.02, **settings) for seat in range(2)]

        @jax.jit
        @jax.vmap
        def one(key):
            history = learn(key, game, players, num_updates=200, **length)
            as_it_is = players[0]._replace(init=lambda key: history.states[0], update=keep_state)
            against = learn(key, game, [as_it_is, always_defect(game, 1)], num_updates=4, **length)
            return history.infos["cooperation"][-20:].mean(), against.rewards[0].mean()

        return one(jax.random.split(jax.random.key(0), 3))

    cooperation, income = run(proximal_advantage_alignment)
    assert (cooperation > 0.95).all()
    assert (income > -2.1).all()
    cooperation, _ = run(ppo, discount=0.96)
    assert (cooperation < 0.05).all()
