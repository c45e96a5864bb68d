"""Steps of a single-agent game, a network that is one matrix, and derivatives in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from games import make
from marl import Network, Trajectory
from marl.learners.sampled.ppo import PPOExtras, PPOMemory

CART_POLE = make("CartPole-v1")
DISCOUNT = 0.9
STEPS, ENVS = 7, 3


def linear(num_outputs=2, num_inputs=4):
    """Outputs and value linear in the observation; the parameters are one matrix, the value's column last."""

    def apply(params, obs, carry):
        found = obs @ params
        return found[..., :-1], found[..., -1], carry

    return Network(lambda key: jax.random.normal(key, (num_inputs, num_outputs + 1)), apply, lambda num_envs: ())


def some_steps(seed=0):
    """Steps of several episodes, some terminated, some truncated and some unfinished."""
    rng = np.random.default_rng(seed)
    done = rng.random((STEPS, ENVS)) < 0.4
    truncated = done & (rng.random((STEPS, ENVS)) < 0.5)
    assert (done & ~truncated).any()
    assert truncated.any()
    obs, next_obs = rng.normal(size=(2, STEPS, ENVS, 4))
    actions, rewards = rng.integers(2, size=(STEPS, ENVS)), rng.normal(size=(STEPS, ENVS))
    extras = PPOExtras(np.log(rng.uniform(0.2, 0.8, (STEPS, ENVS))), rng.normal(size=(STEPS, ENVS)), None, ())
    memory = PPOMemory(None, ())
    return Trajectory(obs, actions, rewards, done, extras, (), truncated, next_obs, memory, memory)


def following(done, value, next_value):
    """Values after each step: of the next step, or the given ones after an end and after the last step."""
    ended = done.reshape(done.shape + (1,) * (value.ndim - done.ndim))
    return np.where(ended, next_value, np.append(value[1:], next_value[-1:], 0))


def single(trajectory):
    """The steps in single precision, as learners get them."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, {np.float64: jnp.float32, np.int64: jnp.int32}.get(x.dtype.type)), trajectory
    )


def gradient(function, x):
    h = 1e-5
    steps = [h * e.reshape(x.shape) for e in np.eye(x.size)]
    return np.array([(function(x + e) - function(x - e)) / (2 * h) for e in steps]).reshape(x.shape)


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
