"""The help of a command line, made from the fields of its configs, their types and their docstrings."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

HELP = "help"  # in the metadata of a field: its text, where no source has it
WIDEST = 100  # columns


class Positional(NamedTuple):
    """The annotation of a field that a command line gives without a flag: `Annotated[str, Positional("DIR")]`."""

    name: str


def usage(defaults: Sequence[Any], program: str, description: str) -> str:
    """The text of --help.

    Args:
      defaults: configs, whose fields and the fields of configs in them are the options.
      program: the command.
      description: its purpose.
    """
    width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    rows = [row for default in defaults for row in _rows(default)]
    words = " ".join([program, *(row.flag for row in rows if row.positional), "[options]"])
    options = [("-h, --help", "show this help and exit")]
    options += [(f"{row.flag} {row.kind}".rstrip(), row.text) for row in rows]
    lines = [f"usage: {words}", "", description.strip(), "", "options:"]
    for flag, text in options:
        lines += [f"  {flag}", *textwrap.wrap(text, width - 8, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    return "\n".join(lines)


class _Row(NamedTuple):
    flag: str
    kind: str
    text: str
    positional: bool


def _rows(config: Any, prefix: str = "") -> Iterator[_Row]:
    cls: Any = type(config)
    texts, hints = docs_of(cls), get_type_hints(cls, include_extras=True)
    # Options of the config itself before those of configs in it.
    for field in sorted(dataclasses.fields(config), key=lambda one: dataclasses.is_dataclass(hints[one.name])):
        value, hint = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            yield from _rows(value, f"{prefix}{field.name}.")
            continue
        text = field.metadata.get(HELP) or texts.get(field.name, "")
        if positional := next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Positional)), None):
            yield _Row(positional.name, "", text, True)
            continue
        flag = f"--{prefix}{field.name}".replace("_", "-")
        if hint is bool:
            flag, kind = f"{flag}, --{prefix}no-{field.name}".replace("_", "-"), ""
        else:
            kind = _kind(hint)
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        yield _Row(flag, kind, f"{text} (default: {'empty' if shown == '' else shown})".lstrip(), False)


def _kind(hint: Any) -> str:
    """A type as a placeholder: INT, {a, b}, INT [INT ...]."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return "{" + ", ".join(map(str, arguments)) + "}"
    if get_origin(hint) is tuple:
        one = _kind(arguments[0])
        return f"[{one} ...]" if arguments[1:] == (...,) else " ".join(map(_kind, arguments))
    if NoneType in arguments:
        return "None | " + " | ".join(_kind(x) for x in arguments if x is not NoneType)
    return getattr(hint, "__name__", "value").upper()


@functools.cache
def docs_of(cls: type) -> dict[str, str]:
    """The docstrings of a dataclass's fields: what stands below each, or under Attributes in that of the class."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(one):
            continue
        about = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        for name, text in re.findall(r"^  (\w+): (.*(?:\n    .*)*)", about, re.MULTILINE):
            found[name] = " ".join(text.split())
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        except (OSError, TypeError, SyntaxError):  # a class that no file has
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
