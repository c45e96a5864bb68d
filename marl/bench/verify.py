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
from marl.bench.exact import play_track
from marl.bench.methods import Method, make_method
from marl.bench.protocol import FORMS, OPPONENTS, SAMPLING, budget_of, tasks
from marl.bench.table import load_result
from meta.runs.formatting import many, say

SHARE = 10  # one task of so many is played again
FAR = 0.05  # of the range of payoffs, by which trainings on other processors differ on average


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
    """A result whose method is known to be there, and the tasks that are played again."""

    result: dict[str, Any]
    method: Method
    opponent: str
    chosen: list[str]


def prepare(config: VerifyConfig) -> Checked:
    """Chooses a tenth of the tasks, all against one opponent that does not sample, because those are one program.

    Raises:
      ValueError: for what is no result, or without its method.
    """
    if not config.result:
        raise ValueError("result: got none; the file of a result is needed")
    result = load_result(config.result, "result")
    generator = np.random.default_rng(config.seed)
    there = [name for name in OPPONENTS if name not in SAMPLING and name in result["tasks"].get("chicken", {})]
    if not there:
        raise ValueError(f"result: got {config.result!r}, without an opponent that does not sample")
    opponent = str(generator.choice(there))
    number = -(-sum(len(tasks(name)) for name in OPPONENTS) // SHARE)
    chosen = [str(x) for x in generator.choice([*tasks(opponent)], number, replace=False)]
    return Checked(result, make_method(result["method"]), opponent, sorted(chosen, key=[*tasks()].index))


def verify(checked: Checked, out: None, console: Console) -> None:
    """Plays the tasks again, and prints how far the result is from that.

    Raises:
      ValueError: if the result is another.
    """
    result, opponent = checked.result, checked.opponent
    say(console, f"{many(len(checked.chosen), 'task')} against {opponent}: {', '.join(checked.chosen)}")
    again = play_track(
        checked.method,
        opponent,
        budget_of(result["size"], opponent),
        seed=result["seed"],
        seeds=result["trainings"],
        chosen=checked.chosen,
    )
    table, worst = Table("task", "form", "result", "again", "difference"), 0.0
    for i, task in enumerate(checked.chosen):
        games = [tasks(training=result["seed"] + k)[task] for k in range(result["trainings"])]
        for form in FORMS:
            claimed = np.array(result["tasks"][task][opponent]["payoffs"][form], float)
            ours = np.stack([again.method[form][i], again.opponent[form][i]])
            if claimed.shape != ours.shape or (np.isfinite(claimed) != np.isfinite(ours)).any():
                raise ValueError(f"result: {task}/{opponent} has other trainings than what was played again")
            apart = np.nan_to_num(np.abs(claimed - ours)) / [np.ptp(game.row_payoffs) for game in games]
            worst = max(worst, float(apart.mean(1).max()) / FAR)
            means = (f"{x:.4f}" for x in (claimed[0].mean(), ours[0].mean()))
            table.add_row(task, form, *means, f"{np.nan_to_num(np.abs(claimed - ours)).max():.5f}")
    console.print(table)
    if not worst <= 1:
        raise ValueError(
            f"result: is another than what was played again, by {worst:.1f} times what processors differ by"
        )
    same = "the bits of" if _equal(checked, again) else "within what processors differ by of"
    say(console, f"The result is {same} what was played again, with {jax.__version__} of JAX.")


def _equal(checked: Checked, again: Any) -> bool:
    return all(
        np.array_equal(
            np.array(checked.result["tasks"][task][checked.opponent]["payoffs"][form][side], float),
            np.asarray(played[form][i]),
            equal_nan=True,
        )
        for i, task in enumerate(checked.chosen)
        for form in FORMS
        for side, played in enumerate((again.method, again.opponent))
    )
