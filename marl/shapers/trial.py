"""The meta-game: a shaper against players that learn, scored over their whole learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from configs import shown
from games import Game, InfinitelyRepeated
from games.core.arguments import check_arguments, check_game
from games.core.modes import in_any_mode
from games.exact.matrix import state_visits
from marl.core.learn import History, learn
from marl.core.learner import Learner, LearnerState, Metrics
from marl.core.learner_checks import check_key, check_number
from marl.shapers.exact_policies import Shaper
from marl.shapers.sampled_policies import Policy
from meta import Outcome, scalarize


class Trials(NamedTuple):
    """Many trials of one shaper, `[trials, meta_steps]` each; in formula games the random first step is left out.

    Attributes:
      shaper_payoffs: average payoff of the shaper per round, or per step of a sampled game; a mean over several shapers
      opponent_payoffs: the same of the opponent
      shaper_policies: `[trials, meta_steps, logits]`, probabilities of the first action; None in a sampled game
      opponent_policies: the same of the opponent
      cooperation: `[trials, meta_steps, num_agents]`, shares of rounds in which each player takes its first action,
        shapers first; None in a sampled game that does not count them
      counts: what a sampled game counts, `[trials, meta_steps, num_agents]` each
      opponents: states of the opponents when they have learned, `[trials, ...]`, one for each
    """

    shaper_payoffs: jax.Array
    opponent_payoffs: jax.Array
    shaper_policies: Any
    opponent_policies: Any
    cooperation: Any
    counts: Metrics
    opponents: tuple[LearnerState, ...]


def play(
    key: jax.Array, game: InfinitelyRepeated, shaper: Learner, opponent: Learner, *, meta_steps: int, **options: Any
) -> History:
    """One trial of the meta-game: the shaper's policy, then one learning step of the opponent, again and again.

    Each player sees both policies as they stand after that learning step, all that the other has become; which matters
    to shapers only, and so a shaper may sit in either seat or in both. In the public code a shaper sees what the other
    played, before that step: `mfos(observe="before")`. The first step, which a shaper plays at random, is part of
    the returned history: `meta_steps + 1` updates.

    Args:
      key: of the trial.
      game: whose first agent is the shaper.
      shaper: a learner that reads both policies in its observation.
      opponent: a learner whose state has its `logits`, or a second shaper.
      meta_steps: learning steps of the opponent.
      **options: passed on to `learn`.

    Source: Lu et al. (2022), arXiv:2205.01447, section 4.1 and its public code.
    """

    def observe(observations: dict[str, jax.Array], states: tuple[Any, ...]) -> dict[str, jax.Array]:
        # A player whose policy learning does not change, such as a shaper, is seen by what it played last.
        seen = dict(observations)
        for agent, player, other in zip(game.agents, states, reversed(states), strict=True):
            late = getattr(player, "late", False)  # traced, where a number chooses the learner
            if hasattr(other, "logits") and late is not True:
                own = observations[agent][..., : game.num_logits]
                new = jnp.concatenate([own, jnp.broadcast_to(jax.nn.sigmoid(other.logits), own.shape)], -1)
                seen[agent] = jnp.where(late, observations[agent], new) if late is not False else new
        return seen

    return learn(key, game, [shaper, opponent], num_updates=meta_steps + 1, observe=observe, **options)


@check_arguments
def shaping_trial(
    game: Game,
    shaper: Shaper | Policy,
    opponents: Learner | Sequence[Learner],
    *,
    meta_steps: int = 100,
    episode_length: int = 100,
    num_envs: int = 2,
    scored_from: int = 0,
) -> Callable[[Any, jax.Array], Outcome]:
    """A trial for `evolve`: the shapers' mean payoff over the opponents' whole learning is the fitness.

    Each of the trials that `evolve` gives a candidate has opponents of its own.

    Args:
      game: an `InfinitelyRepeated`, or one that is sampled.
      shaper: what is evolved, of that kind of game.
      opponents: learners: one, or in a sampled game one for each seat after those of the shapers.
      meta_steps: learning steps of the opponents.
      episode_length: of a sampled game, as of `play_sampled`.
      num_envs: of a sampled game, as of `play_sampled`.
      scored_from: first meta-step that counts for the fitness, less than `meta_steps`; a half of them leaves out gains
        from opponents that have not learned yet.

    Returns:
      `trial(parameters, key) -> Outcome`, with the metrics `shaper_return` and `opponent_return`: average payoffs per
      round or step, means over the players of a kind.

    Example:
      >>> import games, jax, jax.numpy as jnp, marl
      >>> game = games.InfinitelyRepeated(games.prisoners_dilemma, discount=0.0)  # played once
      >>> opponent = marl.make_learner("all_c", game, seat=1)
      >>> trial = marl.shaping_trial(game, marl.shapers.good_shepherd(game), opponent, meta_steps=2)
      >>> outcome = trial(jnp.full(1, -50.0), jax.random.key(0))  # a shaper that always defects
      >>> round(float(outcome.metrics["opponent_return"]), 2)
      -3.0
    """
    learners = [opponents] if isinstance(opponents, Learner) else list(opponents)
    _check_players(game, shaper, learners)
    for name, number in (("meta_steps", meta_steps), ("episode_length", episode_length), ("num_envs", num_envs)):
        check_number(name, number)
    check_number("scored_from", scored_from, 0)
    if scored_from >= meta_steps:
        raise ValueError(f"scored_from: got {scored_from}; less than the {meta_steps} meta_steps is needed")
    lengths = {"meta_steps": meta_steps, "episode_length": episode_length, "num_envs": num_envs}

    def exact(parameters: Any, key: jax.Array) -> tuple[jax.Array, ...]:
        history = play(key, game, shaper.learner(parameters), *learners, meta_steps=meta_steps)  # type: ignore[arg-type, union-attr]
        return tuple(rewards[1:] for rewards in history.rewards)

    def sampled(parameters: Any, key: jax.Array) -> tuple[jax.Array, ...]:
        rewards = play_sampled(key, game, shaper, parameters, learners, **lengths).rewards  # type: ignore[arg-type]
        number = game.num_agents - len(learners)
        return tuple(jnp.stack(some) for some in (rewards[:number], rewards[number:]))

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        own, other = (exact if isinstance(game, InfinitelyRepeated) else sampled)(parameters, key)  # [..., meta_steps]
        metrics = {"shaper_return": own.mean(), "opponent_return": other.mean()}
        return Outcome(own[..., scored_from:].mean() if scored_from else metrics["shaper_return"], metrics)

    # Arrays of a formula are all small; beside the larger ones of samples, taking the others apart halves the speed.
    return scalarize(trial) if isinstance(game, InfinitelyRepeated) else in_any_mode(trial)


def _check_players(game: Game, shaper: Any, opponents: Sequence[Learner], least: int = 1) -> None:
    """Raises ValueError or TypeError for a shaper of another kind of game, or opponents that do not fill the seats.

    At least so many seats have to be left to shapers.
    """
    kind = Shaper if isinstance(game, InfinitelyRepeated) else Policy
    check_game(game)
    if not isinstance(shaper, kind):
        needed = f"a {kind.__name__}, such as marl.make_shaper('mfos', game) of this game,"
        raise TypeError(f"shaper: got a {type(shaper).__name__}; {needed} is needed")
    for i, opponent in enumerate(opponents):
        if not isinstance(opponent, Learner):
            raise TypeError(f"opponents: got a {type(opponent).__name__}; a Learner is needed")
        seat = game.num_agents - len(opponents) + i
        if opponent.seat not in (None, seat):
            needed = "one made for that seat is needed"
            raise ValueError(f"opponents: got one for seat {opponent.seat} in seat {seat}; {needed}")
    most = game.num_agents - least
    if not 1 <= len(opponents) <= most or (kind is Shaper and len(opponents) != most):
        needed = f"{most}" if kind is Shaper or most == 1 else f"1 to {most}"
        players = f"{type(game).__name__}, which has {game.num_agents} players"
        raise ValueError(f"opponents: got {len(opponents)}; {needed} is needed in {players}")


def _check_parameters(shaper: Shaper | Policy, parameters: Any) -> None:
    """Raises ValueError for parameters that are not of the shaper, by their names and shapes."""
    needed = jax.eval_shape(shaper.init, jax.random.key(0))
    shapes: list[Any] = [jax.tree.map(np.shape, tree) for tree in (parameters, needed)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"parameters: got {shown(parameters)}; those of the shaper's init, or like them, are needed")


@check_arguments
def play_trials(
    key: jax.Array,
    game: Game,
    shaper: Shaper | Policy,
    parameters: Any,
    opponent: Learner | Sequence[Learner],
    *,
    meta_steps: int,
    num_trials: int,
    episode_length: int = 100,
    num_envs: int = 2,
) -> Trials:
    """Fresh trials of one shaper, with all that reports and figures need.

    Args:
      key: of all trials.
      game: an `InfinitelyRepeated`, or one that is sampled.
      shaper: of the first agent, or of the first agents of a sampled game.
      parameters: of the shaper.
      opponent: the learner, or in a sampled game one for each seat after those of the shapers.
      meta_steps: learning steps of the opponent in a trial.
      num_trials: how many trials.
      episode_length: of a sampled game, as of `play_sampled`.
      num_envs: of a sampled game, as of `play_sampled`.

    Returns:
      `Trials`.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for numbers that are none or out of range, parameters that are not the shaper's, or opponents that do
        not fill the seats.
    """
    learners = [opponent] if isinstance(opponent, Learner) else list(opponent)
    _check_players(game, shaper, learners)
    _check_parameters(shaper, parameters)
    shapers = [shaper.learner(parameters)] * (game.num_agents - len(learners))
    lengths = {"meta_steps": meta_steps, "episode_length": episode_length, "num_envs": num_envs}
    return trials_of(key, game, shapers, learners, num_trials=num_trials, **lengths)


def trials_of(
    key: jax.Array,
    game: Game,
    shapers: Sequence[Learner],
    opponents: Sequence[Learner],
    *,
    meta_steps: int,
    num_trials: int,
    episode_length: int,
    num_envs: int,
) -> Trials:
    """`play_trials` of players in any game."""
    check_key(key)
    lengths = {"meta_steps": meta_steps, "episode_length": episode_length, "num_envs": num_envs}
    for name, number in (lengths | {"num_trials": num_trials}).items():
        check_number(name, number)

    def sampled(key: jax.Array) -> Trials:
        players = [*shapers, *opponents]
        history = learn(key, game, players, num_updates=meta_steps, steps_per_update=episode_length, num_envs=num_envs)
        seats, number, counts = jnp.stack(history.rewards), len(shapers), history.infos
        payoffs, states = (seats[:number].mean(0), seats[number:].mean(0)), history.states[number:]
        return Trials(*payoffs, None, None, counts.get("cooperation"), counts, states)

    def exact(key: jax.Array) -> Trials:
        return play_trial(key, game, *shapers, *opponents, meta_steps=meta_steps)  # type: ignore[misc, arg-type]

    one = exact if isinstance(game, InfinitelyRepeated) else sampled
    return jax.vmap(one)(jax.random.split(key, num_trials))


def play_trial(
    key: jax.Array, game: InfinitelyRepeated, shaper: Learner, opponent: Learner, *, meta_steps: int
) -> Trials:
    """One trial, `[meta_steps]`, between any two players of `play`."""
    history = play(key, game, shaper, opponent, meta_steps=meta_steps, keep_trajectories=True)
    assert history.trajectories is not None
    own, other = (rewards[1:] for rewards in history.rewards)
    first, second = (trajectory.action[1:, 0] for trajectory in history.trajectories)
    cooperation = jax.vmap(lambda *policies: _cooperation(game, *policies))(first, second)
    policies = jax.nn.sigmoid(first), jax.nn.sigmoid(second)
    return Trials(own, other, *policies, cooperation, {}, history.states[1:])


def _cooperation(game: InfinitelyRepeated, row: jax.Array, column: jax.Array) -> jax.Array:
    """Share of rounds in which each player takes its first action, `[2]`, from logits; rounds count as in payoffs."""
    both, row_alone, column_alone, _ = state_visits(row, column, game.discount)
    return (1 - game.discount) * jnp.stack([both + row_alone, both + column_alone])


@check_arguments
def play_sampled(
    key: jax.Array,
    game: Game,
    policy: Policy,
    parameters: Any,
    opponents: Sequence[Learner],
    *,
    meta_steps: int,
    episode_length: int,
    num_envs: int,
    keep_trajectories: bool = False,
) -> History:
    """One trial in a sampled game: the opponents learn after every episode, from several environments at once.

    Args:
      key: of the trial.
      game: whose first agents are the shapers; there are as many as the game has more agents than opponents.
      policy: of every shaper. Each has a memory of its own.
      parameters: of the policy; anything without a shaper.
      opponents: the learners; as many as the game has agents play without a shaper.
      meta_steps: learning steps of the opponents.
      episode_length: steps of the game before each of them; its own episodes need not be as long.
      num_envs: environments of a trial.
      keep_trajectories: as of `learn`.

    Returns:
      The `History` of `learn`.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for numbers that are none or out of range, parameters that are not the policy's, or opponents that do
        not fill the seats.

    Example:
      >>> import games, jax, marl
      >>> game = games.make("ipd")
      >>> players = [marl.always_cooperate(game, 0), marl.always_defect(game, 1)]  # in every seat: none is a shaper's
      >>> shaper, lengths = marl.shapers.shaper(game), {"meta_steps": 1, "episode_length": 4, "num_envs": 2}
      >>> history = marl.play_sampled(jax.random.key(0), game, shaper, None, players, **lengths)
      >>> [float(rewards[0]) for rewards in history.rewards]
      [-3.0, 0.0]

    Source: Lu et al. (2022), arXiv:2205.01447, section 3; several environments: Khan et al. (2023), arXiv:2312.12568.
    """
    _check_players(game, policy, opponents, least=0)
    if len(opponents) < game.num_agents:
        _check_parameters(policy, parameters)
    shapers = [policy.learner(parameters)] * (game.num_agents - len(opponents))
    return learn(
        key,
        game,
        [*shapers, *opponents],
        num_updates=meta_steps,
        steps_per_update=episode_length,
        num_envs=num_envs,
        keep_trajectories=keep_trajectories,
    )
