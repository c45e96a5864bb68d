"""PPO on CartPole in PureJaxRL's setting: ours, and beside it in the same run a plain one written the same way.

4 environments, 128 steps, 4 epochs of 4 minibatches, networks of 64 x 64 tanh units, learning rate 2.5e-4 falling to 0,
500,000 steps. The reference is one scan over updates of a scan over steps, with gymnax's own `step`, flax's modules and
optax's chain, `jax.random` throughout and default options of XLA, as Lu et al. (2022) describe theirs. Ours has several
seeds spread over all cores, as in `python -m marl.train`. A seed's return is the mean over the last tenth's updates.

    python -m benchmarks.ppo [--seeds 1,16] [--repeats 3] [--fast]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import games
from marl import learn
from marl.blocks.networks import orthogonal
from marl.learners.sampled.ppo import ppo
from meta.devices import spread, use_all_cores
from meta.loop import compiler_options

NUM_ENVS, STEPS, EPOCHS, MINIBATCHES, LEARNING_RATE = 4, 128, 4, 4, 2.5e-4
DISCOUNT, GAE_LAMBDA, CLIP, VALUE_COEFFICIENT, ENTROPY_COEFFICIENT, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.01, 0.5
TOTAL_STEPS, FAST_STEPS = 500_000, 20_480
GOAL = 475.0  # from which CartPole-v1 counts as solved
SOLVED = "475+"


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


class ActorCritic(nn.Module):
    """Logits and a value from two networks that share nothing."""

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        outputs = []
        for size, scale in ((self.num_actions, 0.01), (1, 1.0)):
            hidden = x
            for _ in range(2):
                hidden = nn.tanh(nn.Dense(64, kernel_init=orthogonal(2**0.5))(hidden))
            outputs.append(nn.Dense(size, kernel_init=orthogonal(scale))(hidden))
        return outputs[0], outputs[1][..., 0]


class Step(NamedTuple):
    """What the reference keeps of a step."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    done: jax.Array
    finished: jax.Array  # the return of an episode that ended, else 0


def reference(num_updates: int) -> Callable[[jax.Array], jax.Array]:
    """As `ours`, the plain way."""
    import gymnax  # here, for its import makes JAX begin, with one device

    environment, parameters = gymnax.make("CartPole-v1")
    network = ActorCritic(environment.action_space(parameters).n)
    rate = optax.linear_schedule(LEARNING_RATE, 0.0, num_updates * EPOCHS * MINIBATCHES)
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(rate, eps=1e-5))

    def play(params: Any, carry: Any, _: None) -> Any:
        key, obs, state, total = carry
        key, action_key, step_key = jax.random.split(key, 3)
        logits, value = network.apply(params, obs)
        action = jax.random.categorical(action_key, logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        keys = jax.random.split(step_key, NUM_ENVS)
        new_obs, state, reward, *ends, _ = jax.vmap(environment.step, (0, 0, 0, None))(keys, state, action, parameters)
        done = jnp.any(jnp.stack(ends), 0)  # by the rules or by the time limit, which this one does not tell apart
        total = total + reward
        step = Step(obs, action, log_prob, value, reward, done, jnp.where(done, total, 0.0))
        return (key, new_obs, state, jnp.where(done, 0.0, total)), step

    def loss(params: Any, batch: tuple[Step, jax.Array, jax.Array]) -> jax.Array:
        steps, advantage, target = batch
        logits, value = network.apply(params, steps.obs)
        log_probs = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(log_probs, steps.action[:, None], 1)[:, 0] - steps.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage).mean()
        near = steps.value + jnp.clip(value - steps.value, -CLIP, CLIP)
        value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return VALUE_COEFFICIENT * value_loss - ENTROPY_COEFFICIENT * entropy - gain

    def back(carry: tuple[jax.Array, jax.Array], step: Step) -> Any:
        advantage, next_value = carry
        goes_on = 1.0 - step.done
        error = step.reward + DISCOUNT * next_value * goes_on - step.value
        advantage = error + DISCOUNT * GAE_LAMBDA * goes_on * advantage
        return (advantage, step.value), advantage

    def descend(carry: Any, batch: Any) -> Any:
        params, moments = carry
        updates, moments = optimizer.update(jax.grad(loss)(params, batch), moments, params)
        return (optax.apply_updates(params, updates), moments), None

    def update(carry: Any, _: None) -> Any:
        learned, playing = carry
        playing, steps = jax.lax.scan(lambda c, x: play(learned[0], c, x), playing, None, STEPS)
        key, obs, state, total = playing
        _, last_value = network.apply(learned[0], obs)
        _, advantage = jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), steps, reverse=True)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantage, advantage + steps.value))

        def epoch(learned: Any, key: jax.Array) -> Any:
            order = jax.random.permutation(key, NUM_ENVS * STEPS)
            shuffled = jax.tree.map(lambda x: x[order].reshape(MINIBATCHES, -1, *x.shape[1:]), batch)
            return jax.lax.scan(descend, learned, shuffled)

        key, epoch_key = jax.random.split(key)
        learned, _ = jax.lax.scan(epoch, learned, jax.random.split(epoch_key, EPOCHS))
        returns = steps.finished.sum() / steps.done.sum()
        return (learned, (key, obs, state, total)), returns

    def train(key: jax.Array) -> jax.Array:
        init_key, reset_key, key = jax.random.split(key, 3)
        obs, state = jax.vmap(environment.reset, (0, None))(jax.random.split(reset_key, NUM_ENVS), parameters)
        params = network.init(init_key, obs)
        carry = (params, optimizer.init(params)), (key, obs, state, jnp.zeros(NUM_ENVS))
        return jax.lax.scan(update, carry, None, num_updates)[1]

    return train


def compiled(train: Any, keys: jax.Array, options: dict[str, Any] | None) -> tuple[Any, float]:
    """(the compiled program, seconds of tracing and compiling)."""
    started = time.perf_counter()
    program = jax.jit(train).lower(keys).compile(options)
    return program, time.perf_counter() - started


def run(program: Any, keys: jax.Array) -> tuple[np.ndarray, float]:
    """(returns `[seeds, K]`, seconds)."""
    started = time.perf_counter()
    returns = np.asarray(program(keys))
    return returns, time.perf_counter() - started


def main() -> None:
    """Prints a table of speeds and returns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", default="1,16", help="seeds trained at once, comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="timed pairs of runs; the median is printed")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_STEPS:,} steps of each seed, once")
    arguments = parser.parse_args()
    use_all_cores()
    num_updates = (FAST_STEPS if arguments.fast else TOTAL_STEPS) // (NUM_ENVS * STEPS)
    repeats, last = 1 if arguments.fast else arguments.repeats, -(-num_updates // 10)
    device = jax.devices()[0]
    print(f"{len(jax.devices())} x {device.device_kind}, {platform.machine()}, jax {jax.__version__}")
    print(
        f"           | seeds  thousand steps/s  x reference  compile s | return  standard error  {SOLVED}", flush=True
    )
    for seeds in map(int, arguments.seeds.split(",")):
        keys = jax.random.split(jax.random.key(0), seeds)
        plain = jax.vmap(reference(num_updates)) if seeds > 1 else lambda keys: reference(num_updates)(keys[0])[None]
        made = {
            "reference": compiled(plain, keys, None),
            "ours": compiled(spread(ours(num_updates), seeds), keys, compiler_options()),
        }
        runs = [{name: run(program, keys) for name, (program, _) in made.items()} for _ in range(repeats)]
        for name, (_, seconds_to_compile) in made.items():
            speed = seeds * num_updates * NUM_ENVS * STEPS / statistics.median(one[name][1] for one in runs) / 1e3
            ratio = statistics.median(one["reference"][1] / one[name][1] for one in runs)
            found = np.nanmean(runs[0][name][0][:, -last:], 1)
            error = found.std(ddof=1) / seeds**0.5 if seeds > 1 else float("nan")
            print(
                f"{name:>10} | {seeds:5} {speed:17.0f} {ratio:12.2f} {seconds_to_compile:10.1f} | {found.mean():6.1f} "
                f"{error:15.1f}  {(found >= GOAL).sum()}/{seeds}",
                flush=True,
            )


if __name__ == "__main__":
    main()
