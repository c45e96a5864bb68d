"""Methods of the sampled track: the same kinds as those of the exact one."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from configs.specs import change, read
from marl.bench.methods import UNTRAINED, Method, Trained, agent_of, called, function_of, is_function, module_hint
from marl.bench.protocol import Budget
from marl.bench.sampled import TASKS, make_opponents
from marl.core.learn import check_update
from marl.core.learner import Learner
from marl.experiments.shaping.agents import check_same_spaces, is_path
from marl.experiments.shaping.config import SampledShapingConfig
from marl.learners.registry import make_learner
from marl.shapers.registry import SAMPLED as SHAPERS
from marl.shapers.registry import make_shaper
from marl.shapers.trial import shaping_trial
from meta import evolve
from meta.loop import Report, Store
from meta.strategies import Evolution


def make_method(spec: str) -> Method:
    """A method of the sampled track from its spec.

    Args:
      spec: a shaper such as `shaper`, which is trained; a learner such as `loqa`, or a strategy such as `tft`, in the
        games that it can play, where a learner with the name of an opponent takes that opponent's settings for those
        that the spec does not give; `untrained`; the run directory or the file of a trained shaper, or `hub:NAME`; or
        `module:function`.

    Raises:
      ValueError: if there is no such method, or if it fits no game; one line.
    """
    if is_path(spec):
        return _agent(spec)
    if is_function(spec):
        return Method("function", partial(_call, spec, function_of(spec)))
    if spec.partition("(")[0].strip() in SHAPERS:
        for task in TASKS.values():
            make_shaper(spec, task.game, field="method")
        return Method("shaper", partial(_train_shaper, spec))
    learner = "shaper" if spec == UNTRAINED else spec
    fitting = [task for task in TASKS if _fits(learner, task)]
    if not fitting:
        try:
            make_learner(learner, TASKS["ipd"].game, field="method")
        except ValueError as error:  # which says why
            raise ValueError(f"{error}{module_hint(spec)}") from None
        raise ValueError(f"method: got {spec!r}, which can learn in no game of the sampled track")
    return Method("learner", partial(_no_training, learner, fitting))


def _fits(spec: str, task: str) -> bool:
    """True for a learner that can play and learn in the first seat of a game."""
    one = TASKS[task]
    try:
        players = [make_learner(_with_settings(spec, task), one.game), *make_opponents(task, "ppo")]
        check_update(one.game, players, steps_per_update=one.episode_length, num_envs=one.num_envs)
    except ValueError:
        return False
    return True


def _with_settings(spec: str, task: str) -> str:
    """A learner's spec, which takes the settings of an opponent of its name where it gives none.

    The defaults of the library are for longer trials.
    """
    name, given = read("method", spec, spec)
    own = TASKS[task].opponents.get(name)
    return change(own, **given) if own else spec


def _no_training(spec: str, fitting: list[str], task: str, opponent: str, budget: Budget, keys: Any, *_: Any) -> Any:
    def learner(parameters: Any, task: str) -> Learner:
        del parameters
        return make_learner(_with_settings(spec, task), TASKS[task].game, field="method")

    return [Trained(learner, (), range(len(keys)))] if task in fitting else []


def _train_shaper(
    spec: str,
    task: str,
    opponent: str,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
) -> list[Trained]:
    game = TASKS[task].game
    policy = make_shaper(spec, game)
    # The settings of the library's presets of sampled games, with standardised fitness in place of ranks.
    evolution = Evolution(
        population_size=budget.population,
        generations=budget.generations,
        learning_rate=0.1,
        fitness_shaping="standardize",
    )
    found = evolve(
        shaping_trial(game, policy, make_opponents(task, opponent), **budget.lengths),
        policy.init,
        keys,
        evolution,
        num_trials=budget.trials,
        store=store,
        report=report,
        together="run",
    )
    return [Trained(lambda parameters, task: policy.learner(parameters), found.parameters, range(len(keys)))]


def _agent(spec: str) -> Method:
    """A trained shaper, in the games of the track in which it sees and does what it did in its training."""
    agent = agent_of(spec)
    if not isinstance(agent.config, SampledShapingConfig):
        raise ValueError(f"method: got {spec!r}, trained in an exact game; one of a sampled game is needed")
    trained, name = agent.config.make_game(), agent.config.environment.partition("(")[0]

    def fits(task: str) -> bool:
        try:
            check_same_spaces(spec, trained, TASKS[task].game, 0)
        except ValueError:
            return False
        return TASKS[task].environment.partition("(")[0] == name

    fitting = [task for task in TASKS if fits(task)]
    if not fitting:
        raise ValueError(f"method: got {spec!r}, trained in a game that the bench does not have")

    def train(task: str, opponent: str, budget: Budget, keys: jax.Array, *_: Any) -> list[Trained]:
        if task not in fitting:
            return []
        same = jax.tree.map(lambda x: jax.numpy.broadcast_to(x, (len(keys), *jax.numpy.shape(x))), agent.parameters)
        return [Trained(lambda parameters, task: agent.learner(parameters), same, range(len(keys)))]

    return Method("agent", train)


def _call(
    spec: str, function: Any, task: str, opponent: str, budget: Budget, keys: jax.Array, *_: Any
) -> list[Trained]:
    opponents = make_opponents(task, opponent)
    given = opponents[0] if len(opponents) == 1 else opponents
    calls = [
        (f"{task} against {opponent}, training {i}", partial(function, TASKS[task].game, given, budget, key))
        for i, key in enumerate(keys)
    ]
    return called(spec, calls)
