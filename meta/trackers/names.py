"""The trackers that have a name: those of `--tracker`."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Literal, get_args

from configs import ConfigError, one_of, shown
from meta.trackers.tracker import Tracker

TrackerName = Literal["none", "wandb", "trackio", "tensorboard", "mlflow"]

# Strings: nothing of a tracker is imported before it is made.
_MODULES = {
    "wandb": ("wandb_trackio", "Wandb"),
    "trackio": ("wandb_trackio", "Trackio"),
    "tensorboard": ("event_files", "EventFiles"),
    "mlflow": ("mlflow_runs", "MlflowRuns"),
}
NAMES = tuple(name for name in get_args(TrackerName) if name in _MODULES)


def is_installed(name: str) -> bool:
    """True if the package of a tracker is there.

    A folder of its name without code is none: W&B writes to one in the current directory.
    """
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def check_installed(name: str, field: str) -> None:
    """Raises ConfigError, with the name of the field, if the package of a tracker is not there."""
    if not is_installed(name):
        raise ConfigError(f"{field}: got {name}, which is not installed; pip install marl-shaping[{name}] is needed")


def make_tracker(name: str) -> Tracker:
    """A tracker by its name, for `tracker=` of `evolve` and `train`.

    Args:
      name: one of `wandb`, `trackio`, `tensorboard` and `mlflow`.

    Returns:
      The tracker, set up by the environment variables of its package, such as `WANDB_MODE` and `MLFLOW_TRACKING_URI`.

    Raises:
      ValueError: for another name, or if its package is not installed.
    """
    if name not in NAMES:
        needed = one_of(name, NAMES) if isinstance(name, str) else one_of("", NAMES)
        raise ValueError(f"name: got {shown(name)}; {needed}")
    check_installed(name, "name")
    module, maker = _MODULES[name]
    made: Tracker = getattr(importlib.import_module(f"meta.trackers.{module}"), maker)()
    return made
