"""An extension of griffe: the comments behind the fields of a class are its table of attributes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe


class Fields(griffe.Extension):
    """Appends a section `Attributes` to the docstring of a class whose fields have comments behind them alone."""

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Called for each class, when all of it is loaded."""
        del kwargs
        if cls.docstring is None or "Attributes:" in cls.docstring.value:
            return
        fields = [(name, self._comment(cls, member)) for name, member in cls.attributes.items()]
        lines = [f"  {name}: {comment}" for name, comment in fields if comment]
        if lines:
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)

    @staticmethod
    def _comment(cls: griffe.Class, field: griffe.Attribute) -> str:
        """The comment behind a field, or an empty text."""
        if not isinstance(cls.filepath, Path) or field.lineno is None:
            return ""
        lines = cls.lines_collection[cls.filepath][field.lineno - 1 : field.lineno]
        found = re.search(r"#\s+(.*)$", "".join(lines))
        return found[1] if found else ""
