"""An extension of griffe, which reads the code for the API reference: comments of fields, functions that are made."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import griffe

MAKERS = ("marl.learners.exact.factories",)  # modules whose functions are made by calls, with docstrings of their own


class AsUsersSeeIt(griffe.Extension):
    """Comments behind the fields of a class become its attributes, and functions made by calls become functions."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Makes a section `Example` one of examples, because griffe reads the plural alone as code."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Appends a section `Attributes` to the docstring of a class whose fields have comments behind them alone."""
        del kwargs
        if cls.docstring is None or "Attributes:" in cls.docstring.value:
            return
        fields = [(name, _comment(cls, member)) for name, member in cls.attributes.items()]
        lines = [f"  {name}: {comment}" for name, comment in fields if comment]
        if lines:
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Puts functions in the place of what griffe takes for values."""
        del kwargs
        if mod.path in MAKERS:
            for name, found in vars(importlib.import_module(mod.path)).items():
                if name in mod.attributes and inspect.isfunction(found):
                    mod.set_member(name, _function(mod, name, found))
                    self.on_object(obj=mod[name])


def _comment(cls: griffe.Class, field: griffe.Attribute) -> str:
    """The comment behind a field, or an empty text."""
    if not isinstance(cls.filepath, Path) or field.lineno is None:
        return ""
    lines = cls.lines_collection[cls.filepath][field.lineno - 1 : field.lineno]
    found = re.search(r"#\s+(.*)$", "".join(lines))
    return found[1] if found else ""


def _function(mod: griffe.Module, name: str, found: Any) -> griffe.Function:
    """A function as it is at run time, at the line of its definition."""
    attribute = mod.attributes[name]
    parameters = [
        griffe.Parameter(
            one.name,
            kind=griffe.ParameterKind(one.kind.description),
            annotation=inspect.formatannotation(one.annotation),
            default=None if one.default is one.empty else repr(one.default),
        )
        for one in inspect.signature(found).parameters.values()
    ]
    return griffe.Function(
        name,
        parameters=griffe.Parameters(*parameters),
        returns="Learner",
        lineno=attribute.lineno,
        endlineno=attribute.endlineno,
        docstring=griffe.Docstring(inspect.getdoc(found) or "", lineno=attribute.lineno),
        parent=mod,
    )
