"""The table and the figure of a sweep have the numbers of its points."""

import csv
import io
import math

import numpy as np
import pytest
from rich.console import Console

from marl.commands import COMMANDS, describe
from marl.experiments.sweep import figure, results
from marl.experiments.sweep.plan import Point
from marl.experiments.sweep.results import Row


def row(mean, error=0.5, control=None, **values):
    values = {name: str(value) for name, value in values.items()}
    name = ",".join(values.values()) or "run"
    return Row(Point(name, values, [], None), mean, error, "return", control, "4 trainings", 2.0)


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws rows, and returns the figure."""
    found = []
    monkeypatch.setattr(
        figure, "save_figure", lambda picture, path, title, note: found.append((picture, title)) or path
    )

    def draw(*rows):
        assert figure.draw(tmp_path, rows, "train CartPole-v1") == tmp_path / "sweep.png"
        return found[-1][0].axes[0]

    return draw


def points_in(axes):
    return [container[0].get_xydata().tolist() for container in axes.containers]


def test_one_number_is_a_curve_in_the_order_of_the_number(drawn):
    axes = drawn(row(3.0, rate=0.2), row(1.0, rate=0.1), row(2.0, rate=0.4))
    assert points_in(axes) == [[[0.1, 1.0], [0.2, 3.0], [0.4, 2.0]]]
    assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == ("linear", "rate", "return")
    (bars,) = axes.containers[0][2]
    assert bars.get_segments()[1].tolist() == [[0.2, 2.5], [0.2, 3.5]]


@pytest.mark.parametrize(("largest", "scale"), [(2.0, "linear"), (2.1, "log")])
def test_values_that_are_spread_by_more_than_20_have_a_logarithmic_axis(drawn, largest, scale):
    assert drawn(row(1.0, rate=0.1), row(2.0, rate=largest)).get_xscale() == scale


def test_a_number_and_names_are_a_curve_for_each_name(drawn):
    rows = [row(x, kind=kind, rate=rate) for x, (kind, rate) in enumerate([("a", 1), ("a", 2), ("b", 1), ("b", 2)])]
    assert points_in(drawn(*rows)) == [[[1, 0], [2, 1]], [[1, 2], [2, 3]]]


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([row(1.0, rate=1), row(2.0, rate=2)], "errors: one standard error over 4 trainings"),
        ([row(1.0, math.nan, rate=1), row(2.0, math.nan, rate=2)], "without standard errors (4 trainings)"),
        ([row(1.0, rate=1, size=1), row(2.0, rate=2, size=3)], "without standard errors (4 trainings)"),  # only colours
    ],
)
def test_a_note_tells_of_errors_where_they_are_drawn(rows, note, tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(figure, "save_figure", lambda picture, path, title, note: notes.append(note))
    figure.draw(tmp_path, rows, "train CartPole-v1")
    assert notes == [note]


def test_two_numbers_are_a_map(drawn):
    rows = [row(10 * x + y, x=x, y=y) for x in (1, 2, 3) for y in (5, 4)]
    axes = drawn(*rows)
    np.testing.assert_array_equal(axes.images[0].get_array(), [[14, 24, 34], [15, 25, 35]])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "3"]
    assert {text.get_text() for text in axes.texts} >= {"14\n± 0.5", "35\n± 0.5"}


def test_names_are_rows(drawn):
    axes = drawn(row(1.0, kind="a"), row(2.0, kind="b", control=("plain", 0.5, 0.1)))
    assert points_in(axes) == [[[1.0, 0.0], [2.0, 1.0]]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["kind a", "kind b"]


def test_draws_of_two_numbers_are_coloured_points(drawn):
    axes = drawn(*(row(float(i), x=i / 7, y=0.5**i) for i in range(6)))
    (points,) = axes.collections
    assert points.get_offsets().tolist() == [[i / 7, 0.5**i] for i in range(6)]
    assert points.get_array().tolist() == [0, 1, 2, 3, 4, 5]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")


NUMBERS = {"mean": 2.0, "standard_error": None}


@pytest.mark.parametrize(
    ("line", "kind", "summary", "expected"),
    [
        (["train"], "learner", {"returns": NUMBERS}, ("return", None)),
        (
            ["mfos"],
            "shaper",
            {
                "opponent": "tft",
                "against": {"tft": {"shaper": NUMBERS, "opponent": NUMBERS}},
                "own_kind": {"shaper": NUMBERS},
            },
            ("shaper's payoff", "without a shaper"),
        ),
        (
            ["mfos"],  # two shapers, which have no control
            "shaper",
            {"opponent": "self_play", "against": {"self_play": {"shaper": NUMBERS, "opponent": NUMBERS}}},
            ("shaper's payoff", None),
        ),
        (["act"], "adversary", {"evolved": NUMBERS, "random": NUMBERS, "silent": NUMBERS}, ("evolved", "silent")),
    ],
)
def test_the_main_result_and_its_control_are_those_of_the_kind_of_run(line, kind, summary, expected):
    command = describe(COMMANDS[line[0]].module)
    point = Point("a", {}, [], command.default({"train": "CartPole-v1", "mfos": "ipd", "act": "cartpole"}[line[0]]))
    found = results._row(point, summary, kind)
    assert (found.name, found.control and found.control[0]) == expected
    assert found.mean == 2.0
    assert math.isnan(found.error)


def test_the_table_as_csv_has_all_digits(tmp_path):
    rows = [row(1 / 3, 0.1, ("plain", 0.25, math.nan), kind="zd(chi=2, phi=0.1)"), row(math.nan, math.nan, kind="b")]
    found = list(csv.DictReader(io.StringIO(results.write_csv(tmp_path, rows).read_text())))
    assert found[0]["kind"] == "zd(chi=2, phi=0.1)"
    assert float(found[0]["mean"]) == 1 / 3
    assert (found[0]["control"], float(found[0]["control_mean"])) == ("plain", 0.25)
    assert (found[1]["mean"], found[1]["control_mean"]) == ("nan", "")


def test_the_sentence_names_both_ends():
    rows = [row(2.0, rate=0.1), row(1.0, math.nan, rate=0.2), row(math.nan, rate=0.3)]
    assert results.conclusion(rows) == "The return is between 1.000 with rate 0.2, and 2.000 ± 0.500 with rate 0.1."
    assert results.conclusion(rows[2:]) == "The return is finite nowhere."


def test_the_printed_table_has_a_line_for_each_point():
    console = Console(width=100, record=True, file=io.StringIO())
    results.print_table(console, [row(2.0, rate=0.1, control=("plain", 1.0, 0.25)), row(1.0, math.nan, rate=0.2)])
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[0] == ["rate", "return", "plain"]
    assert lines[1] == ["0.1", "2.000", "±", "0.500", "1.000", "±", "0.250"]
    assert lines[2] == ["0.2", "1.000"]
