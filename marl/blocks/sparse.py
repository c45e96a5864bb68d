"""Sparsity from the first step to the last: which weights there are, and how that changes while they learn."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from configs.specs import Registry
from games.core import checks
from games.core.arguments import check_arguments
from games.core.branching import lazy_cond
from games.core.game import Scalar
from marl.blocks.fan_in import is_fan_in, largest, regrow
from marl.blocks.layers import Dense
from meta.xla.backend import platform

Allocation = Literal["erdos_renyi_kernel", "uniform"]
Topology = Literal["rigl", "set", "static", "dense"]
MOST_FAN_IN = 0.15  # of the inputs; products with more of them are faster dense


class Descent(NamedTuple):
    """A gradient transformation of optax that may also change the parameters themselves."""

    init: Callable[[jax.Array, Any], tuple[Any, Any]]  # (key, parameters) -> parameters to begin with, state
    # (gradient, state, parameters, whether this step may change more, as it may by default) -> parameters, state
    update: Callable[..., tuple[Any, Any]]
    mask: Callable[[Any, Any], Any]  # (state, others such as a target's) -> of them what there is by now
    every: int = 0  # steps from one change of more to the next; 0 if there is none


Sparsity = Callable[[optax.GradientTransformation], Descent]  # what `sparse` returns


class SparseState(NamedTuple):
    """Which weights there are."""

    inner: optax.OptState  # of the transformation
    # Of each kernel, in its shape: whether a weight is there. Of a `FanIn`, its index.
    masks: tuple[jax.Array, ...]
    steps: jax.Array  # [], updates so far
    key: jax.Array  # of what grows at random


def descent(optimizer: optax.GradientTransformation, sparsity: Sparsity | None = None) -> Descent:
    """The `Descent` of a learner: dense, or sparse as `sparse` returned it."""
    if sparsity:
        return sparsity(optimizer)
    optimizer = optax.flatten(optimizer)  # one vector: of many small arrays each costs a call

    def update(gradient: Any, state: Any, params: Any, may_change: bool = True) -> tuple[Any, Any]:
        del may_change
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    return Descent(lambda key, params: (params, optimizer.init(params)), update, lambda state, others: others)


@check_arguments
def sparse(
    *,
    density: float,
    allocation: Allocation = "erdos_renyi_kernel",
    update: Topology = "rigl",
    every: int = 100,
    until: int | None = None,
    drop_fraction: Scalar | optax.Schedule = 0.5,
    constant_fan_in: bool = False,
) -> Sparsity:
    """Learning with few weights: of all kernels together the share `density`, from the beginning on, and never more.

    Each kernel begins with those of its weights that are largest. After `every` steps of the optimiser, in place of a
    step, a share of those that are there, the smallest, is dropped, and as many grow in the same kernel that are not
    there: where the gradient is largest ("rigl") or anywhere ("set"). A weight that grows begins at 0, and so do its
    moments; one that grows as soon as it was dropped stays as it was. Biases are all there. A schedule of the optimiser
    counts such steps too.

    `sparse(...)(optimizer)` is a `Descent`, which takes the gradient of all weights, those included that are not there.

    Args:
      density: in (0, 1].
      allocation: "uniform" leaves the same share of each kernel; "erdos_renyi_kernel" a share in proportion to the sum
        of its sides over their product, up to 1.
      update: "static" keeps the weights it began with; "dense" has all of them, whatever the density.
      every: steps from one change to the next.
      until: the step from which on nothing changes; "rigl" and "set" need it.
      drop_fraction: of the weights that are there: where it begins, to fall to 0 along half a cosine at `until`; or a
        schedule over the steps.
      constant_fan_in: whether every unit of a dense layer has the same number of weights, and products read those
        alone. The number is rounded for each unit, 1 at least. Each unit begins with its largest weights and drops its
        smallest, and what grows is new. Layers with more than 15 % of their weights, convolutions and recurrent units
        have masks. On a CPU the gradient of a layer takes less time than a dense one from about 90 % sparsity on. With
        "static" or "set", because "rigl" reads the gradient of all weights.

    Raises:
      ValueError: for a density outside of (0, 1], changes that never end, numbers that are none or out of range, a
        constant fan-in with "rigl", and, when learning begins, for parameters without kernels.

    Source: Evci et al., Rigging the Lottery (2020), arXiv:1911.11134; Mocanu et al., Scalable training of artificial
    neural networks with adaptive sparse connectivity (2018), arXiv:1707.04780 (SET); for learning from rewards Tan et
    al., RLx2 (2023), arXiv:2205.15043, whose public code begins with the largest weights and may grow what it drops;
    the constraint of a constant fan-in: Lasby et al., Dynamic Sparse Training with Structured Sparsity (2023),
    arXiv:2305.02299, which grows by gradients.
    """
    checks.number("density", density, 0, 1, brackets="(]")
    checks.choice("allocation", allocation, ("erdos_renyi_kernel", "uniform"))
    checks.choice("update", update, ("rigl", "set", "static", "dense"))
    checks.size("every", every, 1)
    changes = update in ("rigl", "set")
    if until is None and changes:
        raise ValueError(f"until: got None; the step after which {update} changes nothing, a whole number, is needed")
    if constant_fan_in and update not in ("static", "set"):
        raise ValueError(f"constant_fan_in: got True with {update}; static or set is needed with it")
    if until is not None:
        checks.size("until", until, 1)
    if not callable(drop_fraction):
        checks.number("drop_fraction", drop_fraction, 0, 1)
        drop_fraction = optax.cosine_decay_schedule(drop_fraction, until or 1)
    share: optax.Schedule = drop_fraction
    if update == "dense":
        return descent

    def follow(optimizer: optax.GradientTransformation) -> Descent:
        optimizer = optax.flatten(optimizer)

        def init(key: jax.Array, params: Any) -> tuple[Any, SparseState]:
            found = kernels(params)
            if not found:
                raise ValueError("sparsity: got parameters without a kernel; layers with weights are needed")
            counts = allocate([kernel.shape for kernel in found], density, allocation)
            if constant_fan_in:
                params = _with_fan_in(params, counts)
            masks = tuple(
                kernel.index if is_fan_in(kernel) else _highest(jnp.abs(kernel), count)
                for kernel, count in zip(kernels(params), counts, strict=True)
            )
            params = _of_kernels(_masked, params, masks)
            return params, SparseState(optimizer.init(params), masks, jnp.int32(0), key)

        def step(gradient: Any, state: SparseState, params: Any) -> tuple[Any, SparseState]:
            # What is not there has no moments either, and so no step.
            gradient = _of_kernels(lambda x, mask: x if is_fan_in(x) else _masked(x, mask), gradient, state.masks)
            updates, inner = optimizer.update(gradient, state.inner, params)
            params = optax.apply_updates(params, updates)
            if constant_fan_in:  # an optimiser that decays weights would move places
                params = _of_kernels(_masked, params, state.masks)
            return params, state._replace(inner=inner)

        def change(gradient: Any, state: SparseState, params: Any) -> tuple[Any, SparseState]:
            masks, stays = [], []
            keys = jax.random.split(jax.random.fold_in(state.key, state.steps), len(state.masks))
            for kernel, slope, there, key in zip(kernels(params), kernels(gradient), state.masks, keys, strict=True):
                if is_fan_in(kernel):
                    masks.append(regrow(key, kernel, share(state.steps)))
                    stays.append(masks[-1] == there)
                    continue
                count = there.sum()
                dropped = jnp.floor(share(state.steps) * count).astype(jnp.int32)
                kept = _highest(jnp.where(there, jnp.abs(kernel), -jnp.inf), count - dropped)
                wanted = jnp.abs(slope) if update == "rigl" else jax.random.uniform(key, kept.shape)
                masks.append(kept | _highest(jnp.where(kept, -jnp.inf, wanted), dropped))
                stays.append(masks[-1] & there)
            flat = ravel_pytree(_of_kernels(_kept, jax.tree.map(jnp.ones_like, params), stays))[0]
            inner = jax.tree.map(lambda x: x * flat if jnp.shape(x) == flat.shape else x, state.inner)
            inner = jax.tree.map(_later, inner, is_leaf=_is_schedule)
            params = _of_kernels(_masked, _of_kernels(_kept, params, stays), masks)
            return params, state._replace(inner=inner, masks=tuple(masks))

        def update_all(
            gradient: Any, state: SparseState, params: Any, may_change: bool = True
        ) -> tuple[Any, SparseState]:
            state = state._replace(steps=state.steps + 1)
            if not changes or not may_change:
                return step(gradient, state, params)
            assert until is not None
            found: tuple[Any, SparseState] = lazy_cond(
                (state.steps % every == 0) & (state.steps < until), change, step, gradient, state, params
            )
            return found

        def mask(state: SparseState, others: Any) -> Any:
            return _of_kernels(_masked, others, state.masks)

        return Descent(init, update_all, mask, every if changes else 0)

    return follow


def _is_schedule(state: Any) -> bool:
    return isinstance(state, optax.ScaleByScheduleState)


def _later(state: Any) -> Any:
    """The state of a schedule one step on; what has none as it is."""
    return state._replace(count=state.count + 1) if _is_schedule(state) else state


def averaged(steps: Descent, state: Any, params: Any, target: Any, tau: Scalar) -> Any:
    """A target network after it went the share `tau` of its way to the parameters.

    What is there no more is dropped from it first, because a slot of a `FanIn` may have another input by now.
    """
    return steps.mask(state, optax.incremental_update(params, steps.mask(state, target), tau))


def scan_steps(step: Callable[[Any, Any, bool], tuple[Any, Any]], carry: Any, xs: Any, every: int) -> tuple[Any, Any]:
    """`jax.lax.scan` of gradient steps, of which each `every`-th may change more than others.

    A change stands in a branch, for which a GPU waits in each step. There only the last step of a block has one. The
    length of a block divides both `every` and the number of steps.

    Args:
      step: `(carry, x, whether it may change more) -> (carry, y)`.
      carry: before the first step; the steps before were a whole number of such scans.
      xs: as of `jax.lax.scan`.
      every: steps from one change to the next; 0 if there is none.
    """
    length = len(jax.tree.leaves(xs)[0])
    block = math.gcd(every, length) if every and platform() != "cpu" else 1
    if block == 1:
        return jax.lax.scan(lambda carry, x: step(carry, x, True), carry, xs)

    def of_block(carry: Any, xs: Any) -> tuple[Any, Any]:
        first, last = jax.tree.map(lambda x: x[:-1], xs), jax.tree.map(lambda x: x[-1], xs)
        carry, ys = jax.lax.scan(lambda carry, x: step(carry, x, False), carry, first)
        carry, y = step(carry, last, True)
        return carry, jax.tree.map(lambda ys, y: jnp.concatenate([ys, y[None]]), ys, y)

    carry, ys = jax.lax.scan(of_block, carry, jax.tree.map(lambda x: x.reshape(-1, block, *x.shape[1:]), xs))
    return carry, jax.tree.map(lambda y: y.reshape(length, *y.shape[2:]), ys)


def kernels(params: Any) -> list[Any]:
    """The kernels of parameters, which are what flax calls so: arrays of two axes or more, or a `FanIn`; no biases."""
    return [x for path, x in jax.tree_util.tree_leaves_with_path(params, is_leaf=is_fan_in) if _is_kernel(path, x)]


def _is_kernel(path: Any, leaf: Any) -> bool:
    return _name(path[-1:]) == "kernel" and (is_fan_in(leaf) or jnp.ndim(leaf) > 1)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True)


def _of_kernels(function: Callable[[Any, Any], Any], params: Any, others: Iterable[Any]) -> Any:
    """Parameters in which `function(kernel, other)` is in the place of each kernel."""
    left = iter(others)

    def one(path: Any, leaf: Any) -> Any:
        return function(leaf, next(left)) if _is_kernel(path, leaf) else leaf

    return jax.tree_util.tree_map_with_path(one, params, is_leaf=is_fan_in)


def _with_fan_in(params: Any, counts: Sequence[int]) -> Any:
    """Parameters with a `FanIn` for the kernel of each dense layer that has few weights."""

    def one(path: Any, leaf: Any) -> Any:
        if not _is_kernel(path, leaf):
            return leaf
        k = max(1, round(next(left) / leaf.shape[-1]))
        of_layer = leaf.ndim == 2 and _name(path[-2:-1]).startswith(Dense.__name__)  # and not of a recurrent unit
        return largest(leaf, k) if of_layer and k <= MOST_FAN_IN * len(leaf) else leaf

    left = iter(counts)
    return jax.tree_util.tree_map_with_path(one, params)


def _masked(kernel: Any, mask: jax.Array) -> Any:
    """A kernel with 0 for weights that are not there, and with a `FanIn`'s places as they are now."""
    if is_fan_in(kernel):
        values = jnp.where(jnp.round(kernel.index) == mask, kernel.values, 0.0)
        return dataclasses.replace(kernel, values=values, index=mask)
    return jnp.where(mask, kernel, 0.0)


def _kept(kernel: Any, stays: jax.Array) -> Any:
    """A kernel with 0 for weights that do not stay."""
    if is_fan_in(kernel):
        return dataclasses.replace(kernel, values=jnp.where(stays, kernel.values, 0.0))
    return jnp.where(stays, kernel, 0.0)


def num_weights(params: Any, state: Any) -> int:
    """The number of weights of all kernels, without biases; `state` is that of the `Descent`."""
    if isinstance(state, SparseState):
        return sum(int(mask.sum()) if mask.dtype == bool else mask.size for mask in state.masks)
    return sum(kernel.size for kernel in kernels(params))


def allocate(shapes: Sequence[tuple[int, ...]], density: float, allocation: Allocation) -> list[int]:
    """The number of weights of each kernel: all together the share `density`, and one each at least.

    Source: Evci et al. (2020), section 3 and appendix; Mocanu et al. (2018), equation 2.
    """
    sizes = np.array([math.prod(shape) for shape in shapes])
    total = max(round(density * sizes.sum()), len(sizes))
    parts = np.array([sum(shape) for shape in shapes], float) if allocation == "erdos_renyi_kernel" else sizes * 1.0
    full = np.zeros(len(sizes), bool)
    exact = sizes * 1.0
    while not full.all():  # what would be more than all of a kernel is shared out among the others
        exact[~full] = (total - sizes[full].sum()) * parts[~full] / parts[~full].sum()
        over = exact > sizes
        if not over.any():
            break
        exact[over], full = sizes[over], full | over
    counts = np.maximum(np.floor(exact), 1).astype(int)
    for i in np.argsort(counts - exact, kind="stable")[: max(total - counts.sum(), 0)]:
        counts[i] += 1
    return [int(min(count, size)) for count, size in zip(counts, sizes, strict=True)]


def _highest(score: jax.Array, count: Scalar) -> jax.Array:
    """A mask of the `count` highest scores, in their shape; of equal ones the first."""
    order = jnp.argsort(-score.ravel(), stable=True)
    return jnp.zeros(score.size, bool).at[order].set(jnp.arange(score.size) < count).reshape(score.shape)


SPARSITIES: Registry[Sparsity] = Registry("rigl(density=0.1, until=10_000)")
SPARSITIES.register("sparse", sparse)
for _update in ("rigl", "set", "static", "dense"):
    SPARSITIES.register(_update, sparse, update=_update)


def make_sparsity(spec: str) -> Sparsity:
    """From its name and settings: `rigl(density=0.1, every=1_000, until=50_000)`, `static(density=0.05)`.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.
    """
    return SPARSITIES.make("sparsity", spec)
