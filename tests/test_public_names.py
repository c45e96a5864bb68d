"""Public names of the packages, imported when they are used."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
import types

import pytest

import marl.public

PACKAGES = ("games", "meta", "marl", "marl.distributed", "marl.shapers", "attacks")
FIRST = """
import sys, games, meta, marl, attacks
assert not {"jax", "numpy", "yaml"} & sys.modules.keys(), "importing the packages imports what they are made of"
marl.blocks
assert "marl.public" not in sys.modules, "a submodule is imported alone"
from marl.learners.registry import FORMULA, SAMPLED
assert "mfos" in FORMULA and "shaper" in SAMPLED.names(), "shapers are learners in every order of imports"
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_and_others_do_not(package):
    module, public = importlib.import_module(package), importlib.import_module(f"{package}.public")
    assert module.__all__ == dir(module) == sorted(name for name in vars(public) if not name.startswith("_"))
    for name in module.__all__:
        assert getattr(module, name) is vars(module)[name] is vars(public)[name]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_hides_a_module(package):
    module = importlib.import_module(package)
    modules = {one.name for one in pkgutil.iter_modules(module.__path__)}
    for name in modules & set(module.__all__):
        assert isinstance(getattr(module, name), types.ModuleType)


def test_no_factory_of_a_learner_has_more_than_sixteen_parameters():
    numbers = {name: len(inspect.signature(x).parameters) for name, x in vars(marl.public).items() if callable(x)}
    assert max(numbers.values()) <= 16, numbers


def test_packages_are_imported_fast_and_shapers_are_known_as_learners():
    subprocess.run([sys.executable, "-c", FIRST], check=True)
