"""Learners for given observations, and checks of memory; nothing here is run."""

import dataclasses
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import Box, Discrete
from games.registry import make_game
from marl.distributed import evaluation, learner_group
from marl.distributed.actors.actor_programs import ActorPrograms, acting, alike
from marl.distributed.adapters.maker import make_env
from marl.distributed.config import DistributedConfig, annealed
from marl.distributed.experiment import DistributedExperiment
from marl.distributed.seat_learners import make_learners, suited
from marl.distributed.vector_env import Outline
from marl.learners.registry import make_learner

pytestmark = pytest.mark.system

ATARI = Outline([Box(0, 255, (84, 84, 4), jnp.uint8, True)], [Discrete(6)])
MINATAR = Outline([Box(0, 1, (10, 10, 4), jnp.float32, True)], [Discrete(6)])


def test_learners_of_symmetric_seats_have_the_same_programs():
    game = make_game("coin_game")
    one, other = make_learners("ppo", game, num_updates=390)
    assert (one.seat, other.seat) == (0, 1)
    for programs in (
        lambda x: acting(x, together=False),
        lambda x: learner_group._programs_of(x, 2),
        evaluation._best_of,
    ):
        assert programs(alike(one)) is programs(alike(other))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("impala", "impala(anneal=True)"),
        ("ppo(anneal=False)", "ppo(anneal=False)"),
        ("ppo(minibatches=2) + a2c", "ppo(minibatches=2, anneal=True) + a2c(anneal=True)"),
        ("td3", "td3"),  # its learning rates are constant
    ],
)
def test_learning_rates_fall_unless_a_spec_says_otherwise(spec, expected):
    assert annealed(spec) == expected
    assert DistributedConfig(learner=spec).may_rise == {"total_steps": ["learner"] if "True" in expected else []}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ("r2d2", "r2d2(network='nature', memory=512)"),
        ("r2d2(memory=64, batch_size=8)", "r2d2(network='nature', memory=64, batch_size=8)"),
        ("ppo(memory=64)", "ppo(network='nature', memory=64)"),
        ("a2c", "a2c(network='nature')"),
        ("impala(network='recurrent')", "impala(network='recurrent')"),  # a named network is kept
        ("sac(batch_size=8)", "sac(batch_size=8)"),  # the networks of sac have no names
    ],
)
def test_large_images_are_convolved_unless_another_network_is_named(spec, fits):
    def read(spec):
        name, _, settings = spec.partition("(")
        return name, eval(f"dict({settings}" if settings else "{}")

    assert read(suited(spec, ATARI, 0)) == read(fits)
    assert suited(spec, MINATAR, 0) == spec


def test_a_reward_that_is_not_finite_is_refused_in_an_evaluation():
    host, learner = make_env("games(CartPole-v1)", 2)(), make_learner("ppo(hidden=[4])", make_game("CartPole-v1"))
    receive = host.receive
    host.receive = lambda: (received := receive())._replace(reward={"agent_0": received.reward["agent_0"] + np.nan})
    state = learner.init(jax.random.key(0))
    with pytest.raises(ValueError, match="it gave a reward that is no finite number"):
        evaluation.play_episodes(jax.random.key(1), host, [learner], [state], 2, 0)


@pytest.mark.parametrize("name", ["r2d2", "ppo", "a2c", "impala"])
def test_learners_with_a_memory_learn_from_large_images(name):
    few = "buffer_size=8, batch_size=2" if name == "r2d2" else "memory=512"
    learner = make_learner(suited(f"{name}({few})", ATARI, 0), ATARI)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    assert state.params["GRUCell_0"]["in"]["kernel"].shape == (512, 512)
    steps = ActorPrograms([learner], 4, 1, 20).shapes(learner, state, ATARI)
    assert steps.obs.dtype == jnp.uint8
    assert jax.eval_shape(learner.update, jax.random.key(0), state, steps)[0] == state


def test_all_agents_images_have_to_fit_the_memory(monkeypatch):
    """The check counts observations of all agents before and after each step of all actors, and the learners."""

    class Crowd:
        has_empty_steps, num_envs = False, 2

        def __init__(self, agents):
            self.game = Outline([Box(0, 255, (8, 8, 3), jnp.uint8, True)] * agents, [Discrete(3)] * agents)

        def close(self):
            pass

    config = DistributedConfig(learner="random", num_envs=2, steps_per_update=100, actors=3)
    one = 2 * (3 * 2 * 100) * (8 * 8 * 3)  # bytes for each agent
    monkeypatch.setattr("meta.xla.memory.device_memory", lambda: 10.5 * one)
    for agents, refused in ((11, pytest.raises(ValueError, match="num_envs: got 2, which needs")), (10, nullcontext())):
        monkeypatch.setattr(
            "marl.distributed.experiment.make_env", lambda *_, agents=agents, **__: lambda: Crowd(agents)
        )
        with refused:
            DistributedExperiment(config)
    monkeypatch.setattr("marl.distributed.experiment.make_env", lambda *_, **__: lambda: Crowd(1))
    monkeypatch.setattr("meta.xla.memory.device_memory", lambda: 1e5)
    with pytest.raises(ValueError, match=r"learner: got 'ppo\(hidden=\[1000\]\)', which needs"):
        DistributedExperiment(dataclasses.replace(config, learner="ppo(hidden=[1000])"))


def test_symmetric_seats_have_one_learner_unless_it_knows_the_game():
    for spec, one in (("ppo(minibatches=2)", True), ("lola_dice", False)):
        first, second = make_learners(spec, make_game("ipd"), num_updates=100)
        assert (first.seat, second.seat) == (0, 1)
        assert (first.update is second.update) == one
