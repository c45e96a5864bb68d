"""Evolution with noise of low rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from meta import Evolution, Outcome, evolve
from meta.low_rank import AXES, LowRankES, LowRankNoise, Proposals
from meta.strategies import make_strategy
from meta.xla.interpreter import inner_jaxprs
from tests.nightly import grid, nightly

GOAL = np.random.RandomState(0).randn(12, 8).astype(np.float32)
INPUTS = np.random.RandomState(1).randn(2, 8, 12).astype(np.float32)  # two steps
POPULATION, SIGMA = 32, 0.1
BEST = np.concatenate([np.zeros(16), GOAL.reshape(-1)])  # b, out, w


def init(key):
    return {"w": jnp.zeros((12, 8)), "b": 0.1 * jax.random.normal(key, (8,)), "out": jnp.eye(8, 1)}


def trial(parameters, key):
    """A regression on the outputs of a matrix, in a loop, with noise that all candidates share."""
    step = lambda total, x: (total + jnp.sum((x @ parameters["w"] + parameters["b"] - x @ GOAL) ** 2), None)  # noqa: E731
    error = jax.lax.scan(step, 0.0, INPUTS)[0] / 100 + jnp.sum(parameters["out"] ** 2)
    return Outcome(-error + jax.random.normal(key), {"first": parameters["b"][0]})


def settings(**changes):
    defaults = {"noise": "low_rank", "population_size": POPULATION, "generations": 30, "sigma": SIGMA}
    return Evolution(**defaults | {"learning_rate": 0.05} | changes)


def noise_of(evolution, trial=trial, init=init):
    shapes = jax.eval_shape(init, jax.random.key(0))
    vector, unravel = ravel_pytree(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes))
    return LowRankNoise(unravel, vector.size, evolution, trial, [jax.random.key(0)])


def vectors_of(noise, proposals, rows):
    """The parameters of candidates in full, `[N, D]`."""
    whole = lambda one: ravel_pytree(noise.call(lambda parameters: parameters, one))[0]  # noqa: E731
    return jax.jit(jax.vmap(whole, (AXES,)))(noise.draw(proposals, rows))


@pytest.fixture(scope="module")
def plain():
    return evolve(trial, init, jax.random.key(0), settings(), num_trials=2)


@pytest.mark.system
def test_the_best_parameters_are_found():
    evolution = settings(generations=100, population_size=128, learning_rate=0.1)
    found = evolve(trial, init, jax.random.key(0), evolution, num_trials=1)
    start, found = (
        ravel_pytree(jax.tree.map(jnp.asarray, x))[0] - BEST for x in (init(jax.random.key(0)), found.parameters)
    )
    assert jnp.linalg.norm(found) < 0.4 * jnp.linalg.norm(start)


@pytest.mark.system
@pytest.mark.parametrize("rank", grid((1, 3, 8), 3))
def test_an_evolution_is_open_es_on_the_same_draws(rank):
    """evosax's own strategy, which gets all candidates in full; with rank 8 all noise is full."""
    evolution, key = settings(rank=rank, generations=6), jax.random.key(2)
    found = evolve(trial, init, key, evolution, num_trials=1)
    noise = noise_of(evolution)
    assert noise.numbers == (12 * 8 if rank == 8 else (12 + 8) * rank) + 8 + 8
    strategy, params = make_strategy(evolution, 12 * 8 + 16)
    init_key, state_key, run_key = jax.random.split(key, 3)
    state = strategy.init(state_key, ravel_pytree(init(init_key))[0], params)
    unravel = ravel_pytree(init(init_key))[1]
    for generation in range(evolution.generations):
        ask_key, _, trial_key = jax.random.split(jax.random.fold_in(run_key, generation), 3)
        proposals, _ = LowRankES(strategy, noise).ask(ask_key, state, params)
        vectors = vectors_of(noise, proposals, jnp.arange(POPULATION))
        fitness = jax.vmap(lambda vector: trial(unravel(vector), trial_key).fitness)(vectors)  # noqa: B023
        np.testing.assert_allclose(found.metrics["fitness"][generation], fitness.mean(), rtol=1e-4)
        state, _ = strategy.tell(key, vectors, -fitness, state, params)
    np.testing.assert_allclose(ravel_pytree(found.parameters)[0], state.mean, rtol=1e-5, atol=1e-5)


def test_antithetic_pairs_add_up_to_twice_the_mean_and_the_noise_is_standard_normal():
    noise = noise_of(settings(population_size=8192, rank=2))
    mean = jnp.arange(112.0) / 100
    rows = jnp.arange(8192)
    vectors = vectors_of(noise, Proposals(mean, jnp.float32(SIGMA), jax.random.key(3)), rows)
    np.testing.assert_allclose(vectors[:4096] + vectors[4096:], np.tile(2 * mean, (4096, 1)), atol=1e-6)
    first = np.asarray((vectors[:4096] - mean) / SIGMA, np.float64)
    np.testing.assert_allclose(first.T @ first / 4096, np.eye(112), atol=0.15)  # uncorrelated, with variance 1
    some = vectors_of(noise, Proposals(mean, jnp.float32(SIGMA), jax.random.key(3)), rows[5000:5010])
    np.testing.assert_allclose(some, vectors[5000:5010], atol=1e-6)  # a chunk draws its own


@pytest.mark.parametrize("rank", [1, 2, 8])
def test_the_estimate_of_a_gradient_agrees_with_the_true_one_within_its_error(rank):
    """The function is quadratic, so that there is no bias; each pair gives an estimate, and their spread the error."""
    pairs, evolution = 4096, settings(population_size=8192, rank=rank)
    noise, key = noise_of(evolution), jax.random.key(4)
    curvature = np.random.RandomState(2).rand(112)
    mean = np.random.RandomState(3).randn(112)
    proposals = Proposals(jnp.float32(mean), jnp.float32(SIGMA), key)
    vectors = np.asarray(vectors_of(noise, proposals, jnp.arange(2 * pairs)), np.float64)
    fitness = -0.5 * (curvature * vectors**2).sum(1)
    differences = fitness[:pairs] - fitness[pairs:]
    each = differences[:, None] * (vectors[:pairs] - mean) / SIGMA / (2 * SIGMA)
    estimate = np.asarray(noise.gradient(key, jnp.float32(differences))) / (2 * pairs * SIGMA)
    np.testing.assert_allclose(estimate, each.mean(0), rtol=1e-3, atol=1e-4)
    scores = (estimate - -curvature * mean) / (each.std(0) / pairs**0.5)
    assert np.abs(scores).max() < 4.5
    assert 0.6 < (scores**2).mean() < 1.5


def largest(jaxpr):
    own = [
        variable.aval.size for equation in jaxpr.eqns for variable in equation.outvars if hasattr(variable.aval, "size")
    ]
    return max([*own, *(largest(inner) for equation in jaxpr.eqns for inner in inner_jaxprs(equation))], default=0)


def test_no_array_has_the_size_of_all_candidates_times_a_matrix():
    """In the program of an evaluation and of an update: 64 candidates of 2 x 48 x 48 parameters, with 4 inputs."""
    shape = (48, 48)
    wide = lambda key: {"w": jnp.zeros(shape), "v": jnp.zeros(shape)}  # noqa: E731
    play = lambda p, key: Outcome(jnp.sum(jnp.tanh(jnp.ones((4, 48)) @ p["w"]) @ p["v"]), {})  # noqa: E731
    noise = noise_of(settings(population_size=64), play, wide)

    def evaluated(key):
        candidates = noise.draw(
            Proposals(jnp.zeros(noise.numbers and 2 * 48 * 48), jnp.float32(0.1), key), jnp.arange(64)
        )
        one = lambda scale, numbers: noise.call(play, candidates._replace(scale=scale, noise=numbers), key)  # noqa: E731
        return jax.vmap(one)(candidates.scale, candidates.noise).fitness

    def updated(key):
        return noise.gradient(key, jnp.ones(32))

    for function in (evaluated, updated):
        assert largest(jax.make_jaxpr(function)(jax.random.key(0)).jaxpr) <= max(64 * 4 * 48, 2 * 48 * 48)


def test_chunks_change_nothing(plain):
    chunked = evolve(trial, init, jax.random.key(0), settings(chunk_size=5), num_trials=2)
    np.testing.assert_allclose(chunked.parameters["w"], plain.parameters["w"], rtol=1e-4, atol=1e-5)


@pytest.mark.system
def test_runs_of_one_program_are_those_alone_with_numbers_of_their_own(plain):
    keys, numbers = (
        jnp.stack([jax.random.key(0), jax.random.key(1)]),
        {"sigma": [SIGMA, 0.3], "learning_rate_end": [0, 1]},
    )
    found = evolve(trial, init, keys, settings(chunk_size=8), num_trials=2, numbers=numbers)
    np.testing.assert_allclose(found.parameters["w"][0], plain.parameters["w"], rtol=1e-3, atol=1e-4)
    alone = evolve(trial, init, keys[1], settings(sigma=0.3, learning_rate_end=1.0), num_trials=2)
    np.testing.assert_allclose(found.parameters["w"][1], alone.parameters["w"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("together", ["all", "run"])
def test_runs_with_keys_of_another_generator_improve(together):
    """The draws of RBG for a run depend on its batch, and candidates and updates have batches of their own."""
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 2)
    fitness = evolve(trial, init, keys, settings(generations=40), num_trials=1, together=together).metrics["fitness"]
    assert np.all(fitness[-5:].mean(0) > fitness[0] + 3)


def test_pairs_with_trials_of_their_own_and_a_context_improve():
    """The context is a goal for each run; candidates of other pairs have other keys, and fail in some trials."""

    def play(parameters, key, goal):
        found = trial(parameters, key)
        fails = jax.random.uniform(jax.random.fold_in(key, 7)) < 0.1
        return found._replace(fitness=jnp.where(fails, jnp.nan, found.fitness + 0 * goal))

    keys = jax.random.split(jax.random.key(0), 2)
    evolution = settings(shared_trials="pair", fitness_shaping="standardize", generations=60)
    context = lambda keys, generation, means: means["b"][:, 0]  # noqa: E731
    found = evolve(play, init, keys, evolution, num_trials=1, context=context, together="run")
    assert 0 < found.metrics["non_finite"].mean() < 10
    assert (found.metrics["fitness"][-10:].mean(0) > found.metrics["fitness"][:10].mean(0) + 3).all()


class Memory:
    """A store that keeps the last checkpoint."""

    kept = None

    def restore(self, like, last):
        return self.kept

    def rewrite(self, rows):
        pass

    append = rewrite

    def save(self, generation, state, metrics):
        self.kept = generation, jax.tree.map(np.asarray, state), metrics


@nightly
def test_a_run_goes_on_bit_for_bit(plain):
    store = Memory()
    evolution = settings(learning_rate_end=1.0, sigma_end=1.0, chunk_size=8)
    whole = evolve(trial, init, jax.random.key(0), evolution, num_trials=1)
    for generations in (11, 30):
        changed = settings(learning_rate_end=1.0, sigma_end=1.0, chunk_size=8, generations=generations)
        found = evolve(trial, init, jax.random.key(0), changed, num_trials=1, store=store)
    assert found.first_generation == 11
    np.testing.assert_array_equal(found.parameters["w"], whole.parameters["w"])
    np.testing.assert_array_equal(found.metrics["fitness"], whole.metrics["fitness"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 0}, "evolution.rank: got 0; a whole number from 1"),
        ({"noise": "thin"}, "evolution.noise: got 'thin'; one of full, low_rank is needed"),
        ({"strategy": "pgpe"}, "evolution.strategy: got 'pgpe'; open_es, for noise low_rank, is needed"),
        ({"weight_decay": 0.1}, "evolution.weight_decay: got 0.1; 0, for noise low_rank, is needed"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)


def test_a_matrix_that_is_not_only_multiplied_has_full_noise_and_parameters_without_any_are_refused():
    def rows(key):
        return {"table": jnp.zeros((64, 80)), "w": jnp.zeros((12, 8))}

    def play(parameters, key):
        return Outcome(-jnp.sum(parameters["table"][3] ** 2) - jnp.sum((INPUTS[0] @ parameters["w"]) ** 2), {})

    message = r"parameters\['table'\] \[64, 80\]: the noise is full, because the trial has more than products with it"
    with pytest.warns(UserWarning, match=message):
        evolve(play, rows, jax.random.key(0), settings(generations=1), num_trials=1)

    def gates(parameters, key):  # two matrices side by side, of which more than a product is taken
        return Outcome(-jnp.sum(jnp.sin(jnp.concatenate([parameters["a"], parameters["b"]], 1))), {})

    with pytest.raises(ValueError, match=r"evolution\.noise: got low_rank; parameters with a matrix"):
        evolve(gates, lambda key: {x: jnp.zeros((12, 8)) for x in "ab"}, jax.random.key(0), settings(), num_trials=1)
    with pytest.raises(ValueError, match=r"evolution\.noise: got low_rank; parameters with a matrix"):
        evolve(lambda x, key: Outcome(x.sum(), {}), lambda key: jnp.zeros(3), jax.random.key(0), settings())
