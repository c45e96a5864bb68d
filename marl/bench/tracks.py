"""The tracks of Shaping Bench, each with games, opponents and a scale of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from marl.bench import exact, protocol, sampled, sampled_methods, searches
from marl.bench.methods import Method
from marl.bench.protocol import VERSION, Budget, Payoffs

TrackName = Literal["exact", "sampled"]
TRACKS: tuple[TrackName, ...] = get_args(TrackName)


class Part(NamedTuple):
    """Tasks against one opponent that are trained and played together.

    Attributes:
      name: of its directory.
      opponent: one of the track's.
      tasks: names of tasks.
    """

    name: str
    opponent: str
    tasks: tuple[str, ...]


class Reference(NamedTuple):
    """The scale of one game and opponent.

    Attributes:
      zero: payoffs of the opponent's own kind in the place of a method, and of the opponent then, by form.
      one: the payoff that scores 1, against the form of the training.
      source: where that comes from.
      room: a task measures nothing if `one` is not more than this above the first `zero` of the training's form.
      apart: difference of payoffs by which two processors may be apart, on average over trainings.
    """

    zero: dict[str, tuple[float, float]]
    one: float
    source: str
    room: float
    apart: float


class Track(NamedTuple):
    """The games and opponents of a track, and how a method is trained and played there.

    Attributes:
      name: its name.
      opponents: names of the opponents.
      parts: all parts, in the order in which they are played.
      forms: `(task, opponent)`: names of its forms, that of the training first.
      budget: `(size, opponent, task)`: the budget of a training.
      seconds: `(part)`: seconds of one core for fresh trials with their compilation, and for a trial of a training.
      make_method: `(spec)`: a method by its spec.
      play: as `exact.play_track`.
      reference: `(task, opponent, training)`: the scale.
    """

    name: TrackName
    opponents: tuple[str, ...]
    parts: tuple[Part, ...]
    forms: Callable[[str, str], tuple[str, ...]]
    budget: Callable[[str, str, str], Budget]
    seconds: Callable[[Part], tuple[float, float]]
    make_method: Callable[[str], Method]
    play: Callable[..., Payoffs]
    reference: Callable[[str, str, int], Reference]

    def tasks(self, opponent: str = "") -> list[str]:
        """Names of the tasks against an opponent; of all if empty."""
        found = [task for part in self.parts if opponent in ("", part.opponent) for task in part.tasks]
        return list(dict.fromkeys(found))


def track_of(name: str) -> Track:
    """A track by its name."""
    return _exact() if name == "exact" else _sampled()


@cache
def _exact() -> Track:
    def reference(task: str, opponent: str, training: int) -> Reference:
        game = protocol.tasks(training=training)[task]
        payoffs = float(np.ptp(game.row_payoffs))
        return _reference(
            references()["exact"][game.name][opponent], room=protocol.ROOM * payoffs, apart=protocol.APART * payoffs
        )

    return Track(
        "exact",
        tuple(protocol.OPPONENTS),
        tuple(Part(name, name, tuple(protocol.tasks(name))) for name in protocol.OPPONENTS),
        lambda task, opponent: protocol.FORMS,
        lambda size, opponent, task: protocol.budget_of(size, opponent),
        lambda part: protocol.SECONDS[part.opponent],
        searches.make_method,
        exact.play_track,
        reference,
    )


@cache
def _sampled() -> Track:
    def reference(task: str, opponent: str, training: int) -> Reference:
        del training
        row = references()["sampled"][task][opponent]
        unit = row["one"] - row["zero"][protocol.TRAINED][0]
        return _reference(row, room=row["room"], apart=sampled.APART * max(unit, row["room"]))

    return Track(
        "sampled",
        tuple(sampled.OPPONENTS),
        tuple(Part(f"{task}-{name}", name, (task,)) for task, one in sampled.TASKS.items() for name in one.opponents),
        sampled.forms_of,
        lambda size, opponent, task: sampled.budget_of(size, task),
        lambda part: sampled.SECONDS[part.tasks[0]],
        sampled_methods.make_method,
        sampled.play_track,
        reference,
    )


@cache
def references() -> dict[str, Any]:
    """The table in the package from which the scales are read, by track, game and opponent."""
    text = resources.files("marl.bench").joinpath("references.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    if found["version"] != VERSION:
        raise ValueError(f"references.json: got version {found['version']}; {VERSION} is needed")
    return found["tracks"]  # type: ignore[no-any-return]


def _reference(row: dict[str, Any], *, room: float, apart: float) -> Reference:
    zero = {form: (x, y) for form, (x, y) in row["zero"].items()}
    return Reference(zero, row["one"], row["source"], room, apart)
