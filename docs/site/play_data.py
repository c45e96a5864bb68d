"""The opponents of the page `docs/play` as numbers: `python -m docs.site.play_data` writes `docs/play/data.js`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from games import InfinitelyRepeated, prisoners_dilemma, zd
from games.exact.strategies import strategy
from marl.experiments.shaping.agents import load_shaper
from marl.learners.registry import settings
from marl.trained import folder
from meta.runs.array_files import named_leaves

FILE = Path(__file__).parents[1] / "play" / "data.js"
ROUNDS = 100
GAME = InfinitelyRepeated(prisoners_dilemma)  # of the learner and of the trainings of the shapers
FEWER_ROUNDS = 1 - 1 / ROUNDS  # the discount at which a zero-determinant strategy fits a mean over so many rounds
CHIS = np.arange(1.25, 10.01, 0.25)
TRAINED = "{}-prisoners_dilemma-naive.safetensors"
HUB = "hub:{}-prisoners_dilemma-naive"
HELD = "It never changes: these five probabilities decide every round."


def play_data() -> dict[str, Any]:
    """The game, and each opponent with what its steps need; all of it is JSON.

    Returns:
      `payoffs` after CC, CD, DC, DD of the player whose action is first, `rounds`, and `opponents`, each with

      - `id`, `name` in a list, `called` in a sentence, `about` one sentence, and `update`, how it changes;
      - `kind`: fixed, naive, mfos or shaper, by which `docs/play/opponents.js` plays it;
      - `spec`, the words after `python -m marl.play`, and `discount`;
      - `policy` of a fixed one; or `members` with `chi`, `spec` and `policy`, one for each place of a slider;
      - `line`: the slope (null for chi) and a point of the line that it enforces, null without one;
      - `weights` of a network by their names, or the learner's `learningRate`.
    """
    return {
        "payoffs": list(prisoners_dilemma.row_payoffs),
        "rounds": ROUNDS,
        "opponents": [
            _fixed("tft", "Tit for tat", "tit for tat", "It begins with C, and then repeats your last move.", 1.0),
            _fixed(
                "wsls",
                "Win-stay, lose-shift",
                "win-stay, lose-shift",
                "It begins with C, repeats its move after you cooperated and changes it after you defected.",
            ),
            _slider(
                "zd",
                "Extortioner",
                "the extortioner",
                "A zero-determinant strategy: whatever you do, it gets about chi points above mutual defection for "
                "each one of yours.",
                generous=False,
            ),
            _slider(
                "generous",
                "Generous strategy",
                "the generous strategy",
                "A zero-determinant strategy too: it loses about chi points below mutual cooperation for each one that "
                "you lose.",
                generous=True,
            ),
            _good_shepherd(),
            _network(
                "mfos",
                "M-FOS (trained)",
                "M-FOS",
                "It evolved over whole learning runs of naive learners, and shapes what they learn.",
                "After every round its network maps its own last policy and the estimate of yours to its next policy.",
            ),
            _network(
                "shaper",
                "Shaper (trained)",
                "Shaper",
                "It evolved as M-FOS did, and its recurrent network remembers the whole match.",
                "After every round its recurrent network reads its own last policy and the estimate of yours.",
            ),
            _naive(),
        ],
    }


def _opponent(name: str, label: str, called: str, about: str, update: str, *, kind: str, **rest: Any) -> dict[str, Any]:
    texts = {"id": name, "name": label, "called": called, "about": about, "update": update}
    return texts | {"kind": kind, "discount": GAME.discount, "line": None} | rest


def _fixed(name: str, label: str, called: str, about: str, slope: float | None = None) -> dict[str, Any]:
    policy = list(strategy(name, GAME))
    line = None if slope is None else _line(slope, 3)
    return _opponent(name, label, called, about, HELD, kind="fixed", spec=f"ipd {name}", policy=policy, line=line)


def _slider(name: str, label: str, called: str, about: str, *, generous: bool) -> dict[str, Any]:
    game = InfinitelyRepeated(prisoners_dilemma, FEWER_ROUNDS)
    _, sucker, temptation, punishment = prisoners_dilemma.row_payoffs
    members = []
    for chi in map(float, CHIS):
        # The largest phi there is: the larger it is, the nearer to the line are means over few rounds.
        phi = math.floor(1e4 / (punishment - sucker + chi * (temptation - punishment))) / 1e4
        spec = f"zd(chi={chi:g}, phi={phi}{', generous=True' if generous else ''})"
        command = f'ipd "{spec}" --discount {FEWER_ROUNDS}'
        members.append({"chi": chi, "spec": command, "policy": [round(p, 9) for p in strategy(spec, game)]})
    line = _line(None, 0 if generous else 3)
    return _opponent(name, label, called, about, HELD, kind="fixed", discount=FEWER_ROUNDS, members=members, line=line)


def _good_shepherd() -> dict[str, Any]:
    file = TRAINED.format("good_shepherd")
    policy = np.asarray(jax.nn.sigmoid(load_shaper(folder() / file).parameters))
    fit = zd.fit(prisoners_dilemma, policy, discount=FEWER_ROUNDS)
    return _opponent(
        "good_shepherd",
        "Good Shepherd (trained)",
        "Good Shepherd",
        "Evolution found this one fixed policy against naive learners: over a hundred rounds nearly an extortioner of "
        f"chi {fit.chi:.1f}.",
        HELD,
        kind="fixed",
        spec=HUB.format("good_shepherd"),
        policy=_numbers(policy),
        line=_line(float(f"{fit.chi:.3g}"), 3) if fit.extortionate else None,
    )


def _network(name: str, label: str, called: str, about: str, update: str) -> dict[str, Any]:
    file = TRAINED.format(name)
    weights = {key: _numbers(leaf) for key, leaf in named_leaves(load_shaper(folder() / file).parameters).items()}
    return _opponent(name, label, called, about, update, kind=name, spec=HUB.format(name), weights=weights)


def _naive() -> dict[str, Any]:
    rate = settings("naive", GAME)["learning_rate"]
    return _opponent(
        "naive",
        "Naive learner (adapts)",
        "the learner",
        "It begins with a random policy, and learns from you while you play.",
        f"After every round: θ ← θ + {rate:g} · ∂V(θ, yours)/∂θ, with θ the logits of its policy, V its exact "
        "discounted payoff, and the estimate for your policy.",
        kind="naive",
        spec="ipd naive",
        learningRate=rate,
    )


def _line(slope: float | None, state: int) -> dict[str, Any]:
    """A line through the payoffs of both after CC (state 0) or DD (3)."""
    return {"slope": slope, "point": prisoners_dilemma.row_payoffs[state]}


def _numbers(array: Any) -> Any:
    """Nested lists of numbers with the nine digits that single precision needs."""
    array = np.asarray(array)
    return [_numbers(row) for row in array] if array.ndim else float(f"{array:.9g}")


def as_script(data: dict[str, Any]) -> str:
    """A script that a page opened from disk can load, because a browser reads no JSON there; an opponent on a line."""
    parts = [f'"{name}": {json.dumps(value)}' for name, value in data.items() if name != "opponents"]
    opponents = ",\n".join(json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in data["opponents"])
    inside = ", ".join([*parts, f'"opponents": [\n{opponents}\n]'])
    return f"// Written by python -m docs.site.play_data.\nconst PLAY = {{{inside}}};\n"


if __name__ == "__main__":
    FILE.write_text(as_script(play_data()), encoding="utf-8")
