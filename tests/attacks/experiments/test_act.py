"""`python -m attacks.act`, and what it writes."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import configs
import games
from attacks import control, messages, random_play
from attacks.defences import DEFENCES
from attacks.experiments import attack as attack_module
from attacks.experiments import control_experiment, distillation, evaluation, search
from attacks.experiments.attack import ADVERSARY_FILE, load_adversary, resolve, with_training
from attacks.experiments.config import AttackConfig
from attacks.experiments.control_experiment import ControlExperiment
from attacks.experiments.preparation import prepare
from attacks.random_play import observations_of_play
from games import Game, registry
from games.wrappers.goals import has_goals
from marl.commands import describe
from meta import RunDirectory
from meta.batched_trials import run_trials
from meta.runs import array_files
from meta.runs.directory import check_changes
from meta.runs.experiment import Context, Programs
from meta.runs.progress import Stages
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

QUIET = Console(quiet=True)

TINY = (  # sizes of 12, because arrays of up to 10 entries become scalars, which compile more slowly
    *("--num-updates", "1", "--steps-per-update", "8", "--num-envs", "12", "--evaluation-episodes", "12"),
    *("--evaluation-steps", "8", "--evaluation-trials", "2", "--message", "mlp(hidden=[12])"),
    *("--warm-up.population-size", "2", "--warm-up.chunk-size", "0", "--warm-up.generations", "2"),
    *("--evolution.population-size", "2", "--evolution.chunk-size", "0", "--evolution.generations", "2"),
    *("--evolution.sigma=0.2", "--evolution.learning-rate=0.05"),  # as in the warm-up, so that one program serves both
)
HELP = ("--goal", "help", "--victim", "ppo(hidden=[12], epochs=1, minibatches=1, shared=True)", "--warm-up-updates=1")
# The oracle learns by PPO; the victim only has to learn.
CONTROL = (
    *("--goal", "control", "--oracle-updates", "1", "--controller", "mlp(hidden=[12])", "--victim", "reinforce"),
    *("--shapers", "2"),
)


def test_a_run_leaves_its_summary_curves_pictures_and_adversary(act, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "FITTING", 20)  # the quality of the expert's message is not tested here
    monkeypatch.setattr(distillation, "ROLLOUTS", 4)
    finished = act("cartpole", *TINY, *HELP, "--begin", "expert", "--out", "run")
    assert finished.returncode == 0, finished.stderr
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["goal"] == "help"
    assert summary["config_digest"] == json.loads((tmp_path / "run/run.json").read_text())["config_digest"]
    assert summary["num_trials"] == 2
    judged = {name: one["mean"] for name, one in summary["judged"].items()}
    assert set(judged) == {"expert", "warm_up", "evolution"}
    assert judged[summary["chosen"]] == max(judged.values())
    assert summary["begin"]["message"]["share_explained"] <= 1
    taught = (tmp_path / "run/start.safetensors").stat().st_mtime_ns
    for name in ("evolved", "silent", "random", "expert"):
        assert set(summary[name]) >= {"mean", "standard_error"}
    with np.load(tmp_path / "run/victims.npz") as victims:
        difference = victims["evolved_final_returns"] - victims["silent_final_returns"]
    found = summary["evolved"]["difference_from_silent"]
    assert found["mean"] == pytest.approx(difference.mean())
    assert found["standard_error"] == pytest.approx(difference.std(ddof=1) / 2**0.5)
    for name in ("evolution", "training_curves", "final_returns", "message"):
        with Image.open(tmp_path / f"run/figures/{name}.png") as picture:
            assert min(picture.size) > 100
    assert set(summary["training_return"]) == {"evolved", "silent", "random", "expert"}
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "run/warm_up/metrics.jsonl").read_text().splitlines()) == 2
    attack, parameters = load_adversary(tmp_path / "run")
    assert attack.config.goal == "help"
    assert parameters["w0"].shape == (4, 12)
    # A resumed run repeats no stage, no choice and no fresh victims, and has the same results.
    (tmp_path / "run/summary.json").unlink()
    assert not (tmp_path / "run/evaluation").exists()
    played = []

    def resume(stop_at):
        def play(*arguments):
            played.append(arguments)
            if len(played) == stop_at:
                raise KeyboardInterrupt
            return run_trials(*arguments)

        for module in (search, evaluation):
            monkeypatch.setattr(module, "run_trials", play)
        return act("--resume", "run").returncode

    groups = len(judged) + len(summary["training_return"]) - (summary["chosen"] == "expert")
    assert resume(stop_at=5) == 130
    assert resume(stop_at=0) == 0
    assert len(played) == groups + 1  # the one that was stopped
    again = json.loads((tmp_path / "run/summary.json").read_text())
    assert [again[name] for name in ("judged", "evolved", "random")] == [
        summary[name] for name in ("judged", "evolved", "random")
    ]
    assert (tmp_path / "run/start.safetensors").stat().st_mtime_ns == taught
    assert not (tmp_path / "run/evaluation").exists()


@nightly
@pytest.mark.parametrize("begin", ["random", "expert"])
def test_control_reports_its_baselines_and_shows_a_steered_victim(begin, act, tmp_path, monkeypatch):
    monkeypatch.setattr(control_experiment, "NUM_GOALS", 2)  # a hundred frames each
    monkeypatch.setattr(distillation, "FITTING", 20)  # the quality of the expert's message is not tested here
    monkeypatch.setattr(distillation, "ROLLOUTS", 4)
    finished = act("cartpole", *TINY, *CONTROL, "--begin", begin, "--out", "run")
    assert finished.returncode == 0, finished.stderr
    rewards = json.loads((tmp_path / "run/summary.json").read_text())["goal_reward"]
    alone = ("controller_alone", "controller_other_shaper")
    baselines = ("silent_shaper", "random_shaper", *alone, "constant", "still", "random", "silent")
    rows = {"evolved", "oracle", "random_shaper_oracle", "best_random_shaper", *baselines}
    assert set(rewards) == {*rows, "ratio", "best_baseline", "ratio_to_best_random_shaper"}
    assert all(0 <= rewards[name]["mean"] <= 1 for name in rows)
    best = max(rewards[name]["mean"] for name in baselines)
    assert rewards["ratio"] == pytest.approx(rewards["evolved"]["mean"] / best)
    over_random = rewards["evolved"]["mean"] / rewards["best_random_shaper"]["mean"]
    assert rewards["ratio_to_best_random_shaper"] == pytest.approx(over_random)
    for stage in ("silent_shaper", "random_shaper", "."):
        assert len((tmp_path / "run" / stage / "metrics.jsonl").read_text().splitlines()) == 2
    with Image.open(tmp_path / "run/figures/steered.gif") as picture:
        assert 100 < picture.n_frames <= 201


def test_random_messages_are_as_large_over_the_steps_that_a_victim_learns_from(monkeypatch):
    """A member of an ensemble learns for a fifth of a training run."""
    found = []
    monkeypatch.setattr(evaluation, "controlled", lambda *arguments: found.append(arguments[-1]) or (None, {}))
    monkeypatch.setattr(evaluation, "fresh_victims", lambda *_: None)
    config = dataclasses.replace(configs.load(AttackConfig, "act", "cartpole"), message="linear")
    for defence in ("none", "ensemble", "ensemble_of_trainings"):
        attack = resolve(dataclasses.replace(config, defence=defence))
        evaluation.play_adversary(attack, None, 2, jax.random.key(0))
    assert found == [config.num_updates * 256, round(config.num_updates / 5) * 256, config.num_updates * 256]


def test_a_fitness_that_control_does_not_have_is_not_checked_and_an_expert_has_no_message_that_turns():
    config = dataclasses.replace(configs.load(AttackConfig, "act", "pendulum"), goal="control")
    prepare(dataclasses.replace(config, fitness="training", begin="random", num_updates=1))
    with pytest.raises(ValueError, match="begin: got 'expert' with the message 'turn'; one without memory is needed"):
        prepare(dataclasses.replace(config, message="turn", begin="expert"))


def test_random_shapers_are_as_large_as_the_one_with_which_a_search_begins():
    config = dataclasses.replace(configs.load(AttackConfig, "act", "pendulum"), goal="control", shapers=3)
    experiment = ControlExperiment(resolve(config))
    start = experiment.attack.init(jax.random.key(1))
    start["shaper"] = jax.tree.map(lambda x: x / 4, start["shaper"])
    play = jnp.asarray(observations_of_play(experiment.attack.game))

    def volumes(start):
        message, (silent, others) = experiment.shapers_like(start), experiment.search.controllers(start)
        assert (silent.number, others.number) == (1, 3)
        several = [
            jax.vmap(lambda own: evaluation.magnitude(message, own, play))(
                one.draw(jax.random.split(jax.random.key(2), one.number))
            )
            for one in (silent, others)
        ]
        assert not several[0].any()
        return several[1]

    expected = evaluation.magnitude(experiment.attack.message, start["shaper"], play)
    np.testing.assert_allclose(volumes(start), expected, rtol=1e-4)
    drawn = volumes(None)
    assert (drawn > 2 * expected).all()
    assert len(set(drawn.tolist())) == 3


@pytest.mark.slow  # smaller tests cover `meta.batched_trials`; this one shows that control uses it
def test_the_number_of_victims_trained_at_once_does_not_change_their_rewards():
    tiny = {"num_updates": 1, "steps_per_update": 8, "num_envs": 12, "evaluation_episodes": 12, "evaluation_steps": 8}
    config = AttackConfig(goal="control", victim="reinforce", evaluation_trials=2, oracle_updates=1, **tiny)
    parameters = resolve(config).init(jax.random.key(5))
    several = jax.tree.map(lambda x: jnp.stack([x, -x]), parameters)
    groups = {"evolved": parameters} | dict.fromkeys((*control.PLAIN, control.BEST), several)
    found = []
    for at_once in (1, 2):
        evolution = dataclasses.replace(config.evolution, population_size=2, chunk_size=at_once)
        own = dataclasses.replace(config, evolution=evolution)
        experiment = ControlExperiment(resolve(own))
        found.append(experiment.fresh_victims(QUIET, jax.random.key(0), experiment.attack.message, groups))
    for name, rewards in found[0].goal_rewards.items():
        np.testing.assert_allclose(rewards, found[1].goal_rewards[name], rtol=1e-4)


def resolved(config, **changes):
    return resolve(dataclasses.replace(config, **changes))


def test_auto_settings_depend_on_the_goal():
    config = AttackConfig(goal="harm")
    name, given, _ = resolve(config).kind
    assert (name, given["steps"]) == ("turn", 32 * 256)
    name, given = messages.MESSAGES.read("what", given["what"])
    units = np.array(given["units"])
    # CartPole's first state is uniform within 0.05; in random play all but the position go far from it.
    assert (units > [0.03, 0.3, 0.06, 0.4]).all()
    assert (units < [0.2, 0.8, 0.12, 1.1]).all()
    assert resolved(config, goal="help").kind.spec == f"linear(units={given['units']})"
    assert (resolve(config).fitness, resolved(config, goal="help").fitness) == ("end", "training")
    assert resolved(config, goal="help", fitness="end").fitness == "end"
    assert resolved(config, goal="help", steps_per_update=24).fitness == "end"  # 8 x 24 steps, of 201
    assert resolved(config, message="linear").kind.spec == "linear"
    steered = resolved(config, goal="control")
    assert steered.kind.settings == {**given, "volume": 0.135}  # a small amplitude
    # The goals are uniform on a track of 2.4 to both sides.
    np.testing.assert_allclose(steered.controller_kind.settings["units"], [*units, 4.8 / 12**0.5], rtol=0.05)


def test_a_constant_observation_has_the_unit_1(monkeypatch):
    seen = np.random.RandomState(0).randn(4096, 3).astype(np.float32) * np.float32([1, 0, 0]) + np.float32(
        [0, 0.1, 9.8]
    )
    assert seen.std(0)[1:].min() > 0  # by rounding
    monkeypatch.setattr(random_play, "observations_of_play", lambda game: seen)
    assert random_play.units_of_play(None) == [pytest.approx(1, abs=0.05), 1.0, 1.0]


def test_units_of_play_are_measured_once_and_only_by_resolving(monkeypatch):
    """One measurement serves the message and the controller; given messages and controllers need none."""
    played = []
    monkeypatch.setattr(attack_module, "units_of_play", lambda game: played.append(game) or [1.0] * 4)
    config = AttackConfig(goal="control")
    assert not played
    attack = resolve(config)
    assert len(played) == 1
    with_training(attack, num_updates=8)
    assert len(played) == 1
    resolved(config, message="linear", controller="linear")
    assert len(played) == 1


@pytest.mark.parametrize("preset", grid(configs.presets("act"), "cartpole"))
def test_the_trainings_of_every_preset_can_be_traced(preset):
    config = configs.load(AttackConfig, "act", preset)
    attack = prepare(config).attack
    if preset == "pendulum":  # also with a victim that has a replay buffer
        other = with_training(attack, victim="sac(hidden=[8], buffer_size=4096)")
        key = jax.random.key(0)
        jax.eval_shape(other.trial, jax.eval_shape(other.init, key), key)
    goals = ("harm", "control") if has_goals(attack.game) else ("harm",)
    for goal in goals:
        one, key = resolved(config, goal=goal), jax.random.key(0)
        outcome = jax.eval_shape(one.trial, jax.eval_shape(one.init, key), key)
        assert outcome.fitness.shape == outcome.metrics["victim_return"].shape == ()


def turning(attack):
    return attack.kind.settings["steps"]


def test_a_training_run_is_cut_into_the_pieces_that_a_learner_needs():
    config = AttackConfig(num_updates=32, steps_per_update=256, num_envs=4, evaluation_episodes=12)
    assert config.schedule == (32, 256, 4, 12, 200)
    for victim in ("dqn", "td3", "sac"):
        assert dataclasses.replace(config, victim=victim).schedule == (512, 8, 8, 16, 200)
    a2c = dataclasses.replace(config, victim="a2c(anneal=True)")
    assert a2c.schedule == (819, 5, 8, 16, 200)
    assert resolve(a2c).kind.spec.startswith("turn(steps=4095,")
    assert dataclasses.replace(a2c, steps_per_update=4).schedule == (32, 4, 4, 12, 200)  # small enough already
    # A message that turns within a training run of 8192 steps turns at the same share of 4096 steps.
    fixed = resolved(config, message="turn(steps=8000)")
    assert turning(with_training(fixed, victim="dqn")) == 4000
    assert with_training(fixed, victim="dqn").schedule.num_updates == 512
    assert turning(with_training(fixed, num_updates=8)) == 2000
    assert turning(resolved(config, message="turn(what='mlp')")) == 8192
    assert with_training(resolved(config, message="mlp"), victim="dqn").kind.spec == "mlp"
    # A member of the ensemble learns in a fifth of 32 updates, or of 8.
    ensemble = resolved(config, defence="ensemble")
    assert turning(ensemble) == 6 * 256
    assert turning(with_training(ensemble, num_updates=8)) == 2 * 256
    assert turning(resolved(config, defence="ensemble_of_trainings")) == 8192


def test_another_evaluation_does_not_choose_other_parameters():
    """The victims of the choice are as many as those of the evaluation, up to 128."""
    was = AttackConfig(evaluation_trials=256)
    assert check_changes(was, dataclasses.replace(was, evaluation_trials=1024)) == []
    few = dataclasses.replace(was, evaluation_trials=64)
    for before, now in ((was, few), (few, was)):
        with pytest.raises(ValueError, match=r"evaluation_trials: was .* a run goes on as it was begun"):
            check_changes(before, now)
    few, none = (dataclasses.replace(one, warm_up_updates=0) for one in (few, was))  # nothing to choose from
    assert check_changes(none, few) == check_changes(few, none) == []


def test_a_message_for_a_shorter_training_run_turns_earlier():
    """The message itself changes there, a hundred steps before the end of the shorter training run."""
    attack = with_training(resolve(AttackConfig(message="turn(steps=8192)")), num_updates=8)
    parameters = attack.message.init(jax.random.key(0)) | {"turn": jnp.float32(np.log(1948 / 100))}
    said = [
        np.asarray(attack.message.speak(parameters, jnp.ones(4), jnp.float32(heard))) for heard in (0, 1947, 1949, 2048)
    ]
    np.testing.assert_array_equal(said[0], said[1])
    np.testing.assert_array_equal(said[2], said[3])
    assert (said[1] != said[2]).all()


def test_a_search_may_begin_with_the_adversary_of_another_run(tmp_path):
    config = AttackConfig(message="turn(what='linear')", evaluation_trials=2)
    parameters, run = resolve(config).message.init(jax.random.key(7)), RunDirectory.create(tmp_path / "new", config)
    array_files.replace_arrays(
        tmp_path / ADVERSARY_FILE, parameters, {"method": "attack", "config": configs.plain(config)}
    )
    goes_on = dataclasses.replace(config, begin=str(tmp_path), defence="masking", seed=5)
    experiment = prepare(goes_on)
    assert experiment.config == goes_on
    context = Context(run, Stages(QUIET, {}), Programs({}))
    start, explained = search._start(experiment.search, jax.random.key(0), context)
    jax.tree.map(np.testing.assert_array_equal, start, parameters)
    assert explained is None
    (tmp_path / ADVERSARY_FILE).unlink()  # a resumed run does not need it
    assert prepare(goes_on, begun=True).config == goes_on
    assert describe("attacks.act").prepare_again(goes_on).config == goes_on
    jax.tree.map(
        np.testing.assert_array_equal, search._start(experiment.search, jax.random.key(0), context)[0], parameters
    )
    with pytest.raises(ValueError, match=r"begin: got .*; random, zero, expert or the directory of a finished run is"):
        prepare(goes_on)
    with pytest.raises(ValueError, match=r"begin: got .*; with the goal control random or expert is needed"):
        prepare(dataclasses.replace(goes_on, goal="control"))
    array_files.replace_arrays(
        tmp_path / ADVERSARY_FILE, parameters, {"method": "attack", "config": configs.plain(config)}
    )
    with pytest.raises(ValueError, match=r"has the message turn.*, of 2 entries; linear of 2 is needed"):
        prepare(dataclasses.replace(goes_on, message="linear"))
    with pytest.raises(ValueError, match=r"begin: .* reads observations \(4,\); \(6,\) are needed"):
        prepare(dataclasses.replace(goes_on, environment="Acrobot-v1"))


@nightly
def test_a_search_may_begin_with_a_network_fitted_to_another_message(tmp_path):
    """A network fitted to a linear message sends the same messages, up to the residual of least squares."""
    config = AttackConfig(message="linear", evaluation_trials=2)
    message, run = resolve(config).message, RunDirectory.create(tmp_path / "new", config)
    parameters = message.init(jax.random.key(7))
    array_files.replace_arrays(
        tmp_path / ADVERSARY_FILE, parameters, {"method": "attack", "config": configs.plain(config)}
    )
    network = dataclasses.replace(config, begin=str(tmp_path), message="mlp(hidden=[16])")
    experiment = prepare(network)
    attack, context = experiment.attack, Context(run, Stages(QUIET, {}), Programs({}))
    start, explained = search._start(experiment.search, jax.random.key(0), context)
    seen = jnp.asarray(observations_of_play(attack.game))
    wanted, found = (jax.vmap(one.speak, (None, 0))(own, seen)
                     for one, own in ((message, parameters), (attack.message, start)))  # fmt: skip
    left = 1 - ((wanted - found) ** 2).mean() / ((wanted - wanted.mean(0)) ** 2).mean()
    assert explained["message"]["share_explained"] == pytest.approx(float(left), abs=1e-4)
    assert left > 0.95
    with pytest.raises(
        ValueError, match=r"the message linear, of 2 entries; mlp.*, or another without memory, of 3 is"
    ):
        prepare(dataclasses.replace(network, message_size=3))


def test_the_shortest_training_run_depends_on_the_victim_and_its_defence():
    """A2C in 8 environments has half the steps of each that PPO has in 4; a member of an ensemble has a fifth."""
    ppo = AttackConfig(warm_up_updates=8, num_updates=32, steps_per_update=256, num_envs=4)
    assert ppo.shortest_learned_steps == 8 * 256
    assert dataclasses.replace(ppo, victim="a2c").shortest_learned_steps == 8 * 1024 // 40 * 5
    assert dataclasses.replace(ppo, defence="ensemble").shortest_learned_steps == 2 * 256  # a fifth of 8, rounded
    endless = resolved(ppo, environment="ipd(discount=0.9)", goal="help", message="constant")
    assert endless.fitness == "end"


@nightly
def test_a_search_may_begin_with_zeros_and_know_a_defence():
    config = AttackConfig(message="lstm(units=3)", begin="zero", defence="dropout", fitness="last_update")
    begun = resolve(config).init(jax.random.key(0))
    assert not any(x.any() for x in jax.tree.leaves(begun))
    # The fitness is the last update in the training run of a victim with the defence.
    tiny = {"num_updates": 1, "steps_per_update": 8, "num_envs": 12, "evaluation_episodes": 12, "evaluation_steps": 8}
    tiny |= {"environment": "CartPole-v1(max_steps_in_episode=4)", "victim": "reinforce"}
    one = resolved(config, message="mlp(hidden=[12])", **tiny)
    parameters, key = one.message.init(jax.random.key(1)), jax.random.key(2)
    talk = one.message.talk(one.game, parameters, 2)
    training = jax.jit(lambda: DEFENCES["dropout"](key, talk, one.make_victim, one.schedule))()
    outcome = jax.jit(one.trial)(parameters, key)
    np.testing.assert_allclose(outcome.fitness, -training.last_update, rtol=1e-5)
    assert training.last_update == 4  # every episode of four steps that ended


class Pair(Game):
    """Observations are a dictionary of two arrays."""

    num_agents = 1

    def reset(self, key):
        return {"agent_0": {"left": jnp.zeros(2), "right": jnp.zeros(3)}}, jnp.zeros(())

    def step_env(self, key, state, actions):
        raise AssertionError("nothing is played")


def test_an_examination_writes_nothing_through_a_link(within, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "letter").write_text("dear friend")
    (tmp_path / "run" / "examination.json").symlink_to(tmp_path / "letter")
    result = within("run", cwd=tmp_path, module="attacks.examine")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "run: 'examination.json' is no file of its own" in result.stderr


def test_a_dictionary_observation_is_refused(act, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    games.register("pair", Pair, "sees a dictionary")
    finished = act("cartpole", "--environment", "pair")
    assert finished.returncode == 2
    assert finished.stderr.splitlines() == [
        "python -m attacks.act: game: Pair has observations with several parts; an array is needed"
    ]
    assert not list(tmp_path.iterdir())
