"""An example for each public name whose docstring has none; the tests run every one of them.

Names that are used alike have one template: learners of exact and of sampled games, messages, defences, payoffs.
"""

from __future__ import annotations

import textwrap
from string import Template

from docs.site.examples import attacks, evolution, games, learning

_MODULES = (games, learning, evolution, attacks)
_EXACT = """
import jax
import marl
from games import InfinitelyRepeated, prisoners_dilemma

game = InfinitelyRepeated(prisoners_dilemma)
learners = [marl.$name(game), marl.naive(game, seat=1)]
history = marl.learn(jax.random.key(0), game, learners, num_updates=2)
print(history.rewards[0])  # of the first player, `[2]`
"""
_SAMPLED = """
import jax
import games, marl

game = games.make("$game")
learners = [marl.$name(game$settings)$others]
history = marl.learn(jax.random.key(0), game, learners, num_updates=2, steps_per_update=16, num_envs=4)
print(history.rewards[0])  # per step, `[2]`
"""
_MESSAGE = """
import jax
from attacks import messages

message = messages.$name((4,)$settings)  # of observations of four numbers
parameters = message.init(jax.random.key(0))
print(message.speak(parameters, jax.numpy.ones(4)$memory))  # two numbers
"""
_DEFENCE = """
import jax
import attacks, games, marl
from attacks import defences

game = games.make("CartPole-v1", max_steps_in_episode=20)
message = attacks.make_message("linear", (4,), 2)
schedule = attacks.TrainingSchedule(num_updates=$updates, steps_per_update=16, num_envs=4, num_episodes=4, num_steps=20)
training = attacks.train_victim(
    jax.random.key(0), game, message, message.init(jax.random.key(1)), $victim, schedule, defence=$defence
)
print(training.final_return)
"""
_PAYOFFS = """
from games import InfinitelyRepeated, $name

print($name.row, $name.column)  # payoffs of both players
game = InfinitelyRepeated($name, discount=0.9)
print(game.num_logits)  # 5
"""
_VICTIM = 'lambda talk: marl.make_learner("ppo(hidden=[8], minibatches=1)", talk)'
_VALUE_LOSS = """
import jax.numpy as jnp
from marl import value_losses

loss = value_losses.$made
print(loss(jnp.array([1.0]), jnp.array([3.0]), jnp.array([1.1])))  # of values, targets, values before the update
"""
_OBJECTIVE = """
import jax.numpy as jnp
from marl import objectives

objective = objectives.$made
print(objective(jnp.log(jnp.array([0.5, 1.0, 2.0])), jnp.ones(3)))  # of log ratios and advantages
"""
_ADAPTED = """
from games import $module

env = $module.$call
print(env$shown)
"""


def _filled(template: str, **values: str) -> str:
    return Template(template).substitute(values).strip()


def _learners() -> dict[str, str]:
    exact = ["naive", "lookahead", "lola", "hola", "sos", "sga", "cgd", "pola", "best_response", "q_learning"]
    sampled = dict.fromkeys(
        ["ppo", "a2c", "impala", "a3c", "reinforce", "naive_dice", "loqa", "reciprocator", "lola_dice"], ""
    )
    sampled |= dict.fromkeys(["pola_dice", "advantage_alignment", "proximal_advantage_alignment"], "")
    sampled |= {"always_cooperate": "", "always_defect": ""}
    sampled |= {"dqn": ', replay={"buffer_size": 64, "batch_size": 16, "learning_starts": 64}'}
    sampled |= {"ape_x": sampled["dqn"]}
    sampled |= {"r2d2": ', sequence_length=16, burn_in=4, replay={"buffer_size": 16, "learning_starts": 8}'}
    continuous = ', hidden=[16], replay={"buffer_size": 256, "batch_size": 16, "learning_starts": 64}'
    found = {f"marl.{name}": _filled(_EXACT, name=name) for name in exact}
    for name, settings in sampled.items():
        others = ", marl.always_defect(game, seat=1)"
        found[f"marl.{name}"] = _filled(_SAMPLED, name=name, game="ipd", settings=settings, others=others)
    for name in ("td3", "sac"):
        values = {"name": name, "game": "Pendulum-v1", "settings": continuous, "others": ""}
        found[f"marl.{name}"] = _filled(_SAMPLED, **values)
    return found


def _attacks() -> dict[str, str]:
    settings = {"table": ", low=[-1] * 4, high=[1] * 4", "turn": ", steps=100"}
    memory = {"lstm": ", message.memory", "turn": ", message.memory"}
    found = {}
    for name in ("mlp", "linear", "quadratic", "lstm", "table", "turn", "constant", "echo"):
        values = {"name": name, "settings": settings.get(name, ""), "memory": memory.get(name, "")}
        found[f"attacks.messages.{name}"] = _filled(_MESSAGE, **values)
    made = {"undefended": "", "ensemble": "(members=2)", "message_dropout": "()", "masking": "()"}
    for name, call in (made | {"input_noise": "()", "input_decay": "()", "power_regularization": "()"}).items():
        values = {"defence": f"defences.{name}{call}", "victim": _VICTIM, "updates": "4"}
        found[f"attacks.defences.{name}"] = _filled(_DEFENCE, **values)
    return found


def _rest() -> dict[str, str]:
    payoffs = ["prisoners_dilemma", "chicken", "stag_hunt", "battle_of_the_sexes", "hawk_dove", "matching_pennies"]
    found = {f"games.{name}": _filled(_PAYOFFS, name=name) for name in payoffs}
    for name, call in {"l2": "", "clipped_l2": "()", "huber": "()"}.items():
        found[f"marl.value_losses.{name}"] = _filled(_VALUE_LOSS, made=name + call)
    for name, call in {"policy_gradient": "", "clipped_surrogate": "()", "dpo": "()"}.items():
        found[f"marl.objectives.{name}"] = _filled(_OBJECTIVE, made=name + call)
    adapters = {
        "games.gymnasium.env": ('env("CartPole-v1")', ".reset(seed=0)"),
        "games.gymnasium.vector_env": ('vector_env("CartPole-v1", 4)', ".reset(seed=0)"),
        "games.gymnax.env": ('env("ipd", opponents=["tft"])', ".name"),
        "games.jaxmarl.wrap": ('wrap("coin_game")', ".agents"),
        "games.pettingzoo.parallel_env": ('parallel_env("coin_game")', ".reset(seed=0)"),
        "games.pettingzoo.env": ('env("coin_game")', ".possible_agents"),
        "games.pettingzoo.batched_parallel_env": ('batched_parallel_env("coin_game", 4)', ".possible_agents"),
        "games.stable_baselines3.vec_env": ('vec_env("ipd", 4, opponents=["tft"])', ".reset().shape"),
    }
    for name, (call, shown) in adapters.items():
        found[name] = _filled(_ADAPTED, module=name.split(".")[1], call=call, shown=shown)
    return found


EXAMPLES: dict[str, str] = {
    **_learners(),
    **_attacks(),
    **_rest(),
    **{name: textwrap.dedent(code).strip() for one in _MODULES for name, code in one.EXAMPLES.items()},
}
