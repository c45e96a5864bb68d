"""Layers of learners by their specs."""

import pytest

from marl.learners.layer_specs import hidden_layers


@pytest.mark.parametrize(
    ("spec", "units"),
    [
        ("ppo", [64, 64]),
        ("ppo(hidden=[8])", [8]),
        ("ppo(network='nature')", [512]),
        ("ppo(network='nature(hidden=[16])')", [16]),
        ("pqn", [128, 128]),
        ("r2d2", [64]),
        ("tabular_ppo", []),
    ],
)
def test_layers_are_those_of_the_learner(spec, units):
    assert hidden_layers(spec) == units
