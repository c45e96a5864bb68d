"""TensorBoard: event files in the folder `tensorboard` of the run directory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from meta.trackers.tracker import MetricsRow, TrackedRun

FOLDER = "tensorboard"


class EventFiles:
    """Writes TensorBoard's event files; each part of a run is a run of TensorBoard.

    Rows after those that were counted, which only a process that was killed has left, are purged on a resumption.
    """

    name, place = "tensorboard", ""

    def begin(self, run: TrackedRun) -> None:
        """Begins event files, and writes the config as a text."""
        self._folder = (run.path or Path("runs", f"{run.name}-{run.id[:8]}")) / FOLDER
        self.place = f"tensorboard --logdir {self._folder}"
        self._rows, self._writers = dict(run.rows), dict[str, EventFileWriter]()
        self._writer("").add_event(_event(self._rows.get("", 0), _text("config", run.config)))

    def log(self, row: MetricsRow) -> None:
        """Writes the metrics as scalars."""
        writer = self._writer(row.part)
        self._rows[row.part] = row.step
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.metrics.items()]
        writer.add_event(_event(row.step, *values))

    def flush(self) -> None:
        """Hands all rows to the system."""
        for writer in self._writers.values():
            writer.flush()

    def finish(self, summary: Mapping[str, Any] | None, files: Sequence[Path]) -> None:
        """Writes the summary as a text, and figures and films as images."""
        step = self._rows.get("", 0)
        values = [] if summary is None else [_text("summary", summary)]
        values += [_image(file) for file in files if file.suffix in (".png", ".gif")]
        for value in values:
            self._writer("").add_event(_event(step, value))
        for writer in self._writers.values():
            writer.close()

    def _writer(self, part: str) -> EventFileWriter:
        if part not in self._writers:
            self._writers[part] = EventFileWriter(str(self._folder / part))
            if done := self._rows.get(part, 0):
                purge = Event(step=done + 1, session_log=SessionLog(status=SessionLog.START))
                self._writers[part].add_event(purge)
        return self._writers[part]


def _event(step: int, *values: Summary.Value) -> Event:
    return Event(wall_time=time.time(), step=step, summary=Summary(value=values))


def _text(tag: str, value: Mapping[str, Any]) -> Summary.Value:
    """JSON as a block of code in Markdown."""
    lines = json.dumps(value, indent=2).splitlines()
    found = Summary.Value(tag=f"{tag}/text_summary", metadata=text.create_summary_metadata(tag, ""))
    found.tensor.dtype = 7  # DT_STRING
    found.tensor.tensor_shape.dim.add(size=1)
    found.tensor.string_val.append("\n".join(f"    {line}" for line in lines).encode())
    return found


def _image(file: Path) -> Summary.Value:
    with Image.open(file) as picture:
        width, height = picture.size
    shown = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=file.read_bytes())
    return Summary.Value(tag=f"figures/{file.stem}", image=shown)
