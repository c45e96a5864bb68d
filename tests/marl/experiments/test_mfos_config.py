"""The config of `python -m marl.mfos`: refusals, presets and defaults."""

import dataclasses
import subprocess
import sys

import jax
import numpy as np
import pytest

import configs
from configs.flags import check_effect
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from marl.learners import registry
from marl.shapers.meta_ppo_config import ExactMetaPPO
from meta import Evolution
from tests.nightly import grid

TINY = """
environment: ipd(episode_length=4)
opponent: reinforce
shaper: shaper(hidden_units=3)
meta_steps: 3
episode_length: 4
num_envs: 12
trials: 1
meta_ppo: {batch_size: 2}
"""


BAD = {
    "unknown game": (
        ["ipd", "--game=prisoner_dilemma"],
        "game: got 'prisoner_dilemma'; did you mean prisoners_dilemma",
    ),
    "unknown opponent": (["ipd", "--opponent=niave"], "opponent: got 'niave'; did you mean naive"),
    "unknown strategy": (["ipd", "--evolution.strategy=cmaes"], "evolution.strategy: got 'cmaes'; did you mean cma_es"),
    "wrong choice": (["ipd", "--evolution.fitness-shaping=rank"], "--evolution.fitness-shaping"),
    "odd population": (["ipd", "--evolution.population-size=7"], "evolution.population_size: got 7"),
    "no generations": (["ipd", "--evolution.generations=0"], "evolution.generations: got 0"),
    "negative seed": (["ipd", "--seed=-1"], "seed: got -1"),
    "discount": (["ipd", "--discount=1"], "discount: got 1.0"),
    "strategy needs memory": (["chicken", "--opponent=tft"], "discount above 0"),
    "foreign config": (["--resume", "other"], "unknown field learner"),
    "preset and resume": (["ipd", "--resume", "other"], "preset: got 'ipd'; none is needed with --resume"),
    "list for a number": (["ipd", "--opponent=naive(learning_rate=[1,2,0])"], "learning_rate: got [1, 2, 0]"),
    "no probabilities": (["ipd", "--opponent=memory_one"], "memory_one: probabilities: not given; a list of numbers"),
    "fixed weights": (["ipd", "--evolution.strategy=des", "--evolution.fitness-shaping=identity"], "default is needed"),
    "binary file": (["binary.yaml"], "binary.yaml: cannot be read as text"),
    "three payoffs": (["payoffs.yaml"], "row_payoffs: got [1, 2, 3]"),
    "bad yaml": (["bad.yaml"], "bad.yaml: not valid YAML"),
    "unknown key": (["key.yaml"], "unknown field evolution.population; did you mean population_size"),
    "wrong value": (["value.yaml"], "trials: got 'four'; a whole number is needed"),
    "a list": (["list.yaml"], "list.yaml: the file holds ['game']; fields with values are needed"),
    "kind of another game": (["ipd", "--episode-length=5"], "unknown option --episode-length=5"),
    "a sampled game over a formula": (
        ["ipd", "--environment=coin_game", "--opponent=ppo"],
        "unknown option --environment=coin_game",
    ),
    "a cluster of ppo": (
        ["ipd", "--meta-learner=ppo", "--cluster=ray"],
        "cluster: has no effect with meta_learner ppo",
    ),
    "minibatches": (["ipd", "--meta-learner=ppo", "--meta-ppo.minibatches=2"], "option --meta-ppo.minibatches=2"),
    "trials of ppo": (["ipd", "--meta-learner=ppo", "--trials=3"], "trials: has no effect with meta_learner ppo"),
    "units of ppo": (
        ["ipd", "--meta-learner=ppo", "--hidden-units", "3"],
        "hidden_units: has no effect with meta_learner",
    ),
    "evolution of ppo": (
        ["ipd", "--meta-learner=ppo", "--evolution.generations=3"],
        "evolution.generations: has no effect with meta_learner ppo",
    ),
    "ppo of evolution": (
        ["ipd", "--meta-ppo.iterations=3"],
        "meta_ppo.iterations: has no effect with meta_learner evol",
    ),
    "units of one policy": (
        ["ipd", "--shaper=good_shepherd", "--hidden-units=3"],
        "hidden_units: has no effect with shaper good_shepherd",
    ),
    "units given twice": (
        ["ipd", "--shaper=mfos(hidden_units=8)", "--hidden-units=3"],
        "hidden_units: has no effect with shaper mfos(hidden_units=8)",
    ),
    "unknown unseen": (["ipd", "--unseen", "tft", "nothing"], "opponent: got 'nothing'"),
    "ppo of another shaper": (["ipd", "--meta-learner=ppo", "--shaper=shaper"], "meta_learner ppo trains mfos"),
    "another game": (["exact.yaml"], "exact.yaml: game: got 'hawk_dove', with environment 'ipd'; one of"),
    "unknown in a sampled game": (["unknown.yaml"], "unknown field oponent; did you mean opponent"),
    "number for a game": (["number.yaml"], "environment: got 3; text is needed"),
    "text for a list": (["text.yaml"], "unseen: got 'random'"),
    "no date": (["date.yaml"], "date.yaml: not valid YAML"),
    "game for a preset": (
        ["rock_paper_scissors"],
        "preset: got 'rock_paper_scissors', a game; a preset is needed, as in ipd_sampled --environment rock",
    ),
    "game of one for a preset": (["reacher"], "preset: got 'reacher'; one of chicken"),
    "unknown start": (["ipd", "--start=screend"], "start: got 'screend'; did you mean screened"),
    "start of the other kind": (["ipd", "--start=imitation"], "start: got 'imitation'; one of random, screened is"),
    "no candidates": (["ipd", "--start=screened(candidates=0)"], "start: screened: candidates: got 0; a whole number"),
    "candidates": (["ipd", "--start=screened(candidates=1500)"], "candidates: got 1500; a multiple of 512, or fewer"),
    "largest_factor": (
        ["ipd", "--start=screened(largest_factor=0.5)"],
        "start: screened: largest_factor: got 0.5; a number in [1",
    ),
    "finalists": (["ipd", "--start=screened(finalists=2000)"], "start: screened: finalists: got 2000; a whole"),
    "no final trials": (["ipd", "--start=screened(final_trials=0)"], "start: screened: final_trials: got 0; a whole"),
    "memory of a start": (["ipd", "--start=screened(trials=100000000)"], "start: got 'screened(trials=100000000)'"),
    "start of pairs": (["ipd", "--opponent=self_play", "--start=screened"], "random is needed with self_play"),
    "start of ppo": (["ipd", "--meta-learner=ppo", "--start=screened"], "start: has no effect with meta_learner ppo"),
    "directory that is no run": (["--resume", "empty"], "--resume: got 'empty'; the directory of a run"),
}
SAMPLED = {
    "unknown shaper": (["--shaper=sharper"], "shaper: got 'sharper'; did you mean shaper"),
    "unknown setting": (["--shaper=mfos(units=3)"], "shaper: mfos has no setting 'units'; it takes hidden_units"),
    "unknown opponent": (["--opponent=pppo"], "opponent: got 'pppo'; did you mean ppo"),
    "opponent's setting": (["--opponent=ppo(rate=1)"], "opponent: ppo has no setting 'rate'"),
    "what does not divide": (["--opponent=ppo(minibatches=5)"], "minibatches: got 5; a divisor of the 48 steps"),
    "no data": (["--environment=MNISTBandit-bsuite"], "MNISTBandit-bsuite: gymnax downloads its data on first use"),
    "what does not divide, unseen": (["--unseen", "ppo(minibatches=5)"], "minibatches: got 5"),
    "unknown unseen": (["--unseen", "reinforce", "nothing"], "opponent: got 'nothing'"),
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
    "actions of several parts": (["--environment=negotiation"], "opponent: reinforce: action space: got Multi"),
    "three for two": (["--environment=three_player_ipd", "--opponent=lola_dice"], "got a game of 3 players"),
    "one fresh trial": (["--evaluation-trials=1"], "evaluation_trials: got 1; a whole number of at least 2"),
    "meta-learner": (["--meta-learner=sgd"], "--meta-learner"),
    "batch": (["--meta-ppo.minibatches=3"], "meta_ppo.minibatches: got 3; a divisor of the 2 trials is needed"),
    "coala that averages": (
        ["--meta-learner=ppo", "--meta-ppo.advantages=coala", "--meta-ppo.batch-size=2"],
        "meta_ppo.advantages: got coala with shaper",
    ),
    "coala discounts nothing": (
        ["--meta-learner=ppo", "--meta-ppo.advantages=coala", "--meta-ppo.discount=0.9"],
        "meta_ppo.discount: has no effect with meta_ppo.advantages coala",
    ),
    "wrong type": (["--meta-steps=many"], "--meta-steps"),
    "unknown option": (["--meta-step=3"], "unknown option --meta-step=3; did you mean --meta-steps"),
    "discount": (["--discount=0.5"], "unknown option --discount=0.5"),
    "unknown start": (["--start=screend"], "start: got 'screend'; did you mean screened"),
    "setting of a start": (["--start=screened(number=3)"], "start: screened has no setting 'number'; it takes candid"),
    "memory of a start": (["--start=screened(trials=100000000)"], "start: got 'screened(trials=100000000)'"),
    "memory of examples": (["--start=imitation(trials=100000000)"], "start: got 'imitation(trials=100000000)'"),
    "steps of a start": (["--start=imitation(steps=0)"], "start: imitation: steps: got 0; a whole number of at least"),
    "rate of a start": (["--start=imitation(learning_rate=0)"], "start: imitation: learning_rate: got 0; a number in"),
    "start of ppo": (["--meta-learner=ppo", "--start=screened"], "start: has no effect with meta_learner ppo"),
    "units of ppo": (["--meta-learner=ppo", "--meta-ppo.hidden-units=8"], "unknown option --meta-ppo.hidden-units=8"),
    "evolution of ppo": (
        ["--meta-learner=ppo", "--evolution.sigma=1"],
        "evolution.sigma: has no effect with meta_learner",
    ),
}
BAD |= {f"{name}, sampled": (["tiny.yaml", *arguments], message) for name, (arguments, message) in SAMPLED.items()}


FROM_OUTSIDE = ("unknown opponent", "wrong choice")  # one fault in the config, and one in the command line


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "other").mkdir()
    (folder / "other" / "config.yaml").write_text("learner: ppo\n")
    (folder / "bad.yaml").write_text("game: [\n")
    (folder / "key.yaml").write_text("evolution: {population: 4}\n")
    (folder / "value.yaml").write_text("trials: four\n")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x80")
    (folder / "payoffs.yaml").write_text("row_payoffs: [1, 2, 3]\n")
    (folder / "list.yaml").write_text("- game\n")
    (folder / "empty").mkdir()
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "exact.yaml").write_text("environment: ipd\ngame: hawk_dove\n")
    (folder / "unknown.yaml").write_text("environment: ipd\noponent: ppo\n")
    (folder / "number.yaml").write_text("environment: 3\n")
    (folder / "text.yaml").write_text("environment: ipd\nunseen: random\n")
    (folder / "date.yaml").write_text("environment: ipd\nopponent: 2024-13-45\n")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_status_2_and_leaves_nothing(name, request, bad_folder):
    arguments, message = BAD[name]
    before = sorted(bad_folder.rglob("*"))
    run = request.getfixturevalue("command" if name in FROM_OUTSIDE else "within")
    result = run(*arguments, cwd=bad_folder)
    assert result.returncode == 2
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert sorted(bad_folder.rglob("*")) == before


def test_a_preset_may_have_settings_of_the_other_meta_learner():
    for name in ("chicken", "ipd_sampled", "coin_game_mfos_paper"):
        config = configs.load(ShapingConfig, "mfos", name)
        ppo = dataclasses.replace(config, meta_learner="ppo")
        assert "evolution" in ppo.without_effect
        assert ppo.generations == config.meta_ppo.iterations


def test_the_first_meta_step_that_counts_is_one_of_a_trial_in_every_size():
    config = configs.load(ShapingConfig, "mfos", "coin_game")
    late = dataclasses.replace(config, scored_from=99)
    for smaller in (late.small(), late.shortened()):
        assert 0 < smaller.scored_from == smaller.meta_steps - 1
    for wrong in (-1, 100):
        with pytest.raises(ValueError, match=f"scored_from: got {wrong}; 0 to 99 is needed"):
            dataclasses.replace(config, scored_from=wrong)
    assert "scored_from" in dataclasses.replace(config, meta_learner="ppo").without_effect


@pytest.mark.system
@pytest.mark.parametrize(
    "name", grid(configs.presets("mfos"), "ipd", "chicken", "ipd_sampled", "three_player_ipd", "harvest")
)
def test_every_preset_fits_and_comes_back_from_its_file(name):
    config = configs.load(ShapingConfig, "mfos", name)
    make_shaping(config)
    assert configs.from_text(ShapingConfig, configs.to_text(config), "again") == config


PUBLIC = {  # public code of Khan et al. (2023): opponent, trials of a candidate, shaping, sigma, learning rate
    "ipd_sampled_paper": ("tabular_ppo", 10, "identity", (0.04, 0.01), (0.1, 0.9999**5000)),
    "ipd_sampled_mfos_paper": ("tabular_ppo", 10, "standardize", (0.04, 0.01), (0.01, 0.9999**5000)),
    "coin_game_paper": ("ppo", 1, "centered_rank", (0.04, 0.01), (0.1, 0.9999**3000)),
    "ipd_in_the_matrix_paper": ("ppo", 1, "centered_rank", (0.075, 0.01), (0.05, 0.02)),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_settings_of_the_paper_are_those_of_its_public_code(name):
    opponent, trials, shaping, (sigma, least), (rate, left) = PUBLIC[name]
    config = configs.load(ShapingConfig, "mfos", name)
    evolution = config.evolution
    assert (config.trials, evolution.fitness_shaping, evolution.fall) == (trials, shaping, "exponential")
    assert (evolution.sigma, evolution.learning_rate) == (sigma, rate)
    assert evolution.sigma * evolution.sigma_end == pytest.approx(least, rel=0.01)
    assert evolution.learning_rate_end == pytest.approx(left, rel=0.02)
    learner, given = registry.SAMPLED.read("opponent", config.opponent)
    assert (learner, given["epochs"], given["head_weights"], given["bootstrap_limits"]) == (opponent, 2, 0.5, False)
    assert given["learning_rate"] == (1.0 if learner == "tabular_ppo" else 0.005)
    assert given["entropy_coefficient"] == (0.02 if learner == "tabular_ppo" else 0.1)
    # The public loss has the mean square of the value's error times 0.5, ours half of it times the coefficient.
    assert given["value_coefficient"] * 0.5 == 0.5
    defaults = registry.settings(learner, config.make_game())
    assert [defaults[setting] for setting in ("gae_lambda", "clip", "value_clip")] == [0.95, 0.2, 0.2]
    assert given.get("discount", defaults["discount"]) == 0.96


def test_numbers_of_a_critic_have_no_effect_without_one():
    config = ExactShapingConfig(meta_learner="ppo", meta_ppo=ExactMetaPPO(advantages="coala"))
    for name in ("discount", "value_coefficient"):
        with pytest.raises(configs.ConfigError, match=f"{name}: has no effect with meta_ppo.advantages coala"):
            check_effect(config, [f"--meta_ppo.{name}=0.5"])


def test_the_coin_game_of_mfos_has_no_generalised_advantages_and_one_learner_in_all_environments():
    config = configs.load(ShapingConfig, "mfos", "coin_game_mfos_paper")
    ppo = config.meta_ppo
    assert (ppo.gae_lambda, ppo.later_episodes, ppo.entropy_coefficient) == (1.0, "mean", 0.0)
    assert (ppo.learning_rate, ppo.discount, ppo.epochs, ppo.minibatches) == (0.0002, 0.995, 16, 1)
    assert (config.num_envs * ppo.batch_size, ppo.batch_size, config.meta_steps) == (512, 1, 16)
    learner, given = registry.SAMPLED.read("opponent", config.opponent)
    assert (learner, given["gae_lambda"], given["epochs"], given["learning_rate"]) == ("ppo", 1.0, 80, 0.005)
    assert (given["value_clip"], given["bootstrap_limits"]) == (None, False)


def test_defaults_depend_on_the_kind_of_game():
    exact, sampled = ExactShapingConfig(), SampledShapingConfig(environment="ipd")
    fields = ("opponent", "shaper", "trials", "evaluation_trials")
    assert [getattr(exact, field) for field in fields] == ["naive", "mfos", 8, 4096]
    assert [getattr(sampled, field) for field in fields] == ["tabular_ppo", "shaper", 4, 256]
    assert [config.meta_ppo.batch_size for config in (exact, sampled)] == [4096, 512]


def test_a_config_is_made_without_choosing_devices():
    code = """
import marl.mfos, configs
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
for name in configs.presets("mfos"):
    configs.load(ShapingConfig, "mfos", name)
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout.strip(), result.stderr) == ("False", "")


def test_shapers_whose_seats_differ_are_refused():
    """One policy cannot have two actions in one seat and three in the other."""
    payoffs = np.zeros((2, 3, 2, 3)).tolist()
    game = f"matrix_game(payoffs={payoffs}, episode_length=4)"
    config = SampledShapingConfig(environment=game, num_shapers=2, opponent="random")
    with pytest.raises(ValueError, match=r"^num_shapers: got 2; the shapers of .* they have one policy$"):
        make_shaping(config)


def test_auto_screens_the_start_only_against_lola_in_the_standard_game():
    def starting(**changes):
        return ExactShapingConfig(**changes).starting

    assert starting(opponent="lola") == starting(opponent="naive", start="screened") == "screened"
    assert starting(opponent="lola(learning_rate=1)") == "screened"
    for changes in (
        {},
        {"opponent": "naive + lola"},
        {"opponent": "lola(learning_rate=0.3)"},
        {"opponent": "lola(step=1)"},
        {"opponent": "exact_lola"},
        {"opponent": "lola", "game": "chicken"},
        {"opponent": "lola", "discount": 0.0},
        {"opponent": "lola", "shaper": "good_shepherd"},
        {"opponent": "lola", "evolution": Evolution(strategy="cma_es")},
        {"opponent": "lola", "meta_learner": "ppo"},
    ):
        assert starting(**changes) == "random", changes
    screened = ExactShapingConfig(opponent="lola").evolving
    assert (screened.sigma, screened.fitness_shaping) == (0.1, "standardize")
    own = ExactShapingConfig(opponent="lola", evolution=Evolution(sigma=0.05, fitness_shaping="normalize")).evolving
    assert (own.sigma, own.fitness_shaping) == (0.05, "normalize")
    other = ExactShapingConfig(start="screened", evolution=Evolution(strategy="cma_es"))
    assert other.evolving == other.evolution


def test_an_imitation_counts_its_trials_and_its_steps():
    preset = configs.load(ShapingConfig, "mfos", "ipd_sampled")
    start = "imitation(trials=20, steps=50, batch=2)"
    config = dataclasses.replace(preset, start=start)
    assert config.preparation == (20, 10, 50, 2, 0.003)
    assert config.training_trials == preset.generations * preset.trials_per_generation + 20
    # A gradient through an episode takes as long as ten episodes; a trial has a hundred.
    assert config.make_start().trials(100) == 20 + 10 * 50 * 2 * 10 / 100
    assert config.make_start().describe(25, {"log_likelihood": np.array([-0.4, -0.6])}) == (
        0.5,
        "step 25 of 50 of an imitation  log-likelihood -0.500",
    )
    assert make_shaping(config).work_of_training().keys() == {"imitation of a learner", "training"}


def test_screening_in_a_sampled_game_has_fewer_candidates_and_leaves_the_evolution_unchanged():
    assert SampledShapingConfig(environment="ipd").starting == "random"
    preset = configs.load(ShapingConfig, "mfos", "ipd_sampled")
    assert preset.starting == "screened"
    assert preset.preparation == (4096, 1, 32, 8)
    assert preset.preparation.num_trials == 4096 + 32 * 8
    assert preset.evolving == preset.evolution
    assert dataclasses.replace(preset, meta_learner="ppo").preparation is None
    few = dataclasses.replace(preset, start="screened(candidates=8, trials=4, final_trials=20)")
    assert few.preparation == (8, 4, 8, 20)  # no more finalists than candidates
    cores = len(jax.local_devices())
    assert few.preparation.at_once == min(8, cores) * 20  # one candidate or finalist on each core
    assert preset.preparation.at_once == min(512, 64 * cores)
