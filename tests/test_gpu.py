"""Main programs as a GPU gets them, lowered for one on a machine without, and their variants beside those of a CPU."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import games
from benchmarks.gpu import programs
from marl import make_learner, shaping_trial
from marl.core.learn import learn
from marl.shapers.exact_policies import mfos
from meta import Evolution, Outcome, evolve
from meta.evaluators import EvaluationSpec
from meta.runs.gpu_defaults import gpu_line, with_gpu_defaults
from meta.xla.backend import tracing_for
from meta.xla.memory import TooLarge, largest_that_fits
from tests.nightly import MARKS, grid

pytestmark = pytest.mark.system

TINY = {"evolution": {"population_size": 4, "generations": 1}, "trials": 1}
TD3 = "td3(hidden=[8], buffer_size=64, batch_size=8, learning_starts=1)"
PROGRAMS = {
    "naive": programs.shaping("ipd", meta_steps=3, **TINY),
    "reinforce": programs.shaping("ipd", opponent="reinforce(episodes=2, rounds=4)", meta_steps=3, **TINY),
    "coin_game": programs.shaping("coin_game", meta_steps=2, episode_length=4, num_envs=2, unseen=(), **TINY),
    "attack": programs.attack("cartpole", num_updates=2, steps_per_update=8, **TINY),
    "ppo": programs.training("cartpole", total_steps=512),
    "td3": programs.training("pendulum", learner=TD3, num_envs=2, steps_per_update=8, total_steps=64),
    "rigl": programs.training(
        "cartpole", learner="ppo(sparsity='rigl(density=0.5, every=8, until=64)')", total_steps=512
    ),
    "games": programs.game("coin_game", 4, 4),
}


def inner(params):
    """Jaxprs in the parameters of an equation."""
    leaves = jax.tree.leaves(list(params.values()), is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns"))
    return [x for x in (getattr(leaf, "jaxpr", leaf) for leaf in leaves) if hasattr(x, "eqns")]


def equations(jaxpr):
    """All equations, those of inner jaxprs too."""
    for equation in jaxpr.eqns:
        yield equation
        for one in inner(equation.params):
            yield from equations(one)


def is_loop(equation):
    return equation.primitive.name == "while" or (equation.primitive.name == "scan" and equation.params["length"] > 1)


# Formulas, an evolution, a learner with a replay buffer, and a game.
@pytest.mark.parametrize("name", grid(PROGRAMS, "naive", "td3", "games"))
def test_a_program_for_a_gpu_has_nothing_that_would_wait_for_its_host(name):
    with tracing_for("gpu"):
        traced = programs.caught(PROGRAMS[name], lambda jitted, arguments: jitted.trace(*arguments))
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert not re.findall(r"custom_call @(\w+)", text)
    assert not re.search(r"\bf64\b|x?f64>", text)
    found = list(equations(traced.jaxpr.jaxpr))
    assert not [one for one in found if "callback" in one.primitive.name]
    loops = [list(equations(body)) for one in found if is_loop(one) for body in inner(one.params)]
    innermost = [body for body in loops if not any(map(is_loop, body))]
    assert innermost
    assert not [one for body in innermost for one in body if one.primitive.name == "cond"]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        # Blocks of eight steps, each second one of the actor too, whose last may change the topologies.
        pytest.param("pendulum", f"{TD3[:-1]}, sparsity='rigl(density=0.5, every=4, until=100)')", marks=MARKS),
        ("CartPole-v1", "ppo(hidden=[4], epochs=2, minibatches=2)"),  # parameters as one vector
    ],
)
def test_a_learner_learns_the_same_by_the_program_for_a_gpu(name, spec):
    game = games.make(name)
    learner = make_learner(spec, game)

    def run(key):
        state = learn(key, game, [learner], num_updates=2, steps_per_update=8, num_envs=2).states[0]
        return ravel_pytree(state.params)[0]

    here = jax.jit(run)(jax.random.key(0))
    with tracing_for("gpu"):
        there = jax.jit(run)(jax.random.key(0))
    np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-5)


def test_candidates_outside_of_trials_have_the_same_outcomes():
    game = games.InfinitelyRepeated(games.prisoners_dilemma)
    shaper = mfos(hidden_units=4)
    trial = shaping_trial(game, shaper, make_learner("naive", game, 1), meta_steps=3)
    settings = Evolution(population_size=6, generations=2, shared_trials="pair", fitness_shaping="standardize")

    def found():
        return evolve(trial, shaper.init, jax.random.key(0), settings, num_trials=2).metrics["fitness"]

    here = found()
    with tracing_for("gpu"):
        np.testing.assert_allclose(found(), here, rtol=1e-5)


def test_chunks_of_a_preset_are_for_cpus_and_those_of_a_user_stay():
    config = programs.AttackConfig()
    assert with_gpu_defaults(config) is config
    with tracing_for("gpu"):
        found = with_gpu_defaults(config, ["warm_up.chunk_size"])
    assert (found.warm_up.chunk_size, found.evolution.chunk_size) == (16, 0)
    assert gpu_line(config, found).endswith("in place of evolution.chunk_size 16")
    assert gpu_line(config, config) == ""


def test_what_does_not_fit_a_gpu_is_made_smaller():
    tried = []

    def make(size):
        tried.append(size)
        if size > 100:
            raise TooLarge.needing(size, 100, "memory")
        return size

    with tracing_for("gpu", 100):
        assert largest_that_fits(make, 1000) == 90
        assert tried == [1000, 90]
        with pytest.raises(TooLarge):
            largest_that_fits(lambda size: make(101), 4)
    with pytest.raises(TooLarge):  # on a CPU, whose widths are meant for its caches
        largest_that_fits(make, 1000)


def test_an_evolution_goes_in_chunks_where_a_gpu_does_not_hold_all_candidates(monkeypatch):
    def trial(parameters, key):
        large = jnp.sort(jax.random.normal(key, (512, 512)) + parameters.sum(), 0)
        return Outcome(-jnp.abs(large).sum(), {})

    settings = Evolution(population_size=32, generations=1)

    sizes = []
    chunk = EvaluationSpec.chunk
    monkeypatch.setattr(EvaluationSpec, "chunk", lambda *rest: sizes.append(rest[-1]) or chunk(*rest))

    def run(memory):
        with tracing_for("gpu", memory):
            return evolve(trial, lambda key: jnp.zeros(3), jax.random.key(0), settings, num_trials=1)

    everything = run(1e12)
    assert set(sizes) == {32}
    chunks = run(1e7)
    assert min(sizes) < 32
    np.testing.assert_allclose(chunks.metrics["fitness"], everything.metrics["fitness"], rtol=1e-5)
