"""COLA: steps of learning that are consistent, each being right for what the other's step is."""

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
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners.exact.naive import PolicyState, follow, normal_logits
from marl.learners.exact.paired_networks import init_pair, shapes_of_pair
from marl.learners.exact.trained import load_trained
from meta.loop import Report, Store, iterate
from meta.runs.array_files import same_shapes

Payoffs = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
Update = Callable[[jax.Array, jax.Array], jax.Array]
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class ConsistentUpdates(NamedTuple):
    """Two networks f1(x, y) and f2(x, y): the steps of both players from the first's and the second's parameters."""

    networks: dict[str, jax.Array]  # `kernel_i` `[2, inputs, outputs]` and `bias_i` `[2, outputs]` of layer i
    lookahead_rate: float
    region: float
    activation: str


@in_any_mode
def train_cola(
    key: jax.Array,
    payoffs: Payoffs,
    num_parameters: int,
    *,
    lookahead_rate: float = 1.0,
    region: float = 7.0,
    hidden: Sequence[int] = (32, 32, 32),
    activation: str = "tanh",
    batch: int = 64,
    iterations: int = 10_000,
    learning_rate: float = 3e-3,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
) -> ConsistentUpdates:
    """Update functions that are consistent: each is the best step against the other, whose step answers to one's own.

        f1(x, y) = eta d/dx V1(x, y + f2(x, y)),        f2(x, y) = eta d/dy V2(x + f1(x, y), y)

    Both are networks, and the squared distance between the two sides (`consistency_loss`) at points drawn evenly from
    [-region, region] is brought down by Adam, whose step size falls to 0 along a cosine.

    The defaults are for the exact games. The paper has there three layers of 16, batches of 8 and a constant step size;
    wider layers, larger batches and the falling step size bring the loss lower in a minute or two. For its polynomial
    games it has one ReLU layer of 8 on [-1, 1].

    Args:
      key: draws the networks and the points.
      payoffs: `(x, y) -> (V1, V2)`, differentiable, of the two players' parameters.
      num_parameters: of each player.
      lookahead_rate: eta, the size of the steps.
      region: where points are drawn; beyond it the networks see its border.
      hidden: units of each layer.
      activation: tanh or relu.
      batch: points per iteration.
      iterations: of Adam.
      learning_rate: of Adam in the beginning.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, {"consistency_loss": ...}, seconds)` by the host.
      checkpoint_seconds: as of `iterate`.

    Source: Willi, Letcher, Treutlein and Foerster, COLA: Consistent Learning with Opponent-Learning Awareness (2022),
    arXiv:2203.04098.
    """
    sizes = (2 * num_parameters, *hidden, num_parameters)
    init_key, run_key = jax.random.split(key)
    adam = optax.adam(optax.cosine_decay_schedule(learning_rate, iterations))

    def loss(networks: dict[str, jax.Array], key: jax.Array) -> jax.Array:
        points = jax.random.uniform(key, (2, batch, num_parameters), minval=-region, maxval=region)
        functions = updates(ConsistentUpdates(networks, lookahead_rate, region, activation))
        return consistency_loss(functions, payoffs, points[0], points[1], lookahead_rate)

    def step(key: jax.Array, iteration: jax.Array, state: tuple[Any, Any]) -> tuple[tuple[Any, Any], Metrics]:
        networks, moments = state
        value, gradient = jax.value_and_grad(loss)(networks, jax.random.fold_in(key, iteration))
        changes, moments = adam.update(gradient, moments, networks)
        return (optax.apply_updates(networks, changes), moments), {"consistency_loss": value}

    networks = init_pair(init_key, sizes)
    found = iterate(
        step,
        (networks, adam.init(networks)),
        run_key,
        iterations,
        store=store,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
    )
    return ConsistentUpdates(found.state[0], lookahead_rate, region, activation)


def updates(consistent: ConsistentUpdates) -> tuple[Update, Update]:
    """(f1, f2) as functions of the first and the second player's parameters."""
    networks, _, region, name = consistent
    activation, layers = ACTIVATIONS[name], len(networks) // 2

    def update(seat: int, x: jax.Array, y: jax.Array) -> jax.Array:
        values = jnp.clip(jnp.concatenate([x, y]) / region, -1.0, 1.0)
        for i in range(layers):
            values = values @ networks[f"kernel_{i}"][seat] + networks[f"bias_{i}"][seat]
            values = activation(values) if i < layers - 1 else values
        return values

    return partial(update, 0), partial(update, 1)


def consistency_loss(
    functions: tuple[Update, Update], payoffs: Payoffs, x: jax.Array, y: jax.Array, lookahead_rate: float
) -> jax.Array:
    """The inconsistency of two update functions: 0 if each is the best step against the other.

        mean over points of  |f1 - eta d/dx V1(x, y + f2(x, y))|^2 + |f2 - eta d/dy V2(x + f1(x, y), y)|^2

    Args:
      functions: (f1, f2) of (x, y).
      payoffs: `(x, y) -> (V1, V2)`.
      x: points of the first player `[batch, parameters]`.
      y: points of the second.
      lookahead_rate: eta.

    Source: the consistency losses of Willi et al. (2022), arXiv:2203.04098.
    """
    update_1, update_2 = functions

    def error(x: jax.Array, y: jax.Array) -> jax.Array:
        best_1 = lookahead_rate * jax.grad(lambda x: payoffs(x, y + update_2(x, y))[0])(x)
        best_2 = lookahead_rate * jax.grad(lambda y: payoffs(x + update_1(x, y), y)[1])(y)
        return ((update_1(x, y) - best_1) ** 2).sum() + ((update_2(x, y) - best_2) ** 2).sum()

    return jax.vmap(error)(x, y).mean()


def white_box_updates(make: Callable[[Payoffs], Learner], payoffs: Payoffs) -> tuple[Update, Update]:
    """(f1, f2) of two learners of a kind, such as `lola`, to be put beside COLA's.

    Args:
      make: `payoffs -> Learner`, of payoffs in the learner's own view; the learner moves one policy.
      payoffs: `(x, y) -> (V1, V2)`.
    """

    def update(learner: Learner, own: jax.Array, other: jax.Array) -> jax.Array:
        none = jnp.zeros(())
        trajectory = Trajectory(none, none, none, none, (), (other[None],), none, none)
        return learner.update(jax.random.key(0), PolicyState(own), trajectory)[0].logits - own

    first, second = make(payoffs), make(lambda own, other: payoffs(other, own)[::-1])
    return lambda x, y: update(first, x, y), lambda x, y: update(second, y, x)


def cola(
    consistent: ConsistentUpdates, seat: int = 0, *, learning_rate: float = 1.0, init_scale: float = 1.0
) -> Learner:
    """A player that takes the consistent steps.

        x <- x + learning_rate f1(x, y), or y <- y + learning_rate f2(x, y)

    Args:
      consistent: what `train_cola` returned.
      seat: 0 for x, 1 for y.
      learning_rate: by which the steps, whose own size is the lookahead rate of the training, are multiplied.
      init_scale: standard deviation of the normal initial parameters.

    Source: Willi et al. (2022), arXiv:2203.04098.
    """
    function = updates(consistent)[seat]

    def direction(own: jax.Array, other: jax.Array) -> jax.Array:
        return function(own, other) if seat == 0 else function(other, own)

    num_parameters = consistent.networks["kernel_0"].shape[1] // 2
    return follow(direction, normal_logits(init_scale, num_parameters), learning_rate=learning_rate)._replace(seat=seat)


@factory
def cola_opponent(
    game: InfinitelyRepeated,
    seat: int = 0,
    *,
    learning_rate: float = 1.0,
    init_scale: float = 1.0,
    file: str | os.PathLike[str] = "",
) -> Learner:
    """`cola` of an exact game, with networks from a file.

    Args:
      game: the exact game; a file comes with the library for the prisoner's dilemma and for matching pennies
        (discount 0.96) and for chicken played once.
      seat: 0 row, 1 column.
      learning_rate: by which the steps, of lookahead rate 1 in the files that come with the library, are multiplied.
      init_scale: standard deviation of the normal initial logits.
      file: what `python -m marl.cola` wrote; empty for the one that comes with the library.

    Raises:
      ValueError: if there is no file for this game, or if it is damaged or belongs to another.
    """
    return cola(load_cola(game, os.fspath(file)), seat, learning_rate=learning_rate, init_scale=init_scale)


def load_cola(game: InfinitelyRepeated, file: str = "") -> ConsistentUpdates:
    """The networks of an exact game from what `python -m marl.cola` wrote; arguments and errors of `cola_opponent`."""
    arrays, metadata = load_trained("cola", game, file)
    settings = metadata.get("config", {})
    try:
        hidden = [int(units) for units in settings["hidden"]]
        rate, region, activation = float(settings["lookahead_rate"]), float(settings["region"]), settings["activation"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"file: got {file!r}, without the settings that python -m marl.cola writes") from None
    if activation not in ACTIVATIONS:
        raise ValueError(f"file: got {file!r}, with activation {activation!r}; tanh or relu is needed")
    same_shapes(arrays, shapes_of_pair((2 * game.num_logits, *hidden, game.num_logits)), file)
    return ConsistentUpdates({name: jnp.asarray(x) for name, x in arrays.items()}, rate, region, activation)
