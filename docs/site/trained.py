"""The page of trained agents, from their cards."""

from __future__ import annotations

from marl.experiments.saved.agent_catalogue import result_in_words
from marl.trained.catalogue import Card, list_agents

TITLES = {
    "shaper": "Shapers",
    "learner": "Learners",
    "adversary": "Adversaries and allies",
    "objective": "Objectives",
}
ABOUT = """# Trained agents

These agents come with the library, with their parameters; nothing is downloaded. A name in Python is enough:

```python
import marl

agent = marl.load_agent("mfos-ipd-naive")
trials = agent.play("tft", num_episodes=64)  # trials, in each of which the opponent learns from the beginning
print(trials.shaper_payoffs.mean(), trials.cooperation.mean((0, 1)))
```

On command lines an agent is `hub:NAME`: `python -m marl.play ipd hub:good_shepherd-ipd-naive` plays against you, and
`python -m marl.crossplay ipd --agents naive,lola,hub:mfos-ipd-naive` lets it meet learners. As an opponent,
`python -m marl.mfos ipd --opponent hub:mfos-ipd-naive` evolves a shaper against it. `marl-shaping agents NAME` shows a
card with the command, the versions and the hash, and with `--again DIR` trains the agent again. A file with several
seeds is one agent, drawn evenly for each trial; `marl.load_agent(name, number=0)` is that of one seed.

The licence of all parameters is that of the library, Apache-2.0. Standard errors are over what the last column says."""


def pages() -> dict[str, str]:
    """One page, with a table for each kind of agent."""
    parts = [ABOUT]
    for kind, title in TITLES.items():
        cards = [card for card in list_agents().values() if card.kind == kind]
        if cards:
            rows = [_row(card) for card in cards]
            parts += [
                f"## {title}",
                "\n".join(["| name | result | trained by | errors over |", "|---|---|---|---|", *rows]),
            ]
    return {"trained.md": "\n\n".join(parts) + "\n"}


def _row(card: Card) -> str:
    command = card.command.removeprefix("python -m ")
    return f"| `{card.name}` | {result_in_words(card)} | `{command}` | {card.over} |"
