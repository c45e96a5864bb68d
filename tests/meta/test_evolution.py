"""Evolution, on trials whose best parameters are known."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta import Evolution, NonFiniteFitness, Outcome, evolution, evolve, strategy_names
from meta.strategies import MIRRORED, make_strategy, promoting
from tests.nightly import grid

TARGET = jnp.array([1.0, -2.0, 0.5])


def trial(parameters, key):
    """A parabola with noise that all candidates of a generation share."""
    x = parameters["x"] - TARGET
    noise = jax.random.normal(key)
    return Outcome(-jnp.sum(x**2) + noise, {"distance": jnp.linalg.norm(x), "noise": noise})


def init(key):
    return {"x": jnp.zeros(3) + 0.01 * jax.random.normal(key, (3,))}


def settings(**changes):
    defaults = {"population_size": 32, "generations": 60, "sigma": 0.2, "learning_rate": 0.1}
    return Evolution(**defaults | changes)


@pytest.fixture(scope="module")
def plain():
    return evolve(trial, init, jax.random.key(0), settings(), num_trials=2)


def test_the_best_parameters_are_found(plain):
    np.testing.assert_allclose(plain.parameters["x"], TARGET, atol=0.1)
    assert plain.metrics["distance"].shape == (60,)
    assert plain.metrics["distance"][-1] < 0.5 < plain.metrics["distance"][0]


def test_all_candidates_of_a_generation_have_the_same_random_numbers(plain):
    np.testing.assert_allclose(plain.metrics["noise_deviation"], 0, atol=1e-6)
    assert plain.metrics["noise"].std() > 0.3  # it differs between generations


def test_chunks_change_nothing(plain):
    for chunk_size in (8, 5, 64):
        chunked = evolve(trial, init, jax.random.key(0), settings(chunk_size=chunk_size), num_trials=2)
        np.testing.assert_allclose(chunked.parameters["x"], plain.parameters["x"], rtol=1e-4, atol=1e-5)


@pytest.mark.system
@pytest.mark.parametrize(
    "other", grid(({}, {"strategy": "cma_es"}, {"fall": "exponential", "learning_rate_end": 0.5}), {}), ids=str
)
def test_runs_of_one_program_may_differ_in_the_numbers_of_their_evolution(other):
    short = {"generations": 20, "population_size": 16, **other}
    numbers = {"sigma": [0.1, 0.3], "learning_rate": [0.05, 0.2], "sigma_end": [1.0, 0.1]}
    keys = jnp.stack([jax.random.key(0)] * 2)
    found = evolve(trial, init, keys, settings(**short), num_trials=2, numbers=numbers)
    for i in range(2):
        own = settings(**short, **{name: values[i] for name, values in numbers.items()})
        alone = evolve(trial, init, jax.random.key(0), own, num_trials=2)
        np.testing.assert_allclose(found.parameters["x"][i], alone.parameters["x"], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.metrics["fitness"][:, i], alone.metrics["fitness"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"generations": [1, 2]}, "numbers: got 'generations'; one of sigma, learning_rate"),
        ({"sigma": [0.1, 0.2, 0.3]}, r"numbers: got sigma of shape \(3,\); one number for each of 2 keys"),
        ({"sigma": 0.1}, r"numbers: got sigma of shape \(\); one number for each of 2 keys"),
        ({"sigma": [0.1, -0.1]}, r"evolution.sigma: got -0.1\d*; a number above 0 is needed"),
        ({"sigma_end": [float("nan"), 0.1]}, "evolution.sigma_end: got nan; a fraction from 0 to 1 is needed"),
    ],
)
def test_numbers_that_cannot_differ_are_refused(numbers, message):
    with pytest.raises(ValueError, match=message):
        evolve(trial, init, jax.random.split(jax.random.key(0)), settings(), numbers=numbers)


def test_several_keys_are_several_runs_in_one_program(plain):
    keys = jax.random.split(jax.random.key(5), 2)
    keys = jnp.stack([jax.random.key(0), keys[1]])
    found = evolve(trial, init, keys, settings(), num_trials=2)
    assert found.metrics["fitness"].shape == (60, 2)
    np.testing.assert_allclose(found.parameters["x"][0], plain.parameters["x"], rtol=1e-3, atol=1e-4)
    assert not np.allclose(found.parameters["x"][0], found.parameters["x"][1])


def test_runs_that_depend_on_each_other_evolve_together():
    def follows(parameters, key, context):
        goal, generation = context
        return Outcome(-jnp.sum((parameters["x"] - goal) ** 2), {"number": generation})

    def context(keys, generation, means):
        assert keys.shape == (2,)
        goals = jnp.stack([TARGET, means["x"][0]])  # the first has the target, the second follows the first
        return goals, jnp.tile(generation, 2)

    keys = jax.random.split(jax.random.key(0), 2)
    found = evolve(follows, init, keys, settings(generations=80), num_trials=1, context=context)
    np.testing.assert_allclose(found.parameters["x"], np.stack([TARGET, TARGET]), atol=0.15)
    np.testing.assert_array_equal(found.metrics["number"][:, 1], np.arange(80))


# evosax 0.3.2's lm_ma_es turns to NaN below some dozens of dimensions, in evosax's own loop too.
ALWAYS = {"open_es", "cma_es"}
STRATEGIES = [
    pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.slow)
    for name in strategy_names()
    if name != "lm_ma_es"
]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_of_evosax_improves(strategy):
    generations = 25
    evolution = settings(strategy=strategy, generations=generations, learning_rate=0.05)
    found = evolve(trial, init, jax.random.key(1), evolution, num_trials=1)
    assert found.parameters["x"].shape == (3,)
    distance = float(jnp.linalg.norm(found.parameters["x"] - TARGET))
    assert distance < 1.9, distance  # 2.29 at the start


@pytest.mark.parametrize("name", ["open_es", "cma_es", "pgpe", "xnes", "iamalgam_full", "iamalgam_univariate"])
def test_sigma_is_the_first_standard_deviation_of_the_candidates(name):
    strategy, params = make_strategy(settings(strategy=name, population_size=512, sigma=0.2), 3)
    state = evolution._first_state(strategy, params, lambda key: jnp.zeros(3), jax.random.key(0))
    candidates, _ = promoting(strategy.ask)(jax.random.key(1), state, params)
    np.testing.assert_allclose(candidates.std(axis=0), 0.2, rtol=0.15)


@pytest.mark.parametrize("shaping", ["centered_rank", "standardize", "normalize", "identity"])
def test_every_fitness_shaping_improves(shaping):
    evolution = settings(fitness_shaping=shaping, generations=30, weight_decay=0.001)
    found = evolve(trial, init, jax.random.key(1), evolution, num_trials=1)
    assert float(jnp.linalg.norm(found.parameters["x"] - TARGET)) < 1.9


@pytest.mark.parametrize("shaping", ["centered_rank", "standardize", "normalize", "identity"])
def test_fitness_is_shaped_as_in_the_settings(shaping):
    """Shaped fitness of four candidates; lower is better for the strategy."""
    strategy, params = make_strategy(settings(population_size=4, fitness_shaping=shaping), 2)
    candidates = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0], [2.0, 2.0]])
    fitness = np.array([1.5, 4.1, -1.0, 3.3])
    expected = {
        "centered_rank": np.array([-1 / 6, 1 / 2, -1 / 2, 1 / 6]),
        "standardize": (fitness - fitness.mean()) / fitness.std(),
        "normalize": -1 + 2 * (fitness + 1) / 5.1,
        "identity": fitness,
    }
    found = strategy.fitness_shaping_fn(candidates, fitness, None, params)
    np.testing.assert_allclose(found, expected[shaping], rtol=1e-5)


@pytest.mark.parametrize("worst", [0.0, -3.0, 1e-30, 2.0, -1e30])
def test_a_failed_candidate_is_below_the_worst(worst):
    found = jax.jit(evolution.failed_last)(jnp.array([worst, worst + 5, jnp.nan, worst + 1, -jnp.inf]))
    assert jax.jit(lambda x: x[2] < x[0])(found)
    np.testing.assert_array_equal(found[2], found[4])
    np.testing.assert_allclose(found[2], worst, rtol=1e-6, atol=1e-37)


def test_candidates_without_a_finite_fitness_come_last_and_are_counted():
    def fragile(parameters, key):
        outcome = trial(parameters, key)
        return outcome._replace(fitness=jnp.where(parameters["x"][0] < 0, jnp.nan, outcome.fitness))

    found = evolve(fragile, init, jax.random.key(0), settings(), num_trials=1)
    assert found.metrics["non_finite"][0] > 8  # half of the first generation
    assert np.isfinite(found.metrics["fitness"]).all()
    np.testing.assert_allclose(found.parameters["x"], TARGET, atol=0.2)


def test_weight_decay_draws_to_zero_but_not_to_candidates_that_fail():
    """Nothing but the decay is to be gained, and within a distance of 1 of zero every trial fails."""

    def walled(parameters, key):
        inside = jnp.linalg.norm(parameters["x"]) < 1
        return Outcome(jnp.where(inside, jnp.nan, 0.0), {})

    decaying = settings(generations=80, weight_decay=1.0, learning_rate=0.02, sigma_end=1.0)
    found = evolve(walled, lambda key: {"x": jnp.full(3, 1.0)}, jax.random.key(0), decaying, num_trials=1)
    distance = float(jnp.linalg.norm(found.parameters["x"]))
    assert 0.9 < distance < 1.4  # 1.73 at the start
    assert found.metrics["non_finite"][-1] < 16


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fitness", "trial: got the metric 'fitness', and evolve itself reports fitness; another is needed"),
        ("fitness_best", "trial: got the metric 'fitness_best', and evolve itself reports fitness_best"),
        ("distance_deviation", "trial: got the metric 'distance_deviation', and evolve itself reports"),
        ("generation", "metrics: got one named 'generation', which is what an iteration is called"),
    ],
)
def test_a_metric_with_a_reserved_name_is_refused(name, message):
    def named(parameters, key):
        outcome = trial(parameters, key)
        return outcome._replace(metrics=outcome.metrics | {name: outcome.fitness})

    with pytest.raises(ValueError, match=message):
        evolve(named, init, jax.random.key(0), settings(), num_trials=1)


@pytest.mark.usefixtures("nans")
def test_a_generation_without_any_finite_fitness_stops_with_its_number():
    def broken(parameters, key):
        return Outcome(jnp.inf + parameters["x"].sum(), {})

    with pytest.raises(NonFiniteFitness, match="generation 1: the fitness of all 32"):
        evolve(broken, init, jax.random.key(0), settings(), num_trials=1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("population_size", 0, "population_size: got 0"),
        ("strategy", "randomsearch", "strategy: got 'randomsearch'; one of"),
        ("population_size", 31, "open_es says: Population size must be even"),
        ("generations", -1, "generations: got -1"),
        ("sigma", 0.0, "sigma: got 0.0"),
        ("learning_rate", float("nan"), "learning_rate: got nan"),
        ("chunk_size", -2, "chunk_size: got -2"),
        ("strategy", "openes", "strategy: got 'openes'"),
        ("strategy", 5, "strategy: got 5; a name is needed"),
        ("fall", "linear", "fall: got 'linear'; one of cosine, exponential is needed"),
        ("shared_trials", "Pair", "shared_trials: got 'Pair'; one of generation, pair is needed"),
        ("fitness_shaping", "rank", "fitness_shaping: got 'rank'; one of default, centered_rank, "),
        ("generations", 2.5, "generations: got 2.5; a whole number from 1"),
        ("chunk_size", 2.5, "chunk_size: got 2.5; a whole number of at least 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(field, value, message):
    with pytest.raises(ValueError, match=message):
        settings(**{field: value})


def test_a_population_that_a_strategy_divides_by_is_refused():
    with pytest.raises(ValueError, match="population_size: got 1; iamalgam_full says: "):
        settings(strategy="iamalgam_full", population_size=1)


ON_DEVICES = """
import sys; sys.path.insert(0, {tests!r})
import json, jax
from meta import evolve
from {module} import init, settings, trial
print(len(jax.devices()))
for size, chunk in {sizes}:
    found = evolve(trial, init, jax.random.key(0), settings(chunk_size=chunk, population_size=size), num_trials=2)
    print(json.dumps([jax.tree.leaves(found.parameters)[-1].tolist(), found.metrics["fitness"].tolist()]))
"""


@pytest.mark.system
@pytest.mark.parametrize("module", grid(("test_evolution", "test_low_rank"), "test_evolution"))
def test_one_device_and_four_evolve_the_same_population(module):
    sizes, found = [(32, 0), (30, 3)], []
    for devices in (1, 4):
        code = ON_DEVICES.format(tests=os.path.dirname(__file__), sizes=sizes, module=module)
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        environment = os.environ | {"XLA_FLAGS": flags}
        text = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
        used, *results = map(json.loads, text.splitlines())
        assert used == devices
        found.append(results)
    for (_, chunk), one, four in zip(sizes, *found, strict=True):
        if chunk:  # bit for bit
            assert one == four
        for of_one, of_four in zip(one, four, strict=True):
            np.testing.assert_allclose(of_one, of_four, rtol=1e-4, atol=1e-5)


def test_settings_that_a_strategy_does_not_have_are_named():
    """A strategy without an optimiser has no step size, and one that adapts sigma has no schedule for it."""
    assert Evolution().without_effect == {"rank": "with evolution.noise full"}
    assert Evolution(noise="low_rank").without_effect == {}
    assert Evolution(strategy="pgpe").without_effect.keys() == {"sigma_end", "rank"}
    idle = Evolution(strategy="cma_es").without_effect
    assert idle.pop("rank") == "with evolution.noise full"
    assert idle.keys() == {"learning_rate", "learning_rate_end", "sigma_end", "fall"}
    assert set(idle.values()) == {"with evolution.strategy cma_es"}
    assert Evolution(strategy="cma_es").falling == []
    assert Evolution(strategy="snes").falling == ["evolution.learning_rate"]


@pytest.mark.usefixtures("nans", "promoted")
@pytest.mark.parametrize("name", MIRRORED)
def test_pairs_are_mirror_images(name):
    strategy, params = make_strategy(Evolution(strategy=name, population_size=8, shared_trials="pair"), 3)
    mean = jnp.arange(3.0)
    state = strategy.init(jax.random.key(0), mean, params)
    population, _ = strategy.ask(jax.random.key(1), state, params)
    np.testing.assert_allclose(population[:4] - mean, mean - population[4:], atol=1e-5)
    assert (population[:4] != mean).all()


@pytest.mark.usefixtures("nans")
def test_exponential_decay_is_a_factor_in_every_generation():
    """Sigma 0.04 and step size 0.01 fall by 0.999 in each, as in the code of Adversarial Cheap Talk."""
    evolution = Evolution(
        generations=1024, sigma=0.04, sigma_end=0.999**1024, learning_rate_end=0.999**1024, fall="exponential"
    )
    strategy, params = make_strategy(evolution, 3)
    state = strategy.init(jax.random.key(0), jnp.zeros(3), params)
    assert strategy.std_schedule(100) == pytest.approx(0.04 * 0.999**100, rel=1e-4)
    assert state.std == pytest.approx(0.04)
    with pytest.raises(ValueError, match=r"^evolution.learning_rate_end: got 0.0; a fraction above 0, .* is needed$"):
        Evolution(fall="exponential")


@pytest.mark.system
def test_pairs_have_trials_of_their_own_and_a_generation_many():
    """Every trial pulls in a random direction: a mean that follows one trial a generation wanders with it."""

    def pull(parameters, key):
        drawn = jax.random.uniform(key)
        fitness = parameters @ jax.random.normal(key, (2,))
        return Outcome(fitness, {"drawn": drawn, "signed": jnp.sign(parameters[0]) * drawn})

    def found(shared, chunk_size):
        evolution = Evolution(
            population_size=64, generations=40, chunk_size=chunk_size, shared_trials=shared, learning_rate_end=1.0
        )
        keys = jax.random.split(jax.random.key(0), 8)
        return evolve(pull, lambda key: jnp.zeros(2), keys, evolution, num_trials=2)

    together, apart = found("generation", 0), found("pair", 0)
    in_chunks = found("pair", 10)
    np.testing.assert_allclose(apart.parameters, in_chunks.parameters, rtol=1e-4, atol=1e-5)
    # The mean of 64 draws from a uniform distribution, or of 2, with its variance of 1/12.
    assert apart.metrics["drawn"].std() == pytest.approx(1 / (12 * 64) ** 0.5, rel=0.2)
    assert together.metrics["drawn"].std() == pytest.approx(1 / (12 * 2) ** 0.5, rel=0.2)
    # The search begins at 0, so that a pair has opposite signs, which cancel in the same trial.
    np.testing.assert_allclose(apart.metrics["signed"][0], 0, atol=1e-6)
    assert (np.abs(apart.metrics["signed"][1:]) > 1e-3).any()
    with pytest.raises(ValueError, match=r"^evolution.population_size: got 5; an even number, for shared_trials pair"):
        Evolution(population_size=5, shared_trials="pair")
    with pytest.raises(
        ValueError, match=r"^evolution.strategy: got 'snes'; one of open_es, .*, or any with shared_trials generation"
    ):
        Evolution(strategy="snes", shared_trials="pair")
