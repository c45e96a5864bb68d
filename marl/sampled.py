"""The meta-game in a sampled game: shapers with fixed parameters among players that learn after every episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from games import Game
from marl.learn import History, Learner, learn
from marl.sampled_shapers import Policy, player
from meta import Outcome


def play_sampled(
    key: jax.Array,
    game: Game,
    policy: Policy,
    parameters: Any,
    opponents: Sequence[Learner],
    *,
    num_episodes: int,
    episode_length: int,
    num_envs: int,
    keep_trajectories: bool = False,
) -> History:
    """One trial: the opponents learn after every episode, which all play at once in several environments.

    Args:
      key: of the trial.
      game: whose first agents are the shapers; there are as many as the game has more agents than opponents.
      policy: of every shaper. Each has a memory of its own.
      parameters: of the policy.
      opponents: the learners.
      num_episodes: learning steps of the opponents.
      episode_length: steps of the game between two of them; its own episodes need not be as long.
      num_envs: environments of a trial.
      keep_trajectories: as of `learn`.

    Source: Lu et al. (2022), arXiv:2205.01447, section 3; several environments: Khan et al. (2023), arXiv:2312.12568.
    """
    shapers = [player(policy, parameters, num_envs)] * (game.num_agents - len(opponents))
    return learn(
        key,
        game,
        [*shapers, *opponents],
        num_updates=num_episodes,
        steps_per_update=episode_length,
        num_envs=num_envs,
        keep_trajectories=keep_trajectories,
    )


def sampled_trial(
    game: Game, policy: Policy, opponents: Sequence[Learner], **settings: Any
) -> Callable[[Any, jax.Array], Outcome]:
    """A trial for `evolve`: the shapers' mean reward in a step, over the opponents' whole learning, is the fitness.

    Each of the trials that `evolve` gives a candidate has opponents of its own.

    Args:
      game: as of `play_sampled`.
      policy: what is evolved.
      opponents: as of `play_sampled`.
      **settings: of `play_sampled`: `num_episodes`, `episode_length`, `num_envs`.

    Returns:
      `trial(parameters, key) -> Outcome`, with the metrics `shaper_return` and `opponent_return`, both rewards in a
      step, means over the players of a kind.
    """
    num_shapers = game.num_agents - len(opponents)

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        rewards = play_sampled(key, game, policy, parameters, opponents, **settings).rewards
        own, others = (jnp.stack(some).mean() for some in (rewards[:num_shapers], rewards[num_shapers:]))
        return Outcome(own, {"shaper_return": own, "opponent_return": others})

    return trial
