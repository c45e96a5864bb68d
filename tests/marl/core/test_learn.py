"""The inner loop against the same learning in float64 NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, chicken, make
from marl import Learner, learn, make_learner, memory_one, naive, play_memory_one, shaping_trial
from marl.core.learn import learning
from marl.core.learner import keep_state
from marl.learners.exact import model_free
from marl.learners.exact.best_response_shaping import best_response_shaping
from marl.learners.exact.cola import cola_opponent
from marl.learners.exact.meta_value import meva_opponent
from marl.learners.exact.mmaml import mmaml
from marl.shapers.exact_policies import mfos
from marl.shapers.trial import play
from tests.marl.exact_game import GAME, gradient, sigmoid, values

STEPS = 12


def test_two_naive_learners_follow_their_exact_gradients():
    learners = [naive(GAME, seat, learning_rate=0.7) for seat in (0, 1)]
    history = jax.jit(lambda key: learn(key, GAME, learners, num_updates=STEPS, keep_trajectories=True))(
        jax.random.key(3)
    )
    first, second = (np.asarray(t.action[0, 0], np.float64) for t in history.trajectories)
    for step in range(STEPS):
        for trajectory, expected in zip(history.trajectories, (first, second), strict=True):
            np.testing.assert_allclose(trajectory.action[step, 0], expected, rtol=2e-3, atol=2e-3)
        own, other = values(first, second)
        assert float(history.rewards[0][step]) == pytest.approx(0.04 * own, rel=1e-3)
        assert float(history.rewards[1][step]) == pytest.approx(0.04 * other, rel=1e-3)
        up = gradient(lambda x, second=second: values(x, second)[0], first)
        down = gradient(lambda x, first=first: values(first, x)[1], second)
        first, second = first + 0.7 * up, second + 0.7 * down


def test_a_learner_in_another_seat_than_it_was_made_for_is_refused():
    shaper, opponent, ipd = mfos(), make_learner("naive", GAME), make("ipd", episode_length=2)
    with pytest.raises(ValueError, match="opponents: got one for seat 0 in seat 1; one made for that seat is needed"):
        shaping_trial(GAME, shaper, opponent, meta_steps=3)(shaper.init(jax.random.key(0)), jax.random.key(1))
    for spec in ("ppo", "dqn", "reinforce", "ppo(network='recurrent')"):
        pair = [make_learner(spec, ipd, seat) for seat in (0, 1)]
        learning(ipd, pair)
        with pytest.raises(ValueError, match="learners: got one for seat 1 in seat 0"):
            learning(ipd, pair[::-1])
    for make_exact in (model_free.reinforce, model_free.tabular_ppo, model_free.q_learning, best_response_shaping):
        with pytest.raises(ValueError, match="learners: got one for seat 0 in seat 1"):
            learning(GAME, [make_exact(GAME)] * 2)
    for make_exact in (model_free.best_response, cola_opponent, meva_opponent, mmaml):
        assert [make_exact(GAME, seat).seat for seat in (0, 1)] == [0, 1]
    learning(GAME, [memory_one([0.5] * 5)] * 2)  # a learner made for no seat fits all


def test_two_naive_learners_defect_on_average_as_the_paper_measured():
    learners = [naive(GAME, seat) for seat in (0, 1)]
    batch = jax.vmap(lambda key: learn(key, GAME, learners, num_updates=100).rewards)
    means = [float(x.mean()) for x in jax.jit(batch)(jax.random.split(jax.random.key(0), 1024))]
    # The paper's public code, 4096 pairs: -1.983 for both, standard error about 0.005.
    assert means == pytest.approx([-1.983, -1.983], abs=0.03)


def test_a_trial_of_the_shaper_is_the_papers_meta_game():
    shaper = mfos()
    parameters = shaper.init(jax.random.key(1))
    w = {name: np.asarray(x, np.float64) for name, x in parameters.items()}
    opponent = make_learner("naive", GAME, 1)
    history = jax.jit(
        lambda key: play(key, GAME, shaper.learner(parameters), opponent, meta_steps=STEPS, keep_trajectories=True)
    )(jax.random.key(4))
    own, theta = (np.asarray(t.action[0, 0], np.float64) for t in history.trajectories)  # the random first step
    for step in range(STEPS + 1):
        np.testing.assert_allclose(history.trajectories[0].action[step, 0], own, rtol=2e-3, atol=2e-3)
        np.testing.assert_allclose(history.trajectories[1].action[step, 0], theta, rtol=2e-3, atol=2e-3)
        assert float(history.rewards[0][step]) == pytest.approx(0.04 * values(own, theta)[0], rel=2e-3)
        theta = theta + gradient(lambda x, own=own: values(own, x)[1], theta)
        seen = sigmoid(np.concatenate([own, theta]))  # both policies, after the opponent's learning step
        own = np.tanh(seen @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]


@pytest.mark.system
def test_a_scalarized_trial_has_the_results_of_playing():
    shaper, opponent = mfos(), make_learner("naive", GAME, 1)
    whole, late = (shaping_trial(GAME, shaper, opponent, meta_steps=STEPS, scored_from=first) for first in (0, 2))
    parameters, keys = shaper.init(jax.random.key(0)), jax.random.split(jax.random.key(2), 6)

    def played(key):
        return play(key, GAME, shaper.learner(parameters), opponent, meta_steps=STEPS).rewards

    own, other = (rewards[:, 1:] for rewards in jax.jit(jax.vmap(played))(keys))  # without the random first step
    for trial, first in ((whole, 0), (late, 2)):
        scalars = jax.jit(jax.vmap(trial, (None, 0)))(parameters, keys)
        np.testing.assert_allclose(own[:, first:].mean(1), scalars.fitness, rtol=1e-4)
        np.testing.assert_allclose(own.mean(1), scalars.metrics["shaper_return"], rtol=1e-4)
        np.testing.assert_allclose(other.mean(1), scalars.metrics["opponent_return"], rtol=1e-4)


def test_the_shapers_parameters_do_not_change_and_its_first_step_is_random():
    shaper = mfos(hidden_units=4)
    learner = shaper.learner(jax.tree.map(lambda x: x * 0, shaper.init(jax.random.key(0))))
    history = play(jax.random.key(1), GAME, learner, memory_one([0.5] * 5), meta_steps=3, keep_trajectories=True)
    actions = np.asarray(history.trajectories[0].action[:, 0])
    assert (actions[0] != 0).all()
    np.testing.assert_array_equal(actions[1:], 0)  # the policy of a network of zeros in every step


def test_learners_in_several_environments_get_trajectories_by_step_and_environment():
    shapes = []

    def update(key, state, trajectory):
        shapes.append(jax.tree.map(jnp.shape, trajectory))
        return state, {"reward": trajectory.reward.mean()}

    def act(key, parameters, memory, obs):
        return jnp.zeros((*obs.shape[:-1], 1)), memory, {"value": obs.sum(-1)}

    game = InfinitelyRepeated(chicken, 0.0)
    learner = Learner(init=lambda key: (), act=act, update=update)
    history = learn(jax.random.key(0), game, [learner, learner], num_updates=2, steps_per_update=3, num_envs=4)
    assert shapes[0].obs == (3, 4, 2)
    assert shapes[0].action == (3, 4, 1)
    assert shapes[0].reward == shapes[0].done == (3, 4)
    assert shapes[0].extras == {"value": (3, 4)}
    assert shapes[0].others == ((3, 4, 1),)
    # Each plays its first action half of the time: (0 - 1 + 1 - 100) / 4.
    np.testing.assert_allclose(history.metrics[0]["reward"], [-25.0, -25.0], rtol=1e-5)


def test_exact_learners_play_in_several_environments_as_in_one():
    learners = [mfos().learner(mfos().init(jax.random.key(0))), naive(GAME, 1)]
    alone, together = (
        learn(jax.random.key(1), GAME, learners, num_updates=3, num_envs=n, keep_trajectories=True) for n in (None, 4)
    )
    assert together.trajectories[0].action.shape == (3, 1, 4, 5)
    assert alone.trajectories[0].action.shape == (3, 1, 5)
    for one, four in zip(alone.states, together.states, strict=True):
        np.testing.assert_allclose(one[0], four[0], rtol=1e-4)  # every environment of this game is the same


def test_a_learner_for_each_player_is_needed():
    with pytest.raises(ValueError, match="learners: got 1; InfinitelyRepeated has 2 players"):
        learn(jax.random.key(0), GAME, [memory_one([0.5] * 5)], num_updates=1)


def test_the_end_of_an_episode_reaches_the_learners_with_its_last_observation():
    game = make("ipd", episode_length=2)
    players = [play_memory_one([1, 1, 1, 1, 1]), play_memory_one([0, 0, 0, 0, 0])]
    history = learn(
        jax.random.key(0), game, players, num_updates=1, steps_per_update=4, num_envs=3, keep_trajectories=True
    )
    first = history.trajectories[0]
    start, cooperated_alone = np.eye(5)[0], np.eye(5)[2]
    for env in range(3):
        np.testing.assert_array_equal(first.obs[0, :, env], [start, cooperated_alone] * 2)
        np.testing.assert_array_equal(first.next_obs[0, :, env], [cooperated_alone] * 4)
        np.testing.assert_array_equal(first.done[0, :, env], [False, True] * 2)
        np.testing.assert_array_equal(first.truncated[0, :, env], [False, True] * 2)


def test_termination_is_no_truncation():
    game = make("ipd", discount=0.0)
    players = [play_memory_one([1, 1, 1, 1, 1])] * 2
    history = learn(jax.random.key(0), game, players, num_updates=2, keep_trajectories=True)
    assert history.trajectories[0].done.all()
    assert not history.trajectories[0].truncated.any()


def by_turns():
    """A learner that cooperates in two rounds, defects in two, and so on; its memory counts the rounds."""

    def act(key, parameters, memory, obs):
        return jnp.broadcast_to(memory // 2 % 2, obs.shape[:-1]), memory + 1, ()

    return Learner(
        init=lambda key: (), act=act, update=keep_state, init_memory=lambda parameters, num_envs: jnp.int32(0)
    )


@pytest.mark.parametrize("num_envs", [None, 2])
def test_returns_are_those_of_the_episodes_that_ended(num_envs):
    game = make("ipd", episode_length=3)
    history = learn(
        jax.random.key(0), game, [by_turns(), by_turns()], num_updates=6, steps_per_update=2, num_envs=num_envs
    )
    # Both get -1 -1 -2 | -2 -1 -1 | -2 -2 -1 | -1 -2 -2, the end of an episode marked, in updates of two rounds.
    for returns in history.returns:
        np.testing.assert_array_equal(returns, [np.nan, -4, -4, np.nan, -5, -5])
    history = learn(
        jax.random.key(0), game, [by_turns(), by_turns()], num_updates=2, steps_per_update=6, num_envs=num_envs
    )
    np.testing.assert_array_equal(history.returns[0], [-4, -5])


def test_returns_are_each_players_own_and_means_over_environments():
    game = make("ipd", discount=0.5)  # an episode ends after every round with probability 1/2
    players = [play_memory_one([0.5] * 5), play_memory_one([0] * 5)]
    history = learn(
        jax.random.key(0), game, players, num_updates=2, steps_per_update=9, num_envs=4, keep_trajectories=True
    )
    for returns, steps in zip(history.returns, history.trajectories, strict=True):
        rewards, done = (np.asarray(x).reshape(18, 4) for x in (steps.reward, steps.done))
        ended = ([], [])
        for env in range(4):
            so_far = 0.0
            for step in range(18):
                so_far += rewards[step, env]
                if done[step, env]:
                    ended[step // 9].append(so_far)
                    so_far = 0.0
        np.testing.assert_allclose(returns, [np.mean(one) for one in ended], rtol=1e-5)
    assert (history.returns[0] != history.returns[1]).all()


@pytest.mark.system
def test_learning_step_by_step_is_learning():
    game, players = make("ipd", discount=0.5), [play_memory_one([0.5] * 5), by_turns()]
    settings = {"num_envs": 3, "steps_per_update": 2, "keep_trajectories": True}
    begin, update = learning(game, players, **settings)

    @jax.jit
    def both(key):
        return learn(key, game, players, num_updates=3, **settings), begin(key)

    at_once, (carry, run_key) = both(jax.random.key(5))
    step, found = jax.jit(update), []
    for key in jax.random.split(run_key, 3):
        carry, results = step(carry, key)
        found.append(results)
    apart = jax.tree.map(lambda *x: np.stack(x), *found)
    same = partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(same, apart, at_once._replace(states=(), game_state=()))
    jax.tree.map(same, carry.game_state, at_once.game_state)
    assert int(carry.memories[1]) == int(at_once.trajectories[1].last_memory[-1]) == 6
