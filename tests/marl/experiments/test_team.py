"""`python -m marl.train` in games of several players: files, seats, resumption and refusals."""

import json
import signal

import jax
import numpy as np
import pytest

import marl
from games import make
from marl.core.seats import shared
from marl.experiments import single_agent
from marl.experiments.learner_training import TrainConfig, make_program
from marl.train import main
from meta.runs import array_files
from tests.nightly import nightly

pytestmark = pytest.mark.system

GAME = "coin_game(episode_length=8)"
SPEC = "mappo(hidden=[4], epochs=1, minibatches=2)"
SMALL = ["--num-envs=2", "--steps-per-update=8", "--evaluation-episodes=6", "--checkpoint-seconds=0"]
UPDATES = 6
TIMINGS = ("wall_seconds", "seconds_to_compile", "steps_per_second", "digest")


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run of two seeds with one network for both players."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers
        patch.chdir(folder)
        steps = f"--total-steps={UPDATES * 16}"
        assert main([GAME, f"--learner={SPEC}", *SMALL, "--seeds=2", "--seed=5", steps, "--out=run", "--quiet"]) == 0
    return folder / "run"


def test_a_run_reports_collective_returns_and_those_of_each_seat(finished):
    found = summary(finished)
    assert (found["players"], found["share"]) == (2, True)
    assert (finished / "figures" / "training_return.png").read_bytes()[:4] == b"\x89PNG"
    of_seats = [one["mean"] for one in found["returns_by_seat"]]
    assert found["returns"]["mean"] == pytest.approx(sum(of_seats))
    counts = found["counts"]
    # A coin is worth 1, and a stolen one costs its owner 2; counts are means over the players.
    assert found["returns"]["mean"] == pytest.approx(2 * (counts["own_coin"]["mean"] - counts["other_coin"]["mean"]))
    last = rows(finished)[-1]
    for seed in range(2):
        each = [last[f"return_of_seat_{seat}"][seed] for seat in range(2)]
        assert last["training_return"][seed] == pytest.approx(sum(each), rel=1e-5, abs=1e-5)


@nightly
def test_each_seed_has_the_results_of_learn(finished):
    arrays, metadata = array_files.load_arrays(finished / "learner.safetensors")
    agent = marl.load_agent(finished, number=1)
    assert all(
        np.array_equal(x, arrays[f"params.{name}"][1])
        for name, x in array_files.named_leaves(agent.parameters.params).items()
    )
    assert metadata["config"]["share"]
    game = make(GAME.partition("(")[0], episode_length=8)
    team = shared(marl.make_learner(SPEC, game), game)
    run = jax.jit(lambda key: marl.learn(key, game, [team], num_updates=UPDATES, steps_per_update=8, num_envs=2))
    for i, seed in enumerate((5, 6)):
        history = run(jax.random.key(seed))
        expected = {f"params.{name}": x for name, x in array_files.named_leaves(history.states[0].params).items()}
        assert expected.keys() == arrays.keys()
        for name, x in expected.items():
            np.testing.assert_allclose(arrays[name][i], x, rtol=1e-3, atol=1e-5)
        for seat in range(2):
            returns = [row[f"return_of_seat_{seat}"][i] for row in rows(finished)]
            np.testing.assert_allclose(returns, history.returns[seat], rtol=1e-5, atol=1e-6)


@nightly
def test_a_stopped_run_with_one_network_for_each_ends_with_the_files_of_an_unbroken_run(within, tmp_path, monkeypatch):
    arguments = [GAME, "--learner=pqn(hidden=[4], minibatches=2)", "--no-share", *SMALL, "--total-steps=320"]

    def stop(progress, update, metrics, seconds):
        if any((tmp_path / "run").glob("checkpoints/*")):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(single_agent.Progress, "__call__", stop)
        assert within(*arguments, "--out=run", cwd=tmp_path, module="marl.train").returncode == 130
    assert not (tmp_path / "run" / "summary.json").exists()
    whole = within(*arguments, "--out=whole", cwd=tmp_path, module="marl.train")
    assert whole.returncode == 0, whole.stderr
    assert "2 players, one network for each" in whole.stdout
    assert within("--resume", "run", "--quiet", cwd=tmp_path, module="marl.train").returncode == 0
    assert summary(tmp_path / "run") == summary(tmp_path / "whole")
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    ours, theirs = (array_files.load_arrays(tmp_path / name / "learner.safetensors")[0] for name in ("run", "whole"))
    assert ours.keys() == theirs.keys()
    assert {name.partition(".")[0] for name in ours} == {"seat_0", "seat_1"}
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    for seat in range(2):
        agent = marl.load_agent(tmp_path / "run", number=seat)
        assert agent.learner(agent.parameters).seat == seat
        kernel = ours[f"seat_{seat}.params.Dense_0.kernel"][0]
        assert np.array_equal(agent.parameters.params["Dense_0"]["kernel"], kernel)
    with pytest.raises(ValueError, match="number: got 2; one of 0, 1 is needed"):
        marl.load_agent(tmp_path / "run", number=2)


@nightly
def test_the_presets_of_several_players_fit_their_games():
    for preset in ("harvest", "harvest_socialjax"):
        config = single_agent.configs.load(TrainConfig, "train", preset)
        program = make_program(config)
        assert len(program.learners) == 1
        assert program.learners[0].num_seats == program.game.num_agents


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coin_game", "--learner=mappo(critic=3)"], "learner: mappo has no setting 'critic'"),
        (["coin_game", "--learner=pqn(network='recurrent')"], "network: got one with memory"),
        (["coin_game", "--share=2"], "--share: got '2'"),
        (["pendulum", "--no-share"], "no_share: has no effect in a game of one player"),
    ],
)
def test_misfits_are_one_line(within, tmp_path, arguments, message):
    result = within(*arguments, cwd=tmp_path, module="marl.train")
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
