"""Imitation of a learner by a shaper's policy: behavioural cloning, where an evolution may begin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from games.core.modes import in_any_mode
from marl.core.learn import History
from marl.shapers.sampled_policies import Parameters, Policy, replay
from meta.loop import Report, compile_program, iterate
from meta.run_keys import RunBranch
from meta.xla.memory import check_memory


class Imitation(NamedTuple):
    """Sizes of `imitate`."""

    trials: int
    episodes: int
    steps: int
    batch: int
    learning_rate: float

    @property
    def num_trials(self) -> int:
        """Trials before the first generation."""
        return self.trials

    @property
    def at_once(self) -> int:
        """The largest number of trials that are played together."""
        return 1


class Examples(NamedTuple):
    """One player's steps, `[episodes, T, N, ...]`, of each trial."""

    obs: jax.Array
    action: jax.Array
    done: jax.Array


@in_any_mode
def imitate(
    play: Callable[[jax.Array], History],
    policy: Policy,
    key: jax.Array,
    settings: Imitation,
    *,
    num_players: int = 1,
    report: Report | None = None,
) -> Parameters:
    """Fits a policy to the actions of learners at the end of their learning, by maximum likelihood.

    The loss of a batch of trials is the mean of -log pi(action | observations so far), with the policy's memory as at
    the beginning of a trial before the first of the episodes; Adam takes the steps.

    Args:
      play: `(key) -> History` of one trial, with trajectories.
      policy: what is fitted, from parameters of its `init`.
      key: of the fit, or K of them `[K]` for as many, one after the other in one program.
      settings: `trials` are played and their last `episodes` kept; each of the `steps` of Adam takes `batch` of them at
        random.
      num_players: how many of the players, the first ones, are imitated.
      report: called as `report(steps so far, {"log_likelihood": mean of the last batch}, seconds of running)` by the
        host.

    Returns:
      The parameters, `[K, ...]` where it was given K keys.

    Source: Pomerleau, ALVINN: An Autonomous Land Vehicle in a Neural Network (1988), for policies without a memory.
    """
    optimizer = optax.adam(settings.learning_rate)

    def examples(key: jax.Array) -> Examples:
        trajectories = play(key).trajectories
        assert trajectories is not None
        each = [Examples(one.obs, one.action, one.done) for one in trajectories[:num_players]]
        return jax.tree.map(lambda *x: jnp.stack(x)[:, -settings.episodes :], *each)

    def begin(key: jax.Array) -> tuple[Any, Examples]:
        play_key, init_key, _ = _keys(key)
        played = jax.lax.map(examples, jax.random.split(play_key, settings.trials))
        parameters = policy.init(init_key)
        joined = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), played)
        return (parameters, optimizer.init(parameters)), joined

    def loss(parameters: Parameters, batch: Examples) -> jax.Array:
        outputs, _ = jax.vmap(partial(replay, policy, parameters))(batch.obs, batch.done)
        return -policy.distribution.log_prob(outputs, batch.action).mean()

    def improve(key: jax.Array, joined: Examples, number: jax.Array, state: Any) -> Any:
        parameters, optimizer_state = state
        chosen = jax.random.randint(jax.random.fold_in(_keys(key)[2], number), (settings.batch,), 0, len(joined.done))
        value, gradient = jax.value_and_grad(loss)(parameters, jax.tree.map(lambda x: x[chosen], joined))
        updates, optimizer_state = optimizer.update(gradient, optimizer_state)
        return (optax.apply_updates(parameters, updates), optimizer_state), {"log_likelihood": -value}

    def step(given: tuple[jax.Array, Examples], number: jax.Array, state: Any) -> Any:
        key, joined = given
        if not key.ndim:
            return improve(key, joined, number, state)
        return jax.lax.map(lambda run: improve(run[0], run[1], number, run[2]), (key, joined, state))

    advice = "; a start by imitation of fewer trials or episodes is needed"
    play_all = compile_program((lambda keys: jax.lax.map(begin, keys)) if key.ndim else begin, key)
    check_memory(play_all, advice)
    state, joined = jax.block_until_ready(play_all(key))  # or else the first step would seem as slow as the play
    found = iterate(step, state, (key, joined), settings.steps, report=report, advice=advice, name="step")
    # Through the host, because the caller may have its keys on other devices.
    parameters: Parameters = jax.tree.map(np.asarray, found.state[0])
    return parameters


def _keys(key: jax.Array) -> jax.Array:
    """The keys of the play, of the first parameters and of the batches."""
    return jax.random.split(jax.random.fold_in(key, RunBranch.IMITATION), 3)
