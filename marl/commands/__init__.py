"""The table of commands, and how one is run: by `marl-shaping NAME ...`, `python -m marl NAME ...` or as a module."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from meta.runs.command import Command


class Entry(NamedTuple):
    """A command: the module that `python -m` runs, and its purpose in one line."""

    module: str
    purpose: str
    main: str = ""  # module with the main function of a command of its own kind, which no `Command` describes


COMMANDS = {
    "mfos": Entry("marl.mfos", "train a shaper against a learner: marl-shaping mfos ipd"),
    "crossplay": Entry("marl.crossplay", "play every pair of agents in both seats: marl-shaping crossplay ipd"),
    "play": Entry("marl.play", "play against an agent: marl-shaping play ipd tft"),
    "agents": Entry("marl.agents", "list the trained agents that come with the library"),
    "bound": Entry("marl.bound", "bound what a shaper can get of a learner, by gradient ascent"),
    "schelling": Entry("marl.schelling", "measure whether a game is a social dilemma: marl-shaping schelling harvest"),
    "train": Entry("marl.train", "train a learner, alone or in all seats: marl-shaping train CartPole-v1"),
    "distributed": Entry("marl.distributed", "train learners by actors in Gymnasium, PettingZoo or EnvPool"),
    "discover": Entry("marl.discover", "evolve the objective of a learner: marl-shaping discover drift cartpole"),
    "cola": Entry("marl.cola", "train COLA's consistent update functions"),
    "meva": Entry("marl.meva", "train MeVa's meta-values"),
    "mmaml": Entry("marl.mmaml", "meta-learn the initial parameters of M-MAML"),
    "export": Entry("marl.export", "write a trained policy as a file of C"),
    "report": Entry("marl.report", "write the page of a run again: marl-shaping report runs/ipd-naive-0"),
    "sweep": Entry(
        "marl.sweep", "run a command over values: marl-shaping sweep mfos ipd --seed 0,1", "marl.commands.sweep"
    ),
    "bench": Entry("marl.bench", "play a method through Shaping Bench: marl-shaping bench mfos", "marl.bench.command"),
    "compare": Entry("marl.compare", "put runs or seeds side by side, with intervals: marl-shaping compare RUN RUN"),
    "reproduce": Entry("marl.reproduce", "compare with papers on shaping, discovery and sparse training"),
    "act": Entry("attacks.act", "evolve messages that harm, help or control a learner: marl-shaping act cartpole"),
    "examine": Entry("attacks.examine", "test an attack on other learners and against defences"),
    "reproduce-act": Entry("attacks.reproduce", "compare with Adversarial Cheap Talk"),
    "games": Entry("games", "list the games, or play one with random agents", "games.__main__"),  # without JAX
}

# Where commands are described, by their package. Strings: the list needs none of it, and attacks stand on marl.
_DESCRIPTIONS = {"marl": "marl.commands.descriptions", "attacks": "attacks.commands"}


def overview(package: str = "") -> str:
    """The list of commands, of one package or all."""
    chosen = {name: one for name, one in COMMANDS.items() if f"{one.module}.".startswith(f"{package}.") or not package}
    width = max(map(len, chosen))
    lines = [f"  {name:<{width}}  {one.purpose}" for name, one in chosen.items()]
    usage = "usage: marl-shaping COMMAND ...; marl-shaping COMMAND --help lists the options of a command"
    return "\n".join([usage, *lines, f"Each is a module too, such as python -m {next(iter(chosen.values())).module}."])


def main(arguments: Sequence[str] | None = None, package: str = "") -> int:
    """Runs a command by its name; prints the list, of one package or all, without a name.

    Returns:
      The exit status: 2 for an unknown command. A command itself ends the process with its own status.
    """
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        from meta import process  # here, because a command imports it itself

        with process.forgiving_streams():
            print(overview(package))
        return 0
    if name == "--version":
        from importlib import metadata  # here, because it takes as long as all else

        print(f"marl-shaping {metadata.version('marl-shaping')}")
        return 0
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        needed = f"did you mean {near[0]}?" if near else f"one of {', '.join(COMMANDS)} is needed"
        print(f"marl-shaping: COMMAND: got {name!r}; {needed}", file=sys.stderr)
        return 2
    start(COMMANDS[name].module, rest, f"python -m {package} {name}" if package else f"marl-shaping {name}")


def alias(module: str, *, runs: bool) -> Callable[[Sequence[str]], int]:
    """The main function of the module of a command.

    Args:
      module: the one that `python -m` runs, such as `marl.mfos`.
      runs: whether it is run now; the process then ends with the status of the command.
    """
    if runs:
        start(module, sys.argv[1:])
    return partial(run, module)


def start(module: str, arguments: Sequence[str], program: str = "") -> NoReturn:
    """Runs the command of a module as this process, which `program` started if it was not `python -m MODULE`."""
    from meta import process  # here, because the list needs none of it

    process.start_as(program)
    process.begin(f"python -m {module}")  # before imports that take seconds
    process.leave(run(module, arguments))


def run(module: str, arguments: Sequence[str]) -> int:
    """Runs the command of a module in this process, after `--import` has been followed; returns its exit status."""
    from configs import ConfigError, plugins  # here, because the list needs none of it
    from meta import process

    try:
        arguments = plugins.import_named(arguments)
    except ConfigError as error:
        print(f"{process.called(f'python -m {module}')}: {error}", file=sys.stderr)
        return 2
    if own := next((entry.main for entry in COMMANDS.values() if entry.module == module and entry.main), ""):
        return importlib.import_module(own).main(arguments)
    from meta.runs.execution import execute

    return execute(describe(module), arguments)


def describe(module: str) -> Command:
    """The description of the command of a module: a function of that name makes it."""
    package, _, name = module.partition(".")
    make = getattr(importlib.import_module(_DESCRIPTIONS[package]), name)
    return make()._replace(program=f"python -m {module}", description=inspect.getdoc(make))
