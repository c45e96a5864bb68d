"""The coin game: cooperation of learners with their own kind, and payoffs against others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

import configs
from games import CoinGame
from marl.core.learn import Carry, learn, learning
from marl.core.learner import Learner, frozen
from marl.experiments.reproduce import figures
from marl.experiments.shaping.figures import draw_crossplay
from marl.experiments.shaping.sampled import share_of_trials
from marl.learners.registry import make_learner
from meta import RunDirectory
from meta.loop import Iterated, Report, Store, compiler_options, iterate
from meta.run_keys import RunBranch, of_seeds
from meta.runs.formatting import say
from meta.runs.jobs import Job, open_run
from meta.runs.progress import Progress
from meta.runs.reports.claims import Claim, Section, number, table
from meta.statistics import mean_and_error, rounded, standard_error, with_error
from meta.xla.devices import spread
from meta.xla.memory import bytes_of, check_bytes

_NETWORK = "network='recurrent', hidden=[32], memory=16"
_STEPS = f"{_NETWORK}, learning_rate=0.005, epochs=2, minibatches=2, entropy_coefficient=0.02"
LEARNERS = {
    "advantage alignment": f"proximal_advantage_alignment({_STEPS}, alignment=2.0)",
    "LOQA": f"loqa({_NETWORK}, learning_rate=0.003, value_learning_rate=0.01, entropy_coefficient=0.05)",
    "POLA": "pola_dice",
    "PPO": f"ppo({_STEPS}, discount=0.96)",
}
SHAPING = ("advantage alignment", "LOQA")  # of which cooperation is claimed
SELFISH = "PPO"
FAST = ("advantage alignment", SELFISH)  # of a smoke run: each takes long to compile
FIXED = {"always cooperates": "always_cooperate", "always defects": "always_defect"}
SHARE, SELFISH_SHARE = 0.8, 0.6  # of own coins: what cooperates, and what does not; indifference is a half
EPISODES, ENVS = 8, 64  # of each meeting of two trainings
MEASURED = 3  # updates


@dataclasses.dataclass(frozen=True)
class SelfPlay(configs.CommandConfig):
    """Settings of a training of a learner with another of its kind."""

    learner: str
    updates: int
    num_envs: int
    episode_length: int
    seeds: int
    seed: int

    @property
    def steps_of_an_update(self) -> int:
        """Steps of all environments together, an episode each."""
        return self.num_envs * self.episode_length

    @property
    def game(self) -> CoinGame:
        """The game."""
        return CoinGame(episode_length=self.episode_length)

    def make_learners(self) -> list[Learner]:
        """One for each seat."""
        return [make_learner(self.learner, self.game, seat, num_updates=self.updates) for seat in range(2)]


class Meetings(NamedTuple):
    """Payoffs of the trainings of two players against each other, `[row's trainings, column's trainings, 2]`."""

    reward: np.ndarray  # in a step
    own: np.ndarray  # share of own coins in what a player took


def train_pair(config: SelfPlay, *, store: Store | None = None, report: Report | None = None) -> Iterated:
    """Trains two learners with each other, every seed in one program; the last state is a `Carry` `[seeds, ...]`."""
    begin, update = learning(
        config.game, config.make_learners(), steps_per_update=config.episode_length, num_envs=config.num_envs
    )

    def one(key: jax.Array, number: jax.Array, carry: Carry) -> tuple[Carry, dict[str, jax.Array]]:
        carry, found = update(carry, jax.random.fold_in(key, number))
        coins = {name: found.infos[name] for name in ("own_coin", "other_coin")}
        return carry, {"reward": jnp.stack(found.rewards)} | coins

    every = spread(one, config.seeds)

    def step(keys: jax.Array, number: jax.Array, carry: Carry) -> tuple[Carry, dict[str, jax.Array]]:
        return every(keys, jnp.broadcast_to(number, (config.seeds,)), carry)

    carry, keys = jax.jit(spread(begin, config.seeds))(of_seeds(config.seed, config.seeds))
    return iterate(step, carry, keys, config.updates, store=store, report=report, name="update")


def make_configs(*, fast: bool, seed: int, **sizes: int) -> dict[str, SelfPlay]:
    """The trainings by name."""
    names = FAST if fast else LEARNERS
    return {name: SelfPlay(LEARNERS[name], seed=seed, **sizes) for name in names}


def check(configs: dict[str, SelfPlay]) -> None:
    """Raises `TooLarge` if what goes on from update to update is more than the memory; nothing is compiled."""
    for config in configs.values():
        begin, _ = learning(config.game, config.make_learners(), num_envs=config.num_envs)
        carry, _ = jax.eval_shape(begin, jax.random.key(0))
        check_bytes("num_envs", config.num_envs, config.seeds * bytes_of(carry))


def make_jobs(folder: Path, configs: dict[str, SelfPlay], console: Console) -> dict[str, Job]:
    """Jobs that train the learners, by name, each in a directory of its own."""
    jobs = {}
    for name, config in configs.items():
        path = folder / name.replace(" ", "-")
        jobs[name] = Job(path, config, 0.0, _job(path, config, console))
    return jobs


def measured(job: Job, console: Console) -> Job:
    """The same with the seconds that it will take on this machine, from its first updates."""
    say(console, f"measuring the speed of this machine: {job.path.name}")
    short = train_pair(dataclasses.replace(job.config, updates=MEASURED))
    return job._replace(seconds=short.seconds_to_compile + short.seconds_to_run / MEASURED * job.config.updates)


def _job(path: Path, config: SelfPlay, console: Console) -> Callable[[], None]:
    def run() -> None:
        store = open_run(path, config, console)
        steps = config.seeds * config.steps_of_an_update
        with Progress(console, config.updates, steps, "environment steps", _describe, name="update") as progress:
            trained = train_pair(config, store=store, report=progress)
        last = {name: x[-max(1, config.updates // 10) :] for name, x in trained.metrics.items()}
        summary: dict[str, Any] = dataclasses.asdict(config)
        summary |= {"reward": last["reward"].mean((0, 1)).tolist(), "own_coin_share": _share(last).mean(0).tolist()}
        store.write_summary(summary | {"seconds": trained.seconds_to_run})

    return run


def _describe(metrics: dict[str, np.ndarray]) -> str:
    return f"reward {metrics['reward'].mean():.3f}  own coins {_share(metrics).mean():.2f}"


def _share(metrics: dict[str, np.ndarray]) -> np.ndarray:
    """Share of own coins, `[seeds, 2]`, over some updates: metrics are `[updates, seeds, 2]`."""
    counts = {name: np.swapaxes(metrics[name], 0, 1) for name in ("own_coin", "other_coin")}
    return share_of_trials("own_coin", counts)


def play_all(
    game: CoinGame, players: tuple[Learner, Learner], states: tuple[Any, Any], key: jax.Array, seeds: int
) -> Meetings:
    """Every training of the first against every training of the second, as they are, without learning.

    Args:
      game: what is played.
      players: one for each seat.
      states: of each, `[seeds, ...]`.
      key: what is drawn depends on it.
      seeds: how many trainings of each there are.
    """
    length = EPISODES * int(game.episode_length)

    def one(key: jax.Array, own: Any, other: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        seated = [frozen(*player) for player in zip(players, (own, other), strict=True)]
        found = learn(key, game, seated, num_updates=1, steps_per_update=length, num_envs=ENVS)
        return jnp.stack(found.rewards, -1)[0], {name: found.infos[name] for name in ("own_coin", "other_coin")}

    i, j = (x.ravel() for x in np.meshgrid(*[np.arange(seeds)] * 2, indexing="ij"))
    first, second = (jax.tree.map(lambda x, at=at: x[at], state) for state, at in zip(states, (i, j), strict=True))
    play = jax.jit(jax.vmap(one), compiler_options=compiler_options())
    reward, coins = play(jax.random.split(key, seeds**2), first, second)
    share = share_of_trials("own_coin", {name: np.asarray(x) for name, x in coins.items()})
    return Meetings(*(np.asarray(x, np.float64).reshape(seeds, seeds, 2) for x in (reward, share)))


def head_to_head(jobs: dict[str, Job], console: Console, *, seed: int) -> tuple[dict[str, Any], dict[str, Iterated]]:
    """All against all: `{row: {column: Meetings}}`, and the trainings, which have to be done."""
    config: SelfPlay = next(iter(jobs.values())).config
    trained = {
        name: train_pair(job.config, store=open_run(job.path, job.config, console)) for name, job in jobs.items()
    }
    players = {name: job.config.make_learners() for name, job in jobs.items()}
    players |= {name: [make_learner(spec, config.game, seat) for seat in range(2)] for name, spec in FIXED.items()}
    states: dict[str, tuple[Any, ...]] = {name: one.state.states for name, one in trained.items()}
    states |= dict.fromkeys(FIXED, ((), ()))
    names, key = list(players), jax.random.fold_in(jax.random.key(seed), RunBranch.EVALUATION)
    found: dict[str, dict[str, Meetings]] = {name: {} for name in names}
    for row in range(len(names)):
        say(console, f"{names[row]} against {'the others' if row else 'all'}")
        for column in range(row, len(names)):
            of = names[row], names[column]
            draw = jax.random.fold_in(jax.random.fold_in(key, row), column)
            both, now = ((seats[of[0]][0], seats[of[1]][1]) for seats in (players, states))
            meetings = play_all(config.game, both, now, draw, config.seeds)
            found[of[0]][of[1]] = meetings
            if row != column:  # the game is the same from both seats
                found[of[1]][of[0]] = Meetings(*(np.swapaxes(x, 0, 1)[..., ::-1] for x in meetings))
    return found, trained


def between(values: np.ndarray, *, same: bool) -> dict[str, float | None]:
    """Mean and standard error of `[row's trainings, column's trainings]`, over the trainings of both.

    Args:
      values: of each meeting.
      same: whether both are the same trainings, whose partners are left out. A training's two learners are not
        independent, so that the error is the jackknife's, which leaves out a training at a time. Of two trainings it
        is the difference of their two pairs.
    """
    if not same:
        over_columns, over_rows = (mean_and_error(values.mean(axis))["standard_error"] or 0.0 for axis in (0, 1))
        return {"mean": float(values.mean()), "standard_error": math.hypot(over_columns, over_rows)}
    number = len(values)
    apart, every = ~np.eye(number, dtype=bool), np.arange(number)
    without = [values[apart & (every != k) & (every != k)[:, None]] for k in range(number)]
    if number > 2:
        error = (number - 1) * standard_error(np.array([x.mean() for x in without]))
    else:
        error = float(np.ptp(values[apart]))
    return {"mean": float(values[apart].mean()), "standard_error": error}


def sections(run: RunDirectory, found: dict[str, Any], trained: dict[str, Iterated], config: SelfPlay) -> list[Section]:
    """The report: cooperation with one's kind, exploitation, and payoffs of all pairs; draws the figures."""
    names, folder = list(found), run.figures
    partners = {name: _of_partners(found[name][name]) for name in trained}
    strangers = {
        kind: {row: {column: between(getattr(one, kind)[..., 0], same=row == column) for column, one in of.items()}
               for row, of in found.items()}
        for kind in Meetings._fields
    }  # fmt: skip
    draws = {"reward": ("reward in a step", "rewards.png"), "own": ("share of own coins", "own_coins.png")}
    pictures = []
    for kind, (label, file) in draws.items():
        means, errors = (
            np.array([[strangers[kind][row][column][part] for column in names] for row in names], np.float64)
            for part in ("mean", "standard_error")
        )
        caption = f"± standard error over {config.seeds} trainings of both"
        words = f"row's {label}"
        drawn = draw_crossplay(folder, "coin game", names, means, errors, label=words, caption=caption, file=file)
        pictures.append((f"The row's {label}", f"figures/{drawn.name}"))
    curves = figures.draw_coin_curves(
        folder,
        {name: _shares_of_training(one.metrics) for name, one in trained.items()},
        config.steps_of_an_update,
        config.updates,
    )
    text = (
        f"One coin at a time on three by three cells, episodes of {config.episode_length} steps: each learner was "
        f"trained with another of its kind, {config.seeds} times, in {config.updates:,} updates from {config.num_envs} "
        "environments. Standard errors are between trainings. A player that takes every coin has half of its own; one "
        "that cooperates takes its own alone. POLA's policy is a table that is linear in what it sees, which does not "
        "give the way to a coin from every cell."
    )
    strangers_text = (
        "The players as they were after their training, which do not learn any more: every training of the row against "
        f"every training of the column, {EPISODES * ENVS} episodes each; of one kind only those that were not trained "
        "with each other. Standard errors are over the trainings of both."
    )
    rows = [[f"**{name}**", *(with_error(strangers["reward"][name][column], 2) for column in names)] for name in names]
    own = [[f"**{name}**", *(with_error(strangers["own"][name][column], 2) for column in names)] for name in names]
    own_shares = ", ".join(f"{rounded(of['own']['mean'])} for {name}" for name, of in partners.items())
    return [
        Section(
            "With their kind",
            text,
            _claims(partners, strangers["reward"]),
            (),
            [("Own coins", f"figures/{curves.name}")],
            f"The share of own coins among those that a learner takes: {own_shares}; without a preference it is 0.50.",
        ),
        Section(
            "All against all",
            strangers_text,
            (),
            [table(["reward in a step", *names], rows), table(["own coins", *names], own)],
            pictures,
            f"Against one that always defects, in a step: {_against_defection(strangers['reward'])}.",
        ),
    ]


def _against_defection(rewards: dict[str, Any]) -> str:
    return ", ".join(f"{rounded(of['always defects']['mean'], 3)} for {name}" for name, of in rewards.items())


def _of_partners(meetings: Meetings) -> dict[str, dict[str, float | None]]:
    """Statistics of pairs that were trained with each other, over the trainings."""
    return {kind: mean_and_error(np.diagonal(x).mean(0)) for kind, x in meetings._asdict().items()}


def _shares_of_training(metrics: dict[str, np.ndarray]) -> np.ndarray:
    """The share of own coins in at most forty equal parts of a training, `[parts, seeds]`."""
    length = len(metrics["reward"])
    parts = np.array_split(np.arange(length), min(40, length))
    return np.array(
        [_share({name: metrics[name][part] for name in ("own_coin", "other_coin")}).mean(-1) for part in parts]
    )


def _claims(partners: dict[str, Any], rewards: dict[str, Any]) -> list[Claim]:
    claims = []
    for name in partners:
        share, income = partners[name]["own"], partners[name]["reward"]
        least, most = SHARE if name in SHAPING else None, SELFISH_SHARE if name == SELFISH else None
        words = f"{name}: share of own coins"
        claims.append(Claim(words, share["mean"], share["standard_error"], least=least, most=most))
        claims.append(Claim(f"{name}: reward in a step", income["mean"], income["standard_error"]))
    for name in (name for name in SHAPING if name in partners):
        got, floor = (rewards[row]["always defects"] for row in (name, SELFISH))
        words = f"{name} against one that always defects"
        sucker = number(rewards["always cooperates"]["always defects"]["mean"])
        comment = f"what {SELFISH} gets of it; one that always cooperates gets {sucker}"
        claims.append(Claim(words, got["mean"], got["standard_error"], least=floor["mean"], comment=comment))
    return claims
