"""A run directory: everything that a run leaves behind, and all that is needed to go on with it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

import configs
from configs import ConfigError, files, plugins
from meta.atomic_files import check_folder, no_link, write_whole
from meta.evaluators import current
from meta.runs import checkpoints, provenance
from meta.runs.provenance import Record, differences
from meta.statistics import finite

KEPT_CHECKPOINTS = 3
CONFIG = "config.yaml"
READS = "reads.txt"
FILES = (
    *(".lock", CONFIG, provenance.FILE, "metrics.jsonl", "summary.json", "tables.json", "report.html"),
    *("tracker.json", "tracker.log"),
)
FOLDERS = ("checkpoints", "figures")
NOTHING_BEGUN = {
    ".lock",
    f".{provenance.FILE}",
    provenance.FILE,
    f".{CONFIG}",
}  # what a run leaves that ends as it begins

Warn = Callable[[str], Any]


class RunDirectory:
    """`config.yaml`, `run.json`, `metrics.jsonl`, `checkpoints/`, `summary.json`, `figures/`.

    Metrics are one object for each generation. A directory belongs to one process at a time. Its files are written
    whole: beside their final name, flushed to the disk and renamed. Checkpoints carry the config, the metrics up to
    them and a digest of all, so that a damaged one is noticed and the one before it used, and a damaged `metrics.jsonl`
    is written again.

    Attributes:
      path: the directory.
      record: what the run is; None where nothing says it.
    """

    def __init__(self, path: Path, warn: Warn = lambda message: None, record: Record | None = None):
        """Opens a directory that is there.

        Args:
          path: the directory.
          warn: gets a line about what is damaged.
          record: what the run is; as the directory says if None.

        Raises:
          ValueError: if anything in it is a link, or no file.
          FileExistsError: if another process has it.
        """
        self.path, self._warn = path, warn
        check_folder(path)
        for name in (*FILES, *FOLDERS):
            if (path / name).exists() and (path / name).is_dir() != (name in FOLDERS):
                raise ValueError(f"{path / name}: a {'folder' if name in FOLDERS else 'file'} is needed there")
        self.record = record or read_record(path)
        self._lock = open(path / ".lock", "ab", opener=no_link)  # noqa: SIM115 (for as long as this exists)
        if not lock_descriptor(self._lock.fileno(), blocking=False):
            self._lock.close()
            raise FileExistsError(f"{path}: another run is writing there")
        for unfinished in (path / "checkpoints").glob(".*"):
            unfinished.unlink()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets others write there."""
        self._lock.close()

    @classmethod
    def create(
        cls,
        path: Path,
        config: Any,
        command: str = "",
        warn: Warn = lambda message: None,
        options: Sequence[str] = (),
    ) -> RunDirectory:
        """Begins a run in a new directory, or in one that holds nothing.

        Args:
          path: the directory.
          config: a dataclass, or nested dicts.
          command: by which the run is begun, with its first argument.
          warn: gets a line about what is damaged.
          options: the rest of the command line.

        Raises:
          FileExistsError: if there is something in it already.
          OSError: if it cannot be written to; what was made is removed again.
        """
        if os.path.lexists(path) and (not path.is_dir() or {one.name for one in path.iterdir()} - NOTHING_BEGUN):
            go_on = f", or go on with --resume {shlex.quote(str(path))}" if os.path.lexists(path / CONFIG) else ""
            raise FileExistsError(f"{path}: already holds something; name another{go_on}")
        new, run = not path.exists(), None
        path.mkdir(parents=True, exist_ok=True)
        try:
            run = cls(path, warn)
            if (path / CONFIG).exists():  # of another process, between the look and the lock
                raise FileExistsError(f"{path}: another run has just begun there")
            run.begin(command, config, options)
        except OSError as error:
            if run:
                run._lock.close()  # Windows removes no open file
            if not isinstance(error, FileExistsError):
                for name in NOTHING_BEGUN:
                    (path / name).unlink(missing_ok=True)
                if new:
                    path.rmdir()
            raise
        return run

    def begin(self, command: str, config: Any, options: Sequence[str] = ()) -> None:
        """Says what is run here from now on."""
        self._keep(Record.begin(command, config, provenance.place(), options))

    def go_on(self, config: Any) -> None:
        """Takes over the config with which the run goes on, and says if this is another machine than before."""
        assert self.record is not None
        place, before = provenance.place(), self.record.place
        if place != before:
            self._warn(f"so far on {before}, now on {place}: numbers agree but for rounding, and bit for bit no longer")
        kept = Record.begin("", config, "").config
        self._keep(self.record.changed(kept, place))

    def part(self, name: str, warn: Warn) -> RunDirectory:
        """A folder of this run for metrics and checkpoints of their own."""
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return RunDirectory(folder, warn, self.record)

    def _keep(self, record: Record) -> None:
        self.record = record
        texts = {provenance.FILE: record.to_json() + "\n", CONFIG: config_text(record)}
        # If the process dies between these writes, the directory can be resumed, with the old or the new length.
        for name in sorted(texts) if (self.path / CONFIG).exists() else texts:
            self.write(name, texts[name])

    @property
    def figures(self) -> Path:
        """The folder for pictures."""
        (self.path / "figures").mkdir(exist_ok=True)
        return self.path / "figures"

    def write(self, name: str, text: str) -> None:
        """Writes a file whole: a reader finds the old text or the new, never half of one."""
        write_whole(self.path / name, text.encode())

    def check_reads(self, reads: str) -> None:
        """Keeps the digests of the files that a config names, its `reads`; ValueError if they have changed."""
        path = self.path / READS
        if path.exists() and path.read_text(encoding="utf-8") != reads:
            raise ValueError(f"{self.path}: files that its config names have changed since; a new run is needed")
        if reads:
            self.write(READS, reads)

    def write_summary(self, summary: dict[str, Any], name: str = "summary.json") -> None:
        """Writes what came of the run as JSON, with what was changed on the way, and digests of config and summary.

        A number that is not finite becomes null.
        """
        if self.record:
            summary = summary | {"config_digest": self.record.digest}
        if self.record and self.record.changes:
            summary = summary | {"changes": list(self.record.changes)}
        if cluster := current().cluster:
            summary = summary | {"cluster": cluster.statistics()}
        kept = json.loads(json.dumps(finite(summary)))
        self.write(name, json.dumps(kept | {"digest": provenance.digest_of(kept)}, indent=2) + "\n")

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Adds a line of metrics for each generation."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8", newline="\n", opener=no_link) as file:
            file.writelines(map(_line, rows))

    def rewrite(self, rows: Iterable[dict[str, Any]]) -> None:
        """Makes these all the metrics, those of a checkpoint; what was there of later generations comes again."""
        lines = [_line(row).encode() for row in rows]
        path = self.path / "metrics.jsonl"
        with open(path, "rb") if lines and path.exists() else contextlib.nullcontext() as file:
            for i, line in enumerate(lines):
                # As long as it should be, however long it is.
                if not file or file.readline(len(line)) != line:
                    self._warn(f"metrics.jsonl: damaged from line {i + 1} on; written again from the checkpoint")
                    break
        write_whole(path, b"".join(lines))

    def save(self, generation: int, state: Any, metrics: checkpoints.Metrics) -> None:
        """Saves the state after a generation and the metrics up to it; the newest three checkpoints are kept."""
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        if (target := folder / f"{generation:08d}").exists():
            return
        checkpoints.write(target, state, metrics, self.record)
        for old in _checkpoints(self.path)[:-KEPT_CHECKPOINTS]:
            old.unlink()

    def restore(self, like: Any, last: int) -> tuple[int, Any, checkpoints.Metrics] | None:
        """The newest whole checkpoint as (generation, state of the structure of `like`, metrics); None without one.

        Damaged ones are reported and renamed.

        Raises:
          ValueError: if a checkpoint belongs to another run or to other settings, or to a generation after the last.
        """
        for path in reversed(_checkpoints(self.path)):
            generation = int(path.name)
            try:
                state, metrics, record = checkpoints.read(path, like, last)
            except checkpoints.Damaged as error:
                self._warn(f"checkpoint {path.name} is damaged and left out ({' '.join(str(error).split())[:120]})")
                path.replace(path.with_name(f"{path.name}.damaged"))
                continue
            if self.record and record:
                self._check_origin(path, record)
                if len(record.changes) < len(self.record.changes):
                    self.record = self.record.since(generation, len(record.changes))
            break
        else:
            generation, state, metrics = 0, None, {}
            if self.record:  # it is as if what was changed had been so from the beginning
                self.record = self.record.since(0)
        if self.record and (self.path / provenance.FILE).exists():
            self.write(provenance.FILE, self.record.to_json() + "\n")
        return (generation, state, metrics) if generation else None

    def drop_after(self, generation: int) -> None:
        """Removes the checkpoints of later generations."""
        for path in _checkpoints(self.path):
            if int(path.name) > generation:
                path.unlink()

    def _check_origin(self, path: Path, record: Record) -> None:
        assert self.record is not None
        if not self.record.came_from(record):
            found = differences(record.config, self.record.config)
            field, (before, now) = next(iter(found.items()), ("begun", (record.begun[:12], self.record.begun[:12])))
            raise ValueError(f"{path}: is of another run: {field} is {before!r} there and {now!r} here"[:400])


def read_record(path: Path) -> Record | None:
    """The record of a run, of `run.json` or, if that is damaged, of the newest checkpoint; None without either."""
    return own_record(path) or next(filter(None, map(checkpoints.record_in, reversed(_checkpoints(path)))), None)


def own_record(path: Path) -> Record | None:
    """The record in the `run.json` of a run; None if it is not there or damaged."""
    with contextlib.suppress(OSError):
        return Record.from_json(files.read(path / provenance.FILE, most=checkpoints.MAX_RECORD))
    return None


@contextlib.contextmanager
def naming_imports(path: Path | str) -> Iterator[None]:
    """Inside, an error about a run says with which modules it was begun, where this process has not imported them."""
    try:
        yield
    except ValueError as error:
        folder = Path(path) if os.path.isdir(path) else Path(path).parent
        record = read_record(folder)
        needed = shlex.join(plugins.missing(record.options)) if record else ""
        if not needed or needed in str(error):
            raise
        raise ValueError(f"{error}; {folder} was begun with {needed}") from None


def read_configs(path: Path, program: str, first: str, first_is: str, kind: Callable[[str], type]) -> tuple[Any, Any]:
    """The config with which a run was begun, and the one in its `config.yaml` now.

    Args:
      path: the directory.
      program: the command that goes on with it.
      first: its first argument, empty if there is none.
      first_is: what that is called.
      kind: (first argument) -> the config's class.

    Raises:
      ValueError: if it is no run of this command, or if nothing says what it was begun with.
    """
    of_a_run = any(os.path.lexists(path / name) for name in (CONFIG, provenance.FILE, "checkpoints"))
    if of_a_run:  # another folder may hold anything
        check_folder(path)
    record, there = read_record(path) if of_a_run else None, os.path.lexists(path / CONFIG)
    if not there and not record:
        raise ConfigError(f"--resume: got {configs.shown(str(path))}; the directory of a run (with {CONFIG}) is needed")
    text = configs.read_text(path / CONFIG) if there else ""
    line = text.partition("\n")[0].rstrip()
    began = line.removeprefix("# ") if line.startswith("# python -m ") else ""
    began = began.partition(" --")[0]  # without its options
    if record and (not there or (began and line.startswith(f"# {record.command} "))):
        began = record.command
    if began and not f"{began} ".startswith(f"{program} "):
        raise ConfigError(f"--resume: got {configs.shown(str(path))}, a run of {began}; one of {program} is needed")
    if first and began != " ".join(f"{program} {first}".split()):
        needed = f"{path} was begun as {began}" if began else "none is needed with --resume, the directory has it"
        raise ConfigError(f"{first_is}: got {first!r}; {needed}")
    where = f"{configs.short(str(path))}/{CONFIG}"
    cls = kind((began or (record.command if record else "")).removeprefix(program).strip())
    now: Any = configs.from_text(cls, text, where) if there else None
    if not record:
        raise ConfigError(f"{path}: neither run.json nor a checkpoint says with which config the run was begun")
    was: Any = configs.build(cls, record.config, f"{path}/run.json")
    if not there:
        return was, was
    remedy = f"without {CONFIG}, it is written as it was"
    if began != record.command:
        raise ConfigError(
            f"{where}: the run was begun as {record.command}, which its first line does not say; {remedy}"
        )
    written = configs.full_names(configs.values(text, where))
    for name, value in configs.full_names(record.config).items():
        if name not in written:
            raise ConfigError(f"{where}: {name} is missing, and was {value!r}; {remedy}")
    return was, now


def check_changes(was: Any, now: Any) -> list[str]:
    """Messages about the changes in the config of a run that goes on.

    Raises:
      ConfigError: for one that makes another experiment of it; it names the field, before and now.
    """
    rising, others = now.may_rise, [name for name in now.may_change if name in was.may_change]
    said = []
    for name, (before, after) in differences(configs.plain(was), configs.plain(now)).items():
        if name in rising:
            if after < before:
                raise ConfigError(f"{name}: got {after}; at least {before}, as so far, is needed to go on with the run")
            if rising[name]:
                falling = f"{' and '.join(rising[name])}, which {'fall' if len(rising[name]) > 1 else 'falls'} over it"
                said.append(
                    f"{name}: was {before} and is {after} now; because of {falling}, the result differs from that of a "
                    f"run that begins with {after}"
                )
        elif name not in others:
            only = f"but for {', '.join([*rising, *others])}" if rising or others else "with nothing changed"
            raise ConfigError(f"{name}: was {before!r} and is {after!r} now; a run goes on as it was begun, {only}")
    return said


def config_text(record: Record) -> str:
    """Contents of `config.yaml`: the command line, and every field."""
    return (f"# {record.line}\n" if record.line else "") + configs.to_text(record.config)


def _checkpoints(path: Path) -> list[Path]:
    found = [one for one in (path / "checkpoints").glob("*") if re.fullmatch("[0-9]{8,12}", one.name)]
    return sorted(found, key=lambda one: int(one.name))


def _line(row: dict[str, Any]) -> str:
    """A line of JSON."""
    return json.dumps(finite(row)) + "\n"
