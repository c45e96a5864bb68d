"""`python -m marl.mfos` in sampled games: what it writes, how it resumes, what it refuses; and `reproduce shaper`."""

import dataclasses
import importlib
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
from rich.console import Console

import configs
import marl
from marl import reproduce_shaper, sampled_experiment, tensors
from marl.sampled import play_sampled
from marl.sampled_config import SampledConfig
from marl.sampled_experiment import Played, Speed, analyse, load_shaper, own_coin_share
from marl.sampled_figures import share_of_occasions
from marl.sampled_ppo import SampledPPO
from meta import Evolution, Evolved

TINY = {
    "environment": "ipd(episode_length=4)",
    "opponent": "reinforce",
    "shaper": "shaper(hidden_units=3)",
    "episodes": 3,
    "episode_length": 4,
    "num_envs": 12,  # what has more than ten entries is not taken apart, and sooner compiled
    "trials": 1,
    "evaluation_trials": 5,
    "evolution": {"population_size": 4, "generations": 200, "checkpoint_seconds": 0},
    "meta_ppo": {"iterations": 3, "batch_size": 2, "epochs": 1, "checkpoint_seconds": 0},
}
FINISHED = ["--unseen", "random", "--seed=3"]
COINS = [
    "--environment=coin_game(num_coins=2, episode_length=4)",
    "--shaper=mfos(hidden_units=3, channels=1)",
    "--meta-learner=ppo",
    "--num-envs=2",
    "--evaluation-trials=2",
]
TIMINGS = ("wall_seconds", "seconds_to_compile", "environment_steps_per_second")


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def checkpoints(path):
    return sorted(folder for folder in path.glob("checkpoints/*") if folder.name.isdigit())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where there are configs."""
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return folder


def finish(folder, *arguments):
    """A run from beginning to end, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers
        patch.setattr(sampled_experiment, "AT_ONCE", 2)  # so that five trials are three groups
        patch.setattr(marl, "mfos", marl.mfos)  # a function of that name, in whose place the import puts the module
        patch.chdir(folder)
        assert importlib.import_module("marl.mfos").main(["tiny.yaml", *arguments, "--quiet"]) == 0


@pytest.fixture(scope="module")
def finished(folder):
    """A small evolution in the prisoner's dilemma."""
    finish(folder, *FINISHED, "--out=run")
    return folder / "run"


@pytest.fixture(scope="module")
def coins(folder):
    """A small training by PPO in the coin game."""
    finish(folder, *COINS, "--out=coins")
    return folder / "coins"


def is_a_picture(file):
    kind = {".png": b"\x89PNG", ".gif": b"GIF8"}[file.suffix]
    return file.read_bytes()[:4] == kind


def test_a_run_leaves_all_that_is_promised(finished):
    found = json.loads((finished / "summary.json").read_text())
    expected = """environment opponent shaper num_shapers meta_learner shaper_return opponent_return against naive
        gain_over_naive num_trials seed generations num_environment_steps environment_steps_per_second
        seconds_to_compile wall_seconds versions devices"""
    assert set(expected.split()) == set(found)
    assert list(found["against"]) == ["reinforce", "random"]
    for played in (*found["against"].values(), found["naive"]):
        assert set(played) == {"shaper", "opponent", "shaper_last_episode", "opponent_last_episode"}
        assert all(-3 <= value["mean"] <= 0 <= value["standard_error"] < 2 for value in played.values())
    assert found["shaper_return"] == found["against"]["reinforce"]["shaper"]
    assert found["opponent_return"] == found["against"]["reinforce"]["opponent"]
    gain = found["shaper_return"]["mean"] - found["naive"]["shaper"]["mean"]
    assert found["gain_over_naive"]["mean"] == pytest.approx(gain, abs=1e-6)
    assert (found["num_trials"], found["generations"], found["seed"]) == (5, 200, 3)
    assert (
        found["num_environment_steps"] == 200 * 4 * 3 * 4 * 12
    )  # generations, candidates, episodes, steps, environments
    assert found["environment_steps_per_second"] > 0
    assert [row["generation"] for row in rows(finished)] == list(range(1, 201))
    assert {"fitness", "shaper_return", "opponent_return", "non_finite"} <= set(rows(finished)[0])
    figures = {"learning.png", "opponents.png", "evolution.png", "states.png", "episodes.gif"}
    assert {file.name for file in (finished / "figures").iterdir()} == figures
    assert all(map(is_a_picture, (finished / "figures").iterdir()))
    assert yaml.safe_load((finished / "config.yaml").read_text())["unseen"] == ["random"]


def test_the_result_is_of_fresh_trials_of_the_shaper_that_is_kept(finished):
    config, policy, parameters = load_shaper(finished)
    assert (config.shaper, config.opponent, config.seed) == ("shaper(hidden_units=3)", "reinforce", 3)
    game = config.make_game()
    opponents = config.make_opponents(game)
    play = jax.jit(lambda key: play_sampled(key, game, policy, parameters, opponents, **config.lengths).rewards)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(3), 2**32 - 1), 5)  # one that no generation drew from
    returns = np.array([play(key) for key in keys], np.float64)
    assert returns.shape == (5, 2, 3)
    found = summary(finished)["against"]["reinforce"]
    for seat, name in enumerate(("shaper", "opponent")):
        each = returns[:, seat].mean(1)
        assert found[name]["mean"] == pytest.approx(each.mean(), abs=1e-5)
        assert found[name]["standard_error"] == pytest.approx(each.std(ddof=1) / 5**0.5, abs=1e-5)
        assert found[f"{name}_last_episode"]["mean"] == pytest.approx(returns[:, seat, -1].mean(), abs=1e-5)


def test_the_film_shows_three_episodes_side_by_side(finished):
    with Image.open(finished / "figures" / "episodes.gif") as film:
        assert film.n_frames == 4
        width, height = film.size
    one = 5 * 32  # who it is and four rounds, in cells of 32 pixels
    assert (width, height) == (3 * one + 2 * 12, 2 * 32)


def test_a_run_by_ppo_in_the_coin_game(coins):
    found = summary(coins)
    assert (found["meta_learner"], found["generations"]) == ("ppo", 3)
    assert checkpoints(coins)[-1].name == "00000003"
    assert found["num_environment_steps"] == 3 * 2 * 3 * 4 * 2
    assert [row["generation"] for row in rows(coins)] == [1, 2, 3]
    assert {"entropy", "value_loss", "divergence"} <= set(rows(coins)[0])
    for played in (*found["against"].values(), found["naive"]):
        assert len(played["own_coin_share"]) == 2
        assert all(0 <= share["mean"] <= 1 for share in played["own_coin_share"])
    figures = {"learning.png", "opponents.png", "evolution.png", "own_coins.png", "episodes.gif"}
    assert {file.name for file in (coins / "figures").iterdir()} == figures
    assert all(map(is_a_picture, (coins / "figures").iterdir()))
    assert "condition_w" in load_shaper(coins)[2]


def test_the_table_tells_whose_coins_were_taken(coins):
    config, found = load_shaper(coins)[0], json.loads((coins / "summary.json").read_text())
    console = Console(file=io.StringIO(), width=200)
    sampled_experiment.print_result(console, config, found, coins, [coins / "figures" / "own_coins.png"])
    head, *lines = console.file.getvalue().splitlines()
    assert re.split(r"\s{2,}", head.strip()) == ["against", "shaper", "opponent", "own coins", "opponent's"]
    assert [line.split("  ")[0].strip() for line in lines[:2]] == ["reinforce", "learners alone"]
    for line, group in zip(lines, (found["against"]["reinforce"], found["naive"]), strict=False):
        values = [group["shaper"], group["opponent"], *group["own_coin_share"]]
        assert [float(x) for x in re.findall(r"(-?[\d.]+) ±", line)] == [round(x["mean"], 3) for x in values]


def test_a_run_that_is_killed_ends_as_if_it_never_was(environment, within, finished, tmp_path, monkeypatch):
    shutil.copy(finished.parent / "tiny.yaml", tmp_path)
    path = tmp_path / "run"
    one_device = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "marl.mfos", "tiny.yaml", *FINISHED, "--out=run"],
        cwd=tmp_path,
        env=environment | one_device,  # as many as this process has
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.time() + 120
    while not checkpoints(path) and time.time() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGKILL
    assert not (path / "summary.json").exists()
    monkeypatch.setattr(sampled_experiment, "AT_ONCE", 2)
    resumed = within("--resume=run", cwd=tmp_path)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert rows(path) == rows(finished)
    assert summary(path) == summary(finished)
    kept = load_shaper(finished)[2]
    for name, array in load_shaper(path)[2].items():
        np.testing.assert_array_equal(kept[name], array)
    for words in (
        "ipd(episode_length=4): shaper(hidden_units=3) against reinforce, by evolution",
        "200 generations of 4 trials",
        "generation 200/200",
        "left",
        "learners alone",
        "gain over learners alone",
        "written to run: summary.json, shaper.safetensors, learning.png",
    ):
        assert words in resumed.stdout


def test_a_shaper_that_is_damaged_or_none_is_one_line(finished, tmp_path):
    kept = load_shaper(finished)[2]
    arrays, _ = tensors.load(finished / "shaper.safetensors")
    assert {name: x.shape for name, x in kept.items()} == {name: x.shape for name, x in arrays.items()}
    for name, array in arrays.items():
        np.testing.assert_array_equal(kept[name], array)
    file = tmp_path / "shaper.safetensors"
    contents = (finished / "shaper.safetensors").read_bytes()
    file.write_bytes(contents[: len(contents) // 2])
    messages = [_refused(tmp_path), _refused(tmp_path / "nowhere")]
    tensors.replace(file, arrays, {"method": "other"})
    messages.append(_refused(tmp_path))
    config = configs.plain(dataclasses.replace(load_shaper(finished)[0], shaper="shaper(hidden_units=4)"))
    tensors.replace(file, arrays, {"method": "sampled", "config": config})
    messages.append(_refused(tmp_path))
    assert ["cannot be read" in messages[0], "finished run" in messages[1], "shape" in messages[3]] == [True] * 3
    assert all("\n" not in message and str(tmp_path) in message for message in messages)


def _refused(path):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the caller looks at it)
        load_shaper(path)
    return str(error.value)


def played(shaper, opponent, **counts):
    return Played(np.array(shaper), np.array(opponent), {name: np.array(x) for name, x in counts.items()})


def test_returns_are_means_over_fresh_trials_with_their_errors():
    config = SampledConfig(environment="ipd", opponent="random")
    shaped = played([[-1.0, 0.0], [-0.5, -0.5], [0.0, 1.0]], [[-2.0, -2.0]] * 3)
    naive = played([[-2.0, -2.0], [-1.0, -2.0], [-2.0, -1.0]], [[-1.0, -3.0]] * 3)
    found = analyse({"random": shaped, "naive": naive}, config)
    # Trials: -0.5, -0.5, 0.5 with variance 1/3; -2, -1.5, -1.5 with 1/12; their last episodes 0, -0.5, 1.
    assert found["shaper_return"] == pytest.approx({"mean": -1 / 6, "standard_error": 1 / 3})
    assert found["naive"]["shaper"] == pytest.approx({"mean": -5 / 3, "standard_error": 1 / 6})
    assert found["against"]["random"]["shaper_last_episode"]["mean"] == pytest.approx(1 / 6)
    assert found["opponent_return"] == {"mean": -2.0, "standard_error": 0.0}
    assert found["gain_over_naive"]["mean"] == pytest.approx(1.5)


def test_the_gain_is_of_trials_with_the_same_draws():
    config = SampledConfig(environment="ipd", opponent="random")
    same = played([[-1.0], [0.0], [-2.0]], [[-1.0]] * 3)
    gain = analyse({"random": same, "naive": same}, config)["gain_over_naive"]
    assert gain == {"mean": 0.0, "standard_error": 0.0}  # trial by trial it is the same


def test_the_speed_is_measured_of_as_many_candidates_as_are_played_at_once(monkeypatch):
    asked = []
    trained = Evolved(*[None] * len(Evolved._fields))._replace(seconds_to_run=2.0, seconds_to_compile=7.0)
    monkeypatch.setattr(sampled_experiment, "train", lambda config: asked.append(config) or trained)
    evolution = Evolution(population_size=100, generations=9, chunk_size=5)
    config = SampledConfig(**TINY | {"episodes": 70_000, "evolution": evolution, "meta_ppo": SampledPPO()})
    speed = sampled_experiment.measure(config)
    (short,) = asked
    members = 5 * len(jax.local_devices())
    assert short.evolution.population_size == members + members % 2  # candidates come in pairs
    steps = short.trials_per_generation * short.steps_of_a_trial
    assert 2.5e6 <= steps < 2.5e6 + short.evolution.population_size * 4 * 12  # an episode more at most
    assert (speed.steps_per_second, speed.seconds_to_compile) == (3 * steps / 2.0, 7.0)


def test_a_long_run_says_beforehand_what_it_takes(monkeypatch):
    # 5,000 generations of 1,000 trials of 20,000 steps and six evaluations of 256, at a million steps a second.
    monkeypatch.setattr(sampled_experiment, "measure", lambda config: Speed(1e6, 10.0))
    console = Console(file=io.StringIO(), width=200)
    sampled_experiment.print_header(console, configs.load(SampledConfig, "mfos", "ipd_sampled_paper"))
    assert "1.00 M steps/s: the whole run takes about 28 h on this machine" in console.file.getvalue()  # 100,111 s


def test_shares_are_of_the_occasions_that_there_were():
    met = np.array([[[0.5], [0.0]], [[0.25], [0.0]]])  # [trials, episodes, players]
    counts = {"cooperation": np.array([[[0.4], [0.0]], [[0.2], [0.0]]])}
    np.testing.assert_allclose(share_of_occasions("cooperation", counts), [0.3, 0.0])
    np.testing.assert_allclose(share_of_occasions("cooperation", counts | {"interactions": met}), [0.8, np.nan])
    coins = {"own_coin": np.array([[[0.3, 0.1]]]), "other_coin": np.array([[[0.1, 0.0]]])}
    np.testing.assert_allclose(share_of_occasions("own_coin", coins), [0.8])


def test_shares_of_own_coins_are_of_the_whole_trial():
    counts = {
        "own_coin": np.array([[[0.1, 0.0], [0.3, 0.0]], [[0.0, 0.2], [0.0, 0.2]]]),
        "other_coin": np.array([[[0.3, 0.0], [0.1, 0.0]], [[0.5, 0.0], [0.0, 0.4]]]),
    }
    np.testing.assert_allclose(own_coin_share(counts), [[0.5, 0.5], [0.0, 0.5]])  # who takes none counts a half


BAD = {
    "unknown shaper": (["--shaper=sharper"], "shaper: got 'sharper'; did you mean shaper"),
    "unknown setting": (["--shaper=mfos(units=3)"], "shaper: mfos has no setting 'units'; it takes hidden_units"),
    "no units": (["--shaper=mfos(hidden_units=0)"], "shaper: mfos: hidden_units: got 0; a whole number of at least 1"),
    "kind of memory": (
        ["--shaper=shaper(memory='life')"],
        "shaper: shaper: memory: got 'life'; one of trial, episode is needed",
    ),
    "averaging": (["--shaper=shaper(averaging=2)"], "averaging: got 2; True or False is needed"),
    "half a bracket": (["--shaper=shaper(memory"], "shaper: got 'shaper(memory'; a name such as shaper"),
    "unknown opponent": (["--opponent=pppo"], "opponent: got 'pppo'; did you mean ppo"),
    "opponent's setting": (["--opponent=ppo(rate=1)"], "opponent: ppo has no setting 'rate'"),
    "opponent's value": (["--opponent=a2c(learning_rate=-1)"], "opponent: a2c: learning_rate: got -1"),
    "what does not divide": (["--opponent=ppo(minibatches=5)"], "minibatches: got 5; a divisor of the 48 steps"),
    "no data": (["--environment=MNISTBandit-bsuite"], "MNISTBandit-bsuite: gymnax downloads its data on first use"),
    "what does not divide, unseen": (["--unseen", "ppo(minibatches=5)"], "minibatches: got 5"),
    "unknown unseen": (["--unseen", "reinforce", "nobody"], "opponent: got 'nobody'"),
    "empty unseen": (["--unseen", ""], "opponent: got ''"),
    "all are shapers": (["--num-shapers=2"], "num_shapers: got 2; ipd(episode_length=4) has 2 player"),
    "all three": (
        ["--environment=three_player_ipd", "--num-shapers=3"],
        "num_shapers: got 3; three_player_ipd has 3 player",
    ),
    "no shaper": (["--num-shapers=0"], "num_shapers: got 0; a whole number of at least 1 is needed"),
    "one player": (["--environment=CartPole-v1"], "CartPole-v1 has 1 player"),
    "no length": (["--environment=ipd(episode_length=0)"], "episode_length: got 0"),
    "no steps": (["--episode-length=0"], "episode_length: got 0; a whole number of at least 1 is needed"),
    "no environment": (["--num-envs=0"], "num_envs: got 0"),
    "unknown environment": (["--environment=coins_game"], "got 'coins_game'; did you mean coin_game"),
    "unknown parameter": (["--environment=coin_game(coins=3)"], "coin_game"),
    "actions of several parts": (["--environment=negotiation"], "environment: negotiation: action space: got Multi"),
    "three for two": (["--environment=three_player_ipd", "--opponent=lola_dice"], "got a game of 3 players"),
    "one fresh trial": (["--evaluation-trials=1"], "evaluation_trials: got 1; a whole number of at least 2"),
    "seed": (["--seed=-1"], "seed: got -1; a whole number from 0"),
    "meta-learner": (["--meta-learner=sgd"], "--meta-learner"),
    "odd population": (["--evolution.population-size=7"], "evolution.population_size: got 7"),
    "batch": (["--meta-ppo.minibatches=3"], "meta_ppo.minibatches: got 3; a divisor of the 2 trials is needed"),
    "wrong type": (["--episodes=many"], "--episodes"),
    "unknown option": (["--episode=3"], "unknown option --episode=3; did you mean --episodes"),
}
FILES = {
    "unknown.yaml": ("environment: ipd\noponent: ppo\n", "unknown field oponent; did you mean opponent"),
    "number.yaml": ("environment: 3\n", "environment: got 3; text is needed"),
    "text.yaml": ("environment: ipd\nunseen: random\n", "unseen: got 'random'"),
    "exact.yaml": ("environment: ipd\ngame: hawk_dove\n", "unknown field game"),
    "date.yaml": ("environment: ipd\nopponent: 2024-13-45\n", "date.yaml: not valid YAML"),
}


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    (folder / "empty").mkdir()
    for name, (text, _) in FILES.items():
        (folder / name).write_text(text)
    return folder


def refused(within, folder, arguments, message):
    before = sorted(folder.rglob("*"))
    result = within(*arguments, cwd=folder)
    assert result.returncode == 2
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert message in result.stderr
    assert result.stdout == ""
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_status_2_and_leaves_nothing(name, within, bad_folder):
    arguments, message = BAD[name]
    refused(within, bad_folder, ["tiny.yaml", *arguments], message)


@pytest.mark.parametrize("name", FILES)
def test_so_do_bad_files(name, within, bad_folder):
    refused(within, bad_folder, [name], FILES[name][1])


def test_so_does_a_directory_that_is_no_run(within, bad_folder):
    refused(within, bad_folder, ["--resume", "empty"], "--resume: got 'empty'; the directory of a run")


def test_help_is_of_the_options_that_the_preset_has(within, tmp_path):
    sampled, exact = (within(name, "--help", cwd=tmp_path) for name in ("coin_game", "ipd"))
    for words in ("--environment", "--num-shapers", "--unseen", "--meta-ppo.batch-size", "--evolution.sigma"):
        assert words in sampled.stdout
    assert "--environment" not in exact.stdout
    assert (sampled.returncode, exact.returncode) == (0, 0)


@pytest.mark.parametrize("name", [x for x in configs.presets("mfos") if configs.has_field("mfos", x, "environment")])
def test_every_preset_fits(name):
    config = configs.load(SampledConfig, "mfos", name)
    assert configs.from_text(SampledConfig, configs.to_text(config), "again") == config


def test_every_shaper_is_reproduced_in_every_game(tmp_path):
    parts = reproduce_shaper.make_parts(tmp_path, games=reproduce_shaper.GAMES, seed=7, fast=False)
    pairs = [(part.game, part.config.shaper) for part in parts]
    for game in ("ipd_sampled", "imp_sampled", "coin_game", "ipd_in_the_matrix", "three_player_ipd"):
        for shaper in ("shaper", "good_shepherd", "mfos"):
            assert (game, shaper) in pairs
    assert ("ipd_sampled", "shaper(memory='episode')") in pairs
    assert ("ipd_sampled", "shaper(averaging=False)") in pairs
    assert [part.path.name for part in parts if part.config.num_shapers == 2] == ["three_player_ipd-two-shapers"]
    assert len({part.path for part in parts}) == len(parts)
    assert all(part.config.seed == 7 for part in parts)
    assert parts[0].config.generations == configs.load(SampledConfig, "mfos", "ipd_sampled").generations
    small = reproduce_shaper.make_parts(tmp_path, games=["coin_game"], seed=7, fast=True)
    assert {part.config.generations * part.config.trials_per_generation for part in small} == {4}


def test_reproduce_refuses_games_that_it_does_not_have(within, tmp_path):
    result = within("shaper", "--games", "ipd_sampeld", cwd=tmp_path, module="marl.reproduce")
    assert result.returncode == 2
    assert "games: got 'ipd_sampeld'; did you mean ipd_sampled" in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_smoke_run_of_the_reproduction_reports_every_part(environment, tmp_path):
    line = [sys.executable, "-m", "marl.reproduce", "shaper", "--fast", "--games", "ipd_sampled", "--out=run"]
    result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    assert re.search(r"this will take about \d+ (s|min) on this machine", result.stdout)
    path = tmp_path / "run"
    text, found = (path / "report.md").read_text(), json.loads((path / "report.json").read_text())
    assert "smoke run" in text
    parts = ["shaper", "good_shepherd", "mfos", "no-context", "no-averaging"]
    assert set(found["shapers"]) == {f"ipd_sampled-{part}" for part in parts}
    links = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(links) == len(parts) * 5
    assert all(is_a_picture(path / link) for link in links)
    verdicts = [claim for claim in found["claims"] if claim["passes"] is not None]
    assert len(verdicts) == len(parts) + 1  # gain of each, and what the shaper gets in the dilemma
    again = subprocess.run(
        [*line[:4], "--resume=run"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == len(parts)


def test_shapers_whose_seats_differ_are_refused():
    """One policy for two and for three actions there is not."""
    payoffs = np.zeros((2, 3, 2, 3)).tolist()
    with pytest.raises(ValueError, match=r"^num_shapers: got 2; the shapers of .* they have one policy$"):
        SampledConfig(environment=f"matrix_game(payoffs={payoffs}, episode_length=4)", num_shapers=2, opponent="random")
