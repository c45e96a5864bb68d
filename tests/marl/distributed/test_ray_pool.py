"""Actors in processes of Ray: one cluster for all of these tests."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from games import make
from marl import make_learner
from marl.distributed.actors.ray_pool import cluster_address, connect
from marl.distributed.adapters.maker import EnvMaker, make_env
from marl.distributed.runtime import train
from marl.distributed.system import System
from tests.fault_injection.kills import processes
from tests.marl.distributed.vector_envs import Faulty
from tests.nightly import nightly
from tests.sockets import listening

pytestmark = pytest.mark.system

ray = pytest.importorskip("ray")
GAME = make("CartPole-v1")
SETTINGS = {"key": jax.random.key(3), "steps_per_update": 5}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    before = dict(os.environ)
    connect("", 3)
    yield
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


@nightly
def test_a_local_cluster_does_not_listen_to_other_machines():
    """A process of its own, because Ray reads the setting when it is imported."""
    code = "from marl.distributed.actors.ray_pool import connect; print(connect('', 1), flush=True); input()"
    line = [sys.executable, "-c", code]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "True\n"
        own, others = listening([process.pid, *processes(process.pid, "")])
        process.communicate("\n")
    assert own
    assert not others


@nightly
def test_a_cluster_of_ones_own_asks_for_a_token(cluster):
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_a_cluster_may_be_named_by_the_environment(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_address("") == ""
    monkeypatch.setenv("RAY_ADDRESS", "there:6379")
    assert cluster_address("") == "there:6379"
    assert cluster_address("here:6379") == "here:6379"


def learner():
    return make_learner("impala(hidden=[8])", GAME)


def test_a_cluster_has_the_bits_of_threads():
    hosts = [make_env("games(CartPole-v1)", 4), make_env("games(CartPole-v1)", 4)]
    found = [
        train([learner()], hosts, num_updates=7, system=System(where, lag=2), **SETTINGS).history
        for where in ("ray", "threads")
    ]
    for one, other in zip(*(jax.tree.leaves((x.states, x.rewards)) for x in found), strict=True):
        np.testing.assert_array_equal(one, other)


@nightly
def test_one_process_evaluates_for_its_actors():
    system = System("ray", inference="central")
    found = train([learner()], [make_env("CartPole-v1", 2)] * 3, num_updates=20, system=system, **SETTINGS)
    assert found.statistics["steps"] == 20 * 10


@nightly
def test_an_actor_whose_process_dies_comes_back(tmp_path):
    """Two kills from outside: all updates are done, and only rollouts in flight are lost."""
    hosts = [Faulty(str(tmp_path), "die", times=2), EnvMaker("gymnasium", "CartPole-v1", 2)]
    said = []
    found = train([learner()], hosts, num_updates=20, system=System("ray", lag=1), say=said.append, **SETTINGS)
    assert found.statistics["actors_restarted"] == 2
    assert found.statistics["steps"] == 20 * 10
    assert all("its process ended" in words for words in said)


def test_an_actor_whose_environment_fails_restarts(tmp_path):
    hosts = [Faulty(str(tmp_path), "raise"), EnvMaker("gymnasium", "CartPole-v1", 2)]
    said = []
    found = train([learner()], hosts, num_updates=12, system=System("ray", lag=1), say=said.append, **SETTINGS)
    assert found.statistics["actors_restarted"] == 1
    assert said == ["actor 0: RuntimeError: the pole broke; it restarts in 1 s"]
