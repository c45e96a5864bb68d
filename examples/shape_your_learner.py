"""Shape a learner of your own: one that follows the gradient with momentum, in the repeated prisoner's dilemma.

M-FOS is evolved over whole learning runs of it; beside it stands the control, the same shaper without any training.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import marl
from games import InfinitelyRepeated, prisoners_dilemma
from meta import Evolution, evolve


class State(NamedTuple):
    """The learner's state; a shaper may see `logits`."""

    logits: jax.Array  # `[5]`
    velocity: jax.Array  # `[5]`


def momentum(
    game: InfinitelyRepeated, seat: int = 1, *, learning_rate: float = 0.3, decay: float = 0.8
) -> marl.Learner:
    """v <- decay v + learning_rate d payoff / d theta, theta <- theta + v."""

    def init(key):
        return State(jax.random.normal(key, (game.num_logits,)), jnp.zeros(game.num_logits))

    def act(key, logits, memory, obs):
        return logits, memory, ()

    def update(key, state, trajectory):
        other = trajectory.others[0][-1]  # the policy that the other one played
        gradient = jax.grad(lambda own: game.value(seat, own, other))(state.logits)
        velocity = decay * state.velocity + learning_rate * gradient
        return State(state.logits + velocity, velocity), {}

    return marl.Learner(init=init, act=act, update=update, policy=lambda state: state.logits)


def main(generations: int = 150, population_size: int = 128, num_trials: int = 512) -> dict[str, tuple[float, float]]:
    """Mean payoffs a round (shaper's, learner's) over fresh trials, of the evolved and of untrained shapers."""
    marl.register_learner("momentum", momentum, kind="formula", replace=True)
    game = InfinitelyRepeated(prisoners_dilemma, discount=0.96)
    shaper = marl.make_shaper("mfos(hidden_units=16)", game)
    learner = marl.make_learner("momentum(learning_rate=0.5)", game, seat=1)
    trial = marl.shaping_trial(game, shaper, learner, meta_steps=100)
    search = Evolution(population_size=population_size, generations=generations)
    evolved = evolve(trial, shaper.init, jax.random.key(0), search, num_trials=8)

    @jax.jit
    def returns(key, parameters):  # [trials, ...]
        metrics = jax.vmap(trial)(parameters, jax.random.split(key, num_trials)).metrics
        return metrics["shaper_return"], metrics["opponent_return"]

    shapers = {
        "evolved": jax.tree.map(lambda x: jnp.broadcast_to(x, (num_trials, *x.shape)), evolved.parameters),
        "untrained": jax.vmap(shaper.init)(jax.random.split(jax.random.key(1), num_trials)),
    }
    found = {}
    for name, parameters in shapers.items():
        own, other = returns(jax.random.key(2), parameters)
        error = own.std(ddof=1) / num_trials**0.5
        print(f"{name}: shaper {own.mean():.3f} ± {error:.3f}, learner {other.mean():.3f} ({num_trials} fresh trials)")
        found[name] = float(own.mean()), float(other.mean())
    return found


if __name__ == "__main__":
    main()
