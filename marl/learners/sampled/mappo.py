"""Multi-agent PPO: the policy sees the own observation, and the value those of all players."""

from __future__ import annotations

from typing import Any

from flax import struct

from games import Box, Game
from games.core.arguments import factory
from marl.blocks.distributions import distribution
from marl.blocks.networks import Network, central_critic, feed_forward
from marl.core.learner import Learner
from marl.learners.sampled.ppo import ppo


@factory
def mappo(
    game: Game, seat: int = 0, *, network: Network | None = None, critic: Network | None = None, **settings: Any
) -> Learner:
    """PPO with a central critic: while it learns, the value sees the observations of all players.

    The update is that of `ppo`. The policy is a function of the own observation o_i alone, and the value one of
    (o_i, o_{i+1}, ..., o_{i-1}) along the last axis, the own one first: vectors end to end, or images with their
    channels stacked. So `marl.shared` gives each seat a value of its own reward with one network for all. `learn` puts
    the observations together, and a batch holds as many times more numbers as there are players.

    Args:
      game: what is played, by players with observations of one shape.
      seat: its number among the game's agents.
      network: of the policy, `feed_forward` of the own observation by default.
      critic: of the value, `feed_forward` of all observations by default: `[..., players * entries]` on the last axis.
      **settings: of `ppo`.

    Raises:
      ValueError: as `ppo`, and for observations that differ in shape.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("coin_game")
      >>> team = marl.shared(marl.mappo(game, minibatches=2), game)  # one network for both seats
      >>> history = marl.learn(jax.random.key(0), game, [team], num_updates=2, steps_per_update=4, num_envs=2)
      >>> [reward.shape for reward in history.rewards]
      [(2,), (2,)]

    Source: Yu et al., The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games (2022), arXiv:2103.01955,
    with the observations of all for the state, and without the normalisation of values.
    """
    agent, joint = game.agents[seat], JointSpaces(game)
    own, every = game.observation_space(agent).shape, joint.observation_space(agent).shape
    actions = distribution(game.action_space(agent))
    network = network or feed_forward(own, actions.num_outputs, num_scales=actions.num_scales)
    critic = critic or feed_forward(every, actions.num_outputs, num_scales=actions.num_scales)
    learner = ppo(joint, seat, network=central_critic(network, critic, own[-1]), **settings)
    return learner._replace(sees_all=True)


@struct.dataclass(eq=False)
class JointSpaces(Game):
    """The spaces of a game in which each player sees the observations of all, its own first."""

    game: Game

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        return self.game.num_agents

    @property
    def agents(self) -> list[str]:
        return self.game.agents

    def action_space(self, agent: str) -> Any:
        return self.game.action_space(agent)

    def observation_space(self, agent: str) -> Box:
        spaces = [self.game.observation_space(one) for one in self.agents]
        boxes = [space for space in spaces if isinstance(space, Box) and space.shape]
        if len(boxes) < len(spaces) or any(box.shape != boxes[0].shape for box in boxes):
            got = ", ".join(str(getattr(space, "shape", space)) for space in spaces)
            raise ValueError(f"observations: got {got}; arrays of one shape for all players are needed")
        *rest, last = boxes[0].shape
        return Box(-float("inf"), float("inf"), (*rest, last * len(boxes)), image=boxes[0].image)
