"""The report of a run: one file for a browser, written from the files of the run directory."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from rich.console import Console

import configs
from configs import files, plugins
from configs.usage import Positional
from meta.atomic_files import check_folder, write_whole
from meta.runs.formatting import duration, many, say
from meta.runs.provenance import Record
from meta.runs.reading import PICTURES, RESULTS, RunFiles
from meta.runs.reports import curves, page
from meta.runs.reports.tables import FILE as FILE_OF_TABLES
from meta.runs.reports.tables import OF_EXAMINATION, read_tables

FILE = "report.html"
MARKDOWN = "report.md"  # of `reproduce`
LARGEST_PICTURE = 2**25  # bytes
MOST_CHARTS = 60
MOST_NUMBERS = 1500  # of a table


def write_run_report(path: Path) -> Path:
    """Writes `report.html` into a run directory, finished or not, in place of an older one.

    Args:
      path: the directory.

    Returns:
      The file.

    Raises:
      ValueError: if it is no run directory, or if its files are damaged; one line that names the file.
      OSError: if the file cannot be written.
    """
    return _write(path, page_of_run(path))


def page_of_run(path: Path) -> str:
    """The text of the report of a run; raises ValueError as `write_run_report` does.

    Args:
      path: the run directory.
    """
    run = RunFiles(path, "directory")
    return page.document(_title(run), *_body(run))


def _write(path: Path, text: str) -> Path:
    write_whole(path / FILE, text.encode())
    return path / FILE


@dataclasses.dataclass(frozen=True)
class ReportConfig(configs.CommandConfig):
    """The run of a report."""

    directory: Annotated[str, Positional("DIR")] = ""
    """A run directory, of a run that has finished or not."""


def prepare(config: ReportConfig) -> tuple[Path, str]:
    """The directory and the text of its report.

    Args:
      config: which run.

    Raises:
      ValueError: if it is no run directory, or if its files are damaged; one line that names the file.
    """
    if not os.path.isdir(config.directory):
        got = f"got {configs.shown(config.directory)}" if config.directory else "none given"
        raise ValueError(f"directory: {got}; the directory of a run is needed")
    path = Path(config.directory)
    text = page_of_run(path)
    check_folder(path)
    return path, text


def report_again(prepared: tuple[Path, str], target: None, console: Console) -> None:
    """Writes the report of a run again.

    Args:
      prepared: what `prepare` gives.
      target: no directory.
      console: prints where the report is.
    """
    say(console, f"report: {_write(*prepared)}")


def _title(run: RunFiles) -> str:
    return _command(run.record)[-1] or run.path.resolve().name


def _body(run: RunFiles) -> Iterator[Element]:
    yield page.element("h1", page.element("code", _title(run)))
    for sentence in _conclusions(run):
        yield page.element("p", sentence, class_="conclusion")
    sections = [
        ("Results", [*_tables(run, FILE_OF_TABLES), *_claims(run)]),
        ("Examination", _tables(run, OF_EXAMINATION)),
        ("Figures", _pictures(run)),
        ("Curves", _charts(run)),
        ("All numbers", _numbers(run)),
        ("Settings", _settings(run)),
        ("Versions and times", _provenance(run)),
        ("Repeat and continue", _repeat(run)),
    ]
    found = [page.section(title, *parts) for title, parts in sections if parts]
    links = [page.element("a", one[0].text or "", href=f"#{one.get('id')}") for one in found]
    yield page.element("nav", *links, aria_label="Sections")
    yield from found


def _conclusions(run: RunFiles) -> list[str]:
    found = [run.summary.get("conclusion")]
    if not run.summary and (run.metrics or not read_tables(run.path, OF_EXAMINATION)):  # none of an examination alone
        found = ["The run has not finished: this is the state of its files."]
        if run.is_outdated:
            found = ["The run was resumed with other settings and has not finished. Its results are from before."]
    return [line for one in found if isinstance(one, str) for line in one.splitlines()]


def _tables(run: RunFiles, name: str) -> list[Element]:
    found = []
    for one in read_tables(run.path, name):
        match one:
            case str():
                found.append(page.element("p", one, class_="note"))
            case {"title": str(title), "columns": [*columns], "rows": [*rows]}:
                cells = [[str(cell) for cell in row] for row in rows if isinstance(row, list) and row]
                found.append(page.table(list(map(str, columns)), cells, title))
    return found


def _claims(run: RunFiles) -> list[Element]:
    """The report of `reproduce`, with the pictures that it names."""
    if not (run.path / MARKDOWN).exists():
        return []
    try:
        text = files.read(run.path / MARKDOWN, most=2**22).decode("utf-8", "replace")
    except OSError as error:
        raise ValueError(f"{run.path / MARKDOWN}: cannot be read ({error.strerror or error})") from None
    found = page.markdown(text)
    for parent in list(found.iter()):
        for i, child in enumerate(list(parent)):
            if child.tag == "img":
                shown = _named_picture(run.path, unquote(child.get("src", "")), child.get("alt", ""))
                shown.tail = child.tail
                parent[i] = shown
                parent.tag = "div"  # a paragraph holds no figure
            elif child.tag in ("h1", "h2", "h3"):  # below the title and the section of the page
                child.tag = "h4" if child.tag == "h3" else "h3"
    return list(found)


def _named_picture(path: Path, name: str, title: str) -> Element:
    """A picture that a text names, if it is a file of the run, or else its title."""
    file = path / name
    inside = file.suffix in PICTURES and file.resolve().is_relative_to(path.resolve())
    return _picture(file, title) if inside else page.element("em", title)


def _pictures(run: RunFiles) -> list[Element]:
    if (run.path / MARKDOWN).exists():  # which has them where they belong
        return []
    in_order = sorted(run.figures.values(), key=lambda file: file.stat().st_mtime_ns)  # in which they were drawn
    shown = [_picture(file) for file in in_order]
    return [page.element("div", *shown, class_="pictures")] if shown else []


def _picture(file: Path, title: str | None = None) -> Element:
    """A picture with the title and the note that are written in it, or the name of its file."""
    from PIL import Image  # here, because a command that is only listed needs none of it

    try:
        contents = files.read(file, most=LARGEST_PICTURE)
        with Image.open(file) as image:
            told = {name: str(text) for name, text in image.info.items() if name in ("Title", "Description")}
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return page.element("p", f"{file.name} cannot be shown.", class_="note")
    named = f"{curves.words(file.stem)}{' (film)' if file.suffix == '.gif' else ''}"
    return page.picture(contents, title or told.get("Title") or named, told.get("Description", ""))


def _charts(run: RunFiles) -> list[Element]:
    _, metrics = run.by_training()
    charts = curves.of_run(metrics)[:MOST_CHARTS]
    if not charts:
        return []
    hint = "Drag across a curve to zoom, double-click for the whole; the values at the cursor stand below it."
    script = page.element(
        "noscript", page.element("p", "Curves need scripts; the table has their ends.", class_="note")
    )
    first, *others = map(page.curves, charts)
    label, counts = next(iter(metrics.items()))
    columns = ["", f"{curves.words(label)} {counts[0]:g}", f"{counts[-1]:g}", "lowest", "highest"]
    rows = [
        [line["label"], *map(_shown, (line["mean"][0], line["mean"][-1], *_limits(line["mean"])))]
        for one in charts
        for line in one["lines"]
    ]
    more = page.folded(many(len(others), "other metric"), *others) if others else None
    parts = [page.element("p", hint, class_="note"), script, first, more]
    return [*filter(None, parts), page.folded("Ends of all curves as a table", page.table(columns, rows))]


def _limits(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    known = [x for x in values if x is not None]
    return (min(known), max(known)) if known else (None, None)


def _numbers(run: RunFiles) -> list[Element]:
    """All numbers of the summary, as its file has them."""
    apart = (
        "conclusion",
        "versions",
        "devices",
        "precision",
        "deterministic",
        "changes",
        "digest",
        "config_digest",
        "config",
    )
    found = _entries({name: x for name, x in run.summary.items() if name not in apart})
    rows = [[name, _shown(x, 6)] for name, x in found.items()]
    title = many(len(rows), "number") + (f", the first {MOST_NUMBERS:,}" if len(rows) > MOST_NUMBERS else "")
    return [page.folded(title, page.table(["entry of the summary", "value"], rows[:MOST_NUMBERS]))] if rows else []


def _entries(found: Mapping[str, Any]) -> dict[str, Any]:
    """All entries of nested objects and lists of objects, by their names in full."""
    entries: dict[str, Any] = {}
    for name, value in configs.full_names(found).items():
        if isinstance(value, list) and any(isinstance(one, dict) for one in value):
            entries |= _entries({f"{name}.{i}": one for i, one in enumerate(value)})
        else:
            entries[name] = value
    return entries


def _settings(run: RunFiles) -> list[Element]:
    fields = configs.full_names(run.config)
    given = {
        word[2:].partition("=")[0].replace("-", "_")
        for word in (run.record.repeated if run.record else [])
        if word.startswith("--")
    }
    # --no-field is that of a field, and so is --part.no-field.
    given |= {re.sub(r"(^|\.)no_", r"\1", name) for name in given}
    chosen = {name: x for name, x in fields.items() if name in given}
    others = {name: x for name, x in fields.items() if name not in given}
    parts = []
    if chosen:
        parts.append(page.table(["given on the command line", ""], _rows(chosen)))
    if changes := [one for one in run.record.changes if isinstance(one, dict)] if run.record else []:
        rows = [
            [str(x.get("field")), *(_shown(x.get(name)) for name in ("before", "now", "generation"))] for x in changes
        ]
        parts.append(page.table(["changed on the way", "before", "since then", "from generation"], rows))
    if others:
        title = f"{len(others)} fields of the preset or default" if chosen else f"{len(others)} fields"
        parts.append(page.folded(title, page.table(["field", "value"], _rows(others))))
    return parts


def _rows(fields: Mapping[str, Any]) -> list[list[str]]:
    return [[name, _shown(x)] for name, x in fields.items()]


def _provenance(run: RunFiles) -> list[Element]:
    summary, versions = run.summary, run.summary.get("versions")
    found = {"place": run.record.place if run.record else ""}
    if devices := summary.get("devices"):
        found["devices"] = _shown(devices)
    if isinstance(seconds := summary.get("wall_seconds"), int | float):
        found["whole time"] = f"{duration(seconds)} ({seconds:.1f} s)"
    if isinstance(seconds := summary.get("seconds_to_compile"), int | float):
        found["compiling"] = f"{seconds:.1f} s"
    if summary:
        file = next(run.path / name for name in RESULTS if (run.path / name).exists())
        found["finished"] = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(file.stat().st_mtime))
    found |= {str(name): str(x) for name, x in versions.items()} if isinstance(versions, dict) else {}
    found["digest of the config"] = str(summary.get("config_digest", ""))
    return [page.names((name, x) for name, x in found.items() if x)]


def _repeat(run: RunFiles) -> list[Element]:
    program, line = _command(run.record)
    path, parts = str(run.path), list[tuple[str, str]]()
    modules = plugins.modules_in(run.record.repeated) if run.record else []
    if line:
        parts.append(("Repeat the run, with the same result to the last bit on such devices and versions:", line))
    if program:
        words = shlex.join(["--resume", path, *(word for module in modules for word in (plugins.OPTION, module))])
        parts.append(("Continue it, or make it longer:", f"{program} {words}"))
        again = f"marl-shaping report {shlex.quote(path)}"
        parts.append(("Write this page again:", again))
    imports = "\n".join(["import marl", *(f"import {module}" for module in modules)])
    parts.append(("Use it in Python:", f"{imports}\n\nrun = marl.load_run({path!r})\nrun.summary, run.metrics"))
    return [
        x for words, code in parts for x in (page.element("p", words), page.element("pre", page.element("code", code)))
    ]


def _command(record: Record | None) -> tuple[str, str]:
    """The program of a run and its line, with quotes where a shell needs them; empty if it is none of ours."""
    found = re.fullmatch(r"(python -m (?:marl|attacks)\.\w+)(?: (.*))?", str(record.command)) if record else None
    if not found:
        return "", ""
    assert record
    words = [found[2]] if found[2] and "discover" not in found[1] else (found[2] or "").split()
    return found[1], " ".join([found[1], shlex.join([*words, *record.repeated])]).strip()


def _shown(value: Any, digits: int = 5) -> str:
    """A value of a file in a cell."""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list):
        value = configs.short(", ".join(_shown(x, digits) for x in value))
    return "none" if value is None else "empty" if value == "" else str(value)
