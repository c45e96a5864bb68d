"""Where a search begins that knows the task: what an expert would do, in the words of a message function."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attacks.config import AttackConfig
from attacks.messages import MESSAGES, Message, make_message
from attacks.trials import live
from games import Game, rollout
from games.core.spaces import Discrete, Space
from games.wrappers.cheap_talk import observation_shape
from games.wrappers.goals import GoalConditioned
from marl.core.evaluate import act_best

LIVES = 12  # of a victim, that an expert has learned for
EXPERTS = 8  # of which the best is listened to
ROLLOUTS, STEPS = 64, 256  # of its play, from which its words are learned
LARGEST_TARGET = 3.0  # in standard deviations
LOUD = 4.0  # what a controller says to a victim that has learned from a shaper
FITTING = 2000  # gradient steps


class Told(NamedTuple):
    """What a message says of an expert."""

    parameters: Any  # of the message
    expert_return: float  # of the expert's final policy
    share: float  # of the variance of what it does that the message tells


def teach(config: AttackConfig, key: jax.Array) -> tuple[Any, dict[str, Told]]:
    """The parameters by which a message says what an expert would do.

    The expert is the best of eight learners of the victim's kind that have learned in silence for twelve of its lives.
    Its best action about each state of its own play, of random play and of mixtures of both is what the message is
    fitted to, by least squares and gradient descent: an action of a box entry by entry, a discrete one by its
    contrasts, so that actions lie in the corners of a simplex; both in units of their root mean square. A message that
    turns says the opposite in the end. For control a shaper says this of an expert at the bare game, and the controller
    that of one at the game with goals, four times as loud: a victim that has learned from a quiet word obeys a loud
    one.

    Args:
      config: of the attack, as `config.checked` leaves it: neither victim nor message has a memory, but for `turn`.
      key: of everything.

    Returns:
      (where the search begins, what each of the messages tells).
    """
    game, (shaper_key, controller_key, turn_key) = config.make_game(), jax.random.split(key, 3)
    if config.goal == "control":
        shaper = _tell(config, game, config.make_message(), shaper_key)
        controller = _tell(config, GoalConditioned(game), config.make_controller(), controller_key, LOUD)
        both = {"shaper": shaper.parameters, "controller": controller.parameters}
        return both, {"shaper": shaper, "controller": controller}
    half = _half(config)
    told = _tell(config, game, half or config.make_message(), shaper_key)
    if half is None:
        return told.parameters, {"message": told}
    then = _tell(config, game, half, shaper_key, -1.0).parameters
    return config.make_message().init(turn_key) | {"first": told.parameters, "then": then}, {"message": told}


def _half(config: AttackConfig) -> Message | None:
    """What a message says before its turn, if it turns."""
    name, given = MESSAGES.read("message", config.message_spec)
    if name != "turn":
        return None
    return make_message(given.get("what", "linear"), observation_shape(config.make_game()), config.message_size)


def _tell(config: AttackConfig, game: Game, message: Message, key: jax.Array, factor: float = 1.0) -> Told:
    """What a message says of an expert at a game, times a factor."""
    life_key, play_key, fit_key = jax.random.split(key, 3)
    observations, actions, expert_return = jax.jit(lambda: _play_of_an_expert(config, game, life_key, play_key))()
    targets = _targets(np.asarray(actions), game.action_space("agent_0"), config.message_size)
    words, share = jax.jit(lambda: _fitted(message, fit_key, observations, factor * jnp.asarray(targets)))()
    return Told(jax.tree.map(np.asarray, words), float(expert_return), float(share))


def _play_of_an_expert(
    config: AttackConfig, game: Game, life_key: jax.Array, play_key: jax.Array
) -> tuple[jax.Array, ...]:
    """(observations `[number, *obs_shape]`, its best actions about them, its final return)."""
    size = config.message_size
    silence = Message(lambda key: (), lambda parameters, obs: jnp.zeros(size))
    longer = dataclasses.replace(config, num_updates=LIVES * config.num_updates)
    lives = jax.vmap(lambda key: live(key, game, silence, (), longer.make_victim, longer.schedule, size=size))(
        jax.random.split(life_key, EXPERTS)
    )
    best = jnp.argmax(lives.final_return)
    final_return, state = jax.tree.map(lambda x: x[best], (lives.final_return, lives.state))
    talk = silence.talk(game, (), size)
    expert = longer.make_victim(talk)
    policy = expert.policy(state)
    memory = expert.begin(policy, 1)

    def play(key: jax.Array, randomness: jax.Array) -> jax.Array:
        def act(key: jax.Array, observations: dict[str, jax.Array]) -> dict[str, jax.Array]:
            keys = jax.random.split(key, 3)
            own = expert.act(keys[0], policy, memory, observations["agent_0"][None])[0][0]
            other = game.action_space("agent_0").sample(keys[1])
            return {"agent_0": jnp.where(jax.random.uniform(keys[2]) < randomness, other, own)}

        return rollout(key, talk, STEPS, act).observations["agent_0"]

    keys = jax.random.split(play_key, ROLLOUTS + 1)
    heard = jax.vmap(play)(keys[1:], jnp.linspace(0, 1, ROLLOUTS)).reshape(ROLLOUTS * STEPS, -1)
    actions, _ = act_best(expert, keys[0], policy, expert.begin(policy, len(heard)), heard)
    shape = observation_shape(game)
    return heard[:, : math.prod(shape)].reshape(-1, *shape), actions, final_return


def _targets(actions: np.ndarray, space: Space, size: int) -> np.ndarray:
    """What a message is to say about each action, `[number, size]`: its entries or contrasts, over and over."""
    if isinstance(space, Discrete):
        # Helmert's contrasts: rows at right angles to each other and to what is common to all actions.
        contrasts = [[1.0] * i + [-float(i)] + [0.0] * (space.n - i - 1) for i in range(1, space.n)]
        entries = (np.array(contrasts) / np.linalg.norm(contrasts, axis=1, keepdims=True)).T[actions]
    else:
        entries = actions.reshape(len(actions), -1)
    entries = entries / np.maximum(np.sqrt((entries**2).mean(0)), 1e-6)
    return np.clip(entries[:, np.arange(size) % entries.shape[1]], -LARGEST_TARGET, LARGEST_TARGET).astype(np.float32)


def _fitted(message: Message, key: jax.Array, observations: jax.Array, targets: jax.Array) -> tuple[Any, jax.Array]:
    """(parameters, the share of the variance that they tell), by Adam on the mean squared error."""

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
    return parameters, 1 - error(parameters) / ((targets - targets.mean(0)) ** 2).mean()
