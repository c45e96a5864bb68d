"""Random play, in which victims begin: what is seen there, and in which units."""

from __future__ import annotations

import jax
import numpy as np

from games import Game, rollout
from games.wrappers.goals import GoalConditioned


def observations_of_play(game: Game) -> np.ndarray:
    """Observations of random play, `[number, *obs_shape]`."""
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, 64)))(jax.random.split(jax.random.key(0), 64))
    observations = np.asarray(played.observations["agent_0"])
    return observations.reshape(-1, *observations.shape[2:])


def units_of_play(game: Game) -> list[float]:
    """The standard deviation of each entry of an observation in random play; 1 where it does not change."""
    observations = observations_of_play(game)
    return _units(observations.reshape(len(observations), -1))


def units_of_goals(game: Game) -> list[float]:
    """The standard deviation of each entry of a goal."""
    steered = GoalConditioned(game)
    goals = jax.vmap(lambda key: steered.reset(key)[1].goal)(jax.random.split(jax.random.key(0), 1024))
    return _units(np.asarray(goals))


def ends_early(game: Game, limit: int) -> bool:
    """True if some episode of random play ends before its time limit."""
    played = jax.jit(jax.vmap(lambda key: rollout(key, game, max(limit - 1, 1)).dones["__all__"].any()))
    return bool(played(jax.random.split(jax.random.key(0), 64)).any())


def _units(values: np.ndarray) -> list[float]:
    """Standard deviations to two digits; 1 of a constant, of which rounding may leave a small one."""
    deviations = np.where((values == values[0]).all(0), 0.0, values.std(0))
    return [float(f"{x:.2g}") if x > 0 else 1.0 for x in deviations]
