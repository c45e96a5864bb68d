"""Agents of a pair: a learner by its name, or a trained shaper from its file; and one program for all pairs."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import configs
from configs import shown
from configs.specs import change
from games import Game, InfinitelyRepeated, MatrixGame
from marl.core.learner import Learner
from marl.experiments.shaping.config import ExactShapingConfig, ShapingConfig
from marl.learners.exact.learner_switch import switch
from marl.learners.exact.trained import game_metadata
from marl.learners.registry import FORMULA, SAMPLED, make_learner
from marl.shapers.registry import FORMULA as SHAPERS
from marl.shapers.registry import drawn
from marl.shapers.self_play import annealing
from marl.shapers.trial import play
from marl.trained.catalogue import PREFIX, located
from meta import scalarize
from meta.loop import compiler_options
from meta.runs import array_files
from meta.runs.directory import naming_imports
from meta.runs.formatting import many

AGENT_FILE = "agent.safetensors"  # of a shaper


class Agent(NamedTuple):
    """A player that can be put into a program: what varies between programs' calls is in `parameters`."""

    name: str
    learner: Callable[[Any], Learner]  # (parameters) -> learner
    parameters: Any = ()  # of what was trained; nothing for the others
    config: ShapingConfig | None = None  # how a shaper was trained
    game: Game | None = None  # in which a learner was trained

    def __repr__(self) -> str:
        """One line, without the numbers."""
        return f"Agent({self.name!r}, {size_in_words(self.parameters)})"


def size_in_words(parameters: Any) -> str:
    """The number of parameters, such as `1,234 parameters`."""
    return many(sum(int(np.size(x)) for x in jax.tree.leaves(parameters)), "parameter")


def make_agent(spec: str, game: InfinitelyRepeated | Game, seat: int, *, num_updates: int | None = None) -> Agent:
    """An agent from the spec of an opponent, as in `make_learner`, or from the file or run of a trained shaper.

    Args:
      spec: a name, a name with settings, a population, five probabilities, or a path.
      game: what is played.
      seat: its number among the game's agents.
      num_updates: as of `make_learner`.

    Raises:
      ValueError: if there is no such agent, or if it was trained for another game or for the other seat, or in sampled
        games sees or does something else in this one; one line.
    """
    if not is_path(spec):

        def make(parameters: Any = ()) -> Learner:
            del parameters
            return make_learner(spec, game, seat, num_updates=num_updates, field="agent")

        make()  # so that what does not fit is said now
        return Agent(spec, make)
    agent = load_shaper(spec)
    assert agent.config is not None
    if not isinstance(game, InfinitelyRepeated):
        check_spaces(spec, agent.config, game, seat)
    elif agent.config.is_sampled or game_metadata(agent.config.make_game()) != game_metadata(as_row(game, seat)):
        where = "" if game == as_row(game, 1) else f" in the {('row', 'column')[seat]}'s seat"
        raise ValueError(f"agent: got {spec!r}, trained in another game than {_describe(game)}{where}")
    return agent


def check_spaces(spec: str, config: ShapingConfig, game: Game, seat: int) -> None:
    """Raises ValueError for a shaper whose training was of other observations, actions or the other seat; one line."""
    if isinstance(config, ExactShapingConfig):
        raise ValueError(f"agent: got {spec!r}, trained in {config.game}; one of a sampled game is needed")
    trained = config.make_game()
    check_same_spaces(spec, trained, game, seat)
    before, paid = (getattr(one, "payoffs", None) for one in (trained, game))
    if before is not None and paid is not None and game.num_agents == 2:
        own, others = (paid, _of_the_other(paid))[:: -1 if seat else 1]
        if np.array_equal(before, others) and not np.array_equal(own, others):
            raise ValueError(f"agent: got {spec!r}, trained in the other seat of this game; the same one is needed")


def check_same_spaces(spec: str, trained: Game, game: Game, seat: int) -> None:
    """Raises ValueError if the first seat of the training saw or did something else than this seat; one line."""
    there, here = (
        str((one.observation_space(name), one.action_space(name)))
        for one, name in ((trained, trained.agents[0]), (game, game.agents[seat]))
    )
    if there != here:
        raise ValueError(f"agent: got {spec!r}, which saw and did {there} in its training; {here} is needed")


def seen_from(environment: str, game: Game, seat: int) -> str:
    """The environment of two players in which the first has the payoffs that this seat has here, by its spec."""
    paid = getattr(game, "payoffs", None)
    if not seat or paid is None or np.array_equal(paid, _of_the_other(paid)):
        return environment
    return change(environment, payoffs=_of_the_other(paid).tolist())


def _of_the_other(payoffs: Any) -> np.ndarray:
    """A table `[actions of the first, of the second, 2]` as seen by a second player that acts as the first."""
    return np.swapaxes(payoffs, 0, 1)[..., ::-1]


def is_path(spec: str) -> bool:
    """True if a spec means a file, a directory or `hub:NAME`, and no name; write `./name` for a directory so named."""
    if spec in FORMULA or spec in SAMPLED:
        return False
    if spec.startswith(PREFIX):
        return True
    unquoted = re.sub(r"""(['"]).*?\1""", "", spec)  # a setting may be a path
    return os.sep in unquoted or spec.endswith(".safetensors") or os.path.exists(spec)


def as_row(game: InfinitelyRepeated, seat: int) -> InfinitelyRepeated:
    """The game as seen by a player in this seat that acts as the row player, as shapers do in training."""
    return InfinitelyRepeated(MatrixGame.of(game.payoffs.name, *game.payoffs.seen_by(seat)), game.discount)


def _describe(game: InfinitelyRepeated) -> str:
    payoffs = game.payoffs
    return f"{payoffs.name} with payoffs {payoffs.row_payoffs} and {payoffs.column_payoffs}, discount {game.discount}"


def save_agent(path: Path, config: ShapingConfig, parameters: Any) -> None:
    """Writes a trained shaper: its parameters as arrays by name, its config as data beside them.

    The file appears whole or not at all, in place of an older one.

    Args:
      path: the file.
      config: of the training.
      parameters: of the shaper, a pytree; with `config.seeds` above 1 those of all trainings, `[seeds]` first.
    """
    metadata = {"method": "agent", "config": configs.plain(config)}
    if isinstance(config, ExactShapingConfig):
        metadata["game"] = game_metadata(config.make_game())
    array_files.replace_arrays(path, parameters, metadata)


def load_shaper(path: Path | str) -> Agent:
    """A trained shaper from its file, or from the directory of the run that trained it.

    Where several seeds were trained, the agent is one of them, drawn evenly for each trial.

    Raises:
      ValueError: if the file is missing, damaged or none of an agent; one line that names it.
    """
    given, path = str(path), located(path)
    file = Path(path) / AGENT_FILE if os.path.isdir(path) else Path(path)
    if not os.path.isfile(file):
        got = shown(given)
        raise ValueError(f"agent: got {got}; a name, or the file or the run's directory of a trained shaper, is needed")
    arrays, metadata = array_files.load_arrays(file)
    if metadata.get("method") != "agent":
        raise ValueError(f"agent: got {given!r}; the file of a trained shaper is needed")
    with naming_imports(path):
        config = configs.build(ShapingConfig, metadata.get("config"), str(file))
        shaper = config.make_shaper()
    several = () if config.seeds == 1 else (config.seeds,)
    like = jax.eval_shape(shaper.init, jax.random.key(0))
    shapes = tuple((*several, *x.shape) for x in jax.tree.leaves(like))
    parameters = jax.tree.map(jnp.asarray, array_files.as_tree(arrays, like, str(file), several))
    make = partial(_any_seed, shaper.learner, config.seeds, shapes) if several else shaper.learner
    return Agent(given, make, parameters, config)


def _any_seed(
    make: Callable[[Any], Learner], seeds: int, shapes: tuple[tuple[int, ...], ...], parameters: Any
) -> Learner:
    if tuple(jnp.shape(x) for x in jax.tree.leaves(parameters)) != shapes:
        raise ValueError(
            f"parameters: got those of another shape; those of all {seeds} trainings are needed. "
            "marl.load_agent(path, number=0) is the first alone"
        )

    def one(which: jax.Array) -> Learner:
        return make(jax.tree.map(lambda x: x[which], parameters))

    # Only the memory decides what is reset.
    return drawn(lambda key: jax.random.randint(key, (), 0, seeds), one, one(jnp.int32(0)).reset_memory)


def of_training(agent: Agent, number: int) -> Agent:
    """One training of a shaper that was trained several times, counted around; another agent as it is."""
    if agent.config is None or agent.config.seeds == 1:
        return agent
    config = dataclasses.replace(agent.config, seed=agent.config.seed + number % agent.config.seeds, seeds=1)
    parameters = jax.tree.map(lambda x: x[number % len(x)], agent.parameters)
    return Agent(agent.name, config.make_shaper().learner, parameters, config)


def shaping_config(spec: str, game: InfinitelyRepeated, seat: int, **settings: Any) -> ExactShapingConfig | None:
    """The config of a shaper by its name: `mfos` against a naive learner, `mfos:lola` against lola.

    Args:
      spec: of an agent.
      game: what is played.
      seat: the seat; the training is of the row, in the game as it looks from there.
      **settings: further fields of `ExactShapingConfig`.

    Returns:
      The config; None for an agent that needs no training.

    Raises:
      ValueError: for an opponent that does not exist, or that is trained at the same time.
    """
    shaper, _, opponent = (part.strip() for part in spec.partition(":"))
    if shaper.partition("(")[0] not in SHAPERS or is_path(spec):
        return None
    if annealing(opponent) is not None:
        raise ValueError(f"{spec}: self_play trains two at once; python -m marl.mfos does, and writes a file of each")
    seen = as_row(game, seat).payoffs
    payoffs = {
        "row_payoffs": tuple(map(float, seen.row_payoffs)),
        "column_payoffs": tuple(map(float, seen.column_payoffs)),
    }
    fields: dict[str, Any] = {"game": seen.name, **payoffs, "discount": game.discount}
    return ExactShapingConfig(**fields, shaper=shaper, opponent=opponent or "naive", **settings)


def pair_program(game: InfinitelyRepeated, seats: Sequence[Sequence[Agent]], *, meta_steps: int) -> Any:
    """Every ordered pair as one program, with the numbers of row and column as arguments.

    Args:
      game: what is played.
      seats: the agents of the row's seat, and those of the column's.
      meta_steps: steps that are scored; one more comes first, in which learners learn already.

    Returns:
      The jitted `(parameters, keys [trials], row, column) -> (row's, column's) mean payoffs [trials]`, with the
      parameters of all agents as `[[agent.parameters for agent in seat] for seat in seats]`.
    """

    def trial(parameters: Any, key: jax.Array, row: jax.Array, column: jax.Array) -> tuple[jax.Array, jax.Array]:
        players = [
            switch([agent.learner(p) for agent, p in zip(agents, theirs, strict=True)], which, game)
            for agents, theirs, which in zip(seats, parameters, (row, column), strict=True)
        ]
        rewards = play(key, game, players[0], players[1], meta_steps=meta_steps).rewards
        return rewards[0][1:].mean(), rewards[1][1:].mean()

    def program(parameters: Any, keys: jax.Array, row: jax.Array, column: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(scalarize(trial), (None, 0, None, None))(parameters, keys, row, column)

    return jax.jit(program, compiler_options=compiler_options())
