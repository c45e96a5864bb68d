"""`python -m games` lists all games; `python -m games coin_game --gif out.gif` plays one with random agents."""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from meta import process
from meta.runs.formatting import many
from meta.runs.provenance import version_line

if __name__ == "__main__":
    process.begin("python -m games")  # before what takes seconds to import

import yaml

from configs import one_line, shown
from configs.flags import HELP
from games import catalogue

# What is here alone takes half a second; a game that is played imports JAX.

PROGRAM = process.called("python -m games")
LONGEST_PLAY = 1_000_000  # steps, of which all pictures are kept


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {one_line(message.removeprefix('argument '))}; {HELP}\n")


class Once(argparse.Action):
    """Keeps the value of an option that is given once."""

    def __call__(self, parser: Any, options: Any, values: Any, flag: str | None = None) -> None:
        if self.dest in (given := vars(options).setdefault("given", set())):
            parser.error(f"{flag}: given twice; once is needed")
        given.add(self.dest)
        setattr(options, self.dest, values)


def whole(text: str) -> int:
    """The number in a text."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {shown(text)}; a whole number is needed") from None


@process.running()
def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    process.stop_on_signals()
    parser = Parser(prog=PROGRAM, description=__doc__, allow_abbrev=False)
    for kind in (None, "store"):
        parser.register("action", kind, Once)
    parser.add_argument("game", nargs="?", help="a name from the list; none prints the list")
    parser.add_argument("--gif", metavar="FILE", help="write an animation of random play")
    parser.add_argument("--png", metavar="FILE", help="write a picture of the last step")
    parser.add_argument("--steps", type=whole, default=32, help="how long to play (default 32)")
    parser.add_argument("--seed", type=whole, default=0, help="of random play (default 0)")
    parser.add_argument("--params", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the game")
    parser.add_argument("--version", action="store_true", help="print the versions of the library and of JAX")
    parser.add_argument("--gallery", metavar="DIR", help="write DIR/games.md with a picture of every game of ours")
    options = parser.parse_args(arguments)
    given: set[str] = getattr(options, "given", set())
    if options.version:
        print(version_line())
        return 0
    try:
        if options.gallery or options.game is None:
            played = [f"--{name}" for name in ("gif", "png", "steps", "seed", "params") if name in given]
            if options.gallery and (options.game or played):
                raise ValueError(
                    f"--gallery: given with {options.game or played[0]}; it shows all games, and stands alone"
                )
            if played:
                raise ValueError(f"game: none given; a name is needed with {', '.join(played)}")
        if options.gallery:
            _check_file("--gallery", options.gallery)
            return _gallery(Path(options.gallery))
        if options.game is None:
            return _list()
        if not 1 <= options.steps <= LONGEST_PLAY:
            limits = "of at least 1" if options.steps < 1 else f"from 1 to {LONGEST_PLAY}"
            raise ValueError(f"--steps: got {shown(options.steps)}; a whole number {limits} is needed")
        if not 0 <= options.seed < 2**32:
            raise ValueError(f"--seed: got {shown(options.seed)}; a whole number from 0 to 2**32 - 1 is needed")
        for flag in ("gif", "png"):
            _check_file(f"--{flag}", getattr(options, flag))
        return _play(options)
    except (ValueError, NotImplementedError) as error:
        return _fail(str(error), 2)
    except KeyboardInterrupt:
        process.ignore_signals()
        return _fail("stopped", process.STOPPED)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}", 1)
    except RuntimeError as error:  # data that cannot be had
        return _fail(str(error).splitlines()[0], 1)


def _check_file(flag: str, path: str | None) -> None:
    """Raises ValueError for a path at which nothing can be written, before anything is played."""
    try:
        fits = path is None or (bool(path) and Path(os.path.abspath(path)).parent.is_dir())
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path or ".")
    except (OSError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{flag}: got {shown(path)}; a path in a directory that exists is needed")


def _fail(message: str, status: int) -> int:
    print(f"{PROGRAM}: {one_line(message)}", file=sys.stderr)
    return status


def _params(pairs: Sequence[str]) -> dict[str, Any]:
    params = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--params: got {shown(pair)}; NAME=VALUE is needed, such as grid_size=5")
        if name in params:
            raise ValueError(f"--params: {name}: given twice; once is needed")
        try:
            params[name] = yaml.safe_load(value)
            with contextlib.suppress(ValueError, TypeError):
                params[name] = float(value) if isinstance(params[name], str) else params[name]  # 1e-3 in YAML 1.1
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ValueError(f"--params: {name}: got {shown(value)}; a number or a list is needed") from None
    return params


def _list() -> int:
    _print_columns([catalogue.Row._fields, *catalogue.rows()])
    return 0


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be, whatever the width of the terminal: nothing is cut off."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _play(options: argparse.Namespace) -> int:
    import jax

    from games import registry
    from games.core.rollout import rollout
    from games.toolbox.drawing import animate, pictures, save_png

    game = registry.make(options.game, **_params(options.params))
    played = jax.jit(lambda key: rollout(key, game, options.steps))(jax.random.key(options.seed))
    if options.gif:
        animate(played, options.gif)
    if options.png:
        save_png(pictures(played)[-1], options.png)
    print(inspect.cleandoc(type(game).__doc__ or ""))
    print(f"\n{many(options.steps, 'random step')}, mean per step:")
    means = {"reward": [float(played.rewards[agent].mean()) for agent in game.agents]}
    means |= {name: values.mean(0).tolist() for name, values in played.infos.items()}
    _print_columns([("", *game.agents), *((name, *(f"{x:.3f}" for x in xs)) for name, xs in means.items())])
    for path in filter(None, (options.gif, options.png)):
        print(f"wrote {path}")
    return 0


def _gallery(folder: Path) -> int:
    import jax

    from games import registry
    from games.core.rollout import rollout
    from games.toolbox.drawing import pictures, save_png

    (folder / "games").mkdir(parents=True, exist_ok=True)
    lines = ["# The games\n", "Written by `python -m games --gallery docs`: random play, and what each game is.\n"]
    for name in registry.ours():
        game = registry.make(name)
        played = jax.jit(lambda key, game=game: rollout(key, game, 12))(jax.random.key(0))
        save_png(pictures(played)[-1], folder / "games" / f"{name}.png")
        _, agents, observation, actions, description = catalogue.facts(name)
        lines += [
            f"## `{name}`\n",
            f"{description.capitalize()}. {many(int(agents), 'agent')}; observation {observation}; "
            f"{actions} {'action' if actions == '1' else 'actions'}.\n",
            f"![{name}](games/{name}.png)\n",
        ]
    (folder / "games.md").write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {folder / 'games.md'}")
    return 0


if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
