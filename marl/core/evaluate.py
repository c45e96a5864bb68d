"""Evaluation of a learner: whole episodes, without exploration and without learning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from games import Game, Rollout, SocialMetrics, social_metrics
from games.core.arguments import check_arguments, check_game
from games.core.fingerprint import compiled_once
from games.core.game import Infos
from marl.core.learner import Learner, Memory, Parameters
from marl.core.learner_checks import check_key, check_learners, check_number, check_state
from marl.core.seats import seats_of


@check_arguments
def evaluate(
    key: jax.Array,
    game: Game,
    learner: Learner,
    state: Any,
    *,
    num_episodes: int,
    num_steps: int,
    num_envs: int | None = None,
) -> jax.Array:
    """Returns of fresh episodes of a single-player game, `[num_episodes]`.

    Called as it is, it is compiled once for the same game, learner and numbers, as `learn` is.

    Args:
      key: of everything that is drawn.
      game: of one player.
      learner: acts by its `act_greedy`, or by `act` where it has none.
      state: of the learner; it stays as it is.
      num_episodes: played at once.
      num_steps: an episode that is not over by then counts as far as it went.
      num_envs: of `num_episodes`, how many share a step: a divisor of them; all if None.

    Raises:
      ValueError: for a game of several players, or if `num_envs` does not divide the number of episodes.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("CartPole-v1", max_steps_in_episode=8)  # no pole falls sooner
      >>> learner = marl.make_learner("random", game)
      >>> state = learner.init(jax.random.key(0))
      >>> marl.evaluate(jax.random.key(1), game, learner, state, num_episodes=2, num_steps=8).tolist()
      [8.0, 8.0]
    """
    check_key(key)
    _check_sizes(num_episodes, num_steps, num_envs)
    check_game(game)
    check_state(learner, state)
    num_envs = num_envs or num_episodes
    if game.num_agents != 1:
        raise ValueError(f"game: got one of {game.num_agents} players; a game of one is needed")
    if num_episodes % num_envs:
        raise ValueError(f"num_episodes: got {num_episodes}; a multiple of num_envs, {num_envs}, is needed")
    return _compiled_play(key, game, [learner], [state], (num_episodes, num_steps, num_envs)).returns[:, 0]


def _check_sizes(num_episodes: int, num_steps: int, num_envs: int | None) -> None:
    sizes = {"num_episodes": num_episodes, "num_steps": num_steps, "num_envs": 1 if num_envs is None else num_envs}
    for name, number in sizes.items():
        check_number(name, number)


class TeamEvaluation(NamedTuple):
    """Fresh episodes of several players.

    Attributes:
      returns: `[num_episodes, num_agents]`.
      infos: sums over an episode of what the game counts, `[num_episodes, num_agents]` each.
      social: efficiency, equality, sustainability and peace, `[num_episodes]` each, as of `games.social_metrics`.
    """

    returns: jax.Array
    infos: Infos
    social: SocialMetrics


@check_arguments
def evaluate_team(
    key: jax.Array,
    game: Game,
    learners: Sequence[Learner],
    states: Sequence[Any],
    *,
    num_episodes: int,
    num_steps: int,
    num_envs: int | None = None,
) -> TeamEvaluation:
    """Returns of fresh episodes of all players together, without exploration and without learning.

    Args:
      key: of everything that is drawn.
      game: of any number of players.
      learners: as of `learn`, so that one may hold several seats.
      states: of the learners; they stay as they are.
      num_episodes: as of `evaluate`.
      num_steps: as of `evaluate`.
      num_envs: as of `evaluate`.

    Raises:
      ValueError: as `learn` for the learners, for another number of states, or if `num_envs` does not divide the
        number of episodes.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("coin_game", episode_length=4)
      >>> team = marl.shared(marl.ppo(game), game)
      >>> states = [team.init(jax.random.key(0))]
      >>> found = marl.evaluate_team(jax.random.key(1), game, [team], states, num_episodes=3, num_steps=4)
      >>> found.returns.shape, found.infos["own_coin"].shape
      ((3, 2), (3, 2))
    """
    check_key(key)
    _check_sizes(num_episodes, num_steps, num_envs)
    check_learners(game, learners)
    if len(states) != len(learners):
        raise ValueError(f"states: got {len(states)}; {len(learners)}, one for each learner, are needed")
    for learner, state in zip(learners, states, strict=True):
        check_state(learner, state)
    if num_episodes % (num_envs or num_episodes):
        raise ValueError(f"num_envs: got {num_envs}; a divisor of the {num_episodes} episodes is needed")
    return _compiled_play(key, game, learners, states, (num_episodes, num_steps, num_envs or num_episodes))


def _compiled_play(
    key: jax.Array, game: Game, learners: Sequence[Learner], states: Sequence[Any], sizes: tuple[int, int, int]
) -> TeamEvaluation:
    """The episodes by one program, compiled once for the same game, learners and sizes; within a trace a part of it."""
    play = compiled_once(partial(_play, game, tuple(learners), sizes), key, game, states)
    return play(key, tuple(states))


def _play(
    game: Game,
    learners: Sequence[Learner],
    sizes: tuple[int, int, int],
    key: jax.Array,
    states: Sequence[Any],
) -> TeamEvaluation:
    num_episodes, num_steps, num_envs = sizes
    policies = [learner.policy(state) for learner, state in zip(learners, states, strict=True)]
    seats = seats_of(game, learners, num_envs)

    def step(carry: Any, keys: Any) -> tuple[Any, Any]:
        observations, game_state, memories, found, going = carry
        act_key, step_keys = keys
        act_keys = [act_key] if len(learners) == 1 else jax.random.split(act_key, len(learners))
        acted = [
            act_best(learner, k, policy, memory, own.observe(observations))
            for learner, k, policy, memory, own in zip(learners, act_keys, policies, memories, seats, strict=True)
        ]
        actions = {k: x for own, (rows, _) in zip(seats, acted, strict=True) for k, x in own.by_agent(rows).items()}
        observations, game_state, rewards, dones, infos = jax.vmap(game.step_env)(step_keys, game_state, actions)
        by_seat = jnp.stack([rewards[agent] for agent in game.agents], 1)
        chex.assert_shape(by_seat, (num_envs, game.num_agents))
        counts = {name: x for name, x in infos.items() if name != "truncated"}
        ends = dones["__all__"]
        found = jax.tree.map(lambda x, now: x + jnp.where(going[:, None], now, 0.0), found, (by_seat, counts))
        measured = {name: counts[name] for name in ("away", "bare_reward") if name in counts}
        # The steps after the first end are of no whole episode, and may be anything.
        rewards = {agent: jnp.where(going, x, 0.0) for agent, x in rewards.items()}
        measured = {name: jnp.where(going[:, None], x, 0) for name, x in measured.items()}
        kept = rewards, {"__all__": ends & going}, measured
        return (observations, game_state, [memory for _, memory in acted], found, going & ~ends), kept

    def play(key: jax.Array) -> TeamEvaluation:
        reset_key, act_key, step_key = jax.random.split(key, 3)
        observations, game_state = jax.vmap(game.reset)(jax.random.split(reset_key, num_envs))
        keys = jax.random.split(act_key, num_steps), jax.random.split(step_key, (num_steps, num_envs))
        memories = [
            learner.init_memory(policy, own.num_rows)
            for learner, policy, own in zip(learners, policies, seats, strict=True)
        ]
        counted = jax.eval_shape(jax.vmap(game.step_env), keys[1][0], game_state, _actions(game, num_envs))[4]
        none = {name: jnp.zeros((num_envs, game.num_agents)) for name in counted if name != "truncated"}
        carry = observations, game_state, memories, (jnp.zeros((num_envs, game.num_agents)), none)
        (*_, found, _), kept = jax.lax.scan(step, (*carry, jnp.ones(num_envs, bool)), keys)
        rewards, dones, measured = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), kept)  # [num_envs, num_steps, ...]
        social = social_metrics(Rollout(game, (), {}, {}, rewards, dones, measured, ()))
        return TeamEvaluation(*found, social._replace(counts={}))

    found = jax.vmap(play)(jax.random.split(key, num_episodes // num_envs))
    return jax.tree.map(lambda x: x.reshape(num_episodes, *x.shape[2:]), found)


def _actions(game: Game, num_envs: int) -> dict[str, jax.Array]:
    """Actions of the right shapes, `[num_envs, ...]`."""
    spaces = {agent: game.action_space(agent) for agent in game.agents}
    return {agent: jnp.zeros((num_envs, *space.shape), space.dtype) for agent, space in spaces.items()}


def act_best(
    learner: Learner, key: jax.Array, policy: Parameters, memory: Memory, obs: jax.Array
) -> tuple[jax.Array, Memory]:
    """(action, memory) by the learner's `act_greedy`, or by its `act` where it has none."""
    if learner.act_greedy:
        return learner.act_greedy(policy, memory, obs)
    return learner.act(key, policy, memory, obs)[:2]
