"""The main results of a run, by the kind of what it has trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marl.experiments.saved.load_agent import ADVERSARY_FILE, LEARNER_FILE, OBJECTIVE_FILE
from marl.experiments.shaping.agents import AGENT_FILE
from meta.runs.formatting import many

KINDS = {AGENT_FILE: "shaper", LEARNER_FILE: "learner", ADVERSARY_FILE: "adversary", OBJECTIVE_FILE: "objective"}


def agent_in(path: Path) -> tuple[Path, str] | None:
    """The file and the kind of what a run has trained; None if there is none.

    Args:
      path: the run directory.
    """
    return next(((path / file, kind) for file, kind in KINDS.items() if (path / file).is_file()), None)


def results_of(kind: str, summary: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """The mean and the standard error of each main result, the first one in front and its control last.

    Shapers in self-play have no control: the last one is their opponent.

    Args:
      kind: one of `KINDS`.
      summary: of the run.
    """
    if kind == "shaper":
        own = summary.get("own_kind", {}).get("shaper")
        found = {name: summary["against"][summary["opponent"]][name] for name in ("shaper", "opponent")}
        found |= {"without a shaper": own} if own else {}
    elif kind == "learner":
        found = {"return": summary["returns"] if "returns" in summary else summary["evaluation_return"]}
    elif kind == "objective":
        first = next(iter(summary["environments"].values()))
        found = {arm: first[arm] for arm in ("evolved", "tuned", "plain")}
    else:
        rewards = summary.get("goal_reward")
        others, control = (("still", "random"), rewards["best_baseline"]) if rewards else (("random",), "silent")
        names = ["evolved", *(name for name in others if name != control), control]
        found = {name: (rewards or summary)[name] for name in names}
    return {name: {key: one[key] for key in ("mean", "standard_error")} for name, one in found.items()}


def errors_over(kind: str, config: Mapping[str, Any], number: int) -> str:
    """The samples between which the errors are, in words.

    Args:
      kind: one of `KINDS`.
      config: of the run.
      number: of its seeds.
    """
    if number > 1:
        return many(number, "search") if kind == "objective" else many(number, "training")
    trials = {"shaper": "trial", "learner": "episode"}.get(kind, "victim" if kind == "adversary" else "learner")
    count = config.get("evaluation_episodes" if kind == "learner" else "evaluation_trials", 0)
    return f"{many(count, trials)} of one {'training' if kind in ('shaper', 'learner') else 'search'}"
