"""Social metrics of play: how much the players get, how evenly, how long, and how peacefully."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from games.core.arguments import check_arguments
from games.core.modes import in_any_mode
from games.core.rollout import Rollout


class SocialMetrics(NamedTuple):
    """Social outcome metrics of a rollout, means over its episodes; `[...]` are the axes before the steps.

    Attributes:
      efficiency: U, `[...]`: the rewards of all players together, per step.
      equality: E, `[...]`: 1 - the Gini coefficient of the players' returns, from 0 to 1, where all get alike.
      sustainability: S, `[...]`: the mean step of the episode, counted from 1, in which a player has a positive reward,
        averaged over the players that have any; 0 without any.
      peace: P, `[...]`: how many players are not away (tagged out, zapped), averaged over the steps; None for a game
        that does not count `away` in its infos.
      counts: what the game counts in its infos, `[..., n]` each: sums per episode and player.
    """

    efficiency: jax.Array
    equality: jax.Array
    sustainability: jax.Array
    peace: jax.Array | None
    counts: dict[str, jax.Array]


@in_any_mode
@check_arguments
def social_metrics(played: Rollout) -> SocialMetrics:
    """Efficiency, equality, sustainability and peace of a rollout, and sums of what its game counts.

        U = sum_i R_i / T,    E = 1 - sum_ij |R_i - R_j| / (2 n sum_i |R_i|),
        S = mean_i mean(t where r_i^t > 0),    P = sum of players that are not away / T

    with the return R_i of player i in an episode of T steps. The paper's E has sum_i R_i below the line, which is the
    same for returns of one sign; with absolute values E stays in [0, 1]. E is 1 where all returns are 0. Rewards are
    those of the game itself (`bare_reward` in the infos) where a wrapper pays others.

    The means are over the whole episodes of a rollout; if none is whole, over the steps that there are of the first.

    Args:
      played: of `games.rollout`, `[..., T]`; leading axes are those of `jax.vmap`.

    Returns:
      The metrics, by `jax.jit` too.

    Source: Perolat et al., A Multi-Agent Reinforcement Learning Model of Common-Pool Resource Appropriation (2017),
    arXiv:1707.06600.

    Example:
      >>> import games, jax, jax.numpy as jnp
      >>> def act(key, observations):
      ...     return dict(zip(observations, map(jnp.int32, (0, 1, 1, 1))))  # one gives, three keep
      >>> played = games.rollout(jax.random.key(0), games.make("public_goods"), 5, act)
      >>> metrics = games.social_metrics(played)
      >>> round(float(metrics.efficiency), 2), round(float(metrics.equality), 2)  # 0.4 + 3 x 1.4; 1 - 6 / (8 x 4.6)
      (4.6, 0.84)
    """
    rewards = jnp.stack([jnp.asarray(x, jnp.float32) for x in played.rewards.values()], -1)
    infos = {name: x for name, x in played.infos.items() if name != "truncated"}
    one = _metrics
    for _ in range(rewards.ndim - 2):
        one = jax.vmap(one)
    return one(infos.pop("bare_reward", rewards), played.dones["__all__"], infos)


def _metrics(rewards: jax.Array, done: jax.Array, infos: dict[str, jax.Array]) -> SocialMetrics:
    """The metrics of rewards `[T, n]`, ends `[T]` and infos `[T, n]`."""
    steps, n = rewards.shape
    episode = jnp.cumsum(done) - done  # the number of each step's episode

    def per_episode(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, episode, steps)

    length = per_episode(jnp.ones(steps))
    begins = jnp.cumsum(length) - length
    time = jnp.arange(1, steps + 1) - begins[episode]
    whole = per_episode(done.astype(jnp.float32))
    weights = jnp.where(done.any(), whole, jnp.arange(steps) == 0)
    weights /= weights.sum()
    length = jnp.maximum(length, 1)  # of episodes that there are not

    returns = per_episode(rewards)
    apart = jnp.abs(returns[:, :, None] - returns[:, None]).sum((1, 2))
    total = jnp.abs(returns).sum(1)
    equality = 1 - apart / jnp.where(total > 0, 2 * n * total, 1)
    positive = rewards > 0
    number = per_episode(positive.astype(jnp.float32))
    when = per_episode(positive * time[:, None]) / jnp.maximum(number, 1)
    sustainability = when.sum(1) / jnp.maximum((number > 0).sum(1), 1)
    away = infos.get("away")
    peace = None if away is None else weights @ (n - per_episode(away.astype(jnp.float32)).sum(1) / length)
    return SocialMetrics(
        weights @ (returns.sum(1) / length),
        weights @ equality,
        weights @ sustainability,
        peace,
        {name: weights @ per_episode(x.astype(jnp.float32)) for name, x in infos.items()},
    )
