"""Equality of functions by what they compute, so that a factory called twice with the same settings compiles once."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sysconfig
import threading
import types
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

LARGEST = 2**20  # bytes of an array that is compared by its contents
MOST = 16  # programs
_INSTALLED = sysconfig.get_path("purelib"), sysconfig.get_path("platlib")

_LOCK = threading.Lock()
_programs: dict[Hashable, Any] = {}


class _Traced(Exception):
    """A value belongs to a trace that is going on, and must not outlive it."""


def compiled_once(function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
    """The jitted function, compiled once for all functions of the same fingerprint; the function itself in a trace.

    The last `MOST` programs are kept.

    Args:
      function: what is called.
      given: pytrees, such as its arguments: there is a trace if they hold a tracer, as if the function does.
    """
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(given)):
        return function
    try:
        known_by = fingerprint(function)
    except _Traced:
        return function
    with _LOCK:
        program = _programs.pop(known_by, None) or jax.jit(function)
        _programs[known_by] = program  # the last one to go
        while len(_programs) > MOST:
            _programs.pop(next(iter(_programs))).clear_cache()
    return program


class _Identity:
    """An object that equals nothing but itself, and is kept alive so that its identity stays its own."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(value: Any) -> Hashable:
    """A hashable stand-in for a value: equal stand-ins mean equal computations.

    Functions are compared by their code, defaults, closures and the globals that they read, arrays and containers by
    their contents, dataclasses by their attributes. Everything else that is no plain value is compared by identity, as
    in `jax.jit`: functions of other modules that a function names, arrays of more than `LARGEST` bytes, and objects,
    which may therefore not be changed in place.

    Raises:
      _Traced: if the value holds a tracer.
    """
    return _of(value, {})


def _of(value: Any, seen: dict[int, int]) -> Hashable:
    if isinstance(value, jax.core.Tracer):
        raise _Traced
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | type | np.dtype | range):
        return type(value), value if value == value else "nan"
    if id(value) in seen:  # a function that refers to itself
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    try:
        return _of_parts(value, seen)
    finally:
        del seen[id(value)]


def _of_parts(value: Any, seen: dict[int, int]) -> Hashable:
    def each(parts: Any) -> Hashable:
        return tuple(_of(part, seen) for part in parts)

    if isinstance(value, types.FunctionType):
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # not filled yet
                cells.append(None)
        defaults = each([value.__defaults__, value.__kwdefaults__])
        return "function", value.__code__, each(cells), defaults, _globals_of(value, seen)
    if isinstance(value, types.MethodType):
        return "method", each([value.__func__, value.__self__])
    if isinstance(value, functools.partial):
        return "partial", each([value.func, value.args, value.keywords])
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return "key", str(value.dtype), np.asarray(jax.random.key_data(value)).tobytes()  # type: ignore[arg-type]
        if value.dtype != object and value.nbytes <= LARGEST:
            return type(value), value.shape, str(value.dtype), np.asarray(value).tobytes()
        return _Identity(value)
    if isinstance(value, tuple | list):
        return type(value), each(value)
    if isinstance(value, dict):
        return type(value), each(value), each(value.values())
    if dataclasses.is_dataclass(value):
        fields = each(getattr(value, field.name, None) for field in dataclasses.fields(value))
        of_subclass = "__dataclass_fields__" not in vars(type(value))  # which may have attributes that are no fields
        return type(value), fields, _of(getattr(value, "__dict__", None), seen) if of_subclass else None
    return _Identity(value)


def _globals_of(function: types.FunctionType, seen: dict[int, int]) -> Hashable:
    """Globals that a function reads, but not those of an installed package, which do not change.

    Among them functions of the same module are looked into.
    """
    found, own = [], function.__globals__
    for name in () if function.__code__.co_filename.startswith(_INSTALLED) else _names(function.__code__):
        if name in own:
            value = own[name]
            looked_into = getattr(value, "__globals__", own) is own and not isinstance(value, types.ModuleType)
            found.append((name, _of(value, seen) if looked_into else _Identity(value)))
    return tuple(found)


@functools.cache
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Names in a function's code and in that of the functions inside, attributes too."""
    inner = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return tuple(dict.fromkeys([*code.co_names, *itertools.chain.from_iterable(map(_names, inner))]))
