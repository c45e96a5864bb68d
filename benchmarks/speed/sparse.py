"""The cost of sparsity in training, and its gain in acting.

    python -m benchmarks.speed.sparse [--only learning,products,inference] [--repeats 5]

learning: gradient steps of TD3 with layers of 256 and 256 units and minibatches of 256, in 17 numbers that are seen
and 6 that are done: a plain loop without a buffer and without masks, written below; `td3`; and `td3` with a tenth of
its weights that change every thousand steps.
products: gradient steps of TD3 with masks, and with a constant fan-in, whose products read the weights that are there;
layers of 256 to 1,024 units with 90 to 99 % of their weights gone.
inference: one observation at a time, in C as `marl.export` writes it, compressed and dense, by NumPy, and by
a compiled JAX function; layers of 64 to 1,024 units with 50 to 99 % of their weights gone.

Everything is measured in turn, medians of the repeats are shown.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

from benchmarks.timing import in_turn, seconds, seconds_in_turn
from games import Box, Game
from marl.blocks.perceptron import perceptron
from marl.blocks.sparse import Sparsity, allocate, sparse
from marl.core.learner import Trajectory
from marl.experiments.export import Layer, Policy, compiled, seconds_of_a_call, to_c
from marl.learners.sampled.td3 import td3

SEEN, DONE, STEPS, STORED = 17, 6, 200, 8192
UNITS, GONE = (64, 256, 512, 1024), (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
WIDE, PRODUCTS_GONE, FEW = UNITS[1:], GONE[2:], 20  # of products; steps in a call


class Spaces(Game):
    """HalfCheetah's numbers, and nothing to be played."""

    num_agents = 1

    def observation_space(self, agent: str) -> Box:
        return Box(-jnp.inf, jnp.inf, (SEEN,))

    def action_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (DONE,))


def plain() -> Callable[[], Any]:
    """TD3's steps on batches that are there already, in the plainest form."""
    actor = perceptron(SEEN, DONE)
    critic = perceptron(SEEN + DONE, 1)
    adam = optax.adam(3e-4)
    keys = jax.random.split(jax.random.key(0), 8)
    params, critics = actor.init(keys[0]), (critic.init(keys[1]), critic.init(keys[2]))
    obs, next_obs = (jax.random.normal(key, (256, SEEN)) for key in keys[3:5])
    action, reward = jax.random.uniform(keys[5], (256, DONE), minval=-1), jax.random.normal(keys[6], (256,))

    def values(critics: Any, obs: jax.Array, action: jax.Array) -> jax.Array:
        return jnp.stack([critic.apply(one, jnp.concatenate([obs, action], -1))[:, 0] for one in critics])

    def step(carry: Any, inputs: tuple[jax.Array, jax.Array]) -> Any:
        params, critics, target, slow, own, of_critics = carry
        key, number = inputs
        noise = jnp.clip(0.2 * jax.random.normal(key, action.shape), -0.5, 0.5)
        coming = jnp.clip(jnp.tanh(actor.apply(target, next_obs)) + noise, -1, 1)
        goal = reward + 0.99 * values(slow, next_obs, coming).min(0)
        gradient = jax.grad(lambda c: ((values(c, obs, action) - goal) ** 2).sum(0).mean())(critics)
        updates, of_critics = adam.update(gradient, of_critics)
        critics = optax.apply_updates(critics, updates)

        def climb(_: None) -> Any:
            found = jax.grad(lambda p: -values(critics, obs, jnp.tanh(actor.apply(p, obs)))[0].mean())(params)
            updates, new = adam.update(found, own)
            moved = optax.apply_updates(params, updates)
            return moved, new, *optax.incremental_update((moved, critics), (target, slow), 0.005)

        params, own, target, slow = jax.lax.cond(number % 2 == 1, climb, lambda _: (params, own, target, slow), None)
        return (params, critics, target, slow, own, of_critics), None

    def run(carry: Any) -> Any:
        inputs = jax.random.split(jax.random.key(1), STEPS), jnp.arange(STEPS)
        return jax.lax.scan(step, carry, inputs)[0]

    state = [(params, critics, params, critics, adam.init(params), adam.init(critics))]
    compiled_run = jax.jit(run)

    def call() -> None:
        state[0] = jax.block_until_ready(compiled_run(state[0]))

    return call


def ours(sparsity: Sparsity | None, units: int = 256, steps: int = STEPS) -> Callable[[], Any]:
    """Updates of `td3` with a full buffer."""
    replay = {"gradient_steps": steps, "buffer_size": STORED, "learning_starts": 1}
    learner = td3(Spaces(), hidden=(units, units), replay=replay, sparsity=sparsity)
    keys = jax.random.split(jax.random.key(0), 4)
    obs, next_obs = (jax.random.normal(key, (STORED // 8, 8, SEEN)) for key in keys[:2])
    action = jax.random.uniform(keys[2], (STORED // 8, 8, DONE), minval=-1)
    reward, no = jax.random.normal(keys[3], action.shape[:2]), jnp.zeros(action.shape[:2], bool)
    t = Trajectory(obs, action, reward, no, (), (), no, next_obs, None, None)
    update = jax.jit(learner.update, donate_argnums=1)
    small = jax.tree.map(lambda x: x[:8], t._replace(first_memory=None, last_memory=None))
    state = [update(keys[0], jax.jit(learner.init)(keys[1]), t)[0]]
    update_small = jax.jit(learner.update, donate_argnums=1)

    def call() -> None:
        state[0] = jax.block_until_ready(update_small(keys[0], state[0], small)[0])

    return call


def learning(repeats: int, console: Console) -> None:
    rows = {"a plain loop": plain(), "td3": ours(None)}
    rows["td3, a tenth of the weights"] = ours(sparse(density=0.1, every=1_000, until=10**6))
    found = {name: statistics.median(times) for name, times in seconds_in_turn(rows, repeats).items()}
    table = Table("TD3, 256-256, batches of 256", "gradient steps a second", "of the plain loop")
    for name, taken in found.items():
        table.add_row(name, f"{STEPS / taken:.0f}", f"{found['a plain loop'] / taken:.2f}")
    console.print(table)


def products(repeats: int, console: Console) -> None:
    table = Table("units", "dense, ms a step", *(f"{gone:.0%} gone" for gone in PRODUCTS_GONE), "90 % gone, masks")
    settings = {"every": 1_000, "until": 10**6, "update": "set"}
    for units in WIDE:
        rows: dict[Any, Callable[[], Any]] = {"dense": ours(None, units, FEW)}
        for gone in PRODUCTS_GONE:
            rows[gone] = ours(sparse(density=1 - gone, constant_fan_in=True, **settings), units, FEW)
        rows["masks"] = ours(sparse(density=0.1, **settings), units, FEW)
        found = {name: statistics.median(times) for name, times in seconds_in_turn(rows, repeats).items()}
        dense = found.pop("dense")
        table.add_row(f"{units}", f"{1e3 * dense / FEW:.1f}", *(f"{dense / taken:.2f}" for taken in found.values()))
    console.print(table)
    console.print("gradient steps of TD3, batches of 256: dense time over that of a constant fan-in, and of masks")


def policy_of(units: int, gone: float, seed: int) -> Policy:
    """Three layers with the allocation that `sparse` gives them, at random places."""
    rng, shapes = np.random.default_rng(seed), [(SEEN, units), (units, units), (units, DONE)]
    layers = []
    for shape, count in zip(shapes, allocate(shapes, 1 - gone, "erdos_renyi_kernel"), strict=True):
        kernel = np.zeros(np.prod(shape), np.float32)
        kernel[rng.choice(len(kernel), count, replace=False)] = rng.normal(size=count)
        layers.append(Layer(kernel.reshape(shape), np.zeros(shape[1], np.float32)))
    return Policy(tuple(layers), "relu", None, (np.zeros(DONE), np.ones(DONE)), best=False)


def inference(repeats: int, console: Console) -> None:
    table = Table("units", "gone", "compressed", "dense", "NumPy", "JAX", "dense / compressed")
    with tempfile.TemporaryDirectory() as name:
        for units in UNITS:
            for gone in GONE:
                policy, folder = policy_of(units, gone, 0), Path(name) / f"{units}-{gone}"
                calls: dict[Any, Callable[[], float]] = {}
                for kind in (True, False):
                    (folder / str(kind)).mkdir(parents=True)
                    library = compiled(to_c(policy, compressed=kind), folder / str(kind))
                    if library is None:
                        raise SystemExit("there is no C compiler")
                    calls[kind] = partial(seconds_of_a_call, policy, library)
                calls |= {make: partial(_least_seconds, make(policy)) for make in (_numpy, _jax)}
                c, dense, by_numpy, by_jax = (1e6 * statistics.median(x) for x in in_turn(calls, repeats).values())
                cells = [f"{x:.2f}" for x in (c, dense, by_numpy, by_jax, dense / c)]
                table.add_row(f"{units}", f"{gone:.0%}", *cells)
    console.print(table)
    console.print("microseconds for an observation, with the call from Python")


def _numpy(policy: Policy) -> Callable[[], Any]:
    obs = np.zeros(SEEN, np.float32)

    def call() -> np.ndarray:
        x = obs
        for i, layer in enumerate(policy.layers):
            x = x @ layer.kernel + layer.bias
            x = np.maximum(x, 0) if i < 2 else np.tanh(x)
        return x

    return call


def _jax(policy: Policy) -> Callable[[], Any]:
    @jax.jit
    def run(x: jax.Array) -> jax.Array:
        for i, layer in enumerate(policy.layers):
            x = x @ layer.kernel + layer.bias
            x = jax.nn.relu(x) if i < 2 else jnp.tanh(x)
        return x

    obs = jnp.zeros(SEEN)
    return lambda: run(obs).block_until_ready()


def _least_seconds(call: Callable[[], Any]) -> float:
    call()
    return min(seconds(call, 200) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="learning,products,inference")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    parts = {"learning": learning, "products": products, "inference": inference}
    if unknown := set(options.only.split(",")) - parts.keys():
        parser.error(f"--only: got {', '.join(sorted(unknown))}; some of {', '.join(parts)} are needed")
    for name in options.only.split(","):
        parts[name](options.repeats, Console())


if __name__ == "__main__":
    main()
