"""Cross-play in sampled games: trainings of both, errors between them, shares of own coins."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from games import make
from marl.core.learn import learn
from marl.experiments.crossplay.config import CrossplayConfig
from marl.experiments.crossplay.experiment import Cell, _error_over, _statistics
from marl.experiments.crossplay.participants import split_agents
from marl.experiments.crossplay.table import _labels
from marl.experiments.saved.load_agent import load_agent
from marl.experiments.shaping.agents import make_agent, of_training, save_agent
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.sampled_pairs import Lengths, play_pair
from tests.nightly import nightly

pytestmark = pytest.mark.system


def rows(path):
    with (path / "crossplay.csv").open() as file:
        return list(csv.DictReader(file))


def saved(path, seeds):
    """Saves a shaper of the sampled dilemma with this number of trainings and initial parameters."""
    config = SampledShapingConfig(environment="ipd(episode_length=4)", shaper="shaper(hidden_units=2)", seeds=seeds)
    init = config.make_shaper().init
    keys = jax.random.split(jax.random.key(5), seeds)
    # Large parameters, so that two of them play differently.
    save_agent(path, config, jax.tree.map(lambda x: 9 * x, jax.vmap(init)(keys) if seeds > 1 else init(keys[0])))


def test_agents_of_a_sampled_game_have_the_results_of_learn(within, tmp_path):
    lengths = {"num_updates": 2, "steps_per_update": 4, "num_envs": 2}
    options = [
        "--environment=ipd(episode_length=4)",
        "--meta-steps=2",
        "--episode-length=4",
        "--sampled-evaluation-trials=4",
    ]
    result = within("ipd", *options, "--agents=random,reinforce", "--out=run", cwd=tmp_path, module="marl.crossplay")
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "run" / "crossplay.json").read_text())
    cells = found["pairs"]
    assert [(cell["row"], cell["column"]) for cell in cells] == [
        (row, column) for row in ("random", "reinforce") for column in ("random", "reinforce")
    ]
    assert [cell["num_trials"] for cell in cells] == [4] * 4
    # A pair without a learner has no training; every other pair is one training of its learners.
    assert [(cell["error_over"], cell["num_trainings"]) for cell in cells] == [("pairs", 0)] + [("trainings", 4)] * 3
    assert found["errors"].startswith("± one standard error over trainings, 4 of each pair; without a learner")
    assert found["errors"] in result.stdout
    game = make("ipd", episode_length=4)
    agents = [make_agent(name, game, seat, num_updates=2) for seat, name in enumerate(("random", "reinforce"))]
    keys = jax.random.split(jax.random.key(0), 4)
    found = play_pair(game, *agents, keys, Lengths(2, 4, 2))["return"]
    players = [agent.learner(()) for agent in agents]
    rewards = jax.vmap(lambda key: jnp.stack(learn(key, game, players, **lengths).rewards))(keys)  # [4, 2, episodes]
    np.testing.assert_allclose(found, rewards.mean(2).T, rtol=1e-5)
    last = play_pair(game, *agents, keys, Lengths(2, 4, 2), last_meta_steps=1)["return"]
    np.testing.assert_allclose(last, rewards[:, :, 1].T, rtol=1e-5)


@nightly
def test_errors_are_between_the_trainings_of_a_shaper(within, tmp_path):
    """Errors of a single training are between its pairs, against any number of learners."""
    saved(tmp_path / "one.safetensors", 1)
    saved(tmp_path / "two.safetensors", 2)
    options = [
        "--environment=ipd(episode_length=4)",
        "--meta-steps=2",
        "--episode-length=4",
        "--sampled-evaluation-trials=5",
    ]
    agents = ["random", "one.safetensors", "two.safetensors"]
    line = ("ipd", *options, f"--agents={','.join(agents)}", "--out=run")
    result = within(*line, cwd=tmp_path, module="marl.crossplay")
    assert result.returncode == 0, result.stderr
    table = {(row["row"], row["column"]): row for row in rows(tmp_path / "run")}
    about = {pair: (row["error_over"], row["num_trainings"], row["num_trials"]) for pair, row in table.items()}
    assert all(about[pair] == ("pairs", "1", "5") for pair in about if "one.safetensors" in pair)  # against all
    several = [pair for pair in about if "two.safetensors" in pair and "one.safetensors" not in pair]
    assert all(about[pair] == ("trainings", "2", "6") for pair in several)  # three pairs for each training
    game = make("ipd", episode_length=4)
    two, other = load_agent(tmp_path / "two.safetensors"), make_agent("random", game, 1)
    keys = jax.random.split(jax.random.key(3), 6)
    played = play_pair(game, two, other, keys, Lengths(2, 4, 2))["return"]
    for i in range(2):
        alone = play_pair(game, of_training(two, i), other, keys[i::2], Lengths(2, 4, 2))["return"]
        np.testing.assert_allclose(played[:, i::2], alone, rtol=1e-6)
    cell = Cell(0, 0, "", "", 6, 1.0, "trainings", 2)
    found, means = _statistics({"return": played}, cell), played[0].reshape(3, 2).mean(0)
    assert found["row_return"] == pytest.approx(played[0].mean())
    assert found["row_standard_error"] == pytest.approx(abs(means[0] - means[1]) / 2)


def test_an_untrained_shaper_is_no_training():
    game, specs = make("ipd"), {"shaper": 0, "always_defect": 1, "ppo": 1}
    shaper, fixed, learner = (make_agent(spec, game, seat) for spec, seat in specs.items())
    assert _error_over((shaper, fixed), 64) == ("pairs", 0)
    assert _error_over((shaper, learner), 64) == ("trainings", 64)


@nightly
def test_the_coin_game_has_shares_of_own_coins(within, tmp_path):
    options = [
        "--sampled-evaluation-trials=8",
        "--meta-steps=2",
        "--num-envs=4",
        "--agents=always_cooperate,always_defect",
    ]
    result = within("coin_game", *options, "--out=run", cwd=tmp_path, module="marl.crossplay")
    assert result.returncode == 0, result.stderr
    path = tmp_path / "run"
    both, mixed, _, defect = rows(path)
    assert float(both["row_own_coin_share"]) == float(mixed["row_own_coin_share"]) == 1
    assert float(defect["row_own_coin_share"]) == pytest.approx(0.5, abs=0.15)
    assert 0 < float(defect["row_own_coin_share_standard_error"]) < 0.1
    assert float(both["row_return"]) > float(mixed["row_return"])
    assert "own coins of those that the row takes" in result.stdout
    for file in ("crossplay.png", "own_coins.png"):
        assert (path / "figures" / file).read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("preset", ["coin_game", "ipd_sampled"])
def test_presets_of_sampled_games_have_agents_of_both_seats(preset):
    config = configs.load(CrossplayConfig, "crossplay", preset)
    game, agents = config.make_game(), split_agents(config.agents)
    assert game.num_agents == 2
    assert {"always_cooperate", "always_defect"} < set(agents)
    for spec in agents:
        for seat in (0, 1):
            make_agent(spec, game, seat, num_updates=config.meta_steps)
    labels = _labels(agents)
    assert len(set(labels.values())) == len(agents)
    assert labels[next(spec for spec in agents if spec.startswith("ppo("))] == "ppo"
    two = ["ppo(learning_rate=0.01, discount=0.9)", "ppo(learning_rate=0.03, discount=0.9)", "a2c"]
    assert list(_labels(two).values()) == ["ppo 1", "ppo 2", "a2c"]


def test_settings_of_the_other_kind_of_game_and_agents_that_do_not_exist_are_refused(within, tmp_path):
    for arguments, words in (
        (["--episode-length=3"], "episode_length: got 3, which has no effect in prisoners_dilemma, which is a formula"),
        (["--environment=ipd", "--discount=0.5"], "discount: got 0.5, which has no effect in a sampled game"),
        (
            ["--environment=ipd", "--last-meta-steps=101"],
            "last_meta_steps: got 101; at most meta_steps, 100, are needed",
        ),
        (["--environment=three_player_ipd"], "environment: three_player_ipd has 3 player(s); two are needed"),
        (["--environment=ipd", "--agents=lola"], "agents: got 'lola', which is there for games that are formulas"),
        (["--agents=mfos(hidden_units=2, hidden_units=3)"], "agents: shaper: mfos: hidden_units: given twice"),
        (["--agents=mfos:lolla"], "agents: opponent: got 'lolla'; did you mean lola"),
    ):
        result = within("ipd", *arguments, cwd=tmp_path, module="marl.crossplay")
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert words in result.stderr
    assert not list(tmp_path.iterdir())
