"""PPO on CartPole in PureJaxRL's setting: ours, and in turn with it a plain one in PureJaxRL's manner.

4 environments, 128 steps, 4 epochs of 4 minibatches, networks of 64 x 64 tanh units, learning rate 2.5e-4 falling to 0,
500,000 steps of each seed. The reference is one scan over updates of a scan over steps around gymnax's environment in
its `FlattenObservationWrapper` and `LogWrapper`, whose infos of every step it returns; flax's modules and train state,
optax's chain, `jax.random` throughout, a `vmap` over seeds and XLA's default options, as Lu et al. (2022) describe
theirs. Ours is `learn`, its seeds spread over the cores as in `python -m marl.train`.

With `--script FILE`, PureJaxRL's own ppo.py runs in turn with both. It gets gymnax's wrappers under the names of its
own, and a categorical distribution in the place of distrax, which current JAX does not run.

Each of them is a process of its own that may use one core or two, so that XLA's threads are as many. They are
compiled first and then run in turn; the ratios are medians over the turns. CPU-seconds are those of all threads. In the
last case a process that never rests has the second core as well. A seed's return is the mean over the last tenth's
updates.

    python -m benchmarks.speed.ppo [--seeds 1,16] [--repeats 3] [--steps 500000] [--script purejaxrl/ppo.py]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

import games
from benchmarks.timing import in_turn, ratio
from marl import learn
from marl.blocks.layers import orthogonal
from marl.experiments.learner_training import SEEDS_IN_CACHE
from marl.learners.sampled.ppo import ppo
from meta.loop import compiler_options
from meta.statistics import standard_error
from meta.xla.devices import spread, use_all_cores

NUM_ENVS, STEPS, EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 128, 4, 4, 2.5e-4
DISCOUNT, GAE_LAMBDA, CLIP, VALUE_COEFFICIENT, ENTROPY_COEFFICIENT, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5
GOAL = 475.0  # from which CartPole-v1 counts as solved
SOLVED = "475+"
LOGGED = ("discount", "returned_episode", "returned_episode_returns", "returned_episode_lengths")
CASES = (("1", 1, False), ("2", 2, False), ("2, one busy", 2, True))  # (name, cores, whether another has the last)


def ours(num_updates: int) -> Callable[[jax.Array], jax.Array]:
    """A training from its key: the mean return of each update `[K]`, NaN where no episode ended."""
    game = games.make("CartPole-v1")

    def train(key: jax.Array) -> jax.Array:
        rate = optax.linear_schedule(LEARNING_RATE, 0.0, num_updates * EPOCHS * MINIBATCHES)
        learner = ppo(game, learning_rate=rate, epochs=EPOCHS, minibatches=MINIBATCHES)
        return learn(key, game, [learner], num_updates=num_updates, steps_per_update=STEPS, num_envs=NUM_ENVS).returns[
            0
        ]

    return train


class Categorical(NamedTuple):
    """A distribution over actions, in the manner of distrax: as its normalised logits `[..., num_actions]`."""

    log_probs: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        drawn = jax.random.categorical(key, self.log_probs)
        return jnp.where(jnp.isfinite(self.log_probs).all(-1), drawn, -1)

    def log_prob(self, action: jax.Array) -> jax.Array:
        chosen = jax.nn.one_hot(action, self.log_probs.shape[-1])
        return jnp.where(chosen == 0, 0.0, self.log_probs * chosen).sum(-1)

    def entropy(self) -> jax.Array:
        return -(jnp.exp(self.log_probs) * self.log_probs).sum(-1)


class ActorCritic(nn.Module):
    """A distribution and a value from two networks that share nothing."""

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[Categorical, jax.Array]:
        outputs = []
        for size, scale in ((self.num_actions, 0.01), (1, 1.0)):
            hidden = x
            for _ in range(2):
                hidden = nn.tanh(nn.Dense(64, kernel_init=orthogonal(2**0.5))(hidden))
            outputs.append(nn.Dense(size, kernel_init=orthogonal(scale))(hidden))
        return Categorical(jax.nn.log_softmax(outputs[0])), outputs[1][..., 0]


class Step(NamedTuple):
    """A step as the reference implementation keeps it."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array
    info: dict[str, jax.Array]


def reference(num_updates: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """A training from its key, the plain way: the infos in `LOGGED` of every step `[K, steps, environments]`."""
    import gymnax  # here, for its import makes JAX begin
    from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

    environment, parameters = gymnax.make("CartPole-v1")
    environment = LogWrapper(FlattenObservationWrapper(environment))
    network = ActorCritic(environment.action_space(parameters).n)
    rate = optax.linear_schedule(LEARNING_RATE, 0.0, num_updates * EPOCHS * MINIBATCHES)
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(rate, eps=1e-5))

    def play(carry: Any, _: None) -> Any:
        learner, state, obs, key = carry
        key, action_key = jax.random.split(key)
        policy, value = network.apply(learner.params, obs)
        action = policy.sample(action_key)
        log_prob = policy.log_prob(action)
        key, step_key = jax.random.split(key)
        keys = jax.random.split(step_key, NUM_ENVS)
        new_obs, state, reward, terminated, truncated, info = jax.vmap(environment.step, (0, 0, 0, None))(
            keys, state, action, parameters
        )
        done = terminated | truncated  # by the rules or by the time limit, which this one does not distinguish
        step = Step(obs, action, log_prob, value, reward, done, {name: info[name] for name in LOGGED})
        return (learner, state, new_obs, key), step

    def loss(params: Any, batch: tuple[Step, jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        steps, advantage, target = batch
        policy, value = network.apply(params, steps.obs)
        ratio = jnp.exp(policy.log_prob(steps.action) - steps.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
        near = steps.value + jnp.clip(value - steps.value, -CLIP, CLIP)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
        entropy = policy.entropy().mean()
        total = VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * entropy - gain
        return total, (value_loss, gain, entropy)

    def back(carry: tuple[jax.Array, jax.Array], step: Step) -> Any:
        advantage, next_value = carry
        goes_on = 1.0 - step.done
        error = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = error + DISCOUNT * GAE_LAMBDA * goes_on * advantage
        return (advantage, step.value), advantage

    def descend(learner: TrainState, batch: Any) -> Any:
        found, gradient = jax.value_and_grad(loss, has_aux=True)(learner.params, batch)
        return learner.apply_gradients(grads=gradient), found

    def update(carry: Any, _: None) -> Any:
        (learner, state, obs, key), steps = jax.lax.scan(play, carry, None, STEPS)
        _, last_value = network.apply(learner.params, obs)
        start = jnp.zeros_like(last_value), last_value
        _, advantage = jax.lax.scan(back, start, steps, reverse=True, unroll=16)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantage, advantage + steps.value))

        def epoch(learner: TrainState, key: jax.Array) -> Any:
            order = jax.random.permutation(key, NUM_ENVS * STEPS)
            shuffled = jax.tree.map(lambda x: jnp.take(x, order, 0).reshape(MINIBATCHES, -1, *x.shape[1:]), batch)
            return jax.lax.scan(descend, learner, shuffled)

        key, epoch_key = jax.random.split(key)
        learner, _ = jax.lax.scan(epoch, learner, jax.random.split(epoch_key, EPOCHS))
        return (learner, state, obs, key), steps.info

    def train(key: jax.Array) -> dict[str, jax.Array]:
        init_key, reset_key, key = jax.random.split(key, 3)
        obs, state = jax.vmap(environment.reset, (0, None))(jax.random.split(reset_key, NUM_ENVS), parameters)
        learner = TrainState.create(apply_fn=network.apply, params=network.init(init_key, obs), tx=optimizer)
        return jax.lax.scan(update, (learner, state, obs, key), None, num_updates)[1]

    return train


def published(file: str, num_updates: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """A training by PureJaxRL's own script, from a copy of its file."""
    from gymnax.wrappers import LegacyStepAPIWrapper
    from gymnax.wrappers.purerl import FlattenObservationWrapper, LogWrapper

    class Distribution:
        def __init__(self, logits: jax.Array):
            self._known = Categorical(jax.nn.log_softmax(logits))
            self.log_prob, self.entropy = self._known.log_prob, self._known.entropy

        def sample(self, seed: jax.Array) -> jax.Array:
            return self._known.sample(seed)

    for module, names in {
        "distrax": {"Categorical": Distribution},
        "wrappers": {
            "FlattenObservationWrapper": FlattenObservationWrapper,
            "LogWrapper": lambda environment: LegacyStepAPIWrapper(LogWrapper(environment)),
        },
    }.items():
        sys.modules[module] = ModuleType(module)
        vars(sys.modules[module]).update(names)
    spec = importlib.util.spec_from_file_location("purejaxrl_ppo", file)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    settings = {
        "ENV_NAME": "CartPole-v1",
        "NUM_ENVS": NUM_ENVS,
        "NUM_STEPS": STEPS,
        "TOTAL_TIMESTEPS": num_updates * NUM_ENVS * STEPS,
        "UPDATE_EPOCHS": EPOCHS,
        "NUM_MINIBATCHES": MINIBATCHES,
        "LR": LEARNING_RATE,
        "ANNEAL_LR": True,
        "GAMMA": DISCOUNT,
        "GAE_LAMBDA": GAE_LAMBDA,
        "CLIP_EPS": CLIP,
        "ENT_COEF": ENTROPY_COEFFICIENT,
        "VF_COEF": VALUE_COEFFICIENT,
        "MAX_GRAD_NORM": MAX_NORM,
        "ACTIVATION": "tanh",
        "DEBUG": False,
    }
    train = script.make_train(settings)
    return lambda key: train(key)["metrics"]


def program_of(name: str, seeds: int, num_updates: int) -> tuple[Any, Any]:
    """(a compiled training, its keys); a name that is none of both is the file of PureJaxRL's script."""
    if name == "ours":
        use_all_cores(seeds)
        keys = jax.random.split(jax.random.key(0), seeds)
        train = spread(ours(num_updates), seeds, at_once=SEEDS_IN_CACHE)
        return jax.jit(train).lower(keys).compile(compiler_options()), keys
    plain = reference(num_updates) if name == "reference" else published(name, num_updates)
    if seeds == 1:
        key = jax.random.key(0)
        return jax.jit(plain).lower(key).compile(), key
    keys = jax.random.split(jax.random.key(0), seeds)
    return jax.jit(jax.vmap(plain)).lower(keys).compile(), keys


def returns_of(found: Any, seeds: int) -> np.ndarray:
    """The mean return of each update `[seeds, K]`, NaN where no episode ended."""
    if not isinstance(found, dict):
        return np.asarray(found)
    ended, values = (
        np.asarray(found[name]).reshape(seeds, -1, STEPS * NUM_ENVS)
        for name in ("returned_episode", "returned_episode_returns")
    )
    with np.errstate(invalid="ignore"):
        means: np.ndarray = (values * ended).sum(-1) / ended.sum(-1)
    return means


class Run(NamedTuple):
    """A training, measured."""

    seconds: float
    cpu_seconds: float  # of all threads, in the program and in the system
    returns: np.ndarray  # [seeds, K]


def serve(name: str, seeds: int, num_updates: int, pipe: Connection) -> None:
    """A process of its own: says how long it compiled, and trains at every request."""
    started = time.perf_counter()
    program, keys = program_of(name, seeds, num_updates)
    pipe.send(time.perf_counter() - started)
    while pipe.recv():
        before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        found = jax.block_until_ready(program(keys))
        seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        pipe.send(Run(seconds, used, returns_of(found, seeds)))


def ask(pipe: Connection) -> Run:
    """A training of the process behind the pipe."""
    pipe.send(True)
    return pipe.recv()


def spin() -> None:
    """The neighbour that never rests."""
    while True:
        pass


@contextlib.contextmanager
def process(cores: set[int], target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """A process that may use these cores, as long as the context is entered."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # which it inherits
    try:
        child = multiprocessing.get_context("spawn").Process(target=target, args=arguments, daemon=True)
        child.start()
    finally:
        os.sched_setaffinity(0, all_cores)
    try:
        yield
    finally:
        child.kill()
        child.join()


def measure(
    names: list[str], cores: list[int], busy: bool, seeds: int, num_updates: int, repeats: int
) -> Iterator[str]:
    """Lines of the table, of all in turn; the ratios are to the first."""
    with contextlib.ExitStack() as stack:
        pipes = {}
        compiled = {}
        for name in names:  # one after the other, so that neither compiles beside the other
            pipes[name], theirs = multiprocessing.get_context("spawn").Pipe()
            stack.enter_context(process(set(cores), serve, name, seeds, num_updates, theirs))
            compiled[name] = pipes[name].recv()
        if busy:
            stack.enter_context(process({cores[-1]}, spin))
        runs = in_turn({name: partial(ask, pipe) for name, pipe in pipes.items()}, repeats)
    million = seeds * num_updates * NUM_ENVS * STEPS / 1e6
    for name, mine in runs.items():
        label = name if name in ("reference", "ours") else "PureJaxRL"
        speed = 1e3 * million / statistics.median(run.seconds for run in mine)
        cost = statistics.median(run.cpu_seconds for run in mine) / million
        faster, cheaper = (
            ratio((getattr(run, what) for run in runs[names[0]]), (getattr(run, what) for run in mine))
            for what in ("seconds", "cpu_seconds")
        )
        last = -(-num_updates // 10)
        found = np.nanmean(mine[0].returns[:, -last:], 1)
        error = f"{standard_error(found):5.1f}" if seeds > 1 else "     "
        yield (
            f"{seeds:5} {label:>9} | {speed:8.0f} {cost:10.2f} | {faster:6.2f} {cheaper:8.2f} | "
            f"{compiled[name]:7.1f} | {found.mean():6.1f} {error} {(found >= GOAL).sum():3}/{seeds}"
        )


def main() -> None:
    """Prints a table of speeds and returns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default="1,16", help="seeds trained at once, comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each; medians are printed")
    parser.add_argument("--steps", type=int, default=500_000, help="environment steps of each seed")
    parser.add_argument("--script", help="PureJaxRL's ppo.py, to be run in turn; the ratios are then to it")
    arguments = parser.parse_args()
    names = [*([arguments.script] if arguments.script else []), "reference", "ours"]
    num_updates = arguments.steps // (NUM_ENVS * STEPS)
    available = sorted(os.sched_getaffinity(0))
    print(f"{len(available)} cores, {platform.machine()}, jax {jax.__version__}; x: time of the first / time")
    print(
        f"{'cores':>11} seeds           | k steps/s CPU-s/M | x wall  x CPU-s | compile | return  s.e.  {SOLVED}",
        flush=True,
    )
    for case, number, busy in CASES:
        if number > len(available):
            continue
        for seeds in map(int, arguments.seeds.split(",")):
            for line in measure(names, available[:number], busy, seeds, num_updates, arguments.repeats):
                print(f"{case:>11} {line}", flush=True)


if __name__ == "__main__":
    main()
