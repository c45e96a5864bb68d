"""Fresh trials of trained shapers: payoffs with standard errors, pooled over trainings, and a cache for resume."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import configs
from marl.experiments.shaping.config import ShapingConfig
from meta.runs import array_files, provenance
from meta.statistics import mean_and_error, or_nan

OWN_KIND = "the opponent's own kind"  # in all seats
UNTRAINED = "an untrained shaper"  # with random parameters, one draw for each training
IN_PLACE = "in the shaper's place"  # the heading of controls
FOLDER = "evaluation"  # of the cache, in the run directory


class EvaluationResult(NamedTuple):
    """Fresh trials against one opponent, `[trials, steps]` each; a step is a learning step of the opponent."""

    shaper: Any  # average payoff in a round, in the shapers' seats
    opponent: Any
    more: Any  # results that only one kind of game has, `[trials, steps, ...]`


Trial = Callable[[jax.Array, Any], EvaluationResult]  # (key, parameters) -> result [steps]


def controls_of(summary: dict[str, Any]) -> dict[str, Any]:
    """The controls of a summary, which play in the shaper's place against the opponent of the training."""
    titles = {UNTRAINED: "untrained", OWN_KIND: "own_kind"}
    return {title: summary[name] for title, name in titles.items() if name in summary}


def mean_payoffs(played: EvaluationResult) -> dict[str, Any]:
    """Mean payoffs over whole trials."""
    return {side: mean_and_error(getattr(played, side).mean(1)) for side in ("shaper", "opponent")}


def pool_seeds(runs: Sequence[Any]) -> Any:
    """The results of several trainings as one: means over them, and their standard errors *between* trainings.

    A value that is no mean, such as a policy, is that of the first training, because a mean of policies is no policy.
    A value that one training lacks is None.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    if any(run is None for run in runs):
        return None
    if isinstance(first, dict) and first.keys() == {"mean", "standard_error"}:
        return mean_and_error(np.array([or_nan(run["mean"]) for run in runs]))
    if isinstance(first, dict):
        return {name: pool_seeds([run[name] for run in runs]) for name in first}
    if isinstance(first, list):
        return [pool_seeds(each) for each in zip(*runs, strict=True)]
    return first


class EvaluationCache:
    """Fresh trials of each training, in a folder of the run, of which one that was stopped plays none again.

    They are valid for the config, the files that the opponents read, the versions and the devices with which they were
    played, and for the parameters.

    Args:
      run: the directory of the run.
      config: of the run.
    """

    def __init__(self, run: Path, config: ShapingConfig):
        self._folder, self._count = run / FOLDER, config.evaluation_trials
        self._valid_for = {
            "config": configs.plain(config),
            "versions": provenance.versions(),
            "devices": provenance.devices(),
            "reads": config.reads,
        }

    def file(self, group: int, training: int) -> Path:
        """The file of the trials of a group, by its number, and a training."""
        return self._folder / f"{group}-{training}.safetensors"

    def trials(self, file: Path, name: str, parameters: Any, trial: Trial, play: Callable[[], Any]) -> EvaluationResult:
        """The trials of a group by its name, from the file or, where it is not valid, played and saved."""
        valid_for = self._valid_for | {"parameters": _digest(parameters), "opponent": name}
        if file.is_file():
            like = jax.eval_shape(trial, jax.random.key(0), parameters)
            with contextlib.suppress(ValueError):  # a damaged one is played again
                arrays, metadata = array_files.load_arrays(file)
                if metadata == valid_for:
                    found: EvaluationResult = array_files.as_tree(arrays, like, str(file), (self._count,))
                    return found
        played: EvaluationResult = play()
        self._folder.mkdir(exist_ok=True)
        array_files.replace_arrays(file, played, valid_for)
        return played

    def clear(self) -> None:
        """Removes the folder, when the summary is written."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _digest(parameters: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))).hexdigest()
