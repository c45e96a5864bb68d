"""A table of all pairs of agents in both seats, kept in a directory; only new pairs are played."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from configs.specs import first_line
from games import InfinitelyRepeated
from marl.core.learn import check_update
from marl.core.learner import learns
from marl.experiments.crossplay.config import CrossplayConfig
from marl.experiments.crossplay.participants import (
    ALL,
    ALL_SAMPLED,
    Participant,
    digest_of,
    enter,
    ready,
    work_of_trainings,
)
from marl.experiments.crossplay.table import print_table, write_table
from marl.experiments.shaping.agents import Agent, check_spaces, make_agent, pair_program, seen_from, shaping_config
from marl.experiments.shaping.exact import ExactShaping
from marl.experiments.shaping.experiment import Shaping
from marl.experiments.shaping.runtime_estimate import SAMPLING
from marl.experiments.shaping.sampled import SampledShaping
from marl.experiments.shaping.sampled_pairs import Lengths, num_trainings, play_pair, sampled_shaping_config
from marl.learners.sampled.fixed import random
from marl.shapers import registry as shapers
from meta import RunDirectory
from meta.process import check_stop
from meta.runs import array_files
from meta.runs.formatting import duration, many, say
from meta.runs.progress import Line, Stages
from meta.statistics import mean_and_error
from meta.xla.memory import bytes_of, check_bytes

IMAGINING = {"pola_dice": 250.0}  # in sampled games, learners that imagine hundreds of episodes in each update
TRIALS_PER_CALL = 1024
PAIRS = "pairs.jsonl"  # in the run directory, one line for each cell that has been played


class Cell(NamedTuple):
    """One cell of the table."""

    row: int
    column: int
    digest: str  # of what is played, on which the draws depend
    known_by: str  # of all that its numbers depend on: the same, and what the agents' parameters are
    num_trials: int
    cost: float  # of a trial, in those of two learners that do not sample
    error_over: str  # what standard errors are over: trainings, or pairs of one training or of none
    num_trainings: int | None  # of the pair; None in a formula


class Lineup(NamedTuple):
    """The participants of a table, and its game."""

    config: CrossplayConfig
    game: Any
    participants: list[Participant]
    left_out: list[str]  # of `all`, with the reasons


def line_up(config: CrossplayConfig) -> Lineup:
    """The participants and the game of a config.

    Raises:
      ValueError: for an agent that there is not, or that cannot play this game.
    """
    for name in ("evaluation_trials", "sampled_evaluation_trials"):
        check_bytes(name, getattr(config, name), 64.0 * getattr(config, name))
    of_training = ("seed", "trials", "start", "evolution")
    game, training = config.make_game(), {name: getattr(config, name) for name in of_training}
    if game.num_agents != 2:
        raise ValueError(f"environment: {config.environment} has {game.num_agents} player(s); two are needed")

    def sampled(spec: str, seat: int) -> Agent | Shaping:
        environment = seen_from(config.environment, game, seat)
        if how := sampled_shaping_config(spec, environment, config.lengths, **training):
            shaping = SampledShaping(how)
            check_spaces(spec, how, game, seat)
            return shaping
        agent = make_agent(spec, game, seat, num_updates=config.meta_steps)
        return agent if seat else _checked(agent, game, config.lengths)  # steps and environments are the same in both

    def exact(spec: str, seat: int) -> Agent | Shaping:
        more = {name: getattr(config, name) for name in ("meta_steps", "hidden_units")}
        if how := shaping_config(spec, game, seat, **training, **more):
            return ExactShaping(how)
        return make_agent(spec, game, seat)

    kinds, sit = (ALL_SAMPLED, sampled) if config.environment else (ALL, exact)
    return Lineup(config, game, *enter(config.agents, kinds, sit))


def _checked(agent: Agent, game: Any, lengths: Lengths) -> Agent:
    """The agent of the first seat; raises ValueError if it cannot learn from so many steps, or holds too much."""
    players = [agent.learner(agent.parameters), random(game, 1)]
    try:
        carry = check_update(game, players, steps_per_update=lengths.episode_length, num_envs=lengths.num_envs)
    except ValueError as error:
        raise ValueError(f"{agent.name}: {first_line(error)}") from None
    check_bytes("agent", agent.name, bytes_of(carry.states))
    check_bytes("num_envs", lengths.num_envs, bytes_of(carry))
    return agent


def play_table(lineup: Lineup, run: RunDirectory, console: Console) -> list[dict[str, Any]]:
    """Trains and plays what is not in the directory yet, writes the table there and shows it; its cells, row by row."""
    config, game, participants, left_out = lineup
    for reason in left_out:
        say(console, f"left out: {reason}")
    pairs = (
        math.prod(config.lengths) * config.sampled_evaluation_trials if config.environment else config.evaluation_trials
    )
    pairs *= len(participants) ** 2 * (1 if config.environment else config.meta_steps)
    stages = Stages(console, work_of_trainings(participants, run) | {"all pairs": pairs})
    seats = [[ready(participant, player, run, stages) for participant in participants] for player in (0, 1)]
    stages.begin("all pairs")
    cells = _play_all(config, game, participants, seats, run, console)
    names = [participant.name for participant in participants]
    title = config.environment or game.payoffs.name
    title += f", the last {many(config.last_meta_steps, 'episode')}" if config.last_meta_steps else ""
    write_table(config, title, names, cells, run)
    print_table(console, title, names, cells, run)
    return cells


def _play_all(
    config: CrossplayConfig,
    game: Any,
    participants: Sequence[Participant],
    seats: Sequence[Sequence[Agent]],
    run: RunDirectory,
    console: Console,
) -> list[dict[str, Any]]:
    """All cells of the table, row by row; those in the directory are not played again."""
    cells = _cells(config, participants, seats)
    known = _read_known(run, console)
    to_play = sorted((cell for cell in cells if cell.known_by not in known), key=lambda cell: cell.cost)
    if to_play:
        say(console, f"{len(to_play)} of {len(cells)} pairs to play")
        # The smallest, because one program plays all: if it were wider, some of its pairs would not count.
        width = min(TRIALS_PER_CALL, *(cell.num_trials for cell in cells))
        if config.environment:
            play_cell = _play_sampled(config, game, seats)
        else:
            play_cell = _play_exact(config, game, seats, width, console)
        clock = _Clock(console, to_play, compiling=bool(config.environment))
        for cell in to_play:
            check_stop()
            # Each cell has its own draws, so that they do not depend on other participants.
            key = jax.random.fold_in(jax.random.key(config.seed), int(cell.digest[:8], 16))
            known[cell.known_by] = _statistics(play_cell(cell, key), cell)
            with (run.path / PAIRS).open("a", encoding="utf-8", newline="\n") as out:
                out.write(_line(cell.known_by, known[cell.known_by]))
            clock.done(cell, f"{participants[cell.row].name} against {participants[cell.column].name}")
    return [
        {"row": participants[cell.row].name, "column": participants[cell.column].name}
        | known[cell.known_by]
        | {name: getattr(cell, name) for name in ("num_trials", "error_over", "num_trainings")}
        for cell in cells
    ]


def _play_exact(
    config: CrossplayConfig, game: InfinitelyRepeated, seats: Sequence[Sequence[Agent]], width: int, console: Console
) -> Callable[[Cell, jax.Array], dict[str, np.ndarray]]:
    """(cell, key) -> both players' payoffs, `[2, trials]`, by one program for all cells."""
    parameters = [[agent.parameters for agent in agents] for agents in seats]
    keys = jax.random.split(jax.random.key(config.seed), width)
    started = time.perf_counter()
    program = pair_program(game, seats, meta_steps=config.meta_steps)
    compiled = program.lower(parameters, keys, jnp.int32(0), jnp.int32(0)).compile()
    say(console, f"one program for all of them, compiled in {time.perf_counter() - started:.1f} s")

    def play_cell(cell: Cell, key: jax.Array) -> dict[str, np.ndarray]:
        payoffs: list[np.ndarray] = []
        for first in range(0, cell.num_trials, width):
            keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(first, first + width))
            both = compiled(parameters, keys, jnp.int32(cell.row), jnp.int32(cell.column))
            payoffs.append(np.asarray(both, np.float64))
        return {"return": np.concatenate(payoffs, 1)[:, : cell.num_trials]}

    return play_cell


def _play_sampled(
    config: CrossplayConfig, game: Any, seats: Sequence[Sequence[Agent]]
) -> Callable[[Cell, jax.Array], dict[str, np.ndarray]]:
    """The same and what the game counts, by a program for each cell."""

    def play_cell(cell: Cell, key: jax.Array) -> dict[str, np.ndarray]:
        row, column = seats[0][cell.row], seats[1][cell.column]
        keys = jax.random.split(key, cell.num_trials)
        return play_pair(game, row, column, keys, config.lengths, last_meta_steps=config.last_meta_steps)

    return play_cell


def _cells(
    config: CrossplayConfig, participants: Sequence[Participant], seats: Sequence[Sequence[Agent]]
) -> list[Cell]:
    """Every ordered pair, row by row."""
    settings = [configs.plain(config)[name] for name in ("row_payoffs", "column_payoffs", "discount", "seed")]
    cells = []
    for (i, row), (j, column) in itertools.product(enumerate(participants), repeat=2):
        both = seats[0][i], seats[1][j]
        # A shaper that was trained against one of them is called after it, and draws nothing itself.
        alone = [one.name for one, agent in zip((row, column), both, strict=True) if agent.config is None]
        cost = sum(_cost(name, IMAGINING if config.environment else SAMPLING) for name in alone)
        count = config.sampled_evaluation_trials if cost or config.environment else config.evaluation_trials
        over, trainings, played = "pairs", None, []
        if config.environment:
            over, trainings = _error_over(both, count)
            count = -(-count // trainings) * trainings if over == "trainings" else count  # as many for each
            played = [config.environment, *config.lengths, over]
            if config.last_meta_steps:  # else the digest is that of tables without such a number
                played.append(f"last {config.last_meta_steps}")
        names = [row.identity, column.identity]
        digest = digest_of([config.game, *settings, config.meta_steps, count, *names, *played])
        learned = [agent.parameters for agent in both]
        known_by = digest_of([digest, *map(array_files.digest, learned)]) if jax.tree.leaves(learned) else digest
        cells.append(Cell(i, j, digest, known_by, count, 1.0 + cost, over, trainings))
    return cells


def _cost(name: str, dear: Mapping[str, float]) -> float:
    """The cost of an agent, if it is one of those that cost much more than others."""
    return next((cost for one, cost in dear.items() if re.search(rf"\b{one}\b", name)), 0.0)


def _error_over(agents: Sequence[Agent], num_trials: int) -> tuple[str, int]:
    """The samples of a pair's standard errors, in words, and the number of its trainings.

    Trainings of a shaper count, because learners against the same training share its luck. Without a trained shaper
    every pair is a training; without a learner none is.
    """
    if number := num_trainings(*agents):
        return ("trainings" if number > 1 else "pairs"), number
    # The update of an untrained shaper counts its turns, and does not learn.
    fixed = {*shapers.FORMULA.names(), *shapers.SAMPLED.names()}
    if not any(learns(one.learner(one.parameters)) and one.name.partition("(")[0] not in fixed for one in agents):
        return "pairs", 0
    return "trainings", num_trials


def _line(known_by: str, found: dict[str, Any]) -> str:
    """A line of what has been played, with a digest by which it is known to be whole."""
    kept = {"cell": known_by} | found
    return json.dumps(kept | {"digest": digest_of(kept)}) + "\n"


def _read_known(run: RunDirectory, console: Console) -> dict[str, dict[str, Any]]:
    """Reads the pairs that were played, by `Cell.known_by`; damaged lines are removed."""
    known: dict[str, dict[str, Any]] = {}
    file, damaged = run.path / PAIRS, 0
    for line in file.read_bytes().splitlines() if file.is_file() else []:
        try:
            found = json.loads(line)
            if found.pop("digest") != digest_of(found):
                raise ValueError
            known[found.pop("cell")] = found
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            damaged += 1
    if damaged:
        say(console, f"{file}: {damaged} of {len(known) + damaged} lines are damaged; their pairs are played again")
    run.write(PAIRS, "".join(_line(known_by, found) for known_by, found in known.items()))
    return known


def _statistics(played: dict[str, np.ndarray], cell: Cell) -> dict[str, float | None]:
    """Means, and their standard errors over what the cell says, from `[2, trials]`; None for what is no number."""
    found: dict[str, float | None] = {}
    for name, both in played.items():
        for side, values in zip(("row", "column"), both, strict=True):
            one = mean_and_error(
                values.reshape(-1, cell.num_trainings).mean(0) if cell.error_over == "trainings" else values
            )
            error = "standard_error" if name == "return" else f"{name}_standard_error"
            found |= {f"{side}_{name}": one["mean"], f"{side}_{error}": one["standard_error"]}
    return found


class _Clock:
    """The progress of the table and the time left.

    Where each cell is compiled for itself, that takes about as long as the whole first one, which is one of the
    smallest.
    """

    def __init__(self, console: Console, cells: Sequence[Cell], *, compiling: bool):
        self._console, self._total, self._done, self._count = console, len(cells), 0.0, 0
        self._line = Line(console)
        self._cost = sum(cell.cost * cell.num_trials for cell in cells)
        self._slow = sum(cell.cost > 1 for cell in cells)
        self._compiling, self._to_compile = compiling, 0.0
        self._started = time.perf_counter()

    def done(self, cell: Cell, words: str) -> None:
        """One more cell has been played."""
        self._done, self._count, now = self._done + cell.cost * cell.num_trials, self._count + 1, time.perf_counter()
        if self._compiling and self._count == 1:
            self._to_compile = now - self._started
        playing = max(now - self._started - self._count * self._to_compile, 0.0)
        left = playing * (self._cost - self._done) / self._done + (self._total - self._count) * self._to_compile
        if self._count == 1:
            slow = f", {self._slow} of them with a learner that takes most of it" if self._slow else ""
            say(self._console, f"{many(self._total, 'pair')} will take about {duration(left)}{slow}")
        else:
            share = self._count / self._total
            self._line.show(share, f"pair {self._count}/{self._total}  {words}  {duration(left)} left")
        if self._count == self._total:
            self._line.end()
