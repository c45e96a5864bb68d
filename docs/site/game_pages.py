"""A page for each game, from its docstring, its spaces and parameters, and what was measured in it."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from typing import Any, NamedTuple

import numpy as np

import games
from docs.site.links import ROOT, site_path
from games import catalogue, registry

MEASURED = "docs/games/measured.json"  # python -m benchmarks.learning.games


class Sections(NamedTuple):
    """The parts of a game's docstring."""

    summary: str  # its first sentence or paragraph
    rules: list[str]
    actions: str
    infos: str
    source: str
    parameters: dict[str, str]  # by name


def pages() -> dict[str, str]:
    """One page for each game of the library."""
    measured = json.loads((ROOT / MEASURED).read_text(encoding="utf-8"))
    return {f"games/{name}.md": page(name, measured[name]) for name in registry.ours()}


def sections(kind: type) -> Sections:
    """The parts of the docstring of a game's class; parameters of its base classes too."""
    text = inspect.getdoc(kind) or ""
    body, _, attributes = text.partition("\nAttributes:\n")
    attributes, _, source = (
        attributes.partition("\n\nSource:") if attributes else ("", *body.partition("\n\nSource:")[1:])
    )
    body = body.partition("\n\nSource:")[0]
    summary, *others = re.split(r"\n\n", body.strip())
    rules = [part for part in others if not re.match(r"(Actions|Infos)\b", part)]
    actions = next((part for part in others if part.startswith("Actions")), "")
    infos = next((part for part in others if part.startswith("Infos")), "")
    parameters: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        parameters |= _attributes(inspect.getdoc(base) or "") if dataclasses.is_dataclass(base) else {}
    return Sections(summary, rules, actions, infos, " ".join(source.split()), parameters)


def _attributes(text: str) -> dict[str, str]:
    """Names and meanings below `Attributes:`; several names may share a meaning."""
    block = text.partition("\nAttributes:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=  \w)", block):
        names, _, meaning = entry.strip().partition(":")
        if not meaning.strip().startswith("as in"):
            found |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    return found


def page(name: str, measured: dict[str, Any]) -> str:
    """The Markdown of one game's page."""
    game = games.make(name)
    parts, facts = sections(type(game)), catalogue.facts(name)
    description = facts[-1]
    return (
        "\n\n".join(
            part
            for part in [
                f"# {name}",
                f"{description[0].upper()}{description[1:]}. {parts.summary}",
                f"![{name}: random play]({name}.gif)",
                f"```python\nimport games\n\ngame = games.make({name!r})\n```",
                _spaces(game),
                "## Rules" if parts.rules else "",
                *parts.rules,
                _payoffs(game),
                "## Actions and observations",
                _named_actions(game),
                parts.actions,
                "## What `infos` counts" if parts.infos else "",
                parts.infos.removeprefix("Infos: "),
                _parameters(game, parts.parameters),
                _measured(measured),
                f"## Source\n\n{parts.source}" if parts.source else "",
                f"The code: [`{_file(game)}`]({_relative(_file(game))}).",
            ]
            if part
        )
        + "\n"
    )


def _spaces(game: games.Game) -> str:
    """The sizes in one table."""
    agent = game.agents[0]
    observation, action = game.observation_space(agent), game.action_space(agent)
    rows = [
        ("players", f"{game.num_agents}: {', '.join(f'`{one}`' for one in game.agents)}"),
        (
            "observation",
            f"`{list(observation.shape)}`" + (", an image" if getattr(observation, "image", False) else ""),
        ),
        ("actions", _space(action)),
        ("time limit of an episode", f"{limit} steps" if (limit := _number(game.time_limit)) else "none"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows)])


def _space(space: Any) -> str:
    if hasattr(space, "n"):
        return f"{space.n}, by number from 0"
    if hasattr(space, "nvec"):
        return f"a choice from each of {' x '.join(map(str, space.nvec))}"
    low, high = (np.unique(np.asarray(bound, float)) for bound in (space.low, space.high))
    ends = f" from {low[0]:g} to {high[0]:g}" if low.size == high.size == 1 else ""
    return f"{int(np.prod(space.shape))} number(s){ends}"


def _number(value: Any) -> int | None:
    try:
        return int(value) if np.isfinite(float(value)) else None
    except (TypeError, ValueError):
        return None


def _named_actions(game: games.Game) -> str:
    """Names of actions by number, for games whose payoffs name them."""
    from games.exact.matrix import action_names

    payoffs = getattr(game, "payoffs", None)
    try:
        names = action_names(payoffs) if payoffs is not None else ()
    except (TypeError, ValueError):
        names = ()
    return ", ".join(f"{i} is {one}" for i, one in enumerate(names)) + "." if names else ""


def _payoffs(game: games.Game) -> str:
    """The payoff table of two players, row's payoff first."""
    from games.exact.matrix import action_names

    payoffs = np.asarray(getattr(game, "payoffs", ()), float)
    if payoffs.ndim != 3 or payoffs.shape[-1] != 2:
        return ""
    names = action_names(payoffs) or tuple(map(str, range(len(payoffs))))
    rows = [
        f"| {name} | " + " | ".join(f"{own:g}, {other:g}" for own, other in row) + " |"
        for name, row in zip(names, payoffs, strict=True)
    ]
    head = ["## Payoffs", "", "Of `agent_0` (rows) and `agent_1` (columns), in this order.", ""]
    return "\n".join([*head, f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *rows])


def _parameters(game: games.Game, meanings: dict[str, str]) -> str:
    rows = []
    for field in dataclasses.fields(game):  # type: ignore[arg-type]
        value = getattr(game, field.name)
        shown = f"`{value!r}`" if isinstance(value, (int, float, str, bool, tuple)) and len(repr(value)) < 60 else ""
        rows.append(f"| `{field.name}` | {shown} | {meanings.get(field.name, '')} |")
    return "\n".join(["## Parameters", "", "| name | default | meaning |", "|---|---|---|", *rows]) if rows else ""


def _measured(found: dict[str, Any]) -> str:
    """Rewards that learners come to, beside random play, and the speed."""
    rows = [
        f"| {label} | {one['reward']:.3f}" + (f" ± {one['error']:.3f} |" if one.get("error") is not None else " |")
        for label, one in found["rewards"].items()
    ]
    return "\n".join(
        [
            "## Learners",
            "",
            f"Mean reward per step and player over the last tenth of {found['total_steps']:,} steps, all seats being "
            f"learners of the same kind; ± is the standard error between {found['seeds']} trainings "
            "(`python -m benchmarks.learning.games`).",
            "",
            "| player | reward per step |",
            "|---|---:|",
            *rows,
            "",
            f"Speed: {found['million_steps_per_second']:g} million steps per second in 4,096 parallel games, with "
            "random actions, on two CPU cores.",
        ]
    )


def _file(game: games.Game) -> str:
    return type(game).__module__.replace(".", "/") + ".py"


def _relative(file: str) -> str:
    return f"../{site_path(file)}"
