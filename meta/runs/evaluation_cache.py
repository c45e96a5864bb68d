"""Parts of an evaluation that are done, of which a run that was stopped repeats none."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import configs
from configs import CommandConfig
from meta.runs import array_files, provenance

FOLDER = "evaluation"  # in the run directory


class EvaluationCache:
    """Results of parts of an evaluation, in a folder of the run.

    They are valid for the config, the files that it reads, the versions and the devices with which they were computed,
    and for what else they depend on.

    Args:
      run: the directory of the run.
      config: of the run.
    """

    def __init__(self, run: Path, config: CommandConfig):
        self._folder = run / FOLDER
        self._valid_for = {
            "config": configs.plain(config),
            "versions": provenance.versions(),
            "devices": provenance.devices(),
            "reads": config.reads,
        }

    def file(self, name: str) -> Path:
        """The file of a part, by a name that is short and fit for one."""
        return self._folder / f"{name}.safetensors"

    def result(self, name: str, parameters: Any, like: Callable[[], Any], compute: Callable[[], Any]) -> Any:
        """The result of a part, from its file or, where that is not valid, computed and saved.

        Args:
          name: of the part.
          parameters: what it depends on beside the config, a pytree of arrays.
          like: makes a pytree as the result is, whatever its leaves.
          compute: computes it, a pytree of arrays.
        """
        file, valid_for = self.file(name), self._valid_for | {"parameters": array_files.digest(parameters)}
        if file.is_file():
            with contextlib.suppress(ValueError):  # a damaged one is computed again
                arrays, metadata = array_files.load_arrays(file, finite=False)
                tree = like() if metadata == valid_for else None
                leaves = array_files.named_leaves(tree)
                if arrays.keys() == leaves.keys():
                    return jax.tree.unflatten(jax.tree.structure(tree), [arrays[leaf] for leaf in leaves])
        computed = jax.tree.map(np.asarray, compute())
        self._folder.mkdir(exist_ok=True)
        array_files.replace_arrays(file, computed, valid_for)
        return computed

    def clear(self) -> None:
        """Removes the folder, when the summary is written."""
        shutil.rmtree(self._folder, ignore_errors=True)
