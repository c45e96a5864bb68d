"""PPO against its definitions in float64 NumPy, and its invariants."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from games import make
from marl import learn
from marl.blocks.advantages import generalized_advantages
from marl.blocks.networks import convolutional, feed_forward, recurrent
from marl.core.evaluate import evaluate
from marl.core.learn import check_update, learning
from marl.learners.sampled.ppo import ppo
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

SHORT = make("CartPole-v1", max_steps_in_episode=5)  # no pole falls within five steps
GAE_LAMBDA = 0.8


def advantages(t, value, next_value, discount, gae_lambda):
    """A_t = sum_k (discount lambda)^k delta_{t+k}, over the rest of the episode."""
    found = np.zeros(t.reward.shape)
    for env in range(ENVS):
        for start in range(STEPS):
            for k in range(STEPS - start):
                now = start + k, env
                after = 0.0 if t.done[now] and not t.truncated[now] else next_value[now]
                delta = t.reward[now] + discount * after - value[now]
                found[start, env] += (discount * gae_lambda) ** k * delta
                if t.done[now]:
                    break
    return found


def test_advantages_are_the_sum_of_their_definition():
    t = some_steps()
    next_value = np.random.default_rng(1).normal(size=(STEPS, ENVS))
    found = generalized_advantages(
        *map(jnp.float32, (t.reward, t.extras.value, next_value)), t.done, t.truncated, DISCOUNT, GAE_LAMBDA
    )
    np.testing.assert_allclose(
        found, advantages(t, t.extras.value, next_value, DISCOUNT, GAE_LAMBDA), rtol=1e-5, atol=1e-6
    )


def loss(params, t, value, advantage, objective=None, clip=0.2, value_clip=0.2, entropy_coefficient=0.03):
    """PPO's loss from the paper, to be minimised."""
    logits, new_value = t.obs @ params[:, :-1], t.obs @ params[:, -1]
    log_p = log_softmax(logits)
    ratio = np.exp(np.take_along_axis(log_p, t.action[..., None], -1)[..., 0] - t.extras.log_prob)
    normal = (advantage - advantage.mean()) / advantage.std()
    gain = np.minimum(ratio * normal, np.clip(ratio, 1 - clip, 1 + clip) * normal).mean()
    target = value + advantage
    clipped = value + np.clip(new_value - value, -value_clip, value_clip)
    value_loss = 0.5 * np.maximum((new_value - target) ** 2, (clipped - target) ** 2).mean()
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()
    return 0.7 * value_loss - entropy_coefficient * entropy - gain


def test_a_step_follows_the_gradient_of_the_papers_loss():
    epsilon, rate, t = 100.0, 50.0, some_steps()

    @jax.jit
    def step(max_norm):
        learner = ppo(
            CART_POLE, network=linear(), learning_rate=rate, epochs=1, minibatches=1, discount=DISCOUNT,
            gae_lambda=GAE_LAMBDA, value_coefficient=0.7, entropy_coefficient=0.03, max_gradient_norm=max_norm,
            details={"adam_epsilon": epsilon},
        )  # fmt: skip
        state = learner.init(jax.random.key(0))
        return state.params, *learner.update(jax.random.key(1), state, single(t))

    before = np.asarray(step(1.0)[0], np.float64)
    next_value = following(t.done, t.extras.value, t.next_obs @ before[:, -1])
    advantage = advantages(t, t.extras.value, next_value, DISCOUNT, GAE_LAMBDA)
    whole = gradient(lambda params: loss(params, t, t.extras.value, advantage), before)
    norm = np.linalg.norm(whole)
    for max_norm in (2 * norm, 0.5 * norm):
        _, state, metrics = step(max_norm)
        g = whole * min(1, max_norm / norm)
        # Adam's first step; its large epsilon keeps the size of the gradient.
        np.testing.assert_allclose(state.params - before, -rate * g / (abs(g) + epsilon), rtol=2e-3, atol=2e-5)
    log_p = log_softmax(t.obs @ before[:, :-1])
    assert float(metrics["entropy"]) == pytest.approx(-(np.exp(log_p) * log_p).sum(-1).mean(), rel=1e-5)


def test_value_targets_do_not_depend_on_the_values_of_an_older_actor():
    """Undiscounted value targets are the rewards to come plus the value of the last state, for any actor."""
    t = some_steps()
    t = t._replace(done=np.zeros_like(t.done), truncated=np.zeros_like(t.done))
    learner = ppo(
        CART_POLE, network=linear(), epochs=1, minibatches=1, discount=1.0, gae_lambda=1.0,
        value_loss=lambda value, target, old: target,
    )  # fmt: skip
    state = learner.init(jax.random.key(0))
    worth = t.next_obs[-1] @ np.asarray(state.params, np.float64)[:, -1]
    targets = t.reward[::-1].cumsum(0)[::-1] + worth
    metrics = learner.update(jax.random.key(1), state, single(t))[1]
    assert float(metrics["value_loss"]) == pytest.approx(targets.mean(), rel=1e-4)


def test_a_minibatch_of_one_step_has_no_normalised_advantage():
    learner = ppo(CART_POLE, network=linear(), minibatches=21)
    state, steps = learner.init(jax.random.key(0)), single(some_steps())
    with pytest.raises(ValueError, match="minibatches: got 21; two steps at least in each"):
        learner.update(jax.random.key(1), state, steps)


def test_minibatches_use_every_step_once():
    t = some_steps()

    def metrics(minibatches):
        learner = ppo(CART_POLE, network=linear(), learning_rate=0.0, epochs=1, minibatches=minibatches)
        return learner.update(jax.random.key(1), learner.init(jax.random.key(0)), single(t))[1]

    one, seven = jax.jit(metrics, static_argnums=0)(1), jax.jit(metrics, static_argnums=0)(7)
    for name in one:
        assert float(one[name]) == pytest.approx(float(seven[name]), rel=1e-5)
    with pytest.raises(ValueError, match="minibatches: got 4; a divisor of the 21 steps times environments is needed"):
        metrics(4)


def test_leaving_the_last_step_out_needs_two_steps():
    learner = ppo(CART_POLE, network=linear(), minibatches=1, details={"learn_last_step": False})
    with pytest.raises(ValueError, match="learn_last_step: got False of one step in an update; at least 2 are needed"):
        check_update(CART_POLE, [learner], steps_per_update=1, num_envs=2)


def test_a_network_with_a_memory_that_it_ignores_learns_as_one_without():
    def ignoring(params, obs, carry):
        outputs, value, _ = linear().apply(params, obs, ())
        return outputs, value, carry

    memory = linear()._replace(apply=ignoring, initial=lambda num_envs: jnp.zeros((num_envs, 2)))

    def params(network):
        t = single(some_steps())
        learner = ppo(CART_POLE, network=network, epochs=3, minibatches=1)
        state = learner.init(jax.random.key(0))
        memory = learner.init_memory(learner.policy(state), ENVS)
        carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (STEPS, *x.shape)), memory.carry)
        t = t._replace(extras=t.extras._replace(carry=carry), first_memory=memory, last_memory=memory)
        return learner.update(jax.random.key(1), state, t)[0].params

    with_memory, without = (jax.jit(lambda network=network: params(network))() for network in (memory, linear()))
    np.testing.assert_allclose(with_memory, without, rtol=1e-4, atol=1e-6)


def test_the_objective_is_replaceable():
    @jax.jit
    def change(sign):
        learner = ppo(
            CART_POLE, network=linear(), value_coefficient=0.0, entropy_coefficient=0.0, epochs=1, minibatches=1,
            objective=lambda log_ratio, advantage: sign * log_ratio,
        )  # fmt: skip
        state, t = learner.init(jax.random.key(0)), single(some_steps())
        after = learner.update(jax.random.key(1), state, t)[0].params
        return after - state.params, (log_prob(after, t) - log_prob(state.params, t)).mean()

    def log_prob(params, t):
        logits = t.obs @ params[:, :-1]
        return jnp.take_along_axis(jax.nn.log_softmax(logits), t.action[..., None], -1)

    # The objective alone decides whether actions become more likely; the value stays.
    (up, likelier), (down, unlikelier), (none, _) = (change(sign) for sign in (1.0, -1.0, 0.0))
    assert likelier > 0 > unlikelier
    np.testing.assert_allclose(up, -down, rtol=1e-4, atol=1e-8)
    np.testing.assert_array_equal(none, 0)
    np.testing.assert_array_equal(up[:, -1], 0)


@pytest.fixture(scope="module")
def resting():
    """A network with a memory, its first parameters, and its training with a learning rate of 0.

    Observations are normalised, and episodes are five steps long.
    """
    network = recurrent((4,), 2, hidden=(3,), memory=2)
    learner = ppo(SHORT, network=network, learning_rate=0.0, epochs=1, minibatches=2, normalize_observations=True)
    settings = {"steps_per_update": 4, "num_envs": 2, "keep_trajectories": True}

    def run(key):
        begin, _ = learning(SHORT, [learner], **settings)
        return begin(key)[0].states[0].params, learn(key, SHORT, [learner], num_updates=3, **settings)

    first, history = jax.jit(run)(jax.random.key(3))
    steps = history.trajectories[0]._replace(first_memory=(), last_memory=())
    steps = jax.tree.map(lambda x: np.asarray(x).reshape(12, *x.shape[2:]), steps)
    return network, first, history, steps


@pytest.mark.system
def test_statistics_move_with_every_observation_from_the_first_on(resting):
    _, _, history, steps = resting
    statistics, seen = history.states[0].statistics, np.asarray(steps.obs, np.float64)
    assert float(statistics.number) == 24
    np.testing.assert_allclose(statistics.mean, seen.mean((0, 1)), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(statistics.variance, seen.var((0, 1)), rtol=1e-3)
    for step in range(12):
        so_far = seen[: step + 1]
        expected = (seen[step] - so_far.mean((0, 1))) / np.sqrt(so_far.var((0, 1)) + 1e-8)
        np.testing.assert_allclose(steps.extras.obs[step], expected, rtol=1e-3, atol=1e-3)


def test_a_learning_rate_of_0_changes_no_parameter(resting):
    _, first, history, _ = resting
    jax.tree.map(np.testing.assert_array_equal, history.states[0].params, first)


def test_memory_is_reset_with_every_episode(resting):
    network, params, history, steps = resting
    np.testing.assert_array_equal(steps.done[:, 0], [step % 5 == 4 for step in range(12)])
    carry = np.zeros((2, 2))
    for step in range(12):
        outputs, value, carry = network.apply(params, jnp.asarray(steps.extras.obs[step]), jnp.asarray(carry))
        log_p = log_softmax(np.asarray(outputs, np.float64))[np.arange(2), steps.action[step]]
        np.testing.assert_allclose(steps.extras.log_prob[step], log_p, rtol=1e-4)
        np.testing.assert_allclose(steps.extras.value[step], value, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(steps.extras.carry[step], carry, rtol=1e-4, atol=1e-6)
        carry = np.where(steps.done[step][:, None], 0, carry)
    np.testing.assert_allclose(history.trajectories[0].last_memory.carry[-1], carry, rtol=1e-4, atol=1e-6)
    assert (carry != 0).all()


def test_an_update_replays_the_rollout(resting):
    # The estimate of the divergence is 0 only where every log-probability is the old one, in all three updates: one
    # begins with an episode, the others in the middle of it.
    np.testing.assert_allclose(resting[2].metrics[0]["kl"], 0, atol=1e-10)


def test_the_value_of_a_next_observation_is_that_of_the_next_step(resting):
    """The running statistics do not matter. With a learning rate of 0, V is V_old and its loss half the mean of A^2."""
    network, params, history, steps = resting
    last = history.trajectories[0].last_memory
    next_value = np.zeros((12, 2))
    next_value[:-1] = steps.extras.value[1:]  # except at the end of an episode
    seen = np.concatenate([steps.obs, steps.next_obs[-1:]]).astype(np.float64)
    for step in (4, 9, 11):  # after a time limit, which no step observed, and after the end
        of_then = seen[: step + 2]
        normal = (steps.next_obs[step] - of_then.mean((0, 1))) / np.sqrt(of_then.var((0, 1)) + 1e-8)
        next_value[step] = network.apply(params, jnp.float32(normal), jnp.asarray(steps.extras.carry[step]))[1]
    assert steps.truncated[[4, 9]].all()
    assert not steps.done[[0, 1, 2, 3, 5, 6, 7, 8, 10, 11]].any()
    assert last.statistics.number.tolist() == [8, 16, 24]
    delta = steps.reward + 0.99 * next_value - steps.extras.value
    for update, metrics in enumerate(np.asarray(history.metrics[0]["value_loss"])):
        advantage = np.zeros((5, 2))
        for now in reversed(range(4)):
            goes_on = ~steps.done[4 * update + now]
            advantage[now] = delta[4 * update + now] + 0.99 * 0.95 * goes_on * advantage[now + 1]
        assert metrics == pytest.approx(0.5 * (advantage[:4] ** 2).mean(), rel=1e-5)


@pytest.mark.system
def test_an_old_policy_acts_as_it_did(resting):
    """Its old parameters and memory suffice; the current policy acts differently."""
    learner = ppo(SHORT, network=resting[0], learning_rate=0.1, minibatches=1, normalize_observations=True)
    begin, update = learning(SHORT, [learner], steps_per_update=3, num_envs=2, keep_trajectories=True)

    @jax.jit
    def again(policy, steps, keys):
        memory, found = steps.first_memory, []
        for step in range(3):
            key = jax.random.split(jax.random.split(keys[step], 3)[0], 1)[0]
            action, memory, extras = learner.act(key, policy, memory, steps.obs[step])
            found.append((action, extras.log_prob))
            memory = learner.reset_memory(memory, steps.done[step])
        return found

    carry, key = jax.jit(begin)(jax.random.key(4))
    update, policies, played, replayed = jax.jit(update), [], [], []
    for update_key in jax.random.split(key, 3):
        policies.append(learner.policy(carry.states[0]))
        carry, found = update(carry, update_key)
        played.append(found.trajectories[0])
    for steps, update_key in zip(played, jax.random.split(key, 3), strict=True):
        keys = jax.random.split(jax.random.split(update_key)[0], 3)
        replayed.append([again(policy, steps, keys) for policy in policies])
    for then, steps in enumerate(played):
        for lag, found in enumerate(replayed[then]):
            actions, log_probs = (np.stack(x) for x in zip(*found, strict=True))
            same = np.allclose(log_probs, steps.extras.log_prob, rtol=1e-5)
            assert same == (lag == then)
            if same:
                np.testing.assert_array_equal(actions, steps.action)


@pytest.mark.system
def test_it_learns_from_images_by_a_convolution():
    game = make("Breakout-MinAtar")
    network = convolutional(game.observation_space("agent_0").shape, 3, channels=2, hidden=(4,))
    learner = ppo(game, network=network, epochs=1, minibatches=1)

    def run(key):
        history = learn(key, game, [learner], num_updates=1, steps_per_update=2, num_envs=2, keep_trajectories=True)
        return network.apply(history.states[0].params, history.trajectories[0].obs, ()), history

    (outputs, value, _), history = jax.jit(run)(jax.random.key(0))
    params = jax.tree.map(np.asarray, history.states[0].params)
    images = np.asarray(history.trajectories[0].obs, np.float64).reshape(4, 10, 10, 4)
    kernel = params["Conv_0"]["kernel"]
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (1, 2))  # [4, 8, 8, channels, 3, 3]
    seen = np.maximum(np.einsum("nhwcij,ijco->nhwo", windows, kernel) + params["Conv_0"]["bias"], 0).reshape(4, -1)
    x = np.maximum(seen @ params["Dense_0"]["kernel"] + params["Dense_0"]["bias"], 0)
    policy, of_value = params["_Heads_0"]["Dense_0"], params["_Heads_0"]["Dense_1"]
    np.testing.assert_allclose(outputs.reshape(4, 3), x @ policy["kernel"] + policy["bias"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(value.reshape(4, 1), x @ of_value["kernel"] + of_value["bias"], rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"network: got observations \(4,\); images"):
        convolutional((4,), 2)


@pytest.mark.system
def test_continuous_actions_are_normal_with_a_scale_of_their_own():
    game = make("Pendulum-v1")
    learner = ppo(game, epochs=2, minibatches=1, learning_rate=0.1)

    def run(key):
        history = learn(key, game, [learner], num_updates=2, steps_per_update=8, num_envs=4, keep_trajectories=True)
        network = feed_forward((3,), 1, num_scales=1)
        first = jax.tree.map(lambda x: x[0], history.trajectories[0])
        begin, _ = learning(game, [learner], steps_per_update=8, num_envs=4)
        return history, first, network.apply(begin(key)[0].states[0].params, first.obs, ())[0]

    history, first, outputs = jax.jit(run)(jax.random.key(0))
    assert first.action.shape == (8, 4, 1)
    np.testing.assert_array_equal(outputs[..., 1], 0)  # the deviation is 1 at first
    density = -0.5 * (first.action - outputs[..., :1])[..., 0] ** 2 - 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(first.extras.log_prob, density, rtol=1e-4)
    assert float(history.states[0].params["_Heads_0"]["scales"][0]) != 0


def test_a_memory_needs_the_number_of_environments():
    learner = ppo(CART_POLE, network=recurrent((4,), 2))
    with pytest.raises(ValueError, match="num_envs: got None; a recurrent network needs the number of environments"):
        jax.eval_shape(lambda key: learner.init_memory(learner.policy(learner.init(key)), None), jax.random.key(0))


@pytest.mark.slow
def test_it_solves_cart_pole_within_500_000_steps():
    # PureJaxRL's setting; there 13 of 16 seeds end at 500.
    updates = 500_000 // (4 * 128)
    schedule = optax.linear_schedule(2.5e-4, 0.0, updates * 4 * 4)
    learner = ppo(CART_POLE, learning_rate=schedule)

    def run(key):
        history = learn(key, CART_POLE, [learner], num_updates=updates, steps_per_update=128, num_envs=4)
        return evaluate(key, CART_POLE, learner, history.states[0], num_episodes=32, num_steps=500).mean()

    returns = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 16))
    assert (returns >= 475).sum() >= 15, sorted(returns.tolist())
