"""Examples of evolution, objectives and runs."""

from __future__ import annotations

_EVOLVE = """
import jax
import jax.numpy as jnp
import meta


def trial(parameters, key):
    noise = 0.1 * jax.random.normal(key)
    return meta.Outcome(fitness=-jnp.sum((parameters - 1) ** 2) + noise, metrics={"first": parameters[0]})
"""
_SEARCH = f"""{_EVOLVE}

search = meta.Evolution(population_size=16, generations=20)
evolved = meta.evolve(trial, lambda key: jnp.zeros(3), jax.random.key(0), search)
print(evolved.parameters, evolved.metrics["fitness"][-1])
"""
_SCREEN = f"""{_EVOLVE}

screened = meta.screen(
    trial, lambda key: jax.random.normal(key, (3,)), jax.random.key(0), candidates=64, finalists=4, final_trials=8
)
print(screened.parameters)
"""
_PARAMETRIC = """
import jax
import jax.numpy as jnp
import games, marl
from marl import objectives

network = objectives.drift_network(hidden=8)
parameters = network.init(jax.random.key(0))
objective = objectives.learned(network, parameters)
print(objective(jnp.log(jnp.array([0.5, 1.0, 2.0])), jnp.ones(3)))  # at first the ratios: the drift is 0
learner = marl.ppo(games.make("ipd"), objective=objective)
"""
_DISTANCE = """
import jax
import jax.numpy as jnp
from marl import value_losses

network = value_losses.distance_network(hidden=8)
parameters = network.init(jax.random.key(0))
values, targets = jnp.array([1.0, 2.0]), jnp.array([2.0, 4.0])
print(network.apply(parameters, values, targets, values))
print(value_losses.distance_of(parameters, values - targets))  # before its scale: half the squares at first
"""
_DISTRIBUTED = """
import jax
import games, marl
from marl import distributed

learner = marl.make_learner("ppo(hidden=[8], minibatches=1)", games.make("CartPole-v1"))
make_envs = [distributed.make_env("games(CartPole-v1)", num_envs=2)] * 2  # two actors
system = distributed.System(where="threads", path="barrier")
trained = distributed.train(
    [learner], make_envs, key=jax.random.key(0), num_updates=2, steps_per_update=8, system=system
)
print(trained.history.rewards[0])
"""
_CONFIG = """
import configs
from marl.experiments.shaping.config import ExactShapingConfig, ShapingConfig

print(configs.presets("mfos"))
"""

_TRACKER = f"""{_EVOLVE}


class Printer:
    def begin(self, run):
        print(run.name, run.config["generations"])

    def log(self, row):
        print(row.step, row.metrics["fitness"])

    def finish(self, summary, files):
        print("stopped" if summary is None else "finished")


settings = meta.Evolution(population_size=4, generations=3)
meta.evolve(trial, lambda key: jnp.zeros(3), jax.random.key(0), settings, tracker=Printer())"""

EXAMPLES: dict[str, str] = {
    "meta.evolve": _SEARCH,
    "meta.Evolution": _SEARCH,
    "meta.Evolved": _SEARCH,
    "meta.Outcome": _SEARCH,
    "meta.screen": _SCREEN,
    "meta.Screened": _SCREEN,
    "meta.strategy_names": "import meta\n\nprint(meta.strategy_names())",
    "meta.scalarize": f"{_EVOLVE}\n\nprint(meta.scalarize(trial)(jnp.zeros(3), jax.random.key(0)).fitness)",
    "meta.NonFiniteFitness": f"""{_EVOLVE}

def broken(parameters, key):
    return meta.Outcome(jnp.nan, {{}})


try:
    meta.evolve(broken, lambda key: jnp.zeros(3), jax.random.key(0), meta.Evolution(population_size=4, generations=2))
except meta.NonFiniteFitness as error:
    print(error)""",
    "meta.Tracker": _TRACKER,
    "meta.TrackedRun": _TRACKER,
    "meta.MetricsRow": _TRACKER,
    "meta.make_tracker": """
        import meta

        try:
            tracker = meta.make_tracker("tensorboard")  # for tracker= of meta.evolve or marl.distributed.train
            print(type(tracker).__name__)
        except ValueError as error:
            print(error)  # it is not installed
    """,
    "meta.RunDirectory": """
        from pathlib import Path
        import meta

        with meta.RunDirectory.create(Path("run"), {"seed": 3}) as run:
            run.append([{"generation": 1, "fitness": 0.5}])
            run.write_summary({"fitness": 0.5})
        print(Path("run/metrics.jsonl").read_text())
    """,
    "marl.objectives.with_drift": """
        import jax.numpy as jnp
        from marl import objectives

        objective = objectives.with_drift(lambda log_ratio, advantage: 0.5 * log_ratio**2)
        print(objective(jnp.log(jnp.array([0.5, 1.0, 2.0])), jnp.ones(3)))
    """,
    "marl.objectives.drift_network": _PARAMETRIC,
    "marl.objectives.learned": _PARAMETRIC,
    "marl.objectives.Parametric": _PARAMETRIC,
    "marl.value_losses.distance_network": _DISTANCE,
    "marl.value_losses.distance_of": _DISTANCE,
    "marl.objectives.magic_box": """
        import jax
        from marl import objectives

        print(objectives.magic_box(2.0), jax.grad(objectives.magic_box)(2.0))  # 1 and 1
    """,
    "marl.objectives.dice_objective": """
        import jax.numpy as jnp
        from marl import objectives

        log_probs, rewards = jnp.log(jnp.full((3, 1), 0.5)), jnp.ones((3, 1))  # three steps, one environment
        print(objectives.dice_objective(log_probs, rewards, 0.5))  # 1 + 1/2 + 1/4
    """,
    "configs.presets": _CONFIG,
    "configs.load": f"{_CONFIG}print(configs.load(ShapingConfig, 'mfos', 'ipd').meta_steps)",
    "marl.distributed.train": _DISTRIBUTED,
    "marl.distributed.System": _DISTRIBUTED,
    "marl.distributed.make_env": _DISTRIBUTED,
    "marl.objectives.Objective": """
        import jax.numpy as jnp
        import games, marl


        def cautious(log_ratio, advantage):
            return jnp.minimum(jnp.exp(log_ratio), 1.1) * advantage


        print(marl.ppo(games.make("ipd"), objective=cautious).seat)
    """,
    "marl.value_losses.ValueLoss": """
        import jax.numpy as jnp
        import games, marl


        def absolute(values, targets, before):
            return jnp.abs(values - targets)


        print(marl.ppo(games.make("ipd"), value_loss=absolute).seat)
    """,
    "marl.objectives.Timed": """
        import games, marl
        from marl import objectives

        timed = objectives.Timed(lambda share: objectives.clipped_surrogate(clip=0.2 - 0.1 * share), num_updates=10)
        print(marl.ppo(games.make("ipd"), objective=timed).seat)
    """,
    "marl.objectives.Aligned": """
        import games, marl
        from marl import objectives

        aligned = objectives.Aligned(alignment=3.0, objective=objectives.policy_gradient)
        print(marl.ppo(games.make("ipd"), objective=aligned).seat)
    """,
    "configs.from_file": f"""{_CONFIG}
from pathlib import Path

Path("mine.yaml").write_text("meta_steps: 50")
print(configs.from_file(ExactShapingConfig, Path("mine.yaml")).meta_steps)""",
    "configs.to_text": f"{_CONFIG}print(configs.to_text(configs.load(ShapingConfig, 'mfos', 'ipd')))",
    "configs.ConfigError": f"""{_CONFIG}
try:
    configs.load(ShapingConfig, "mfos", "poker")
except configs.ConfigError as error:
    print(error)  # one line, with all presets""",
}
