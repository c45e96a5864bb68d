"""`python -m marl.distributed`: its files, its resumption and its refusals."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import configs
from games.registry import make_game
from marl.distributed.config import DistributedConfig
from marl.distributed.experiment import DistributedExperiment
from marl.learners.registry import make_learner
from meta.runs import array_files
from tests.nightly import nightly

pytestmark = pytest.mark.system

FEW = ["--num-envs=2", "--steps-per-update=5", "--evaluation-episodes=4", "--checkpoint-seconds=0.5"]
SMALL = [*FEW, "--learner=impala(hidden=[8])"]
MODULE = "marl.distributed.__main__"
NEEDED = {
    "environment", "learner", "where", "inference", "num_actors", "evaluation_return", "learner_steps_per_cpu_second",
    "steps_per_second", "mean_lag", "actors_restarted", "seed",
}  # fmt: skip


def test_a_run_writes_its_files(within, tmp_path, headless):
    done = within(
        "CartPole-v1", *SMALL, "--total-steps=300", "--actors=2", "--where=threads", cwd=tmp_path, module=MODULE
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs/CartPole-v1-impala-0"
    summary = json.loads((run / "summary.json").read_text())
    assert summary.keys() >= NEEDED
    assert summary["evaluation_return"]["mean"] > 5
    assert summary["num_actors"] == 2
    assert "4 fresh episodes" in done.stdout
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, 31))
    assert (run / "figures/training_return.png").stat().st_size > 5000
    _, about = array_files.load_arrays(run / "learner.safetensors")[:2]
    assert about["method"] == "distributed"
    again = within("--resume", str(run), "--total-steps=400", cwd=tmp_path, module=MODULE)
    assert again.returncode == 0, again.stderr
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 40


def test_one_of_our_games_is_filmed(within, tmp_path, headless):
    small = [*FEW, "--learner=ppo(hidden=[4], minibatches=1)", "--total-steps=50"]
    done = within("coin_game(episode_length=5)", *small, cwd=tmp_path, module=MODULE)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("runs/*/figures/episode.gif"))) == 1
    assert "agent 1" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPol-v1"], "environment: got 'CartPol-v1'; did you mean CartPole-v1"),
        (["CartPole-v1", "--learner=impalas"], "learner: got 'impalas'"),
        (["Pendulum-v1", "--learner=dqn"], "Discrete is needed"),
        (["CartPole-v1", "--where=moon"], "where: got 'moon'; one of here, threads, ray is needed"),
        (["CartPole-v1", "--actors=0"], "actors: got 0"),
        (["CartPole-v1", "--inference=central"], "inference: got central"),
        (["CartPole-v1", "--path=gradients"], "path: got gradients"),
        (
            ["CartPole-v1", "--learner=a3c", "--path=gradients", "--inference=central", "--where=threads"],
            "inference: got central; actor is needed with path gradients",
        ),
        (["CartPole-v1", "--total-steps=3"], "total_steps: got 3"),
        (["CartPole-v1", "--seen", "9"], "seen: got [9]"),
        (["CartPole-v1", "--learner=impala + ppo"], "learner: got 2; one, or 1"),
        (["coin_game", "--learner=mappo"], "a learner that sees its own observation alone is needed"),
        (["CartPole-v1", "--learner=reinforce"], "steps in which nothing happened"),
        (["envpool(CartPole-v1)"], "EnvPool is not installed"),
        (["CartPole-v1", "--lag=-1"], "lag: got -1"),
        (["CartPole-v1", "--learner=dqn", "--where=threads", "--path=barrier", "--actors=3"], "multiple of the 192"),
        (["CartPole-v1", "--address=auto"], "address: has no effect with where here"),
        (["CartPole-v1", "--patience=5"], "patience: has no effect with where here"),
        (["coin_game", "--processes"], "processes: has no effect with coin_game"),
        (["CartPole-v1", "--past-selves=0.2"], "past_selves: got one learner for seats that are not alike"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, words, within, tmp_path):
    done = within(*arguments, cwd=tmp_path, module=MODULE)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@nightly
def test_presets_are_known_to_fit():
    """Presets that need no further package; each is one system of the literature."""
    names = configs.presets("distributed")
    assert {"a3c", "ape_x", "impala", "seed_rl", "openai_five", "openai_five_self_play", "acme", "rllib"} <= set(names)
    for name in names:
        config = configs.load(DistributedConfig, "distributed", name)
        if "rlx2" in name or "half_cheetah" in name:  # MuJoCo is an extra: the learner is made for another game
            make_learner(config.learner, make_game("pendulum"))
        elif not config.environment.startswith("ALE/"):
            DistributedExperiment(config)


def test_learners_of_one_spec_have_common_steps_and_a_common_path():
    config = DistributedConfig(environment="ipd", learner="ppo(minibatches=2) + impala", total_steps=10_000)
    assert [learner.seat for learner in DistributedExperiment(config).setup.learners] == [0, 1]
    assert DistributedConfig(learner="r2d2(sequence_length=33)").rollout_steps == 33
    assert DistributedConfig(learner="r2d2").rollout_steps == 20
    DistributedExperiment(DistributedConfig("Pendulum-v1", learner="sac"))  # the steps divide its buffer
    for a3c in ("a3c", "a3c(hidden=[8])", "a3c + ppo", "a3c() + ppo"):
        assert DistributedConfig(learner=a3c).data_path == "gradients"
    assert {DistributedConfig(learner=ppo).rollout_steps for ppo in ("ppo", "ppo + a2c", "ppo() + a2c")} == {128}


def test_a_barrier_makes_one_batch_of_what_all_actors_play():
    """Minibatches divide the joint batch, by whole environments for a network with memory."""
    settings = {"learner": "ppo(network='recurrent')", "where": "threads", "path": "barrier", "num_envs": 2}
    DistributedExperiment(DistributedConfig("CartPole-v1", actors=4, **settings))
    with pytest.raises(ValueError, match="minibatches: got 4; a divisor of the 6 environments"):
        DistributedExperiment(DistributedConfig("CartPole-v1", actors=3, **settings))


@nightly
def test_a_run_that_is_stopped_goes_on(within, tmp_path, environment, headless):
    """A resumed run does not import Ray: a package of that name, found first, would fail."""
    (tmp_path / "ray.py").write_text("open('imported', 'w')")
    line = [sys.executable, "-m", "marl.distributed", "CartPole-v1", *SMALL, "--total-steps=40000", "--out=run"]
    process = subprocess.Popen(
        line, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if list((tmp_path / "run/checkpoints").glob("[0-9]*")):
            break
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, words = process.communicate(timeout=600)
    assert process.returncode == 130, words
    assert "--resume run" in words
    before = len((tmp_path / "run/metrics.jsonl").read_text().splitlines())
    assert 0 < before < 4000
    assert not (tmp_path / "imported").exists()
    done = within("--resume", "run", cwd=tmp_path, module=MODULE)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    np.testing.assert_array_equal([json.loads(row)["update"] for row in rows], np.arange(1, 4001))
