"""The commands of the bench: METHOD, verify FILE and table FILE ..."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from meta.runs.command import Command, Nothing


def bench() -> Command:
    """`python -m marl.bench METHOD [options]`: play a method through Shaping Bench.

    METHOD is a shaper such as mfos, which is trained against each opponent; a learner such as lola or a strategy such
    as tft; untrained, a shaper with random parameters; the run directory or the file of a trained shaper, or hub:NAME;
    or a function of yours, module:function, called as train(game, opponent, budget, key), which returns a learner. It
    may also be one of the presets below or a YAML file.

    Games and opponents are fixed. The exact track has five games and a random one for each training, against naive
    learners, LOLA, SOS, CGD, M-MAML, Q-learning and REINFORCE; --track sampled has five games that are played step by
    step, against PPO with a table and with a network, A2C, LOLA-DiCE and advantage alignment. Each opponent is met in
    the form of the training and in others that are held out. The gain is the method's payoff on a scale from the
    opponent's own kind in its place (0) to the most that is known (1), and the welfare that of the opponent in the same
    unit. `python -m marl.bench verify FILE` plays a tenth of a result again; `python -m marl.bench table FILE ...` puts
    results side by side. --resume DIR continues a stopped run.
    """
    from marl.bench.experiment import BenchConfig, config_of, prepare, run_bench

    return Command(
        config=BenchConfig,
        prepare=prepare,
        run=run_bench,
        name=lambda first, config: f"bench-{first}-{config.size}-{config.seed}",
        presets="bench",
        first="method",
        choice="a shaper, a learner, a strategy, a run directory or module:function,",
        load=config_of,
    )


def verify() -> Command:
    """`python -m marl.bench verify FILE`: play a tenth of a result again, and compare.

    FILE is a result of `python -m marl.bench METHOD`, or its run directory. The exit status is 1 for a result that is
    another.
    """
    from marl.bench.verify import VerifyConfig, prepare, verify

    return Command(config=VerifyConfig, prepare=prepare, run=verify, output=Nothing, first="")


def table() -> Command:
    """`python -m marl.bench table FILE ... [options]`: put results side by side, with intervals and figures.

    FILE is a complete result of at least five trainings, or its run directory. Methods are ranked by the gain against
    forms of the opponents that they never met in a training.
    """
    from marl.bench.table import TableConfig, load_results, make_table

    return Command(config=TableConfig, prepare=load_results, run=make_table, output=Nothing, first="")


COMMANDS: dict[str, Callable[[], Command]] = {"verify": verify, "table": table}


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    from meta.runs.execution import execute

    name = arguments[0] if arguments else ""
    make, rest = (COMMANDS[name], arguments[1:]) if name in COMMANDS else (bench, arguments)
    program = f"python -m marl.bench {name}" if name in COMMANDS else "python -m marl.bench"
    return execute(make()._replace(program=program, description=inspect.getdoc(make) or ""), rest)
