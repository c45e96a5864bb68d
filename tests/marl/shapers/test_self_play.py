"""Meta-self-play: opponents over generations, seats, and the results of two shapers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, MatrixGame, discounted_payoffs, matching_pennies, prisoners_dilemma
from marl.experiments.shaping.config import ExactShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from marl.learners.registry import make_learner
from marl.shapers.exact_policies import good_shepherd, mfos
from marl.shapers.self_play import Rival, annealing, by_seat, pair_keys, rivals, seat_rival
from marl.shapers.trial import play, play_trials, shaping_trial
from meta import Evolution
from tests.nightly import nightly


def test_the_annealing_is_read_from_the_opponents_name():
    assert annealing("naive") is None
    assert annealing("self_play") == annealing("self_play()") == 0.65
    assert annealing("self_play(annealing=0)") == 0
    assert annealing(" self_play( annealing = 1e-1 ) ") == 0.1
    for spec in ("self_play(annealing=1.5)", "self_play(annealing=nan)", "self_play(annealing=x)"):
        with pytest.raises(ValueError, match=r"opponent: self_play: annealing: got .*; a number from 0 to 1 is needed"):
            annealing(spec)
    for spec in ("self_play(rate=1)", "self_play(0.5)", "self_play + lola"):
        with pytest.raises(ValueError, match=r"opponent: got .*; self_play, or self_play\(annealing=0.65\), is needed"):
            ExactShapingConfig(opponent=spec)


def test_the_share_of_naive_opponents_falls_and_is_common_to_a_pair():
    keys = pair_keys(jax.random.split(jax.random.key(0), 400))
    context = jax.jit(rivals(InfinitelyRepeated(prisoners_dilemma, 0.96), 0.5, 100))
    for generation, chance in ((0, 1.0), (10, 0.8), (25, 0.5), (40, 0.2), (50, 0.0), (99, 0.0)):
        naive = np.asarray(context(keys, jnp.int32(generation), jnp.zeros(800)).against_naive)
        np.testing.assert_array_equal(naive[::2], naive[1::2])
        assert naive.mean() == pytest.approx(chance, abs=0.08 if 0 < chance < 1 else 0)
    never = rivals(InfinitelyRepeated(prisoners_dilemma, 0.96), 0.0, 100)
    assert not never(keys, jnp.int32(0), jnp.zeros(800)).against_naive.any()


def test_each_shaper_meets_the_other_of_its_own_pair():
    game = InfinitelyRepeated(MatrixGame("uneven", ((1.0, 2.0), (3.0, 4.0)), ((5.0, 6.0), (7.0, 8.0))), 0.96)
    keys = pair_keys(jax.random.split(jax.random.key(0), 2))
    rival = rivals(game, 0.5, 10)(keys, jnp.int32(9), {"x": jnp.arange(8.0).reshape(4, 2)})
    np.testing.assert_array_equal(rival.parameters["x"], [[2, 3], [0, 1], [6, 7], [4, 5]])
    np.testing.assert_array_equal(rival.payoffs[0], [[1, 2, 3, 4], [5, 6, 7, 8]])
    np.testing.assert_array_equal(rival.payoffs[1], [[5, 7, 6, 8], [1, 3, 2, 4]])  # its own action first
    np.testing.assert_array_equal(rival.payoffs[2:], rival.payoffs[:2])


@pytest.mark.parametrize("payoffs", [matching_pennies, prisoners_dilemma], ids=lambda game: game.name)
def test_two_fixed_policies_get_the_payoffs_of_the_game_from_both_seats(payoffs):
    game, shaper = InfinitelyRepeated(payoffs, 0.96), good_shepherd()
    policies = jax.random.normal(jax.random.key(0), (2, 5))
    seats = rivals(game, 0.0, 10)(pair_keys(jax.random.key(0)[None]), jnp.int32(0), policies)

    @jax.jit
    @jax.vmap
    def play_match(policy, rival):
        view, opponent = seat_rival(game, shaper, rival)
        return shaping_trial(view, shaper, opponent, meta_steps=3)(policy, jax.random.key(1)).metrics

    found = play_match(policies, seats)
    values = 0.04 * np.array(discounted_payoffs(payoffs, *policies, 0.96))
    np.testing.assert_allclose(found["shaper_return"], values, rtol=1e-4)
    np.testing.assert_allclose(found["opponent_return"], values[::-1], rtol=1e-4)


@pytest.mark.parametrize("observe", ["after", "before"])
def test_both_shapers_see_the_policies_that_were_played_last(observe):
    game, shaper = InfinitelyRepeated(prisoners_dilemma, 0.96), mfos(observe=observe)
    own, other = (shaper.init(jax.random.key(i)) for i in range(2))
    payoffs = jnp.array([game.payoffs.seen_by(0)])[0]
    view, opponent = seat_rival(game, shaper, Rival(other, jnp.array(False), payoffs))

    @jax.jit
    def trial(key):
        return play(key, view, shaper.learner(own), opponent, meta_steps=3, keep_trajectories=True).trajectories

    row, column = trial(jax.random.key(5))
    actions = jax.nn.sigmoid(jnp.stack([row.action[:, 0], column.action[:, 0]]))
    np.testing.assert_allclose(row.obs[1:, 0], jnp.concatenate([actions[0], actions[1]], -1)[:-1], rtol=1e-5)
    np.testing.assert_allclose(column.obs[1:, 0], jnp.concatenate([actions[1], actions[0]], -1)[:-1], rtol=1e-5)
    for parameters, seat_of in ((own, row), (other, column)):
        policy = shaper.learner(parameters)
        state = policy.init(jax.random.key(0))
        memory = policy.init_memory(state, None)._replace(started=jnp.array(True))
        expected, _, _ = policy.act(jax.random.key(0), state, memory, seat_of.obs[2, 0])
        np.testing.assert_allclose(seat_of.action[2, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.system
def test_trials_against_naive_learners_are_those_of_one_shaper():
    game, shaper = InfinitelyRepeated(matching_pennies, 0.96), mfos()
    parameters = shaper.init(jax.random.key(0))
    rival = Rival(shaper.init(jax.random.key(1)), jnp.array(True), jnp.array(game.payoffs.seen_by(0)))

    def returns(view, opponent, key):
        trials = play_trials(key, view, shaper, parameters, opponent, meta_steps=20, num_trials=2000)
        return trials.shaper_payoffs.mean(1)

    alone = jax.jit(lambda key: returns(game, make_learner("naive", game, 1), key))(jax.random.key(1))
    in_pair = jax.jit(lambda key: returns(*seat_rival(game, shaper, rival), key))(jax.random.key(2))
    error = np.hypot(alone.std(), in_pair.std()) / 2000**0.5
    assert abs(float(alone.mean() - in_pair.mean())) < 4 * error


def test_the_returns_of_pairs_are_taken_apart_by_seat():
    metrics = {"shaper_return": np.arange(8.0).reshape(2, 4), "shaper_return_deviation": np.ones((2, 4))}
    found = by_seat(metrics)
    np.testing.assert_array_equal(found["shaper_return"], [[0, 2], [4, 6]])
    np.testing.assert_array_equal(found["opponent_return"], [[1, 3], [5, 7]])
    assert by_seat({name: x[:, :2] for name, x in metrics.items()})["opponent_return"].tolist() == [1, 5]


@nightly
def test_without_naive_learners_two_shapers_defect():
    evolution = Evolution(population_size=64, generations=25, learning_rate=0.1, learning_rate_end=1.0)
    config = ExactShapingConfig(
        opponent="self_play(annealing=0)", evolution=evolution, trials=2, meta_steps=20, hidden_units=4, seeds=2
    )
    found = make_shaping(config).train_shapers(jax.random.split(jax.random.key(0), 2))
    assert found.parameters["w1"].shape == (2, 2, 10, 4)
    assert found.metrics["shaper_return"].shape == (25, 2)
    assert (found.metrics["shaper_return"][0] > -1.8).all()
    assert (found.metrics["shaper_return"][-1] < -1.9).all()
    assert (found.metrics["opponent_return"][-1] < -1.9).all()


@nightly
def test_the_command_reports_both_seats_and_resumes(within, tmp_path):
    options = ["--evolution.population-size=4", "--evolution.generations=6", "--trials=1", "--meta-steps=3"]
    result = within(
        "imp",
        "--discount=0",
        "--opponent=self_play",
        *options,
        "--evaluation-trials=8",
        "--seeds=2",
        "--out=run",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found["num_meta_steps"] == 6 * 4 * 3 * 2 * 2
    for run in found["runs"]:  # of a zero-sum game
        assert run["shaper_return"] == pytest.approx(-run["opponent_return"], abs=1e-5)
    assert len(list((tmp_path / "run" / "figures").glob("*.png"))) == 6
    assert "The row shaper plays heads in" in result.stdout
    again = within("--resume", "run", "--quiet", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["runs"] == found["runs"]


@pytest.mark.slow
def test_annealed_self_play_ends_in_cooperation_and_without_annealing_in_defection():
    keys = jnp.stack([jax.random.key(seed) for seed in range(3)])
    for spec, holds in (("self_play", lambda x: x > -1.1), ("self_play(annealing=0)", lambda x: x < -1.9)):
        found = make_shaping(ExactShapingConfig(opponent=spec)).train_shapers(keys)
        assert holds(found.metrics["shaper_return"][-1]).all()
        assert holds(found.metrics["opponent_return"][-1]).all()
