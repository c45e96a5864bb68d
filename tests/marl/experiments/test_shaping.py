"""A shaping experiment in both kinds of game: its files, its resumption and its agents."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import yaml
from PIL import Image

from marl import load_agent
from marl.core.learn import learn
from marl.experiments.shaping import experiment
from marl.experiments.shaping.sampled import SampledShaping
from marl.mfos import main
from marl.shapers.trial import play
from meta.batched_trials import run_trials
from meta.runs import array_files
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

KINDS = {
    "formula": {
        "game": "prisoners_dilemma",
        "meta_steps": 5,
        "hidden_units": 4,
        "trials": 2,
        "evaluation_trials": 16,
        "unseen": ["all_d"],
        "evolution": {"population_size": 8, "generations": 40, "checkpoint_seconds": 0},
    },
    "sampled": {
        "environment": "ipd(episode_length=4)",
        "opponent": "reinforce",
        "unseen": ["random"],
        "shaper": "shaper(hidden_units=3)",
        "meta_steps": 3,
        "episode_length": 4,
        "num_envs": 12,  # arrays of more than ten entries stay arrays, which compile faster than scalars
        "trials": 1,
        "start": "screened(candidates=8, finalists=2, final_trials=3)",
        "evaluation_trials": 5,
        "evolution": {"population_size": 4, "generations": 40, "checkpoint_seconds": 0},
        "meta_ppo": {"iterations": 3, "batch_size": 2, "epochs": 1, "checkpoint_seconds": 0},
    },
}
OPPONENTS = {"formula": ("naive", "all_d"), "sampled": ("reinforce", "random")}
COINS = [
    "--environment=coin_game(num_coins=2, episode_length=4)",
    "--shaper=mfos(hidden_units=3, channels=1)",
    "--meta-learner=ppo",
    "--num-envs=2",
    "--evaluation-trials=2",
    "--unseen",
]
TIMINGS = ("wall_seconds", "seconds_to_compile", "meta_steps_per_second", "environment_steps_per_second", "digest")
FIGURES = {
    "formula": {"learning_curve.png", "trial_payoffs.png", "opponents.png", "payoff_polygon.png", "policy.png"}
    | {"cooperation.png"},
    "sampled": {"learning_curve.png", "trial_payoffs.png", "opponents.png", "states.png", "episodes.gif"},
}
both = pytest.mark.parametrize("kind", KINDS)
one_of_both = pytest.mark.parametrize("kind", grid(KINDS, "formula"))


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def checkpoints(path):
    return sorted(folder for folder in path.glob("checkpoints/*") if folder.name.isdigit())


def is_a_picture(file):
    kind = {".png": b"\x89PNG", ".gif": b"GIF8"}[file.suffix]
    return file.read_bytes()[:4] == kind


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the configs."""
    folder = tmp_path_factory.mktemp("shaping")
    for kind, config in KINDS.items():
        (folder / f"{kind}.yaml").write_text(yaml.safe_dump(config))
    return folder


def finish(folder, *arguments):
    """A whole run in this process; returns its console output."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers
        patch.setattr(SampledShaping, "at_once", 2)  # so that five trials are three groups

        patch.chdir(folder)
        assert main(arguments) == 0
    return shown.getvalue()


@pytest.fixture(scope="module")
def finished(folder):
    """A small evolution in each kind of game: (directory, console output)."""
    return {kind: (folder / kind, finish(folder, f"{kind}.yaml", "--seed=3", f"--out={kind}")) for kind in KINDS}


@pytest.fixture(scope="module")
def pairs(folder):
    """A function of a kind of game that gives two trainings, the first of them with the seed of `finished`."""

    @functools.cache
    def trained(kind):
        return folder / f"{kind}-2", finish(folder, f"{kind}.yaml", "--seed=3", "--seeds=2", f"--out={kind}-2")

    return trained


@pytest.fixture(scope="module")
def coins(folder):
    """A small training by PPO in the coin game, with two seeds."""
    shown = finish(folder, "sampled.yaml", *COINS, "--seeds=2", "--out=coins")
    return folder / "coins", shown


@both
def test_a_run_writes_its_files(kind, finished):
    path, _ = finished[kind]
    found = json.loads((path / "summary.json").read_text())
    expected = [
        "conclusion",
        "opponent",
        "shaper",
        "meta_learner",
        "start",
        "evolution",
        "shaper_return",
        "opponent_return",
        "against",
        "untrained",
        "own_kind",
        "num_trials",
        "seed",
        "seeds",
        "runs",
        "generations",
        "seconds_to_compile",
        "wall_seconds",
        "reads",
        "versions",
        "devices",
        "precision",
        "deterministic",
        "config_digest",
        "digest",
    ]
    expected += {
        "formula": """game shaper_standard_error opponent_standard_error zd policy cooperation bound num_meta_steps
            meta_steps_per_second""",
        "sampled": """environment num_shapers gain_over_own_kind num_environment_steps
            environment_steps_per_second""",
    }[kind].split()
    assert set(expected) == set(found)
    assert tuple(found["against"]) == OPPONENTS[kind]
    for played in (*found["against"].values(), found["untrained"], found["own_kind"]):
        payoffs = [value for name, value in played.items() if name != "cooperation"]
        assert all(-3 <= value["mean"] <= 0 <= value["standard_error"] < 2 for value in payoffs)
        shares = played.get("cooperation", [])
        assert len(shares) == (2 if played and kind == "sampled" else 0)
        assert all(0 <= share["mean"] <= 1 for share in shares)
    steps = {"formula": ("meta", 40 * 8 * 2 * 5), "sampled": ("environment", (8 + 2 * 3 + 40 * 4) * 3 * 4 * 12)}[kind]
    assert found[f"num_{steps[0]}_steps"] == steps[1]
    assert found[f"{steps[0]}_steps_per_second"] > 0
    trials = KINDS[kind]["evaluation_trials"]
    assert (found["num_trials"], found["generations"], found["seed"], found["seeds"]) == (trials, 40, 3, 1)
    assert [row["generation"] for row in rows(path)] == list(range(1, 41))
    assert {"fitness", "shaper_return", "opponent_return", "non_finite"} <= set(rows(path)[0])
    assert {file.name for file in (path / "figures").iterdir()} == FIGURES[kind]
    assert all(map(is_a_picture, (path / "figures").iterdir()))
    assert checkpoints(path)[-1].name == "00000040"
    kept = yaml.safe_load((path / "config.yaml").read_text())
    assert (kept["unseen"], kept["evaluation_trials"]) == (KINDS[kind]["unseen"], trials)


def test_the_first_numbers_of_a_summary_are_against_the_opponent_in_training(finished):
    exact, sampled = (summary(finished[kind][0]) for kind in KINDS)
    for side in ("shaper", "opponent"):
        found = exact["against"]["naive"][side]
        assert found == {"mean": exact[f"{side}_return"], "standard_error": exact[f"{side}_standard_error"]}
        assert sampled["against"]["reinforce"][side] == sampled[f"{side}_return"]
    assert exact["zd"]["least_chi"] == pytest.approx(1.04 / 0.92)
    assert all(0 <= share["mean"] <= 1 for share in (exact["zd"]["trials"], *exact["zd"]["chance"].values()))
    assert {name: len(policy) for name, policy in exact["policy"].items()} == {"start": 5, "middle": 5, "end": 5}
    gain = sampled["shaper_return"]["mean"] - sampled["own_kind"]["shaper"]["mean"]
    assert sampled["gain_over_own_kind"]["mean"] == pytest.approx(gain, abs=1e-6)


@both
def test_the_result_comes_from_fresh_trials_of_the_stored_shaper(kind, finished):
    """Trials are played one by one with the agent of the file, with a key that no generation used."""
    path, _ = finished[kind]
    agent = load_agent(path)
    config = agent.config
    game = config.make_game()
    for spec in OPPONENTS[kind]:
        shaper, opponent = agent.learner(agent.parameters), config.make_opponent(spec)
        if kind == "formula":
            one = jax.jit(lambda key: play(key, game, shaper, opponent, meta_steps=5).rewards)  # noqa: B023
        else:
            settings = {"num_updates": 3, "steps_per_update": 4, "num_envs": 12}
            one = jax.jit(lambda key: learn(key, game, [shaper, opponent], **settings).rewards)  # noqa: B023
        keys = jax.random.split(jax.random.fold_in(jax.random.key(3), 2**32 - 1), config.evaluation_trials)
        returns = np.array([one(key) for key in keys], np.float64)[
            ..., -config.steps_of_a_trial // (1 if kind == "formula" else 48) :
        ]
        found = summary(path)["against"][spec]
        for seat, name in enumerate(("shaper", "opponent")):
            each = returns[:, seat].mean(1)
            assert found[name]["mean"] == pytest.approx(each.mean(), abs=1e-5)
            assert found[name]["standard_error"] == pytest.approx(each.std(ddof=1) / len(each) ** 0.5, abs=1e-5)
            if kind == "sampled":
                assert found[f"{name}_last_episode"]["mean"] == pytest.approx(returns[:, seat, -1].mean(), abs=1e-5)


WORDS = {
    "formula": (
        "prisoners_dilemma",
        "8 candidates x 2 trials",
        "meta-steps/s",
        "zero-determinant",
        "payoff_polygon.png",
    ),
    "sampled": (
        "ipd(episode_length=4)",
        "4 candidates x 1 trial",
        "tried 8 of 8 random shapers",
        "steps/s",
        "gain over the opponent's own kind in the shaper's place",
        "states.png",
    ),
}


@both
def test_the_output_names_the_run_its_progress_and_its_results(kind, finished):
    _, shown = finished[kind]
    common = ("40 generations", "generation 40/40", "left", "fresh trials", "summary.json, agent.safetensors")
    for words in (*common, *WORDS[kind], *OPPONENTS[kind]):
        assert words in shown


@one_of_both
def test_a_killed_run_ends_as_an_unbroken_one(kind, environment, within, finished, tmp_path, monkeypatch):
    shutil.copy(finished[kind][0].parent / f"{kind}.yaml", tmp_path)
    path = tmp_path / "run"
    one_device = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "marl.mfos", f"{kind}.yaml", "--seed=3", "--out=run"],
        cwd=tmp_path,
        env=environment | one_device,  # the number of this process
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.time() + 120
    while not checkpoints(path) and time.time() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.communicate(timeout=600)[1] == ""
    assert process.returncode == -signal.SIGKILL
    assert not (path / "summary.json").exists()
    monkeypatch.setattr(SampledShaping, "at_once", 2)
    resumed = within("--resume=run", "--quiet", cwd=tmp_path)
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "", "")
    assert rows(path) == rows(finished[kind][0])
    assert summary(path) == summary(finished[kind][0])
    kept, resumed = (array_files.load_arrays(one / "agent.safetensors")[0] for one in (finished[kind][0], path))
    for name, array in resumed.items():
        np.testing.assert_array_equal(kept[name], array)


@nightly
@both
def test_evaluations_before_a_stop_are_not_repeated(kind, within, finished, tmp_path, monkeypatch):
    path = shutil.copytree(finished[kind][0], tmp_path / "run")
    assert not (path / "evaluation").exists()  # the summary has the results
    (path / "summary.json").unlink()
    monkeypatch.setattr(SampledShaping, "at_once", 2)
    calls = []

    def resume(stop_at=0):
        """Resumes the run; returns the exit status and the number of opponents that were played."""

        def play(*arguments):
            calls.append(arguments)
            if len(calls) == stop_at:
                raise KeyboardInterrupt
            return run_trials(*arguments)

        calls.clear()
        monkeypatch.setattr(experiment, "run_trials", play)
        return within("--resume=run", "--quiet", cwd=tmp_path).returncode, len(calls)

    assert resume(stop_at=2) == (130, 2)
    (first,) = path.glob("evaluation/*.safetensors")
    assert resume(stop_at=1) == (130, 1)  # the first opponent is finished
    os.truncate(first, first.stat().st_size // 2)
    assert resume(stop_at=2) == (130, 2)  # a damaged file does not count
    opponents = len(summary(finished[kind][0])["against"]) + 2  # the controls
    assert resume() == (0, opponents - 1)
    assert summary(path) == summary(finished[kind][0])
    assert not (path / "evaluation").exists()


@nightly
@both
def test_several_trainings_are_reported_each_and_pooled(kind, pairs, finished):
    path, shown = pairs(kind)
    found = summary(path)
    assert [run["seed"] for run in found["runs"]] == [3, 4]
    for spec in OPPONENTS[kind]:
        for side in ("shaper", "opponent"):
            a, b = (run["against"][spec][side]["mean"] for run in found["runs"])
            pooled = found["against"][spec][side]
            assert pooled["mean"] == pytest.approx((a + b) / 2)
            assert pooled["standard_error"] == pytest.approx(abs(a - b) / 2)  # between trainings
    assert found["num_trials"] == 2 * KINDS[kind]["evaluation_trials"]
    assert np.shape(rows(path)[0]["fitness"]) == (2,)
    assert "seed 4" in shown
    assert "error over trainings" in shown
    assert {file.name for file in (path / "figures").iterdir()} == FIGURES[kind]
    alone = summary(finished[kind][0])
    for side in ("shaper", "opponent"):
        first = found["runs"][0]["against"][OPPONENTS[kind][0]][side]
        assert first["mean"] == pytest.approx(alone["against"][OPPONENTS[kind][0]][side]["mean"], abs=1e-3)


@nightly
def test_trainings_in_sequence_have_the_results_of_single_ones(pairs, finished):
    together, alone = rows(pairs("sampled")[0]), rows(finished["sampled"][0])
    np.testing.assert_allclose([row["fitness"][0] for row in together], [row["fitness"] for row in alone], atol=1e-6)


@nightly
@both
def test_an_agent_of_several_trainings_draws_one_of_them(kind, pairs):
    agent = load_agent(pairs(kind)[0])
    assert agent.config.seeds == 2
    learner = agent.learner(agent.parameters)
    drawn = {int(learner.init(jax.random.key(i)).which) for i in range(8)}
    assert drawn == {0, 1}


def test_the_film_shows_three_episodes_side_by_side(finished):
    with Image.open(finished["sampled"][0] / "figures" / "episodes.gif") as film:
        assert film.n_frames == 4
        width, height = film.size
    # The player and four rounds, in cells of 32 pixels; below the payoffs, three rows of 12 cells of 24 pixels.
    one = max(5 * 32, 12 * 24)
    assert (width, height) == (3 * one + 2 * 12, 2 * 32 + 8 + 3 * 24)


@nightly
def test_a_run_by_ppo_in_the_coin_game(coins):
    path, shown = coins
    found = summary(path)
    assert (found["meta_learner"], found["generations"]) == ("ppo", 3)
    assert checkpoints(path)[-1].name == "00000003"
    assert found["num_environment_steps"] == 2 * 3 * 2 * 3 * 4 * 2
    assert [row["generation"] for row in rows(path)] == [1, 2, 3]
    assert {"entropy", "value_loss", "kl"} <= set(rows(path)[0])
    for played in (*found["against"].values(), found["own_kind"]):
        assert len(played["own_coin_share"]) == 2
        assert all(0 <= share["mean"] <= 1 for share in played["own_coin_share"])
    figures = {"learning_curve.png", "trial_payoffs.png", "opponents.png", "own_coins.png", "episodes.gif"}
    assert {file.name for file in (path / "figures").iterdir()} == figures
    assert all(map(is_a_picture, (path / "figures").iterdir()))
    assert "condition_w" in load_agent(path).parameters
    lines = shown[shown.index("own coins of those taken") :].splitlines()
    groups = found["against"]["reinforce"], found["untrained"], found["own_kind"]
    assert groups[0] != groups[1]
    shown = [line for line in lines[1:] if "±" in line]
    for line, group in zip(shown, groups, strict=False):
        values = [float(x) for x in re.findall(r"(-?[\d.]+) ±", line)]
        assert values == [round(x["mean"], 3) for x in group["own_coin_share"]]


@nightly
def test_both_shapers_of_a_pair_are_stored_and_the_row_meets_the_unseen(within, tmp_path):
    (tmp_path / "formula.yaml").write_text(yaml.safe_dump(KINDS["formula"]))
    result = within("formula.yaml", "--opponent=self_play", "--out=run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert list(summary(tmp_path / "run")["against"]) == ["self_play", "all_d"]
    row, column = (load_agent(tmp_path / "run" / f"{name}agent.safetensors") for name in ("", "column_"))
    assert {name: x.shape for name, x in row.parameters.items()} == {
        name: x.shape for name, x in column.parameters.items()
    }
    assert not np.array_equal(row.parameters["w1"], column.parameters["w1"])
