"""Attack a learner of your own with mere talk: REINFORCE with a linear policy, on CartPole.

An adversary may only append two numbers to what the victim sees. Its message function is evolved over the victim's
whole training; beside it stand the controls, silence and random messages, on the same fresh victims.
"""

import jax
import jax.numpy as jnp

import attacks
import games
import marl
from meta import Evolution, evolve


def linear_reinforce(
    game: games.Game, seat: int = 0, *, learning_rate: float = 0.1, discount: float = 0.99
) -> marl.Learner:
    """The policy gradient of a softmax that is linear in the observation; the baseline is the mean return to go."""
    agent = game.agents[seat]
    inputs, actions = game.observation_space(agent).shape[0], game.action_space(agent).n

    def init(key):
        return jnp.zeros((inputs, actions))

    def act(key, weights, memory, obs):
        return jax.random.categorical(key, obs @ weights), memory, ()

    def act_greedy(weights, memory, obs):
        return jnp.argmax(obs @ weights, -1), memory

    def update(key, weights, trajectory):
        def back(later, now):
            to_go = now[0] + discount * jnp.where(now[1], 0.0, later)
            return to_go, to_go

        start = jnp.zeros_like(trajectory.reward[0])
        to_go = jax.lax.scan(back, start, (trajectory.reward, trajectory.done), reverse=True)[1]
        advantage = (to_go - to_go.mean()) / (to_go.std() + 1e-6)

        def gain(weights):
            log_probs = jax.nn.log_softmax(trajectory.obs @ weights)
            chosen = jnp.take_along_axis(log_probs, trajectory.action[..., None], -1)[..., 0]
            return (chosen * advantage).mean()

        return weights + learning_rate * jax.grad(gain)(weights), {}

    return marl.Learner(init=init, act=act, update=update, act_greedy=act_greedy)


def main(generations: int = 40, population_size: int = 32, num_victims: int = 256) -> dict[str, float]:
    """Mean final returns of fresh victims under the evolved message, random ones and silence."""
    game = games.make("CartPole-v1", max_steps_in_episode=200)
    schedule = attacks.TrainingSchedule(num_updates=30, steps_per_update=64, num_envs=8, num_episodes=16, num_steps=200)
    message = attacks.make_message("mlp(hidden=[16])", game.observation_space("agent_0").shape, 2)
    trial = attacks.train_time_trial(game, message, linear_reinforce, schedule)
    search = Evolution(population_size=population_size, generations=generations, learning_rate=0.1)
    evolved = evolve(trial, message.init, jax.random.key(0), search, num_trials=2)

    @jax.jit
    def returns(key, parameters):  # the same victims under every message; `parameters` [victims, ...]
        keys = jax.random.split(key, num_victims)
        return jax.vmap(trial)(parameters, keys).metrics["victim_return"]

    drawn = jax.vmap(message.init)(jax.random.split(jax.random.key(1), num_victims))
    talk = {
        "evolved": jax.tree.map(lambda x: jnp.broadcast_to(x, (num_victims, *x.shape)), evolved.parameters),
        "random": drawn,
        "silence": jax.tree.map(jnp.zeros_like, drawn),
    }
    found = {name: returns(jax.random.key(2), parameters) for name, parameters in talk.items()}
    for name, values in found.items():
        apart = values - found["silence"]
        error = apart.std(ddof=1) / num_victims**0.5
        print(f"{name}: {values.mean():.1f}, against silence {apart.mean():+.1f} ± {error:.1f} ({num_victims} victims)")
    return {name: float(values.mean()) for name, values in found.items()}


if __name__ == "__main__":
    main()
