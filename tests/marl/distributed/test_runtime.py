"""`train`: the results of `learn` with actors in any place, failing actors, and stored runs."""

import functools
import os
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from games import make
from marl import learn, make_learner, stale
from marl.distributed.actors.actor import Actor
from marl.distributed.actors.actor_pools import EnvSeeds, ThreadPool, begin
from marl.distributed.actors.actor_programs import ActorPrograms
from marl.distributed.actors.inference import CentralInference
from marl.distributed.actors.rollouts import Rollout, RolloutRequest
from marl.distributed.adapters.maker import make_env
from marl.distributed.dispatcher import _again
from marl.distributed.runtime import train
from marl.distributed.system import System
from tests.marl.distributed.vector_envs import Late
from tests.nightly import MARKS, grid, nightly

pytestmark = pytest.mark.system

GAME = make("CartPole-v1")
OURS = make_env("games(CartPole-v1)", 4)
THEIRS = make_env("CartPole-v1", 4)
UPDATES = 6
LEARNERS = {
    "ppo(hidden=[8], normalize_observations=True)": 8,
    "ppo(network='recurrent', hidden=[4], memory=4)": 8,
    "impala(hidden=[8])": 5,
    "pqn(hidden=[8])": 8,
    "dqn(hidden=[8], buffer_size=64, learning_starts=64)": 8,
    "ape_x(hidden=[8], buffer_size=64, learning_starts=64)": 8,
    "r2d2(hidden=[4], memory=4, sequence_length=6, burn_in=2, buffer_size=16, learning_starts=8)": 6,
}


def settings(**changes):
    system = System(**{name: changes.pop(name) for name in System._fields if name in changes})
    return {"key": jax.random.key(3), "num_updates": UPDATES, "steps_per_update": 5, "system": system} | changes


def assert_equal(one, two):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(x, y)


def assert_close(one, two):
    """Equality up to rounding, which depends on the compiler options of the tests."""
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@functools.cache
def learned(spec, steps, lag, envs=4):
    """The learner's own state and the history of `learn`."""
    learner = stale(make_learner(spec, GAME), lag)
    run = jax.jit(lambda key: learn(key, GAME, [learner], num_updates=UPDATES, steps_per_update=steps, num_envs=envs))
    found = run(jax.random.key(3))
    return (found.states[0].own if lag else found.states[0]), found


@nightly
@pytest.mark.parametrize("number", ["0", "3", "7"])
def test_train_has_the_bits_of_learn(number, environment):
    """A process of its own compiles with the default options."""
    line = [sys.executable, "-m", "tests.marl.distributed.bits", number]
    flags = {"XLA_FLAGS": "", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "")}
    done = subprocess.run(line, env=environment | flags, capture_output=True, text=True, timeout=600)
    assert [words.rpartition(" ")[2] for words in done.stdout.splitlines()] == ["True"], done.stdout + done.stderr


@pytest.mark.parametrize("spec", grid(LEARNERS, next(iter(LEARNERS))))
def test_train_has_the_results_of_learn(spec):
    steps = LEARNERS[spec]
    state, expected = learned(spec, steps, 0)
    found = train([make_learner(spec, GAME)], [OURS], **settings(steps_per_update=steps)).history
    assert_close(found.states[0], state)
    assert_close(found.rewards, expected.rewards)
    assert_close(found.returns, expected.returns)
    assert_close(found.metrics, expected.metrics)


@nightly
def test_train_has_the_results_of_learn_with_continuous_actions():
    game = make("pendulum")
    learner = make_learner("sac(hidden=[8], learning_starts=32, buffer_size=64, batch_size=16)", game)
    run = jax.jit(lambda key: learn(key, game, [learner], num_updates=UPDATES, steps_per_update=4, num_envs=4))
    expected = run(jax.random.key(3))
    found = train([learner], [make_env("games(pendulum)", 4)], **settings(steps_per_update=4)).history
    assert int(found.states[0].networks.updates) == 5 * 16  # no gradient steps in an update with less than 32 steps
    assert_close(found.states[0].networks.actor, expected.states[0].networks.actor)
    assert_close(found.rewards, expected.rewards)


@pytest.mark.parametrize("where", ["here", "threads"])
def test_train_with_a_lag_has_the_results_of_learn_with_a_stale_learner(where):
    spec = "impala(hidden=[8])"
    state, expected = learned(spec, 5, 2)
    found = train([make_learner(spec, GAME)], [OURS], **settings(lag=2, where=where))
    assert_close(found.history.states[0], state)
    assert_equal(found.history.returns, expected.returns)
    assert found.statistics["mean_lag"] == pytest.approx(np.mean([0, 1, 2, 2, 2, 2]))


@pytest.mark.parametrize("lag", grid((0, 2), 2))
def test_gradients_from_actors_are_those_of_learn(lag):
    state, expected = learned("a3c(hidden=[8])", 5, lag)
    learner = make_learner("a3c(hidden=[8])", GAME)
    found = train([learner], [OURS], **settings(lag=lag, path="gradients")).history
    assert_close(found.states[0], state)
    assert_close(found.metrics, expected.metrics)


def test_train_with_several_players_has_the_results_of_learn():
    game, spec = make("ipd", episode_length=3), "ppo(hidden=[4], epochs=1, minibatches=2)"
    learners = [make_learner(spec, game, seat) for seat in range(2)]
    expected = jax.jit(lambda key: learn(key, game, learners, num_updates=3, steps_per_update=4, num_envs=2))(
        jax.random.key(3)
    )
    found = train(
        learners, [make_env("ipd(episode_length=3)", 2)], **settings(num_updates=3, steps_per_update=4)
    ).history
    assert_close(found.states, expected.states)
    assert_close(found.infos, expected.infos)


@pytest.mark.parametrize("path", ["queue", "barrier"])
def test_several_actors_have_the_same_results_in_one_process_and_in_threads(path):
    learner = make_learner("impala(hidden=[8])", GAME)
    found = [
        train([learner], [THEIRS] * 3, **settings(lag=1, where=where, path=path)).history.states
        for where in ("here", "threads")
    ]
    assert_equal(*found)


def test_a_barrier_joins_the_rollouts_of_all_actors():
    """One update of three actors has the steps of all their environments."""
    learner = make_learner("impala(hidden=[8])", GAME)
    found = train([learner], [THEIRS] * 3, **settings(num_updates=2, path="barrier"))
    assert found.statistics["steps"] == 2 * 3 * 4 * 5
    apart = train([learner], [THEIRS] * 3, **settings(num_updates=2))
    assert apart.statistics["steps"] == 2 * 4 * 5
    normalized = make_learner("ppo(hidden=[4], normalize_observations=True)", GAME)
    with pytest.raises(ValueError, match="statistics of observations, is of one actor"):
        train([normalized], [THEIRS] * 3, **settings(path="barrier"))


@pytest.mark.parametrize(("path", "actors"), [("queue", 1), ("barrier", 2)])
def test_actors_play_what_updates_take_and_no_more(path, actors, monkeypatch):
    asked, start = [], ThreadPool.start
    monkeypatch.setattr(ThreadPool, "start", lambda *arguments: asked.append(1) or start(*arguments))
    train([make_learner("impala(hidden=[8])", GAME)], [THEIRS] * actors, **settings(where="threads", path=path))
    assert len(asked) == actors * UPDATES


def test_actors_with_the_same_request_explore_differently():
    learner = make_learner("impala(hidden=[8])", GAME)
    programs = ActorPrograms([learner], 4, 2, 40)
    order = RolloutRequest(0, 0, (learner.policy(learner.init(jax.random.key(0))),))
    seeds = EnvSeeds(jax.random.key(1), jax.random.key(2), 0)
    actors = [begin(programs, OURS, number, seeds) for number in (0, 1)]
    actions, firsts = zip(
        *[(x.action, x.obs[0]) for x in (one.play(order).experience[0] for one in actors)], strict=True
    )
    assert np.mean(actions[0] == actions[1]) < 0.75  # about half, because the policy is nearly uniform
    assert not np.isin(firsts[0], firsts[1]).any()
    restarts = [begin(programs, OURS, number, seeds, tried)._seen for number in (0, 1) for tried in (0, 1, 2)]
    assert len({str(one) for one in restarts}) == 6  # no two restarts begin in the same states


def test_trainings_with_neighbouring_seeds_have_different_environments():
    programs = ActorPrograms([make_learner("impala(hidden=[8])", GAME)], 4, 8, 40)
    keys = jax.random.key(1), jax.random.key(2)
    given = make_env("CartPole-v1", 8)
    firsts = [
        begin(programs, given, number, EnvSeeds(*keys, seed))._seen["agent_0"]
        for seed in (0, 1, 2)
        for number in (0, 1)
    ]
    assert len({row.tobytes() for first in firsts for row in first}) == 6 * 8


def test_a_ladder_of_exploration_goes_over_all_actors():
    learner = make_learner("ape_x(hidden=[8])", GAME)
    programs = ActorPrograms([learner], 4, 3, 5)
    policy = learner.policy(learner.init(jax.random.key(0)))
    ladder = np.concatenate([programs.memories([policy], actor)[0].epsilon for actor in range(3)])
    np.testing.assert_allclose(ladder, 0.4 ** (1 + 7 * np.arange(12) / 11), rtol=1e-5)


@pytest.mark.parametrize("inference", ["actor", "central"])
def test_without_a_fixed_lag_no_actor_waits(inference):
    learner = make_learner("impala(hidden=[8])", GAME)
    found = train([learner], [THEIRS] * 4, **settings(num_updates=30, where="threads", inference=inference))
    assert found.statistics["steps"] == 30 * 20
    assert 0 < found.statistics["mean_lag"] < 30
    assert found.history.rewards[0].shape == (30,)
    if inference == "central":
        assert 1 <= found.statistics["mean_batch"] <= 4


def test_central_inference_does_not_depend_on_the_batch(monkeypatch):
    monkeypatch.setattr("marl.distributed.actors.inference.WAIT", 0.5)
    learner = make_learner("impala(network='recurrent', hidden=[4], memory=4)", GAME)
    programs = ActorPrograms([learner], 4, 3, 5)
    policies = (learner.policy(learner.init(jax.random.key(0))),)
    central = CentralInference(programs, policies, 3)
    rng = np.random.default_rng(0)
    questions = []
    for i in range(3):
        memories = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), programs.memories(policies, i))
        keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(i), 1)))
        questions.append((keys, policies, memories, np.zeros(4, bool), (rng.normal(size=(4, 4)).astype(np.float32),)))
    alone = [jax.tree.map(np.array, central.act(*question)) for question in questions]
    answers = [None] * 3

    def ask(i):
        answers[i] = jax.tree.map(np.array, central.act(*questions[i]))

    before = central.batches
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert central.batches - before < 3  # some in one batch
    for one, other, question in zip(alone, answers, questions, strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), one, other)
        own = programs.act(*question)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), one, own)
    central.close()
    with pytest.raises(RuntimeError, match="training is over"):  # it does not wait for an answer
        central.act(*questions[0])


def test_a_rollout_used_again_is_not_counted_twice():
    one = Rollout(0, 0, (), np.ones(1), np.array([[30.0, 0.0]]), np.array([2.0, 0.0]), {}, 20)
    both = [one, _again(one)]
    counted = [(rollout.steps, rollout.finished.sum(), rollout.ended.sum()) for rollout in both]
    assert counted == [(20, 30, 2), (0, 0, 0)]


def test_impossible_settings_are_refused_before_anything_runs():
    ppo = make_learner("ppo(hidden=[4])", GAME)
    for changes, words in {
        ("inference", "central"): "inference: got central",
        ("path", "gradients"): "path: got gradients, which no learner here takes",
        ("where", "moon"): "where: got 'moon'",
        ("lag", -1): "lag: got -1",
    }.items():
        with pytest.raises(ValueError, match=words):
            train([ppo], [THEIRS], **settings(**dict([changes])))
    with pytest.raises(ValueError, match="learners: got 2; 1 are needed"):
        train([ppo, ppo], [THEIRS], **settings())
    blind = ppo._replace(update=lambda key, state, t: (state, {"reward": t.reward.mean()}))
    with pytest.raises(ValueError, match="steps in which nothing happened"):
        train([blind], [THEIRS], **settings())
    train([blind], [OURS], **settings(num_updates=1))  # all steps are valid there
    train([make_learner("random", GAME)], [THEIRS], **settings(num_updates=1))  # it learns nothing


def test_a_rollout_of_empty_steps_has_a_reward_of_0():
    """The episode has four steps, and the environment begins the next one in the fifth."""
    programs = ActorPrograms([make_learner("random", Late(1)().game)], 1, 1, 1)
    actor = Actor(programs, Late(1)(), 0, jax.random.key(1))
    actor.begin(0, jax.random.key(2))
    rewards = [actor.play(RolloutRequest(i, 0, ((),))).rewards.item() for i in range(5)]
    assert all(reward >= 3 for reward in rewards[:4])
    assert rewards[4] == 0


REPLAYED = "hidden=[8], batch_size=4, gradient_steps=1"


@pytest.mark.parametrize(
    "spec",
    [
        "impala(hidden=[8])",
        "a3c(hidden=[8])",
        pytest.param("a2c(hidden=[8])", marks=MARKS),
        pytest.param("ppo(hidden=[8], minibatches=1)", marks=MARKS),
        f"dqn({REPLAYED}, buffer_size=40, learning_starts=4)",
        pytest.param(f"ape_x({REPLAYED}, buffer_size=40, learning_starts=4)", marks=MARKS),
        pytest.param(
            f"r2d2({REPLAYED}, sequence_length=10, burn_in=1, multi_step=2, buffer_size=4, learning_starts=1)",
            marks=MARKS,
        ),
    ],
)
def test_invalid_steps_have_no_gradient(spec):
    programs = ActorPrograms([make_learner(spec, Late()().game)], 2, 1, 10)
    learner = programs.learners[0]
    actor = Actor(programs, Late()(), 0, jax.random.key(1))
    actor.begin(0, jax.random.key(2))
    policies = (learner.policy(learner.init(jax.random.key(0))),)
    rollout = actor.play(RolloutRequest(0, 0, policies))
    found = rollout.experience[0]
    np.testing.assert_array_equal(found.valid[:, 0], [1, 1, 1, 1, 0, 1, 1, 1, 1, 0])
    np.testing.assert_allclose(rollout.rewards, found.reward[found.valid].mean(), rtol=1e-6)
    # The next observation of a step is that of the following step, except at ends of episodes.
    goes_on = found.valid & ~found.done
    np.testing.assert_array_equal(found.next_obs[:-1][goes_on[:-1]], found.obs[1:][goes_on[:-1]])
    state = learner.init(jax.random.key(0))
    changed = found._replace(reward=np.where(found.valid, found.reward, 1e3).astype(np.float32))
    one, two = (learner.update(jax.random.key(5), state, t)[0].params for t in (found, changed))
    assert_equal(one, two)
    before, after = map(jax.tree.leaves, (state.params, one))
    assert any(not np.array_equal(x, y) for x, y in zip(before, after, strict=True))
