"""Specs, as users write them on a command line: `name`, or with settings, `name(setting=value)`; and what they name."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from configs import LARGEST, one_of, short, shown

Made = TypeVar("Made")


class Registry(Generic[Made]):
    """Objects that are made by a name, each by a factory whose keyword-only parameters are the settings.

    Their defaults are the settings' defaults, and their type hints say what may be given: a whole number for int, a
    number for float (and for Any, the hint of a number that may be traced), True or False for bool, text for str, the
    values of a Literal, lists of these for sequences, one of several for a union. What no spec can write, such as a
    function, is no setting. Without a hint it is the kind of the default. A keyword whose hint is a TypedDict, with a
    dict as its default, is a group of settings: its members are settings, and it is none. Ranges are for the factory to
    check: what it says in a ValueError, `setting: got 0; ... is needed`, is said of the spec.

    Args:
      example: a name, for messages.
      given: keywords that the caller of `make` gives to the factories that take them, and that are no settings.
      ranges: whether `[lowest, highest]` may stand for a number; the setting is a `Range` then.
      more: a module that registers names here too when it is imported: one that stands on the registry's own.
      plugins: registers what installed packages offer; called when a name is unknown, and for lists of names.

    Example:
      >>> from configs.specs import Registry
      >>> def power(base, *, exponent: int = 1):
      ...     return base**exponent
      >>> registry = Registry("power")
      >>> registry.register("power", power)
      >>> registry.make("function", "power(exponent=3)", 2)
      8
    """

    def __init__(
        self,
        example: str,
        *,
        given: Sequence[str] = (),
        ranges: bool = False,
        more: str = "",
        plugins: Callable[[], None] = lambda: None,
    ) -> None:
        self._example, self._given, self._ranges, self._more, self._plugins = example, given, ranges, more, plugins
        self._own: dict[str, _Entry] = {}
        self.elsewhere: dict[str, Registry[Made]] = {}  # registries for other kinds of games, by what these are

    @property
    def _entries(self) -> dict[str, _Entry]:
        """All entries, after the import of the module that registers more."""
        if self._more:
            importlib.import_module(self._more)
        return self._own

    def register(
        self,
        name: str,
        factory: Callable[..., Made],
        *,
        settings: Callable[[], dict[str, Setting]] | None = None,
        replace: bool = False,
        **fixed: Any,
    ) -> None:
        """Makes a factory known by a name.

        Args:
          name: letters, digits, hyphens and underscores, a letter first.
          factory: its positional arguments are those of `make`.
          settings: of a factory that hands keywords on to others; by default those of its own signature.
          replace: whether the name may be taken.
          **fixed: keywords of the factory that are no settings.

        Raises:
          ValueError: for a name that no spec can have, or that is taken.
        """
        if not callable(factory):
            raise TypeError(f"factory: got {shown(factory)}; a function is needed")
        if not re.fullmatch(NAME, name):
            raise ValueError(f"name: got {name!r}; letters, digits, - and _ are needed, a letter first")
        if name in self._own and not replace:
            raise ValueError(f"name: got {name!r}, which is taken; another name, or replace=True, is needed")
        self._own[name] = _Entry(factory, settings or (lambda: settings_of(factory)), fixed)

    def factory(self, name: str) -> Callable[..., Made]:
        """The factory of a name."""
        return self._entries[name].factory

    def unregister(self, name: str) -> None:
        """Forgets a name."""
        del self._entries[name]

    def __contains__(self, name: str) -> bool:
        if name not in self._entries:
            self._plugins()
        return name in self._own

    def names(self) -> list[str]:
        """All names, in the order in which they came."""
        known = self._entries
        self._plugins()
        return list(known)

    def settings(self, name: str) -> dict[str, Setting]:
        """The settings of a name."""
        entry = self._entries[name]
        return {k: x for k, x in entry.settings().items() if k not in entry.fixed and k not in self._given}

    def read(self, field: str, spec: str) -> tuple[str, dict[str, Any]]:
        """The name in a spec, and the settings that are given there.

        Args:
          field: what the spec is of, for messages.
          spec: values are Python's literals.

        Raises:
          ValueError: for a spec of another form, or an unknown name, setting or kind of value, naming what is allowed.
        """
        name, given = read(field, spec, self._example)
        if name not in self:
            for where, other in self.elsewhere.items():
                if name in other:
                    here = one_of("", self.names())
                    raise ValueError(f"{field}: got {shown(name)}, which is there for {where} only; {here} here")
            raise ValueError(f"{field}: got {shown(name)}; {one_of(name, self.names())}")
        known = self.settings(name)
        for setting, value in given.items():
            if setting not in known:
                raise ValueError(
                    f"{field}: {name} has no setting {shown(setting)}; it takes {', '.join(known) or 'none'}"
                )
            given[setting] = self._checked(f"{field}: {name}: {setting}", known[setting].hint, value)
        for setting, (hint, default) in known.items():
            if default is REQUIRED and setting not in given:
                raise ValueError(f"{field}: {name}: {setting}: not given; {self._kind(hint).words} is needed")
        return name, given

    def build(self, name: str, settings: dict[str, Any], *args: Any, **given: Any) -> Made:
        """Makes the object of a name and its settings; errors are the factory's.

        Args:
          name: a known one.
          settings: as `read` returns them.
          *args: of the factory.
          **given: further keywords, each for the factories that take it.
        """
        factory, _, fixed = self._entries[name]
        taken = _keywords(factory)
        given = {keyword: x for keyword, x in given.items() if keyword in taken}
        return factory(*args, **given, **grouped(fixed | settings, factory))

    def make(self, field: str, spec: str, *args: Any, **given: Any) -> Made:
        """Makes the object of a spec: `read` and `build` in one.

        Raises:
          ValueError: as `read`, and for what the factory refuses, in one line.
        """
        name, settings = self.read(field, spec)
        with naming(field, name):
            return self.build(name, settings, *args, **given)

    def _kind(self, hint: Any) -> _Kind:
        kind = _kind_of(hint, ranges=self._ranges)
        assert kind  # `settings_of` leaves out what no spec can write
        return kind

    def _checked(self, where: str, hint: Any, value: Any) -> Any:
        words, fits = self._kind(hint)
        if not fits(value):
            order = ", the lowest first" if self._ranges and _numbers(value) else ""
            raise ValueError(f"{where}: got {shown(value)}; {words} is needed{order}")
        if self._ranges and isinstance(value, list) and not _kind_of(hint).fits(value):  # type: ignore[union-attr]
            return Range(float(value[0]), float(value[1]))
        return value


class Range(NamedTuple):
    """A range from which a number is to be drawn."""

    low: float
    high: float


class Setting(NamedTuple):
    """A setting of a factory."""

    hint: Any  # a type
    default: Any  # or REQUIRED


REQUIRED: Any = inspect.Parameter.empty


def settings_of(*factories: Callable[..., Any], **defaults: Any) -> dict[str, Setting]:
    """The settings of all factories together, the first that has one in front, with some defaults changed."""
    found: dict[str, Setting] = {}
    for factory in factories:
        for name, parameter in _keywords(factory).items():
            hint = parameter.annotation
            if hint is parameter.empty:
                hint = _UNKNOWN if parameter.default in (None, REQUIRED) else type(parameter.default)
            if name not in found and _kind_of(hint):
                found[name] = Setting(hint, defaults.get(name, parameter.default))
    return found


def grouped(settings: dict[str, Any], *factories: Callable[..., Any]) -> dict[str, Any]:
    """Settings as the factories' keywords: the members of a group of settings as one dict."""
    found: dict[str, Any] = {}
    groups = {member: name for factory in factories for name, hints in _groups(factory).items() for member in hints}
    for setting, value in settings.items():
        if setting in groups:
            found.setdefault(groups[setting], {})[setting] = value
        else:
            found[setting] = value
    return found


def change(spec: str, **settings: Any) -> str:
    """A spec with other settings, and the rest as it was.

    Example:
      >>> from configs.specs import change
      >>> change("ppo(hidden=[64], epochs=4)", epochs=2)
      'ppo(hidden=[64], epochs=2)'
    """
    name, before = read("spec", spec, "naive")
    return write(name, before | settings)


def write(name: str, settings: dict[str, Any]) -> str:
    """The spec of a name and its settings."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in settings.items())})"


def terms(spec: str, separator: str = "+") -> list[str]:
    """The members of a population, or of another list; a separator inside brackets or quotes is none of ours."""
    depth, quote, terms = 0, "", [""]
    for letter in spec:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
        if letter == separator and not depth and not quote:
            terms.append("")
        else:
            terms[-1] += letter
    return terms


def read(field: str, spec: str, example: str) -> tuple[str, dict[str, Any]]:
    """The name, which may have hyphens, and the settings in brackets; nothing of them is known yet."""
    if not isinstance(spec, str):
        raise ValueError(f"{field}: got {shown(spec)}; a name such as {example}, or name(setting=value), is needed")
    found = re.fullmatch(rf"\s*({NAME})\s*(\(.*\))?\s*", spec, re.DOTALL)
    try:
        call = ast.parse(f"spec{found[2] or '()'}" if found else "", mode="eval").body
        if not (found and isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise ValueError
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two of thousands of brackets
        message = f"{field}: got {shown(spec)}; a name such as {example}, or name(setting=value), is needed"
        raise ValueError(message) from None
    settings: dict[str, Any] = {}
    for setting, value in ((str(keyword.arg), keyword.value) for keyword in call.keywords):
        where = f"{field}: {found[1]}: {short(setting)}"
        if setting in settings:
            raise ValueError(f"{where}: given twice; once is needed")
        try:
            settings[setting] = ast.literal_eval(_WithNumbers().visit(value))
        except (ValueError, TypeError, MemoryError, RecursionError):
            got = short(ast.get_source_segment(f"spec{found[2]}", value) or "")
            raise ValueError(f"{where}: got {got}; a number, a list or text in quotes is needed") from None
    return found[1], settings


class _WithNumbers(ast.NodeTransformer):
    """Reads the names nan and inf as numbers, so that the checks can refuse them."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(float(node.id)) if node.id.lower() in ("nan", "inf") else node


@contextlib.contextmanager
def naming(field: str, name: str) -> Iterator[None]:
    """Inside, an error is one line that says first what it is about."""
    try:
        yield
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"{field}: {name}: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().split("\n")[0]


NAME = r"[^\W\d][\w-]*"
_UNKNOWN = object()  # the hint of what has none


class _Entry(NamedTuple):
    factory: Callable[..., Any]
    settings: Callable[[], dict[str, Setting]]  # asked for when they are needed
    fixed: dict[str, Any]


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def _keywords(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters; the members of a group, as far as they have defaults there, in its place."""
    groups, found = _groups(factory), {}
    for name, parameter in inspect.signature(factory, eval_str=True).parameters.items():
        for member, hint in groups.get(name, {}).items():
            if member in parameter.default:
                found[member] = parameter.replace(name=member, default=parameter.default[member], annotation=hint)
        if name not in groups and parameter.kind is parameter.KEYWORD_ONLY:
            found[name] = parameter
    return found


def _groups(factory: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The groups of settings of a factory, with the type hints of their members."""
    hints = {name: x.annotation for name, x in inspect.signature(factory, eval_str=True).parameters.items()}
    return {name: get_type_hints(hint, include_extras=True) for name, hint in hints.items() if is_typeddict(hint)}


def _kind_of(hint: Any, *, ranges: bool = False) -> _Kind | None:
    """The values that a type hint allows; None for a type that no spec can write."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [kind for one in arguments if one is not NoneType and (kind := _kind_of(one, ranges=ranges))]
        if not kinds:
            return None
        kinds += [_Kind("None", lambda x: x is None)] * (NoneType in arguments)
        return _Kind(" or ".join(kind.words for kind in kinds), lambda x: any(kind.fits(x) for kind in kinds))
    if origin is Literal:
        return _Kind(f"one of {', '.join(map(str, arguments))}", lambda x: x in arguments)
    if (origin or hint) in (Sequence, list, tuple):
        one = _kind_of(arguments[0] if arguments else _UNKNOWN)
        if not one:
            return None
        words = re.sub(r"^an? (.*)", r"\1s", one.words)
        return _Kind(f"a list of {words}", lambda x: isinstance(x, list | tuple) and all(map(one.fits, x)))
    if hint in (float, Any):
        if not ranges:
            return _Kind("a number", _numeric)
        return _Kind("a number, or [lowest, highest] of a range", lambda x: _numeric(x) or _range(x))
    return {
        int: _Kind("a whole number", lambda x: isinstance(x, int) and not isinstance(x, bool)),
        bool: _Kind("True or False", lambda x: isinstance(x, bool)),
        str: _Kind("text in quotes", lambda x: isinstance(x, str)),
        _UNKNOWN: _Kind("a value", lambda x: True),
    }.get(hint)


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _range(value: Any) -> bool:
    return _numbers(value) and value[0] < value[1]


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_numeric, value))
