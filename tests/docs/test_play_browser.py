"""The page on which a person plays, in headless Chromium, opened from disk."""

import itertools
import re

import jax
import numpy as np
import pytest

from tests.docs.play_page import BY_NAME, OPPONENTS, PAGE, SHOWN, Replay
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

PAYOFFS = {"CC": (-1, -1), "CD": (-3, 0), "DC": (0, -3), "DD": (-2, -2)}  # yours and the opponent's, your action first


@pytest.fixture
def page(browser, request):
    """The page at the size of a desktop; errors, or a request that is none of its own files, fail the test."""
    width, height = getattr(request, "param", (1280, 800))
    page, faults, asked = browser.new_page(viewport={"width": width, "height": height}), [], []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto((PAGE / "index.html").as_uri())
    yield page
    page.close()
    assert faults == []
    assert all(url.startswith((PAGE.as_uri(), "data:")) for url in asked)


def read(place):
    """The text there, with the minus of a keyboard."""
    return place.inner_text().replace("\N{MINUS SIGN}", "-")


def history(page):
    """(your moves, the opponent's) of all rounds, as letters."""
    rounds = page.locator("#history li").all_inner_texts()
    return [tuple(re.findall(r"^[CD]$", text, re.MULTILINE)) for text in rounds]


def cells(line):
    return [read(cell) for cell in line.locator("td").all()]


def test_the_keyboard_plays_a_match(page):
    for key in "cDdc":
        page.keyboard.press(key)
    moves = history(page)
    assert [own for own, _ in moves] == ["C", "D", "D", "C"]
    assert moves[0] == ("C", "D")  # an extortioner begins with D
    own, other = moves[-1]
    said = {"C": "cooperated", "D": "defected"}
    paid = PAYOFFS[own + other]
    line = f"Round 4 of 100: you {said[own]}, the opponent {said[other]}. You get {paid[0]}, it gets {paid[1]}."
    assert read(page.get_by_role("status").first) == line
    averages = np.mean([PAYOFFS[own + other] for own, other in moves], axis=0)
    yours, its = map(cells, page.locator("#score tr").all())
    assert (yours[0], its[0]) == (own, other)
    assert (yours[1], its[1]) == tuple(map(str, paid))
    assert [float(yours[2]), float(its[2])] == pytest.approx(averages, abs=0.0051)
    assert yours[3] == "50 %"
    page.keyboard.press("r")
    assert history(page) == []
    assert "new match" in page.get_by_role("status").first.inner_text()


def test_keys_play_nothing_where_they_mean_something_else_or_are_turned_off(page):
    page.keyboard.press("Control+c")
    page.get_by_label("Play against").focus()
    page.keyboard.press("d")
    page.get_by_label("Keys C, D and R play").uncheck()
    page.keyboard.press("c")
    assert history(page) == []
    page.get_by_role("button", name="Cooperate").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    assert [own for own, _ in history(page)] == ["C", "C"]


def test_arrow_keys_move_the_slider_and_with_it_the_line_and_the_policy(page):
    slider = page.get_by_label("Slope of its line")
    assert slider.input_value() == "3"
    page.keyboard.press("c")
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert "chi: 4.00" in page.locator("#slider").inner_text()
    assert history(page) == []  # another opponent, another match
    assert "4 times what you get above mutual defection" in page.locator("#line-text").inner_text()
    assert "zd(chi=4, " in page.locator("#command").inner_text()
    (x1, y1), (x2, y2) = page.evaluate("lineEnds()")
    assert {(x1, y1), (x2, y2)} >= {(-2, -2)}
    assert (y1 - y2) / (x1 - x2) == pytest.approx(4)
    page.get_by_label("Play against").select_option("tft")
    assert not slider.is_visible()


@pytest.mark.parametrize("name", grid(BY_NAME, "zd", "naive"))
def test_a_match_has_the_probabilities_of_marl_play(page, name):
    """All rounds played by the page's own draws, and then by `marl.play`."""
    opponent = BY_NAME[name]
    page.get_by_label("Play against").select_option(opponent["id"])
    found = [page.evaluate("match.mind.policy")]
    for key in ("ccdcdd" * 17)[:100]:
        page.keyboard.press(key)
        found.append(page.evaluate("match.mind.policy"))
    moves = [tuple("CD".index(move) for move in moves) for moves in history(page)]
    assert len(moves) == 100
    spec = next(one["spec"] for one in SHOWN if one["id"] == opponent["id"])
    if opponent.get("members"):
        spec = page.locator("#command").inner_text().removeprefix("python -m marl.play ")
    double = opponent["id"] == "naive"  # whose steps multiply what marl.play rounds
    with jax.enable_x64(double):
        logits = None if opponent["kind"] == "fixed" else page.evaluate("match.logits")
        expected = Replay(spec, logits).policies(jax.random.key(0), moves)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 if opponent["id"] == "shaper" else 1e-6)
    page.get_by_text("The opponent's present policy").click()
    shown = [float(line.locator("td").first.inner_text()) for line in page.locator("#policy tr").all()]
    np.testing.assert_allclose(shown, found[-1], atol=5.1e-4)


def test_a_match_ends_with_what_happened(page):
    page.get_by_label("Play against").select_option("tft")
    page.get_by_role("button", name="Cooperate").focus()
    for key in "C" * 60 + "D" * 20 + "C" * 20:
        page.keyboard.press(key)
    # C C 60 times, D C once, D D 19 times, C D once, C C 19 times.
    text = read(page.locator("#verdict"))
    assert "You got -1.20 per round, tit for tat -1.20." in text
    assert "Of every point above mutual defection it took 0.50." in text
    assert "You cooperated in 80 % of the rounds, it in 80 %." in text
    assert "Mutual cooperation pays -1.00 to each, mutual defection -2.00." in text
    assert "It gives back what it gets" in text
    assert "Your dot lies on its green line" in text
    assert page.get_by_role("button", name="Cooperate").is_disabled()
    page.keyboard.press("c")
    assert len(history(page)) == 100
    assert page.evaluate("document.activeElement.id") == "restart"  # which the keyboard has not lost
    page.keyboard.press("Enter")
    assert history(page) == []
    page.keyboard.press("d")
    page.get_by_role("button", name="End the match").click()
    assert "You got 0.00 per round, tit for tat -3.00. Mutual defection would have paid more to tit for tat." in (
        read(page.locator("#verdict"))
    )


def test_the_verdict_says_what_an_extortioner_does_and_how_far_the_dot_is_from_the_line(page):
    """After C against C: (-1, -1) lies (3 - 1) / sqrt(10) below the line of slope 3 through (-2, -2)."""
    page.evaluate("match.rounds.push([0, 0]); end()")
    text = read(page.locator("#verdict"))
    assert "gains 3 points for each one that you gain" in text
    assert "Your dot lies 0.63 below its green line" in text
    assert page.get_by_text("chi, phi and the discount").is_visible()
    page.get_by_label("Play against").select_option("mfos")
    page.evaluate("match.rounds.push([0, 0]); end()")
    assert "No line holds your average" in read(page.locator("#verdict"))
    assert not page.get_by_text("chi, phi and the discount").is_visible()


def test_a_screen_reader_finds_names_the_outcome_and_a_table_for_the_polygon(page):
    page.get_by_role("button", name="Defect").click()
    assert page.locator("#outcome").get_attribute("role") == "status"
    # What it reads: each control has a name, and the figure is described.
    for control in page.locator("button, select, input").all():
        assert control.evaluate("x => x.innerText.trim() || x.labels[0].innerText.trim()")
    figure = page.get_by_role("img", name="Polygon of the average payoffs")
    assert "You got" in figure.locator("desc").text_content()
    page.get_by_text("The polygon as a table").click()
    points = {}
    for line in page.locator("#points tr").all():
        points[line.locator("th").inner_text()] = list(map(float, cells(line)))
    assert points["both C"] == [-1, -1]
    assert points["only you D"] == [0, -3]
    assert points["your average"] == list(PAYOFFS["D" + history(page)[0][1]])
    assert page.locator("#history li").first.text_content().startswith("you defected, the opponent ")
    levels = [int(x) for x in page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((x) => x.tagName[1])")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("page", [(390, 844), (1280, 800)], indirect=True, ids=["phone", "desktop"])
def test_nothing_is_wider_than_the_screen_nor_higher_than_that_of_a_desktop(page):
    page.get_by_text("The opponent's present policy").click()
    for opponent in OPPONENTS:
        page.get_by_label("Play against").select_option(opponent["id"])
        page.evaluate("for (let i = 0; i < 100; i++) play(i % 2)")
        width, height = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        assert width == page.viewport_size["width"]
        if width == 1280:
            assert height <= 800
    for button in page.get_by_role("button").all():
        assert button.bounding_box()["height"] >= 44  # of a finger


@nightly
def test_both_colour_schemes_are_those_of_the_system(browser):
    seen = set()
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto((PAGE / "index.html").as_uri())
        seen.add((scheme, page.evaluate("getComputedStyle(document.body).backgroundColor")))
        page.close()
    assert seen == {("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 24, 29)")}
