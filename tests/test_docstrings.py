"""`help` explains the fields of every public class and the arguments of every public function."""

import dataclasses
import doctest
import importlib
import inspect

import pytest

from tests.nightly import MARKS

# Functions with which a reader begins; each has an example.
MAIN = """games.make games.register games.rollout games.symmetric games.InfinitelyRepeated games.zd.fit marl.learn
    marl.evaluate marl.make_learner marl.naive marl.lola marl.ppo marl.shaping_trial marl.play_sampled meta.evolve
    meta.screen attacks.make_message""".split()  # noqa: SIM905
PACKAGES = ("games", "meta", "marl", "marl.distributed", "marl.shapers", "attacks")
LARGE = ("marl.ppi", "marl.mappo", "marl.evaluate_team", "marl.shared")  # examples of the nightly run
NAMESPACES = ("attacks.control", "attacks.defences", "attacks.messages", "games.exact.zd")
NAMESPACES += ("marl.blocks.objectives", "marl.blocks.value_losses")


def public(fits, *more):
    for package in (*PACKAGES, *NAMESPACES, *more):
        module = importlib.import_module(package)
        own = [name for name, x in vars(module).items() if name[0] != "_" and getattr(x, "__module__", "") == package]
        for name in getattr(module, "__all__", own):
            if fits(found := getattr(module, name)):
                yield pytest.param(found, id=f"{package}.{name}")


def has_example(found):
    return (inspect.isroutine(found) or inspect.isclass(found)) and ">>> " in (inspect.getdoc(found) or "")


def examples():
    for case in public(has_example, "configs.specs"):
        yield pytest.param(*case.values, id=case.id, marks=MARKS) if case.id in LARGE else case


def has_fields(found):
    return inspect.isclass(found) and (hasattr(found, "_fields") or dataclasses.is_dataclass(found))


def fields_of(found):
    return getattr(found, "_fields", None) or [field.name for field in dataclasses.fields(found)]


@pytest.mark.parametrize("found", [*public(has_fields)])
def test_every_field_of_a_public_class_is_explained(found):
    about = "\n".join(inspect.getdoc(one) or "" for one in found.__mro__ if one.__module__ == found.__module__)
    lines = [line.strip() for line in about.splitlines()]
    missing = [name for name in fields_of(found) if not any(line.startswith(f"{name}: ") for line in lines)]
    assert not missing


@pytest.mark.parametrize("function", [*public(inspect.isfunction)])
def test_every_argument_of_a_public_function_is_explained(function):
    _, _, about = (inspect.getdoc(function) or "").partition("Args:")
    assert not [name for name in inspect.signature(function).parameters if f"{name}: " not in about]


@pytest.mark.parametrize("name", MAIN)
def test_the_main_functions_have_an_example(name):
    package, _, function = name.rpartition(".")
    module = importlib.import_module(package) if package != "games.zd" else importlib.import_module("games.exact.zd")
    assert has_example(getattr(module, function))


@pytest.mark.system
@pytest.mark.parametrize("found", [*examples()])
def test_examples_print_what_they_say(found):
    (example,) = doctest.DocTestFinder(recurse=False).find(found, found.__name__, globs={})
    assert doctest.DocTestRunner().run(example).failed == 0
