"""Screening: the best of many random parameters by their best trials, which evolution and means would miss."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta import Evolution, NonFiniteFitness, Outcome, RunDirectory, evolve
from meta.screening import rescaled, screen
from tests.nightly import nightly

KEY = jax.random.key(0)


def init(key):
    return {"x": jax.random.normal(key, (2,)), "b": jnp.zeros(3)}


def needle(parameters, key):
    """Fitness 1; in a corner, with one of a hundred draws, 4 in half of the trials and -4 in the others."""
    in_corner = (parameters["x"] > 5).all()
    gamble = jnp.where(jax.random.bernoulli(key), 4.0, -4.0)
    return Outcome(jnp.where(in_corner, gamble, 1.0), {})


def find(key, trial=needle, **settings):
    return screen(trial, init, key, **{"candidates": 2048, "finalists": 16, "final_trials": 64} | settings)


@pytest.fixture(scope="module")
def found():
    return find(KEY)


@pytest.mark.system
def test_candidates_that_are_best_in_some_trials_are_found(found):
    assert (found.parameters["x"] > 5).all()
    assert float(found.best_third) == 4.0
    assert abs(float(found.mean)) < 2.5  # 0 +- 0.5, the best of sixteen; the others get 1


@pytest.mark.system
def test_several_keys_are_several_searches(found):
    several = find(jnp.stack([KEY, jax.random.key(1)]))
    for own, one in zip(jax.tree.leaves(several), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(own[0], one, rtol=1e-6)
    assert not np.allclose(several.parameters["x"][0], several.parameters["x"][1])
    assert (several.parameters["x"] > 5).all()


def test_candidates_that_are_best_on_average_are_found_where_means_count():
    """The gamble is worth 0 and the others 1 in every trial."""
    best = find(KEY, judged_by="mean", candidates=512)
    assert not (best.parameters["x"] > 5).all()
    assert float(best.mean) == float(best.best_third) == 1.0


def test_candidates_without_a_fitness_are_not_chosen():
    def trial(parameters, key):
        fitness = -jnp.abs(parameters["x"][0] - 3)
        return Outcome(jnp.where(parameters["x"][1] > 0, fitness, jnp.nan), {})

    best = find(KEY, trial, trials=1, final_trials=1, candidates=1024)
    assert best.parameters["x"][1] > 0
    assert best.parameters["x"][0] == pytest.approx(3, abs=0.1)


def test_a_candidate_with_some_trials_without_a_fitness_is_judged_by_the_others():
    def trial(parameters, key):
        fitness = -jnp.abs(parameters["x"][0] - 3)
        return Outcome(jnp.where(jax.random.uniform(key) < 0.05, jnp.nan, fitness), {})

    best = find(KEY, trial, trials=4, final_trials=128, candidates=1024)
    assert best.parameters["x"][0] == pytest.approx(3, abs=0.2)


def test_the_candidates_of_another_generator_are_those_that_were_screened():
    def trial(parameters, key):
        return Outcome(-jnp.abs(parameters["x"][0] - 3), {})

    for key in (jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0, impl="rbg"), 2)):
        best = find(key, trial, trials=1, finalists=1, final_trials=1, candidates=1024)
        np.testing.assert_allclose(best.parameters["x"][..., 0], 3, atol=0.1)


def test_each_search_has_a_context_of_its_own():
    def trial(parameters, key, target):
        return Outcome(-jnp.abs(parameters["x"][0] - target["x"]), {})

    keys, targets = jnp.stack([KEY, KEY]), {"x": jnp.array([3.0, -4.0])}
    sizes = {"trials": 1, "final_trials": 1, "candidates": 512}
    found = find(keys, trial, context=targets, **sizes)
    np.testing.assert_allclose(found.parameters["x"][:, 0], targets["x"], atol=0.2)


def test_screening_reports_its_progress():
    said = []
    find(KEY, report=lambda iteration, metrics, seconds: said.append((iteration, metrics)))
    tried = [int(metrics["tried"]) for _, metrics in said]
    assert tried == [512 * iteration for iteration, _ in said]
    assert tried[-1] == int(said[-1][1]["number"]) == 2048
    assert float(said[-1][1]["best"]) == 4.0


def test_each_array_is_multiplied_by_a_factor_of_its_own():
    keys = jax.random.split(KEY, 4096)
    drawn = jax.vmap(lambda key: rescaled(init, key, 20.0))(keys)
    plain = jax.vmap(lambda key: init(jax.random.split(key)[0]))(keys)
    factors = np.asarray(drawn["x"] / plain["x"])
    np.testing.assert_allclose(factors[:, 0], factors[:, 1], rtol=1e-4)
    logs = np.log(factors[:, 0]) / np.log(20)  # uniform in [0, 1]
    assert 0 <= logs.min() < 0.01 < 0.99 < logs.max() <= 1.0001
    assert logs.mean() == pytest.approx(0.5, abs=4 / 12**0.5 / 64)
    # A third times the root mean square of the factors, from the integral of 20^(2u).
    deviation = (399 / (2 * np.log(20))) ** 0.5 / 3
    assert drawn["b"].std() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (1500, "candidates: got 1500; a multiple of 512, or fewer, are needed"),
        (8, "finalists: got 16; at most 8 of 8 candidates are needed"),
        (0, "candidates: got 0; a whole number from 1 to .* is needed"),
    ],
)
def test_unsuitable_numbers_of_candidates_are_refused(candidates, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        find(KEY, candidates=candidates)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": jnp.zeros(3)}, "context: got leaves of another length; 2, one for each key, are needed"),
        ({"context": {"x": 1.0}}, "context: got leaves of another length; 2, one for each key, are needed"),
        ({"judged_by": "median"}, "judged_by: got 'median'; best or mean is needed"),
    ],
)
def test_unsuitable_contexts_and_judges_are_refused(settings, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        find(jnp.stack([KEY, KEY]), lambda parameters, key, *told: needle(parameters, key), **settings)


def test_a_screening_without_any_finite_fitness_is_refused():
    with pytest.raises(NonFiniteFitness, match="screening: the fitness of all finalists is not finite"):
        find(KEY, lambda parameters, key: Outcome(jnp.nan, {}), candidates=16)


def test_the_given_start_is_used_once_and_not_by_a_resumed_run(tmp_path):
    def still(parameters, key):
        return Outcome(-(parameters["x"] ** 2).sum(), {"at": parameters["x"][0]})

    def run(store, generations, start):
        evolution = Evolution(population_size=4, generations=generations, sigma=1e-6, learning_rate=1e-6)
        return evolve(still, init, KEY, evolution, num_trials=1, store=store, start=start)

    def start(key):
        calls.append(key)
        return {"x": jnp.array([7.0, 8.0]), "b": jnp.ones(3)}

    calls: list[jax.Array] = []
    store = RunDirectory.create(tmp_path / "run", {})
    first = run(store, 2, start)
    np.testing.assert_allclose(first.parameters["x"], [7, 8], atol=1e-4)
    np.testing.assert_allclose(first.metrics["at"], 7, atol=1e-4)
    again = run(store, 3, start)
    assert (len(calls), again.first_generation) == (1, 2)
    np.testing.assert_allclose(again.parameters["x"], [7, 8], atol=1e-4)


@pytest.mark.system
def test_spikes_narrower_than_the_noise_are_not_chosen():
    """A spike of height 3 is narrower than the noise, and a hill of height 2 is wider."""

    def trial(parameters, key):
        x = parameters["x"][0]
        spike, hill = jnp.abs(x - 4) < 0.05, jnp.abs(x + 4) < 1.5
        return Outcome(jnp.where(spike, 3.0, jnp.where(hill, 2.0, 0.0)), {})

    exact, noisy = (find(KEY, trial, sigma=sigma) for sigma in (0.0, 0.5))
    assert exact.parameters["x"][0] == pytest.approx(4, abs=0.05)
    assert noisy.parameters["x"][0] == pytest.approx(-4, abs=1.5)
    assert (float(exact.best_third), float(noisy.best_third)) == (3.0, 2.0)


ON_DEVICES = """
import sys
sys.path.insert(0, {tests!r})
import jax
from meta import Evolution, evolve
from meta.screening import screen
from test_screening import init, needle
key, evolution = jax.random.key(0), Evolution(population_size=6, generations=1)
start = lambda key: screen(needle, init, key, candidates=10, finalists=4, final_trials=2).parameters
evolve(needle, init, key, evolution, num_trials=1, start=start)
print(len(jax.devices()))
"""


@nightly
def test_the_number_of_devices_need_not_divide_the_candidates():
    """Ten candidates and four finalists use two of three devices, and six candidates of an evolution all."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=3"
    code = ON_DEVICES.format(tests=os.path.dirname(__file__))
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True)
    assert found.stdout.split() == [b"3"], found.stderr.decode()[-500:]


WIDTHS = """
import sys
sys.path.insert(0, {tests!r})
import jax
from meta import Outcome
from meta.screening import screen
from test_screening import init

@jax.custom_batching.custom_vmap
def play(x):
    return x

@play.def_vmap
def together(size, batched, x):
    widths.append(size)
    return play(x), True

def trial(parameters, key):
    return Outcome(play(parameters["x"][0] + jax.random.normal(key)), {{}})

devices = jax.devices()
for number in (1, 2, 4, 8):
    jax.local_devices, widths = (lambda: devices[:number]), []
    for finalists in (128, 32):
        screen(trial, init, jax.random.key(0), candidates=1024, finalists=finalists, final_trials=4)
    print(*sorted(set(widths)), sep=",")
"""


@nightly
def test_the_size_of_batches_does_not_depend_on_the_number_of_cores():
    """XLA rounds differently for another size of a batch."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    code = WIDTHS.format(tests=os.path.dirname(__file__))
    found = subprocess.run([sys.executable, "-c", code], env=os.environ | {"XLA_FLAGS": flags}, capture_output=True)
    of_devices = found.stdout.split()
    assert len(of_devices) == 4, found.stderr.decode()[-500:]
    assert len(set(of_devices)) == 1
