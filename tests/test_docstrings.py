"""`help` explains the fields of every public class."""

import dataclasses
import importlib
import inspect

import pytest


def public_classes():
    for package in ("games", "meta", "marl", "attacks"):
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and (hasattr(found, "_fields") or dataclasses.is_dataclass(found)):
                yield pytest.param(found, id=f"{package}.{name}")


def fields_of(found):
    return getattr(found, "_fields", None) or [field.name for field in dataclasses.fields(found)]


@pytest.mark.parametrize("found", [*public_classes()])
def test_every_field_of_a_public_class_is_explained(found):
    about = "\n".join(inspect.getdoc(one) or "" for one in found.__mro__ if one.__module__ == found.__module__)
    lines = [line.strip() for line in about.splitlines()]
    missing = [name for name in fields_of(found) if not any(line.startswith(f"{name}: ") for line in lines)]
    assert not missing
