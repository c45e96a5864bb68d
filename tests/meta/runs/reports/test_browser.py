"""The pages of runs in headless Chromium, opened from disk: of a real run, of a comparison, and of a stranger's run."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest

import marl
from marl.commands import describe
from marl.mfos import main
from meta.runs.execution import execute
from meta.runs.reports.run_report import write_run_report
from tests.meta.runs.reports.test_run_report import EVIL

pytestmark = pytest.mark.system

TINY = ["--meta-steps=3", "--trials=1", "--evaluation-trials=4", "--unseen", "tft", "--quiet"]
TINY += ["--evolution.generations=30", "--evolution.population-size=4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert not main(["ipd", *TINY, "--hidden-units=2", "--seeds=2", f"--out={folder}"])
    return folder


@pytest.fixture(scope="module")
def comparison(run):
    """The page of that run beside another of a seed more."""
    other = run.with_name("other")
    assert not main(["ipd", *TINY, "--shaper=good_shepherd", "--seeds=3", f"--out={other}"])
    out = run.with_name("comparison")
    assert not execute(describe("marl.compare"), [str(run), str(other), f"--out={out}", "--quiet"])
    return out.with_suffix(".html")


@pytest.fixture
def visit(browser):
    """Opens a file; any message of the console, and any request for something else, fails the test."""
    pages, faults = [], []

    def open_page(file, width=1280, height=900, **options):
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.set_default_timeout(120_000)
        pages.append(page)
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        allowed = (file.as_uri(), "data:")
        page.on("request", lambda sent: None if sent.url.startswith(allowed) else faults.append(sent.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []


def tables(page):
    """The tables of a page by their first heading: rows of texts."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("table")].map((table) => [
            (table.parentNode.querySelector(".title") ?? table.querySelector("th")).textContent,
            [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)),
        ]))"""
    )


def number(text):
    return float(text.replace("%", "e-2"))


def test_the_numbers_of_the_tables_are_those_of_the_summary(run, visit):
    summary = json.loads((run / "summary.json").read_text())
    page = visit(run / "report.html")
    assert page.locator(".conclusion").inner_text() == summary["conclusion"]
    found = tables(page)
    rows = {name: cells for name, *cells in found["average payoff per round, over the opponent's learning"][1:]}
    expected = {name: summary["against"][name] for name in ("naive", "tft")}
    expected |= {f"naive, seed {one['seed']}": one["against"]["naive"] for one in summary["runs"]}
    expected |= {"an untrained shaper": summary["untrained"], "the opponent's own kind": summary["own_kind"]}
    for name, values in expected.items():
        for cell, side in zip(rows[name], ("shaper", "opponent"), strict=True):
            value, error = map(number, cell.split(" ± "))
            assert value == pytest.approx(values[side]["mean"], abs=5.1e-4)
            assert error == pytest.approx(values[side]["standard_error"], abs=5.1e-4)
    every = dict(found["entry of the summary"][1:])
    assert len(every) > 50
    for name, text in every.items():
        value = summary
        for key in name.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        if isinstance(value, float):
            assert number(text) == pytest.approx(value, rel=1e-5)
        elif isinstance(value, int | str):
            assert text == (str(value) or "empty")


def test_pictures_have_their_size_before_they_are_decoded(run, visit):
    page = visit(run / "report.html")
    sizes = page.evaluate(
        """() => Promise.all([...document.images].map(async (image) => {
            await image.decode();
            const own = ["width", "height"].map((name) => Number(image.getAttribute(name)));
            return [own, [image.naturalWidth, image.naturalHeight]];
        }))"""
    )
    assert len(sizes) == 6
    assert all(own == found and min(own) > 99 for own, found in sizes)


def test_curves_zoom_and_are_read_off(run, visit):
    page, metrics = visit(run / "report.html"), marl.load_run(run).metrics
    chart = page.locator(".chart").first
    shown, plot = chart.locator("output"), chart.locator(".u-over")
    assert shown.inner_text() == "generation 1 to 30"
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    x, y = box["x"], box["y"] + box["height"] / 2
    page.mouse.move(x + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * 3 / 4, y)
    page.mouse.up()
    low, high = map(float, re.findall(r"[\d.]+", shown.inner_text()))
    assert (low, high) == pytest.approx((1 + 29 / 2, 1 + 29 * 3 / 4), abs=0.2)
    page.mouse.dblclick(x + 9, y)
    assert shown.inner_text() == "generation 1 to 30"
    for name, expected in (("zoom in", (8.25, 22.75)), ("later", (11.875, 26.375)), ("zoom out", (1, 30))):
        chart.get_by_role("button", name=name).click()
        assert list(map(float, re.findall(r"[\d.]+", shown.inner_text()))) == pytest.approx(expected, rel=1e-3)
    chart.get_by_role("button", name="all").click()
    chart.locator(".plot").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    labels, values = (chart.locator(f".u-legend .u-{part}").all_inner_texts() for part in ("label", "value"))
    legend = dict(zip(labels, values, strict=True))
    generation = int(legend["generation"])
    assert 1 < generation <= 30
    values = metrics["shaper_return"][generation - 1]
    mean, low, high = map(float, re.findall(r"-?[\d.]+", legend["shaper return"]))
    assert mean == pytest.approx(values.mean(), rel=1e-3)
    assert (low, high) == pytest.approx((values.mean() - values.std(), values.mean() + values.std()), rel=1e-3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen_in_both_colour_schemes(run, comparison, visit, scheme, width):
    for file in (run / "report.html", comparison):
        page = visit(file, width=width, color_scheme=scheme)
        for summary in page.locator("summary").all():
            summary.click()
        for chart in page.locator(".chart").all():
            chart.locator("canvas").first.wait_for(state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        charts = page.evaluate("[...document.querySelectorAll('.uplot')].map((one) => one.clientWidth)")
        assert len(charts) >= 3
        assert max(charts) <= width
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((x) => +x.tagName[1])")
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert file.stat().st_size < 3_000_000


def test_a_page_is_read_without_scripts(run, visit):
    page = visit(run / "report.html", java_script_enabled=False)
    assert "Curves need scripts" in page.locator("#curves").inner_text()
    pictures = page.locator("img").all()
    assert len(pictures) == len(list((run / "figures").iterdir()))
    for picture in pictures:
        picture.scroll_into_view_if_needed()
        assert picture.bounding_box()["height"] > 100
        assert picture.get_attribute("alt")
    page.get_by_text("Ends of all curves as a table").click()
    assert page.get_by_role("rowheader", name="shaper return", exact=True).is_visible()


def test_a_comparison_has_the_numbers_of_the_summaries(run, comparison, visit):
    of = {name: json.loads((run.with_name(name) / "summary.json").read_text()) for name in ("run", "other")}
    page = visit(comparison)
    found = tables(page)
    rows = found["shaper return"]
    assert rows[0] == ["", "mfos", "good_shepherd"]
    assert rows[1] == ["trainings", "2", "3"]
    for column, name in ((1, "run"), (2, "other")):
        scores = [one["shaper_return"] for one in of[name]["runs"]]
        assert number(rows[2][column]) == pytest.approx(np.mean(scores), rel=1e-3)
        low, high = map(number, rows[3][column].split(" to "))
        assert min(scores) - 1e-3 <= low <= high <= max(scores) + 1e-3
    each = [float(row[-1]) for row in found["run"][1:]]
    assert each == pytest.approx([one["shaper_return"] for name in of for one in of[name]["runs"]], rel=1e-5)
    assert page.locator(".chart output").first.inner_text() == "generation 1 to 30"


def test_a_strangers_run_runs_nothing_and_asks_for_nothing(run, visit, browser, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"conclusion": EVIL, EVIL: 1.5, "opponent": EVIL}))
    rows = [{"generation": i, f"return{EVIL}": i / 3, "x_return": -i} for i in range(5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tables.json").write_text(json.dumps([EVIL, {"title": EVIL, "columns": [EVIL], "rows": [[EVIL]]}]))
    (folder / "figures" / "x' onerror='window.hacked = 1' .png").write_bytes(b"<svg onload='window.hacked = 1'>")
    write_run_report(folder)
    page = visit(folder / "report.html")
    page.locator(".chart canvas").first.wait_for(state="attached")  # a function as text is refused by the page
    assert page.locator(".conclusion").inner_text() == EVIL
    assert page.evaluate("window.hacked") is None
    # Even an element that stood in the page would do nothing.
    text = (folder / "report.html").read_text()
    (folder / "report.html").write_text(text.replace("<main>", f"<main><script></script>{EVIL}"))
    refused, page = [], browser.new_page()
    page.on("console", lambda message: refused.append(message.text))
    page.goto((folder / "report.html").as_uri())
    page.locator(".chart canvas").first.wait_for(state="attached")  # a function as text is refused by the page
    assert page.evaluate("window.hacked") is None
    assert all("Content Security Policy" in line for line in refused)
    assert len(refused) >= 2
    page.close()
