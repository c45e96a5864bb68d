"""Evolution with noise of low rank: candidates that share their matrices, and differ in thin factors and in vectors.

Sarkar et al., Evolution Strategies at the Hyperscale (2025), arXiv:2511.16652, there called EGGROLL. A candidate's
matrix is

    W + sigma A B^T / sqrt(rank),        A [m, rank], B [n, rank] standard normal,

and x W + sigma / sqrt(rank) (x A) B^T is computed without ever making it. Entries of A B^T / sqrt(rank) have variance 1
and are uncorrelated, so that the estimate of the gradient is unbiased to first order in sigma. They are not normal,
and what full noise estimates without bias at any sigma, it estimates with a bias that falls with the rank.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from meta.strategies import Evolution
from meta.xla.low_rank_products import Noise, call_with_noise, matrix_shape

WIDE = 64  # rows and columns from which a matrix is large
AT_ONCE = 64  # terms of the sums of an update, which no number of threads divides


class Proposals(NamedTuple):
    """All candidates of a generation, of which none is made."""

    mean: jax.Array  # `[D]`
    sigma: jax.Array  # `[]`
    key: jax.Array  # of the generation


class Candidates(NamedTuple):
    """Some candidates, `[N]` of them but for the mean, which they share."""

    mean: jax.Array  # `[D]`
    scale: jax.Array  # `[N]`, sigma, or -sigma of the mirror images
    noise: jax.Array  # `[N, numbers]`, standard normal


AXES = Candidates(None, 0, 0)  # type: ignore[arg-type]  # of `vmap`


class LowRankNoise:
    """The noise of parameters: thin factors of matrices of which a trial has products only, all numbers of the rest.

    Args:
      unravel: `(vector [D]) -> parameters`.
      num_dims: D.
      evolution: the settings. A matrix with no more rows or columns than `rank` has full noise. The second half of a
        generation's candidates are the mirror images of the first.
      trial: `(parameters, *arguments) -> outcome`, which is traced to see what it does with each array.
      arguments: of the trial, or their shapes.

    Raises:
      ValueError: if no matrix could have noise of low rank. Other uses of a large one are a UserWarning.

    Attributes:
      numbers: how many are drawn for a candidate.
    """

    def __init__(
        self,
        unravel: Callable[[jax.Array], Any],
        num_dims: int,
        evolution: Evolution,
        trial: Callable[..., Any],
        arguments: Sequence[Any],
    ):
        rank = evolution.rank
        self._unravel, self.rank, self._half = unravel, rank, evolution.population_size // 2
        parameters = jax.eval_shape(unravel, jax.ShapeDtypeStruct((num_dims,), jnp.float32))
        paths, self._structure = jax.tree_util.tree_flatten_with_path(parameters)
        self._shapes = [leaf.shape for _, leaf in paths]
        matrices = [i for i, shape in enumerate(self._shapes) if len(shape) > 1 and min(matrix_shape(shape)) > 1]
        others = self._other_uses(trial, parameters, arguments, matrices)
        for i, primitive in others.items():
            if min(matrix_shape(self._shapes[i])) >= WIDE:
                name = f"parameters{jax.tree_util.keystr(paths[i][0])} {list(self._shapes[i])}"
                words = f"the noise is full, because the trial has more than products with it ({primitive})"
                warnings.warn(f"{name}: {words}", stacklevel=3)
        multiplied = [i for i in matrices if i not in others]
        if not multiplied:
            needed = "parameters with a matrix of which the trial has products only, such as layers of 64 units,"
            raise ValueError(f"evolution.noise: got low_rank; {needed} are needed")
        self._thin = [i in multiplied and rank < min(matrix_shape(shape)) for i, shape in enumerate(self._shapes)]
        self._sizes = [
            rank * sum(matrix_shape(shape)) if thin else math.prod(shape)
            for shape, thin in zip(self._shapes, self._thin, strict=True)
        ]
        self.numbers = sum(self._sizes)

    def _other_uses(
        self, trial: Callable[..., Any], parameters: Any, arguments: Sequence[Any], matrices: Sequence[int]
    ) -> dict[int, str]:
        """The first primitive that needs a matrix itself, by the number of the array."""
        found: dict[int, str] = {}

        def traced(arrays: list[jax.Array], *arguments: Any) -> Any:
            noise = [
                None if i not in matrices else Noise(*(jnp.zeros((size, 1)) for size in matrix_shape(x.shape)))
                for i, x in enumerate(arrays)
            ]
            return call_with_noise(self._of_leaves(trial), arrays, noise, *arguments, otherwise=found.setdefault)

        jax.eval_shape(traced, jax.tree.leaves(parameters), *arguments)
        return found

    def _of_leaves(self, trial: Callable[..., Any]) -> Callable[..., Any]:
        return lambda leaves, *arguments: trial(jax.tree.unflatten(self._structure, leaves), *arguments)

    def draw(self, proposals: Proposals, rows: jax.Array) -> Candidates:
        """The candidates of these numbers, from the key of the generation and from nothing of the others."""
        scale = jnp.where(rows < self._half, proposals.sigma, -proposals.sigma)
        return Candidates(proposals.mean, scale, self._drawn(proposals.key, rows % self._half))

    def _drawn(self, key: jax.Array, pairs: jax.Array) -> jax.Array:
        """`[pairs, numbers]`, of a key that `LowRankES.ask` made."""

        def one(pair: jax.Array) -> jax.Array:
            return jax.random.normal(jax.random.fold_in(key, pair), (self.numbers,), jnp.float32)

        return jax.vmap(one)(pairs)

    def call(self, trial: Callable[..., Any], candidate: Candidates, *arguments: Any) -> Any:
        """`trial(parameters of a candidate, *arguments)`, without making its matrices where there are only products."""
        arrays, noise = [], list[Noise | None]()
        means = jax.tree.leaves(self._unravel(candidate.mean))
        for mean, thin, numbers in zip(means, self._thin, self._split(candidate.noise), strict=True):
            if thin:
                left, right = self._factors(numbers, mean.shape)
                scaled = right * (candidate.scale / self.rank**0.5)
                noise.append(Noise(left.astype(mean.dtype), scaled.astype(mean.dtype)))
            else:
                mean = mean + (candidate.scale * numbers).reshape(mean.shape).astype(mean.dtype)
                noise.append(None)
            arrays.append(mean)
        return call_with_noise(self._of_leaves(trial), arrays, noise, *arguments)

    def gradient(self, key: jax.Array, weights: jax.Array) -> jax.Array:
        """The sum over pairs of weight times noise, `[D]`: of each matrix a product of the factors of many pairs.

        Args:
          key: of the generation.
          weights: `[pairs]`.
        """
        pairs = max(1, AT_ONCE // self.rank)
        blocks = -(-len(weights) // pairs)
        weights = jnp.pad(weights.astype(jnp.float32), (0, blocks * pairs - len(weights))).reshape(blocks, pairs)
        numbers = jnp.arange(blocks * pairs).reshape(blocks, pairs)

        def add(total: list[jax.Array], block: tuple[jax.Array, jax.Array]) -> tuple[list[jax.Array], None]:
            numbers, weights = block
            pieces = zip(total, self._split(self._drawn(key, numbers)), self._shapes, self._thin, strict=True)
            return [sum_ + self._weighted(weights, *piece) for sum_, *piece in pieces], None

        nothing = [
            jnp.zeros(matrix_shape(shape) if thin else math.prod(shape), jnp.float32)
            for shape, thin in zip(self._shapes, self._thin, strict=True)
        ]
        found, _ = jax.lax.scan(add, nothing, (numbers, weights))
        return jnp.concatenate([x.reshape(-1) for x in found])

    def _weighted(self, weights: jax.Array, noise: jax.Array, shape: tuple[int, ...], thin: bool) -> jax.Array:
        """The weighted sum over pairs of the noise of an array, of a matrix `[m, n]`, of others flat."""
        if not thin:
            return weights @ noise
        left, right = self._factors(noise, shape)
        product = jnp.einsum("pmr,pnr->mn", weights[:, None, None] * left, right)
        return product / self.rank**0.5

    def _split(self, noise: jax.Array) -> list[jax.Array]:
        """The numbers of each array, `[..., numbers]`."""
        ends = [sum(self._sizes[: i + 1]) for i in range(len(self._sizes) - 1)]
        return jnp.split(noise, ends, -1)

    def _factors(self, numbers: jax.Array, shape: Sequence[int]) -> Noise:
        """A `[..., m, rank]` and B `[..., n, rank]`."""
        rows, columns = matrix_shape(shape)
        left, right = jnp.split(numbers, [rows * self.rank], -1)
        leading = numbers.shape[:-1]
        return Noise(left.reshape(*leading, rows, self.rank), right.reshape(*leading, columns, self.rank))


class LowRankES(NamedTuple):
    """OpenAI's evolution strategy with noise of low rank, with the interface of evosax.

    Attributes:
      full: evosax's, with its optimiser, schedule and shaping of fitness.
      noise: of the candidates.
    """

    full: Any
    noise: LowRankNoise

    @property
    def population_size(self) -> int:
        """Candidates of a generation."""
        return int(self.full.population_size)

    def init(self, key: jax.Array, mean: jax.Array, params: Any) -> Any:
        """The first state."""
        return self.full.init(key, mean, params)

    def ask(self, key: jax.Array, state: Any, params: Any) -> tuple[Proposals, Any]:
        """The candidates of a generation."""
        del params
        # Of threefry, because what other generators draw depends on the batch, which `draw` and `gradient` have apart.
        own = jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl="threefry2x32")
        return Proposals(state.mean, state.std, own), state

    def tell(
        self, key: jax.Array, proposals: Proposals, fitness: jax.Array, state: Any, params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The next state, by a step along the estimate of the gradient: evosax's, of other noise."""
        del key
        import optax

        shaped = self.full.fitness_shaping_fn(None, fitness, state, params)
        first, mirrored = jnp.split(shaped, 2)
        gradient = self.noise.gradient(proposals.key, first - mirrored) / (self.population_size * state.std)
        updates, opt_state = self.full.optimizer.update(gradient, state.opt_state, state.mean)
        state = state.replace(
            mean=optax.apply_updates(state.mean, updates),
            std=self.full.std_schedule(state.generation_counter),
            opt_state=opt_state,
            generation_counter=state.generation_counter + 1,
        )
        return state, {}
