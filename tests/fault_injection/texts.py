"""Command lines that are bad in a text: a name, a file, a path, a spec in brackets."""

from __future__ import annotations

import typing
from random import Random
from typing import Any

from configs.specs import REQUIRED, Registry
from marl.commands import describe
from meta.runs.command import ToDirectory, ToFile
from tests.fault_injection.lines import BAD_YAML, FIRST, JUNK, TOO_MANY, Line, Make, fields


def _first(random: Random, module: str) -> Line | None:
    about = describe(module)
    if not about.first:
        return None
    word = random.choice(
        (*(junk for junk in JUNK if not junk.startswith("-")), "ipd2", "no.yaml", "zd/", "q" * 300 + ".yaml")
    )
    return Line(module, (word,), "", (about.first, "preset", "agent", "game"), word)


def _file(random: Random, module: str) -> Line | None:
    about = describe(module)
    if not about.presets or isinstance(about.config, dict):
        return None
    known = [one for one in fields(about.kind("")) if "." not in one.name]
    field = random.choice([one for one in known if one.kind in (int, float)])
    text, name = random.choice(
        (
            *((text, "bad.yaml") for text in BAD_YAML),
            (f"{field.name}: 1\n{field.name}: 1\n", field.name),
            (f"{field.name}: .nan\n", field.name),
            (f"{field.name}: -.inf\n", field.name),
            (f"{field.name}: [1]\n", field.name),
            (f"{field.name}: {{a: 1}}\n", field.name),
            (f"{field.name}: {'w' * 5000}\n", field.name),
            (f"{field.name}: -1\n", field.name),
            (f"{field.name}: 2020-13-41\n", "bad.yaml"),
            (f"{field.name}x: 1\n", f"{field.name}x"),
            (f"{'k' * 5000}: 1\n", "kkk"),
            ("1: 2\n", "1"),
            ("\0\xff", "bad.yaml"),
        )
    )
    return Line(module, ("bad.yaml",), "", (name, "bad.yaml"), "w" * 5000, {"bad.yaml": text.encode("latin-1")})


def _spec_fields() -> dict[tuple[str, str], tuple[tuple[str, ...], str, Registry[Any]]]:
    """Fields that hold specs: (module, flag) -> (arguments before the flag, field, registry)."""
    from attacks.messages import MESSAGES
    from marl.experiments.shaping import initialisation as starts
    from marl.learners import registry as learners
    from marl.shapers import registry as shapers

    return {
        ("marl.mfos", "--opponent="): (("ipd",), "opponent", learners.FORMULA),
        ("marl.mfos", "--unseen="): (("ipd",), "opponent", learners.FORMULA),
        ("marl.mfos", "--start="): (("ipd",), "start", starts.FORMULA),
        ("marl.mfos", "--start"): (("ipd_sampled",), "start", starts.SAMPLED),
        ("marl.mfos", "--shaper="): (("ipd",), "shaper", shapers.FORMULA),
        ("marl.mfos", "--shaper"): (("ipd_sampled",), "shaper", shapers.SAMPLED),
        ("marl.mfos", "--opponent"): (("ipd_sampled",), "opponent", learners.SAMPLED),
        ("marl.train", "--learner="): (("cartpole",), "learner", learners.SAMPLED),
        ("marl.bound", "--opponent="): (("ipd",), "opponent", learners.FORMULA),
        ("marl.play", ""): (("ipd",), "agent", learners.FORMULA),
        ("attacks.act", "--victim="): (("cartpole",), "victim", learners.SAMPLED),
        ("attacks.act", "--message="): (("cartpole",), "message", MESSAGES),
        ("marl.crossplay", "--agents="): (("ipd",), "agents", learners.FORMULA),
    }


SIGNED = {"zd", "memory_one"}  # learners whose numbers may be negative, or are checked as a whole
BELOW_ZERO = {"low", "high"}  # settings that may be negative


def _spec(random: Random, module: str) -> Line | None:
    places = {flag: place for (name, flag), place in _spec_fields().items() if name == module}
    if not places:
        return None
    flag, (before, field, registry) = random.choice(list(places.items()))
    names = [name for name in registry.names() if name not in SIGNED and registry.settings(name)]
    name = random.choice(names)
    setting, (hint, default) = random.choice(list(registry.settings(name).items()))
    if any(needed is REQUIRED for _, needed in registry.settings(name).values()):
        return None
    options = [
        "nan",
        "inf",
        "-inf",
        "1e400",
        "word",
        "{}",
        "b''",
        "1j",
        "[[[1]]]",
        "'" + "v" * 5000 + "'",
        "-1e39",
        "(",
    ]
    numeric = hint in (int, float, Any) or (int in typing.get_args(hint)) or type(default) in (int, float)
    if numeric and setting not in BELOW_ZERO:
        options += ["-1", "-0.5"]
    if hint is int:
        options += [*TOO_MANY, "1.5", "True"]
    value = random.choice(options)
    spec = random.choice(
        (f"{name}({setting}={value})", f"{name}({setting}={value})", f"{name}({setting}={value}, {setting}=1)")
    )
    if random.random() < 0.25:
        spec = random.choice(
            (f"{name}(nothing=1)", f"{name}(1)", f"{name}(", f"{name})", "x" * 5000, f"{name}({'[' * 3000}", "")
        )
    if isinstance(default, str) and value.startswith("'"):
        return None  # a path or a name: another error
    words = (f"{flag}{spec}",) if flag.endswith("=") or not flag else (flag, spec)
    return Line(module, (*before, *words), "", (field, field.rstrip("s")), spec)


def _game(random: Random, module: str) -> Line | None:
    from games import registry

    places = {
        "marl.mfos": (("ipd_sampled",), "--environment="),
        "marl.train": ((), ""),
        "marl.play": (("ipd", "random"), "--environment="),
        "attacks.act": (("cartpole",), "--environment="),
        "marl.crossplay": (("ipd",), "--environment="),
    }
    if module not in places:
        return None
    before, flag = places[module]
    name = random.choice(["CartPole-v1", "Pendulum-v1", *registry.ours()])
    numbers = {"gravity": 1.0, "max_steps_in_episode": 1}
    if name in registry.ours():
        numbers = {key: x for key, x in registry.parameters(name).items() if type(x) in (int, float)}
    if not numbers:
        return None
    values = ("nan", "inf", "'x'", "{}", "1e400", "None", "word", "[[1], [1, 2]]", "'" + "v" * 5000 + "'", "1j")
    parameter, value = random.choice(list(numbers)), random.choice(values)
    spec = f"{name}({parameter}={value})"
    if random.random() < 0.3:
        spec = random.choice(
            (f"{name}x", f"{name}(q=1)", f"{name}({parameter}=1, {parameter}=1)", f"{name}((", "y" * 5000)
        )
    return Line(module, (*before, f"{flag}{spec}"), "", ("environment", "game", name, parameter), spec)


def _path(random: Random, module: str) -> Line | None:
    about, first = describe(module), random.choice(FIRST[module])
    long, files = "p" * 5000, {"taken/notes": b"mine", "file": b"mine"}
    if module == "attacks.examine":
        path = random.choice((long, "taken", "file", "nowhere", "\0", "a/" * 2500))
        return Line(module, (path,), "", ("directory",), path, files)
    if module == "marl.play":
        path = random.choice((f"./{long}", "./nowhere", "file", "x.safetensors", "a/" * 2500, "./\0"))
        return Line(module, (first, path), "", ("agent", "file: got"), path, files)
    if about.output is ToFile:
        path = random.choice((long, "taken", "file", "nowhere/file", "/proc/x/y", "file/x", "\0", "a/" * 2500))
        return Line(module, (first, f"--out={path}"), "", ("out",), path, files)
    if issubclass(about.output, ToDirectory):
        path = random.choice((long, "taken", "file", "taken/notes", "/proc/x", "\0", "a/" * 2500))
        if random.random() < 0.5:
            return Line(module, (f"--resume={path}",), "", ("resume",), path, files)
        return Line(
            module, (first, f"--out={path}"), "", ("out", path[:50] if path.isprintable() else "out"), path, files
        )
    return None


def _resume(random: Random, module: str) -> Line | None:
    about, first = describe(module), FIRST[module][0]
    if not about.keeps_a_run:
        return None
    head = f"# python -m {module} {first}\n"
    text = random.choice((*BAD_YAML[:6], "strange: 3", "seed: many", "seed: -1", "seed: 1\nseed: 1", "seed: .nan"))
    other = random.choice((head, head, "# python -m marl.other ipd\n"))
    files = {"run/config.yaml": (other + text + "\n").encode()}
    more = random.choice(((), (), ("--nothing",), ("--resume=run",)))
    return Line(module, ("--resume=run", *more), "", ("resume", "config.yaml", "seed", "--nothing"), "", files)


GAMES_FLAGS = {
    "steps": ("0", "many", "99999999999999999999", "2000000000", "nan", ""),
    "seed": ("-1", "1.5", "4294967296", "9" * 5000),
    "gif": ("no/x.gif", "\0", ""),
    "png": ("no/x.png", "\0"),
    "nothing": ("", "3"),
}


def _games(random: Random, module: str) -> Line | None:
    del module
    long = "g" * 5000
    arguments, name = random.choice(
        (
            (("coin_gam",), "game"),
            ((long,), "game"),
            (("\0",), "game"),
            (("",), "game"),
            (("--gif=x.gif",), "game"),
            (("coin_game", "stray"), "stray"),
            (("coin_game", f"--{long}"), "--ggg"),
            (("coin_game", "--seed"), "seed"),
            (("coin_game", "--seed=1", "--seed=2"), "seed"),
            (("coin_game", "--params", "grid_size"), "params"),
            (("coin_game", "--params", "grid_size=3", "grid_size=4"), "grid_size"),
            *(((flag,), "gallery") for flag in ("--gallery=\0", f"--gallery={long}")),
            *(
                (("coin_game", f"--{flag}={value}"), flag)
                for flag, values in GAMES_FLAGS.items()
                for value in (*values, long)
            ),
            *(
                ((name, "--params", f"{setting}={value}"), setting)
                for name, setting in (("coin_game", "grid_size"), ("coin_game", "q"), ("CartPole-v1", "gravity"))
                for value in ("x", "null", "None", ".nan", "[1", "{}", long)
            ),
        )
    )
    return Line("games", arguments, "", (name,), long)


KINDS: dict[str, Make] = {
    "spec": _spec,
    "game in brackets": _game,
    "first argument": _first,
    "YAML file": _file,
    "path": _path,
    "resumed run": _resume,
    "games": _games,
}
