"""Cores as devices: their number, and results that do not depend on it."""

import json
import math
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marl.experiments.learner_training import TrainConfig, train
from meta import RunDirectory
from meta.xla.control_groups import core_limit
from meta.xla.devices import in_chunks, spread, use_all_cores
from tests.nightly import MARKS, nightly

pytestmark = pytest.mark.system

SETTINGS = {
    "environment": "CartPole-v1(max_steps_in_episode=20)",
    "learner": "ppo(hidden=[4], epochs=1, minibatches=1)",
    "total_steps": 128,
    "num_envs": 2,
    "steps_per_update": 8,
    "seeds": 4,
    "checkpoint_seconds": 0.0,
}
# Trains with a stop, resumes, and trains without a stop; the directory is an argument.
SCRIPT = f"""
import json, sys
from pathlib import Path
from meta.xla.devices import use_all_cores
use_all_cores()
import jax
from marl.experiments.learner_training import TrainConfig, train
from meta import RunDirectory
from meta.batched_trials import compile_trials, run_trials

def draw(key, scale):
    return scale * jax.random.uniform(key)

keys, scale = jax.random.split(jax.random.key(3), 7), jax.numpy.float32(2)
fresh = run_trials(compile_trials(draw, scale, 7, 3), keys, scale).tolist()  # of 12 places

def stop(update, metrics, seconds):
    raise KeyboardInterrupt

config = TrainConfig(**{SETTINGS})
run = RunDirectory.create(Path(sys.argv[1]), "")
try:
    train(config, store=run, report=stop)
except KeyboardInterrupt:
    pass
resumed, whole = train(config, store=run), train(config)
print(json.dumps({{
    "devices": len(jax.devices()),
    "fresh": fresh,
    "used": len(jax.tree.leaves(whole.states)[0].sharding.device_set),
    "done": resumed.loop.first_iteration,
    "params": [x.tolist() for x in jax.tree.leaves(whole.states[0].params)],
    "resumed": [x.tolist() for x in jax.tree.leaves(resumed.states[0].params)],
}}))
"""


def test_seeds_on_two_devices_learn_as_on_one_and_go_on_bit_for_bit(environment, tmp_path):
    line = [sys.executable, "-c", SCRIPT, str(tmp_path / "run")]
    variables = environment | {"JAX_NUM_CPU_DEVICES": "2"}  # the user's choice is kept
    result = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["devices"], found["used"]) == (2, 2)
    assert 0 < found["done"] < 8
    # There is one fresh trial for each key, with the same result in any batch.
    alone = [2.0 * float(jax.random.uniform(key)) for key in jax.random.split(jax.random.key(3), 7)]
    assert found["fresh"] == pytest.approx(alone)
    assert found["resumed"] == found["params"]
    here = train(TrainConfig(**SETTINGS))
    for two, one in zip(found["params"], jax.tree.leaves(here.states[0].params), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, math.ceil(min(len(os.sched_getaffinity(0)), core_limit()))),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
    ],
)
def test_each_core_is_a_device_unless_their_number_is_given(environment, chosen, expected):
    code = "from meta.xla.devices import use_all_cores; use_all_cores(); import jax; print(len(jax.devices()))"
    variables = {name: value for name, value in environment.items() if name != "XLA_FLAGS"} | chosen
    line = [sys.executable, "-c", code]
    assert int(subprocess.run(line, env=variables, capture_output=True, text=True, timeout=600).stdout) == expected


def test_a_container_with_a_core_and_a_half_has_two_devices(environment):
    patch = "from meta.xla import devices; devices.cores = lambda: [*range(8)]; devices.core_limit = lambda: 1.5; "
    code = patch + "devices.use_all_cores(); import jax; print(len(jax.devices()))"
    variables = {name: value for name, value in environment.items() if name != "XLA_FLAGS"}
    line = [sys.executable, "-c", code]
    assert int(subprocess.run(line, env=variables, capture_output=True, text=True, timeout=600).stdout) == 2


def test_devices_are_not_changed_after_jax_has_begun():
    before = jax.devices()
    use_all_cores()
    assert jax.devices() == before


def test_any_number_of_members_can_be_spread_over_devices():
    for size in (1, 3, 4):
        x = jnp.arange(2.0 * size).reshape(size, 2)
        np.testing.assert_array_equal(spread(jnp.cumsum, size)(x), np.cumsum(x, 1))


@pytest.mark.parametrize("width", [1, 3, 7, 9])
def test_a_function_in_chunks_is_its_vmap(width):
    def function(key, x):
        return {"sum": x.sum() + jax.random.uniform(key), "rows": x * 2}

    keys, x = jax.random.split(jax.random.key(0), 7), jnp.arange(14.0).reshape(7, 2)
    found, expected = jax.jit(in_chunks(function, 7, width))(keys, x), jax.vmap(function)(keys, x)
    jax.tree.map(np.testing.assert_allclose, found, expected)


def test_chunks_on_a_core_divide_its_share_and_have_a_maximum():
    sizes = []

    @jax.custom_batching.custom_vmap
    def double(x):
        return 2 * x

    @double.def_vmap
    def _(axis_size, in_batched, x):
        sizes.append(axis_size)
        return 2 * x, in_batched[0]

    cores = len(jax.devices())
    for share, at_once, together in ((8, 4, 4), (6, 4, 3), (2, 4, 2), (8, None, 8)):
        x, sizes[:] = jnp.arange(float(share * cores)), []
        np.testing.assert_array_equal(spread(double, share * cores, at_once=at_once)(x), 2 * x)
        assert set(sizes) == {together}


@nightly
def test_one_seed_has_one_device_and_xla_one_thread(environment):
    code = f"""
import math
import os
from meta import process
process.begin("python -m marl.train")
from marl.experiments.learner_training import TrainConfig, choose_devices, train
config = TrainConfig(**{SETTINGS | {"seeds": 1}})
choose_devices(config)
train(config)
import jax
names = [open(f"/proc/self/task/{{task}}/comm").read() for task in os.listdir("/proc/self/task")]
print(len(jax.devices()), sum("XLAEigen" in name for name in names))
"""
    variables = {name: value for name, value in environment.items() if name not in ("XLA_FLAGS", "NPROC")}
    result = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=600)
    assert result.stdout.split() == ["1", "1"], result.stderr


@nightly
def test_a_resumed_run_has_a_device_for_each_seed(environment, tmp_path):
    """Devices are chosen before the config of a resumed run is checked, because checks may initialise JAX."""
    run = RunDirectory.create(
        tmp_path / "run", TrainConfig(**SETTINGS), f"python -m marl.train {SETTINGS['environment']}"
    )
    run._lock.close()
    code = """
from meta import process
process.begin("python -m marl.train")
from marl.commands import describe
from meta.runs.execution import _begin
_begin(describe("marl.train"), ["--resume", "run"], lambda words: None, [])
import jax
print(len(jax.devices()))
"""
    variables = {name: value for name, value in environment.items() if name not in ("XLA_FLAGS", "NPROC")}
    line = [sys.executable, "-c", code]
    result = subprocess.run(line, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.stdout.split() == [str(min(SETTINGS["seeds"], len(os.sched_getaffinity(0))))], result.stderr


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("marl.mfos", ["coin_game", "--evolution.chunk-size", "8"]),  # its chunks ask for the backend
        pytest.param("marl.crossplay", ["coin_game", "--agents", "tabular_ppo"], marks=MARKS),
        pytest.param("marl.reproduce", ["sparse"], marks=MARKS),
    ],
)
def test_a_command_of_sampled_games_has_a_device_for_each_core(module, arguments, environment, tmp_path):
    code = f"""
from meta import process
process.begin("python -m {module}")
from marl.commands import describe
from meta.runs.execution import _begin
_begin(describe("{module}"), {[*arguments, "--out", "run"]}, lambda words: None, [])
import jax
print(len(jax.devices()))
"""
    variables = {name: value for name, value in environment.items() if name not in ("XLA_FLAGS", "NPROC")}
    line = [sys.executable, "-c", code]
    result = subprocess.run(line, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.stdout.split() == [str(len(os.sched_getaffinity(0)))], result.stderr


def test_another_program_keeps_its_own_devices(environment):
    code = f"""
from marl.experiments.learner_training import TrainConfig, choose_devices
choose_devices(TrainConfig(**{SETTINGS}))
import jax
print(len(jax.devices()))
"""
    variables = {name: value for name, value in environment.items() if name not in ("XLA_FLAGS", "NPROC")}
    result = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=600)
    assert result.stdout.split() == ["1"], result.stderr
