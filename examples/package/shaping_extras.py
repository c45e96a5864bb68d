"""A package of extensions: a game, a learner, a shaper and a message function, each a factory.

Its pyproject.toml names them as entry points. Once it is installed, commands and functions know the names:

    python -m games deadlock
    python -m marl.mfos ipd --shaper tilted --opponent "sign_naive(step=0.2)"
    python -m attacks.act cartpole --message "sine(frequency=2)"
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

import games
import marl
from attacks import Message


def deadlock(*, episode_length: int = 100) -> games.Game:
    """Iterated deadlock: both prefer mutual defection to mutual cooperation."""
    payoffs = [[[1.0, 1.0], [0.0, 3.0]], [[3.0, 0.0], [2.0, 2.0]]]
    return games.make("matrix_game", payoffs=payoffs, episode_length=episode_length)


def sign_naive(game: games.InfinitelyRepeated, seat: int = 0, *, step: float = 0.1) -> marl.Learner:
    """Ascends its exact payoff by steps of one size: only the sign of each entry of the gradient counts.

    Args:
      game: a formula game.
      seat: of the learner, 0 or 1.
      step: size of a step in each logit.
    """
    naive = marl.naive(game, seat, learning_rate=1.0)

    def update(key, state, trajectory):
        after, metrics = naive.update(key, state, trajectory)  # a step of the whole gradient
        direction = jnp.sign(after.logits - state.logits)
        return after._replace(logits=state.logits + step * direction), metrics

    return naive._replace(update=update)


def tilted(game: games.InfinitelyRepeated, seat: int = 0, *, tilt: float = 2.0) -> marl.Shaper:
    """One fixed policy, as of Good Shepherd, of which the search begins near defection.

    Args:
      game: a formula game.
      seat: of the shaper.
      tilt: what is subtracted from the logits in the beginning.
    """
    shepherd = marl.shapers.good_shepherd(game, seat)
    return shepherd._replace(init=lambda key: shepherd.init(key) - tilt)


def sine(obs_shape: Sequence[int], size: int, *, frequency: float = 1.0) -> Message:
    """Sines of linear functions of the observation.

    Args:
      obs_shape: of the observation.
      size: entries of a message.
      frequency: of the sines.
    """
    (entries,) = obs_shape

    def speak(parameters: jax.Array, obs: jax.Array) -> jax.Array:
        return jnp.sin(frequency * obs @ parameters)

    return Message(lambda key: jax.random.normal(key, (entries, size)), speak)
