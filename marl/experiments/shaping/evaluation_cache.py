"""Fresh trials that were played, kept until a run has its summary: one that is stopped goes on behind them."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

import configs
from marl.experiments.shaping.evaluation_result import UNTRAINED, EvaluationResult
from marl.experiments.shaping.game_kind import GameKind
from meta.runs import array_files, provenance


class EvaluationCache:
    """What was played against each opponent by the shaper of each training, in a folder of the run.

    It counts for the config, what the opponents read, the parameters, the versions and the devices with which it was
    played, and for no others.
    """

    def __init__(self, run: Path, kind: GameKind, parameters: list[Any]):
        """Reads what is there.

        Args:
          run: the directory of the run.
          kind: of its config.
          parameters: of the shaper of each training, on the host.
        """
        self._folder, self._found = run / "evaluation", dict[tuple[str, int], EvaluationResult]()
        about = {
            "config": configs.plain(kind.config),
            "versions": provenance.versions(),
            "devices": provenance.devices(),
        }
        about |= {"reads": kind.config.reads}
        self._about = [about | {"parameters": _digest(one)} for one in parameters]
        self._files = {
            (name, i): self._folder / f"{number}-{i}.safetensors"
            for number, name in enumerate((*kind.groups(), UNTRAINED))
            for i in range(len(parameters))
        }
        for (name, i), file in self._files.items():
            if file.is_file():
                trial = kind.groups()[kind.config.opponent if name == UNTRAINED else name]
                like = jax.eval_shape(trial, jax.random.key(0), parameters[i])
                with contextlib.suppress(ValueError):  # a damaged one is played again
                    arrays, metadata = array_files.load(file)
                    if metadata == self._about[i] | {"opponent": name}:
                        count = (kind.config.evaluation_trials,)
                        self._found[name, i] = array_files.as_tree(arrays, like, str(file), count)

    def has(self, name: str) -> bool:
        """Whether all trainings have met an opponent."""
        return all((name, i) in self._found for i in range(len(self._about)))

    def get(self, name: str, i: int) -> EvaluationResult | None:
        """What was played by training i, if it was."""
        return self._found.get((name, i))

    def keep(self, name: str, i: int, played: EvaluationResult) -> EvaluationResult:
        """Keeps what was played by training i, and returns it."""
        self._folder.mkdir(exist_ok=True)
        array_files.replace(self._files[name, i], played, self._about[i] | {"opponent": name})
        return played

    def clear(self) -> None:
        """Removes the folder: the summary is there."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _digest(parameters: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))).hexdigest()
