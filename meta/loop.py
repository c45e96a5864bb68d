"""The host's side of the outer loop, the same for every optimiser: many iterations a call, metrics, checkpoints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from meta.process import check_stop, recognised, uninterrupted
from meta.xla.backend import platform
from meta.xla.memory import bytes_of, check_memory

MAX_ITERATIONS_PER_CALL = 256
SECONDS_PER_CALL = 0.5
STATE_PER_SECOND = 3e8  # bytes; a call copies its state once, at ten times that, and should last ten times as long

Report = Callable[[int, dict[str, np.ndarray], float], None]
Step = Callable[[Any, jax.Array, Any], tuple[Any, dict[str, jax.Array]]]
# (state, key, first iteration, how many at most) -> (state, metrics, with a row for each iteration and perhaps more)
Call = Callable[[Any, Any, int, int], tuple[Any, dict[str, jax.Array]]]
Run = Callable[[Step, str, Any, Any, str], Call]  # (step, what an iteration is called, state, key, advice)


class NonFiniteFitness(ArithmeticError):
    """Nothing that was tried in an iteration had a fitness that is a number."""


class Lost(RuntimeError):
    """Raised when the evaluator is gone. Everything that was saved stays."""


class Iterated(NamedTuple):
    """The result of `iterate`."""

    state: Any
    metrics: dict[str, np.ndarray]  # `[iterations, ...]` each
    seconds_to_compile: float
    seconds_to_run: float
    first_iteration: int  # how many were done already when it was called


class Store(Protocol):
    """Storage of a run, such as `meta.runs.directory.RunDirectory`."""

    def restore(self, like: Any, last: int) -> tuple[int, Any, dict[str, np.ndarray]] | None:
        """The newest whole checkpoint, as (generation, state like `like`, metrics `[generation, ...]`); None if none.

        A generation after `last` is a ValueError.
        """
        ...

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Takes these for all metrics so far."""
        ...

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds the metrics of further generations."""
        ...

    def save(self, generation: int, state: Any, metrics: dict[str, np.ndarray]) -> None:
        """Saves a checkpoint, with the metrics up to it."""
        ...


_LIBRARY_FUSIONS = ",".join(
    f"LIBRARY_FUSION_TYPE_{name}" for name in ("DOT", "INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION")
)


def compiler_options() -> dict[str, Any] | None:
    """Options of XLA for this backend.

    The vector units of current server processors are twice as wide as what XLA prefers on them: a third faster. Of the
    fusions that XLA leaves to the library YNNPACK, reductions are left out: it divides them among the threads of the
    process, so that the sum's last bits would depend on the number of cores. Its products do not.
    """
    if platform() != "cpu":
        return None
    return {"xla_cpu_prefer_vector_width": 512, "xla_cpu_experimental_ynn_fusion_type": _LIBRARY_FUSIONS}


def _compile_here(program: Any, arguments: tuple[Any, ...]) -> Any:
    return program.lower(*arguments).compile()


_COMPILER: ContextVar[Callable[[Any, tuple[Any, ...]], Any]] = ContextVar("compiler", default=_compile_here)


@contextlib.contextmanager
def compiling_with(compiler: Callable[[Any, tuple[Any, ...]], Any]) -> Iterator[None]:
    """Inside, `compile_program` gives what `compiler(jitted function, arguments)` gives."""
    token = _COMPILER.set(compiler)
    try:
        yield
    finally:
        _COMPILER.reset(token)


def compile_program(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function compiled for arguments, or for their shapes, with the options of `compiler_options`."""
    return _COMPILER.get()(jax.jit(function, compiler_options=compiler_options()), arguments)


def run_on_devices(step: Step, name: str, state: Any, key: Any, advice: str) -> Call:
    """A program of a given number of steps, one compilation for all of these numbers.

    Raises:
      ValueError: if a metric is called as an iteration is.
      TooLarge: if it needs more memory than its devices have.
    """
    compiled = compile_program(partial(several, step, name), state, key, jnp.int32(0), jnp.int32(0))
    check_memory(compiled, advice)
    return lambda state, key, first, count: compiled(state, key, jnp.int32(first), jnp.int32(count))


def iterate(
    step: Step,
    state: Any,
    key: Any,
    num_iterations: int,
    *,
    begin: Callable[[], Any] | None = None,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
    process_metrics: Callable[[dict[str, np.ndarray], int], dict[str, np.ndarray]] | None = None,
    name: str = "generation",
    advice: str = "",
    run: Run = run_on_devices,
) -> Iterated:
    """Takes `num_iterations` steps, several on the device between two looks of the host, and keeps what comes of them.

    A run that was stopped goes on from its last checkpoint bit for bit, for what a step draws depends on the key and
    the iteration alone. Ctrl-C saves a checkpoint and is raised again.

    Args:
      step: `(key, iteration, state) -> (state, metrics)`, pure; `iteration` counts from 0. Compiled once.
      state: the first one, a pytree of arrays.
      key: one key, or several, or a pytree with them, handed to every step as it is.
      num_iterations: where to stop, counted from the very beginning.
      begin: makes the first state in place of `state`, which then says only what states are like; called where a run
        begins, and not where it goes on.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, their last metrics, seconds of running)` by the host.
      checkpoint_seconds: save when the last checkpoint is this old; 0 saves after every call to the device.
      process_metrics: called as `process_metrics(metrics of some iterations, the first of these)` before anything of
        them is kept; returns those to keep, or raises.
      name: what an iteration is called where metrics are kept.
      advice: what to do where memory does not suffice, for the message.
      run: makes of the step what takes several of them; on the devices of this process by default.

    Returns:
      `Iterated`: the last state and the metrics of every iteration, those before a resumption included.

    Raises:
      ValueError: if a metric is called as an iteration is.
      TooLarge: if the compiled program needs more memory than its devices have; nothing has run then.
    """
    started = time.perf_counter()
    done, parts = (0, state), list[dict[str, np.ndarray]]()  # of how many iterations, and what came of them
    found = store.restore(state, num_iterations) if store else None
    if found:
        done, parts = found[:2], [found[2]]
    elif begin:
        before = time.perf_counter()
        done = 0, begin()
        started += time.perf_counter() - before  # that is no compiling
    if store:
        store.rewrite(_rows(name, 0, *parts))
    iteration, state = done
    if iteration < num_iterations:
        call = run(step, name, state, key, advice)
    seconds_to_compile = time.perf_counter() - started

    seconds, saved_at, per_call, first_iteration = 0.0, time.perf_counter(), 1, iteration
    wanted = float(np.clip(bytes_of(state) / STATE_PER_SECOND, SECONDS_PER_CALL, 10 * SECONDS_PER_CALL))
    try:
        with recognised():
            while iteration < num_iterations:
                check_stop()
                count = min(per_call, num_iterations - iteration)
                started = time.perf_counter()
                new_state, found_there = call(state, key, iteration, count)
                buffers = {metric: np.asarray(buffer)[:count] for metric, buffer in found_there.items()}
                count = len(next(iter(buffers.values())))
                elapsed = time.perf_counter() - started
                if process_metrics:
                    buffers = process_metrics(buffers, iteration)
                if parts and parts[0].keys() != buffers.keys():
                    raise ValueError(
                        f"the checkpoint has the metrics {', '.join(parts[0])}, and not {', '.join(buffers)}"
                    )
                with uninterrupted():  # so that a checkpoint is whole and has the iterations of all rows
                    if store:
                        store.append(_rows(name, iteration, buffers))
                    parts.append(buffers)
                    done = iteration, state = iteration + count, new_state
                    if store and time.perf_counter() - saved_at >= checkpoint_seconds:
                        store.save(iteration, state, _joined(parts, iteration))
                        saved_at = time.perf_counter()
                seconds += elapsed
                per_call = int(np.clip(wanted / max(elapsed / count, 1e-6), 1, MAX_ITERATIONS_PER_CALL))
                if report:
                    report(iteration, {metric: buffer[-1] for metric, buffer in buffers.items()}, seconds)
            metrics = _joined(parts, iteration)
            if store:
                store.save(iteration, state, metrics)
    except (KeyboardInterrupt, Lost):
        with uninterrupted(check=False):
            if store and done[0]:
                store.save(*done, _joined(parts, done[0]))
        raise
    # In double precision, as the numbers in `metrics.jsonl` are read.
    metrics = {metric: np.array(values.tolist()) for metric, values in metrics.items()}
    return Iterated(state, metrics, seconds_to_compile, seconds, first_iteration)


def _joined(parts: list[dict[str, np.ndarray]], number: int) -> dict[str, np.ndarray]:
    """The metrics `[number, ...]` of the first iterations."""
    return {metric: np.concatenate([part[metric] for part in parts])[:number] for metric in parts[0]}


def _rows(name: str, first: int, *parts: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """One dict for each of the iterations `[iterations, ...]` after the first ones."""
    for part in parts:
        for i in range(len(next(iter(part.values())))):
            yield {name: first + i + 1} | {metric: values[i].tolist() for metric, values in part.items()}


def check_names(name: str, metrics: Mapping[str, Any]) -> None:
    """Raises ValueError for a metric with the name of an iteration, whose number it would take the place of."""
    if name in metrics:
        raise ValueError(f"metrics: got one named {name!r}, which is what an iteration is called; another is needed")


def several(step: Step, name: str, state: Any, key: Any, first: jax.Array, count: jax.Array) -> Any:
    """Takes `count` steps, which is traced: one compilation for every number of them."""
    step = jax.jit(step)  # so that it is traced once for the several places that need its shapes

    def run(i: jax.Array, carry: Any) -> Any:
        state, buffers = carry
        state, metrics = step(key, first + i, state)
        return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), buffers, metrics)

    _, metrics = jax.eval_shape(step, key, first, state)
    check_names(name, metrics)
    buffers = jax.tree.map(lambda x: jnp.zeros((MAX_ITERATIONS_PER_CALL, *x.shape), x.dtype), metrics)
    return jax.lax.fori_loop(0, count, run, (state, buffers))
