"""Trials of `evolve` whose candidates are objectives: the returns of learners that use one, from scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from games import Game
from marl.blocks.objectives import clipped_surrogate, dpo
from marl.blocks.value_losses import clipped_l2, huber, l2
from marl.core.learn import learn
from marl.core.learner import Learner
from marl.learners.registry import SAMPLED
from marl.learners.sampled.objective_registry import Form, Kind
from meta import Outcome
from meta.batched_trials import without_nan

# What is tuned beside an objective, and without one: a scale that an objective can imitate is nothing that was found.
SHARED = ("learning_rate", "max_gradient_norm", "value_coefficient", "delta")
SCALES: dict[Kind, tuple[str, ...]] = {"drift": (*SHARED, "clip"), "value_loss": SHARED}
# Huber's, where the search begins; a large one is L2. PPO's own loss clips values at 0.2: tuned with that it gets 210
# in CartPole, with Huber's 300, and a search that begins at the clip stays there.
DELTA = 10.0
# Of what was found: PPO with Huber's loss, without a step size, and with its numbers.
CONTROLS = ("begun", "still", "without")
LOG_UNIT = 4.0  # a unit of a parameter is so many of the logarithm of what is scaled

Settings = Callable[[Any], dict[str, Any]]  # parameters -> settings of `ppo`


class Arena(NamedTuple):
    """A game, and the length of a training in it."""

    name: str
    game: Game
    num_updates: int
    steps_per_update: int
    num_envs: int


class TrainingResult(NamedTuple):
    """Results of a training run."""

    score: jax.Array  # `[]`: of one player the mean of `curve`, of several what they got
    late: jax.Array  # `[]`, the same of the last quarter
    curve: jax.Array  # `[updates]`, mean return of the episodes that ended in each, NaN where none did
    rewards: jax.Array  # `[players]`, in a step of the last half


FreshTrial = Callable[[jax.Array, Any], TrainingResult]  # (key, parameters) -> a training


def first_scales(kind: Kind) -> dict[str, jax.Array]:
    """Scales before any tuning."""
    return {"scales": jnp.zeros(len(SCALES[kind]))}


def scaled(kind: Kind, spec: str, parameters: Any) -> dict[str, Any]:
    """The scales as numbers, from the learner's own settings on."""
    given, defaults = SAMPLED.read("learner", spec)[1], SAMPLED.settings("ppo")
    found = {}
    for i, name in enumerate(SCALES[kind]):
        first = DELTA if name == "delta" else given.get(name, defaults[name].default)
        found[name] = first * jnp.exp(LOG_UNIT * parameters["scales"][i])
    return found


def plain(parameters: Any) -> dict[str, Any]:
    """The learner as it is."""
    del parameters
    return {}


def tuned(kind: Kind, spec: str) -> Settings:
    """PPO's own objective, and of values' losses Huber's, with scales."""
    return _scaled(kind, spec, lambda _, clip: {"objective": clipped_surrogate(clip=clip)} if kind == "drift" else {})


def known(kind: Kind, spec: str) -> dict[str, Settings]:
    """Objectives that others have found, with scales that were tuned for PPO's."""
    of_values: dict[str, Any] = {"l2": {"value_loss": l2}, "clipped_l2": {"value_loss": clipped_l2()}}
    found = {"dpo": {"objective": dpo()}} if kind == "drift" else of_values
    return {name: _scaled(kind, spec, lambda *_, own=own: own) for name, own in found.items()}


def evolved(form: Form, spec: str) -> Settings:
    """Settings of an evolved objective, with scales."""
    return _scaled(form.kind, spec, lambda parameters, clip: form.settings(parameters["objective"], clip))


def unused(form: Form) -> str:
    """The scale on which an objective of this form does not depend, if there is one: the search has not selected it."""
    return "delta" if form.kind == "value_loss" else "clip" if form.start == "zero" else ""


def _scaled(kind: Kind, spec: str, own: Callable[..., dict[str, Any]]) -> Settings:
    """Scales and Huber's loss, and what is made of (parameters, clip) in place of PPO's."""

    def settings(parameters: Any) -> dict[str, Any]:
        found = scaled(kind, spec, parameters)
        clip, delta = found.pop("clip", 0.2), found.pop("delta")
        return {"value_loss": huber(delta=delta), **found} | own(parameters, clip)

    return settings


def make_learners(arena: Arena, spec: str, settings: Sequence[dict[str, Any]]) -> list[Learner]:
    """One for each player."""
    given = SAMPLED.read("learner", spec)[1]

    def make(seat: int, own: dict[str, Any]) -> Learner:
        kept = {name: x for name, x in given.items() if name != "clip" or "objective" not in own}  # it is of PPO's
        return SAMPLED.build("ppo", kept | own, arena.game, seat, num_updates=arena.num_updates)._replace(seat=seat)

    return [make(seat, own) for seat, own in enumerate(settings)]


def run_training(key: jax.Array, arena: Arena, spec: str, settings: Sequence[dict[str, Any]]) -> TrainingResult:
    """A whole training of learners from a spec, with these settings instead of theirs, each player its own."""
    found = learn(
        key,
        arena.game,
        make_learners(arena, spec, settings),
        num_updates=arena.num_updates,
        steps_per_update=arena.steps_per_update,
        num_envs=arena.num_envs,
    )
    rewards = jnp.stack([x[len(x) // 2 :].mean() for x in found.rewards])
    alone = arena.game.num_agents == 1
    curve = found.returns[0] if alone else sum(found.rewards[1:], found.rewards[0])
    # Several players are judged by the second half, because early rewards say little about the final policies.
    score = jnp.nanmean(curve) if alone else rewards.sum()
    return TrainingResult(score, jnp.nanmean(curve[-max(len(curve) // 4, 1) :]), curve, rewards)


def discovery_trial(
    arenas: Sequence[Arena], spec: str, settings: Settings, units: Sequence[tuple[float, float]]
) -> Callable[[Any, jax.Array], Outcome]:
    """A trial for `evolve`: candidates are parameters of settings; all players of a game have the same.

    Args:
      arenas: trained in one after the other.
      spec: of the learner.
      settings: parameters -> settings of `ppo`.
      units: for each arena what counts as 0, and as 1 more; the fitness is the mean over the arenas.
    """

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        found, scores = settings(parameters), []
        for i, (arena, (zero, unit)) in enumerate(zip(arenas, units, strict=True)):
            own = key if len(arenas) == 1 else jax.random.fold_in(key, i)
            scores.append((run_training(own, arena, spec, [found] * arena.game.num_agents).score - zero) / unit)
        return Outcome(jnp.stack(scores).mean(), {f"score_{i}": x for i, x in enumerate(scores)})

    return trial


def fresh_trial(arena: Arena, spec: str, settings: Settings, *others: Settings) -> FreshTrial:
    """A trial `(key, parameters) -> TrainingResult` of all players of a game, or of the last ones with other settings.

    Infinite stands for NaN in it, as of `without_nan`.
    """

    def trial(key: jax.Array, parameters: Any) -> TrainingResult:
        number = arena.game.num_agents - len(others)
        each = [settings(parameters)] * number + [other(parameters) for other in others]
        found: TrainingResult = without_nan(run_training(key, arena, spec, each))
        return found

    return trial
