"""`python -m games` lists all games; `python -m games coin_game --gif out.gif` plays one with random agents."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from meta import process

if __name__ == "__main__":
    process.begin("python -m games")  # before what takes seconds to import

import yaml

from configs import ContractError, flags, one_line, plugins, shown
from configs.usage import Positional, usage
from games import catalogue
from meta.runs.formatting import many
from meta.runs.provenance import version_line

# What is here alone takes half a second; a game that is played imports JAX.

PROGRAM = process.called("python -m games")
GENERAL = "--version prints the versions. --import MODULE first imports a module of yours, which may register games."
LONGEST_PLAY = 1_000_000  # steps, of which all pictures are kept
GALLERY_STEPS = 24
OF_PLAY = ("--gif", "--png", "--steps", "--seed", "--params")


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command."""

    game: Annotated[str | None, Positional("[GAME]")] = None
    """A name from the list; none prints the list."""
    gif: str | None = None
    """File for an animation of random play."""
    png: str | None = None
    """File for a picture of the last step."""
    steps: int = 32
    """Length of random play."""
    seed: int = 0
    """Seed of random play."""
    params: tuple[str, ...] = ()
    """Parameters of the game, each as NAME=VALUE."""
    gallery: str | None = None
    """Directory for games.md, which has a film of every game of ours."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= LONGEST_PLAY:
            limits = "of at least 1" if self.steps < 1 else f"from 1 to {LONGEST_PLAY}"
            raise ValueError(f"--steps: got {shown(self.steps)}; a whole number {limits} is needed")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed: got {shown(self.seed)}; a whole number from 0 to 2**32 - 1 is needed")


@process.running()
def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns its exit status."""
    process.stop_on_signals()
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(usage([Options()], PROGRAM, f"{__doc__}\n\n{GENERAL}"))
        return 0
    if "--version" in arguments:
        print(version_line())
        return 0
    try:
        arguments = plugins.import_named(arguments)
        options = flags.parse(Options(), arguments)
        played = [flag for flag in OF_PLAY if flag in [word.partition("=")[0] for word in arguments]]
        if options.gallery and (options.game or played):
            raise ValueError(f"--gallery: given with {options.game or played[0]}; it shows all games, and stands alone")
        if options.gallery:
            _check_file("--gallery", options.gallery)
            return _gallery(Path(options.gallery))
        if options.game is None:
            if played:
                raise ValueError(f"game: none given; a name is needed with {', '.join(played)}")
            return _list()
        if "--params" in played and not options.params:
            raise ValueError("--params: no value is given; NAME=VALUE is needed")
        _check_file("--gif", options.gif)
        _check_file("--png", options.png)
        return _play(options.game, options)
    except (ValueError, NotImplementedError, ContractError) as error:
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
    """Prints columns without a border. Not rich, which pads every row to the widest, so that all of them wrap."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _play(name: str, options: Options) -> int:
    import jax

    from games import registry
    from games.core.metrics import social_metrics
    from games.core.rollout import rollout
    from games.toolbox.drawing import animate, pictures, save_png

    game = registry.make_with(name, params := _params(options.params))
    registry.check_own(name, params, game)
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
    if game.num_agents > 1:
        found = social_metrics(played)._asdict()
        values = [f"{name} {float(x):.3f}" for name, x in found.items() if name != "counts" and x is not None]
        episodes = int(played.dones["__all__"].sum())
        over = many(episodes, "whole episode") if episodes else "the first steps of an episode"
        print(f"\nall players, over {over}: {', '.join(values)}")
        if episodes and found["counts"]:
            print("\nsums per episode:")
            sums = [(name, *(f"{x:.1f}" for x in xs.tolist())) for name, xs in found["counts"].items()]
            _print_columns([("", *game.agents), *sums])
    for path in filter(None, (options.gif, options.png)):
        print(f"wrote {path}")
    return 0


def _gallery(folder: Path) -> int:
    import jax

    from games import registry
    from games.core.rollout import rollout
    from games.toolbox.drawing import animate

    (folder / "games").mkdir(parents=True, exist_ok=True)
    lines = ["# The games\n", "Written by `python -m games --gallery docs`: random play, and what each game is.\n"]
    for name in registry.ours():
        game = registry.make(name)
        played = jax.jit(lambda key, game=game: rollout(key, game, GALLERY_STEPS))(jax.random.key(0))
        animate(played, folder / "games" / f"{name}.gif")
        _, agents, observation, actions, description = catalogue.facts(name)
        lines += [
            f"## `{name}`\n",
            f"{description.capitalize()}. {many(int(agents), 'agent')}; observation {observation}; "
            f"{actions} {'action' if actions == '1' else 'actions'}.\n",
            f"![{description}: random play](games/{name}.gif)\n",
            f"*`python -m games {name} --steps {GALLERY_STEPS} --gif {name}.gif`*\n",
        ]
    (folder / "games.md").write_text("\n".join(lines), encoding="utf-8")
    print(f"wrote {folder / 'games.md'}")
    return 0


if __name__ == "__main__":
    process.leave(main(sys.argv[1:]))
