"""Trials on Ray: the same bits as in one process, also if workers die. One cluster of four serves most tests."""

import contextlib
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time

import jax
import jax.export
import jax.numpy as jnp
import pytest

from meta import Evolution, NonFiniteFitness, Outcome, evolve, loop
from meta.cluster import exported_programs
from meta.cluster.on_ray import Refused, ray_cluster
from meta.cluster.ray_driver import Plan
from meta.evaluators import current, evaluating
from meta.xla.backend import platform
from tests.fault_injection.kills import digest, processes
from tests.nightly import MARKS, grid, nightly
from tests.sockets import listening

pytestmark = pytest.mark.system

TARGET = jnp.array([1.0, -2.0, 0.5])


def trial(parameters, key, *context):
    noise = 0.3 * jax.random.normal(key, (8,))
    hidden = jnp.tanh(jnp.outer(noise, parameters["x"]))
    distance = jnp.sum((parameters["x"] - TARGET) ** 2) + sum(map(jnp.sum, context))
    return Outcome(-distance - 0.1 * jnp.sum(hidden @ hidden.T), {"distance": distance, "noise": noise.mean()})


def init(key):
    return {"x": jax.random.normal(key, (3,))}


def multiplied(parameters, key):
    """A trial with a matrix."""
    return Outcome(-jnp.sum((jax.random.normal(key, (4, 8)) @ parameters["w"] - TARGET) ** 2), {})


def matrix(key):
    return {"w": jax.random.normal(key, (8, 3))}


def search(**changes):
    return Evolution(**{"population_size": 30, "generations": 9, "chunk_size": 4} | changes)


@pytest.fixture
def looked_at(monkeypatch):
    """The host looks at every generation."""
    monkeypatch.setattr(loop, "SECONDS_PER_CALL", 0.0)


@pytest.fixture(scope="module")
def cluster():
    said = []
    with ray_cluster(Plan("", 4, 1, "", 120.0), said.append) as found:
        found.said = said
        yield found


@pytest.fixture(scope="module")
def alone():
    return digest(evolve(trial, init, jax.random.key(0), search(), num_trials=2))


def test_four_workers_give_the_bits_of_one_process(cluster, alone):
    with evaluating(cluster.evaluator()):
        assert current().cluster is cluster
        found = evolve(trial, init, jax.random.key(0), search(), num_trials=2)
    assert current().cluster is None
    assert digest(found) == alone
    known = cluster.statistics()
    assert known["kind"] == "ray"
    assert 1 <= known["workers"] <= 4  # some may still be starting
    assert known["workers_lost"] == known["wrong_answers"] == 0
    assert "candidates/s" in cluster.words()


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"shared_trials": "pair"}, {"num_trials": 3}),
        # Its state is larger than its population, so that the population is sent instead.
        pytest.param({"strategy": "cr_fm_nes", "population_size": 8}, {"num_trials": 2}, marks=MARKS),
        ({"noise": "low_rank", "rank": 2}, {"num_trials": 2, "trial": multiplied, "init": matrix}),
        ({"generations": 3}, {"num_trials": 40}),  # more trials than candidates
        pytest.param({"generations": 3}, {"num_trials": 2, "key": jax.random.key(2, impl="rbg")}, marks=MARKS),
    ],
)
def test_a_cluster_gives_the_bits_of_one_process(cluster, settings, options):
    how = {"trial": trial, "init": init, "key": jax.random.key(1), "evolution": search(**settings)} | options
    here, there = evolve(**how), evolve(**how, evaluator=cluster.evaluator())
    assert digest(here) == digest(there)


@pytest.mark.parametrize("together", grid(("all", "run", "trial"), "run"))
def test_runs_that_depend_on_each_other_evolve_on_a_cluster_too(cluster, together):
    def context(keys, generation, means):
        return jnp.stack([jnp.float32(0), means["x"][0].sum() * generation])

    options = {"num_trials": 2, "context": context, "together": together}
    keys = jax.random.split(jax.random.key(2), 2)
    here = evolve(trial, init, keys, search(generations=4), **options)
    there = evolve(trial, init, keys, search(generations=4), evaluator=cluster.evaluator(), **options)
    assert digest(here) == digest(there)


@nightly
def test_a_worker_that_is_killed_in_every_third_generation_changes_nothing(cluster, alone, looked_at):
    before, killed = cluster.statistics()["workers_lost"], 0

    def kill(generation, metrics, seconds):
        nonlocal killed
        if generation % 3 == 0 and (pids := processes(cluster._process.pid, "ray::Actor")):
            for pid in pids if killed == 0 else [pids[generation % len(pids)]]:  # at first all, some of which are ready
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed += 1

    how = {"evaluator": cluster.evaluator(), "report": kill}
    found = evolve(trial, init, jax.random.key(0), search(), num_trials=2, **how)
    assert digest(found) == alone
    assert killed >= 2
    assert cluster.statistics()["workers_lost"] > before


@nightly
def test_candidates_without_a_fitness_are_counted_as_in_one_process(cluster):
    def fragile(parameters, key):
        outcome = trial(parameters, key)
        return outcome._replace(fitness=jnp.where(jnp.sin(50 * parameters["x"][0]) < 0, jnp.nan, outcome.fitness))

    def broken(parameters, key):
        return Outcome(jnp.inf + parameters["x"].sum(), {})

    here = evolve(fragile, init, jax.random.key(0), search(generations=3), num_trials=1)
    there = evolve(fragile, init, jax.random.key(0), search(generations=3), num_trials=1, evaluator=cluster.evaluator())
    assert digest(here) == digest(there)
    assert there.metrics["non_finite"].max() > 0
    with pytest.raises(NonFiniteFitness, match="generation 1: the fitness of all 30"):
        evolve(broken, init, jax.random.key(0), search(), num_trials=1, evaluator=cluster.evaluator())
    assert cluster.statistics()["wrong_answers"] == 0


@nightly
def test_a_lost_connection_is_sought_again(cluster, alone, looked_at):
    def end(generation, metrics, seconds):
        if generation == 1:
            for pid in processes(cluster._process.pid, "raylet/raylet"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    before = cluster.statistics().get("connections_lost", 0)
    cluster.said.clear()
    how = {"evaluator": cluster.evaluator(), "report": end}
    found = evolve(trial, init, jax.random.key(0), search(), num_trials=2, **how)
    assert digest(found) == alone
    assert cluster.statistics()["connections_lost"] == before + 1
    assert cluster.said.count("the connection with the cluster is lost; it is sought again") == 1


def test_programs_are_traced_for_the_backend_of_the_workers():
    """A driver without a GPU sends programs with the choices for one."""

    def chosen(x):
        return x + {"cpu": 1.0, "gpu": 2.0}[platform()]

    for backend, lowered, constant in (("cpu", "cpu", "1.000000e+00"), ("gpu", "cuda", "2.000000e+00")):
        program = jax.export.deserialize(bytearray(exported_programs.pack(backend, chosen, jnp.float32(0))))
        assert program.platforms == (lowered,)
        assert f"dense<{constant}>" in program.mlir_module()


@nightly
def test_workers_without_the_backend_of_the_cluster_are_refused_in_one_line():
    """A cluster counts a GPU that JAX cannot use there."""
    said = []
    with ray_cluster(Plan("", 1, 1, "", 60.0, gpus=1), said.append) as found:
        assert found.platform == "gpu"
        with pytest.raises(Refused, match=r"no worker fits: a worker on .* has platform cpu and not gpu"):
            evolve(trial, init, jax.random.key(0), search(generations=1), num_trials=1, evaluator=found.evaluator())
    assert len(said) == 1


def test_an_address_without_an_answer_is_refused():
    with pytest.raises(Refused, match="no answer there"), ray_cluster(Plan("ray://127.0.0.1:9", 0, 1, "", 1.0)):
        pass


def test_a_local_cluster_does_not_listen_to_other_machines(cluster):
    own, others = listening([cluster._process.pid, *processes(cluster._process.pid, "")])
    assert own
    assert not others


def test_a_chunk_that_no_worker_can_evaluate_is_reported_once(cluster, monkeypatch):
    """Every worker gets a broken program."""
    monkeypatch.setattr(exported_programs, "pack", lambda *_: b"nothing")
    with pytest.raises(Refused, match="a chunk cannot be evaluated") as raised:
        evolve(trial, init, jax.random.key(0), search(), num_trials=2, evaluator=cluster.evaluator())
    assert "\n" not in str(raised.value)


SMALL = shlex.split(
    "--discount 0 --meta-steps 5 --trials 2 --hidden-units 4 --evaluation-trials 16 --evolution.population-size 8"
    " --evolution.generations 40 --evolution.checkpoint-seconds 0"
)


@nightly
def test_a_killed_run_is_resumed_on_other_workers_bit_for_bit(command, environment, tmp_path):
    """A run on one worker, killed and resumed on two, has the bits of a run in one process."""
    there = [sys.executable, "-m", "marl.mfos", "ipd", *SMALL, "--cluster", "ray", "--cluster-workers", "1"]
    process = subprocess.Popen([*there, "--out", "run", "--quiet"], cwd=tmp_path, env=environment, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and not len(list((tmp_path / "run" / "checkpoints").glob("0*"))) > 1:
        time.sleep(0.05)
    broker = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.kill()
    process.wait()
    assert not (tmp_path / "run" / "summary.json").exists()
    chunk = ["--evolution.chunk-size", "1"]  # the chunk size on a cluster, a sixteenth of eight rounded up
    assert command("ipd", *SMALL, *chunk, "--out", "whole", "--quiet", cwd=tmp_path).returncode == 0
    found = command("--resume", "run", "--quiet", "--cluster", "ray", "--cluster-workers", "2", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_bytes())["cluster"]["kind"] == "ray"
    for name in ("metrics.jsonl", "agent.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    until = time.monotonic() + 30
    while time.monotonic() < until and any(os.path.exists(f"/proc/{pid}") for pid in broker):
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in broker)  # its cluster has ended too


def test_without_the_library_one_line_names_the_extra(within, monkeypatch, tmp_path):
    find = importlib.util.find_spec  # the packages use it too, at the first use of a public name
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    found = within("ipd", "--cluster", "ray", cwd=tmp_path)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert 'pip install "marl-shaping[ray]" is needed' in found.stderr
