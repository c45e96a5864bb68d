"""Specs of learners with other layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from configs.specs import change
from marl.learners.registry import NETWORKS, SAMPLED


def hidden_layers(spec: str) -> list[int]:
    """The units of each layer of a sampled learner with a network, which may say them itself."""
    name, given = SAMPLED.read("learner", spec)
    if "network" not in given:
        return list(given.get("hidden", SAMPLED.settings(name)["hidden"].default))
    network, inside = NETWORKS.read("learner: network", str(given["network"]))
    return list(given.get("hidden", inside.get("hidden", NETWORKS.settings(network)["hidden"].default)))


def with_hidden(spec: str, units: Sequence[int]) -> str:
    """Such a learner with other layers, and the rest as it was."""
    given, changes = SAMPLED.read("learner", spec)[1], dict[str, Any](hidden=list(units))
    if "network" in given:
        network, inside = NETWORKS.read("learner: network", str(given["network"]))
        changes["network"] = change(network, **{name: x for name, x in inside.items() if name != "hidden"})
    return change(spec, **changes)
