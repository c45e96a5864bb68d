"""What packages offer, imported when it is asked for."""

import importlib
import subprocess
import sys

import pytest

PACKAGES = ("games", "meta", "marl", "attacks")
FIRST = """
import sys, games, meta, marl, attacks
assert not {"jax", "numpy", "yaml"} & sys.modules.keys(), "importing the packages imports what they are made of"
from marl.learners.registry import FORMULA, SAMPLED
assert "mfos" in FORMULA and "shaper" in SAMPLED.names(), "shapers are learners whoever was imported first"
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_others_are_not(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is vars(module)[name]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nobody'"):
        _ = module.nobody


def test_packages_are_imported_at_once_and_shapers_are_known_as_learners():
    subprocess.run([sys.executable, "-c", FIRST], check=True)
