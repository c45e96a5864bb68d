"""Figures: no impossible values, nothing hidden, no letters too small to read on a page."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from attacks.experiments import figures as of_attacks
from attacks.experiments.evaluation import VictimTrainings
from attacks.messages import Message
from games import InfinitelyRepeated, prisoners_dilemma
from games.exact.zd import exact_payoffs, random_policies, zd_policy
from marl.bench import table
from marl.experiments.shaping import figures
from marl.experiments.shaping.evaluation import OWN_KIND, EvaluationResult


@pytest.fixture
def drawn(monkeypatch):
    """Figures that were drawn, in place of files."""
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: kept.append(figure))
    return kept


def test_a_band_of_probabilities_stays_between_zero_and_one(drawn, tmp_path):
    policies = np.random.default_rng(0).choice([0.02, 0.98], (50, 10, 5), p=[0.1, 0.9])  # mean + deviation exceeds 1
    figures.draw_policy(tmp_path, policies)
    bands = [band.get_paths()[0].vertices[:, 1] for band in drawn[0].axes[0].collections]
    assert len(bands) == 5
    assert all(band.min() >= 0.02 and band.max() == pytest.approx(0.98) for band in bands)
    assert max(band.max() - band.min() for band in bands) > 0.4


def test_only_returns_of_extortioners_are_shaded(drawn, tmp_path):
    """All co-players of extortioners are in the shade; defectors and their co-players are not."""
    game, least = InfinitelyRepeated(prisoners_dilemma, 0.96), 1.04 / 0.92
    figures.draw_polygon(tmp_path, game, np.full((2, 3), -1.5), np.full((2, 3), -1.5), least)
    (shade,) = (patch for patch in drawn[0].axes[0].patches if "extortioners" in str(patch.get_label()))
    co_players = random_policies(np.random.default_rng(0), 1000)
    inside = {}
    for name, policy in (
        {chi: zd_policy(prisoners_dilemma, chi, discount=0.96) for chi in (1.2, 10.0)}
        | {
            "tft": [1.0, 1, 0, 1, 0],
            "all_d": np.zeros(5),
        }
    ).items():
        own, other = exact_payoffs(prisoners_dilemma, policy, co_players, discount=0.96)
        inside[name] = shade.get_path().contains_points(np.stack([other, own], 1)).mean()
    assert inside == {1.2: 1.0, 10.0: 1.0, "tft": 0.0, "all_d": 0.0}


def test_states_of_three_players_have_the_colours_of_two(drawn, tmp_path):
    """All but the shaper do the same in CCC, CDD, DCC and DDD."""
    for number in (2, 3):
        states = {"".join(state): np.full((4, 5, number), 0.1) for state in itertools.product("CD", repeat=number)}
        played = EvaluationResult(np.zeros((4, 5)), np.zeros((4, 5)), states)
        figures.draw_counts(tmp_path, {"naive": played, OWN_KIND: played}, "naive", 1)
    two, three = ({line.get_label(): line.get_color() for line in one.axes[0].lines} for one in drawn)
    assert [three[state] for state in ("CCC", "CDD", "DCC", "DDD")] == [
        two[state] for state in ("CC", "CD", "DC", "DD")
    ]
    assert len({*three.values()}) == 8


def test_profiles_of_many_methods_are_told_apart(drawn, tmp_path):
    names = ["shaper", *(f"method {i}" for i in range(14))]  # the first has the colour of its role
    table.draw_profiles(tmp_path, {name: {"gain": {"chicken/naive/slower": np.zeros(5)}} for name in names})
    lines = [line for line in drawn[0].axes[0].lines if line.get_label() in names]
    assert [line.get_label() for line in lines] == names[:8]
    assert len({line.get_color() for line in lines}) == 8


@pytest.mark.parametrize("number", [3, 12, 23, 40])
def test_a_table_of_many_agents_fits_a_page_in_readable_letters(drawn, tmp_path, number):
    names = [f"ppo(learning_rate=0.{i:02}, hidden=[64, 64], epochs=4)" for i in range(number)]
    values = -3 * np.random.default_rng(0).random((number, number))
    figures.draw_crossplay(tmp_path, "ipd", names, values, values + 3, caption="± over trials")
    (axes, _), figure = drawn[0].axes, drawn[0]
    has_errors = any("±" in text.get_text() for text in axes.texts)
    assert has_errors == ("± over trials" in figure.get_suptitle()) == (number == 3)
    figure.draw_without_rendering()
    assert figure.get_figwidth() <= 8.3  # inches: a page of A4
    words = [*axes.texts, *axes.get_xticklabels(), *axes.get_yticklabels()]
    assert min(word.get_fontsize() for word in words) >= 6
    cell = axes.get_window_extent().width / number
    assert all(text.get_window_extent().width < cell for text in axes.texts)
    assert len(axes.texts) == (number**2 if number < 25 else 0)
    assert len({word.get_text() for word in axes.get_yticklabels()}) == number


@pytest.mark.parametrize(("scales", "rows"), [((1, 1), ["entries 1, 2"]), ((1, -1), ["entry 1", "entry 2"])])
def test_a_map_of_messages_has_a_named_row_for_each_entry_that_differs(drawn, tmp_path, scales, rows):
    message = Message(None, lambda parameters, obs: obs.sum() * jnp.array(scales, float))
    observations = np.random.default_rng(0).normal(size=(100, 3))
    of_attacks.draw_message(tmp_path, message, None, observations, 8)
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert titles == [row for row in rows for _ in range(3)] + [""]  # three pairs of entries, and the scale


def test_the_curves_of_several_environments_have_a_panel_each_and_one_legend(drawn, tmp_path):
    curves = np.array([[1.0, 3.0], [2.0, np.nan]])
    trainings = VictimTrainings(np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), curves)
    groups = {"evolved to harm": trainings, "silent": trainings}
    of_attacks.draw_all_curves(tmp_path, dict.fromkeys("abc", groups), {"a": 10, "b": 20, "c": 30})
    panels = drawn[0].axes
    assert [axes.get_title() for axes in panels] == [f"{name}, 2 victims" for name in "abc"]
    for axes, number in zip(panels, (10, 20, 30), strict=False):
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), [number, 2 * number])
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1.5, 3.0])
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["evolved to harm", "silent"]


def test_a_map_of_messages_with_a_memory_shows_the_first_and_the_last_step(drawn, tmp_path):
    """The message counts observations: 1 in the first step and 9 after eight steps."""
    message = Message(
        None, lambda parameters, obs, memory: memory * jnp.ones(2), lambda parameters, memory, obs: memory + 1, 0.0
    )
    of_attacks.draw_message(tmp_path, message, None, np.random.default_rng(0).normal(size=(5, 2)), 8)
    first, last, _ = drawn[0].axes
    assert [axes.get_title() for axes in (first, last)] == [
        "entries 1, 2\nat first",
        "entries 1, 2\nin the end",
    ]
    for axes, number in ((first, 1), (last, 9)):
        np.testing.assert_array_equal(axes.images[0].get_array(), np.full((61, 61), number))


def test_labels_are_larger_than_ticks(drawn, tmp_path):
    figures.draw_policy(tmp_path, np.full((3, 4, 5), 0.5))
    (axes,) = drawn[0].axes
    assert axes.xaxis.label.get_size() > axes.get_xticklabels()[0].get_size()
