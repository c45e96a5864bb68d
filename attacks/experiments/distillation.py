"""Starts of a search: message functions that are fitted to an expert's actions, or to a finished attack's messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attacks.experiments.attack import Attack, load_adversary
from attacks.experiments.config import EXPERT_TRAININGS, EXPERTS
from attacks.messages import Message, make_message
from attacks.random_play import observations_of_play
from attacks.victim_training import train_victim
from games import Game, rollout
from games.core.spaces import Discrete, Space
from games.wrappers.cheap_talk import observation_shape
from games.wrappers.goals import GoalConditioned
from marl.core.evaluate import act_best
from meta.loop import compiler_options
from meta.runs.formatting import say
from meta.runs.progress import Stages
from meta.xla.devices import in_chunks
from meta.xla.fixed_order import in_fixed_order

WIDTH = 1  # experts that a core trains together
EXPERT = "expert"  # stage of a search
ROLLOUTS, STEPS = 64, 256  # of its play, to which the message is fitted
LARGEST_TARGET = 3.0  # in standard deviations
CONTROLLER_FACTOR = 4.0  # of the messages of a controller, beside those of the shaper that the victim learned from
FITTING = 2000  # gradient steps

Explained = dict[str, dict[str, Any]]  # the share of an expert, or of another message, that each message explains
FindStart = Callable[[jax.Array, Stages], tuple[Any, Explained | None]]


class Distilled(NamedTuple):
    """A message function that was fitted to an expert."""

    parameters: Any  # of the message
    expert_return: float  # of the expert's final policy, by which it was chosen
    share: float  # of the variance of its actions that the message explains


def make_start(attack: Attack) -> FindStart:
    """A function that finds where a search begins with an expert or a run: `(key, stages) -> (parameters, explained)`.

    It prints the shares that the messages explain, and refits the message of a run of another kind.
    """

    def from_expert(key: jax.Array, stages: Stages) -> tuple[Any, Explained]:
        stages.begin(EXPERT, f"{EXPERTS} experts learn in silence, {EXPERT_TRAININGS} times as long as a victim")
        start, found = distil(attack, key)
        for name, one in found.items():
            share = f"the {name} explains {one.share:.0%} of its actions"
            say(stages.console, f"the best has a return of {one.expert_return:.4g}, by which it was chosen; {share}")
        return start, {
            n: {"expert_return": one.expert_return, "share_explained": one.share} for n, one in found.items()
        }

    def from_run(key: jax.Array, stages: Stages) -> tuple[Any, Explained | None]:
        other, start = load_adversary(attack.config.begin, "begin")
        if other.kind.spec == attack.kind.spec:
            return start, None
        start, share = refit(key, attack.game, attack.message, other.message, start)
        say(stages.console, f"{attack.kind.spec} explains {share:.0%} of the messages of {other.kind.spec}")
        return start, {"message": {"share_explained": share}}

    return from_expert if attack.config.begin == "expert" else from_run


def distil(attack: Attack, key: jax.Array) -> tuple[Any, dict[str, Distilled]]:
    """The parameters by which a message says what an expert would do.

    The expert is the best of eight learners of the victim's kind that have learned in silence for twelve of its
    training runs. Its best action about each state of its own play, of random play and of mixtures of both is what the
    message is fitted to, by least squares and gradient descent: an action of a box entry by entry, a discrete one by
    its contrasts, so that actions lie in the corners of a simplex; both in units of their root mean square. A message
    that turns says the opposite in the end. For control a shaper says this of an expert at the bare game, and the
    controller that of one at the game with goals, four times as large: a victim that has learned from small messages
    follows large ones.

    Args:
      attack: as `prepare` checks it: neither victim nor message has a memory, but for `turn`.
      key: of everything.

    Returns:
      (where the search begins, the share that each of the messages explains).
    """
    message, (key, goal_key, turn_key) = attack.message, jax.random.split(key, 3)
    turns = attack.kind.name == "turn"
    if turns:  # what is said before
        what, shape = attack.kind.settings.get("what", "linear"), observation_shape(attack.game)
        message = make_message(what, shape, attack.config.message_size)
    found = _expert(attack, attack.game, key)
    shaped = _distil(message, found)
    if attack.controller:
        controller = _distil(
            attack.controller, _expert(attack, GoalConditioned(attack.game), goal_key), CONTROLLER_FACTOR
        )
        both = {"shaper": shaped.parameters, "controller": controller.parameters}
        return both, {"shaper": shaped, "controller": controller}
    if not turns:
        return shaped.parameters, {"message": shaped}
    then = _distil(message, found, -1.0).parameters
    return attack.message.init(turn_key) | {"first": shaped.parameters, "then": then}, {"message": shaped}


class _Expert(NamedTuple):
    """Observations and actions of an expert."""

    key: jax.Array
    observations: jax.Array  # [number, *obs_shape]
    targets: np.ndarray  # [number, size], what a message is to say about each
    final_return: float


def refit(key: jax.Array, game: Game, message: Message, other: Message, parameters: Any) -> tuple[Any, float]:
    """(The parameters by which a message says what another one says in random play, the share that it explains)."""
    observations = jnp.asarray(observations_of_play(game))
    targets = jax.vmap(other.speak, (None, 0))(parameters, observations)
    parameters, share = compiled(lambda targets: _fitted(message, key, observations, targets))(targets)
    return jax.tree.map(np.asarray, parameters), float(share)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a program whose bits do not depend on the number of cores."""
    return jax.jit(in_fixed_order(function), compiler_options=compiler_options())


def _distil(message: Message, expert: _Expert, factor: float = 1.0) -> Distilled:
    """Fits a message function to an expert's actions, times a factor."""
    fit = compiled(lambda targets: _fitted(message, expert.key, expert.observations, targets))
    parameters, share = fit(factor * expert.targets)
    return Distilled(jax.tree.map(np.asarray, parameters), expert.final_return, float(share))


def _expert(attack: Attack, game: Game, key: jax.Array) -> _Expert:
    """The best of some learners, and what it does in its own play, in random play, and in between."""
    training_key, play_key, fit_key = jax.random.split(key, 3)
    assert attack.experts
    size, (make_expert, schedule) = attack.config.message_size, attack.experts
    silence = Message(lambda key: (), lambda parameters, obs: jnp.zeros(size))

    def train_one(key: jax.Array) -> tuple[jax.Array, Any]:
        training = train_victim(key, game, silence, (), make_expert, schedule, size=size)
        return training.final_return, training.state

    learned = jax.jit(in_chunks(train_one, EXPERTS, WIDTH), compiler_options=compiler_options())
    returns, states = learned(jax.random.split(training_key, EXPERTS))
    best = int(np.argmax(np.nan_to_num(returns, nan=-np.inf)))
    talk = silence.talk(game, (), size)
    expert = make_expert(talk)
    policy = expert.policy(jax.tree.map(lambda x: x[best], states))

    def play(key: jax.Array, randomness: jax.Array) -> jax.Array:
        def act(key: jax.Array, observations: dict[str, jax.Array]) -> dict[str, jax.Array]:
            keys = jax.random.split(key, 3)
            own = expert.act(keys[0], policy, expert.init_memory(policy, 1), observations["agent_0"][None])[0][0]
            other = game.action_space("agent_0").sample(keys[1])
            return {"agent_0": jnp.where(jax.random.uniform(keys[2]) < randomness, other, own)}

        return rollout(key, talk, STEPS, act).observations["agent_0"]

    @compiled
    def played(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        keys = jax.random.split(key, ROLLOUTS + 1)
        heard = jax.vmap(play)(keys[1:], jnp.linspace(0, 1, ROLLOUTS)).reshape(ROLLOUTS * STEPS, -1)
        actions, _ = act_best(expert, keys[0], policy, expert.init_memory(policy, len(heard)), heard)
        return heard, actions

    heard, actions = played(play_key)
    shape = observation_shape(game)
    observations = heard[:, : math.prod(shape)].reshape(-1, *shape)
    targets = _targets(np.asarray(actions), game.action_space("agent_0"), size)
    return _Expert(fit_key, observations, targets, float(returns[best]))


def entries_needed(space: Space) -> int:
    """The least entries of a message that has another target for each action of an expert."""
    if isinstance(space, Discrete):
        return max(space.n - 2, 1)  # all contrasts are 0 for the last action where the others have one each
    return math.prod(space.shape)


def _targets(actions: np.ndarray, space: Space, size: int) -> np.ndarray:
    """Targets of the messages for each action, `[number, size]`: its entries or contrasts, repeated."""
    if isinstance(space, Discrete):
        # Helmert's contrasts: rows at right angles to each other and to what is common to all actions.
        contrasts = [[1.0] * i + [-float(i)] + [0.0] * (space.n - i - 1) for i in range(1, space.n)]
        entries = (np.array(contrasts) / np.linalg.norm(contrasts, axis=1, keepdims=True)).T[actions]
    else:
        entries = actions.reshape(len(actions), -1)
    entries = entries / np.maximum(np.sqrt((entries**2).mean(0)), 1e-6)
    return np.clip(entries[:, np.arange(size) % entries.shape[1]], -LARGEST_TARGET, LARGEST_TARGET).astype(np.float32)


def _fitted(message: Message, key: jax.Array, observations: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
    """(parameters, the share of the variance that they explain), by Adam on the mean squared error."""

    def error(parameters: Any) -> jax.Array:
        said = jax.vmap(message.speak, (None, 0))(parameters, observations)
        return ((said - targets) ** 2).mean()

    descent = optax.adam(optax.cosine_decay_schedule(0.03, FITTING))

    def step(carry: Any, _: None) -> Any:
        parameters, state = carry
        updates, state = descent.update(jax.grad(error)(parameters), state)
        return (optax.apply_updates(parameters, updates), state), None

    first = message.init(key)
    (parameters, _), _ = jax.lax.scan(step, (first, descent.init(first)), length=FITTING)
    variance = ((targets - targets.mean(0)) ** 2).mean()  # 0, or a rounding error, of constant targets
    explained = 1 - error(parameters) / jnp.maximum(variance, 1e-30)
    return parameters, jnp.where(variance > 1e-9 * (targets**2).mean(), explained, 0.0)
