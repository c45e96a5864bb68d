"""Methods of Shaping Bench that search in another way: one shaper for all tasks, and the best fixed strategy."""

import io
import re
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from games import InfinitelyRepeated, zd
from marl.bench import exact, experiment, methods, protocol, searches
from marl.bench.protocol import Budget, games_of, root_key, tasks
from marl.bench.tracks import track_of
from marl.learners.exact.meta_value import next_parameters
from marl.learners.exact.naive import PolicyState
from marl.learners.registry import make_learner
from marl.shapers.exact_ppo import meta_ppo
from marl.shapers.meta_ppo_config import ExactMetaPPO
from meta import RunDirectory
from meta.runs.progress import Progress
from tests.nightly import nightly

TINY = Budget("small", 2, 4, 32)
SHORT = 5  # learning steps


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    for module in (protocol, methods, exact, searches):
        monkeypatch.setattr(module, "META_STEPS", SHORT)


def runs(opponent, names, seeds):
    """The arguments of a method's `train`, of some trainings in each task."""
    places = [(name, seed) for name in names for seed in seeds]
    chosen = [tasks(training=seed)[name] for name, seed in places]
    keys = jnp.stack([root_key(seed, name, opponent) for name, seed in places])
    return opponent, chosen, games_of(chosen), TINY, keys, None, None, [seed for _, seed in places]


def evolved(parameters):
    return SimpleNamespace(parameters=parameters)


@pytest.mark.system
def test_a_generalist_is_trained_once_and_has_the_same_parameters_in_every_task(monkeypatch):
    met = {name: spec for name, spec in protocol.OPPONENTS.items() if name in ("naive", "mmaml")}
    monkeypatch.setattr(searches, "OPPONENTS", met)
    monkeypatch.setattr(searches, "budget_of", lambda size, opponent: Budget(size, 2, 4, 1))
    method = searches.make_method("generalist(good_shepherd)")
    assert method.trials("small", "naive", 6) == 8
    for opponents in ((), ("naive",), ("naive", "mmaml")):  # its training meets all, whatever is played
        config, track = experiment.BenchConfig("generalist(good_shepherd)", opponents=opponents), track_of("exact")
        bench = experiment.Bench(config, track, method)
        assert sum(map(bench.trials, bench.parts)) == config.seeds * 8 * len(track.parts)
    (naive,) = method.train(*runs("naive", ["chicken", "random"], [3, 4]))
    monkeypatch.delattr(searches, "evolve")  # nothing is trained from here on
    (other,) = method.train(*runs("mmaml", ["stag_hunt"], [3, 4]))
    for at in (0, 2):  # chicken, and the random game
        np.testing.assert_array_equal(naive.parameters[at : at + 2], other.parameters)
    assert not np.array_equal(other.parameters[0], other.parameters[1])


@nightly
def test_a_resumed_run_does_not_train_a_generalist_again(monkeypatch, tmp_path):
    met = {name: spec for name, spec in protocol.OPPONENTS.items() if name in ("naive", "mmaml")}
    monkeypatch.setattr(searches, "OPPONENTS", met)
    monkeypatch.setattr(searches, "budget_of", lambda size, opponent: Budget(size, 2, 4, 1))
    begun, evolve = [], searches.evolve

    def counted(*arguments, **settings):
        found = evolve(*arguments, **settings)
        begun.append(found.first_generation)
        return found

    monkeypatch.setattr(searches, "evolve", counted)
    monkeypatch.setattr(protocol, "budget_of", searches.budget_of)
    monkeypatch.setattr(exact, "TRIALS", 8)
    config, console = (
        experiment.BenchConfig("generalist(good_shepherd)", opponents=tuple(met), seeds=1),
        Console(quiet=True),
    )
    with RunDirectory.create(tmp_path / "run", config) as run:
        for i in range(2):  # each part as in a process of its own
            bench = experiment.prepare(config)
            with run.part(experiment.ALL_TASKS, print) as shared:
                experiment._job(tmp_path / str(i), bench.parts[i], bench, console, shared).run()
            assert (tmp_path / str(i) / "summary.json").is_file()
    assert begun == [0, 2]


@pytest.mark.system
def test_meta_values_are_trained_once_and_each_for_its_game_and_training(monkeypatch):
    monkeypatch.setattr(searches, "META_VALUES", searches.META_VALUES._replace(iterations=2, steps=16))
    method = searches.make_method("meva")
    (naive,) = method.train(*runs("naive", ["chicken", "random"], [3, 4]))
    chicken, train = InfinitelyRepeated(tasks()["chicken"]), searches.train_meva
    monkeypatch.delattr(searches, "train_meva")  # nothing is trained from here on
    (other,) = method.train(*runs("mmaml", ["chicken"], [3, 4]))
    place = [*tasks()].index("chicken")
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(4), 2**31), place)
    alone = train(key, partial(chicken.values, 0), 5, iterations=2, batch=2)
    for name, expected in alone.networks.items():
        # Adam's first steps, of 0.001, hardly depend on a gradient's size, so that rounding shows.
        np.testing.assert_allclose(naive.parameters[name][1], expected, atol=5e-4)
        np.testing.assert_array_equal(naive.parameters[name][:2], other.parameters[name])
    scales = naive.parameters["scale"]
    assert len(np.unique(scales[:, 0].round(4))) == 4  # two trainings of two games, one of which differs
    learner = naive.learner(alone.networks, jax.tree.map(lambda x: x[0], games_of([tasks()["chicken"]])))
    own, theirs = jnp.linspace(-1, 1, 5), jnp.full(5, 0.3)
    moved = learner.update(jax.random.key(0), PolicyState(own), SimpleNamespace(others=(theirs[None, None],)))[0]
    expected, _ = next_parameters(alone, partial(chicken.values, 0), own, theirs)
    np.testing.assert_allclose(moved.logits, expected, atol=1e-5)


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


@pytest.mark.parametrize("size", protocol.SIZES)
@pytest.mark.parametrize("opponent", ["naive", "reinforce"])
def test_a_screened_shaper_spends_the_trials_of_the_budget_and_no_more(monkeypatch, size, opponent):
    spent = []
    trials = protocol.budget_of(size, opponent)
    monkeypatch.setattr(methods, "evolve", lambda *given, **named: spent.append(given[3].generations) or evolved(None))
    monkeypatch.setattr(methods.Start, "make", lambda start, *_, **settings: spent.append(start.screening))
    arguments = [trials if x is TINY else x for x in runs(opponent, ["chicken"], [0])]
    method = searches.make_method("screened(good_shepherd)")
    method.train(*arguments)
    screening, generations = spent
    assert generations == method.generations(trials)
    in_all = screening.num_trials + generations * trials.population * trials.trials
    assert 0.9 * trials.training_trials < in_all <= trials.training_trials
    assert method.trials(size, opponent, 3) == 3 * in_all
    assert 0.9 < 5 * screening.num_trials / trials.training_trials <= 1
    assert screening.candidates * screening.trials == pytest.approx(
        4 * screening.finalists * screening.final_trials, rel=0.1
    )
    assert screening.candidates <= 512 or screening.candidates % 512 == 0


@pytest.mark.system
def test_a_screened_shaper_begins_at_parameters_that_are_paid_more_than_random_ones(monkeypatch):
    monkeypatch.setattr(methods, "evolve", lambda *given, start, **named: evolved(start(given[2])))
    chosen = ["chicken", "matching_pennies"]
    arguments = [Budget("small", 10, 8, 16) if x is TINY else x for x in runs("naive", chosen, range(3))]
    shown = io.StringIO()
    with Progress(Console(file=shown), 10, 1, "meta-steps", lambda metrics: "") as arguments[6]:
        (found,) = searches.make_method("screened(good_shepherd)").train(*arguments)
    assert re.search(r"tried (\d+) of \1 random shapers", shown.getvalue())
    games, keys = arguments[2], arguments[4]
    random = found._replace(parameters=jax.vmap(lambda key: jax.random.normal(key, (5,)))(keys))
    best, other = (exact.play_forms(each, "naive", games, keys)[0, 0] for each in (found, random))
    assert best[:3].mean() > other[:3].mean()


@nightly
def test_each_training_of_a_screened_shaper_is_its_own():
    """The game, the screening and the evolution of the second of two trainings are those of the one trained alone."""
    budget, method = Budget("small", 10, 8, 16), searches.make_method("screened(good_shepherd)")

    def train(*names):
        return method.train(*(budget if x is TINY else x for x in runs("naive", names, [3])))[0].parameters

    np.testing.assert_allclose(train("chicken", "stag_hunt")[1], train("stag_hunt")[0], atol=1e-4)


@nightly
@pytest.mark.parametrize("spec", ["ppo", "coala_pg"])
def test_a_training_by_policy_gradients_is_one_of_meta_ppo(spec):
    arguments = runs("naive", ["chicken", "stag_hunt"], [3])
    (found,) = searches.make_method(f"{spec}(mfos)").train(*arguments)
    game = InfinitelyRepeated(tasks()["stag_hunt"])
    advantages = {"ppo": "critic", "coala_pg": "coala"}[spec]
    settings = ExactMetaPPO(iterations=2, batch_size=128, hidden_units=32, advantages=advantages)
    opponent = make_learner("naive(learning_rate=1)", game, 1)
    alone = meta_ppo(lambda: (game, opponent), 5, arguments[4][1], settings, meta_steps=SHORT)
    for own, one in zip(jax.tree.leaves(found.parameters), jax.tree.leaves(alone.parameters), strict=True):
        np.testing.assert_allclose(own[1], one, atol=1e-4)
    assert found.learner(jax.tree.map(lambda x: x[0], found.parameters), None).act


@pytest.mark.parametrize("spec", ["generalist(nothing)", "generalist(lola)", "screened(lola)", "ppo(shaper)"])
def test_another_search_for_what_is_no_shaper_is_refused(spec):
    with pytest.raises(ValueError, match=r"^method: got "):
        searches.make_method(spec)
