"""`train`: the loop of `learn` with actors in environments of hosts, here, in threads or on a cluster."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import Game
from games.core import checks
from marl.core.learn import Episodes, History, adopted
from marl.core.learner import Learner, LearnerState, Trajectory
from marl.distributed.actor import ActorPrograms, Rollout, alike, check_joined, counted, joined, programs_of
from marl.distributed.actor_pools import InProcessPool, PlayBranch, Pool, ThreadPool
from marl.distributed.dispatcher import Broken, Dispatcher
from marl.distributed.inference import CentralInference
from marl.distributed.vector_env import VectorEnv, seed_of
from meta.loop import Report, Store
from meta.process import check_stop, uninterrupted

Where = Literal["here", "threads", "ray"]
Inference = Literal["actor", "central"]
Path = Literal["queue", "barrier", "gradients"]
WHERE, INFERENCE, PATHS = ("here", "threads", "ray"), ("actor", "central"), ("queue", "barrier", "gradients")

REPORT_SECONDS = 0.5
SAVING = 10  # times as long as saving takes nothing is saved: a buffer of images is written for seconds


class Trained(NamedTuple):
    """What `train` returns."""

    history: History
    statistics: dict[str, Any]  # of actors and of time, as in a summary


def train(
    learners: Sequence[Learner],
    hosts: Sequence[Callable[[], VectorEnv]],
    *,
    key: jax.Array,
    num_updates: int,
    steps_per_update: int,
    where: Where = "here",
    inference: Inference = "actor",
    path: Path = "queue",
    lag: int | None = None,
    store: Store | None = None,
    seed: int = 0,
    patience: float = 60.0,
    report: Report | None = None,
    look: Callable[[dict[str, np.ndarray]], Any] = lambda metrics: None,
    checkpoint_seconds: float = 15.0,
    say: Callable[[str], Any] = lambda words: None,
    address: str = "",
) -> Trained:
    """Lets learners learn in environments of hosts: actors play rollouts with policies, and learners learn from them.

    With a lag it is determined what comes of it, wherever actors are, as far as environments are: rollout number i is
    played by actor i modulo their number with the policies of i - lag updates. With one actor it is then what `learn`
    makes of `stale(learner, lag)`, and in our own games the same bit for bit. Without a lag nobody waits: an actor
    takes the newest policies when it begins a rollout, and learners take rollouts in the order in which they come.
    Actors that take turns here, and those that a barrier waits for, then have policies of this update.

    An actor that fails begins anew after a second, and after each further failure in a row after twice as long, up to
    a minute, as long as training lasts. Without a lag the others go on meanwhile, and an update behind a barrier is of
    those that are left. With a lag each rollout is needed, and everybody waits.

    Args:
      learners: one for each agent.
      hosts: make the environments, one for each actor: functions that can be sent where the actor is.
      key: of everything that is drawn here.
      num_updates: how often everybody learns.
      steps_per_update: of each environment in a rollout.
      where: actors take turns in this thread, have threads of their own, or are elsewhere in a Ray cluster.
      inference: who evaluates policies: each actor, or one thread for all actors of a process.
      path: what learners take: one rollout after the other, as they come; one of all actors at once, which is joined;
        or gradients that actors have taken.
      lag: how many updates old policies are, and what comes of it is determined; None: however old they get.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped, with new environments.
      seed: of environments that have seeds of their own.
      patience: seconds in which a rollout has to come; the first of an actor may take five times as long, or 300 s.
      report: called as `report(updates so far, their last metrics, seconds of running)`, some times a second.
      look: called with the metrics of every update.
      checkpoint_seconds: save when the last checkpoint is this old, or ten times as old as saving it took; 0 saves
        after every update.
      say: is told in a line what somebody should know.
      address: of a Ray cluster; one is begun on this machine if empty.

    Returns:
      `Trained`: the `History` of `learn`, without trajectories, and what happened to actors.

    Raises:
      ValueError: for settings that do not fit each other, or learners that do not fit the environments.
      Broken: if no actor has played a first rollout in three tries each, or a further one in ten in a row; with a lag,
        if the one that is waited for has not. What was learned is saved.
    """
    checks.size("num_updates", num_updates, 1)
    checks.size("steps_per_update", steps_per_update, 1)
    if not hosts:
        raise ValueError("hosts: got none; one for each actor is needed")
    shape = hosts[0]()  # tells what there is to see and to do
    try:
        check(learners, shape, steps_per_update, len(hosts), where=where, inference=inference, path=path, lag=lag)
        num_envs = shape.num_envs
    finally:
        shape.close()
    reset_key, run_key, *init_keys = jax.random.split(key, 2 + len(learners))
    programs = programs_of(tuple(learners), num_envs, len(hosts), steps_per_update, path == "gradients")
    learning = _Learning(tuple(learners), where == "ray")
    states = learning.begin(init_keys)
    state: dict[str, Any] = {"states": states, "updates": jnp.int32(0)}
    parts: list[dict[str, np.ndarray]] = []
    first = 0
    if store and (found := store.restore(state, num_updates)):
        first, state, metrics = found
        states = jax.tree.map(jnp.array, state["states"])
        parts = [{name: x[i] for name, x in metrics.items()} for i in range(first)]
    if store:
        store.rewrite(_rows(0, parts))
    play_key = run_key
    if first:  # other episodes than those with which it began; without a lag orders had numbers beyond its updates, too
        reset_key, again = (
            jax.random.fold_in(jax.random.fold_in(k, PlayBranch.RESUMED), first) for k in (reset_key, run_key)
        )
        play_key = run_key if lag is not None else again
        seed = seed_of(seed, first)
    make_pool = _pools(where, inference, programs, hosts, play_key, reset_key, seed, address)
    policies = learning.policies(states)
    pool, central = make_pool(policies)
    barrier, turns = path == "barrier", where == "here" and path != "barrier"
    run = Dispatcher(pool, len(hosts), lag, barrier, turns, patience, say, first, num_updates)
    started, shown, saved, wait = time.perf_counter(), 0.0, time.perf_counter(), checkpoint_seconds
    done = first, states  # how many updates, and what came of them
    compiled = started, time.process_time()  # by when all programs have run once
    try:
        run.publish(policies)
        for number in range(first, num_updates):
            rollouts = run.take(number)
            lags = [number - rollout.version for rollout in rollouts]
            played = {"lag": np.array(np.mean(lags)), "steps": np.array(sum(rollout.steps for rollout in rollouts))}
            with uninterrupted():  # an update takes the states' place
                states, told = learning.update(run_key, number, done[1], rollouts)
                told |= played
                parts.append(told)
                done = number + 1, states
            policies = learning.policies(states)
            if central:
                central.policies = policies
            run.publish(policies)
            look(told)
            if store:
                store.append(_rows(number, [told]))
            now = time.perf_counter()
            if number == first:
                compiled = now, time.process_time()
            if store and now - saved >= wait:
                before = time.perf_counter()
                _save(store, number + 1, states, parts)
                saved = time.perf_counter()
                wait = max(checkpoint_seconds, SAVING * (saved - before)) if checkpoint_seconds else 0.0
            if report and (now - shown > REPORT_SECONDS or number + 1 == num_updates):
                report(number + 1, told, now - started)
                shown = now
            check_stop()
        if store:
            _save(store, num_updates, states, parts)
    except (KeyboardInterrupt, Broken):
        if store and done[0] > first and not _is_gone(done[1]):
            _save(store, *done, parts[: done[0]])
        raise
    finally:
        pool.close()
    wall, cpu = time.perf_counter() - compiled[0], time.process_time() - compiled[1]
    steps = int(sum(part["steps"] for part in parts[first + 1 :]))
    metrics = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    statistics = {
        "mean_lag": float(metrics["lag"].mean()),
        "actors_restarted": run.restarted,
        "steps": int(metrics["steps"].sum()),
        "steps_per_second": steps / wall if steps else None,
        "learner_steps_per_cpu_second": steps / cpu if steps else None,  # of this process
        "seconds_to_run": time.perf_counter() - started,
    }
    if central and central.batches:
        statistics["mean_batch"] = central.evaluated / central.batches
    return Trained(_history(metrics, states, len(learners)), statistics)


def _is_gone(states: Any) -> bool:
    """Whether an update took their place that was interrupted."""
    return any(isinstance(x, jax.Array) and x.is_deleted() for x in jax.tree.leaves(states))


class _Learning:
    """The learners' side: what comes of rollouts."""

    def __init__(self, learners: tuple[Learner, ...], travels: bool):
        self._travels, self.learners = travels, learners
        self._adopt = jax.jit(functools.partial(adopted, learners)) if any(one.sync for one in learners) else None

    def begin(self, keys: Sequence[jax.Array]) -> tuple[LearnerState, ...]:
        """The first states."""
        each = zip(self.learners, keys, strict=True)
        return self._adopted(tuple(_programs_of(alike(learner)).init(key) for learner, key in each))

    def policies(self, states: Sequence[LearnerState]) -> tuple[Any, ...]:
        """What acts, as numbers of the host where it travels."""
        each = zip(self.learners, states, strict=True)
        found = tuple(_programs_of(alike(learner)).policy(state) for learner, state in each)
        return jax.tree.map(np.asarray, found) if self._travels else found

    def update(
        self, run_key: jax.Array, number: int, states: tuple[LearnerState, ...], rollouts: list[Rollout]
    ) -> tuple[tuple[LearnerState, ...], dict[str, np.ndarray]]:
        """The states after an update, and what is told of it."""
        experience = rollouts[0].experience[: len(self.learners)]
        if len(rollouts) > 1:
            policies = self.policies(states)
            experience = tuple(
                joined(learner, policy, [rollout.experience[i] for rollout in rollouts])
                for i, (learner, policy) in enumerate(zip(self.learners, policies, strict=True))
            )
        keys = _update_keys(run_key, np.int32(number), len(self.learners))
        updated: list[LearnerState] = []
        told: dict[str, Any] = {}
        for i, (learner, state, one) in enumerate(zip(self.learners, states, experience, strict=True)):
            programs = _programs_of(alike(learner))
            if isinstance(one, Trajectory):
                state, metrics = programs.update(keys[i], state, one)
            else:
                state, metrics = programs.apply(state, one[0]), one[1]
            updated.append(state)
            told |= {f"{name}_{i}": x for name, x in metrics.items()}
        states = self._adopted(tuple(updated))
        returns, number_ended = _returns(counted(rollouts))
        for i, one in enumerate(experience):
            reward = _mean(one.reward) if isinstance(one, Trajectory) else rollouts[0].rewards[i]
            told |= {f"reward_{i}": reward, f"return_{i}": returns[i], f"ended_{i}": number_ended}
        infos = rollouts[0].infos
        told |= {f"info_{name}": np.mean([rollout.infos[name] for rollout in rollouts], 0) for name in infos}
        return states, jax.tree.map(np.asarray, told)

    def _adopted(self, states: tuple[LearnerState, ...]) -> tuple[LearnerState, ...]:
        found: tuple[LearnerState, ...] = self._adopt(states) if self._adopt else states
        return found


class _LearnerPrograms(NamedTuple):
    """What is compiled of a learner's side, once for all seats and trainings that it learns in."""

    init: Callable[..., Any]
    policy: Callable[..., Any]
    update: Callable[..., Any]
    apply: Callable[..., Any]


@functools.lru_cache(maxsize=64)
def _programs_of(learner: Learner) -> _LearnerPrograms:
    # The states take the place of those before them, for a buffer is too large to be copied with every update.
    update = jax.jit(learner.update, donate_argnums=1)
    apply = jax.jit(learner.gradients.apply, donate_argnums=0) if learner.gradients else update
    # Policies outlast the states.
    policy = jax.jit(lambda state: jax.tree.map(jnp.copy, learner.policy(state)))
    return _LearnerPrograms(jax.jit(learner.init), policy, update, apply)


@functools.partial(jax.jit, static_argnums=2)
def _update_keys(run_key: jax.Array, number: jax.Array, count: int) -> tuple[jax.Array, ...]:
    update_key = jax.random.split(jax.random.fold_in(run_key, number))[1]
    return tuple(jax.random.split(update_key, count))


# As `learn` does, to the last bit.
_mean = jax.jit(jnp.mean)


def _returns(episodes: Episodes) -> tuple[np.ndarray, jax.Array]:
    """The mean return of each learner's episodes that ended, NaN if none, and how many did."""
    means, ended = _mean_returns(episodes)
    return np.where(np.asarray(ended) > 0, np.asarray(means), np.float32(np.nan)), ended


@jax.jit
def _mean_returns(episodes: Episodes) -> tuple[jax.Array, jax.Array]:
    ended = episodes.ended.sum()
    return episodes.finished.sum(1) / jnp.maximum(ended, 1), ended


def _pools(
    where: Where,
    inference: Inference,
    programs: ActorPrograms,
    hosts: Sequence[Callable[[], VectorEnv]],
    run_key: jax.Array,
    reset_key: jax.Array,
    seed: int,
    address: str,
) -> Callable[[Any], tuple[Pool, CentralInference | None]]:
    """What makes a pool of first policies, and who evaluates for all here."""

    def make(policies: Any) -> tuple[Pool, CentralInference | None]:
        if where == "here":
            return InProcessPool(programs, hosts, run_key, reset_key, seed), None
        if where == "threads" and inference == "central":
            central = CentralInference(programs, policies, len(hosts))
            pool = ThreadPool(programs, hosts, run_key, reset_key, seed, acts=central.act, leave=central.close)
            return pool, central
        if where == "threads":
            return ThreadPool(programs, hosts, run_key, reset_key, seed), None
        from marl.distributed.ray_pool import RayPool

        return RayPool(programs, hosts, run_key, reset_key, seed, inference == "central", address), None

    return make


def check(
    learners: Sequence[Learner],
    host: VectorEnv,
    steps: int,
    num_actors: int = 1,
    *,
    where: str = "here",
    inference: str = "actor",
    path: str = "queue",
    lag: int | None = None,
) -> None:
    """Traces an update, so that what does not fit, or cannot be learned from, is said before anything runs.

    Args:
      learners: one for each agent.
      host: what an actor plays.
      steps: of each environment in a rollout.
      num_actors: how many there are.
      where: as of `train`, as what follows.
      inference: who evaluates policies.
      path: what learners take.
      lag: of policies.

    Raises:
      ValueError: if settings do not fit each other, if there are not as many learners as agents, or if one says so.
    """
    for name, value, allowed in (("where", where, WHERE), ("inference", inference, INFERENCE), ("path", path, PATHS)):
        checks.choice(name, value, allowed)
    if lag is not None:
        checks.size("lag", lag, 0)
    if inference == "central" and (lag is not None or where == "here" or path == "barrier"):
        raise ValueError(
            "inference: got central, which evaluates with the newest policies; where: threads or ray, without a lag or "
            "a barrier, is needed"
        )
    if path == "gradients" and not any(learner.gradients for learner in learners):
        raise ValueError("path: got gradients, which no learner here takes where it acts; a3c does")
    joined = num_actors if path == "barrier" else 1
    game, programs = host.game, ActorPrograms(learners, host.num_envs * joined, 1, steps)
    if len(learners) != game.num_agents:
        raise ValueError(f"learners: got {len(learners)}; {game.num_agents} are needed, one for each agent")
    for learner in learners:
        state = jax.eval_shape(learner.init, jax.random.key(0))
        if host.has_empty_steps and not reads_valid(learner, programs, state, game):
            raise ValueError(
                "learner: learns from steps in which nothing happened, which this environment has; ppo, a2c, dqn, "
                "impala, a3c, ape_x, r2d2, td3 or sac, or an environment that resets at once, is needed"
            )
        jax.eval_shape(learner.update, jax.random.key(0), state, programs.shapes(learner, state, game))
        if path == "barrier" and num_actors > 1:
            check_joined(learner, jax.eval_shape(learner.policy, state), host.num_envs)


def reads_valid(learner: Learner, programs: ActorPrograms, state: LearnerState, game: Game) -> bool:
    """Whether a learner's update looks at `Trajectory.valid`, which is known without running it."""
    trajectory = programs.shapes(learner, state, game)

    def update(valid: jax.Array, key: jax.Array, state: Any, rest: Trajectory) -> Any:
        return learner.update(key, state, rest._replace(valid=valid))

    valid = jax.ShapeDtypeStruct(trajectory.done.shape, bool)
    traced = jax.make_jaxpr(update)(valid, jax.random.key(0), state, trajectory)
    first = traced.jaxpr.invars[0]
    return any(first is x for equation in traced.jaxpr.eqns for x in equation.invars)


def _save(store: Store, number: int, states: Any, parts: list[dict[str, np.ndarray]]) -> None:
    metrics = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    store.save(number, {"states": states, "updates": jnp.int32(number)}, metrics)


def _rows(first: int, parts: Sequence[dict[str, np.ndarray]]) -> list[dict[str, Any]]:
    return [
        {"update": first + i + 1}
        | {name: np.asarray(part[name]).tolist() for name in sorted(part)}  # as checkpoints do
        for i, part in enumerate(parts)
    ]


def _history(metrics: dict[str, np.ndarray], states: Any, players: int) -> History:
    def of(name: str) -> tuple[Any, ...]:
        return tuple(metrics[f"{name}_{i}"] for i in range(players))

    known = {"lag", "steps"} | {f"{name}_{i}" for name in ("reward", "return", "ended") for i in range(players)}
    own: tuple[dict[str, Any], ...] = tuple(
        {
            name.removesuffix(f"_{i}"): x
            for name, x in metrics.items()
            if name.endswith(f"_{i}") and name not in known and not name.startswith("info_")
        }
        for i in range(players)
    )
    infos: dict[str, Any] = {name.removeprefix("info_"): x for name, x in metrics.items() if name.startswith("info_")}
    return History(of("reward"), tuple(map(np.nan_to_num, of("return"))), of("ended"), own, infos, None, None, states)
