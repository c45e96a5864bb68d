"""Every figure of the commands with extreme values: it is drawn, says what it shows, and no label covers another."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from attacks.experiments import figures as attacks
from attacks.experiments.evaluation import VictimTrainings
from attacks.messages import Message
from benchmarks.speed import cluster
from games import InfinitelyRepeated, prisoners_dilemma
from games.exact.zd import fit, random_policies
from marl.experiments.discovery import figures as discovery
from marl.experiments.discovery.trial import TrainingResult
from marl.experiments.reproduce import figures as reports
from marl.experiments.reproduce import rlx2
from marl.experiments.reproduce.zd import enforced
from marl.experiments.shaping import figures as shaping
from marl.experiments.shaping.evaluation import OWN_KIND, EvaluationResult
from marl.learners.sampled.objective_registry import Form
from meta.runs.plotting import PANELS, WIDEST, draw_training
from tests.nightly import grid

pytestmark = pytest.mark.system

GAME = InfinitelyRepeated(prisoners_dilemma, 0.96)
SPEC = "ppo(hidden=[64, 64], learning_rate=0.0001, epochs=4, minibatches=4, sparsity='static(density=0.2)')"
LONG = [f"{i}_{SPEC}" for i in range(20)]
RANDOM = np.random.default_rng(0)

# Values of a shape, samples and steps.
EXTREMES = {
    "one constant value": (lambda *shape: np.full(shape, 0.5), 1, 1),
    "huge, some missing": (
        lambda *shape: np.where(RANDOM.random(shape) < 0.2, np.nan, 1e9 * RANDOM.normal(size=shape)),
        30,
        20,
    ),
    "none known": (lambda *shape: np.full(shape, np.nan), 2, 20),
}


def played(values, trials, steps, **more):
    return EvaluationResult(values(trials, steps), values(trials, steps), more)


def mean_and_error(values):
    mean, error = values(2)
    return {"mean": mean, "standard_error": abs(error)}


def victims(values, number, updates):
    return VictimTrainings(*(values(number) for _ in range(4)), values(number, updates))


def training(folder, values, number, steps):
    draw_training(folder / "return.png", f"Return of {SPEC}", "higher is better", values(steps, number), 10_000)


def attack(folder, values, number, steps):
    groups = {name: victims(values, number, steps) for name in ("evolved", "silent", "random", "expert", "start")}
    metrics = {"fitness": values(steps), "fitness_deviation": np.abs(values(steps))}
    attacks.draw_curves(folder, groups, 10_000, "harm")
    attacks.draw_final_returns(folder, groups, "help")
    titles = ("short training runs", "whole training runs")
    attacks.draw_evolution(folder, dict.fromkeys(titles, metrics), "fitness", "goal reward", "control")
    rows = {name: {kind: mean_and_error(values) for kind in ("difference", "random_difference")} for name in LONG}
    attacks.draw_differences(folder / "transfer.png", rows, "harm")
    attacks.draw_goal_rewards(folder, {name: mean_and_error(values) for name in ("evolved", *LONG)}, number)
    by_goal = {f"evolved to {goal}": victims(values, number, steps) for goal in ("harm", "help")}
    environments = {name: by_goal | {"silent": groups["silent"]} for name in LONG[:4]}
    attacks.draw_all_curves(folder, environments, dict.fromkeys(environments, 10_000))


def exact_shaping(folder, values, number, steps):
    sides, opponent = ("shaper", "opponent"), LONG[0]
    for shape in ((steps,), (steps, number)):
        names = ("shaper_return", "opponent_return", "shaper_return_deviation", "opponent_return_deviation")
        shaping.draw_training(folder, {name: values(*shape) for name in names}, sides, "1,024 candidates")
    groups = {
        name: played(values, number, steps, cooperation=values(number, steps, 2)) for name in (opponent, OWN_KIND)
    }
    shaping.draw_trial(folder, groups, opponent, sides)
    shaping.draw_cooperation(folder, groups, opponent, sides, "cooperates")
    shaping.draw_policy(folder, values(number, steps, 5))
    beside = {name[:40]: tuple(values(2)) for name in LONG[:8]}
    shaping.draw_polygon(folder, GAME, *groups[opponent][:2], 1.13, beside)


def sampled_shaping(folder, values, number, steps):
    counts = [{name: np.abs(values(number, steps, 2)) for name in names} for names in (
        ("own_coin", "other_coin"), ("cooperation",), map("".join, itertools.product("CD", repeat=3))
    )]  # fmt: skip
    for more in counts:
        groups = {name: played(values, number, steps, **more) for name in (LONG[0], OWN_KIND)}
        shaping.draw_counts(folder, groups, LONG[0], 1)


def opponents(folder, values, number, steps):
    sides = {side: mean_and_error(values) for side in ("shaper", "opponent")}
    found = {"against": dict.fromkeys(LONG, sides), "untrained": sides, "own_kind": sides}
    shaping.draw_opponents(folder, found, "fresh trials")


def crossplay(folder, values, number, steps):
    for agents in (1, 8, 20):
        table = values(agents, agents)
        shaping.draw_crossplay(folder, "ipd", LONG[:agents], table, np.abs(table), caption=f"standard error; {SPEC}")


def evolved_objective(folder, values, number, steps):
    one = {"fitness": values(steps, number)}
    discovery.draw_search(folder, dict.fromkeys(("tuning", "tuned", "evolved"), one))
    result = TrainingResult(values(number), values(number), values(number, steps), values(number, 2))
    arms = dict.fromkeys(discovery.NAMES, result)
    discovery.draw_curves(folder, dict.fromkeys(LONG[:8], arms), 10_000)


def tables(folder, values, number, steps):
    settings = {"shaper": values(number), "shaped": values(number)}
    known, unknown = {"naive": values(1)[0], "bound": values(1)[0]}, {"naive": None, "bound": None}
    rows = [{"opponent": name} | settings | (known if i % 2 else unknown) for i, name in enumerate(LONG[:6])]
    reports.draw_shapers(folder, dict.fromkeys(("prisoners_dilemma", "matching_pennies", "chicken"), rows))
    reports.draw_generalists(folder, LONG, LONG[:16], values(20, 16), 5)
    series = {name: [mean_and_error(values) for _ in LONG[:5]] for name in ("shaper", "learners alone", *LONG[:6])}
    reports.draw_payoffs(folder / "payoffs.png", LONG[:5], series, "between trainings", f"Payoffs in {SPEC}")
    reports.draw_coin_curves(folder, {name: values(steps, number) for name in ("PPO", *LONG[:6])}, 4096, 2000)
    learning = {name[:40]: values(steps, number) for name in LONG[:5]}
    reports.draw_learning(folder, dict.fromkeys(LONG[:7], learning), 2048)
    shares = {row: tuple(values(2)) for row in rlx2.COLORS}
    shares = {row: (mean, abs(error)) for row, (mean, error) in shares.items()}
    rlx2._draw_returns(folder, "pendulum", shares)
    cluster.draw(folder / "clusters.png", np.arange(1, steps + 1), dict.fromkeys(LONG[:3], np.linspace(1, 0, steps)))


def message(folder, observations, size, with_memory):
    """Maps of a message that says something else in each entry, and later in a training run."""
    scales = jnp.arange(1.0, size + 1)
    memory = (lambda parameters, memory, obs: memory + 1, jnp.array(0.0)) if with_memory else ()

    def speak(parameters, obs, memory=0.0):
        return jnp.sin(scales * obs.sum() + memory)

    names = [name[:12] for name in LONG[: observations.shape[1]]]
    attacks.draw_message(folder, Message(None, speak, *memory), None, observations, 100, names)


def messages(folder):
    message(folder, RANDOM.normal(size=(100, 4)), 2, True)
    message(folder, np.stack([np.full(10, 0.5), 1e9 * RANDOM.normal(size=10)], 1), 9, False)
    message(folder, RANDOM.normal(size=(100, 6)), 1, False)


def objectives(folder):
    for form, number in ((Form("drift", "ppo", 3, timed=True), 1), (Form("value_loss", "l2", 3), 3)):
        each = [form.network().init(key) for key in jax.random.split(jax.random.key(0), number)]
        discovery.draw_objective(folder, form, each, {"learning_rate": 0.001})


def extortion(folder):
    policies = random_policies(RANDOM, 6)
    co_players = random_policies(RANDOM, 300)
    panels = [
        {"title": name, "played": enforced(GAME.payoffs, policy, co_players, discount=0.96)}
        | {"fit": fit(GAME.payoffs, policy, discount=0.96)}
        for name, policy in zip(LONG, policies, strict=False)
    ]
    reports.draw_scatter(folder, GAME, panels)
    steps = [{"near": 0.5, "extortionate": 0.0}] * 100
    for longest in (np.zeros(8, int), RANDOM.integers(0, 100, 8)):
        reports.draw_verdict(folder, [longest] * 3, dict.fromkeys(("untrained shapers", *LONG[:3]), longest), steps)
    for value in (np.zeros((4, 4)), np.full((4, 4), np.nan), RANDOM.uniform(-1, 1, (4, 4))):
        grids = {"kept": abs(value), "changing": abs(value), "gain": 1e4 * value}
        reports.draw_extortion(folder, (100, 300, 1000, 100_000), (0.1, 0.3, None, 1e6), grids)


FIGURES = [training, attack, exact_shaping, sampled_shaping, opponents, crossplay, evolved_objective, tables]


@pytest.fixture
def drawn(monkeypatch):
    """Figures that were drawn, in place of files."""
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: kept.append(figure))
    return kept


def words_of(figure):
    """All words that are seen, with their boxes in pixels, by where they stand."""
    found = {"figure": list(figure.texts)}
    for i, axes in enumerate(figure.axes):
        found[f"panel {i}"] = [axes.title, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found[f"panel {i}"] += [axis.label, axis.offsetText, *(t for k in ticks for t in (k.label1, k.label2))]
    for legend in figure.legends:
        found["legend"] = legend.get_texts()
    return [
        (f"{place}: {text.get_text()}", text.get_window_extent())
        for place, texts in found.items()
        for text in texts
        if text.get_visible() and text.get_text().strip() and text.get_rotation() % 90 == 0  # boxes of others are wide
    ]


def overlap(a, b):
    """True if two boxes share more than a pixel in both directions."""
    return min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1


@pytest.mark.parametrize("extreme", grid(EXTREMES, "huge, some missing"))
@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
def test_extreme_values_are_drawn_and_named(drawn, tmp_path, draw, extreme):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(tmp_path, *EXTREMES[extreme])
        for figure in drawn:
            figure.draw_without_rendering()
    assert drawn
    for figure in drawn:
        check(figure)


@pytest.mark.parametrize("draw", [messages, objectives, extortion], ids=lambda draw: draw.__name__)
def test_many_maps_and_panels_fit(drawn, tmp_path, draw):
    draw(tmp_path)
    for figure in drawn:
        figure.draw_without_rendering()
        check(figure)


def check(figure):
    title = figure.get_suptitle().split("\n")[0]
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert title
    assert 1 <= len(panels) <= PANELS, title
    assert figure.get_figwidth() <= WIDEST + 0.001, title
    for axes in panels:
        assert any(one.get_xlabel() for one in axes.get_shared_x_axes().get_siblings(axes)), title
        named = any(one.get_ylabel() for one in axes.get_shared_y_axes().get_siblings(axes))
        assert named or all(label.get_text() for label in axes.get_yticklabels()), title
        assert min(axes.get_window_extent().size) > 60, title
    words = words_of(figure)
    assert [(title, a[0], b[0]) for a, b in itertools.combinations(words, 2) if overlap(a[1], b[1])] == []
    outside = [
        name for name, box in words if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1
    ]
    assert outside == [], title
    for legend in figure.legends:
        assert not any(overlap(legend.get_window_extent(), axes.get_window_extent()) for axes in panels), title
