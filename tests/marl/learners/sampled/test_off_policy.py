"""TD3 and SAC: updates against float64 NumPy, multi-step rewards, the replay window, and learning."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Box, make
from games.core import random_bits
from marl import Learner, Trajectory, evaluate, learn, make_learner
from marl.blocks.sparse import kernels
from marl.learners.sampled.sac import sac
from marl.learners.sampled.td3 import _rollout_value, td3
from tests.nightly import nightly

PENDULUM = make("Pendulum-v1")  # torques in [-2, 2]
SMALL = {"hidden": [5], "discount": 0.9, "learning_rate": 0.01, "tau": 0.25}


def steps(seed, shape=(1, 1), done=0.0, truncated=0.0):
    """A trajectory `[T, N]`, whose next observations are those of the next steps except at ends of episodes."""
    keys = jax.random.split(jax.random.key(seed), 6)
    obs, next_obs = (jax.random.normal(key, (*shape, 3)) for key in keys[:2])
    ended = jax.random.uniform(keys[2], shape) < done
    cut = ended & (jax.random.uniform(keys[3], shape) < truncated)
    action = 2 * jax.random.uniform(keys[4], (*shape, 1), minval=-1)
    reward = jax.random.normal(keys[5], shape)
    next_obs = jnp.where(ended[..., None], next_obs, jnp.append(obs[1:], next_obs[-1:], 0))
    return Trajectory(obs, action, reward, ended, (), (), cut, next_obs, None, None)


def forward(params, x):
    """A network in float64."""
    hidden = np.maximum(x @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"], 0)
    return hidden @ params["Dense_1"]["kernel"] + params["Dense_1"]["bias"]


def wide(params):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def slope(function, params):
    """Central differences."""
    leaves, structure = jax.tree.flatten(params)
    found = [np.zeros_like(x) for x in leaves]
    for leaf, grad in zip(leaves, found, strict=True):
        for i in np.ndindex(leaf.shape):
            before = leaf[i]
            leaf[i] = before + 1e-6
            up = function(params)
            leaf[i] = before - 1e-6
            grad[i] = (up - function(params)) / 2e-6
            leaf[i] = before
    return jax.tree.unflatten(structure, found)


class Adam:
    """Adam by its definition."""

    def __init__(self, rate=0.01):
        self.m = self.v = self.t = 0
        self.rate = rate

    def step(self, params, gradient):
        flat = jax.tree.leaves(gradient)
        self.t += 1
        self.m = [0.9 * m + 0.1 * g for m, g in zip(self.m or [0] * len(flat), flat, strict=True)]
        self.v = [0.999 * v + 0.001 * g**2 for v, g in zip(self.v or [0] * len(flat), flat, strict=True)]
        hats = [(m / (1 - 0.9**self.t), v / (1 - 0.999**self.t)) for m, v in zip(self.m, self.v, strict=True)]
        new = [x - self.rate * m / (np.sqrt(v) + 1e-8) for x, (m, v) in zip(jax.tree.leaves(params), hats, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(params), new)


def close(found, expected):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-5), found, expected)


def mix(new, old):
    return jax.tree.map(lambda x, y: 0.25 * x + 0.75 * y, new, old)


def of_step(t):
    """Observation, action in [-1, 1], reward, next observation and factor of one step."""
    obs, action, next_obs = (np.asarray(x, np.float64)[0, 0] for x in (t.obs, t.action / 2, t.next_obs))
    return obs, action, float(t.reward[0, 0]), next_obs, 0.9 * float((~t.done | t.truncated)[0, 0])


def value(params, obs, action):
    return forward(params, np.concatenate([obs, action]))[0]


@pytest.mark.system
@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize(("done", "truncated"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)])
def test_td3_agrees_with_the_paper(done, truncated):
    """Four updates of one step each, so that the minibatch is known; the target's noise is clipped to 0.1."""
    replay, noise = {"batch_size": 2, "buffer_size": 1, "learning_starts": 1}, {"target_noise": 1e6, "noise_clip": 0.1}
    learner = td3(PENDULUM, **SMALL, replay=replay, noise=noise, policy_delay=2)
    state, update = learner.init(jax.random.key(0)), jax.jit(learner.update)
    networks = state.networks
    actor, target = wide(networks.actor), wide(networks.target)
    critics, slow = list(wide(networks.critics)), list(wide(networks.target_critics))
    adams = Adam(), Adam(), Adam()
    for i in range(4):
        t, key = steps(i, done=done, truncated=truncated), jax.random.key(i)
        state, metrics = update(key, state, t)
        obs, action, reward, next_obs, factor = of_step(t)
        noise_key = jax.random.split(jax.random.split(key, 1)[0], 3)[1]
        signs = np.sign(jax.random.normal(random_bits.unrolled(noise_key), (2, 1)))  # all noise is beyond the clip
        following = [np.clip(np.tanh(forward(target, next_obs)) + 0.1 * sign, -1, 1) for sign in signs]
        goals = [reward + factor * min(value(one, next_obs, x) for one in slow) for x in following]

        def loss(critics, obs=obs, action=action, goals=goals):
            return sum((value(one, obs, action) - goal) ** 2 for one in critics for goal in goals) / 2

        assert float(metrics["value_loss"]) == pytest.approx(loss(critics), rel=1e-3, abs=1e-5)
        both = adams[0].step(critics, slope(loss, critics))
        critics = both
        if i % 2:  # every second step of the critics also updates the actor and the targets
            gradient = slope(lambda p, obs=obs, first=critics[0]: -value(first, obs, np.tanh(forward(p, obs))), actor)
            actor = adams[1].step(actor, gradient)
            target, slow = mix(actor, target), [mix(x, y) for x, y in zip(critics, slow, strict=True)]
        networks = state.networks
        close(networks.critics, tuple(critics))
        close(networks.actor, actor)
        close(networks.target, target)
        close(networks.target_critics, tuple(slow))


@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize("critic_rate", [None, 0.03])
def test_sac_agrees_with_the_paper(critic_rate):
    replay, entropy = {"batch_size": 1, "buffer_size": 1, "learning_starts": 1}, {"temperature": 0.5}
    entropy |= {"target_entropy": -0.3}
    learner = sac(PENDULUM, **SMALL, critic_learning_rate=critic_rate, replay=replay, entropy=entropy)
    state, update = learner.init(jax.random.key(0)), jax.jit(learner.update)
    actor, critics = wide(state.networks.actor), list(wide(state.networks.critics))
    slow, log_temperature = critics, np.log(0.5)
    adams = Adam(critic_rate or 0.01), Adam(), Adam(critic_rate or 0.01)

    def drawn(params, obs, normal):
        centre, log_scale = np.split(forward(params, obs), 2)
        action = np.tanh(centre + np.exp(log_scale) * normal)
        log_prob = -0.5 * normal**2 - log_scale - 0.5 * np.log(2 * np.pi) - np.log(1 - action**2)
        return action, log_prob.sum()

    for i in range(3):
        t, key = steps(i), jax.random.key(i)
        state, metrics = update(key, state, t)
        obs, action, reward, next_obs, factor = of_step(t)
        keys = jax.random.split(jax.random.split(key, 1)[0], 3)
        normals = [np.asarray(jax.random.normal(random_bits.unrolled(k), (1, 1)), np.float64)[0] for k in keys[1:]]
        following, log_prob = drawn(actor, next_obs, normals[0])
        temperature = np.exp(log_temperature)
        goal = reward + factor * (min(value(one, next_obs, following) for one in slow) - temperature * log_prob)

        def loss(critics, obs=obs, action=action, goal=goal):
            return sum((value(one, obs, action) - goal) ** 2 for one in critics)

        assert float(metrics["value_loss"]) == pytest.approx(loss(critics), rel=1e-3, abs=1e-5)
        critics = adams[0].step(critics, slope(loss, critics))

        def cost(params, obs=obs, normal=normals[1], critics=critics, temperature=temperature):
            action, log_prob = drawn(params, obs, normal)
            return temperature * log_prob - min(value(one, obs, action) for one in critics)

        log_prob = drawn(actor, obs, normals[1])[1]
        actor = adams[1].step(actor, slope(cost, actor))
        gradient = -temperature * (log_prob - 0.3)
        log_temperature = adams[2].step([np.array(log_temperature)], [np.array(gradient)])[0]
        slow = [mix(x, y) for x, y in zip(critics, slow, strict=True)]
        close(state.networks.critics, tuple(critics))
        close(state.networks.actor, actor)
        close(state.networks.target_critics, tuple(slow))
        assert float(state.networks.log_temperature) == pytest.approx(float(log_temperature), abs=1e-4)


@pytest.mark.usefixtures("promoted")
def test_values_of_rollouts_by_hand():
    """A pole that falls in the rollout, one that has fallen before it, and one that stands at its end."""
    game = make("inverted_pendulum")
    replay = {"batch_size": 64, "buffer_size": 3, "learning_starts": 1, "gradient_steps": 1}
    learner = td3(game, **SMALL, replay=replay, noise={"target_noise": 0.0}, targets={"value_rollouts": 4})
    begin = jax.random.key(0)
    angles, action = [0.0, 0.19, 0.3], np.full((3, 1, 1), 0.5, np.float32)
    states = [game.reset(begin)[1].replace(angle=jnp.float32(angle), turning=jnp.float32(0.3)) for angle in angles]
    obs = jnp.stack([game.get_obs(state)["agent_0"] for state in states])[:, None]
    no = jnp.zeros((3, 1), bool)
    t = Trajectory(obs, action, jnp.ones((3, 1)), no.at[2].set(True), (), (), no, obs, None, None)
    before = learner.init(begin)
    moved = jax.tree.map(lambda x: x + 0.1, before.networks.actor)  # so that it is not the actor whose values count
    before = before._replace(networks=before.networks._replace(target=moved))
    _, metrics = jax.jit(learner.update)(begin, before, t)
    target, critics = wide(before.networks.target), list(wide(before.networks.critics))
    lengths, errors = [], []
    for state, seen in zip(states, np.asarray(obs[:, 0], np.float64), strict=True):
        total, weight, now, done, length = 0.0, 1.0, seen, False, 0
        while length < 4 and not done:
            action_now = np.tanh(forward(target, now))
            now, state, reward, dones, _ = game.step_env(begin, state, {"agent_0": jnp.float32(action_now)})
            now, done = np.asarray(now["agent_0"], np.float64), bool(dones["agent_0"])
            total += weight * float(reward["agent_0"])
            weight, length = 0.9 * weight, length + 1
        lengths.append(length)
        coming = total + (0 if done else weight / (1 - 0.9))
        goal = 1 + (0.9 * coming if angles[len(lengths) - 1] < 0.3 else 0)
        errors.append(sum((value(one, seen, np.array([0.5])) - goal) ** 2 for one in critics))
    key = jax.random.split(jax.random.split(begin, 1)[0], 3)[0]
    index = np.asarray(jax.random.randint(random_bits.unrolled(key), (64,), 0, 3))
    assert float(metrics["value_loss"]) == pytest.approx(np.mean(np.array(errors)[index]), rel=1e-3)
    assert lengths[0] == 4
    assert 0 < lengths[1] < 4


def test_returns_of_rollouts_by_hand():
    """First actions unlike the policy's, rewards that vary, and a time limit within the rollout, which ends nothing."""
    game, key = make("cart_pole_swing_up", episode_length=2), jax.random.key(0)
    kernel = jnp.array([[0.3], [-0.2], [0.5], [1.0], [0.1]])
    states = [game.reset(key)[1].replace(angle=jnp.float32(angle)) for angle in (-2.0, 0.4)]
    obs = jnp.stack([game.get_obs(state)["agent_0"] for state in states])
    first = jnp.array([[1.0], [-0.8]])
    found = _rollout_value(game, 4, 0.9, lambda obs: jnp.tanh(obs @ kernel), obs, first)
    for i, state in enumerate(states):
        action, rewards = first[i], []
        for _ in range(4):
            seen, state, reward, _, _ = game.step_env(key, state, {"agent_0": action})
            action = np.tanh(np.asarray(seen["agent_0"], np.float64) @ np.asarray(kernel)).astype(np.float32)
            rewards.append(float(reward["agent_0"]))
        expected = sum(0.9**t * reward for t, reward in enumerate(rewards)) + 0.9**4 / (1 - 0.9) * rewards[-1]
        assert float(found[i]) == pytest.approx(expected, rel=1e-5)
        assert np.ptp(rewards) > 1e-3


@pytest.mark.parametrize(
    ("game", "settings", "words"),
    [
        ("ipd", {}, "value_rollouts: got 3; a game of one player with state_of"),
        ("Pendulum-v1", {}, r"value_rollouts: got 3; a game of one player with state_of"),
        ("inverted_pendulum", {"normalize_observations": True}, "value_rollouts: got 3; observations as they are"),
        ("inverted_pendulum", {"discount": 1.0}, r"discount: got 1.0; a number in \[0, 1\) is needed"),
    ],
)
def test_rollouts_need_states_and_an_end(game, settings, words):
    with pytest.raises(ValueError, match=words):
        td3(make(game), targets={"value_rollouts": 3}, **settings)


@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize(("updates", "same_actor"), [(0, True), (9, True), (9, False)])
def test_multi_step_rewards_stop_at_every_boundary(updates, same_actor):
    """Two updates of 4 x 3 steps in one buffer: rewards of each step and of the next ones of its environment,
    up to the end of the episode, the time limit, the buffer or the actor's rollout; one of them before
    `multi_step_from`."""
    learner = td3(
        PENDULUM, **SMALL, targets={"multi_step": 3, "multi_step_from": 9}, noise={"target_noise": 0.0},
        replay={"buffer_size": 24, "batch_size": 64, "gradient_steps": 1, "learning_starts": 1},
    )  # fmt: skip
    first, second = steps(1, (4, 3), 0.4, 0.5), steps(2, (4, 3), 0.4, 0.5)
    if same_actor:
        ended = first.done[-1:, :, None]
        last = jnp.where(ended, first.next_obs[-1:], second.obs[:1])
        first = first._replace(next_obs=jnp.append(first.next_obs[:-1], last, 0))
    state = learner.init(jax.random.key(0))
    update = jax.jit(learner.update)
    state, _ = update(jax.random.key(1), state, first)
    state = state._replace(networks=state.networks._replace(updates=jnp.int32(updates)))
    _, metrics = update(jax.random.key(2), state, second)
    both = jax.tree.map(lambda x, y: np.concatenate([x, y]).astype(np.float64), first, second)
    key = jax.random.split(jax.random.split(jax.random.key(2), 1)[0], 3)[0]
    index = np.asarray(jax.random.randint(random_bits.unrolled(key), (64,), 0, 24))
    networks, errors, lengths = state.networks, [], set()
    actor, slow, critics = (wide(x) for x in (networks.target, networks.target_critics, networks.critics))
    for i in index:
        time, env, reward, factor = i // 3, i % 3, 0.0, 1.0
        for k in range(3 if updates else 1):
            reward += factor * both.reward[time + k, env]
            factor *= 0.9
            if both.done[time + k, env] or time + k == 7 or (time + k == 3 and not same_actor):
                factor *= not both.done[time + k, env] or bool(both.truncated[time + k, env])
                break
        lengths.add((k, factor > 0))
        last = both.next_obs[time + k, env]
        following = np.tanh(forward(actor, last))
        goal = reward + factor * min(value(one, last, following) for one in slow)
        row = both.obs[time, env], both.action[time, env] / 2
        errors.append(sum((value(one, *row) - goal) ** 2 for one in critics))
    assert float(metrics["value_loss"]) == pytest.approx(np.mean(errors), rel=1e-3)
    assert len(lengths) == (6 if updates else 2)  # one to three steps, with a value after them and without


@pytest.mark.system
@pytest.mark.usefixtures("promoted")
def test_old_steps_with_actions_far_from_the_actor_s_are_dropped():
    """Distances by hand: just above the threshold a tenth is dropped, but not below the minimum, and not in between;
    below the threshold nothing."""
    t = steps(3, (10, 20))
    replay = {"buffer_size": 400, "batch_size": 8, "gradient_steps": 1, "learning_starts": 1}
    settings = SMALL | {"learning_rate": 0.0, "replay": replay}
    plain = td3(PENDULUM, **settings)
    state = jax.jit(lambda state: plain.update(jax.random.key(0), state, t)[0])(plain.init(jax.random.key(0)))
    now = np.tanh(forward(wide(state.networks.actor), np.asarray(t.obs, np.float64)))
    distance = 0.5 * np.mean((now - np.asarray(t.action, np.float64) / 2) ** 2)
    relative = distance / (0.5 * np.mean(now**2 + (np.asarray(t.action, np.float64) / 2) ** 2))
    for of_both, edge in ((False, distance), (True, relative)):

        @jax.jit
        def update(threshold, begun, of_both=of_both):
            rule = {"buffer_drift": threshold, "buffer_relative": of_both, "buffer_every": 2, "buffer_least": 330}
            learner = td3(PENDULUM, **settings, dynamic_buffer=rule)
            return learner.update(jax.random.key(1), begun, t)

        # (number of stored steps, the first of them, number of gradient steps)
        for factor, (stored, oldest, updates, expected) in itertools.product(
            (0.99, 1.01), ((330, 70, 1, 70), (360, 40, 1, 76), (360, 40, 2, 40), (400, 0, 1, 40))
        ):
            networks = state.networks._replace(oldest=jnp.int32(oldest), updates=jnp.int32(updates))
            begun = state._replace(networks=networks, steps=jnp.int32(200))
            after, metrics = update(factor * edge, begun)
            assert int(after.networks.oldest) == (expected if factor < 1 else oldest)
            assert int(after.steps) - int(begun.networks.oldest) == stored
            assert float(metrics["remembered"]) == float(after.steps - after.networks.oldest)
        # What is stored is as much where the number of steps would overflow.
        last = jnp.int32(2**31 - 100)
        begun = state._replace(networks=state.networks._replace(oldest=last - 150, updates=jnp.int32(1)), steps=last)
        after, metrics = update(1.01 * edge, begun)
        assert float(metrics["remembered"]) == 350
        assert 0 < int(after.steps) < int(last)


@pytest.mark.parametrize("name", ["td3", "sac"])
def test_first_actions_are_uniform_and_later_ones_explore(name):
    learner = make_learner(f"{name}(hidden=[8], learning_starts=10, buffer_size=64)", PENDULUM)
    state = learner.init(jax.random.key(0))
    obs = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.5]), (5_000, 3))
    for stored, uniform in ((9, True), (10, False)):
        policy = learner.policy(state._replace(steps=jnp.int32(stored)))
        memory = learner.init_memory(policy, 5_000)
        action, _, _ = jax.jit(learner.act)(jax.random.key(1), policy, memory, obs)
        best = float(learner.act_greedy(policy, memory, obs)[0][0, 0])
        assert (np.abs(action) <= 2).all()
        if uniform:
            assert float(action.std()) == pytest.approx(2 / 3**0.5, rel=0.05)
        elif name == "td3":
            assert float(action.mean()) == pytest.approx(best, abs=0.02)
            assert float(action.std()) == pytest.approx(0.2, rel=0.1)  # 0.1 of half the width
        else:  # normal around the greedy action before tanh
            before = np.arctanh(np.asarray(action, np.float64) / 2)
            assert 0.1 < before.std() < 3
            assert before.mean() == pytest.approx(np.arctanh(best / 2), abs=4 * before.std() / 5_000**0.5)
            assert ((before - before.mean()) ** 4).mean() / before.var() ** 2 == pytest.approx(3, abs=0.3)


@nightly
def test_all_networks_stay_sparse():
    """Actor, critics and all targets are sparse; both critics together have one density."""
    learner = make_learner(
        "td3(hidden=[8, 8], batch_size=16, learning_starts=8, buffer_size=64, policy_delay=1, "
        "sparsity='rigl(density=0.3, every=5, until=30)', critic_sparsity='set(density=0.5, every=4, until=30)')",
        PENDULUM,
    )
    run = jax.jit(lambda key: learn(key, PENDULUM, [learner], num_updates=6, steps_per_update=8, num_envs=1))
    after = run(jax.random.key(0)).states[0].networks
    for i, names, total in ((0, ("actor", "target"), 0.3 * 96), (1, ("critics", "target_critics"), 0.5 * 2 * 104)):
        masks = after.optimizer[i].masks
        assert sum(int(mask.sum()) for mask in masks) == round(total)
        for name in names:
            for kernel, mask in zip(kernels(getattr(after, name)), masks, strict=True):
                np.testing.assert_array_equal(kernel[~mask], 0)
    assert len(kernels(after.critics)) == 6


@pytest.mark.slow
def test_sac_learns_to_swing_a_pendulum_up():
    """Random play gets -1,200, the best policy about -150; after 6,000 steps the return is above -250."""
    learner = make_learner("sac(hidden=[32, 32], learning_rate=2e-3, buffer_size=8192, batch_size=128)", PENDULUM)

    @jax.jit
    def run(key):
        history = learn(key, PENDULUM, [learner], num_updates=750, steps_per_update=8, num_envs=1)
        return evaluate(key, PENDULUM, learner, history.states[0], num_episodes=32, num_steps=200).mean()

    assert float(run(jax.random.key(0))) > -250


def test_actions_without_bounds_and_integers_are_refused():
    with pytest.raises(ValueError, match=re.escape("action space: got Discrete(n=2); a Box with bounds is needed")):
        td3(make("CartPole-v1"))
    with pytest.raises(ValueError, match="buffer_relative: got True; a buffer_drift is needed"):
        td3(PENDULUM, dynamic_buffer={"buffer_relative": True})

    class Free(type(PENDULUM)):
        def action_space(self, agent):
            return Box(-jnp.inf, jnp.inf, (1,))

    with pytest.raises(ValueError, match="a Box with bounds is needed"):
        sac(Free(PENDULUM.environment, PENDULUM.params))

    class Whole(type(PENDULUM)):
        def action_space(self, agent):
            return Box(0, 10, (2,), jnp.int32)

    with pytest.raises(ValueError, match="a Box of floats is needed"):
        td3(Whole(PENDULUM.environment, PENDULUM.params))
    with pytest.raises(ValueError, match="buffer_size: got 7; a multiple of the 4 steps"):
        jax.eval_shape(
            lambda key: learn(key, PENDULUM, [td3(PENDULUM, replay={"buffer_size": 7})], num_updates=1, num_envs=4),
            jax.random.key(0),
        )


@pytest.mark.slow
def test_sac_finds_the_best_response_to_a_player_that_does_not_learn():
    """In Cournot's market with the price 4 less the total, it is (4 - 1) / 2 to a quantity of 1, and 1/2 to 3."""
    game = make("cournot", intercept=4.0, marginal_cost=0.0, capacity=4.0, episode_length=4)
    settings = "hidden=[16], learning_rate=1e-2, buffer_size=2048, batch_size=64, discount=0, learning_starts=64"
    learner = make_learner(f"sac({settings})", game, seat=1)

    def sells(quantity):
        return Learner(
            init=lambda key: (),
            act=lambda key, _, memory, obs: (jnp.full((len(obs), 1), quantity), memory, ()),
            update=lambda key, state, trajectory: (state, {}),
        )

    @jax.jit
    @jax.vmap
    def best(quantity):
        players = [sells(quantity), learner]
        history = learn(jax.random.key(0), game, players, num_updates=150, steps_per_update=4, num_envs=2)
        policy = learner.policy(history.states[1])
        answer = (4 - quantity) / 2
        obs = jnp.array([[4 - quantity - answer, answer, quantity]]) / 4
        return learner.act_greedy(policy, learner.init_memory(policy, 1), obs)[0][0, 0]

    np.testing.assert_allclose(best(jnp.array([1.0, 3.0])), [1.5, 0.5], atol=0.2)
