"""Provenance of results: the command, config, versions and devices of a run, with which a resumed run is compared."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shlex
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import configs

# JAX is imported where it is needed: versions are printed without it.

FILE = "run.json"
_MISSING = object()


@dataclasses.dataclass(frozen=True)
class Record:
    """A run's own, kept in `run.json` and in every checkpoint."""

    command: str
    """As it was called, with its first argument: `python -m marl.mfos ipd`."""
    config: dict[str, Any]
    """Every field, as JSON holds it."""
    place: str
    """The devices of the process that runs it, as of `place`."""
    begun: str
    """The digest that the run began with."""
    changes: tuple[dict[str, Any], ...] = ()
    """What was changed since: each time the field, its value before and now, and from which generation on."""
    options: str = ""
    """The rest of the command line with which the run was begun, in printable characters."""

    @classmethod
    def begin(cls, command: str, config: Any, place: str, options: Sequence[str] = ()) -> Record:
        """The record of a new run."""
        kept = json.loads(json.dumps(configs.plain(config)))
        typed = "".join(letter if letter.isprintable() else " " for letter in shlex.join(options))
        return cls(command, kept, place, digest_of([command, kept]), options=typed)

    @property
    def line(self) -> str:
        """The whole command line with which the run was begun."""
        return f"{self.command} {self.options}".strip()

    @property
    def repeated(self) -> list[str]:
        """The options of the command line, without those that say where results go; none of a damaged line."""
        try:
            left, found = shlex.split(self.options), list[str]()
        except ValueError:  # an open quote
            return []
        while left:
            word = left.pop(0)
            if word in ("--out", "--tracker"):
                del left[:1]
            elif word.partition("=")[0] not in ("--out", "--tracker", "--quiet"):
                found.append(word)
        return found

    @property
    def digest(self) -> str:
        """The digest of the command and the config."""
        return digest_of([self.command, self.config])

    def changed(self, config: dict[str, Any], place: str) -> Record:
        """The record of the run as it goes on with a config, whose differences are among its changes, and somewhere."""
        found = differences(self.config, config)
        if place != self.place:
            found["devices"] = (self.place, place)
        changes = [{"field": name, "before": before, "now": now} for name, (before, now) in found.items()]
        return dataclasses.replace(self, config=config, place=place, changes=(*self.changes, *changes))

    def came_from(self, other: Record) -> bool:
        """True if this is the other run, perhaps later."""
        theirs = [_without_time(change) for change in other.changes]
        return self.begun == other.begun and [_without_time(x) for x in self.changes][: len(theirs)] == theirs

    def since(self, generation: int, done: int = 0) -> Record:
        """This record, where the changes after the first `done` come into force at a generation."""
        later = tuple(change | {"generation": generation} for change in self.changes[done:])
        return dataclasses.replace(self, changes=self.changes[:done] + later)

    def to_json(self, indent: int | None = 1) -> str:
        """All fields, and the digest of all."""
        found = dataclasses.asdict(self) | {"config_digest": self.digest}
        return json.dumps(found | {"digest": digest_of(found)}, indent=indent)

    @classmethod
    def from_json(cls, text: bytes | str) -> Record | None:
        """The record that `to_json` wrote; None if it is damaged."""
        try:
            found = json.loads(text)
            if found.pop("digest") != digest_of(found):
                return None
            del found["config_digest"]
            return cls(**found | {"changes": tuple(found["changes"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def versions() -> dict[str, str]:
    """Versions of what a result may depend on."""
    names = ("marl-shaping", "jax", "jaxlib", "evosax", "optax", "flax", "numpy")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a checkout that is not installed
            found[name] = "not installed"
    return found


def version_line() -> str:
    """The versions of the library and of JAX in one line."""
    found = versions()
    return f"marl-shaping {found['marl-shaping']}, jax {found['jax']}"


def devices() -> list[str]:
    """The devices of this process, such as `2 x cpu`."""
    import jax

    kinds = [device.device_kind for device in jax.local_devices()]
    return [f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds)]


def environment() -> dict[str, Any]:
    """The entries of a summary about its surroundings: versions, devices and the settings of rounding."""
    from meta.evaluators import platform_of_trials
    from meta.xla import numerics

    return {"versions": versions(), "devices": devices(), **numerics.settings(platform_of_trials())}


def place() -> str:
    """The devices, cores, settings and versions of JAX of this process, on which rounding depends."""
    import jax

    from meta.evaluators import platform_of_trials
    from meta.xla import numerics
    from meta.xla.devices import cores as available

    cores = f"{len(available())} core(s)" if jax.default_backend() == "cpu" else ""
    rounding = numerics.described(platform_of_trials())
    return ", ".join(filter(None, [*devices(), cores, rounding, f"jax {jax.__version__}"]))


def digest_of(value: Any) -> str:
    """Hexadecimal digits that change with what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def differences(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, by their names in full, with both values as JSON holds them; None for one that is not."""
    old, new = configs.full_names(before), configs.full_names(now)
    return {
        name: (old.get(name), new.get(name))
        for name in (old | new)
        if old.get(name, _MISSING) != new.get(name, _MISSING)
    }


def _without_time(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in change.items() if name != "generation"}
