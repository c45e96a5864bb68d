"""Networks that grow while they learn, and go on as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from marl.blocks.fan_in import has_fan_in


def widen(params: Any, fresh: Any) -> Any:
    """Parameters of a wider network, or of one with more inputs, that computes what a smaller one does.

    What the network had stays, and it does not hear of what is new: the weights from new inputs and new units to old
    units are 0, and learning may change them. New units begin as the fresh parameters have them. The same holds for
    the whole state of a learner with such a network, which goes on where the smaller one was:

        widen(history.states[0], larger.init(key))

    Adam's moments of old weights stay, with their count, and those of new weights are 0, as they are at first: those
    too that lie in one vector for all weights, as `optax.flatten` keeps them. Running statistics of observations take
    new inputs for inputs with a mean of 0 and a variance of 1 so far.

    Args:
      params: of the smaller network: any pytree of flax's layers, recurrent ones too; or the state of a learner.
      fresh: first parameters, or first state, of the larger one, with the same layers: more units, more outputs of a
        layer, or more inputs, behind those that there were.

    Returns:
      Like `fresh`.

    Raises:
      ValueError: for other layers, kernels with a constant fan-in, a layer that has become smaller, layer normalisation
        over more units, whose statistics would change, or an array of more than two axes that has grown: a convolution,
        in whose output, as a row, old and new entries are mixed, or what a replay buffer holds.

    Source: the requirement is that of OpenAI et al., Dota 2 with Large Scale Deep Reinforcement Learning (2019),
    arXiv:1912.06680, appendix B; Chen et al., Net2Net (2016), arXiv:1511.05641, copy units instead.
    """
    layers: list[Any] = [jax.tree.structure(tree) for tree in (params, fresh)]
    if has_fan_in(params):
        raise ValueError("network: got kernels with a constant fan-in; dense ones, or ones with masks, are needed")
    if layers[0] != layers[1]:
        raise ValueError("network: got other layers; the same ones, wider, are needed")
    parts = {(_size(old), _size(new)): (old, new) for old, new in _parts(params, fresh)}

    def one(path: Any, old: jax.Array, new: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if old.ndim != new.ndim or any(a > b for a, b in zip(old.shape, new.shape, strict=False)):
            raise ValueError(f"network: {name}: got {new.shape} for {old.shape}; no axis may become smaller")
        if old.shape == new.shape:
            return old
        if "LayerNorm" in name:
            raise ValueError(f"network: {name}: got {new.shape} for {old.shape}; a normalised layer cannot be widened")
        if old.ndim > 2:
            raise ValueError(f"network: {name}: got {new.shape} for {old.shape}; a convolution cannot be widened")
        own = isinstance(path[-1], jax.tree_util.DictKey)  # a bias or a scale of flax, which may be as long as a part
        if old.ndim == 1 and not own and (old.size, new.size) in parts:  # a number for each weight of a part
            (_, small), (_, large) = map(ravel_pytree, parts[old.size, new.size])
            return ravel_pytree(widen(small(old), large(new)))[0]
        if old.ndim == 2:
            new = new.at[old.shape[0] :, : old.shape[1]].set(0)
        return new.at[tuple(slice(size) for size in old.shape)].set(old)

    return jax.tree_util.tree_map_with_path(one, params, fresh)


def _parts(old: Any, new: Any) -> Iterator[tuple[Any, Any]]:
    """Those of two trees of one structure that have several arrays, the trees themselves among them."""
    if len(jax.tree.leaves(old)) > 1:
        yield old, new
    for one, other in zip(_children(old), _children(new), strict=True):
        if one is not old:
            yield from _parts(one, other)


def _children(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda x: x is not tree)


def _size(tree: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(tree))
