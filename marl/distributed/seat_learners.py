"""Learners for all seats of a game, made from their specs."""

from __future__ import annotations

from typing import Any

from configs.specs import change, read
from games import Game
from marl.core.league import past_selves
from marl.core.learner import Learner
from marl.distributed.config import STEPS
from marl.learners.registry import SAMPLED, make_learner, terms

LARGE = 36  # images of which a side is at least this get the network of large images
MEMORY = 512  # of that network, of a learner that needs one; R2D2's size


def make_learners(spec: str, game: Game, num_updates: int, past_share: float | None = None) -> list[Learner]:
    """Makes a learner for each agent.

    Args:
      spec: of one learner for all agents, or of one for each with a plus between them.
      game: its agents and spaces.
      num_updates: number of updates, for settings that fall over the training.
      past_share: share of the updates against an earlier policy, in self-play; None without self-play.

    Raises:
      ValueError: if there are not as many learners as agents, or if one does not fit the environment.
    """
    specs = [one.strip() for one in terms(spec)]
    spaces = [str((game.observation_space(agent), game.action_space(agent))) for agent in game.agents]
    if past_share is not None:
        if len(specs) > 1 or game.num_agents < 2 or len(set(spaces)) > 1:
            raise ValueError(
                "past_selves: got one learner for seats that are not alike; a game in which all see and "
                "do the same, of two players at least, is needed"
            )
        learner = make_learner(suited(specs[0], game, 0), game, num_updates=num_updates)
        return [learner, *[past_selves(learner, past_share)] * (game.num_agents - 1)]
    specs = specs * game.num_agents if len(specs) == 1 else specs
    if len(specs) != game.num_agents:
        raise ValueError(f"learner: got {len(specs)}; one, or {game.num_agents}, one for each agent, are needed")
    learners: list[Learner] = []
    made: dict[Any, Learner] = {}  # seats that are alike share a learner, which is traced and compiled once
    for seat, one in enumerate(specs):
        learns_from_its_own = read("learner", one, "ppo")[0] in STEPS
        alike = (one, spaces[seat] if learns_from_its_own else seat)
        if alike not in made:
            made[alike] = make_learner(suited(one, game, seat), game, seat, num_updates=num_updates)
            if made[alike].sees_all and game.num_agents > 1:
                raise ValueError(f"learner: got {one}; a learner that sees its own observation alone is needed")
        learners.append(made[alike]._replace(seat=seat))
    return learners


def suited(spec: str, game: Game, seat: int) -> str:
    """A learner's spec, with the network of large images if its seat sees them and the spec names no network."""
    space: Any = game.observation_space(game.agents[seat])
    name, given = read("learner", spec, "ppo")
    large = getattr(space, "image", False) and min(space.shape[:2]) >= LARGE
    if not large or "network" in given or name not in STEPS or "network" not in SAMPLED.settings(name):
        return spec
    memory = {"memory": MEMORY} if name == "r2d2" else {}
    return change(spec, **{"network": "nature", **memory, **given})
