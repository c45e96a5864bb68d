"""MeVa: steps up a learned meta-value, which judges two policies by all that both learn from there on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from games import InfinitelyRepeated
from games.core.arguments import factory
from games.core.modes import in_any_mode
from marl.core.learner import Learner, Metrics
from marl.learners.exact.naive import follow, normal_logits
from marl.learners.exact.paired_networks import init_pair, shapes_of_pair
from marl.learners.exact.trained import load_trained
from meta.loop import Report, Store, iterate
from meta.runs.array_files import same_shapes

Payoffs = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
Value = Callable[[jax.Array, jax.Array], jax.Array]


class MetaValues(NamedTuple):
    """Two networks U1(x, y) and U2(x, y), and the numbers with which they were trained."""

    networks: dict[str, jax.Array]  # `kernel_i` `[2, inputs, outputs]`, `bias_i` `[2, outputs]`; `shift`, `scale` `[2]`
    meta_discount: float
    step_size: float


@in_any_mode
def train_meva(
    key: jax.Array,
    payoffs: Callable[..., tuple[jax.Array, jax.Array]],
    num_parameters: int,
    *,
    context: Any = None,
    meta_discount: float = 0.9,
    step_size: float = 1.0,
    trace: float = 0.9,
    start_scale: float = 2.0,
    length: int = 50,
    rollout: int = 8,
    hidden: Sequence[int] = (64, 64),
    batch: int = 128,
    iterations: int = 5_000,
    learning_rate: float = 1e-3,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
) -> MetaValues:
    """Meta-values by temporal differences, along the learning of two players that climb them.

        V_i(x, y) = (1 - gamma) f_i(x, y) + gamma U_i(x, y),        U_i(x, y) = V_i(x', y'),
        x' = x + alpha d/dx V_1(x, y),        y' = y + alpha d/dy V_2(x, y)

    with f the payoffs. U, a network of the probabilities, is regressed on the returns of whole learning runs, with
    eligibility traces. V holds one's own future steps and the other's, and so both assume of each other what is true:
    with gamma = 0 they are naive learners.

    Args:
      key: draws the networks and the beginnings; of independent trainings `[K]`.
      payoffs: `(x, y) -> (f1, f2)`, differentiable, of the two players' logits; `(context, x, y)` with a context.
      num_parameters: of each player.
      context: games of several trainings as arrays `[K, ...]`, which one program trains; None for one training.
      meta_discount: gamma, of later learning steps, in [0, 1).
      step_size: alpha.
      trace: lambda, of the errors to come; 0 bootstraps after one step.
      start_scale: standard deviation of the logits where learning runs begin.
      length: learning steps of a run, on average; it ends at random.
      rollout: learning steps of an iteration.
      hidden: units of each layer.
      batch: learning runs at once.
      iterations: of Adam.
      learning_rate: of Adam in the beginning; it falls to 0 along a cosine.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, {"meta_value_loss": ...}, seconds)` by the host.
      checkpoint_seconds: as of `iterate`.

    Source: Cooijmans, Aghajohari and Courville, Meta-Value Learning (2023), arXiv:2307.08863. There gamma is drawn for
    each run and read by the network, which says a distribution of values and is perturbed to explore; here gamma is one
    number, and learning runs begin far apart.
    """
    sizes = (2 * num_parameters, *hidden, 1)
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, iterations))

    def starts(key: jax.Array, number: int) -> jax.Array:
        return start_scale * jax.random.normal(key, (2, number, num_parameters))

    def begin(payoffs: Payoffs, key: jax.Array) -> tuple[Any, jax.Array]:
        """The first state, and the key of the steps."""
        init_key, run_key = jax.random.split(key)
        network_key, unit_key, start_key = jax.random.split(init_key, 3)
        weights = init_pair(network_key, sizes)
        units = jax.vmap(lambda x, y: jnp.stack(payoffs(x, y)))(*starts(unit_key, 1024))
        networks = weights | {"shift": units.mean(0), "scale": units.std(0)}
        return (networks, adam.init(weights), starts(start_key, batch)), run_key

    def step(payoffs: Payoffs, key: jax.Array, iteration: jax.Array, state: Any) -> tuple[Any, Metrics]:
        networks, moments, now = state
        start_key, end_key = jax.random.split(jax.random.fold_in(key, iteration))
        ends = jax.random.bernoulli(end_key, min(rollout / length, 1.0), (batch, 1))
        now = jnp.where(ends, starts(start_key, batch), now)
        meta = MetaValues(networks, meta_discount, step_size)
        ahead = jax.vmap(partial(next_parameters, meta, payoffs))

        def forward(now: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            after = jnp.stack(ahead(*now))
            return after, after

        _, after = jax.lax.scan(forward, now, None, rollout)  # [rollout, 2, batch, parameters]
        future = jax.vmap(jax.vmap(partial(futures, networks)))
        earned = jax.vmap(jax.vmap(lambda x, y: jnp.stack(payoffs(x, y))))(after[:, 0], after[:, 1])
        boot = future(after[:, 0], after[:, 1])  # [rollout, batch, 2]

        def back(later: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            found = (1 - meta_discount) * now[0] + meta_discount * ((1 - trace) * now[1] + trace * later)
            return found, found

        _, targets = jax.lax.scan(back, boot[-1], (earned, boot), reverse=True)
        before = jnp.concatenate([now[None], after[:-1]])

        def loss(weights: dict[str, jax.Array]) -> jax.Array:
            found = jax.vmap(jax.vmap(partial(futures, networks | weights)))(before[:, 0], before[:, 1])
            return (((found - targets) / networks["scale"]) ** 2).mean()

        weights = {name: x for name, x in networks.items() if name not in ("shift", "scale")}
        value, gradient = jax.value_and_grad(loss)(weights)
        changes, moments = adam.update(gradient, moments, weights)
        return (networks | optax.apply_updates(weights, changes), moments, after[-1]), {"meta_value_loss": value}

    def begin_all(keys: jax.Array) -> tuple[Any, jax.Array]:
        return jax.vmap(lambda context, key: begin(partial(payoffs, context), key))(context, keys)

    def step_all(keys: jax.Array, iteration: jax.Array, states: Any) -> tuple[Any, Metrics]:
        def one(context: Any, key: jax.Array, state: Any) -> tuple[Any, Metrics]:
            return step(partial(payoffs, context), key, iteration, state)

        return jax.vmap(one)(context, keys, states)

    begins, steps = (partial(begin, payoffs), partial(step, payoffs)) if context is None else (begin_all, step_all)
    first, run_key = jax.jit(begins)(key)
    found = iterate(
        steps,
        first,
        run_key,
        iterations,
        store=store,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
    )
    return MetaValues(found.state[0], meta_discount, step_size)


def futures(networks: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """(U1, U2) `[2]`; each network sees its own player's probabilities first."""
    p, q = jax.nn.sigmoid(x), jax.nn.sigmoid(y)
    values = jnp.stack([jnp.concatenate([p, q]), jnp.concatenate([q, p])])
    layers = sum(name.startswith("kernel") for name in networks)
    for i in range(layers):
        values = jnp.einsum("si,sio->so", values, networks[f"kernel_{i}"]) + networks[f"bias_{i}"]
        values = jnp.tanh(values) if i < layers - 1 else values
    return networks["shift"] + networks["scale"] * values[:, 0]


def meta_values(meta: MetaValues, payoffs: Payoffs) -> tuple[Value, Value]:
    """(V1, V2) as functions of the first and the second player's parameters."""

    def value(seat: int, x: jax.Array, y: jax.Array) -> jax.Array:
        gamma = meta.meta_discount
        return (1 - gamma) * payoffs(x, y)[seat] + gamma * futures(meta.networks, x, y)[seat]

    return partial(value, 0), partial(value, 1)


def next_parameters(meta: MetaValues, payoffs: Payoffs, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(x', y'): where both are after a step up their meta-values."""
    first, second = meta_values(meta, payoffs)
    return x + meta.step_size * jax.grad(first, 0)(x, y), y + meta.step_size * jax.grad(second, 1)(x, y)


def bellman_error(meta: MetaValues, payoffs: Payoffs, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean over points and players of (U_i(x, y) - V_i(x', y'))^2; 0 if the values are consistent.

    Args:
      meta: the networks.
      payoffs: `(x, y) -> (f1, f2)`.
      x: points of the first player `[batch, parameters]`.
      y: points of the second.
    """

    def error(x: jax.Array, y: jax.Array) -> jax.Array:
        after = next_parameters(meta, payoffs, x, y)
        later = jnp.stack([value(*after) for value in meta_values(meta, payoffs)])
        return ((futures(meta.networks, x, y) - later) ** 2).mean()

    return jax.vmap(error)(x, y).mean()


def meva(
    meta: MetaValues, payoffs: Payoffs, seat: int = 0, *, learning_rate: float = 1.0, init_scale: float = 1.0
) -> Learner:
    """A player that climbs its meta-value.

        x <- x + learning_rate alpha d/dx V_1(x, y), or y <- y + learning_rate alpha d/dy V_2(x, y)

    Args:
      meta: what `train_meva` returned.
      payoffs: `(x, y) -> (f1, f2)`, those of the training.
      seat: 0 for x, 1 for y.
      learning_rate: by which the steps of the training are multiplied.
      init_scale: standard deviation of the normal initial parameters.

    Source: Cooijmans et al. (2023), arXiv:2307.08863.
    """
    value = meta_values(meta, payoffs)[seat]

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        pair = (own, other) if seat == 0 else (other, own)
        return meta.step_size * jax.grad(value, seat)(*pair)

    num_parameters = meta.networks["kernel_0"].shape[1] // 2
    return follow(direction, normal_logits(init_scale, num_parameters), learning_rate=learning_rate)._replace(seat=seat)


@factory
def meva_opponent(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: float = 1.0,
    init_scale: float = 1.0,
    file: str | os.PathLike[str] = "",
) -> Learner:
    """`meva` of an exact game, with meta-values from a file.

    Args:
      game: the exact game; a file comes with the library for the prisoner's dilemma and for matching pennies
        (discount 0.96) and for chicken played once.
      seat: 0 row, 1 column.
      learning_rate: by which the steps, of size 1 in the files that come with the library, are multiplied.
      init_scale: standard deviation of the normal initial logits.
      file: what `python -m marl.meva` wrote; empty for the one that comes with the library.

    Raises:
      ValueError: if there is no file for this game, or if it is damaged or belongs to another.
    """
    meta = load_meva(game, os.fspath(file))
    return meva(meta, partial(game.values, 0), seat, learning_rate=learning_rate, init_scale=init_scale)


def load_meva(game: InfinitelyRepeated, file: str = "") -> MetaValues:
    """The networks of an exact game from what `python -m marl.meva` wrote; arguments and errors of `meva_opponent`."""
    arrays, metadata = load_trained("meva", game, file)
    settings = metadata.get("config", {})
    try:
        hidden = [int(units) for units in settings["hidden"]]
        discount, step_size = float(settings["meta_discount"]), float(settings["step_size"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"file: got {file!r}, without the settings that python -m marl.meva writes") from None
    same_shapes(arrays, shapes_of_pair((2 * game.num_logits, *hidden, 1)) | {"shift": (2,), "scale": (2,)}, file)
    return MetaValues({name: jnp.asarray(x) for name, x in arrays.items()}, discount, step_size)
