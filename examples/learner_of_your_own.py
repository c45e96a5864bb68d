"""A learner of your own: regret matching in the iterated prisoner's dilemma, beside the PPO of the library.

A learner is a NamedTuple of pure functions: `init`, `act`, `update`, and where they are needed `policy` (what of its
state acting needs) and `init_memory` (the memory of an actor). Registered, as this file does when it is imported, it is
known by its name, also to commands that are called from Python:

    import learner_of_your_own
    from marl.mfos import main
    main(["ipd_sampled", "--opponent", "regret_matching"])
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

import games
import marl


class Regrets(NamedTuple):
    """The state: how much better each action would have been, in each state of the game."""

    regrets: jax.Array  # `[states, actions]`


def regret_matching(game: games.Game, seat: int = 0, *, decay: float = 0.9) -> marl.Learner:
    """Plays each action in proportion to its positive regret, against what the other did in that state.

    It has the payoffs of its game and reads the other's actions from the trajectory.

    Source: Hart and Mas-Colell, A Simple Adaptive Procedure Leading to Correlated Equilibrium (2000).
    """
    payoffs = jnp.array([[-1.0, -3.0], [0.0, -2.0]])  # one's own, by both players' actions
    (num_states,) = game.observation_space(game.agents[seat]).shape

    def probabilities(regrets: jax.Array) -> jax.Array:
        positive = jnp.maximum(regrets, 0.0)
        total = positive.sum(-1, keepdims=True)
        return jnp.where(total > 0, positive / jnp.where(total > 0, total, 1.0), 0.5)

    def init(key):
        return Regrets(0.1 * jax.random.normal(key, (num_states, 2)))

    def act(key, policy, memory, obs):  # obs [N, states] is one-hot
        defects = jax.random.uniform(key, obs.shape[:-1]) < (obs @ policy)[..., 1]
        return defects.astype(jnp.int32), memory, ()

    def update(key, state, trajectory):  # obs [T, N, states], actions [T, N]
        others = jax.nn.one_hot(trajectory.others[0], 2)
        would_have_got = others @ payoffs.T  # [T, N, actions]
        regret = would_have_got - trajectory.reward[..., None]
        found = jnp.einsum("tns,tna->sa", trajectory.obs, regret) / trajectory.reward.size
        return Regrets(decay * state.regrets + found), {"regret": jnp.abs(found).max()}

    return marl.Learner(init=init, act=act, update=update, policy=lambda state: probabilities(state.regrets))


marl.register_learner("regret_matching", regret_matching, kind="sampled", replace=True)


def main(num_updates: int = 60, seeds: int = 16) -> jax.Array:
    """The last rewards a round of regret matching and of PPO, `[seeds, 2]`."""
    game = games.make("ipd", episode_length=20)
    players = [
        marl.make_learner("regret_matching(decay=0.95)", game, 0),
        marl.make_learner("tabular_ppo", game, 1, num_updates=num_updates),
    ]

    def run(key):
        history = marl.learn(key, game, players, num_updates=num_updates, steps_per_update=20, num_envs=4)
        return jnp.stack(history.rewards, -1)

    rewards = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), seeds))  # [seeds, updates, 2]
    own, other = rewards[:, -1].mean(0)
    print(f"regret matching {own:.2f}, PPO {other:.2f} a round after {num_updates} updates ({seeds} seeds)")
    return rewards[:, -1]


if __name__ == "__main__":
    main()
