"""`python -m marl.train`: its files, its training, its resumption and its refusals."""

import json
import signal

import jax
import numpy as np
import pytest
import yaml

from games import make
from marl import learn
from marl.blocks.networks import feed_forward
from marl.experiments import single_agent
from marl.experiments.learner_training import TrainConfig
from marl.learners.sampled.ppo import ppo
from marl.train import main
from meta.runs import array_files

pytestmark = pytest.mark.system

GAME = "CartPole-v1(max_steps_in_episode=20)"
SMALL = [
    "--learner=ppo(hidden=[4], epochs=1, minibatches=2)",
    "--num-envs=2",
    "--steps-per-update=8",
    "--evaluation-episodes=6",
    "--checkpoint-seconds=0",
]
UPDATES = 12
TIMINGS = ("wall_seconds", "seconds_to_compile", "steps_per_second", "digest")


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def reached(path):
    return max((int(folder.name) for folder in path.glob("checkpoints/*") if folder.name.isdigit()), default=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run of two seeds from beginning to end."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers
        patch.chdir(folder)
        # Seven steps are left over after the last whole update.
        steps = f"--total-steps={UPDATES * 16 + 7}"
        assert main([GAME, *SMALL, "--seeds=2", "--seed=5", steps, "--out=run", "--quiet"]) == 0
    return folder / "run"


def test_the_evaluation_hardly_counts_in_the_time_that_is_left():
    """Three times as many steps as the training, in which nothing is learned, take a small part of its time."""
    sizes = {"total_steps": 20_000, "num_envs": 1, "steps_per_update": 8, "evaluation_episodes": 300}
    config = TrainConfig("Pendulum-v1", "td3(hidden=[4])", **sizes)
    training, evaluation = single_agent.SingleAgent(config).work().values()
    assert training == 20_000
    assert 0 < evaluation < 0.1 * training


def test_a_run_writes_its_files(finished):
    found = json.loads((finished / "summary.json").read_text())
    expected = """conclusion environment learner seed seeds total_steps returns training_return evaluation_episodes
        steps_per_second seconds_to_compile wall_seconds versions devices precision deterministic config_digest
        digest"""
    assert set(expected.split()) == set(found)
    assert (found["environment"], found["seed"], found["seeds"], found["total_steps"]) == (GAME, 5, 2, UPDATES * 16)
    assert [row["update"] for row in rows(finished)] == list(range(1, UPDATES + 1))
    assert (finished / "figures" / "training_return.png").read_bytes()[:4] == b"\x89PNG"
    assert reached(finished) == UPDATES
    assert yaml.safe_load((finished / "config.yaml").read_text())["num_envs"] == 2


def test_returns_are_reported_of_each_seed_and_over_all(finished):
    found = summary(finished)
    for name in ("returns", "training_return"):
        assert [one["seed"] for one in found[name]["seeds"]] == [5, 6]
        a, b = (one["mean"] for one in found[name]["seeds"])
        assert 1 <= min(a, b) <= max(a, b) <= 20
        assert found[name]["mean"] == pytest.approx((a + b) / 2)
        assert found[name]["standard_error"] == pytest.approx(abs(a - b) / 2)
    last = [row["training_return"][0] for row in rows(finished)[-2:]]  # a tenth of twelve, rounded up
    assert found["training_return"]["seeds"][0]["mean"] == pytest.approx(np.mean([x for x in last if x is not None]))


def test_each_seed_has_the_results_of_learn(finished):
    arrays, metadata = array_files.load_arrays(finished / "learner.safetensors")
    assert metadata["config"]["environment"] == GAME
    game = make("CartPole-v1", max_steps_in_episode=20)
    learner = ppo(game, network=feed_forward((4,), 2, hidden=[4]), epochs=1, minibatches=2)
    run = jax.jit(lambda key: learn(key, game, [learner], num_updates=UPDATES, steps_per_update=8, num_envs=2))
    for i, seed in enumerate((5, 6)):
        history = run(jax.random.key(seed))
        expected = {f"params.{name}": x for name, x in array_files.named_leaves(history.states[0].params).items()}
        assert expected.keys() == arrays.keys()
        for name, x in expected.items():
            np.testing.assert_allclose(arrays[name][i], x, rtol=1e-3, atol=1e-5)
        returns = [row["training_return"][i] for row in rows(finished)]
        np.testing.assert_allclose([np.nan if x is None else x for x in returns], history.returns[0], rtol=1e-5)


def test_a_stopped_run_ends_with_the_files_of_an_unbroken_run(within, tmp_path, monkeypatch):
    path = tmp_path / "run"
    steps = 16 * 40
    arguments = [GAME, *SMALL, f"--total-steps={steps}", "--out=run"]
    for _ in range(2):
        before = reached(path)

        def stop(progress, update, metrics, seconds, before=before):
            if update > before and reached(path) > before:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(single_agent.Progress, "__call__", stop)
            stopped = within(*arguments, cwd=tmp_path, module="marl.train")
        expected = "python -m marl.train: stopped; go on with python -m marl.train --resume run\n"
        assert (stopped.returncode, stopped.stderr) == (130, expected)
        assert not (path / "summary.json").exists()
        assert reached(path) > before
        arguments = [GAME, "--resume", "run"]
    whole = within(GAME, *SMALL, f"--total-steps={steps}", "--out=whole", cwd=tmp_path, module="marl.train")
    assert whole.returncode == 0, whole.stderr
    for words in (
        GAME,
        "ppo",
        f"update {steps // 16}/{steps // 16}",
        "environment steps/s",
        "left",
        "written to whole",
    ):
        assert words in whole.stdout
    resumed = within("--resume", "run", "--quiet", cwd=tmp_path, module="marl.train")
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "", "")
    assert summary(path) == summary(tmp_path / "whole")
    assert rows(path) == rows(tmp_path / "whole")
    (ours, settings), (theirs, others) = (
        array_files.load_arrays(folder / "learner.safetensors") for folder in (path, tmp_path / "whole")
    )
    assert settings == others
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_run_without_ended_episodes_reports_no_return(within, tmp_path):
    recurrent = "--learner=ppo(network='recurrent', hidden=[4], memory=4, epochs=1, minibatches=1)"
    few = [one for one in SMALL[1:] if "episodes" not in one]
    steps = ["--total-steps=32", "--evaluation-episodes=5"]  # no whole episode, and no multiple of the environments
    result = within("reacher(episode_length=30)", *few, recurrent, *steps, cwd=tmp_path, module="marl.train")
    assert result.returncode == 0, result.stderr
    assert "no episode has ended" in result.stdout
    (path,) = (tmp_path / "runs").iterdir()
    assert rows(path)[0]["training_return"] is None  # JSON has no NaN
    found = summary(path)
    assert found["training_return"]["mean"] is None
    assert found["returns"]["standard_error"] is None  # one seed has none
    assert np.isfinite(found["returns"]["mean"])


def test_a_strategy_without_parameters_is_a_baseline(within, tmp_path):
    small = ["--learner=always_defect", "--num-envs=2", "--steps-per-update=8", "--total-steps=16", "--seeds=2"]
    result = within("ipd(episode_length=4)", *small, "--evaluation-episodes=2", cwd=tmp_path, module="marl.train")
    assert result.returncode == 0, result.stderr
    (path,) = (tmp_path / "runs").iterdir()
    assert summary(path)["returns"]["mean"] == -16  # of two players in four rounds


BAD = {
    "unknown game": (["CartPole-v2"], "environment: got 'CartPole-v2'; did you mean CartPole-v1"),
    "unknown parameter": (["CartPole-v1(size=3)"], "unknown parameter size"),
    "half a bracket": (["CartPole-v1(length=3"], "environment: got 'CartPole-v1(length=3'"),
    "unknown learner": ([GAME, "--learner=ppp"], "learner: got 'ppp'; did you mean ppo"),
    "unknown setting": ([GAME, "--learner=ppo(rate=1)"], "learner: ppo has no setting 'rate'"),
    "what does not divide": ([GAME, "--learner=ppo(minibatches=5)"], "minibatches: got 5; a divisor of the 512 steps"),
    "negative seed": ([GAME, "--seed=-1"], "seed: got -1"),
    "no time": ([GAME, "--total-steps=511"], "total_steps: got 511; at least num_envs times steps_per_update, 512"),
    "no episode": ([GAME, "--evaluation-episodes=0"], "evaluation_episodes: got 0"),
    "negative pause": ([GAME, "--checkpoint-seconds=-1"], "checkpoint_seconds: got -1"),
    "missing file": (["mine.yaml"], "preset: got 'mine.yaml'"),
    "unknown key": (["key.yaml"], "unknown field learners; did you mean learner"),
}


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "key.yaml").write_text("learners: ppo\n")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_status_2_and_leaves_nothing(name, within, bad_folder):
    arguments, message = BAD[name]
    before = sorted(bad_folder.rglob("*"))
    result = within(*arguments, cwd=bad_folder, module="marl.train")
    assert result.returncode == 2
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert message in result.stderr
    assert result.stdout == ""
    assert sorted(bad_folder.rglob("*")) == before


def test_a_game_with_observations_of_several_parts_is_refused(within, tmp_path):
    from games import registry
    from games.suite.gymnax import from_gymnax

    class Parts(type(from_gymnax("CartPole-v1"))):
        def reset(self, key):
            observations, state = super().reset(key)
            return {"agent_0": {"all": observations["agent_0"]}}, state

    bare = from_gymnax("CartPole-v1")
    registry.register("parts", lambda: Parts(bare.environment, bare.params), "CartPole in a dictionary")
    try:
        result = within("parts", cwd=tmp_path, module="marl.train")
    finally:
        del registry._ENTRIES["parts"]
    assert result.returncode == 2
    assert "observations with several parts; an array is needed" in result.stderr
