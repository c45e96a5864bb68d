"""Two agents of a sampled game at one table: who they are, and what each gets from the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from games import Game
from marl.core.learn import learn
from marl.experiments.shaping.agents import Agent, is_path
from marl.experiments.shaping.config import ShapingConfig
from marl.shapers.registry import SAMPLED
from meta.fresh import compile_trials, play_trials

AT_ONCE = 32  # trials that are played together on a device


class Lengths(NamedTuple):
    """How long a trial in a sampled game is."""

    episodes: int = 100  # learning steps of whoever learns, one after each
    episode_length: int = 100  # steps of the game between two of them
    num_envs: int = 2  # environments in which an agent learns at once


def sampled_shaping_config(spec: str, environment: str, lengths: Lengths, **settings: Any) -> ShapingConfig | None:
    """How a shaper is trained that is meant by its name and an opponent's: `shaper:reinforce`; None for others.

    Args:
      spec: of an agent. The name alone, as in `shaper`, is one that needs no training.
      environment: the game, by its name.
      lengths: of a trial.
      **settings: further fields of `ShapingConfig`.
    """
    shaper, colon, opponent = (part.strip() for part in spec.partition(":"))
    if not colon or shaper.split("(")[0] not in SAMPLED or is_path(spec):
        return None
    return ShapingConfig(environment=environment, shaper=shaper, opponent=opponent, **lengths._asdict(), **settings)


def play_pair(game: Game, row: Agent, column: Agent, keys: jax.Array, lengths: Lengths) -> np.ndarray:
    """Fresh trials of two agents, from scratch: the mean rewards in a step of each, `[2, trials]`.

    Args:
      game: of two players.
      row: sits in the first seat.
      column: sits in the second.
      keys: one for each trial.
      lengths: of a trial.
    """

    def trial(key: jax.Array, parameters: Any) -> tuple[jax.Array, ...]:
        players = [agent.learner(own) for agent, own in zip((row, column), parameters, strict=True)]
        settings = {"num_updates": lengths.episodes, "steps_per_update": lengths.episode_length}
        rewards = learn(key, game, players, num_envs=lengths.num_envs, **settings).rewards
        return tuple(seat.mean() for seat in rewards)

    parameters = (row.parameters, column.parameters)
    program = compile_trials(trial, parameters, len(keys), AT_ONCE)
    return np.stack(play_trials(program, keys, parameters, AT_ONCE)).astype(np.float64)
