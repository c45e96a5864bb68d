"""The inner loop: a whole learning trajectory of every player, from scratch to the end, as one pure function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from games.core.fingerprint import compiled_once
from games.core.spaces import Space
from marl.core.learner import Learner, LearnerState, Memory, Metrics, Parameters, Trajectory
from marl.core.learner_checks import check_key, check_learners, check_number, checked
from marl.core.seats import seats_of
from meta.xla.backend import unrolled
from meta.xla.barriers import computed_once, drawn_apart


class History(NamedTuple):
    """Result of `learn`. `K` is the number of updates; tuples are in the order of the game's agents.

    Those of learners have one entry each, which are fewer where a learner plays in several seats.

    Attributes:
      rewards: `[K]` each: mean reward over the steps and environments of an update
      mean_returns: `[K]` each: mean return of the episodes that ended before an update, 0 if none
      ended: `[K]` each: how many these were
      metrics: what the learners' updates report, `[K, ...]`, one of each learner
      infos: what the game counts, `[K, num_agents]` each: means over the steps and environments of an update
      trajectories: `[K, T, N, ...]` of each learner, when asked for
      game_states: before each step, `[K, T, N, ...]`, with the trajectories
      states: the learners in the end
      game_state: in the end, `[N, ...]`
    """

    rewards: tuple[jax.Array, ...]
    mean_returns: tuple[jax.Array, ...]
    ended: tuple[jax.Array, ...]
    metrics: tuple[Metrics, ...]
    infos: Metrics
    trajectories: tuple[Trajectory, ...] | None
    game_states: Any
    states: tuple[LearnerState, ...]
    game_state: Any = ()

    @property
    def returns(self) -> tuple[Any, ...]:
        """`[K]` each: mean return of the episodes that ended before an update, NaN if none.

        The NaN is put there by NumPy, after the program, because `jax_debug_nans` stops a program that returns one.
        """
        return tuple(
            jnp.where(number > 0, x, jnp.nan)
            if isinstance(x, jax.core.Tracer)
            else np.where(np.asarray(number) > 0, np.asarray(x), np.float32(np.nan))
            for x, number in zip(self.mean_returns, self.ended, strict=True)
        )


class Episodes(NamedTuple):
    """Returns of one player since the last update, `[N]` each."""

    going: jax.Array  # the return so far of the episode that is going on, whenever it began
    finished: jax.Array  # sum of the returns of those that ended
    ended: jax.Array  # how many ended


def learn(
    key: jax.Array,
    game: Game,
    learners: Sequence[Learner],
    *,
    num_updates: int,
    steps_per_update: int = 1,
    num_envs: int | None = None,
    observe: Callable[..., dict[str, jax.Array]] | None = None,
    keep_trajectories: bool = False,
) -> History:
    """Lets every learner learn from every other: `num_updates` times, all play and then all update.

    Unbatched in keys and hyperparameters: `jax.vmap` it over either, `jax.jit` it once. Called as it is, it is compiled
    once for the same game, learners and lengths; learners of the same factory and settings are the same.

    Args:
      key: one typed key, which makes the initial states and everything that is drawn on the way.
      game: the game whose `step_env` is played, with its `auto_reset` after.
      learners: one for each of `game.agents`, in that order; or one for several seats in a row, as of `marl.shared`.
      num_updates: number of updates of every learner (K).
      steps_per_update: steps of the game between two updates (T).
      num_envs: environments in which the learners play at once (N); None for no such axis.
      observe: as of `learning`.
      keep_trajectories: whether to return every transition as well.

    Returns:
      The `History`.

    Raises:
      ValueError: if there are not as many learners as players, if `make_learner` made one for another seat, or for a
        number, a key or an action that does not fit.
      TypeError: if a learner returns something else than it should.

    Example:
      >>> import games, jax, marl
      >>> game = games.InfinitelyRepeated(games.prisoners_dilemma, discount=0.0)  # played once
      >>> players = [marl.naive(game, seat, learning_rate=10.0) for seat in (0, 1)]
      >>> history = marl.learn(jax.random.key(0), game, players, num_updates=200)
      >>> [round(float(rewards[-1]), 2) for rewards in history.rewards]  # mutual defection
      [-2.0, -2.0]
    """
    check_key(key)
    check_learners(game, learners)
    check_number("num_updates", num_updates)
    settings = steps_per_update, num_envs, observe, keep_trajectories
    whole = partial(_learn, game, tuple(learners), num_updates, *settings)
    return compiled_once(whole, key, game)(key)


def _learn(
    game: Game,
    learners: Sequence[Learner],
    num_updates: int,
    steps_per_update: int,
    num_envs: int | None,
    observe: Callable[..., dict[str, jax.Array]] | None,
    keep_trajectories: bool,
    key: jax.Array,
) -> History:
    begin, update = learning(
        game,
        learners,
        steps_per_update=steps_per_update,
        num_envs=num_envs,
        observe=observe,
        keep_trajectories=keep_trajectories,
    )
    carry, run_key = begin(key)
    carry, found = jax.lax.scan(update, carry, jax.random.split(run_key, num_updates))
    return found._replace(states=carry.states, game_state=carry.game_state)


class Carry(NamedTuple):
    """The state that goes on from update to update, the entries `[N, ...]`."""

    observations: dict[str, jax.Array]
    game_state: Any
    states: tuple[LearnerState, ...]
    memories: tuple[Memory, ...]
    episodes: tuple[Episodes, ...]


def _actions(game: Game, agent: str) -> Space | None:
    """An agent's action space; None in a game that does not define it."""
    with contextlib.suppress(NotImplementedError):
        return game.action_space(agent)
    return None


def learning(
    game: Game,
    learners: Sequence[Learner],
    *,
    steps_per_update: int = 1,
    num_envs: int | None = None,
    observe: Callable[..., dict[str, jax.Array]] | None = None,
    keep_trajectories: bool = False,
) -> tuple[Callable[[jax.Array], tuple[Carry, jax.Array]], Callable[[Carry, jax.Array], tuple[Carry, History]]]:
    """`learn` in two parts, so that a run can be watched, saved or changed between updates.

    Args:
      game: what is played.
      learners: one for each of its agents.
      steps_per_update: steps of the game between two updates (T).
      num_envs: environments that a learner plays in at once (N).
      observe: `(observations, learner states) -> observations`, applied before the first step and after every update:
        what a meta-agent sees of the others' new parameters. None leaves the game's observations as they are.
      keep_trajectories: whether to return every transition as well.

    Returns:
      `begin(key) -> (carry, run key)`, and `update(carry, key) -> (carry, History)` with the key number i of
      `jax.random.split(run key, num_updates)`; that `History` is of one update, without the axis K, and without
      `states` and `game_state`.

    Raises:
      ValueError: as `learn`.
      TypeError: as `learn`.
    """
    check_learners(game, learners)
    check_number("steps_per_update", steps_per_update)
    if num_envs is not None:
        check_number("num_envs", num_envs)
    seats = seats_of(game, learners, num_envs)
    learners = [
        checked(learner, seat, own.num_rows, _actions(game, own.own[0]))
        for seat, (learner, own) in enumerate(zip(learners, seats, strict=True))
    ]
    see = observe or (lambda observations, states: observations)
    if num_envs is None:
        split, batch = (lambda key: key), (lambda function: function)
    else:
        split, batch = (lambda key: jax.random.split(key, num_envs)), jax.vmap
    reset_game, step_game, auto_reset = map(batch, (game.reset, game.step_env, game.auto_reset))

    def step(
        policies: Sequence[Parameters], carry: Carry, now: tuple[jax.Array, Any]
    ) -> tuple[Carry, tuple[tuple[Trajectory, ...], Metrics, Any]]:
        observations, game_state, states, memories, episodes = carry
        before = game_state
        number, (act_keys, step_key, reset_key) = now
        acted = [
            learner.act(k, policy, memory, own.observe(observations))
            for k, own, learner, policy, memory in zip(act_keys, seats, learners, policies, memories, strict=True)
        ]
        actions, memories, extras = zip(*acted, strict=True)
        if steps_per_update > 1:  # observations, rewards and the trajectory would each draw them again
            actions = computed_once(actions, number >= 0)
            step_key, reset_key = (drawn_apart(k, episodes[0].going) for k in (step_key, reset_key))
        played = {k: x for own, action in zip(seats, actions, strict=True) for k, x in own.by_agent(action).items()}
        after, game_state, rewards, dones, infos = step_game(step_key, game_state, played)
        truncated = {agent: infos["truncated"][..., i] for i, agent in enumerate(game.agents)}
        trajectories = tuple(
            Trajectory(
                own.observe(observations),
                actions[i],
                own.rows(rewards),
                own.rows(dones),
                extras[i],
                own.others(played),
                own.rows(truncated),
                own.observe(after),
                others_reward=own.others(rewards),
            )
            for i, own in enumerate(seats)
        )
        memories = tuple(
            learner.reset_memory(memory, own.rows(dones)) if learner.reset_memory else memory
            for own, learner, memory in zip(seats, learners, memories, strict=True)
        )
        episodes = tuple(
            # An episode ends for all at once, even if a player of an environment of others was out before.
            _count(one, rewards[agent], dones["__all__"])
            for one, agent in zip(episodes, game.agents, strict=True)
        )
        observations, game_state = auto_reset(reset_key, after, game_state, dones)
        return Carry(observations, game_state, states, memories, episodes), (trajectories, infos, before)

    def step_keys(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        act_key, step_key, reset_key = jax.random.split(key, 3)
        return jax.random.split(act_key, len(learners)), split(step_key), split(reset_key)

    def update(carry: Carry, key: jax.Array) -> tuple[Carry, Any]:
        play_key, update_key = jax.random.split(key)
        # All keys at once, for a few at a time cost more than a light game.
        keys = jax.vmap(step_keys)(jax.random.split(play_key, steps_per_update))
        policies = [learner.policy(state) for learner, state in zip(learners, carry.states, strict=True)]
        first = carry.memories
        carry, (trajectories, infos, played) = jax.lax.scan(
            partial(step, policies),
            carry,
            (jnp.arange(steps_per_update), keys),
            unroll=steps_per_update == 1 or unrolled(),
        )
        trajectories = tuple(
            trajectory._replace(first_memory=before, last_memory=after)
            for trajectory, before, after in zip(trajectories, first, carry.memories, strict=True)
        )
        updated = [
            learner.update(k, state, trajectory)
            for k, learner, state, trajectory in zip(
                jax.random.split(update_key, len(learners)), learners, carry.states, trajectories, strict=True
            )
        ]
        states, metrics = zip(*updated, strict=True)
        states = adopted(learners, states)
        # The barrier keeps XLA on the CPU from computing rewards inside the loop that stores them, in one thread.
        by_agent = [
            reward
            for own, trajectory in zip(seats, trajectories, strict=True)
            for reward in own.by_agent(trajectory.reward, axis=1).values()
        ]
        rewards = jax.lax.optimization_barrier(tuple(reward.mean() for reward in by_agent))
        ended = tuple(one.ended.sum() for one in carry.episodes)
        returns = tuple(
            one.finished.sum() / jnp.maximum(number, 1) for one, number in zip(carry.episodes, ended, strict=True)
        )
        begun = tuple(
            Episodes(one.going, jnp.zeros_like(one.going), jnp.zeros_like(one.going)) for one in carry.episodes
        )
        counts = {name: x.mean(range(x.ndim - 1)) for name, x in infos.items() if name != "truncated"}
        kept, states_kept = (trajectories, played) if keep_trajectories else (None, None)
        carry = carry._replace(observations=see(carry.observations, states), states=states, episodes=begun)
        return carry, History(rewards, returns, ended, metrics, counts, kept, states_kept, ())

    def begin(key: jax.Array) -> tuple[Carry, jax.Array]:
        reset_key, run_key, *init_keys = jax.random.split(key, 2 + len(learners))
        observations, game_state = reset_game(split(reset_key))
        states = adopted(learners, tuple(learner.init(k) for k, learner in zip(init_keys, learners, strict=True)))
        memories = tuple(
            learner.init_memory(learner.policy(state), own.num_rows)
            for own, learner, state in zip(seats, learners, states, strict=True)
        )
        none = jnp.zeros(() if num_envs is None else num_envs, jnp.float32)
        episodes = (Episodes(none, none, none),) * len(game.agents)
        return Carry(see(observations, states), game_state, states, memories, episodes), run_key

    return begin, update


def adopted(learners: Sequence[Learner], states: tuple[LearnerState, ...]) -> tuple[LearnerState, ...]:
    """The states, after every learner has copied what it needs from the others."""
    return tuple(
        learner.sync(state, states) if learner.sync else state for learner, state in zip(learners, states, strict=True)
    )


def check_update(game: Game, learners: Sequence[Learner], *, steps_per_update: int, num_envs: int | None) -> Carry:
    """Traces an update, so that what a learner cannot learn from is said before anything runs.

    Args:
      game: what is played.
      learners: as of `learning`.
      steps_per_update: as of `learning`.
      num_envs: as of `learning`.

    Returns:
      The shapes of what goes on from update to update.

    Raises:
      ValueError: if a learner says so, such as one whose minibatches do not divide the steps.
    """
    begin, update = learning(game, learners, steps_per_update=steps_per_update, num_envs=num_envs)
    carry, key = jax.eval_shape(begin, jax.random.key(0))
    jax.eval_shape(update, carry, key)
    return carry


def _count(episodes: Episodes, reward: jax.Array, done: jax.Array) -> Episodes:
    going = episodes.going + reward
    finished = episodes.finished + jnp.where(done, going, 0.0)
    return Episodes(jnp.where(done, 0.0, going), finished, episodes.ended + done.astype(jnp.float32))
