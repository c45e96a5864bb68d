"""Message functions of an adversary: from an observation to a message."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs import shown
from configs.plugins import load
from configs.specs import Registry
from games import Game
from games.core import checks
from games.core.arguments import factory
from games.wrappers.cheap_talk import CheapTalk

__all__ = ["Message", "constant", "echo", "linear", "lstm", "make_message", "mlp", "quadratic", "table", "turn"]

SPEAKER = 2**32 - 1  # branch of a victim's key: the random message that it hears
MOST_ENTRIES = 64  # of an observation, for products of two of them


class Message(NamedTuple):
    """A message function: where its search begins, and what it says. Where all parameters are 0 so is the message.

    Most say what they say about an observation alone. One with a memory remembers an observation before it speaks.

    Attributes:
      init: (key) -> parameters
      speak: (parameters, observation [*obs_shape]) -> message [size]; an AssertionError for a batch, or another shape.
        With a memory it is the third argument.
      remember: (parameters, memory, observation) -> memory
      memory: before anything was seen
    """

    init: Callable[[jax.Array], Any]
    speak: Callable[..., jax.Array]
    remember: Callable[[Any, Any, jax.Array], Any] | None = None
    memory: Any = ()

    def talk(self, game: Game, parameters: Any, size: int) -> CheapTalk:
        """The game in which this is said.

        Raises:
          ValueError: for a message about observations of another shape.
        """
        talk = CheapTalk(game, parameters, self.speak, size, remember=self.remember, memory=self.memory)
        seen = jax.eval_shape(game.reset, jax.random.key(0))[0]["agent_0"]
        try:
            if self.remember:
                jax.eval_shape(self.remember, parameters, self.memory, seen)
            jax.eval_shape(self.speak, parameters, seen, *((self.memory,) if self.remember else ()))
        except AssertionError:
            needed = f"one that reads those of {game.name}, {seen.shape}, is needed"
            raise ValueError(f"message: got one that reads other observations; {needed}") from None
        return talk


@factory
def mlp(
    obs_shape: Sequence[int],
    size: int = 2,
    *,
    scale: float = 2 * math.pi,
    hidden: Sequence[int] = (64, 64),
    units: float | Sequence[float] = 1.0,
) -> Message:
    """`scale` tanh of a network of o / units with ReLU units; at first its weights are normal with variance 1 / inputs.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message lies in [-scale, scale].
      hidden: units of each layer; none makes the message linear in the observation, before the tanh.
      units: of the entries of an observation, of which some may be far smaller than others; a number, or one for each.

    Raises:
      ValueError: for hidden units that are no whole numbers of at least 1, or `units` that are not above 0 and as many
        as the entries.

    Source: Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, appendix.
    """
    checks.sizes("hidden", hidden, 1)
    checks.number("scale", scale, 0, brackets="()")
    widths = [_num_inputs(obs_shape), *hidden, size]
    divisors = _divisors(units, widths[0])

    def init(key: jax.Array) -> dict[str, jax.Array]:
        parameters: dict[str, jax.Array] = {}
        for i, (inputs, units) in enumerate(itertools.pairwise(widths)):
            weights = jax.random.normal(jax.random.fold_in(key, i), (inputs, units)) / inputs**0.5
            parameters |= {f"w{i}": weights, f"b{i}": jnp.zeros(units)}
        return parameters

    def speak(parameters: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        x = obs.reshape(-1).astype(jnp.float32) / divisors
        for i in range(len(widths) - 1):
            x = x @ parameters[f"w{i}"] + parameters[f"b{i}"]
            x = jax.nn.relu(x) if i < len(widths) - 2 else x
        return scale * jnp.tanh(x)

    return Message(init, speak)


@factory
def linear(
    obs_shape: Sequence[int],
    size: int = 2,
    *,
    scale: float = 2 * math.pi,
    units: float | Sequence[float] = 1.0,
    volume: float = 1.0,
) -> Message:
    """`scale` tanh(exp(volume) (W (o / units) + b)): direction and magnitude apart.

    At first the weights are normal with variance 1 / inputs. With the volume 1 the message saturates, with 10 it
    has little more than two values, and with 0.1 it is small and nearly linear.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message lies in [-scale, scale].
      units: of the entries of an observation, as of `mlp`.
      volume: with which the search begins, e to the parameter of this name.

    Raises:
      ValueError: for units that are not above 0 and as many as the entries.
    """
    inputs = _num_inputs(obs_shape)
    return _linear_in(lambda x: x, inputs, inputs**-0.5, 1.0, obs_shape, size, scale, units, volume)


@factory
def quadratic(
    obs_shape: Sequence[int],
    size: int = 2,
    *,
    scale: float = 2 * math.pi,
    units: float | Sequence[float] = 1.0,
    volume: float = 1.0,
) -> Message:
    """As `linear`, of the entries of o / units and of all products of two of them.

    Such are the torque that brings the tip of an arm nearer, and the energy of a pendulum. The message is divided by
    the square root of the number of inputs, and not the weights: a step of a search then turns it by the same angle.

    Args:
      obs_shape: of an observation, which is flattened; `MOST_ENTRIES` at most.
      size: entries of a message.
      scale: the message lies in [-scale, scale].
      units: of the entries of an observation, as of `mlp`.
      volume: with which the search begins, as of `linear`.

    Raises:
      ValueError: for larger observations, or units that are not above 0 and as many as the entries.
    """
    entries = _num_inputs(obs_shape)
    if entries > MOST_ENTRIES:
        raise ValueError(f"got observations of {entries} entries; {MOST_ENTRIES} at most")
    i, j = np.triu_indices(entries)
    inputs = entries + len(i)

    def features(x: jax.Array) -> jax.Array:
        return jnp.concatenate([x, x[i] * x[j]])

    return _linear_in(features, inputs, 1.0, inputs**-0.5, obs_shape, size, scale, units, volume)


def _linear_in(
    features: Callable[[jax.Array], jax.Array],
    inputs: int,
    drawn: float,
    weighted: float,
    obs_shape: Sequence[int],
    size: int,
    scale: float,
    units: float | Sequence[float],
    volume: float,
) -> Message:
    """`linear` of features, `[inputs]`, with weights of the deviation `drawn`, which are multiplied by `weighted`."""
    checks.number("scale", scale, 0, brackets="()")
    checks.number("volume", volume, 0, brackets="()")
    divisors = _divisors(units, _num_inputs(obs_shape))

    def init(key: jax.Array) -> dict[str, jax.Array]:
        weights = drawn * jax.random.normal(key, (inputs, size))
        return {"w": weights, "b": jnp.zeros(size), "volume": jnp.float32(math.log(volume))}

    def speak(parameters: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        seen = features(obs.reshape(-1).astype(jnp.float32) / divisors)
        message = seen @ parameters["w"] * weighted + parameters["b"]
        return scale * jnp.tanh(jnp.exp(parameters["volume"]) * message)

    return Message(init, speak)


@factory
def echo(
    obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi, units: float | Sequence[float] = 1.0
) -> Message:
    """A message with w . (o / units) in every entry: the observation along one direction, amplified.

    To a victim that normalises what it sees, a copy multiplies the step size along that direction, which makes its
    learning less stable, the more so if it is a wrong one. Weights are at first normal with variance 1 / inputs.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message is clipped to [-scale, scale].
      units: of the entries of an observation, of which some may be far smaller than others; a number, or one for each.

    Raises:
      ValueError: unless they are above 0, and as many as the entries.
    """
    checks.number("scale", scale, 0, brackets="()")
    inputs = _num_inputs(obs_shape)
    divisors = _divisors(units, inputs)

    def speak(weights: jax.Array, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        message = weights @ (obs.reshape(-1).astype(jnp.float32) / divisors)
        return jnp.broadcast_to(jnp.clip(message, -scale, scale), (size,))

    return Message(lambda key: jax.random.normal(key, (inputs,)) / inputs**0.5, speak)


def _num_inputs(obs_shape: Sequence[int]) -> int:
    if not all(0 < length <= checks.MANY for length in obs_shape):
        raise ValueError(f"obs_shape: got {shown(obs_shape)}; lengths of at least 1 are needed")
    return math.prod(obs_shape)


def _divisors(units: float | Sequence[float], inputs: int) -> np.ndarray:
    try:
        divisors = np.broadcast_to(np.asarray(units, np.float32), (inputs,))
    except ValueError:
        raise ValueError(f"units: got {np.size(units)}; one number, or {inputs} are needed") from None
    if not (np.isfinite(divisors).all() and (divisors > 0).all()):
        raise ValueError(f"units: got {divisors.tolist()}; numbers above 0 are needed")
    return divisors


@factory
def constant(obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi) -> Message:
    """The same message for each observation: `scale` tanh of the parameters, at first standard normal.

    Args:
      obs_shape: of an observation.
      size: entries of a message.
      scale: the message lies in [-scale, scale].

    Raises:
      ValueError: for a scale that is not above 0.
    """
    del obs_shape
    checks.number("scale", scale, 0, brackets="()")
    return Message(lambda key: jax.random.normal(key, (size,)), lambda parameters, obs: scale * jnp.tanh(parameters))


@factory
def lstm(obs_shape: Sequence[int], size: int = 2, *, scale: float = 2 * math.pi, units: int = 32) -> Message:
    """`scale` tanh of a linear function of an LSTM's output: an adversary that remembers a victim's whole training.

    Its memory begins with zeros and is never cleared, so that it can learn to turn when the victim has learned.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      scale: the message lies in [-scale, scale].
      units: of the LSTM.

    Source: the public code of Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, where it is what
    `main_train_time.py` evolves by default; Hochreiter and Schmidhuber, Long Short-Term Memory (1997).
    """
    checks.size("units", units, 1)
    checks.number("scale", scale, 0, brackets="()")
    cell = nn.OptimizedLSTMCell(units, parent=None)
    memory = (np.broadcast_to(np.float32(0), (units,)),) * 2  # takes no room, however many there are

    def init(key: jax.Array) -> dict[str, Any]:
        cell_key, out_key = jax.random.split(key)
        weights = jax.random.normal(out_key, (units, size)) / units**0.5
        seen = jnp.zeros(_num_inputs(obs_shape))
        return {"cell": cell.init(cell_key, memory, seen)["params"], "w": weights, "b": jnp.zeros(size)}

    def remember(parameters: dict[str, Any], memory: Any, obs: jax.Array) -> Any:
        chex.assert_shape(obs, obs_shape)
        return cell.apply({"params": parameters["cell"]}, memory, obs.reshape(-1).astype(jnp.float32))[0]

    def speak(parameters: dict[str, Any], obs: jax.Array, memory: Any) -> jax.Array:
        del obs  # it is remembered
        return scale * jnp.tanh(memory[1] @ parameters["w"] + parameters["b"])

    return Message(init, speak, remember, memory)


@factory
def turn(
    obs_shape: Sequence[int], size: int = 2, *, steps: float = 8192, what: str = "linear", scale: float = 2 * math.pi
) -> Message:
    """Says one thing, and from some time of a victim's training run on another: its memory counts the observations.

    The parameters are those of both message functions, `first` and `then`, and `turn`: the time is
    steps / (1 + exp(-turn)) observations, and the search begins around 0.92 of a training run.

    Args:
      obs_shape: of an observation.
      size: entries of a message.
      steps: of a training run in each environment.
      what: the kind of both functions, as of `make_message`, without memory.
      scale: the message lies in [-scale, scale].

    Raises:
      ValueError: for a kind that there is not, or that has a memory.
    """
    checks.number("steps", steps, 0, brackets="()")
    checks.number("scale", scale, 0, brackets="()")
    own = make_message(what, obs_shape, size, field="what")
    if own.remember is not None:
        raise ValueError(f"what: got {what!r}; a message without memory is needed")

    def init(key: jax.Array) -> dict[str, Any]:
        first_key, then_key, turn_key = jax.random.split(key, 3)
        turn = 2.5 + 0.5 * jax.random.normal(turn_key)
        return {"first": own.init(first_key), "then": own.init(then_key), "turn": turn}

    def speak(parameters: dict[str, Any], obs: jax.Array, heard: jax.Array) -> jax.Array:
        early = heard <= steps * jax.nn.sigmoid(parameters["turn"])
        parameters = jax.tree.map(lambda x, y: jnp.where(early, x, y), parameters["first"], parameters["then"])
        return jnp.clip(own.speak(parameters, obs), -scale, scale)

    return Message(init, speak, lambda parameters, heard, obs: heard + 1, jnp.zeros(()))


@factory
def table(
    obs_shape: Sequence[int],
    size: int = 2,
    *,
    low: Sequence[float],
    high: Sequence[float],
    scale: float = 2 * math.pi,
    bins: int = 6,
) -> Message:
    """A message for each cell of a grid over small observations; what lies beyond it belongs to its border.

    Args:
      obs_shape: of an observation, which is flattened.
      size: entries of a message.
      low: of the grid, one number for each entry of an observation.
      high: of the grid; finite, as is `low`.
      scale: the message lies in [-scale, scale].
      bins: of each entry.

    Raises:
      ValueError: for a grid that is infinite or has more than a million cells, or bins that are no whole number of at
        least 1.
    """
    checks.size("bins", bins, 1, 1_000_000)
    checks.number("scale", scale, 0, brackets="()")
    inputs = _num_inputs(obs_shape)
    for name, bound in (("low", low), ("high", high)):
        if np.size(bound) not in (1, inputs):
            raise ValueError(f"{name}: got {np.size(bound)} numbers; {inputs}, one for each input, are needed")
    lows, highs = (np.broadcast_to(np.asarray(x, np.float32).reshape(-1), (inputs,)) for x in (low, high))
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (highs > lows).all()):
        got = f"got the bounds {lows.tolist()} and {highs.tolist()}"
        raise ValueError(f"{got}; finite ones, high above low, are needed")
    cells = bins ** len(lows)
    if cells > 1_000_000:
        raise ValueError(f"got {cells:,} cells; a million at most, by fewer bins or another message")
    strides = bins ** np.arange(len(lows))

    def speak(parameters: jax.Array, obs: jax.Array) -> jax.Array:
        chex.assert_shape(obs, obs_shape)
        cell = jnp.floor((obs.reshape(-1) - lows) / (highs - lows) * bins)
        return scale * jnp.tanh(parameters[(jnp.clip(cell, 0, bins - 1).astype(jnp.int32) * strides).sum()])

    return Message(lambda key: jax.random.normal(key, (cells, size)), speak)


def register_message(name: str, factory: Callable[..., Message], *, replace: bool = False) -> None:
    """Makes a message function of your own known by a name.

    Args:
      name: letters, digits, hyphens and underscores, a letter first.
      factory: `(obs_shape, size, **settings) -> Message`. Its keyword-only parameters are the settings of a spec, their
        type hints and defaults what these may be.
      replace: whether the name may be taken.

    Raises:
      ValueError: for a name that no spec can have, or that is taken.
    """
    MESSAGES.register(name, factory, replace=replace)


MESSAGES: Registry[Message] = Registry("mlp", plugins=lambda: load("messages", register_message))
for _factory in (mlp, linear, quadratic, echo, constant, table, lstm, turn):
    MESSAGES.register(_factory.__name__, _factory)


def make_message(spec: str, obs_shape: Sequence[int], size: int, *, field: str = "message") -> Message:
    """A message function from its name, or its name with settings: `mlp`, `mlp(hidden=[16], scale=3.14)`.

    Args:
      spec: mlp, linear, quadratic, echo, constant, table, lstm or turn, or one that was registered.
      obs_shape: of what it is about.
      size: entries of a message.
      field: what the spec is of, for messages about errors.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed.

    Example:
      >>> import attacks, jax.numpy as jnp
      >>> message = attacks.make_message("echo", (2,), size=2)
      >>> message.speak(jnp.array([1.0, 2.0]), jnp.array([0.5, 1.0])).tolist()  # 1 x 0.5 + 2 x 1, in both entries
      [2.5, 2.5]
    """
    if not isinstance(obs_shape, tuple | list) or not all(isinstance(x, int) and x > 0 for x in obs_shape):
        raise ValueError(f"obs_shape: got {shown(obs_shape)}; a tuple of whole numbers of at least 1 is needed")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"size: got {shown(size)}; a whole number of at least 1 is needed")
    return MESSAGES.make(field, spec, obs_shape, size)
