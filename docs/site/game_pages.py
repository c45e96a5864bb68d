"""A page for each game, from its docstring, its spaces and parameters, and what was measured in it."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import re
from typing import Any, NamedTuple

import jax
import numpy as np

import games
from docs.site.links import ROOT, site_path
from games import catalogue, registry

MEASURED = "docs/games/measured.json"  # python -m benchmarks.learning.games
# Names of actions of games whose payoffs are in no table of known games.
_DILEMMA: tuple[str, ...] = ("cooperate", "defect")
_HANDS = ("rock", "paper", "scissors")
NAMES = {
    "three_player_ipd": _DILEMMA,
    "ipd_in_the_matrix": _DILEMMA,
    "chicken_in_the_matrix": ("swerve", "straight"),
    "rock_paper_scissors": _HANDS,
    "rock_paper_scissors_in_the_matrix": _HANDS,
}


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
        if not meaning.strip().startswith(("as in", "as of")):
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
                f'```python\nimport games\n\ngame = games.make("{name}")\n```',
                _spaces(game),
                _in_other_libraries(name, game),
                "## Rules" if parts.rules else "",
                *parts.rules,
                _payoffs(name, game),
                "## Actions and observations",
                _named_actions(name, game),
                parts.actions,
                _entries(game),
                "## What `infos` counts" if parts.infos else "",
                parts.infos.removeprefix("Infos: "),
                _parameters(game, parts.parameters),
                _presets(name),
                _schelling(name),
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
    return "\n".join(["| sizes | by default |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows)])


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


def _in_other_libraries(name: str, game: games.Game) -> str:
    """The adapters that fit the number of players, and the opponents that may have a name."""
    link = "[In other libraries](../guides/games.md#in-other-libraries)"
    if game.num_agents == 1:
        return f'{link}: `games.gymnasium.env("{name}")`, `games.gymnax.env("{name}")`.'
    strategies = isinstance(game, games.RepeatedGame) and game.num_actions == (2, 2)
    opponents, named = (', opponents="tft"', "a fixed strategy") if strategies else ("", "random play")
    space, kind = game.action_space(game.agents[0]), ""
    if isinstance(space, games.MultiDiscrete):
        kind = " Gymnax has no space for several choices at once; use Gymnasium there."
    return (
        f'{link}: all players by PettingZoo, `games.pettingzoo.parallel_env("{name}")`, or by JaxMARL, '
        f'`games.jaxmarl.wrap("{name}")`; one seat against {named} by Gymnasium, '
        f'`games.gymnasium.env("{name}"{opponents})`.{kind}'
    )


def _named_actions(name: str, game: games.Game) -> str:
    """Names of actions, or of the resources that stand for them, by number, for games whose payoffs name them."""
    names = _action_names(name, game)
    resources = "Resources: " if not isinstance(game, games.RepeatedGame) else ""
    return resources + ", ".join(f"{i} is {one}" for i, one in enumerate(names)) + "." if names else ""


def _action_names(name: str, game: games.Game) -> tuple[str, ...]:
    from games.exact.matrix import action_names

    payoffs = np.asarray(getattr(game, "payoffs", ()), float)
    return NAMES.get(name) or (action_names(payoffs) if payoffs.ndim == 3 else ())


def _entries(game: games.Game) -> str:
    """The entries of a one-hot observation by their index."""
    if isinstance(game, games.RepeatedGame):
        joints = itertools.product(*map(game.letters, range(game.num_agents)))
        numbered = ", ".join(f"{i} `{''.join(joint)}`" for i, joint in enumerate(joints, start=1))
        return f"Entries of the observation: 0 start, {numbered}."
    if isinstance(game, games.SocialDilemma):
        size = game.num_agents
        others = f"with {', '.join(map(str, reversed(range(size))))} others that cooperate"
        return (
            f"Entries of the observation: 0 start; 1 to {size} own cooperation {others}; {size + 1} to {2 * size} own "
            f"defection {others}."
        )
    return ""


def _payoffs(name: str, game: games.Game) -> str:
    """The payoff table: of two players, the row's payoff first; of more, the payoff of one."""
    payoffs = np.asarray(getattr(game, "payoffs", ()), float)
    if payoffs.ndim == 2:  # `[own action, others that cooperate]`
        names, columns = _DILEMMA, tuple(map(str, range(payoffs.shape[1])))
        about, cells = "Payoff of a player by its own action (rows) and the number of others that cooperate.", payoffs
    elif payoffs.ndim == 3 and payoffs.shape[-1] == 2:
        names = columns = _action_names(name, game) or tuple(map(str, range(len(payoffs))))
        about, cells = "Payoffs of `agent_0` (rows) and `agent_1` (columns), in this order.", payoffs
    elif isinstance(game, games.RepeatedGame):
        names = tuple(game.letters(0))
        columns = tuple(map("".join, itertools.product(*map(game.letters, range(1, game.num_agents)))))
        about = "Payoff of `agent_0` by its own action (rows) and those of the next players (columns)."
        cells = payoffs[..., 0].reshape(len(names), len(columns))
    else:
        return ""
    rows = [
        f"| {own} | " + " | ".join(", ".join(f"{x + 0:g}" for x in np.atleast_1d(cell)) for cell in row) + " |"
        for own, row in zip(names, cells, strict=True)
    ]
    table = [f"| own action | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows]
    return "\n".join(["## Payoffs", "", about, "", *table])


def _parameters(game: games.Game, meanings: dict[str, str]) -> str:
    rows = []
    for field in dataclasses.fields(game):  # type: ignore[arg-type]
        value = getattr(game, field.name)
        rows.append(f"| `{field.name}` | {_default(field.name, value)} | {meanings.get(field.name, '')} |")
    return "\n".join(["## Parameters", "", "| name | default | meaning |", "|---|---|---|", *rows]) if rows else ""


def _presets(name: str) -> str:
    """The game in other sizes, with the parameters that differ; maps by their size."""
    rows = []
    for preset in registry.presets(name):
        changed = registry.parameters(preset)
        differ = {field: value for field, value in changed.items() if value != registry.parameters(name).get(field)}
        words = ", ".join(
            f"`{field}` {f'{len(value)} x {len(value[0])} cells' if field == 'layout' else f'`{value}`'}"
            for field, value in differ.items()
        )
        rows.append(f'| `games.make("{preset}")` | {registry.describe(preset).partition(": ")[2]} | {words} |')
    return "\n".join(["## Presets", "", "| name | what it is | parameters |", "|---|---|---|", *rows]) if rows else ""


def _schelling(name: str) -> str:
    """The Schelling diagram of a game, where there is one."""
    places = (f"../figures/schelling_{name}.png", f"schelling_{name}.png")  # the former where a page of results has it
    found = [place for place in places if (ROOT / "docs" / "games" / place).exists()]
    if not found:
        return ""
    return (
        f"## Cooperators and defectors\n\n![payoffs of a cooperator and a defector in {name}, by the number of other "
        f"cooperators]({found[0]})\n\n*`python -m marl.schelling {name}`, with scripted policies; [their rules and all "
        "games in one table](../results/social_dilemmas.md).*"
    )


def _default(name: str, value: Any) -> str:
    """A default in a cell: payoffs by the table above, and a map row by row."""
    if name == "payoffs":
        return "[above](#payoffs)"
    if isinstance(value, tuple) and isinstance(value[0], str):
        return "<br>".join(f"`{row}`" for row in value)
    rounded = np.asarray(value, float).tolist() if np.ndim(value) else value
    return f"`{jax.tree.map(lambda x: float(f'{x:g}'), rounded) if np.ndim(value) else rounded!r}`"


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
