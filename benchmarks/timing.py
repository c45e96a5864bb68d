"""Timing in turn: what is compared runs alternately, so that its ratio holds on a noisy machine."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax

from meta.loop import compile_program

Name, Result = TypeVar("Name"), TypeVar("Result")


class Compiled(NamedTuple):
    """A compiled program, called with the arguments that it was compiled for."""

    executable: Any
    arguments: tuple[Any, ...]
    seconds_to_compile: float

    def __call__(self) -> Any:
        return self.executable(*self.arguments)


def compiled(function: Callable[..., Any], *arguments: Any, xla_defaults: bool = False) -> Compiled:
    """The function compiled with the library's options, or with XLA's defaults."""
    started = time.perf_counter()
    executable = (
        jax.jit(function).lower(*arguments).compile() if xla_defaults else compile_program(function, *arguments)
    )
    return Compiled(executable, arguments, time.perf_counter() - started)


def seconds(call: Callable[[], Any], number: int = 1) -> float:
    """Seconds of a call, the mean of so many in a row, until its arrays are computed."""
    started = time.perf_counter()
    jax.block_until_ready([call() for _ in range(number)])
    return (time.perf_counter() - started) / number


def in_turn(calls: Mapping[Name, Callable[[], Result]], repeats: int) -> dict[Name, list[Result]]:
    """The results of each call, of all calls in turn."""
    turns = [{name: call() for name, call in calls.items()} for _ in range(repeats)]
    return {name: [turn[name] for turn in turns] for name in calls}


def seconds_in_turn(calls: Mapping[Name, Callable[[], Any]], repeats: int) -> dict[Name, list[float]]:
    """Seconds of each call, of all calls in turn; a first turn, not counted, warms up."""
    times = in_turn({name: partial(seconds, call) for name, call in calls.items()}, repeats + 1)
    return {name: own[1:] for name, own in times.items()}


def ratio(numerators: Iterable[float], denominators: Iterable[float]) -> float:
    """The median of the ratios of what ran in the same turn."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def machine() -> str:
    """The devices, the processor and the version of JAX, in words."""
    devices = jax.devices()
    return f"{len(devices)} x {devices[0].device_kind}, {platform.machine()}, jax {jax.__version__}"
