"""Fresh trials of trained shapers: payoffs with standard errors, pooled over trainings, and a cache for resume."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import configs
from marl.experiments.shaping.config import ShapingConfig
from meta.runs import array_files, environment
from meta.runs.statistics import mean_and_error, or_nan

OWN_KIND = "the opponent's own kind"  # in all seats
UNTRAINED = "an untrained shaper"  # with random parameters, one draw for each training
IN_PLACE = "in the shaper's place"  # the heading of controls
FOLDER = "evaluation"  # of the cache, in the run directory


class EvaluationResult(NamedTuple):
    """Fresh trials against one opponent, `[trials, steps]` each; a step is a learning step of the opponent."""

    shaper: Any  # average payoff in a round, in the shapers' seats
    opponent: Any
    more: Any  # results that only one kind of game has, `[trials, steps, ...]`


def controls_of(summary: dict[str, Any]) -> dict[str, Any]:
    """The controls of a summary, which play in the shaper's place against the opponent of the training."""
    titles = {UNTRAINED: "untrained", OWN_KIND: "naive"}
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
    """Fresh trials against each opponent by the shaper of each training, in a folder of the run.

    They are valid for the config, the files that the opponents read, the parameters, the versions and the devices with
    which they were played.

    Args:
      run: the directory of the run.
      config: of the run.
      trials: `(key, parameters) -> EvaluationResult [steps]` of each group, by its name.
      parameters: of the shaper of each training, on the host.
    """

    def __init__(
        self,
        run: Path,
        config: ShapingConfig,
        trials: Mapping[str, Callable[[jax.Array, Any], EvaluationResult]],
        parameters: list[Any],
    ):
        self._folder, self._found = run / FOLDER, dict[tuple[str, int], EvaluationResult]()
        valid_for = {
            "config": configs.plain(config),
            "versions": environment.versions(),
            "devices": environment.devices(),
            "reads": config.reads,
        }
        self._valid_for = [valid_for | {"parameters": _digest(one)} for one in parameters]
        self._files = {
            (name, i): self._folder / f"{number}-{i}.safetensors"
            for number, name in enumerate(trials)
            for i in range(len(parameters))
        }
        for (name, i), file in self._files.items():
            if file.is_file():
                like = jax.eval_shape(trials[name], jax.random.key(0), parameters[i])
                with contextlib.suppress(ValueError):  # a damaged one is played again
                    arrays, metadata = array_files.load(file)
                    if metadata == self._valid_for[i] | {"opponent": name}:
                        count = (config.evaluation_trials,)
                        self._found[name, i] = array_files.as_tree(arrays, like, str(file), count)

    def has(self, name: str) -> bool:
        """Whether the trials of all trainings against an opponent are there."""
        return all((name, i) in self._found for i in range(len(self._valid_for)))

    def get(self, name: str, i: int) -> EvaluationResult | None:
        """The trials of training i, if they are there."""
        return self._found.get((name, i))

    def save(self, name: str, i: int, played: EvaluationResult) -> EvaluationResult:
        """Saves trials of training i, and returns them."""
        self._folder.mkdir(exist_ok=True)
        array_files.replace(self._files[name, i], played, self._valid_for[i] | {"opponent": name})
        return played


def clear_cache(run: Path) -> None:
    """Removes the cache of a run whose summary is written."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def _digest(parameters: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))).hexdigest()
