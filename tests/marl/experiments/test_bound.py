"""The white-box bound: trials as in `play`, the gradient through them, and the command."""

import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, prisoners_dilemma
from marl.experiments import bound
from marl.experiments.bound import KnownBound, known_bound
from marl.experiments.trajectory_ascent import curve, make_starts, play_sequence, start_names, white_box_bound
from marl.learners.exact import trained
from marl.learners.registry import make_learner
from marl.shapers.exact_policies import good_shepherd
from marl.shapers.trial import play
from meta import RunDirectory
from meta.runs import array_files
from tests.nightly import grid

pytestmark = pytest.mark.system

GAME = InfinitelyRepeated(prisoners_dilemma)
STEPS = 6


@pytest.mark.parametrize("opponent", grid(("naive", "lola"), "naive"))
def test_a_sequence_of_one_policy_is_the_trial_of_a_good_shepherd(opponent):
    key, policy, learner = jax.random.key(3), jnp.array([1.0, 2.0, -1.0, 0.5, -2.0]), make_learner(opponent, GAME, 1)
    history = jax.jit(lambda: play(key, GAME, good_shepherd().learner(policy), learner, meta_steps=STEPS))()
    expected = [float(rewards[1:].mean()) for rewards in history.rewards]
    found = jax.jit(lambda: play_sequence(key, GAME, learner, jnp.tile(policy, (STEPS, 1))))()
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_gradient_goes_through_the_opponents_learning():
    with jax.enable_x64(True):
        learner, key = make_learner("naive", GAME, 1), jax.random.key(0)
        sequence = jax.random.normal(jax.random.key(1), (STEPS, 5), jnp.float64)
        payoff = jax.jit(lambda sequence: play_sequence(key, GAME, learner, sequence)[0])
        gradient = jax.jit(jax.grad(payoff))(sequence)
        for step, entry in ((0, 0), (1, 2), (STEPS - 1, 4)):
            nudge = jnp.zeros_like(sequence).at[step, entry].set(1e-4)
            slope = (payoff(sequence + nudge) - payoff(sequence - nudge)) / 2e-4
            assert float(gradient[step, entry]) == pytest.approx(float(slope), rel=1e-3, abs=1e-6)


def test_the_ascent_keeps_the_best_of_every_state_and_reports_it(tmp_path):
    learner, seen = make_learner("naive", GAME, 1), []

    def ascend():
        run = RunDirectory(tmp_path)
        return white_box_bound(
            jax.random.key(0),
            GAME,
            learner,
            meta_steps=STEPS,
            num_states=3,
            num_starts=4,
            iterations=25,
            store=run,
            report=lambda *report: seen.append(report),
        )

    found = ascend()
    assert seen[-1][0] == 25
    seen.clear()
    jax.tree.map(np.testing.assert_array_equal, ascend(), found)  # from the finished run
    assert not seen
    assert found.policies.shape == (3, STEPS, 5)
    assert found.by_start.shape == (4, 3)
    np.testing.assert_allclose(found.shaper_payoffs, found.by_start.max(0))
    assert (np.diff(found.history) >= -1e-6).all()
    assert found.history[-1] > found.history[0] + 0.1
    keys = jax.random.split(jax.random.key(0), 3)
    play_all = jax.jit(jax.vmap(lambda key, sequence: play_sequence(key, GAME, learner, sequence)))
    played = play_all(keys, found.policies)
    np.testing.assert_allclose(played[0], found.shaper_payoffs, rtol=1e-4)
    np.testing.assert_allclose(played[1], found.opponent_payoffs, rtol=1e-4)


def test_the_bound_against_a_fixed_strategy_is_the_best_response():
    """Against a cooperator defection is best: 0 a round, from every start."""
    found = white_box_bound(
        jax.random.key(0),
        GAME,
        make_learner("all_c", GAME, 1),
        meta_steps=2,
        num_states=2,
        num_starts=4,
        iterations=200,
    )
    np.testing.assert_allclose(found.by_start, 0.0, atol=0.01)


def test_starts_play_the_returns_that_they_are_chosen_for():
    """Defection against a cooperator is worth 0, the most; the best starts have it without learning."""
    key, learner = jax.random.key(0), make_learner("all_c", GAME, 1)
    starts = make_starts(key, GAME, learner, (10, 2, 4, 5))
    assert len(start_names(10)) == 10
    play_all = jax.jit(jax.vmap(jax.vmap(lambda x, key: play_sequence(key, GAME, learner, x)[0]), (0, None)))
    payoffs = np.asarray(play_all(starts, jax.random.split(key, 2)))
    np.testing.assert_allclose(payoffs[7:], 0.0, atol=0.03)  # logits of -4 are not quite 0
    assert (payoffs[:2] < -0.2).all()  # tit for tat and extortion
    assert (starts[8] != starts[9]).any()


def test_the_curve_is_the_mean_of_the_best_over_all_choices_of_starts():
    by_start = np.random.default_rng(0).normal(size=(5, 7))
    expected = [
        np.mean([by_start[list(some)].max(0).mean() for some in itertools.combinations(range(5), m)])
        for m in range(1, 6)
    ]
    np.testing.assert_allclose(curve(by_start), expected)


def test_a_bound_has_converged_if_the_second_half_of_the_starts_added_little():
    way = 1.5
    known = KnownBound(-2.0, -0.5, 0.01, 0.009 * way)
    assert known.converged
    assert known.way(-1.25) == pytest.approx(0.5)
    assert known.way(-0.4) is None
    assert known.way(None) is None
    assert not KnownBound(-2.0, -0.5, 0.01, 0.011 * way).converged


def test_bounds_of_the_library_hold_only_for_their_settings():
    known = known_bound(GAME, "naive", 100)
    # Two naive learners get -1.98; a prototype of the ascent got -0.35.
    assert known.naive_return == pytest.approx(-1.984, abs=0.01)
    assert -0.35 <= known.bound <= -0.2
    assert 0 < known.bound_standard_error < 0.01
    for opponent in ("tft", "naive(learning_rate=2)"):
        assert known_bound(GAME, opponent, 100) is None
    assert known_bound(GAME, "naive", 50) is None
    assert known_bound(InfinitelyRepeated(prisoners_dilemma, 0.9), "naive", 100) is None
    assert known_bound(GAME, "lola", 100).bound > -1.0  # LOLA can be exploited beyond cooperation


def test_a_bound_holds_only_for_the_trained_file_of_the_opponent(tmp_path, monkeypatch):
    assert known_bound(GAME, "mmaml", 100).bound > known_bound(GAME, "mmaml", 100).naive_return
    folder = shutil.copytree(trained.folder(), tmp_path / "trained")
    for module in (trained, bound):
        monkeypatch.setattr(module, "folder", lambda: folder)
    assert known_bound(GAME, "mmaml", 100) is not None
    file = folder / "mmaml-prisoners_dilemma.safetensors"
    arrays, metadata = array_files.load_arrays(file)
    array_files.replace_arrays(file, arrays | {"logits": arrays["logits"] + 1}, metadata)
    assert known_bound(GAME, "mmaml", 100) is None
    assert known_bound(GAME, "naive", 100) is not None


def test_the_command_reports_the_result_of_each_start(within, tmp_path):
    arguments = [
        "ipd",
        "--meta-steps=6",
        "--num-states=3",
        "--num-starts=4",
        "--iterations=25",
        "--evaluation-trials=8",
    ]
    result = within(*arguments, cwd=tmp_path, module="marl.bound")
    assert result.returncode == 0, result.stderr
    assert all(f"from {name}" in result.stdout for name in start_names(4))
    assert "any 2 starts" in result.stdout
    assert "second half of the starts added" in result.stdout
    arrays, _ = array_files.load_arrays(tmp_path / "bound-prisoners_dilemma-naive.safetensors")
    best = arrays["by_start"].max(0)
    found = f"get {best.mean():.3f} ± {best.std(ddof=1) / 3**0.5:.3f} per round"
    place = f"a naive learner in their place gets {arrays['naive_payoffs'].mean():.3f}"
    assert f"Against naive the best policies found in hindsight {found}, and {place}" in result.stdout


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--opponent=nothing", "opponent: got 'nothing'"),
        ("--opponent=shaper", "opponent: got 'shaper'; a learner that is one policy is needed"),
        ("--opponent=naive + q_learning", "no gradient comes through the learning of q_learning"),
        ("--row-payoffs|nan|1|2|3", "--row-payoffs: got 'nan'; a finite number is needed"),
    ],
)
def test_bad_input_gets_one_line(argument, message, within, tmp_path):
    result = within("ipd", *argument.split("|"), cwd=tmp_path, module="marl.bound")
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
