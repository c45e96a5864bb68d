"""The agents that come with the library, and what trained agents play."""

import hashlib
import json
import shlex
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
import marl
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from games import InfinitelyRepeated, make, matrix_games
from marl.experiments.saved import agent_catalogue
from marl.experiments.saved.main_results import results_of
from marl.experiments.shaping.agents import AGENT_FILE, is_path, make_agent, save_agent
from marl.experiments.shaping.config import SampledShapingConfig
from marl.learners.spec_dependencies import digests
from marl.trained import catalogue, folder
from meta.runs import array_files
from tests.nightly import grid, nightly

GAME = InfinitelyRepeated(matrix_games["prisoners_dilemma"])
CARDS = marl.list_agents()
SHAPERS = [name for name, card in CARDS.items() if card.kind == "shaper"]
# One of each kind of shaper, game and opponent is always tested, and all of them by the nightly run.
ALWAYS = ("shaper-imp-naive", "mfos-ipd-mmaml", "mfos-chicken-lola", "good_shepherd-chicken-naive")


def test_all_that_comes_with_the_library_is_small():
    files = list(folder().iterdir())
    assert sum(file.stat().st_size for file in files if file.is_file()) < 5 * 2**20
    assert CARDS


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_of_its_file(name):
    card = CARDS[name]
    contents = card.file.read_bytes()
    assert (card.num_bytes, card.sha256) == (len(contents), hashlib.sha256(contents).hexdigest())
    if card.kind != "objective":
        assert array_files.load_arrays(card.file)[1]["config"]["seed"] == card.seeds[0]
    assert shlex.split(card.command)[:2] == ["python", "-m"]
    assert all(np.isfinite(found["mean"]) for found in card.results.values())


def _gap(name):
    """Standard errors between the card of a shaper and fresh trials of today's code, and their mean.

    As many trials as the card's: one in two hundred may end otherwise, and fewer trials would not show their spread.
    """
    card, agent = CARDS[name], marl.load_agent(name)
    trials = agent.play(num_episodes=agent.config.evaluation_trials, key=jax.random.key(7))
    means = np.asarray(trials.shaper_payoffs, np.float64).mean(1)
    found = card.results["shaper"]
    error = np.hypot(found["standard_error"], means.std(ddof=1) / len(means) ** 0.5)
    return abs(means.mean() - found["mean"]) / error, means.mean()


@pytest.mark.system
def test_a_shaper_plays_as_its_card_says():
    gap, mean = _gap("good_shepherd-ipd-naive")
    assert gap < 4
    assert -0.80 < mean < -0.70  # mutual cooperation gives -1, and two naive learners get -1.98


@pytest.mark.system
@pytest.mark.parametrize("name", grid(SHAPERS, *ALWAYS))
def test_every_shaper_plays_as_its_card_says(name):
    assert _gap(name)[0] < 4


def test_a_card_of_control_ends_with_the_best_baseline():
    value = {"mean": 0.5, "standard_error": 0.1, "seeds": []}
    names = ("evolved", "oracle", "random_shaper", "silent_shaper", "still", "random")
    rewards = dict.fromkeys(names, value) | {"ratio": 1.6, "best_baseline": "silent_shaper"}
    found = results_of("adversary", {"goal_reward": rewards})
    assert list(found) == ["evolved", "still", "random", "silent_shaper"]
    assert found["still"] == {"mean": 0.5, "standard_error": 0.1}
    assert list(results_of("adversary", {"goal_reward": rewards | {"best_baseline": "still"}})) == [
        "evolved",
        "random",
        "still",
    ]


def test_the_steered_victim_has_a_controller():
    agent = marl.load_agent("steered-cartpole")
    assert agent.controller is not None
    assert set(agent.parameters) == {"shaper", "controller"}
    assert CARDS["steered-cartpole"].results["evolved"]["mean"] > 0.6
    with pytest.raises(ValueError, match="play: got steered-cartpole, with the goal control"):
        agent.play(4)


def test_a_name_stands_for_an_agent_wherever_a_path_may(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_path("hub:mfos-ipd-naive")
    by_name, by_path = make_agent("hub:mfos-ipd-naive", GAME, 0), make_agent(str(CARDS["mfos-ipd-naive"].file), GAME, 0)
    jax.tree.map(np.testing.assert_array_equal, by_name.parameters, by_path.parameters)
    assert by_name.name == marl.load_agent("hub:mfos-ipd-naive").name == "hub:mfos-ipd-naive"
    on_the_page = marl.load_agent("hub:good_shepherd-prisoners_dilemma-naive")  # whose file has no card
    assert on_the_page.parameters.shape == (5,)
    with pytest.raises(ValueError, match="agent: got 'hub:mfos-ipd-nave'; hub:NAME, did you mean mfos-ipd-naive"):
        make_agent("hub:mfos-ipd-nave", GAME, 0)
    with pytest.raises(ValueError, match="path: got 'mfos-ipd-nave'; did you mean mfos-ipd-naive"):
        marl.load_agent("mfos-ipd-nave")
    shutil.copy(CARDS["good_shepherd-ipd-naive"].file, tmp_path / "mfos-ipd-naive")  # a file of that name comes first
    assert marl.load_agent("mfos-ipd-naive").config.shaper == "good_shepherd"


def test_a_trained_agent_is_an_opponent(tmp_path):
    learner = marl.make_learner("hub:good_shepherd-ipd-naive", GAME, 1)
    trained = make_agent("hub:good_shepherd-ipd-naive", GAME, 1)
    key, other = jax.random.key(3), marl.make_learner("tft", GAME, 0)
    rewards = [
        marl.learn(key, GAME, [other, one], num_updates=4).rewards
        for one in (learner, trained.learner(trained.parameters))
    ]
    np.testing.assert_array_equal(*rewards)
    assert digests("hub:good_shepherd-ipd-naive") == [CARDS["good_shepherd-ipd-naive"].sha256[:12]]
    with pytest.raises(ValueError, match="opponent: got 'hub:none'; hub:NAME, "):
        marl.make_learner("hub:none", GAME, 1, field="opponent")
    with pytest.raises(ValueError, match="opponent: got 'hub:mfos-imp-naive', trained in another game"):
        marl.make_learner("hub:mfos-imp-naive", GAME, 1, field="opponent")


@nightly
def test_a_shaper_is_evolved_against_a_trained_one(within, tmp_path):
    tiny = ["ipd", "--opponent=hub:good_shepherd-ipd-naive", "--meta-steps=3", "--trials=1", "--evaluation-trials=4"]
    tiny += ["--unseen", "tft", "--evolution.generations=2", "--evolution.population-size=4", "--quiet", "--out=run"]
    found = within(*tiny, cwd=tmp_path, module="marl.mfos")
    assert (found.returncode, found.stderr) == (0, "")
    assert np.isfinite(marl.load_run(tmp_path / "run").summary["opponent_return"])


def test_a_number_chooses_one_of_several_trainings():
    agent = marl.load_agent("good_shepherd-ipd-naive")
    one = marl.load_agent("good_shepherd-ipd-naive", number=2)
    np.testing.assert_array_equal(one.parameters, agent.parameters[2])
    assert (one.config.seed, one.config.seeds) == (agent.config.seed + 2, 1)
    with pytest.raises(ValueError, match="number: got 3; one of 0 to 2 is needed"):
        marl.load_agent("good_shepherd-ipd-naive", number=3)
    with pytest.raises(ValueError, match="number: got -1; a whole number of at least 0, or None"):
        marl.load_agent("good_shepherd-ipd-naive", number=-1)


def test_a_shaper_plays_an_opponent_of_ones_choice_in_a_game_of_ones_choice():
    agent = marl.load_agent("good_shepherd-ipd-naive", number=0)
    game = InfinitelyRepeated(matrix_games["prisoners_dilemma"], discount=0.5)
    opponent = marl.make_learner("all_d", game, 1)
    trials = agent.play(opponent, 3, game=game)
    p = np.asarray(jax.nn.sigmoid(jnp.asarray(agent.parameters, jnp.float32)), np.float64)
    # Against D, alone from the state DD on: c = p(CD) c + p(DD) (1 - c) for the next round, discounted by one half.
    share, discounted = p[0], 0.0
    for t in range(60):
        discounted += 0.5 * 0.5**t * share
        share = share * p[2] + (1 - share) * p[4]
    np.testing.assert_allclose(trials.cooperation[..., 0], discounted, atol=1e-5)
    np.testing.assert_allclose(trials.opponent_policies, 0.0, atol=1e-6)
    np.testing.assert_allclose(trials.shaper_payoffs, -2 - discounted, atol=1e-5)  # -3 against D, -2 with D
    with pytest.raises(ValueError, match=r"game: got .*; an InfinitelyRepeated with a discount"):
        agent.play(game=InfinitelyRepeated(matrix_games["prisoners_dilemma"], discount=0.0))
    twice = [agent.play(one, 3) for one in (agent, marl.memory_one(p))]
    np.testing.assert_allclose(twice[0].cooperation, twice[1].cooperation, atol=1e-5)
    with pytest.raises(ValueError, match="opponent: got 3; a spec such as tft"):
        agent.play(3)
    with pytest.raises(ValueError, match="num_episodes: got 0"):
        agent.play("tft", 0)


@nightly
def test_trials_of_evolution_in_a_sampled_game_have_the_opponents_that_have_learned(tmp_path):
    lengths = {"meta_steps": 3, "episode_length": 4, "num_envs": 2}
    config = SampledShapingConfig(environment="ipd(episode_length=4)", opponent="tabular_ppo", **lengths)
    shaper, game = config.make_shaper(), config.make_game()
    parameters, key = shaper.init(jax.random.key(1)), jax.random.key(2)
    save_agent(tmp_path / AGENT_FILE, config, parameters)
    opponent = config.make_opponent()
    trials = marl.play_trials(key, game, shaper, parameters, opponent, num_trials=5, **lengths)
    played = marl.load_agent(tmp_path).play(num_episodes=5, key=key)
    jax.tree.map(lambda *x: np.testing.assert_allclose(*x, rtol=1e-5, atol=1e-6), trials, played)
    assert trials.shaper_payoffs.shape == trials.opponent_payoffs.shape == (5, 3)
    assert trials.cooperation.shape == (5, 3, 2)
    # The payoffs of a round are those of the shares: -2 + own, less 3 for one's own C, in this dilemma of (R, S, T, P).
    own, other = np.moveaxis(np.asarray(trials.cooperation), -1, 0)
    np.testing.assert_allclose(trials.shaper_payoffs, -2 + 2 * other - own, atol=1e-5)
    one = marl.play_sampled(jax.random.split(key, 5)[0], game, shaper, parameters, [opponent], **lengths)
    ours = jax.tree.map(lambda x: x[0], trials.opponents[0])
    jax.tree.map(lambda *x: np.testing.assert_allclose(*x, rtol=1e-4, atol=1e-5), one.states[1], ours)


@pytest.mark.system
def test_a_learner_plays_fresh_episodes(within, tmp_path):
    line = ["CartPole-v1(max_steps_in_episode=20)", "--learner=ppo(hidden=[4], epochs=1, minibatches=1)"]
    line += ["--num-envs=2", "--steps-per-update=8", "--total-steps=32", "--evaluation-episodes=2", "--quiet"]
    assert within(*line, "--out=run", cwd=tmp_path, module="marl.train").returncode == 0
    agent = marl.load_run(tmp_path / "run").agent()
    returns = agent.play(num_episodes=6)
    assert returns.shape == (6,)
    assert (returns >= 8).all()  # no pole falls sooner
    assert (returns <= 20).all()
    assert (agent.play(num_episodes=4, game=make("CartPole-v1", max_steps_in_episode=3)) == 3).all()
    with pytest.raises(ValueError, match="opponent: got 'tft'; a game of one player without an opponent"):
        agent.play("tft")
    with pytest.raises(ValueError, match=r"game: got observations of shape \(6,\) and 3 actions; .*\(4,\) and 2"):
        agent.play(game="Acrobot-v1")


@nightly
def test_an_adversary_plays_against_fresh_victims_beside_its_controls(tmp_path):
    victim = "ppo(hidden=[4], epochs=1, minibatches=1)"
    config = AttackConfig(environment="CartPole-v1", message="linear", victim=victim, num_envs=2, num_updates=2)
    attack = resolve(config)
    parameters = attack.message.init(jax.random.key(0))
    metadata = {"method": "attack", "config": configs.plain(config)}
    array_files.replace_arrays(tmp_path / "adversary.safetensors", parameters, metadata)
    adversary = marl.load_agent(tmp_path)
    returns = adversary.play(3)
    assert list(returns) == ["evolved", "silent", "random"]
    assert all(x.shape == (3,) and (x >= 1).all() for x in returns.values())
    # Parameters of 0 say nothing, and random messages are then as small: all victims learn in silence.
    mute = adversary._replace(parameters=jax.tree.map(np.zeros_like, parameters)).play(3)
    for name in returns:
        np.testing.assert_array_equal(mute[name], returns["silent"])


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A library of trained agents in a folder of this test."""
    place = tmp_path / "trained"
    place.mkdir()
    (place / catalogue.CARDS).write_text("{}")
    monkeypatch.setattr(catalogue, "folder", lambda: place)
    catalogue._cards.cache_clear()
    yield place
    catalogue._cards.cache_clear()


@nightly
def test_a_finished_run_is_added_and_trained_again_to_the_bit(within, tmp_path, shelf):
    tiny = [
        "ipd",
        "--shaper=good_shepherd",
        "--discount=0",
        "--meta-steps=3",
        "--trials=1",
        "--evaluation-trials=4",
        "--seeds=2",
    ]
    tiny += ["--evolution.generations=2", "--evolution.population-size=4", "--quiet"]
    assert within(*tiny, "--out=run", cwd=tmp_path, module="marl.mfos").returncode == 0
    add = within("tiny-one", "--add=run", cwd=tmp_path, module="marl.agents")
    assert (add.returncode, add.stderr) == (0, "")
    (card,) = marl.list_agents().values()
    agent_catalogue.add("another", marl.load_run(tmp_path / "run"))
    assert list(marl.list_agents()) == ["another", "tiny-one"]
    assert card.command == shlex.join(["python", "-m", "marl.mfos", *tiny[:-1]])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert card.results["shaper"] == summary["against"]["naive"]["shaper"]
    assert (card.over, card.seeds, card.conclusion) == ("2 trainings", [0, 1], summary["conclusion"])
    assert "tiny-one" in within(cwd=tmp_path, module="marl.agents").stdout
    again = within("tiny-one", "--again=second", cwd=tmp_path, module="marl.agents")
    assert again.returncode == 0
    assert "the same file, to the bit" in again.stdout
    for line, message in (
        (["tiny-on"], "name: got 'tiny-on'; did you mean tiny-one?"),
        (["Tiny one", "--add=run"], "name: got 'Tiny one'; lower-case words with hyphens between them are needed"),
        (["new", "--add=nowhere"], "path: got 'nowhere'; the directory of a run"),
        (["--again=third"], "name: none given"),
        (["tiny-one", "--again=run"], "again: 'run' already exists"),
    ):
        refused = within(*line, cwd=tmp_path, module="marl.agents")
        assert refused.returncode == 2
        assert message in refused.stderr


def test_the_presets_of_play_have_an_opponent_without_a_name():
    from marl.experiments.play import load_match

    assert load_match("ipd").agent == "hub:mfos-ipd-naive"
