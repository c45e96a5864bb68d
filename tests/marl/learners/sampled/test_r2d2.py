"""R2D2: its targets against float64, its burn-in, its priorities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl import Network, Trajectory, make_learner, r2d2
from marl.learners.sampled.r2d2 import R2D2Memory
from tests.marl.sampled_steps import CART_POLE, DISCOUNT, gradient, single

LENGTH, BURN_IN, ENVS = 6, 2, 2


def leaky():
    """Outputs and value linear in a leaky sum of an episode's observations; the last parameter is the leak."""

    def apply(params, obs, carry):
        carry = jax.nn.sigmoid(params[-1, 0]) * carry + obs
        found = carry @ params[:-1]
        return found[..., :-1], found[..., -1], carry

    return Network(lambda key: jax.random.normal(key, (5, 3)), apply, lambda envs: jnp.zeros((envs, 4)))


def sequence(seed=0):
    rng = np.random.default_rng(seed)
    done = rng.random((LENGTH, ENVS)) < 0.3
    truncated = done & (rng.random((LENGTH, ENVS)) < 0.5)
    obs = rng.normal(size=(LENGTH, ENVS, 4))
    next_obs = rng.normal(size=(LENGTH, ENVS, 4))
    next_obs[:-1] = np.where(done[:-1, :, None], next_obs[:-1], obs[1:])
    action, reward = rng.integers(2, size=(LENGTH, ENVS)), rng.normal(size=(LENGTH, ENVS))
    memory = R2D2Memory(rng.normal(size=(ENVS, 4)), np.zeros(ENVS))
    return Trajectory(obs, action, reward, done, (), (), truncated, next_obs, memory, memory)


def errors(params, target, t, n, learned=None):
    """Temporal-difference errors after the burn-in, `[LENGTH - BURN_IN, ENVS]`, in float64.

    The parameters `learned` act after the burn-in, but not in the targets.
    """

    def values(params, env, learned=None):
        first, learned = params, params if learned is None else learned
        carry, before, after = t.first_memory.carry[env], [], []
        for s in range(LENGTH):
            params = first if s < BURN_IN else learned
            keep = 1 / (1 + np.exp(-params[-1, 0]))
            carry = keep * carry + t.obs[s, env]
            before.append(carry @ params[:-1])
            after.append((keep * carry + t.next_obs[s, env]) @ params[:-1])
            carry = np.zeros(4) if t.done[s, env] else carry
        return [np.array([x[-1] + x[:-1] - x[:-1].mean() for x in found]) for found in (before, after)]

    def h(x):
        return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x

    def h_inverse(x):
        return np.sign(x) * (((np.sqrt(1 + 4e-3 * (abs(x) + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1)

    found = np.zeros((LENGTH - BURN_IN, ENVS))
    for env in range(ENVS):
        before, after = values(params, env, learned)[0], values(params, env)[1]
        best = values(target, env)[1][np.arange(LENGTH), after.argmax(-1)]
        for s in range(BURN_IN, LENGTH):
            total, factor, k = 0.0, 1.0, s
            while True:
                total += factor * t.reward[k, env]
                factor *= 0.0 if t.done[k, env] and not t.truncated[k, env] else DISCOUNT
                if t.done[k, env] or k + 1 in (LENGTH, s + n):
                    break
                k += 1
            goal = h(total + factor * h_inverse(best[k]))
            found[s - BURN_IN, env] = before[s, t.action[s, env]] - goal
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_errors_and_priorities_are_those_of_the_paper(n):
    learner = r2d2(
        CART_POLE, network=leaky(), discount=DISCOUNT, sequence_length=LENGTH, burn_in=BURN_IN, multi_step=n,
        replay={"buffer_size": ENVS, "batch_size": 64, "gradient_steps": 1, "learning_starts": ENVS},
        learning_rate=0.0, priorities={"priority_exponent": 1.0, "importance_exponent": 0.0},
    )  # fmt: skip
    for seed in range(4):
        t = sequence(seed)
        state = learner.init(jax.random.key(seed))._replace(target=leaky().init(jax.random.key(seed + 9)))
        after, _ = jax.jit(learner.update)(jax.random.key(1), state, single(t))
        off = np.abs(errors(*(np.asarray(x, np.float64) for x in (state.params, state.target)), t, n))
        # Both sequences are drawn among 64 draws; the priority contains the error.
        np.testing.assert_allclose(after.priority, 0.9 * off.max(0) + 0.1 * off.mean(0), rtol=2e-3, atol=1e-4)


def test_a_gradient_step_goes_down_the_square_of_the_errors():
    learner = r2d2(
        CART_POLE, network=leaky(), discount=DISCOUNT, sequence_length=LENGTH, burn_in=BURN_IN, multi_step=2,
        replay={"buffer_size": ENVS, "batch_size": 64, "gradient_steps": 1, "learning_starts": ENVS},
        max_gradient_norm=1e9,
    )  # fmt: skip
    t = sequence()
    state = learner.init(jax.random.key(3))._replace(target=leaky().init(jax.random.key(9)))
    after, metrics = jax.jit(learner.update)(jax.random.key(1), state, single(t))
    params, target = (np.asarray(x, np.float64) for x in (state.params, state.target))

    def losses(learned):
        return 0.5 * (errors(params, target, t, 2, learned) ** 2).mean(0)

    # The loss shows how many of 64 draws are of the first sequence, because all weights are 1 at first.
    first, second = losses(params)
    share = 64 * (float(metrics["value_loss"]) - second) / (first - second)
    assert share == pytest.approx(round(share), abs=0.02)
    assert 0 < round(share) < 64
    shares = np.array([round(share), 64 - round(share)]) / 64
    expected = gradient(lambda x: losses(x) @ shares, params)
    moment = next(x for x in jax.tree.leaves(after.optimizer) if x.ndim == 1)  # a tenth of the gradient by then
    np.testing.assert_allclose(10 * moment.reshape(params.shape), expected, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(after.target, target + 0.02 * (np.asarray(after.params) - target), rtol=1e-5, atol=1e-6)


def test_sequences_stored_before_learning_have_a_low_priority():
    learner = r2d2(
        CART_POLE, network=leaky(), sequence_length=LENGTH, burn_in=BURN_IN, multi_step=1,
        replay={"buffer_size": 4 * ENVS, "batch_size": 1, "gradient_steps": 1, "learning_starts": 2 * ENVS},
        priorities={"priority_exponent": 0.0, "importance_exponent": 0.0},
    )  # fmt: skip
    state, update = learner.init(jax.random.key(0)), jax.jit(learner.update)
    for seed in range(4):
        state, _ = update(jax.random.key(seed), state, single(sequence(seed)))
    np.testing.assert_allclose(state.priority[3 * ENVS :], 1.0)  # 1 is the highest by then
    assert np.isclose(state.priority[: 2 * ENVS], 1e-3).sum() == 2 * ENVS - 1  # one was drawn in the first step


@pytest.mark.system
def test_the_burn_in_sets_the_memory_but_has_no_gradient():
    learner = r2d2(
        CART_POLE, network=leaky(), sequence_length=LENGTH, burn_in=BURN_IN, multi_step=1,
        replay={"buffer_size": ENVS, "batch_size": 8, "gradient_steps": 1, "learning_starts": ENVS},
    )  # fmt: skip
    state = learner.init(jax.random.key(0))
    t = sequence()
    t.done[:BURN_IN] = False  # the memory is reset at ends
    t.next_obs[: BURN_IN - 1] = t.obs[1:BURN_IN]
    found = []
    for reward in (0.0, 1e3):  # in the burn-in
        changed = t.reward.copy()
        changed[:BURN_IN] = reward
        found.append(learner.update(jax.random.key(1), state, single(t._replace(reward=changed)))[0].params)
    np.testing.assert_array_equal(*found)
    changed = t.first_memory._replace(carry=t.first_memory.carry + 5)  # the burn-in sets the memory
    other = learner.update(jax.random.key(1), state, single(t._replace(first_memory=changed)))[0].params
    assert not np.array_equal(other, found[0])


def test_unsuitable_settings_are_refused():
    for spec, words in {
        "r2d2(burn_in=20)": "burn_in: got 20; a whole number from 0 to 19",
        "r2d2(network='feed_forward')": "recurrent, or dqn, is needed",
    }.items():
        with pytest.raises(ValueError, match=words):
            make_learner(spec, CART_POLE)
    learner = r2d2(CART_POLE, sequence_length=LENGTH + 1)
    with pytest.raises(ValueError, match=f"the {LENGTH} steps of an update"):
        jax.eval_shape(learner.update, jax.random.key(0), jax.eval_shape(learner.init, jax.random.key(0)), sequence())
