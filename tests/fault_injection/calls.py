"""Wrong calls of the public API, drawn at random: `python -m tests.fault_injection.calls [--calls N] [--seed N]`.

Each has one or two arguments of a wrong type, shape, rank, dtype, seat or kind of game. It has to end in a ValueError
or TypeError of this library in one line, or to be a call that is right after all. Prints those that do not.
"""

from __future__ import annotations

import argparse
import inspect
import random
import sys
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import attacks
import games
import marl
import meta
from games import InfinitelyRepeated, make, prisoners_dilemma
from meta import Evolution, Outcome, evolve

OURS = ("/games/", "/meta/", "/marl/", "/attacks/", "/configs/")
KEY = jax.random.key(0)
FORMULA, SAMPLED, CART_POLE, THREE = (
    InfinitelyRepeated(prisoners_dilemma), make("ipd"), make("CartPole-v1"), make("three_player_ipd")
)  # fmt: skip
NAIVE, PPO = marl.make_learner("naive", FORMULA, 1), marl.ppo(CART_POLE)
MFOS, SHAPER = marl.make_shaper("mfos", FORMULA), marl.make_shaper("mfos", SAMPLED)
MESSAGE, SCHEDULE = attacks.make_message("linear", (4,), 2), attacks.TrainingSchedule(1, 2, 2, 2, 2)

WRONG: list[Any] = [
    None, -1, 0, 2.5, float("nan"), "", "nonsense", "ppo(", "lola(learning_rate='x')", [],
    [1, 2], {}, (), True, {"a": 1}, np.zeros(3), np.zeros((2, 3)), np.array(["a"]), jnp.zeros((2, 2)),
    jax.random.PRNGKey(0), jax.random.split(KEY, 2),
    lambda: 1, lambda a, b: 3.0, object, FORMULA, SAMPLED, CART_POLE, THREE, NAIVE, PPO, MFOS, 10**30, b"bytes", 1j,
]  # fmt: skip


def fine(parameters: Any, key: Any) -> Outcome:
    """A trial that fits."""
    return Outcome(parameters.sum(), {})


def init(key: Any) -> Any:
    """First parameters."""
    return jnp.ones(2)


SMALL = Evolution(population_size=4, generations=1)
RIGHT: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "games.make": (games.make, {"name": "ipd", "episode_length": 3}),
    "games.matrix_game": (
        lambda **k: games.make("matrix_game", **k), {"payoffs": np.zeros((2, 2, 2)), "num_agents": 2}
    ),
    "games.random_actions": (
        lambda **k: games.random_actions(KEY, **k), {"game": CART_POLE, "state": CART_POLE.reset(KEY)[1]}
    ),
    "games.CheapTalk": (
        games.CheapTalk,
        {"game": CART_POLE, "parameters": jnp.zeros(2), "speak": lambda parameters, obs: parameters, "message_size": 2,
         "planes": False, "remember": None},
    ),
    "games.GoalConditioned": (games.GoalConditioned, {"game": CART_POLE}),
    "games.InfinitelyRepeated": (InfinitelyRepeated, {"payoffs": prisoners_dilemma, "discount": 0.9}),
    "games.make of a repeated game": (
        lambda **k: games.make("ipd", **k), {"episode_length": 3, "discount": None, "memory": 1}
    ),
    "marl.learn": (
        marl.learn,
        {"key": KEY, "game": FORMULA, "learners": [NAIVE._replace(seat=None)] * 2, "num_updates": 1,
         "steps_per_update": 1, "num_envs": None},
    ),
    "marl.learn of samples": (
        marl.learn,
        {"key": KEY, "game": CART_POLE, "learners": [PPO], "num_updates": 1, "steps_per_update": 4, "num_envs": 2},
    ),
    "marl.learning": (
        marl.learning,
        {"game": CART_POLE, "learners": [PPO], "steps_per_update": 4, "num_envs": 2, "keep_trajectories": False},
    ),
    "marl.make_learner": (marl.make_learner, {"spec": "naive", "game": FORMULA, "seat": 0}),
    "marl.make_learner of samples": (marl.make_learner, {"spec": "ppo", "game": CART_POLE, "seat": 0}),
    "marl.make_shaper": (marl.make_shaper, {"spec": "mfos", "game": FORMULA, "seat": 0}),
    "marl.shaping_trial": (
        marl.shaping_trial, {"game": FORMULA, "shaper": MFOS, "opponents": NAIVE, "meta_steps": 2}
    ),
    "marl.play_trials": (
        marl.play_trials,
        {"key": KEY, "game": FORMULA, "shaper": MFOS, "parameters": MFOS.init(KEY), "opponent": NAIVE,
         "meta_steps": 1, "num_trials": 2},
    ),
    "marl.play_sampled": (
        marl.play_sampled,
        {"key": KEY, "game": SAMPLED, "policy": SHAPER, "parameters": SHAPER.init(KEY),
         "opponents": [marl.make_learner("reinforce", SAMPLED, 1)], "num_episodes": 1, "episode_length": 2,
         "num_envs": 2},
    ),
    "marl.distributed.make_env": (
        marl.distributed.make_env,
        {"name": "games(CartPole-v1)", "num_envs": 2, "seen": (), "processes": False, "images": None},
    ),
    "marl.distributed.train": (
        marl.distributed.train,
        {"learners": [PPO], "make_envs": [marl.distributed.make_env("games(CartPole-v1)", 2)], "key": KEY,
         "num_updates": 1, "steps_per_update": 4, "system": None, "seed": 0},
    ),
    "marl.memory_one": (marl.memory_one, {"probabilities": [0.5] * 5}),
    "marl.play_memory_one": (marl.play_memory_one, {"probabilities": [0.5] * 5}),
    "marl.load_agent": (marl.load_agent, {"path": "nowhere", "number": 0}),
    "marl.evaluate": (
        marl.evaluate,
        {"key": KEY, "game": CART_POLE, "learner": PPO, "state": PPO.init(KEY), "num_episodes": 2, "num_steps": 3},
    ),
    "meta.evolve": (
        evolve, {"trial": fine, "init": init, "key": KEY, "evolution": SMALL, "num_trials": 1}
    ),
    "meta.screen": (
        meta.screen,
        {"trial": fine, "init": init, "key": KEY, "candidates": 2, "trials": 1, "finalists": 1, "final_trials": 1,
         "sigma": 0.0, "largest_factor": 2.0},
    ),
    "meta.Evolution": (Evolution, {"strategy": "open_es", "population_size": 4, "sigma": 0.1, "generations": 2}),
    "attacks.make_message": (
        lambda **k: attacks.make_message(**k), {"spec": "linear", "obs_shape": (4,), "size": 2}
    ),
    "attacks.train_time_trial": (
        attacks.train_time_trial,
        {"game": CART_POLE, "message": MESSAGE, "make_victim": marl.ppo, "schedule": SCHEDULE, "help": False, "size": 2,
         "fitness": "end"},
    ),
    "attacks.control_trial": (
        attacks.control_trial,
        {"game": CART_POLE, "shaper": MESSAGE, "controller": MESSAGE, "make_victim": marl.ppo, "schedule": SCHEDULE,
         "size": 2},
    ),
}  # fmt: skip


GIVEN: dict[str, Any] = {
    "game": SAMPLED, "payoff": lambda own, other: (own * other).sum(), "obs_shape": (4,), "num_outputs": 2,
    "payoffs": lambda own, other: ((own * other).sum(), -(own * other).sum()),
    "transform": lambda *seen: seen[-1], "message": MESSAGE,
    "density": 0.5, "until": 5, "direction": lambda own, other: own, "init": init, "learner": PPO, "lag": 1,
    "update": lambda key, state, trajectory: (state, {}), "members": [marl.Member(lambda drawn: NAIVE)], "size": 2,
}  # fmt: skip
GAMES = {
    **dict.fromkeys(
        ("best_response", "q_learning", "naive", "lookahead", "lola", "hola", "sos", "cgd", "sga", "pola"), FORMULA
    ),
    **dict.fromkeys(("td3", "sac"), make("reacher")),
}


def factories() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """The public factories of learners, networks, shapers and messages that are not above, with right arguments."""
    found = {}
    for module in (marl, marl.shapers, marl.objectives, attacks, attacks.messages, attacks.defences, attacks.control):
        for name in getattr(module, "__all__", [x for x in vars(module) if not x.startswith("_")]):
            function, called = getattr(module, name), f"{module.__name__.removeprefix('marl.blocks.')}.{name}"
            if not inspect.isfunction(function):
                continue
            given = GIVEN | {"game": GAMES.get(name, SAMPLED)}
            if name == "convolutional":
                given["obs_shape"] = (8, 8, 3)
            parameters = [x for x in inspect.signature(function).parameters.values() if x.kind is not x.VAR_KEYWORD]
            needed = [x.name for x in parameters if x.default is x.empty or x.name == "until"]
            arguments = {x.name: given.get(x.name) if x.name in needed else x.default for x in parameters}
            if arguments and set(needed) <= set(given):
                found[called] = (function, arguments)
    return found


RIGHT = factories() | RIGHT


def draw(source: random.Random) -> tuple[str, dict[str, Any]]:
    """The name of a call, and its arguments."""
    name = source.choice(list(RIGHT))
    arguments = dict(RIGHT[name][1])
    for argument in source.sample(list(arguments), source.choice((1, 1, 1, 2)) if len(arguments) > 1 else 1):
        arguments[argument] = source.choice(WRONG)
    return name, arguments


def fault(name: str, arguments: dict[str, Any]) -> str:
    """The fault in the answer to a call; empty if there is none."""
    try:
        RIGHT[name][0](**arguments)
    except (ValueError, TypeError, RuntimeError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = any(folder in frames[-1].filename for folder in OURS) and "site-packages" not in frames[-1].filename
        called = "argument" in str(error) and frames[-1].filename == __file__  # Python's own, if a keyword is missing
        if not (ours or called):
            return (
                f"{type(error).__name__} of {frames[-1].filename.split('/')[-2:]}: {str(error).splitlines()[0][:150]}"
            )
        return "" if len(str(error).splitlines()) == 1 else f"{len(str(error).splitlines())} lines: {error}"[:300]
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    return ""


def main(argv: list[str]) -> int:
    """Draws calls; the exit status is 1 if some are answered badly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    source, bad = random.Random(options.seed), 0
    for _ in range(options.calls):
        name, arguments = draw(source)
        if found := fault(name, arguments):
            bad += 1
            changed = {k: x for k, x in arguments.items() if x is not RIGHT[name][1][k]}
            print(f"{name}({', '.join(f'{k}={repr(x)[:60]}' for k, x in changed.items())}): {found}", flush=True)
    print(f"{options.calls} calls, {bad} answered badly")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
