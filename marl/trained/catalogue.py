"""The trained agents that come with the library: a card for each, and where its file is."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from configs import one_of, short
from marl.trained import folder
from meta.atomic_files import write_whole

CARDS = "agents.json"
PREFIX = "hub:"  # of a name where a spec may be something else as well


class Card(NamedTuple):
    """A trained agent that comes with the library.

    Attributes:
      name: by which `marl.load_agent` finds it.
      kind: `shaper`, `learner`, `adversary` or `objective`.
      command: the command line that trains it.
      conclusion: what its training ended with, in one or two sentences.
      results: means with standard errors, `{"mean": ..., "standard_error": ...}` by what is measured.
      over: what the standard errors are over, such as `3 trainings`.
      seeds: of the trainings that the file holds.
      sha256: of the file.
      num_bytes: size of the file.
      versions: of Python and the libraries with which it was trained.
      licence: of the parameters.
    """

    name: str
    kind: str
    command: str
    conclusion: str
    results: dict[str, dict[str, float | None]]
    over: str
    seeds: list[int]
    sha256: str
    num_bytes: int
    versions: dict[str, str]
    licence: str = "Apache-2.0"

    def __repr__(self) -> str:
        """One line: the name, the kind and the command."""
        return f"<{self.kind} {self.name}: {self.command}>"

    @property
    def file(self) -> Path:
        """The file with its parameters."""
        return folder() / f"{self.name}.safetensors"


@functools.cache
def _cards() -> Mapping[str, Card]:
    found: dict[str, Any] = json.loads((folder() / CARDS).read_text(encoding="utf-8"))
    return {name: Card(name, **card) for name, card in found.items()}


def list_agents() -> dict[str, Card]:
    """The trained agents that come with the library, by the names that `marl.load_agent` takes.

    Returns:
      A `Card` for each name.

    Example:
      >>> import marl
      >>> marl.list_agents()["mfos-ipd-naive"]
      <shaper mfos-ipd-naive: python -m marl.mfos ipd --shaper mfos --opponent naive --seeds 3>
    """
    return dict(_cards())


def write_cards(cards: Mapping[str, Card]) -> None:
    """Replaces the cards of the library.

    Args:
      cards: all of them, by their names.
    """
    kept = {
        name: {key: x for key, x in card._asdict().items() if key != "name"} for name, card in sorted(cards.items())
    }
    write_whole(folder() / CARDS, (json.dumps(kept, indent=1) + "\n").encode())
    _cards.cache_clear()


def located(path: Path | str, field: str = "agent") -> Path | str:
    """The file of a trained agent for `hub:NAME`, and for its NAME where no file has that name; else the path itself.

    Args:
      path: as a user gives it.
      field: the setting that names it, in errors.

    Raises:
      ValueError: for `hub:NAME` without such an agent; one line.
    """
    text = os.fspath(path)
    name = text.removeprefix(PREFIX)
    if text.startswith(PREFIX) and name not in _cards():
        if name == Path(name).name and (file := folder() / f"{name}.safetensors").is_file():
            return file  # without a card, as those of the page that plays
        raise ValueError(f"{field}: got {short(text)!r}; {PREFIX}NAME, {one_of(name, list(_cards()))}")
    if name in _cards() and (name != text or not os.path.exists(text)):
        return _cards()[name].file
    return path
