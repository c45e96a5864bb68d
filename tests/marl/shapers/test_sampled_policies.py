"""Shapers that act in every step, against float64 NumPy, and their meta-game."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl.core.learn import learn
from marl.learners.registry import make_learner
from marl.shapers.sampled_policies import FEW, counts, good_shepherd, mfos, shaper
from marl.shapers.trial import play_sampled, shaping_trial
from tests.marl.shapers.sampled_in_numpy import AVERAGED, UNITS, InNumPy, parameters_of, sigmoid
from tests.nightly import nightly

ENVS, EPISODES, STEPS = 2, 3, 4
LENGTHS = {"meta_steps": EPISODES, "episode_length": STEPS, "num_envs": ENVS}
GAME = make("ipd", discount=0.7)  # episodes end at random, in each environment for itself
POLICIES = {
    "shaper": shaper(GAME, hidden_units=UNITS),
    "shaper, not averaged": shaper(GAME, hidden_units=UNITS, averaging=False),
    "shaper, of the episode": shaper(GAME, hidden_units=UNITS, memory="episode"),
    "good_shepherd": good_shepherd(GAME, hidden_units=UNITS),
    "mfos": mfos(GAME, hidden_units=UNITS),
    "mfos, not averaged": mfos(GAME, hidden_units=UNITS, averaging=False),
    "mfos, of the episode": mfos(GAME, hidden_units=UNITS, memory="episode"),
}


def draw_steps(num_envs=ENVS, seed=0):
    """Observations `[EPISODES, STEPS, N, 5]` and ends of episodes `[EPISODES, STEPS, N]`."""
    generator = np.random.default_rng(seed)
    shape = EPISODES, STEPS, num_envs
    return generator.normal(size=(*shape, 5)).astype(np.float32), generator.random(shape) < 0.3


def replayer(policy):
    """(parameters, obs, done) -> outputs, values and memories after every step, the latter also after resets."""

    def step(parameters, memory, inputs):
        obs, done = inputs
        outputs, value, memory = policy.act(parameters, memory, obs)
        forgotten = policy.reset_memory(memory, done)
        return forgotten, (outputs, value, memory, forgotten)

    def episode(parameters, memory, inputs):
        memory, found = jax.lax.scan(partial(step, parameters), memory, inputs)
        return policy.turn(memory), found

    @jax.jit
    def replay(parameters, obs, done):
        return jax.lax.scan(partial(episode, parameters), policy.init_memory(obs.shape[2]), (obs, done))[1]

    return replay


@pytest.fixture(scope="module")
def replays():
    return {name: replayer(policy) for name, policy in POLICIES.items()}


@pytest.mark.parametrize("num_envs", [ENVS, 32])  # few rows are multiplied one by one, many in a matrix product
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_agrees_with_its_equations(name, num_envs, replays):
    parameters, (obs, done) = parameters_of(POLICIES[name]), draw_steps(num_envs)
    assert (obs[0, 0].size > FEW) == (num_envs > ENVS)
    assert done.any(2).any()
    outputs, value, memory, _ = replays[name](parameters, obs, done)
    reference = InNumPy(name, parameters)
    logits, hidden, conditions = reference.logits(obs, done)
    np.testing.assert_allclose(memory["h"], hidden, atol=1e-6)
    np.testing.assert_allclose(outputs, logits, atol=1e-5)
    gated = hidden * conditions[:, None]
    np.testing.assert_allclose(value, reference.layer("value", gated)[..., 0], atol=1e-5)


def test_counts_sees_the_mean_of_all_observations_of_the_trial_before():
    policy = counts(GAME, hidden_units=UNITS)
    parameters, (obs, done) = parameters_of(policy), draw_steps()
    outputs, value, _, _ = replayer(policy)(parameters, obs, done)
    p = {name: np.asarray(x, np.float64) for name, x in parameters.items()}
    seen = obs.reshape(-1, *obs.shape[2:])
    for step, (out, worth) in enumerate(
        zip(np.reshape(outputs, (*seen.shape[:2], 2)), np.reshape(value, seen.shape[:2]), strict=True)
    ):
        history = seen[:step].mean((0, 1)) if step else np.zeros(5)
        inputs = np.concatenate([seen[step], np.tile(history, (ENVS, 1))], 1)
        x = np.maximum(inputs @ p["see_w"] + p["see_b"], 0)
        np.testing.assert_allclose(out, x @ p["policy_w"] + p["policy_b"], atol=1e-5)
        np.testing.assert_allclose(worth, (x @ p["value_w"] + p["value_b"])[:, 0], atol=1e-5)


@pytest.mark.parametrize("name", POLICIES)
def test_memory_is_reset_as_in_the_paper(name, replays):
    obs, done = draw_steps()
    _, _, memory, forgotten = replays[name](parameters_of(POLICIES[name]), obs, done)
    survives = {"shaper": ["h"], "shaper, not averaged": ["h"], "mfos": ["m"], "mfos, not averaged": ["m"]}
    for part in ("h", "m") if name.startswith("mfos") else ("h",):
        before, after = np.asarray(memory[part]), np.asarray(forgotten[part])
        assert (before != 0).all(-1).any()
        np.testing.assert_array_equal(after[~done], before[~done])
        kept = part in survives.get(name, [])
        np.testing.assert_array_equal(after[done], before[done] if kept else 0)


@pytest.mark.parametrize("name", [name for name in POLICIES if name.startswith("mfos")])
def test_the_condition_is_of_the_last_step_before_the_episode(name, replays):
    parameters, (obs, done) = parameters_of(POLICIES[name]), draw_steps()
    done[0, -1] = [True, False]  # the meta-memory is read before its reset
    _, _, memory, _ = replays[name](parameters, obs, done)
    p = {key: np.asarray(x, np.float64) for key, x in parameters.items()}
    condition, m = np.asarray(memory["condition"]), np.asarray(memory["m"], np.float64)
    np.testing.assert_array_equal(condition[0], 1)
    np.testing.assert_array_equal(condition, np.broadcast_to(condition[:, :1], condition.shape))
    for episode in range(1, EPISODES):
        expected = sigmoid(2 + m[episode - 1, -1] @ p["condition_w"] + p["condition_b"])
        np.testing.assert_allclose(condition[episode, 0], expected, atol=1e-6)


@pytest.mark.parametrize("name", POLICIES)
def test_environments_depend_on_each_other_only_by_averaged_memory(name, replays):
    parameters, (obs, _) = parameters_of(POLICIES[name]), draw_steps()
    other = obs.copy()
    other[0, :, 1] += 1.0
    never = np.zeros(obs.shape[:3], bool)
    first, second = (np.asarray(replays[name](parameters, x, never)[0]) for x in (obs, other))
    np.testing.assert_array_equal(first[0, 0, 0], second[0, 0, 0])  # the current observation is each environment's own
    assert np.abs(first[-1, :, 1] - second[-1, :, 1]).max() > 1e-4
    if name in AVERAGED:
        assert np.abs(first[-1, :, 0] - second[-1, :, 0]).max() > 1e-4
    else:
        np.testing.assert_array_equal(first[:, :, 0], second[:, :, 0])


@pytest.mark.parametrize("name", ["shaper", "mfos"])
def test_averaging_is_symmetric_in_the_environments_and_keeps_equal_memories(name, replays):
    parameters, (obs, done) = parameters_of(POLICIES[name]), draw_steps()
    turned = replays[name](parameters, obs[:, :, ::-1], done[:, :, ::-1])[0]
    np.testing.assert_allclose(turned[:, :, ::-1], replays[name](parameters, obs, done)[0], atol=1e-6)
    alone = replays[name](parameters, obs[:, :, :1], done[:, :, :1])[0]
    same = replays[name](parameters, obs[:, :, [0, 0]], done[:, :, [0, 0]])[0]
    np.testing.assert_allclose(same, np.repeat(alone, 2, 2), atol=1e-6)


@pytest.mark.parametrize("name", ["coin_game", "ipd_in_the_matrix"])
def test_images_are_convolved(name):
    game = make(name)
    shape = game.observation_space("agent_0").shape
    policy = shaper(game, hidden_units=UNITS, channels=2)
    parameters = parameters_of(policy)
    obs = np.random.default_rng(1).normal(size=(2, *shape)).astype(np.float32)
    outputs, _, memory = policy.act(parameters, policy.init_memory(2), obs)
    images = obs
    _, height, width, depth = images.shape
    reference = InNumPy("shaper", parameters)
    kernel = reference.p["see_convolution_w"].reshape(3, 3, depth, 2)
    convolved = np.zeros((2, height, width, 2))
    for row in range(height):
        for column in range(width):
            for i in (-1, 0, 1):
                for j in (-1, 0, 1):
                    if 0 <= row + i < height and 0 <= column + j < width:
                        convolved[:, row, column] += images[:, row + i, column + j] @ kernel[i + 1, j + 1]
    convolved = np.maximum(convolved + reference.p["see_convolution_b"], 0).reshape(2, -1)
    h = reference.gru("unit", np.maximum(reference.layer("see", convolved), 0), np.zeros((2, UNITS)))
    np.testing.assert_allclose(memory["h"], h, atol=1e-5)
    np.testing.assert_allclose(outputs, reference.layer("policy", h), atol=1e-5)


def test_the_axes_of_an_image_are_those_of_its_space():
    game = make("coin_game", grid_size=4)  # observations are [4, 4, 4]
    layers = shaper(game, hidden_units=UNITS, channels=1).init(jax.random.key(0))
    policy = shaper(game, hidden_units=UNITS, channels=1)
    corner = np.zeros((1, 4, 4, 4), np.float32)
    corner[0, 0, 0] = 1.0  # all four planes in one corner: four of the sixteen patches contain it
    ones = {name: x * 0 + 1 if name.startswith("see") and name.endswith("w") else x * 0 for name, x in layers.items()}
    ones["unit_new_w"] = 0.01 * np.eye(UNITS, dtype=np.float32)
    h = policy.act(ones, policy.init_memory(1), corner)[2]["h"]
    np.testing.assert_allclose(h, 0.5 * np.tanh(0.01 * 4 * 4), rtol=1e-5)


@pytest.fixture(scope="module", params=["shaper", "good_shepherd", "mfos"])
def played(request):
    """A trial of each shaper against a learner with a table: (name, parameters, history)."""
    policy = POLICIES[request.param]
    parameters = parameters_of(policy)
    opponent = make_learner("tabular_ppo", GAME, 1, num_updates=EPISODES)
    play = partial(play_sampled, game=GAME, policy=policy, opponents=[opponent], keep_trajectories=True, **LENGTHS)
    return request.param, parameters, jax.jit(lambda key, p: play(key, parameters=p))(jax.random.key(5), parameters)


@pytest.mark.system
def test_the_shapers_parameters_are_the_same_in_every_step_of_a_trial(played, replays):
    name, parameters, history = played
    own = history.trajectories[0]
    assert own.obs.shape == (EPISODES, STEPS, ENVS, 5)
    assert np.asarray(own.done).any()
    outputs, value, _, forgotten = replays[name](parameters, own.obs, own.done)
    log_prob = POLICIES[name].actions.log_prob(outputs, own.action)
    np.testing.assert_allclose(own.extras.log_prob, log_prob, atol=1e-6)
    np.testing.assert_allclose(own.extras.value, value, atol=1e-6)
    np.testing.assert_allclose(history.trajectories[0].last_memory.own["h"][-1], forgotten["h"][-1, -1], atol=1e-6)
    logits, _, _ = InNumPy(name, parameters).logits(np.asarray(own.obs, np.float64), np.asarray(own.done))
    chosen = np.take_along_axis(logits, np.asarray(own.action)[..., None], -1)[..., 0]
    expected = chosen - np.log(np.exp(logits).sum(-1))
    np.testing.assert_allclose(own.extras.log_prob, expected, atol=1e-5)


def test_counts_are_means_over_steps_and_environments(played):
    _, _, history = played
    first, second = (np.asarray(trajectory.action) for trajectory in history.trajectories)
    assert set(history.infos) == {"cooperation", "CC", "CD", "DC", "DD"}
    for own in range(2):
        for other in range(2):
            name = "CD"[own] + "CD"[other]
            both = (first == own) & (second == other), (second == own) & (first == other)
            expected = np.stack([x.mean((1, 2)) for x in both], 1)
            np.testing.assert_allclose(history.infos[name], expected, rtol=1e-6)
    cooperation = np.stack([(x == 0).mean((1, 2)) for x in (first, second)], 1)
    np.testing.assert_allclose(history.infos["cooperation"], cooperation, rtol=1e-6)


def test_game_states_are_those_before_each_step(played):
    _, _, history = played
    first, second = (np.asarray(x.action).reshape(-1, ENVS) for x in history.trajectories)
    done = np.asarray(history.trajectories[0].done).reshape(-1, ENVS)
    joint, time = np.full((2, ENVS), -1), np.zeros((2, ENVS), int)
    joint, time = joint[0], time[0]
    found = np.asarray(history.game_states.history).reshape(-1, ENVS), np.asarray(history.game_states.time)
    for step in range(len(first)):
        np.testing.assert_array_equal(found[0][step], joint)
        np.testing.assert_array_equal(found[1].reshape(-1, ENVS)[step], time)
        joint = np.where(done[step], -1, 2 * first[step] + second[step])
        time = np.where(done[step], 0, time + 1)
    # A player's observation is its state: 0 at the start, then CC, CD, DC, DD.
    np.testing.assert_array_equal(np.argmax(history.trajectories[0].obs, -1).reshape(-1, ENVS), found[0] + 1)


def alone(key, learner, trajectory, *, seat, num_players):
    """Trains a learner alone on a trajectory with the keys of `learn`, checks its actions, and returns its state."""
    _, run_key, *init_keys = jax.random.split(key, 2 + num_players)
    act, update = jax.jit(learner.act), jax.jit(learner.update)
    state = learner.init(init_keys[seat])
    memory = learner.init_memory(learner.policy(state), trajectory.reward.shape[2])
    num_updates, num_steps = trajectory.reward.shape[:2]
    for number, update_key in enumerate(jax.random.split(run_key, num_updates)):
        seen = jax.tree.map(lambda x, number=number: x[number], trajectory)
        play_key, learn_key = jax.random.split(update_key)
        for step, step_key in enumerate(jax.random.split(play_key, num_steps)):
            act_key = jax.random.split(jax.random.split(step_key, 3)[0], num_players)[seat]
            action, memory, _ = act(act_key, learner.policy(state), memory, seen.obs[step])
            np.testing.assert_array_equal(action, seen.action[step])
            memory = learner.reset_memory(memory, seen.done[step]) if learner.reset_memory else memory
        state, _ = update(jax.random.split(learn_key, num_players)[seat], state, seen)
    return state


def close(found, expected, tolerance=1e-5):
    """Asserts that two learners' states are equal up to rounding."""

    def data(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(data(x), data(y), rtol=tolerance, atol=tolerance), found, expected
    )


def test_the_opponent_learns_as_the_learner_alone(played):
    _, _, history = played
    learner = make_learner("tabular_ppo", GAME, 1, num_updates=EPISODES)
    state = alone(jax.random.key(5), learner, history.trajectories[1], seat=1, num_players=2)
    close(history.states[1], state)
    first = learner.init(jax.random.split(jax.random.key(5), 4)[3]).params
    assert all(np.abs(x - y).max() > 1e-3 for x, y in zip(*map(jax.tree.leaves, (first, state.params)), strict=True))


@pytest.fixture(scope="module")
def coins():
    """A trial in the coin game against a learner with a memory, whose episodes end within a batch."""
    game = make("coin_game", num_coins=2, stay=True, episode_length=5)
    spec = "ppo(network='recurrent', hidden=[3], memory=2, epochs=2, minibatches=2, learning_rate=0.01)"
    opponent = make_learner(spec, game, 1, num_updates=EPISODES)
    policy = mfos(game, hidden_units=UNITS, channels=2)
    play = partial(play_sampled, game=game, policy=policy, opponents=[opponent], keep_trajectories=True, **LENGTHS)
    history = jax.jit(lambda key, p: play(key, parameters=p))(jax.random.key(6), policy.init(jax.random.key(0)))
    return opponent, history


@nightly
def test_an_opponent_with_a_memory_learns_as_the_learner_alone(coins):
    opponent, history = coins
    state = alone(jax.random.key(6), opponent, history.trajectories[1], seat=1, num_players=2)
    close(history.states[1], state)
    assert np.abs(np.asarray(history.trajectories[1].last_memory.carry)).max() > 0


def test_coins_are_counted_by_their_colour(coins):
    _, history = coins
    state, actions = history.game_states, [np.asarray(x.action) for x in history.trajectories]
    rows, columns = np.array([0, 0, 1, -1, 0]), np.array([1, -1, 0, 0, 0])  # right, left, down, up, stay
    cells = [
        (np.asarray(cell) // 3 + rows[action]) % 3 * 3 + (np.asarray(cell) % 3 + columns[action]) % 3
        for cell, action in zip(state.players, actions, strict=True)
    ]
    for seat in range(2):
        own, other = (cells[seat] == np.asarray(state.coins[coin]) for coin in (seat, 1 - seat))
        np.testing.assert_allclose(history.infos["own_coin"][:, seat], own.mean((1, 2)), rtol=1e-6)
        np.testing.assert_allclose(history.infos["other_coin"][:, seat], other.mean((1, 2)), rtol=1e-6)
    assert np.asarray(history.infos["own_coin"]).sum() > 0


@pytest.fixture(scope="module")
def three():
    """Two shapers and a learner in the dilemma of three: (outcomes by all and by late episodes, history)."""
    game = make("three_player_ipd", episode_length=STEPS)
    policy = mfos(game, hidden_units=UNITS)
    opponents = [make_learner("reinforce", game, 2, num_updates=EPISODES)]
    whole, late = (shaping_trial(game, policy, opponents, **LENGTHS, scored_from=first) for first in (0, 1))
    play = partial(play_sampled, game=game, policy=policy, opponents=opponents, keep_trajectories=True, **LENGTHS)
    run = jax.jit(lambda p, key: ((whole(p, key), late(p, key)), play(key, parameters=p)))
    return run(policy.init(jax.random.key(1)), jax.random.key(2))


@pytest.mark.system
def test_several_shapers_have_the_same_parameters_and_a_memory_each(three):
    _, history = three
    first, second = (x.last_memory.own for x in history.trajectories[:2])
    assert set(first) == {"h", "m", "next", "condition"}
    assert np.abs(np.asarray(first["m"]) - np.asarray(second["m"])).max() > 1e-4
    start = [np.asarray(x.extras.log_prob[0, 0]) for x in history.trajectories[:2]]
    actions = [np.asarray(x.action[0, 0]) for x in history.trajectories[:2]]
    both = {
        (int(a), float(x)) for action, x in zip(actions, start, strict=True) for a, x in zip(action, x, strict=True)
    }
    assert len(both) == len({a for a, _ in both})  # equal probabilities before any observation


def test_the_fitness_is_the_mean_of_the_shapers_from_the_episode_that_counts_first(three):
    (whole, late), history = three
    rewards = np.array([player.reward for player in history.trajectories], np.float64)  # [players, episodes, ...]
    assert float(late.fitness) == pytest.approx(rewards[:2, 1:].mean(), rel=1e-5)
    assert float(whole.fitness) == float(whole.metrics["shaper_return"])
    for outcome in (whole, late):
        assert float(outcome.metrics["shaper_return"]) == pytest.approx(rewards[:2].mean(), rel=1e-5)
        assert float(outcome.metrics["opponent_return"]) == pytest.approx(rewards[2].mean(), rel=1e-5)


@pytest.mark.system
def test_a_trial_without_a_shaper_is_learning():
    learners = [make_learner("reinforce", GAME, seat, num_updates=2) for seat in (0, 1)]

    @jax.jit
    def both(key):
        meta = play_sampled(key, GAME, POLICIES["mfos"], None, learners, meta_steps=2, episode_length=STEPS, num_envs=2)
        return meta, learn(key, GAME, learners, num_updates=2, steps_per_update=STEPS, num_envs=2)

    found, expected = both(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_random_opponent_draws_uniformly():
    game = make("coin_game", stay=True)
    player = make_learner("random", game, 1)
    actions, memory, _ = player.act(jax.random.key(0), (), (), jnp.zeros((20_000, 4, 3, 3)))
    assert memory == ()
    shares = np.bincount(np.asarray(actions), minlength=5) / 20_000
    np.testing.assert_allclose(shares, 0.2, atol=0.015)  # five standard errors
