"""What a run that goes on is held against: it goes on with what it was begun with, but for what makes it longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import configs
from configs import ConfigError
from meta.runs.atomic_files import check_folder
from meta.runs.directory import CONFIG, read_record
from meta.runs.provenance import differences


def options(config: Any) -> Any:
    """The fields that --resume takes as options, with the values of a config."""
    rising, others = config.may_rise, config.may_change
    words = dict.fromkeys(rising, "At least as many as so far.") | dict.fromkeys(others, "For another evaluation.")
    return configs.part(config, words)


def read(path: Path, program: str, first: str, first_is: str, kind: Callable[[str], type]) -> tuple[Any, Any]:
    """The config of a run as it was, and as it is in its `config.yaml` now.

    Args:
      path: the directory.
      program: the command that goes on with it.
      first: its first argument, empty if there is none.
      first_is: what that is called.
      kind: (first argument) -> the config's class.

    Raises:
      ValueError: if it is no run of this command, or if nothing says what it was begun with.
    """
    check_folder(path)
    record, there = read_record(path), os.path.lexists(path / CONFIG)
    if not there and not record:
        raise ConfigError(f"--resume: got {configs.shown(str(path))}; the directory of a run (with {CONFIG}) is needed")
    text = configs.read_text(path / CONFIG) if there else ""
    line = text.partition("\n")[0]
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


def check(was: Any, now: Any) -> list[str]:
    """What is to be said of the changes in a config.

    Raises:
      ConfigError: for one that makes another experiment of it; it names the field, before and now.
    """
    rising, others = now.may_rise, now.may_change
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
