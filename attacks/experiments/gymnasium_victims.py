"""Victims in an environment of Gymnasium, under the messages that were evolved in its pure twin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attacks.experiments.attack import Attack
from attacks.experiments.evaluation import controlled
from attacks.random_play import observations_of_play
from configs import shown
from configs.specs import read
from games import Game
from games.wrappers.cheap_talk import CheapTalk
from marl.distributed.adapters.maker import EnvMaker, make_env
from marl.distributed.evaluation import play_episodes
from marl.distributed.runtime import train
from marl.distributed.vector_env import Arrays, EnvStep, Outline, VectorEnv

EPISODES = 32  # of a victim in the end, without exploration


class TalkingHost:
    """A host whose only agent hears a message with every observation, as in `CheapTalk`.

    A message function with a memory has one for each environment, which goes on across episodes.

    Args:
      host: what is played.
      talk: the pure game in which this is said, for what is said and how it is remembered.
      hear: of `hearing(talk)`.
      memory: the first memory of the message function; that of `talk` if None.
    """

    def __init__(self, host: VectorEnv, talk: CheapTalk, hear: Callable[..., Any], memory: Any = None):
        self._host, self._talk, self._hear = host, talk, hear
        self._first = talk.memory if memory is None else memory
        self.num_envs, self.has_empty_steps = host.num_envs, host.has_empty_steps
        self.game: Game = Outline([talk.observation_space("agent_0")], [host.game.action_space("agent_0")])

    def reset(self, seed: int, keys: np.ndarray) -> Arrays:
        """As of `VectorEnv`."""
        self._memory = jax.tree.map(lambda x: np.stack([np.asarray(x)] * self.num_envs), self._first)
        return self._heard(self._host.reset(seed, keys), np.ones(self.num_envs, bool))

    def send(self, actions: Arrays, keys: tuple[np.ndarray, np.ndarray]) -> None:
        """As of `VectorEnv`."""
        self._host.send(actions, keys)

    def receive(self) -> EnvStep:
        """As of `VectorEnv`."""
        received = self._host.receive()
        last = self._heard(received.last_obs, np.ones(self.num_envs, bool))
        # An environment that resets late shows its new episode in a step of its own.
        begins = np.zeros(self.num_envs, bool) if self.has_empty_steps else received.done
        coming = self._heard(received.obs, begins) if begins.any() else last
        return received._replace(obs=coming, last_obs=last)

    def _heard(self, observations: Arrays, counts: np.ndarray) -> Arrays:
        """Observations with messages; where an observation counts it is remembered."""
        found = self._hear(self._talk.parameters, self._memory, observations["agent_0"], counts)
        heard, self._memory = jax.tree.map(np.asarray, found)
        return {"agent_0": heard}

    def memory(self) -> Any:
        """The present memory of the message function in the first environment."""
        return jax.tree.map(lambda x: x[0], self._memory)

    def picture(self) -> np.ndarray | None:
        """As of `VectorEnv`."""
        return self._host.picture()

    def close(self) -> None:
        """As of `VectorEnv`."""
        self._host.close()


def hearing(talk: CheapTalk) -> Callable[..., Any]:
    """(parameters, memories [N], observations [N, ...], which count [N]) -> observations with messages, memories."""

    def one(parameters: Any, memory: Any, observation: jax.Array, counts: jax.Array) -> tuple[jax.Array, Any]:
        said: tuple[Any, ...] = ()
        if talk.remember is not None:
            after = talk.remember(parameters, memory, observation)
            memory = jax.tree.map(lambda new, old: jnp.where(counts, new, old), after, memory)
            said = (memory,)
        message = talk.speak(parameters, observation, *said)
        return jnp.concatenate([observation.reshape(-1).astype(jnp.float32), message]), memory

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))


def host_of(attack: Attack) -> EnvMaker:
    """Makes hosts of the environment of that name that Gymnasium has, with as long episodes.

    Raises:
      ValueError: if it has none, or none with such parameters.
    """
    config = attack.config
    if config.defence != "none":
        raise ValueError(f"host: got an attack on victims with the defence {config.defence}; on a host they have none")
    name, given = read("environment", config.environment, "CartPole-v1")
    limit = given.pop("max_steps_in_episode", None)
    if given:
        raise ValueError(f"host: got {shown(config.environment)}; on a host it has no {', '.join(given)}")
    import gymnasium

    if name not in gymnasium.registry:
        raise ValueError(f"host: got {shown(name)}, which Gymnasium does not have")
    return make_env(f"gymnasium({name})", attack.schedule.num_envs)._replace(limit=limit)


def host_returns(
    attack: Attack, parameters: Any, num_trials: int, seed: int, say: Callable[[str], Any] = lambda text: None
) -> dict[str, np.ndarray]:
    """Final returns of victims that learn on a host, `[victims]`, under evolved, no and random messages.

    Raises:
      ValueError: if there is no such environment on a host, or none in which the victim can learn.
    """
    game, schedule, make_host = attack.game, attack.schedule, host_of(attack)
    spoken, speakers = controlled(attack.message, parameters, observations_of_play(game), schedule.steps)
    found: dict[str, list[float]] = {kind: [] for kind in speakers}
    started = time.perf_counter()
    learner: Any = None
    hear: Any = None
    for victim in range(num_trials):
        message_key, training_key, evaluation_key = jax.random.split(
            jax.random.fold_in(jax.random.key(seed), victim), 3
        )
        for kind, own in speakers.items():
            said = spoken.init(message_key) if own is None else own
            talk = spoken.talk(game, said, attack.config.message_size)
            learner, hear = learner or attack.make_victim(talk), hear or hearing(talk)
            made: list[TalkingHost] = []

            def make(talk: CheapTalk = talk, hear: Any = hear, made: list[TalkingHost] = made) -> VectorEnv:
                made.append(TalkingHost(make_host(), talk, hear))
                return made[-1]

            trained = train(
                [learner],
                [make],
                key=training_key,
                num_updates=schedule.num_updates,
                steps_per_update=schedule.steps_per_update,
                seed=seed + 1000 * victim,
            )
            host = TalkingHost(make_host(), talk, hear, made[-1].memory() if talk.remember else None)
            try:
                returns = play_episodes(
                    evaluation_key, host, [learner], trained.history.states, EPISODES, seed + 1000 * victim
                )
            finally:
                host.close()
            found[kind].append(float(returns.mean()))
        left = (time.perf_counter() - started) / (victim + 1) * (num_trials - victim - 1)
        say(f"victim {victim + 1} of {num_trials}; about {left:.0f} s left")
    return {kind: np.array(values) for kind, values in found.items()}
