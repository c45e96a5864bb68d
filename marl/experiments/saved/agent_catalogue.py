"""The command of trained agents: lists them, shows a card, trains one again, adds one."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Column, Table

import configs
from configs import one_of, shown
from configs.usage import Positional
from marl.experiments.saved.load_agent import load_agent
from marl.experiments.saved.main_results import agent_in, errors_over, results_of
from marl.experiments.saved.saved_run import SavedRun, load_run
from marl.trained.catalogue import Card, list_agents, write_cards
from meta.atomic_files import write_whole
from meta.runs.formatting import say
from meta.statistics import rounded, with_error


@dataclasses.dataclass(frozen=True)
class AgentsConfig(configs.CommandConfig):
    """A trained agent that comes with the library, or all of them."""

    name: Annotated[str, Positional("NAME")] = ""
    """The agent whose card is shown; all agents are listed if empty."""
    again: str = ""
    """A new directory, in which the agent is trained again by its command."""
    add: str = ""
    """The directory of a finished run, whose agent is added to the library under NAME, in place of an older one."""


def checked(config: AgentsConfig) -> AgentsConfig:
    """The config, of which name and directories fit.

    Raises:
      ValueError: if they do not.
    """
    if config.add and config.again:
        raise ValueError(f"add: got {shown(config.add)} beside again; one of the two is needed")
    if config.add:
        if not re.fullmatch(r"[a-z0-9]+([-_][a-z0-9]+)*", config.name):
            raise ValueError(f"name: got {shown(config.name)}; lower-case words with hyphens between them are needed")
        agent_of(load_run(config.add))
    elif config.name and config.name not in list_agents():
        raise ValueError(f"name: got {shown(config.name)}; {one_of(config.name, list(list_agents()))}")
    elif config.again and not config.name:
        raise ValueError("name: none given; the name of the agent that is trained again is needed")
    if config.again and Path(config.again).exists():
        raise ValueError(f"again: {shown(config.again)} already exists; another name is needed")
    return config


def run(config: AgentsConfig, target: None, console: Console) -> None:
    """Lists the agents, shows the card of one, trains one again or adds one."""
    if config.add:
        card = add(config.name, load_run(config.add))
        say(console, f"added {card!r}, {card.num_bytes:,} bytes")
    elif config.name:
        show(console, list_agents()[config.name])
        if config.again:
            train_again(console, list_agents()[config.name], Path(config.again))
    else:
        cards = list_agents()
        names = Column("name", no_wrap=True, min_width=max(map(len, cards), default=0))  # never cut: they are typed
        table = Table(names, "kind", "result", box=None)
        for card in cards.values():
            table.add_row(card.name, card.kind, result_in_words(card))
        console.print(table)
        say(console, "marl-shaping agents NAME shows a card; marl.load_agent('NAME') loads the agent")


def result_in_words(card: Card) -> str:
    """The first result of a card with its error, and the last one, its control."""
    found = list(card.results.items())
    (name, first), (control, last) = found[0], found[-1]
    beside = "" if control == name else f" ({control}: {rounded(last['mean'], 3)})"
    return f"{name} {_with_error(first)}{beside}"


def _with_error(found: dict[str, float | None]) -> str:
    return rounded(found["mean"], 3) if found["standard_error"] is None else with_error(found)


def show(console: Console, card: Card) -> None:
    """Prints the card of an agent."""
    table = Table(box=None, show_header=False)
    table.add_row("name", card.name)
    table.add_row("kind", card.kind)
    table.add_row("trained by", card.command)
    table.add_row("result", card.conclusion)
    for name, found in card.results.items():
        table.add_row("", f"{name}: {_with_error(found)}")
    table.add_row("errors over", card.over)
    table.add_row("seeds", ", ".join(map(str, card.seeds)))
    table.add_row("sha256", card.sha256)
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    table.add_row("versions", versions or "not kept")
    table.add_row("licence", card.licence)
    table.add_row("file", str(card.file))
    console.print(table, soft_wrap=True)


def train_again(console: Console, card: Card, path: Path) -> None:
    """Trains an agent again by its command, and prints whether it is the same.

    Raises:
      ValueError: if the command fails.
    """
    words = [*shlex.split(card.command)[1:], "--out", str(path)]
    if subprocess.run([sys.executable, *words], check=False).returncode:
        raise ValueError(f"again: {card.command} failed; its message is above")
    again, _ = agent_of(load_run(path))
    same = _sha256(again) == card.sha256
    other = "another file than the one of the library: versions or processors differ"
    say(console, f"trained again in {path}: {'the same file, to the bit' if same else other}")


def agent_of(run: SavedRun) -> tuple[Path, str]:
    """The file of the agent of a finished run, and its kind.

    Raises:
      ValueError: if there is none.
    """
    found = agent_in(run.path)
    if not found or not run.summary:
        raise ValueError(f"add: got {shown(str(run.path))}; a finished run that has trained an agent is needed")
    return found


def add(name: str, run: SavedRun) -> Card:
    """Adds the agent of a finished run to the library.

    Args:
      name: of the agent.
      run: as of `marl.load_run`.

    Returns:
      Its card.

    Raises:
      ValueError: if the run has no agent, or one that cannot be loaded.
    """
    file, kind = agent_of(run)
    load_agent(file)
    summary, contents = run.summary, file.read_bytes()
    seeds = list(range(summary["seed"], summary["seed"] + summary.get("seeds", summary.get("searches", 1))))
    card = Card(
        name=name,
        kind=kind,
        command=shlex.join([*run.record.command.split(), *run.record.repeated]) if run.record else run.command,
        conclusion=summary["conclusion"],
        results=results_of(kind, summary),
        over=errors_over(kind, run.config, len(seeds)),
        seeds=seeds,
        sha256=hashlib.sha256(contents).hexdigest(),
        num_bytes=len(contents),
        versions=summary["versions"],
    )
    write_whole(card.file, contents)
    write_cards(list_agents() | {name: card})
    return card


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
