"""`tracker.json`: the tracker of a run, and how many rows each tracker has had."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import secrets
from pathlib import Path

from configs import files
from meta.atomic_files import write_whole
from meta.trackers.names import NAMES

FILE = "tracker.json"
MOST_BYTES = 2**24
OWN = "own"  # a tracker of the user


@dataclasses.dataclass
class Position:
    """The position of trackers in the metrics of a run.

    Attributes:
      id: of the run, the same for every tracker.
      tracker: the name of the last one.
      rows: the number of rows that each tracker has had, by part.
    """

    id: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    tracker: str = ""
    rows: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Position | None:
        """The position that is kept in a run directory; None if there is none, or if it is damaged."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            found = cls(**json.loads(files.read(folder / FILE, most=MOST_BYTES)))
            counts = [count for one in found.rows.values() for count in one.values()]
            known = {found.tracker, *found.rows} <= {*NAMES, OWN}
            if re.fullmatch("[0-9a-f]{16}", found.id) and known and all(type(x) is int and x >= 0 for x in counts):
                return found
        return None

    def write(self, folder: Path) -> None:
        """Keeps the position in a run directory."""
        write_whole(folder / FILE, (json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode())
