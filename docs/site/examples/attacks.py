"""Examples of attacks."""

from __future__ import annotations

_VICTIM = """
import jax
import attacks, games, marl

game = games.make("CartPole-v1", max_steps_in_episode=20)
message = attacks.make_message("linear", (4,), 2)
parameters = message.init(jax.random.key(0))
schedule = attacks.TrainingSchedule(num_updates=2, steps_per_update=16, num_envs=4, num_episodes=4, num_steps=20)


def make_victim(talk):
    return marl.make_learner("ppo(hidden=[8], minibatches=1)", talk)

"""
_TRAIN_VICTIM = f"""{_VICTIM}
training = attacks.train_victim(jax.random.key(1), game, message, parameters, make_victim, schedule)
print(training.final_return)
"""
_PUPPET = """
import jax
import attacks, games, marl
from attacks import control

game = games.make("Pendulum-v1", max_steps_in_episode=20)
shaper, controller = attacks.make_message("linear", (3,), 2), attacks.make_message("linear", (GOAL,), 2)
schedule = attacks.TrainingSchedule(num_updates=1, steps_per_update=16, num_envs=4, num_episodes=4, num_steps=20)


def make_victim(talk):
    return marl.make_learner("ppo(hidden=[8], minibatches=1)", talk)


puppet, training = control.train_puppet(
    jax.random.key(0), game, shaper, shaper.init(jax.random.key(1)), make_victim, schedule
)
""".replace("GOAL", "5")
_REWARD = """
reward = control.goal_reward(jax.random.key(2), puppet, PLAYER, num_episodes=4, num_steps=20)
print(reward)
"""
_SPOKEN = _REWARD.replace("PLAYER", "control.speaker(controller), controller.init(jax.random.key(3))")

EXAMPLES: dict[str, str] = {
    "attacks.train_victim": _TRAIN_VICTIM,
    "attacks.VictimTraining": _TRAIN_VICTIM,
    "attacks.TrainingSchedule": _TRAIN_VICTIM,
    "attacks.Defence": _TRAIN_VICTIM.replace("make_victim, schedule", "make_victim, schedule, **defended")
    .replace("\ntraining =", '\ndefended = {"defence": attacks.defences.DEFENCES["dropout"]}\ntraining =')
    .replace("num_updates=2", "num_updates=4"),
    "attacks.defences.DEFENCES": "from attacks import defences\n\nprint(list(defences.DEFENCES))",
    "attacks.train_in": f"""{_VICTIM}
training = attacks.train_in(jax.random.key(1), game, make_victim(game), schedule)  # without messages
print(training.final_return)""",
    "attacks.train_time_trial": f"""{_VICTIM}
trial = attacks.train_time_trial(game, message, make_victim, schedule)
print(trial(parameters, jax.random.key(1)).fitness)  # what `evolve` maximises""",
    "attacks.Message": f"{_VICTIM}print(message.speak(parameters, jax.numpy.ones(4)))",
    "attacks.make_message": f"{_VICTIM}print(message.speak(parameters, jax.numpy.ones(4)))",
    "attacks.register_message": f"""{_VICTIM}
def scaled(obs_shape, size, *, factor: float = 2.0):
    linear = attacks.make_message("linear", obs_shape, size)
    return linear._replace(speak=lambda parameters, obs: factor * linear.speak(parameters, obs))


attacks.register_message("scaled", scaled, replace=True)
print(attacks.make_message("scaled(factor=3)", (4,), 2).speak(parameters, jax.numpy.ones(4)))""",
    "attacks.defences.seeing": f"""{_VICTIM}
blind = attacks.defences.seeing(make_victim(game), lambda obs: obs.at[..., 0].set(0))
print(attacks.train_in(jax.random.key(1), game, blind, schedule).final_return)""",
    "attacks.defences.disturbed": f"""{_VICTIM}
noisy = attacks.defences.disturbed(
    make_victim(game), lambda key, obs: obs + 0.1 * jax.random.normal(key, obs.shape)
)
print(attacks.train_in(jax.random.key(1), game, noisy, schedule).final_return)""",
    "attacks.control_trial": _PUPPET
    + """
trial = attacks.control_trial(game, shaper, controller, make_victim, schedule)
keys = jax.random.split(jax.random.key(1))
print(trial({"shaper": shaper.init(keys[0]), "controller": controller.init(keys[1])}, jax.random.key(2)).fitness)""",
    "attacks.control.Puppet": f"{_PUPPET}print(puppet.reset(jax.random.key(2))[0])  # what is seen, then the goal",
    "attacks.control.train_puppet": f"{_PUPPET}print(training.final_return)",
    "attacks.control.goal_reward": _PUPPET + _SPOKEN,
    "attacks.control.speaker": _PUPPET + _SPOKEN,
    "attacks.control.controller_ppo": f"{_PUPPET}print(control.controller_ppo(puppet).seat)",
    "attacks.control.oracle": _PUPPET
    + "steers = control.oracle(jax.random.key(1), puppet, num_updates=1, steps_per_update=16)\n"
    + _REWARD.replace("PLAYER", "*steers"),
}
