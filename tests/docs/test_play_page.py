"""The page on which a person plays: opponents as in `marl.play`, data of the library, and colours that can be read."""

import itertools
import json
import re

import jax
import numpy as np
import pytest

from docs.site.play_data import play_data
from games import prisoners_dilemma
from games.exact.zd import exact_payoffs, random_policies
from tests.docs.play_page import BY_NAME, DATA, PAGE, SHOWN, Replay

MiniRacer = pytest.importorskip("py_mini_racer", reason="mini-racer is not installed").MiniRacer
MATCHES, ROUNDS = 8, 100
MIND = ("policy", "logits", "hidden")


@pytest.fixture(scope="module")
def javascript():
    engine = MiniRacer()
    for name in ("data.js", "opponents.js"):
        engine.eval((PAGE / name).read_text(encoding="utf-8"))
    engine.eval("""
        function policies(opponent, logits, moves) {
          let [mind, state] = [beginMind(opponent, logits), 0];
          const counts = Array.from({ length: 5 }, () => [0, 0]);
          return [mind.policy, ...moves.map(([action, answer]) => {
            counts[state][action] += 1;
            state = 1 + 2 * action + answer;
            mind = stepMind(opponent, mind, estimatePolicy(counts));
            return mind.policy;
          })];
        }
        function steps(opponent, minds, estimates) {
          return minds.map((mind, i) => stepMind(opponent, mind, estimates[i]).policy);
        }""")

    def call(function, *arguments):
        return np.array(json.loads(engine.eval(f"JSON.stringify({function}(...{json.dumps(arguments)}))")), float)

    return call


def moves_of(seed):
    """Moves of two players with random policies, so that a match meets all situations or few."""
    draws = np.random.default_rng(seed)
    (own, other), state, moves = random_policies(draws, 2), 0, []
    for _ in range(ROUNDS):
        action, answer = (int(draws.random() >= p) for p in (own[state], other[(0, 1, 3, 2, 4)[state]]))
        moves.append((action, answer))
        state = 1 + 2 * action + answer
    return moves


def as_javascript(mind):
    """The agent between two rounds, as the page keeps it."""
    logits, hidden = getattr(mind.state, "logits", ()), getattr(mind.memory, "hidden", ())
    return {name: np.asarray(x, float).tolist() for name, x in zip(MIND, (mind.policy, logits, hidden), strict=True)}


@pytest.mark.parametrize("opponent", [one for one in SHOWN if one["id"] != "naive"], ids=lambda one: one["spec"])
def test_the_same_moves_give_the_probabilities_of_marl_play(javascript, opponent):
    match = Replay(opponent["spec"])
    # The recurrent network multiplies what marl.play rounds to single precision in earlier rounds.
    over_a_match = 1e-4 if opponent["id"] == "shaper" else 1e-6
    for seed in range(MATCHES):
        key, moves = jax.random.key(seed), moves_of(seed)
        minds, estimates = match.play(key, moves)
        expected = [np.asarray(mind.policy, float) for mind in minds]
        found = javascript("policies", opponent, match.first_logits(key), moves)
        np.testing.assert_allclose(found, expected, rtol=0, atol=over_a_match)
        before = [as_javascript(mind) for mind in minds[:-1]]
        found = javascript("steps", opponent, before, [x.tolist() for x in estimates[1:]])
        np.testing.assert_allclose(found, expected[1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("double", "tolerance"), [(True, 1e-6), (False, 1e-4)])
def test_the_learner_is_that_of_marl_play_in_double_precision(javascript, double, tolerance):
    """In single precision the gradient of marl.play has errors of 1e-6 itself, which later steps multiply."""
    with jax.enable_x64(double):
        match = Replay("ipd naive")
        for seed in range(MATCHES):
            key, moves = jax.random.key(seed), moves_of(seed)
            found = javascript("policies", BY_NAME["naive"], match.first_logits(key), moves)
            np.testing.assert_allclose(found, match.policies(key, moves), rtol=0, atol=tolerance)


def test_the_estimate_is_the_rule_of_succession(javascript):
    counts = [[0, 0], [3, 0], [1, 2], [0, 7], [50, 50]]
    np.testing.assert_allclose(javascript("estimatePolicy", counts), [1 / 2, 4 / 5, 2 / 5, 1 / 9, 1 / 2], rtol=1e-7)


def test_the_gradient_of_one_round_is_worked_out_by_hand(javascript):
    """At a discount of 0 only the start counts: p (1 - p) (q (R - T) + (1 - q) (S - P)), which is -1 / 4 at p = 1/2."""
    found = javascript("payoffGradient", [0.5] * 5, [0.3] * 5, [-1, -3, 0, -2], 0)
    np.testing.assert_allclose(found, [-0.25, 0, 0, 0, 0], atol=1e-15)


def same(one, other):
    """Equality of JSON, of numbers to the last digits, which depend on the machine."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[x], other[x]) for x in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return one == pytest.approx(other, rel=1e-6) if isinstance(one, float) else one == other


def test_the_data_are_those_of_the_library():
    assert same(json.loads(json.dumps(play_data())), DATA), "python -m docs.site.play_data writes them"


@pytest.mark.parametrize("name", ["zd", "generous"])
def test_every_place_of_a_slider_enforces_its_line(name):
    opponent, others = BY_NAME[name], random_policies(np.random.default_rng(0), 200)
    for member in opponent["members"]:
        paid = exact_payoffs(prisoners_dilemma, member["policy"], others, discount=opponent["discount"])
        own, other = (x - opponent["line"]["point"] for x in paid)
        np.testing.assert_allclose(own, member["chi"] * other, atol=1e-5)


def luminance(colour):
    """Relative luminance of #rrggbb; Web Content Accessibility Guidelines 2.2."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other):
    light, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_contrast_of_both_colour_schemes_is_that_of_level_aa():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    light, dark = re.findall(r":root \{(.*?)\}", (PAGE / "play.css").read_text(encoding="utf-8"), re.DOTALL)
    for scheme in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#\w{6});", scheme))
        grounds = [colours[name] for name in ("ground", "raised", "fill")]
        for text, ground in itertools.product(("text", "quiet"), grounds):
            assert contrast(colours[text], ground) >= 4.5
        for cell in ("you", "other"):
            assert contrast(colours["on-color"], colours[cell]) >= 4.5
        for part, ground in itertools.product(("border", "line", "you", "other"), grounds[:2]):
            assert contrast(colours[part], ground) >= 3
        assert contrast(colours["line"], colours["fill"]) >= 3


def test_the_page_asks_no_other_host_for_anything():
    text = "".join(file.read_text(encoding="utf-8") for file in PAGE.glob("*.*"))
    assert re.findall(r"(?:https?:)?//\w[^\s\"']*\.\w+", text) == ["http://www.w3.org"]  # the name of SVG
    assert not re.findall(r"\b(?:fetch|import|XMLHttpRequest|WebSocket|eval)\b\s*\(", text)
