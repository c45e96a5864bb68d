"""`train`: the loop of `learn` with actors in vector environments, here, in threads or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games.core import checks
from games.core.arguments import check_arguments
from marl.core.learn import History
from marl.core.learner import Learner
from marl.core.learner_checks import check_key
from marl.distributed.actors.actor_pools import EnvSeeds, InProcessPool, Pool, ThreadPool
from marl.distributed.actors.actor_programs import programs_of
from marl.distributed.actors.inference import CentralInference
from marl.distributed.dispatcher import Broken, Dispatcher
from marl.distributed.fitting import fit
from marl.distributed.learner_group import LearnerGroup
from marl.distributed.system import Setup, System
from marl.distributed.vector_env import MakeVectorEnv
from meta.loop import Report, Store
from meta.process import check_stop, recognised, uninterrupted
from meta.trackers.tracked_store import tracked
from meta.trackers.tracker import Tracker

REPORT_SECONDS = 0.5
SAVING = 10  # times as long as a checkpoint took, none is written: a buffer of images takes seconds


class Trained(NamedTuple):
    """Results of `train`."""

    history: History
    statistics: dict[str, Any]  # of actors and of time, as in a summary


@check_arguments
def train(
    learners: Sequence[Learner],
    make_envs: Sequence[MakeVectorEnv],
    *,
    key: jax.Array,
    num_updates: int,
    steps_per_update: int,
    system: System | None = None,
    seed: int = 0,
    store: Store | None = None,
    checkpoint_seconds: float = 15.0,
    report: Report | None = None,
    look: Callable[[dict[str, np.ndarray]], Any] = lambda metrics: None,
    say: Callable[[str], Any] = lambda line: None,
    tracker: Tracker | None = None,
) -> Trained:
    """Trains learners in vector environments: actors play rollouts with policies, and learners learn from them.

    With a lag the result is reproducible wherever actors are, as far as environments are: rollout number i is played by
    actor i modulo their number with the policies of i - lag updates. With one actor it is the result of `learn` with
    `stale(learner, lag)`, and in our own games the same bit for bit. Without a lag nothing waits: an actor takes the
    newest policies when it begins a rollout, and learners take rollouts in the order in which they come. Actors that
    take turns here, and those that a barrier waits for, then have policies of this update.

    An actor that fails starts again after a second, and after each further failure in a row after twice as long, up to
    a minute, as long as training lasts. Without a lag the others go on meanwhile, and an update behind a barrier takes
    the rollouts of those that are left. With a lag each rollout is needed, and all actors wait.

    Args:
      learners: one for each agent.
      make_envs: functions that make an actor's environments, one for each actor; they travel to the actor's process.
      key: random numbers of the training come from it, but for those of environments with seeds of their own.
      num_updates: number of updates of all learners.
      steps_per_update: of each environment in a rollout.
      system: where actors are, where policies are evaluated, what travels, and how old policies may be; `System()` if
        None.
      seed: of environments that have seeds of their own.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped, with new environments.
      checkpoint_seconds: least seconds between checkpoints, which are at least ten times what the last one took to
        write; 0 saves after every update.
      report: called as `report(updates so far, their last metrics, seconds of running)`, some times a second.
      look: called with the metrics of every update.
      say: called with a line for the user, such as the failure of an actor.
      tracker: a `meta.Tracker` gets the metrics of every update, in a thread beside the training.

    Returns:
      `Trained`: the `History` of `learn`, without trajectories, and statistics of the actors.

    Raises:
      TypeError: for arguments of another type.
      ValueError: for settings that do not fit each other, or learners that do not fit the environments.
      Broken: if no actor has played a first rollout in three tries each, or a further one in ten in a row; with a lag,
        if the actor of the next rollout has not. The updates so far are saved.
    """
    check_key(key)
    checks.size("num_updates", num_updates, 1)
    checks.size("steps_per_update", steps_per_update, 1)
    if not make_envs:
        raise ValueError("make_envs: got none; one for each actor is needed")
    env = make_envs[0]()  # its spaces are needed
    try:
        setup = fit(learners, make_envs, env, steps_per_update, system or System())
    finally:
        env.close()
    described = {"num_updates": num_updates, "steps_per_update": steps_per_update, "seed": seed}
    with tracked(store, tracker, "train", described) as store:
        return run(
            setup,
            key=key,
            num_updates=num_updates,
            seed=seed,
            store=store,
            checkpoint_seconds=checkpoint_seconds,
            report=report,
            look=look,
            say=say,
        )


def run(
    setup: Setup,
    *,
    key: jax.Array,
    num_updates: int,
    seed: int,
    store: Store | None,
    checkpoint_seconds: float,
    report: Report | None,
    look: Callable[[dict[str, np.ndarray]], Any],
    say: Callable[[str], Any],
) -> Trained:
    """Runs a training that is known to fit; the arguments are those of `train`."""
    reset_key, run_key, *init_keys = jax.random.split(key, 2 + len(setup.learners))
    group = LearnerGroup(setup.learners, travels=setup.system.where == "ray")
    record = _Record(store, checkpoint_seconds, group.init(init_keys), num_updates)
    seeds = EnvSeeds(run_key, reset_key, seed)
    if record.first:
        seeds = seeds.resumed(record.first, setup.system.lag)
    policies = group.policies(record.states)
    pool, central = _make_pool(setup, seeds, policies)
    dispatcher = Dispatcher(pool, setup, record.first, num_updates, say)
    clock, shown = _Clock(), 0.0
    try:
        with recognised():
            dispatcher.publish(policies)
            for number in range(record.first, num_updates):
                rollouts = dispatcher.take(number)
                lags, steps = zip(*((number - rollout.version, rollout.steps) for rollout in rollouts), strict=True)
                with uninterrupted():  # an update takes the states' place, and a checkpoint has all rows
                    states, policies, metrics = group.update(run_key, number, record.states, rollouts)
                    metrics |= {"lag": np.array(np.mean(lags)), "steps": np.array(sum(steps))}
                    record.add(states, metrics)
                    record.write()
                if central:
                    central.policies = policies
                dispatcher.publish(policies)
                look(metrics)
                if number == record.first:
                    clock.end_compilation()
                record.save_if_due()
                if report and (time.perf_counter() - shown > REPORT_SECONDS or number + 1 == num_updates):
                    shown = time.perf_counter()
                    report(number + 1, metrics, clock.seconds)
                check_stop()
            record.save()
    except (KeyboardInterrupt, Broken):
        record.save_whole_updates()
        raise
    finally:
        pool.close()
    every = {name: np.array([one[name] for one in record.metrics]) for name in record.metrics[0]}
    statistics = {
        "mean_lag": float(every["lag"].mean()),
        "actors_restarted": dispatcher.restarted,
        "steps": int(every["steps"].sum()),
        **clock.speeds(int(every["steps"][record.first + 1 :].sum())),
    }
    if central and central.batches:
        statistics["mean_batch"] = central.evaluated / central.batches
    return Trained(_history(every, record.states, len(setup.learners)), statistics)


def _make_pool(setup: Setup, seeds: EnvSeeds, policies: Any) -> tuple[Pool, CentralInference | None]:
    """The actors, and the evaluation of policies for all of them in this process, if there is one."""
    if setup.system.where == "ray":
        from marl.distributed.actors.ray_pool import RayPool

        return RayPool(setup, seeds), None
    size = setup.num_envs, setup.num_actors, setup.steps_per_update
    programs = programs_of(setup.learners, *size, setup.takes_gradients)
    if setup.system.where == "here":
        return InProcessPool(programs, setup.make_envs, seeds), None
    if setup.system.inference == "actor":
        return ThreadPool(programs, setup.make_envs, seeds), None
    central = CentralInference(programs, policies, setup.num_actors)
    return ThreadPool(programs, setup.make_envs, seeds, act=central.act, leave=central.close), central


class _Record:
    """States and metrics of a training so far, and their checkpoints.

    Args:
      store: keeps them, and gives back those of a run that was stopped; nothing is kept if None.
      checkpoint_seconds: as of `train`.
      states: with which a training begins.
      num_updates: a later checkpoint is not taken.
    """

    def __init__(self, store: Store | None, checkpoint_seconds: float, states: Any, num_updates: int):
        self._store, self._seconds, self._wait = store, checkpoint_seconds, checkpoint_seconds
        self.states, self.metrics = states, list[dict[str, np.ndarray]]()  # of each update
        if store and (found := store.restore({"states": states, "updates": jnp.int32(0)}, num_updates)):
            first, state, metrics = found
            self.states = jax.tree.map(jnp.array, state["states"])
            self.metrics = [{name: x[i] for name, x in metrics.items()} for i in range(first)]
        if store:
            store.rewrite(_rows(0, self.metrics))
        self.first, self._saved = len(self.metrics), time.perf_counter()

    def add(self, states: Any, metrics: dict[str, np.ndarray]) -> None:
        """Takes the states and the metrics of an update."""
        self.states = states
        self.metrics.append(metrics)

    def write(self) -> None:
        """Writes the metrics of the last update."""
        if self._store:
            self._store.append(_rows(len(self.metrics) - 1, self.metrics[-1:]))

    def save_if_due(self) -> None:
        """Writes a checkpoint if the last one is old enough."""
        before = time.perf_counter()
        if self._store and before - self._saved >= self._wait:
            self.save()
            self._saved = time.perf_counter()
            self._wait = max(self._seconds, SAVING * (self._saved - before)) if self._seconds else 0.0

    def save(self) -> None:
        """Writes a checkpoint."""
        if self._store:
            metrics = {name: np.array([one[name] for one in self.metrics]) for name in self.metrics[0]}
            number = len(self.metrics)
            self._store.save(number, {"states": self.states, "updates": jnp.int32(number)}, metrics)

    def save_whole_updates(self) -> None:
        """Writes a checkpoint of a training that stops, unless an interrupted update has taken the states' place."""
        gone = any(isinstance(x, jax.Array) and x.is_deleted() for x in jax.tree.leaves(self.states))
        with uninterrupted(check=False):
            if len(self.metrics) > self.first and not gone:
                self.save()


class _Clock:
    """Time since a training began, and since all its programs have run once."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._compiled = self._started, time.process_time()

    def end_compilation(self) -> None:
        """Begins to measure the speed."""
        self._compiled = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        """Seconds since the training began."""
        return time.perf_counter() - self._started

    def speeds(self, steps: int) -> dict[str, float | None]:
        """Entries of a summary, with the number of steps since the programs were compiled."""
        wall, cpu = time.perf_counter() - self._compiled[0], time.process_time() - self._compiled[1]
        return {
            "steps_per_second": steps / wall if steps else None,
            "learner_steps_per_cpu_second": steps / cpu if steps else None,  # of this process
            "seconds_to_run": self.seconds,
        }


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
