"""PPI: values of rollouts against all paths in float64, the improved policy and the losses by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from marl import Trajectory, learn, make_learner, ppi, recurrent
from marl.experiments.reproduce.coin_pool import CoinPool
from marl.experiments.reproduce.in_context_games import DILEMMAS
from marl.learners.sampled.ppi import in_columns, rollout_values
from tests.nightly import nightly

ACTIONS, STATES, HORIZON, DISCOUNT = 2, 3, 3, 0.9
GAME = games.make("ipd", episode_length=4)
SMALL = "memory=4, sequence_length=4, buffer_size=8, batch_size=8, gradient_steps=1"


def softmax(x):
    weights = np.exp(x - x.max())
    return weights / weights.sum()


def test_values_are_the_means_over_all_paths_of_the_model():
    rng = np.random.default_rng(0)
    size = ACTIONS * (1 + 2 * STATES)
    keep, read, out = rng.normal(size=(4, 4)), rng.normal(size=(STATES + 1, 4)), rng.normal(size=(4, size))
    begun = rng.normal(size=4)
    fixed = np.array([0.7])

    def model(obs, carry):
        carry = jnp.tanh(keep.T @ carry + read.T @ obs)
        return out.T @ carry, carry

    def value(carry, action, left):
        """The expected return after an action, over every next state and action."""
        outputs = carry @ out
        states = outputs[ACTIONS : ACTIONS * (1 + STATES)].reshape(ACTIONS, STATES)[action]
        rewards = outputs[ACTIONS * (1 + STATES) :].reshape(ACTIONS, STATES)[action]
        total = 0.0
        for state, chance in enumerate(softmax(states)):
            coming = np.tanh(carry @ keep + np.append(np.eye(STATES)[state], fixed) @ read)
            chances = softmax((coming @ out)[:ACTIONS])
            later = [value(coming, a, left - 1) for a in range(ACTIONS)] if left > 1 else [0.0, 0.0]
            total += chance * (rewards[state] + DISCOUNT * chances @ later)
        return total

    envs = 256
    outputs, carry, beside = (jnp.tile(x, (envs, 1)) for x in (begun @ out, begun, fixed))
    settings = {"horizon": HORIZON, "rollouts": 16, "discount": DISCOUNT}
    found = rollout_values(jax.random.key(1), model, outputs, carry, beside, ACTIONS, (STATES,), **settings)
    exact = np.array([value(begun, action, HORIZON) for action in range(ACTIONS)])
    error = np.std(found, 0) / envs**0.5
    assert (np.abs(found.mean(0) - exact) < 4 * error).all()
    assert abs(exact[0] - exact[1]) > 10 * error.max()


def test_parts_of_a_state_are_drawn_apart_and_their_rewards_are_added():
    parts, actions = (2, 3), 2
    rng = np.random.default_rng(1)
    chances, rewards = rng.normal(size=(actions, 5)), rng.normal(size=(actions, 5))
    outputs = np.concatenate([[0.0, 0.0], chances.ravel(), rewards.ravel()])  # whatever is seen
    expected = np.zeros(actions)
    for begin, end in ((0, 2), (2, 5)):
        for action in range(actions):
            expected[action] += softmax(chances[action, begin:end]) @ rewards[action, begin:end]
    exact = expected + DISCOUNT * expected.mean()  # and then both actions alike
    envs = 512

    def model(obs, carry):
        assert obs.shape[0] == 5
        return jnp.tile(jnp.asarray(outputs)[:, None], obs.shape[1]), carry + obs[:2].sum(0) + obs[2:].sum(0)

    begun = jnp.tile(jnp.asarray(outputs), (envs, 1)), jnp.zeros((envs, 1)), jnp.zeros((envs, 0))
    settings = {"horizon": 2, "rollouts": 16, "discount": DISCOUNT}
    found = rollout_values(jax.random.key(1), model, *begun, actions, parts, **settings)
    error = np.std(found, 0) / envs**0.5
    assert (np.abs(found.mean(0) - exact) < 4 * error).all()


@pytest.mark.system
def test_losses_of_parts_are_those_of_each():
    game = CoinPool(episode_length=4)
    learner = ppi(game, memory=4, num_states=[9, 9, 18], sequence_length=4, buffer_size=8, gradient_steps=1)
    state = jax.tree.map(jnp.zeros_like, learner.init(jax.random.key(0)))
    played = DILEMMAS["coin_game"].drawn_play(jax.random.key(1), game, "mixed pool", 4, 8)
    after, metrics = jax.jit(learner.update)(jax.random.key(0), state, played)
    assert float(metrics["action_loss"]) == pytest.approx(np.log(4), rel=1e-5)
    assert float(metrics["state_loss"]) == pytest.approx(2 * np.log(9) + np.log(18), rel=1e-5)
    seen = np.asarray(after.buffer.state)  # `[8, 4, 3]`
    one_hot = np.concatenate([np.eye(size)[seen[..., i]] for i, size in enumerate((9, 9, 18))], -1)
    np.testing.assert_array_equal(one_hot, jnp.swapaxes(played.next_obs, 0, 1))


def test_the_network_in_columns_is_the_network():
    network = recurrent((7,), 6, hidden=(), memory=4)
    params = jax.tree.map(lambda x: x + 0.3, network.init(jax.random.key(0)))
    obs, carry = (jax.random.normal(jax.random.key(i), (3, size)) for i, size in ((1, 7), (2, 4)))
    outputs, _, after = network.apply(params, obs, carry)
    for ours, theirs in zip(in_columns(params)(obs.T, carry.T), (outputs.T, after.T), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def blank(learner, **biases):
    """A state whose outputs are biases alone: of actions, of states after each action, and of rewards."""
    state = jax.tree.map(jnp.zeros_like, learner.init(jax.random.key(0)))
    head = np.concatenate([np.ravel(biases[name]) for name in ("action", "state", "reward")])
    state.params["_Heads_0"]["Dense_0"]["bias"] = jnp.asarray(head, jnp.float32)
    return state


def test_actions_are_drawn_by_the_prediction_times_exp_of_the_values():
    learner = make_learner(f"ppi({SMALL}, inverse_temperature=0.5, horizon=2, rollouts=1)", GAME)
    action, reward = np.log([0.8, 0.2]), [[1.0] * 5, [3.0] * 5]
    state = blank(learner, action=action, state=np.zeros((2, 5)), reward=reward)
    envs = 20_000
    obs = jnp.tile(jnp.eye(5)[0], (envs, 1))
    played, *_ = learner.act(jax.random.key(0), state.params, learner.init_memory(state.params, envs), obs)
    # The second step is worth the same after both actions, up to its draws; these are the same for both.
    odds = 0.8 * np.exp(0.5 * 1.0) / (0.2 * np.exp(0.5 * 3.0))
    assert np.mean(np.asarray(played) == 0) == pytest.approx(odds / (1 + odds), abs=0.015)


def trajectory(envs=4, steps=4):
    rng = np.random.default_rng(0)
    state = rng.integers(1, 5, (steps + 1, envs))
    state[0] = 0
    seen = jnp.asarray(np.eye(5)[state], jnp.float32)
    done = jnp.zeros((steps, envs), bool).at[-1].set(True)
    action, reward = rng.integers(2, size=(steps, envs)), rng.normal(size=(steps, envs))
    return Trajectory(seen[:-1], jnp.asarray(action), jnp.asarray(reward), done, (), (), done, seen[1:])


def test_losses_of_a_model_that_knows_nothing_by_hand():
    learner = make_learner(f"ppi({SMALL}, learning_rate=0.1)", GAME)
    state = blank(learner, action=np.zeros(2), state=np.zeros(10), reward=np.zeros(10))
    played = trajectory()
    update = jax.jit(learner.update)
    after, metrics = update(jax.random.key(0), state, played)
    assert float(metrics["action_loss"]) == pytest.approx(np.log(2), abs=1e-6)
    assert float(metrics["state_loss"]) == pytest.approx(np.log(5), abs=1e-6)
    assert int(after.stored) == 4
    np.testing.assert_array_equal(after.buffer.obs[:4], jnp.swapaxes(played.obs, 0, 1))
    np.testing.assert_array_equal(after.buffer.state[:4], jnp.swapaxes(played.next_obs, 0, 1).argmax(-1)[..., None])
    after = learner.init(jax.random.key(0))
    for i in range(100):
        after, metrics = update(jax.random.key(i), after, played)
    assert float(metrics["state_loss"]) < np.log(5) / 2  # the same four episodes are learned by heart
    assert int(after.stored) == 400


@nightly
def test_numbers_behind_the_state_are_kept_and_are_no_state():
    told = games.RandomCoPlayers(GAME, identified=1.0)
    learners = [ppi(told, i, memory=4, num_states=5, sequence_length=4, buffer_size=8, rollouts=1) for i in range(2)]
    history = learn(jax.random.key(0), told, learners, num_updates=2, steps_per_update=4, num_envs=4)
    assert np.isfinite(history.metrics[1]["state_loss"]).all()
    assert learners[0].init(jax.random.key(0)).buffer.obs.shape == (8, 4, 11)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ppi(GAME, num_states=6), "num_states: got 6; a whole number from 1 to 5 is needed"),
        (lambda: ppi(GAME, num_states=[3, 3]), r"num_states: got \[3, 3\]; parts of the 5 entries are needed"),
        (lambda: ppi(GAME, num_states=[0, 3]), "num_states: got 0; a whole number from 1 to 5 is needed"),
        (lambda: ppi(GAME, rollouts=0), "rollouts: got 0; a whole number of at least 1"),
        (lambda: ppi(GAME, inverse_temperature=-1.0), "inverse_temperature: got -1.0"),
        (lambda: ppi(games.make("CartPole-v1")), "observations: got .*; a one-hot vector"),
        (lambda: ppi(games.make("Pendulum-v1")), "action space: got .*; Discrete is needed"),
        (lambda: ppi(GAME).init_memory({}, None), "num_envs: got None"),
        (lambda: _update(5, 4), "sequence_length: got 4; the 5 steps of an update are needed"),
        (lambda: _update(4, 3), "buffer_size: got 8; a multiple of the 3 environments is needed"),
    ],
)
def test_misfits_name_what_is_needed(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _update(steps, envs):
    learner = make_learner(f"ppi({SMALL})", GAME)
    return learner.update(jax.random.key(0), learner.init(jax.random.key(0)), trajectory(envs, steps))
