"""Fresh trials of pairs of agents in sampled games."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from games import Game
from marl.core.learn import learn
from marl.experiments.shaping.agents import Agent, is_path, of_training
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.sampled import share_of_trials
from marl.shapers.registry import SAMPLED
from meta.batched_trials import compile_trials, run_trials

AT_ONCE = 32  # trials that are played together on a device


class Lengths(NamedTuple):
    """Lengths of a trial in a sampled game."""

    meta_steps: int = 100  # learning steps of a learner
    episode_length: int = 100  # steps of the game before each of them
    num_envs: int = 2  # environments in which an agent learns at once


def sampled_shaping_config(
    spec: str, environment: str, lengths: Lengths, **settings: Any
) -> SampledShapingConfig | None:
    """The config of a shaper by its name and an opponent's, as in `shaper:reinforce`; None for others.

    Args:
      spec: of an agent. The name alone, as in `shaper`, is one that needs no training.
      environment: the game, by its name.
      lengths: of a trial.
      **settings: further fields of `SampledShapingConfig`.
    """
    shaper, colon, opponent = (part.strip() for part in spec.partition(":"))
    if not colon or shaper.split("(")[0] not in SAMPLED or is_path(spec):
        return None
    settings |= lengths._asdict()
    return SampledShapingConfig(environment=environment, shaper=shaper, opponent=opponent, **settings)


def num_trainings(*agents: Agent) -> int:
    """The number of trainings of the agents that were trained before; 0 if none of them was.

    It is the smaller number of both, because an error over ten pairs of trainings would be too small where one side has
    three.
    """
    return min((agent.config.seeds for agent in agents if agent.config), default=0)


def play_pair(
    game: Game, row: Agent, column: Agent, keys: jax.Array, lengths: Lengths, *, last_meta_steps: int = 0
) -> dict[str, np.ndarray]:
    """Fresh trials of two agents; a learner learns from scratch in each.

    Trial i is played by training i of shapers that were trained several times, beginning again after the last one of
    the agent with the fewest.

    Args:
      game: of two players.
      row: sits in the first seat.
      column: sits in the second.
      keys: one for each trial; as many for every training.
      lengths: of a trial.
      last_meta_steps: how many of its learning steps count, the last ones; 0 for all.

    Returns:
      `[2, trials]` each: `return`, the mean reward in a step; in the coin game `own_coin_share`, how much of what a
      player took was its own.
    """

    def trial(key: jax.Array, parameters: Any) -> dict[str, Any]:
        players = [agent.learner(own) for agent, own in zip(agents[0], parameters, strict=True)]
        meta_steps, steps, num_envs = lengths
        history = learn(key, game, players, num_updates=meta_steps, steps_per_update=steps, num_envs=num_envs)
        coins = {name: x[-last_meta_steps:] for name, x in history.infos.items() if name in ("own_coin", "other_coin")}
        return {"return": tuple(seat[-last_meta_steps:].mean() for seat in history.rewards), "coins": coins}

    number = max(1, num_trainings(row, column))
    agents = [[of_training(agent, i) for agent in (row, column)] for i in range(number)]
    parameters = [tuple(agent.parameters for agent in both) for both in agents]
    program = compile_trials(trial, parameters[0], len(keys) // number, AT_ONCE)
    played = [run_trials(program, keys[i::number], parameters[i]) for i in range(number)]
    found = jax.tree.map(lambda *x: np.stack(x, 1).reshape(-1, *x[0].shape[1:]).astype(np.float64), *played)
    shares = {"own_coin_share": share_of_trials("own_coin", found["coins"]).T} if found["coins"] else {}
    return {"return": np.stack(found["return"]), **shares}
