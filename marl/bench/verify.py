"""A part of a result played again, and compared."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.flags import Positional
from marl.bench.methods import Method, digest_of_files
from marl.bench.protocol import SAMPLING, Payoffs
from marl.bench.scores import whole
from marl.bench.table import load_result
from marl.bench.tracks import Part, track_of
from meta.runs.formatting import many, say

SHARE = 10  # one task of so many is played again


@dataclasses.dataclass(frozen=True)
class VerifyConfig(configs.CommandConfig):
    """A result that is checked."""

    result: Annotated[str, Positional("FILE")] = ""
    """File or run directory of a result."""
    seed: int = 0
    """Seed of the choice of tasks."""

    def __post_init__(self) -> None:
        configs.check_seed(self.seed)


class Checked(NamedTuple):
    """A result whose method is known to be there, and the parts that are played again, with some of their tasks."""

    result: dict[str, Any]
    method: Method
    parts: list[Part]


def prepare(config: VerifyConfig) -> Checked:
    """Chooses a tenth of the tasks: in the exact track against one opponent, because those are one program.

    Opponents of the exact track that sample are left out, because they take most of the time. The method plays one of
    the tasks at least.

    Raises:
      ValueError: for what is no result, or without its method.
    """
    if not config.result:
        raise ValueError("result: got none; the file of a result is needed")
    result = load_result(config.result, "result")
    track, generator = track_of(result["track"]), np.random.default_rng(config.seed)
    there = [
        part
        for part in track.parts
        if part.opponent not in SAMPLING
        and all(whole(result, track, task, part.opponent, finite=False) for task in part.tasks)
    ]
    if not _some_are_played(result, there):
        raise ValueError(f"result: got {config.result!r}, without a whole task that can be played again")
    number, parts = -(-sum(len(part.tasks) for part in track.parts) // SHARE), list[Part]()
    while not _some_are_played(result, parts):  # what a method does not play is equal and shows nothing
        parts = _some_of(there, number, generator)
    return Checked(result, track.make_method(result["method"]), parts)


def _some_of(there: list[Part], number: int, generator: np.random.Generator) -> list[Part]:
    parts = list[Part]()
    for i in generator.permutation(len(there)):
        tasks = there[i].tasks
        chosen = generator.choice(len(tasks), min(number, len(tasks)), replace=False)
        parts.append(there[i]._replace(tasks=tuple(tasks[k] for k in sorted(chosen))))
        number -= len(chosen)
        if number == 0:
            break
    return parts


def _some_are_played(result: dict[str, Any], parts: list[Part]) -> bool:
    """True if a result has a number in some task of the parts."""
    found = (result["tasks"][task][part.opponent]["payoffs"] for part in parts for task in part.tasks)
    return any(np.isfinite(np.array(one, float)).any() for payoffs in found for one in payoffs.values())


def verify(checked: Checked, out: None, console: Console) -> None:
    """Plays the tasks again, and prints how far the result is from that.

    Raises:
      ValueError: if the result is another.
    """
    result, track = checked.result, track_of(checked.result["track"])
    source = result.get("source", {}).get("sha256", "")
    if source and source != digest_of_files(result["method"]):
        say(console, f"the module of {result['method']} is not the one of the result")
    table, worst, same = Table("task", "form", "result", "again", "difference"), 0.0, True
    for part in checked.parts:
        say(console, f"{many(len(part.tasks), 'task')} against {part.opponent}: {', '.join(part.tasks)}")
        budget = track.budget(result["size"], part.opponent, part.tasks[0])
        seeds = {"seed": result["seed"], "seeds": result["trainings"]}
        again: Payoffs = track.play(checked.method, part.opponent, part.tasks, budget, **seeds)
        for i, task in enumerate(part.tasks):
            rows = [track.reference(task, part.opponent, result["seed"] + k) for k in range(result["trainings"])]
            for form in track.forms(task, part.opponent):
                claimed = np.array(result["tasks"][task][part.opponent]["payoffs"][form], float)
                ours = np.stack([side[form][i] for side in again])
                if claimed.shape != ours.shape or (np.isfinite(claimed) != np.isfinite(ours)).any():
                    raise ValueError(f"result: {task}/{part.opponent} has other trainings than what was played again")
                same &= np.array_equal(claimed, ours, equal_nan=True)
                apart = np.nan_to_num(np.abs(claimed - ours))
                worst = max(worst, float((apart / [row.apart for row in rows]).mean(1).max()))
                means = (f"{x:.4f}" for x in (claimed[0].mean(), ours[0].mean()))
                table.add_row(task, form, *means, f"{apart.max():.5f}")
    console.print(table)
    if not worst <= 1:
        raise ValueError(
            f"result: is not what was played again: the largest difference is {worst:.1f} times the tolerance, which "
            "is what processors differ by"
        )
    words = "is identical bit for bit" if same else "agrees within the tolerance, which is what processors differ by"
    say(console, f"Played again with JAX {jax.__version__}, the result {words}.")
