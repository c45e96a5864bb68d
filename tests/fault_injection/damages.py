"""Damages to the files of a run directory, and the verdict on a run that is resumed after one."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np

from meta.runs import array_files

TIMINGS = ("wall_seconds", "seconds_to_compile", "digest")


def removed(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size * 2 // 3)


def flipped(file: Path) -> None:
    """Flips one bit, always the same one of a file name."""
    contents = bytearray(file.read_bytes())
    if contents:
        draw = random.Random(file.name)
        contents[draw.randrange(len(contents))] ^= 1 << draw.randrange(8)
        file.write_bytes(contents)


def replaced(file: Path) -> None:
    file.write_bytes(random.Random(file.name).randbytes(max(file.stat().st_size, 100)))


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = (removed, emptied, cut, flipped, replaced, a_folder)


def linked(file: Path, outside: Path) -> None:
    """A symbolic link to a valuable file elsewhere."""
    file.unlink()
    file.symlink_to(outside / "letter")


def hard_linked(file: Path, outside: Path) -> None:
    file.unlink()
    os.link(outside / "letter", file)


def piped(file: Path, outside: Path) -> None:
    del outside
    file.unlink()
    os.mkfifo(file)


ATTACKS = (linked, hard_linked, piped)


def make_outside(path: Path) -> Path:
    """A folder that no command may change, with the files of a run directory."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "letter").write_text("dear friend\n")
    (path / "checkpoints" / "00000001").write_text("mine")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file by its name."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def files(run: Path) -> list[Path]:
    """Files of a run directory, relative to its root."""
    return sorted(file.relative_to(run) for file in run.rglob("*") if file.is_file() and not file.is_symlink())


def results(run: Path) -> dict:
    """Results of a run without times and figures."""
    found = {}
    for file in files(run):
        if file.name == "metrics.jsonl":
            found[str(file)] = (run / file).read_text()
        elif file.name == "summary.json":
            summary = json.loads((run / file).read_text())
            found[str(file)] = {
                name: x for name, x in summary.items() if name not in TIMINGS and not name.endswith("_per_second")
            }
        elif file.suffix == ".csv" or file.name == "pairs.jsonl":
            found[str(file)] = sorted((run / file).read_text().splitlines())
        elif file.suffix == ".safetensors":
            arrays, about = array_files.load_arrays(run / file)
            found[str(file)] = about, {name: array.tolist() for name, array in arrays.items()}
        elif file.suffix == ".npz":
            with np.load(run / file) as arrays:
                found[str(file)] = {name: str(array.tolist()) for name, array in arrays.items()}  # nan is not nan
        elif file.suffix in (".png", ".gif"):
            found[str(file)] = "a picture"
    return found


def go(main, *arguments: str) -> tuple[int, str]:
    """Runs a command in this process: (its exit status, its stderr)."""
    errors, handlers = io.StringIO(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    except BaseException as error:  # it would be a traceback
        status, _ = -1, errors.write(f"Traceback {type(error).__name__}: {error}\n")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return status, errors.getvalue()


def verdict(main, place: Path, expected: dict, run: str = "") -> str:
    """Resumes a run, there or in a folder there.

    Returns `equal` for the results of an undamaged run, `refused` for one line, or the fault.
    """
    status, said = go(main, "--resume", str(place / run), "--quiet")
    lines = said.splitlines()
    if "Traceback" in said or any(len(line) > 700 for line in lines):
        return f"status {status}: {said[-2000:]}"
    if status == 0:
        found = results(place)
        if found == expected:
            return "equal"
        return f"other {[name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)]}"
    return "refused" if status in (1, 2) and lines else f"status {status}: {said[-2000:]}"


def copy(run: Path, to: Path) -> Path:
    """Replaces a folder by a copy of a run directory."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(run, to))
