"""Measurements of fresh trials and estimates of durations in both kinds of game, by hand."""

import dataclasses
import io

import jax
import numpy as np
import pytest
from rich.console import Console

import configs
from marl.experiments.shaping import jobs
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.evaluation import OWN_KIND, EvaluationResult, mean_payoffs, pool_seeds
from marl.experiments.shaping.exact import ExactShaping
from marl.experiments.shaping.figures import share_of_occasions
from marl.experiments.shaping.runtime_estimate import Speed, cost_of
from marl.experiments.shaping.sampled import SampledShaping, share_of_trials
from meta import Evolution, Evolved

SAMPLED = SampledShapingConfig(environment="ipd", opponent="random")


def played(shaper, opponent, **counts):
    return EvaluationResult(np.array(shaper), np.array(opponent), {name: np.array(x) for name, x in counts.items()})


def test_returns_are_means_over_fresh_trials_with_their_errors():
    shaped = played([[-1.0, 0.0], [-0.5, -0.5], [0.0, 1.0]], [[-2.0, -2.0]] * 3)
    naive = played([[-2.0, -2.0], [-1.0, -2.0], [-2.0, -1.0]], [[-1.0, -3.0]] * 3)
    # Trials: -0.5, -0.5, 0.5 with variance 1/3; -2, -1.5, -1.5 with 1/12; their last episodes 0, -0.5, 1.
    assert mean_payoffs(shaped)["shaper"] == pytest.approx({"mean": -1 / 6, "standard_error": 1 / 3})
    assert mean_payoffs(naive)["shaper"] == pytest.approx({"mean": -5 / 3, "standard_error": 1 / 6})
    assert mean_payoffs(shaped)["opponent"] == {"mean": -2.0, "standard_error": 0.0}
    shaping = SampledShaping(SAMPLED)
    assert shaping.measure_group(shaped)["shaper_last_episode"]["mean"] == pytest.approx(1 / 6)
    assert shaping.measure({"random": shaped, OWN_KIND: naive})["gain_over_own_kind"]["mean"] == pytest.approx(1.5)


def test_the_gain_is_of_trials_with_the_same_draws():
    same = played([[-1.0], [0.0], [-2.0]], [[-1.0]] * 3)
    gain = SampledShaping(SAMPLED).measure({"random": same, OWN_KIND: same})["gain_over_own_kind"]
    assert gain == {"mean": 0.0, "standard_error": 0.0}  # equal trial by trial


def test_trainings_are_pooled_with_the_error_between_them():
    def one(mean, error, policy):
        return {"against": {"naive": [{"mean": mean, "standard_error": error}]}, "policy": policy}

    found = pool_seeds([one(1.0, 0.1, [0.5]), one(3.0, 0.2, [0.7])])
    assert found["against"]["naive"] == [{"mean": 2.0, "standard_error": pytest.approx(1.0)}]
    assert found["policy"] == [0.5]  # the first one's, because no shaper has the mean policy
    assert pool_seeds([one(1.0, 0.1, [0.5])]) == one(1.0, 0.1, [0.5])
    assert pool_seeds([one(1.0, 0.1, []), one(None, None, [])])["against"]["naive"][0]["mean"] is None
    assert pool_seeds([{"bound": {"bound": 1.0}}, {"bound": None}]) == {"bound": None}  # one of them has none


def test_chance_extortioners_are_drawn_for_each_training():
    payoffs = np.zeros((64, 6))
    more = {"policies": np.full((64, 6, 5), 0.5), "cooperation": np.full((64, 6, 2), 0.5)}
    shaped = {"naive": EvaluationResult(payoffs, payoffs, more)}
    shaping = ExactShaping(ExactShapingConfig(seed=3))
    chances = [shaping.measure(shaped, number)["zd"]["chance"]["kept"]["mean"] for number in range(12)]
    again = ExactShaping(ExactShapingConfig(seed=4)).measure(shaped)["zd"]["chance"]["kept"]["mean"]
    assert len(set(chances)) > 1
    assert again == chances[1]


def test_an_unknown_learner_that_begins_with_a_known_name_is_refused():
    for spec in ("reinforce-2", "tabular_ppo-x(rounds=3)"):
        with pytest.raises(ValueError, match="opponent: got '" + spec.partition("(")[0]):
            ExactShaping(ExactShapingConfig(opponent=spec))


def test_the_speed_of_ppo_is_measured_by_the_trials_of_its_batch():
    config = SampledShapingConfig(
        environment="ipd(episode_length=100)", meta_learner="ppo", shaper="shaper", opponent="random"
    )
    assert config.meta_ppo.batch_size == 512
    assert config.shortened().meta_steps == 25  # 2.5 M steps, of 512 x 100 x 2 in an episode


def test_the_speed_of_a_sampled_game_is_measured_with_the_candidates_of_one_chunk(monkeypatch):
    asked = []
    trained = Evolved(*[None] * len(Evolved._fields))._replace(seconds_to_run=2.0, seconds_to_compile=7.0)
    monkeypatch.setattr(SampledShaping, "train_shapers", lambda shaping, keys: asked.append(shaping) or trained)
    evolution = Evolution(population_size=100, generations=9, chunk_size=5)
    config = dataclasses.replace(
        SAMPLED, meta_steps=70_000, episode_length=4, num_envs=12, trials=1, evolution=evolution, seeds=3
    )
    found = jobs.measure(config)
    (short,) = asked
    members = 5 * len(jax.local_devices())
    assert short.config.evolution.population_size == members + members % 2  # candidates come in pairs
    steps = short.config.trials_per_generation * short.config.steps_of_a_trial
    assert 2.5e6 <= steps < 2.5e6 + short.config.evolution.population_size * 4 * 12  # at most one episode more
    assert (found.steps_per_second, found.seconds_to_compile) == (3 * steps / 2.0, 7.0)


def test_a_population_and_learners_of_unknown_speed_are_measured_themselves(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(jobs, "measure", lambda config: asked.append(config.opponent) or Speed(1e6, 1.0))
    opponents = ("naive", "lola", "naive + lola", "reinforce", "naive(learning_rate=0.1)", "mmaml")
    parts = {tmp_path / str(i): ExactShapingConfig(opponent=opponent) for i, opponent in enumerate(opponents)}
    estimated = jobs.shaping_jobs(parts, Console(quiet=True))
    assert asked == ["naive", "naive + lola", "reinforce"]
    assert estimated[1].seconds > 2 * estimated[0].seconds == 2 * estimated[4].seconds  # LOLA's


def test_finished_stages_take_no_more_time():
    config = ExactShapingConfig(evolution=Evolution(population_size=10, generations=100), trials=2)
    pace = Speed(1000.0, 7.0)
    drawing = cost_of(config).seconds_to_draw
    rest = 3 * 4096 * 100 / 1000 + 3 * 7 + drawing  # the evaluation, two controls, three programs
    assert pace.seconds(config) == pytest.approx(100 * 10 * 2 * 100 / 1000 + rest)
    assert pace.seconds(config, done=60) == pytest.approx(40 * 10 * 2 * 100 / 1000 + rest)
    # Fresh trials against REINFORCE, with an eighth of its rounds, take 60 / 8 times those against a naive learner.
    more = dataclasses.replace(config, unseen=("reinforce(episodes=8, rounds=25)", "lola"))
    apart = 4096 * 100 * (60 / 8 + 2.2) / 1000 + 2 * 7
    assert pace.seconds(more) == pytest.approx(pace.seconds(config) + apart)
    lola = dataclasses.replace(config, opponent="lola")
    assert pace.seconds(lola, done=100) > pace.seconds(config, done=100)
    # A meta-step of LOLA takes 2.2 times a naive one; 65,536 shapers have 8 trials each, 128 of them 128 more.
    screening = (65_536 * 8 + 128 * 128) * 100 * 2.2 / 1000
    at_random = dataclasses.replace(lola, start="random")
    assert pace.seconds(lola) - pace.seconds(at_random) == pytest.approx(screening)
    assert pace.seconds(lola, done=1) == pytest.approx(pace.seconds(at_random, done=1))
    # The sampled dilemma has 4,096, and 8 more trials for 32, of 100 episodes of 100 steps in 2 environments.
    preset = configs.load(ShapingConfig, "mfos", "ipd_sampled")
    added = pace.seconds(preset) - pace.seconds(dataclasses.replace(preset, start="random"))
    assert added == pytest.approx((4096 + 32 * 8) * 100 * 100 * 2 / 1000)


def test_a_long_run_reports_its_duration_beforehand(monkeypatch):
    # 5,000 generations of 10,000 trials of 20,000 steps and six evaluations of 256, at a million steps a second.
    monkeypatch.setattr(SampledShaping, "speed", lambda shaping: Speed(1e6, 10.0))
    console = Console(file=io.StringIO(), width=200)
    SampledShaping(configs.load(ShapingConfig, "mfos", "ipd_sampled_paper")).print_header(console)
    *header, measuring, shown = console.file.getvalue().splitlines()
    assert "takes about" not in " ".join([*header, measuring])
    assert shown == "1.00 M steps/s: the whole run takes about 12 days on this machine"  # 1,000,111 s


@pytest.mark.parametrize(("seeds", "long"), [(1, False), (10, True)])
def test_the_durations_of_all_trainings_of_a_run_add_up(seeds, long, monkeypatch):
    monkeypatch.setattr(SampledShaping, "speed", lambda shaping: Speed(1e6, 10.0))
    console = Console(file=io.StringIO(), width=200)
    preset = configs.load(ShapingConfig, "mfos", "ipd_sampled")  # 600 M steps each
    SampledShaping(dataclasses.replace(preset, seeds=seeds)).print_header(console)
    assert ("takes about" in console.file.getvalue()) is long


def test_shares_are_relative_to_the_occasions():
    met = np.array([[[0.5], [0.0]], [[0.25], [0.0]]])  # [trials, episodes, players]
    counts = {"cooperation": np.array([[[0.4], [0.0]], [[0.2], [0.0]]])}
    np.testing.assert_allclose(share_of_occasions("cooperation", counts), [0.3, 0.0])
    np.testing.assert_allclose(share_of_occasions("cooperation", counts | {"interactions": met}), [0.8, np.nan])
    coins = {"own_coin": np.array([[[0.3, 0.1]]]), "other_coin": np.array([[[0.1, 0.0]]])}
    np.testing.assert_allclose(share_of_occasions("own_coin", coins), [0.8])


def test_shares_of_own_coins_are_relative_to_the_whole_trial():
    counts = {
        "own_coin": np.array([[[0.1, 0.0], [0.3, 0.0]], [[0.0, 0.2], [0.0, 0.2]]]),
        "other_coin": np.array([[[0.3, 0.0], [0.1, 0.0]], [[0.5, 0.0], [0.0, 0.4]]]),
    }
    shares = share_of_trials("own_coin", counts)
    np.testing.assert_allclose(shares, [[0.5, 0.5], [0.0, 0.5]])  # a player without coins counts a half


def test_cooperation_over_a_trial_is_relative_to_the_interactions():
    cooperation = np.array([[[0.1, 0.0], [0.2, 0.0]], [[0.0, 0.4], [0.3, 0.0]]])  # [trials, episodes, players]
    met = np.array([[[0.1, 0.0], [0.5, 0.0]], [[0.2, 0.4], [0.4, 0.4]]])
    counts = {"cooperation": cooperation, "interactions": met}
    np.testing.assert_allclose(share_of_trials("cooperation", counts), [[0.5, 0.5], [0.5, 0.5]])
    np.testing.assert_allclose(
        share_of_trials("cooperation", counts | {"interactions": 2 * met}), [[0.25, 0.5], [0.25] * 2]
    )
    np.testing.assert_allclose(share_of_trials("cooperation", {"cooperation": cooperation}), [[0.15, 0.0], [0.15, 0.2]])
