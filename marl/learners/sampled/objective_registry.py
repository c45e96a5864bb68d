"""Objectives and values' losses of PPO by their names, or from the files of those that were evolved."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from configs import short
from configs.specs import Registry
from games.core.game import Scalar
from marl.blocks import objectives, value_losses
from marl.blocks.objectives import Objective, Parametric, Timed
from marl.blocks.value_losses import ValueLoss
from marl.trained import folder
from marl.trained.catalogue import PREFIX, located
from meta.runs import array_files

FILE = "objective.safetensors"  # in the directory of a run that evolved one
METHOD = "discover"  # in a file's metadata
Kind = Literal["drift", "value_loss"]

OBJECTIVES: Registry[Objective | Timed] = Registry("dpo")
VALUE_LOSSES: Registry[ValueLoss] = Registry("huber")


class Form(NamedTuple):
    """An evolved objective without its parameters: the metadata of its file."""

    kind: Kind
    start: Literal["ppo", "zero", "l2"]  # what it is where nothing has been evolved
    hidden: int = 16
    timed: bool = False

    @property
    def field(self) -> Literal["objective", "value_loss"]:
        """The setting of `ppo` that it is."""
        return "objective" if self.kind == "drift" else "value_loss"

    def network(self, clip: Scalar = 0.2) -> Parametric:
        """Its functions; the clip is of a drift that began as PPO."""
        if self.kind == "drift":
            return objectives.drift_network(self.hidden, clip if self.start == "ppo" else None, timed=self.timed)
        return value_losses.distance_network(self.hidden, "l2" if self.start == "l2" else "zero")

    def settings(self, parameters: Any, clip: Scalar = 0.2) -> dict[str, Any]:
        """The setting of `ppo` that it is, with these parameters."""
        network = self.network(clip)
        if self.kind == "drift":
            return {self.field: objectives.learned(network, parameters, timed=self.timed)}
        return {self.field: lambda *x: network.apply(parameters, *x)}


def save_objective(path: Path, form: Form, parameters: Any, clip: float, **about: Any) -> None:
    """Writes an evolved objective, for `ppo(objective='PATH')` or `ppo(value_loss='PATH')`."""
    array_files.replace_arrays(path, parameters, {"method": METHOD, "form": form._asdict(), "clip": clip, **about})


def load_objective(path: str) -> tuple[Form, Any, float]:
    """An objective that `save_objective` wrote, by its file, its run or `hub:NAME`: (form, parameters, clip).

    Raises:
      ValueError: if there is none, or if the file is damaged or of another kind; one line.
    """
    place = located(path) if path.startswith(PREFIX) else path
    file = Path(place) / FILE if os.path.isdir(place) else Path(place)
    arrays, metadata = array_files.load_arrays(file)
    try:
        form, clip = Form(**metadata["form"]), float(metadata["clip"])
        known = metadata["method"] == METHOD and form.hidden <= 4096 and form.kind in ("drift", "value_loss")
        wanted = {name: x.shape for name, x in _shapes(form.network(clip)).items()} if known else None
    except (KeyError, TypeError, ValueError):
        wanted = None
    if wanted is None:
        raise ValueError(f"got {short(path)!r}; a file that python -m marl.discover wrote is needed")
    array_files.same_shapes(arrays, wanted, str(file))
    return form, {name: jnp.asarray(x) for name, x in arrays.items()}, clip


def make_objective(spec: str) -> Objective | Timed:
    """An objective of policies: by its name, `dpo(alpha=2, beta=0.6)`, or the path or `hub:NAME` of an evolved one.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed; for a file that
        cannot be used.
    """
    return OBJECTIVES.make("objective", spec) if not _is_path(spec, OBJECTIVES) else _of_file("drift", spec)


def make_value_loss(spec: str) -> ValueLoss:
    """A value's loss: by its name, `huber(delta=1)`, or the path or `hub:NAME` of an evolved one.

    Raises:
      ValueError: as `make_objective`.
    """
    return VALUE_LOSSES.make("value_loss", spec) if not _is_path(spec, VALUE_LOSSES) else _of_file("value_loss", spec)


def _of_file(kind: Kind, path: str) -> Any:
    field = Form(kind, "zero").field
    try:
        form, parameters, clip = load_objective(path)
    except ValueError as error:
        raise ValueError(f"{field}: {str(error).removeprefix('agent: ')}") from None
    if form.kind != kind:
        raise ValueError(f"{field}: got {short(path)!r}, a {form.kind}; a {kind} is needed")
    return form.settings(parameters, clip)[field]


def _shipped(kind: Kind, name: str) -> Any:
    return _of_file(kind, str(folder() / f"{kind}-{name}.safetensors"))


def _is_path(spec: str, names: Registry[Any]) -> bool:
    return (
        spec.startswith(PREFIX)
        or "/" in spec
        or spec.endswith(".safetensors")
        or (spec not in names and os.path.isdir(spec))
    )


def _shapes(network: Parametric) -> dict[str, Any]:
    return array_files.named_leaves(jax.eval_shape(network.init, jax.random.key(0)))


OBJECTIVES.register("clipped", objectives.clipped_surrogate)
OBJECTIVES.register("dpo", objectives.dpo)
OBJECTIVES.register("quadratic", objectives.quadratic_drift)
OBJECTIVES.register("classic", lambda: _shipped("drift", "classic"))  # of `python -m marl.discover drift classic`
OBJECTIVES.register("policy_gradient", lambda: objectives.policy_gradient)
VALUE_LOSSES.register("l2", lambda: value_losses.l2)
VALUE_LOSSES.register("clipped_l2", value_losses.clipped_l2)
VALUE_LOSSES.register("huber", value_losses.huber)
VALUE_LOSSES.register("expectile", value_losses.expectile)
VALUE_LOSSES.register("classic", lambda: _shipped("value_loss", "classic"))  # of `... value_loss classic`
