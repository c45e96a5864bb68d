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
from meta.statistics import standard_error

SHARE = 10  # one task of so many is played again
SAME = 1e-4  # of the largest payoff
FAR = 4.0  # standard errors of the difference between two trainings of as many


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
    there = [name for name in result["tasks"]["chicken"] if name not in SAMPLING]
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
        for form in FORMS:
            claimed, ours = (
                np.array(x, float) for x in (result["tasks"][task][opponent]["payoffs"][form][0], again.method[form][i])
            )
            difference = float(np.nan_to_num(np.abs(claimed.mean() - ours.mean())))
            scale = SAME * max(1.0, float(np.nan_to_num(np.abs(ours)).max()))
            error = float(np.hypot(*(np.nan_to_num(standard_error(x)) for x in (claimed, ours))))
            worst = max(worst, difference / max(scale, FAR * error))
            table.add_row(task, form, f"{claimed.mean():.4f}", f"{ours.mean():.4f}", f"{difference:.5f}")
    console.print(table)
    if not worst <= 1:
        raise ValueError(f"result: is another than what was played again, by {worst:.1f} times what rounding explains")
    same = "the bits of" if _equal(checked, again) else "within what rounding explains of"
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
