"""Evaluators run the trials of a generation: on the devices of this process, or on those of a cluster.

The unit of work is a chunk of candidates. Its width is fixed, for XLA rounds otherwise in a batch of another width; so
with `Evolution.chunk_size` set it does not matter for a single bit where, in which order or how often a chunk is
evaluated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from meta.loop import Run, run_on_devices
from meta.strategies import Evolution
from meta.xla.backend import Platform, local_devices, platform
from meta.xla.fixed_order import in_fixed_order


class Outcome(NamedTuple):
    """The result of one trial of one candidate.

    Attributes:
      fitness: `[]`, to be maximised
      metrics: scalars to report
    """

    fitness: jax.Array
    metrics: dict[str, jax.Array]


class GenerationRequest(NamedTuple):
    """The arguments of an evaluation of a generation. Leading axes `[K]` where K runs are evolved together."""

    vectors: Any  # `[N, D]`, the candidates, or what `EvaluationSpec.draw` makes them of
    keys: jax.Array  # `[trials]`, those of all candidates or, where pairs share them, `[N, trials]`
    context: tuple[Any, ...]  # further arguments of the trial
    number: jax.Array  # of the generation, `[]` even where there are K runs
    state: Any  # of the strategy, which goes on from there


class EvaluationSpec(NamedTuple):
    """The functions of an evolution that an evaluator needs."""

    trial: Callable[[Any, jax.Array, tuple[Any, ...]], Outcome]  # (vector `[D]`, key, context), unbatched
    over_runs: Callable[..., Callable[..., Any]]  # batches a function over K runs, if there are several
    ask: Callable[[jax.Array, jax.Array, Any], GenerationRequest]  # (key or keys, generation, state), pure
    evolution: Evolution
    num_trials: int
    alone: bool = False  # whether the trials of a candidate come one after the other
    draw: Callable[[Any, jax.Array], Any] | None = None  # (what was asked, numbers [size]) -> these candidates
    axes: Any = 0  # of candidates, as of `vmap`

    def chunk(self, asked: GenerationRequest, number: jax.Array | int, size: int) -> Outcome:
        """The mean outcomes of chunk `number`, `[size]` or `[K, size]`; past the last candidate, those of the last."""
        pairs, population = self.evolution.shared_trials == "pair", self.evolution.population_size
        rows = jnp.minimum(number * size + jnp.arange(size), population - 1)

        def of_a_run(vectors: Any, keys: jax.Array, context: tuple[Any, ...]) -> Outcome:
            if self.draw:
                vectors = self.draw(vectors, rows)
            elif size < population:
                vectors = vectors[rows]
            if size < population and pairs:
                keys = keys[rows]
            if self._trials_last:
                over_keys = jax.vmap(self.trial, (None, 0, None))
                outcomes = jax.vmap(over_keys, (self.axes, 0 if pairs else None, None))(vectors, keys, context)
                return jax.tree.map(lambda x: x.mean(1), outcomes)
            members = jax.vmap(self.trial, (self.axes, 0 if pairs else None, None))
            keys = keys.T if pairs else keys
            if self.alone:
                outcomes = jax.lax.map(lambda key: members(vectors, key, context), keys)
            else:
                outcomes = jax.vmap(members, (None, 0, None))(vectors, keys, context)
            return jax.tree.map(lambda x: x.mean(0), outcomes)

        whole = self.over_runs(of_a_run)
        if self.evolution.chunk_size and platform() == "cpu":
            whole = in_fixed_order(whole)  # with a width that is given, no bit depends on where chunks are evaluated
        return whole(asked.vectors, asked.keys, asked.context)

    @property
    def _trials_last(self) -> bool:
        """True if the axis of the trials comes after that of the candidates."""
        if self.alone:
            return False
        if platform() == "cpu":  # the wider axis goes last, where the vector units work
            return self.num_trials > self.evolution.population_size and self.evolution.shared_trials != "pair"
        return True  # products with the candidates' weights are batched in front: otherwise each is transposed


class Cluster(Protocol):
    """A remote backend that reports its status: Ray or `jax.distributed`."""

    def words(self) -> str:
        """The status in a few words, for a line of progress."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Counts of workers and of the work, for a summary."""
        ...


Evaluate = Callable[[GenerationRequest, tuple[jax.Array, jax.Array, Any]], Outcome]


class Evaluator(NamedTuple):
    """A place where trials run, as `evolve` sees it."""

    evaluate: Callable[[EvaluationSpec], Evaluate]
    """-> `(asked, (key, generation, state) that asked for it) -> Outcome [N]` or `[K, N]`."""
    run: Run = run_on_devices
    """Takes several generations, as `meta.loop.iterate` does."""
    jit: Callable[[Any], Any] = lambda function: function
    """What becomes of the pure functions beside; of those that the host calls, a program."""
    cluster: Cluster | None = None
    """The remote backend, if there is one."""
    platform: Platform | None = None
    """The backend of its devices; None for that of this process."""


def on_devices(devices: Sequence[jax.Device] | None = None) -> Evaluator:
    """Trials on devices of this process, all of them if None; a part of the program of the strategy."""
    return Evaluator(lambda work: evaluate_on(work, local_devices() if devices is None else devices))


def evaluate_on(work: EvaluationSpec, devices: Sequence[jax.Device]) -> Evaluate:
    """`Evaluator.evaluate` on these devices, each of which gets every outcome and goes on alone, in the same order."""
    population = work.evolution.population_size
    fixed = min(work.evolution.chunk_size, population)
    size = fixed or -(-population // len(devices))
    chunks = -(-population // size)
    each = -(-chunks // len(devices))

    def share(device: jax.Array | int, asked: GenerationRequest) -> Outcome:
        """Outcomes of the chunks of a device, `[chunks of each, ..., size]`."""
        first = device * each
        if not fixed:
            return jax.tree.map(lambda x: x[None], work.chunk(asked, first, size))
        shapes = jax.eval_shape(lambda: work.chunk(asked, jnp.int32(0), size))
        # XLA takes a loop of constant length apart, and compiles what is inside with what is around it.
        count = jnp.where(asked.number < 0, 0, jnp.clip(chunks - first, 0, each))

        def one(i: jax.Array, outcomes: Outcome) -> Outcome:
            return jax.tree.map(lambda all, x: all.at[i].set(x), outcomes, work.chunk(asked, first + i, size))

        nothing = jax.tree.map(lambda x: jnp.zeros((each, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, count, one, nothing)

    def gathered(asked: GenerationRequest) -> Outcome:
        outcomes = share(jax.lax.axis_index("members"), asked)
        return jax.tree.map(lambda x: jax.lax.all_gather(x, "members", tiled=True), outcomes)

    def evaluate(asked: GenerationRequest, origin: Any) -> Outcome:
        del origin
        if len(devices) == 1:
            outcomes = share(0, asked)
        else:
            mesh = Mesh(np.array(devices), ("members",))
            # Without the state, which need not be an array on every device.
            over_devices = jax.shard_map(gathered, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
            outcomes = over_devices(asked._replace(state=()))
        return jax.tree.map(lambda x: joined(x, population), outcomes)

    return evaluate


def joined(chunks: Any, population: int) -> Any:
    """Outcomes of all candidates `[..., N]` from those of all chunks `[chunks, ..., size]`."""
    several = jnp if isinstance(chunks, jax.Array) else np
    moved = several.moveaxis(chunks, 0, -2)
    return moved.reshape(*moved.shape[:-2], -1)[..., :population]


_HERE = on_devices()
_EVALUATOR: ContextVar[Evaluator] = ContextVar("evaluator", default=_HERE)


def current() -> Evaluator:
    """The evaluator of `evaluating`; without it, all devices of this process."""
    return _EVALUATOR.get()


def platform_of_trials() -> Platform:
    """The backend of the devices on which trials run, of this process or of a cluster."""
    return current().platform or platform()


@contextlib.contextmanager
def evaluating(evaluator: Evaluator) -> Iterator[None]:
    """Inside, the trials of every `evolve` without an evaluator of its own run there."""
    token = _EVALUATOR.set(evaluator)
    try:
        yield
    finally:
        _EVALUATOR.reset(token)
