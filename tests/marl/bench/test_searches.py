"""Methods of Shaping Bench that search in another way: one shaper for all tasks, and the best fixed strategy."""

import jax.numpy as jnp
import numpy as np
import pytest

from games import zd
from marl.bench import protocol, searches
from marl.bench.protocol import Budget, games_of, root_key, tasks

TINY = Budget("small", 2, 4, 32)
SHORT = 5  # learning steps


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for module in (protocol, searches):
        monkeypatch.setattr(module, "META_STEPS", SHORT)


def runs(opponent, names, seeds):
    """The arguments of a method's `train`, of some trainings in each task."""
    places = [(name, seed) for name in names for seed in seeds]
    chosen = [tasks(training=seed)[name] for name, seed in places]
    keys = jnp.stack([root_key(seed, name, opponent) for name, seed in places])
    return opponent, chosen, games_of(chosen), TINY, keys, None, None, [seed for _, seed in places]


@pytest.mark.system
def test_a_generalist_is_trained_once_and_has_the_same_parameters_in_every_task(monkeypatch):
    met = {name: spec for name, spec in protocol.OPPONENTS.items() if name in ("naive", "mmaml")}
    monkeypatch.setattr(searches, "OPPONENTS", met)
    monkeypatch.setattr(searches, "budget_of", lambda size, opponent: Budget(size, 2, 4, 1))
    method = searches.make_method("generalist(good_shepherd)")
    assert method.trials("small", "naive", 6) == 8
    (naive,) = method.train(*runs("naive", ["chicken", "random"], [3, 4]))
    monkeypatch.delattr(searches, "evolve")  # nothing is trained from here on
    (other,) = method.train(*runs("mmaml", ["stag_hunt"], [3, 4]))
    for at in (0, 2):  # chicken, and the random game
        np.testing.assert_array_equal(naive.parameters[at : at + 2], other.parameters)
    assert not np.array_equal(other.parameters[0], other.parameters[1])


def test_zero_determinant_strategies_hold_a_line_and_games_without_any_have_deterministic_ones():
    game, others = tasks()["prisoners_dilemma"], np.random.default_rng(0).uniform(size=(3, 5))
    for policy in searches.candidates_of(game):
        x, y = zd.exact_payoffs(game, policy, others, discount=protocol.DISCOUNT)
        assert abs((x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])) < 1e-6
    np.testing.assert_array_equal(searches.candidates_of(tasks()["matching_pennies"]), searches.PURE)
    assert len({tuple(x) for x in searches.PURE}) == 32


@pytest.mark.system
def test_the_strategy_that_is_paid_most_is_chosen(monkeypatch):
    """Two are compared: to defect pays more than to cooperate in every step of the dilemma."""
    both = np.resize([[1.0] * 5, [0.0] * 5], (32, 5))
    monkeypatch.setattr(searches, "candidates_of", lambda game: both)
    method = searches.make_method("best_zd")
    assert method.trials("small", "mmaml", 5) == 5 * 32 * 16
    (found,) = method.train(*runs("naive", ["prisoners_dilemma"], [0, 1]))
    assert (np.asarray(found.parameters) < 0).all()


@pytest.mark.parametrize("spec", ["generalist(nothing)", "generalist(lola)"])
def test_a_generalist_of_what_is_no_shaper_is_refused(spec):
    with pytest.raises(ValueError, match=r"^method: got "):
        searches.make_method(spec)
