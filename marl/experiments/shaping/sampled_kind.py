"""Shapers in games that are sampled step by step: counts, films, and learners alone."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from configs.specs import first_line
from games import Game
from games.toolbox.drawing import save_gif
from marl.core.learn import History, check_update
from marl.core.learner import Learner
from marl.experiments.shaping import figures
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.evaluation_result import ALONE, IN_PLACE, EvaluationResult, controls_of
from marl.experiments.shaping.initialisation import make_start
from marl.experiments.shaping.memory_check import check_results, check_training
from marl.shapers.registry import SAMPLED
from marl.shapers.sampled import Policy
from marl.shapers.sampled_ppo import sampled_ppo
from marl.shapers.trial import play_sampled, shaping_trial
from meta import Evolved, evolve
from meta.loop import Report, Store
from meta.run_keys import RunBranch
from meta.runs.atomic_files import save_whole
from meta.runs.formatting import many
from meta.statistics import mean_and_error, with_error
from meta.xla.memory import bytes_of, check_bytes

MEASURED_STEPS = 2.5e6  # of a generation, or a little more
SHARES = {"own_coin": "own_coin_share", "cooperation": "cooperation"}  # in a summary, of what a game counts
MOMENTS = ("early", "middle", "late")  # episodes in the film


class SampledKind:
    """`GameKind` of a game that is sampled; its methods are described there."""

    unit = "steps"
    at_once = 32
    seconds_to_draw = 10.0
    costs = 1.0, 1.0  # what is measured is the same game and the same learners

    def __init__(self, config: ShapingConfig):
        self.config, self.measured = config, f"{config.environment}, with {config.opponent}"
        self.fresh = 3.0 + len(config.unseen)  # both controls; nothing is known of how much longer others take
        self.steps = config.episodes * config.episode_length * config.num_envs
        self.lengths: dict[str, Any] = {
            "num_episodes": config.episodes,
            "episode_length": config.episode_length,
            "num_envs": config.num_envs,
        }

    @cached_property
    def game(self) -> Game:
        """What is played."""
        return self.config.make_game()

    @cached_property
    def policy(self) -> Policy:
        """What is trained."""
        return self.config.make_shaper()

    def learners(self, spec: str | None = None, *, alone: bool = False) -> list[Learner]:
        """The players that learn, those of `opponent` if no other spec is given; alone in the shapers' seats too."""
        first = 0 if alone else self.config.num_shapers
        return [self.config.make_opponent(spec, seat) for seat in range(first, self.game.num_agents)]

    def check(self) -> None:
        config, game = self.config, self.game
        if not config.num_shapers < game.num_agents:
            raise ValueError(
                f"num_shapers: got {config.num_shapers}; {config.environment} has {game.num_agents} player(s), and one "
                "of them at least has to learn"
            )
        assert self.policy
        make_start(config.starting, sampled=True)
        assert self.learners(alone=True)
        seats = [(game.observation_space(a), game.action_space(a)) for a in game.agents[: config.num_shapers]]
        if any(str(seat) != str(seats[0]) for seat in seats):
            raise ValueError(
                f"num_shapers: got {config.num_shapers}; the shapers of {config.environment} would see or do different "
                "things, and they have one policy"
            )
        for spec in dict.fromkeys((config.opponent, *config.unseen)):
            self._check_opponent(spec)
        name, given = SAMPLED.read("shaper", config.shaper)
        averages = given.get("averaging", "averaging" in SAMPLED.settings(name))
        if config.meta_learner == "ppo" and config.meta_ppo.advantages == "coala" and averages:
            raise ValueError(
                f"meta_ppo.advantages: got coala with shaper {config.shaper}, in which an environment hears of the "
                "others within an episode; shaper(averaging=False) or the like is needed"
            )

    def _check_opponent(self, spec: str) -> None:
        """Raises ValueError for one that cannot learn from so many steps, such as one with minibatches."""
        random = [self.config.make_opponent("random", seat) for seat in range(self.config.num_shapers)]
        config, players = self.config, [*random, *self.learners(spec)]
        try:
            carry = check_update(self.game, players, steps_per_update=config.episode_length, num_envs=config.num_envs)
        except ValueError as error:
            raise ValueError(f"opponent: {spec}: {first_line(error)}") from None
        check_bytes("opponent", spec, bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, bytes_of(carry))
        if spec == config.opponent:
            check_training(config, self.policy.init, bytes_of(carry))
        counted = self.game.num_agents * config.episodes  # what is kept of a trial, in numbers: rewards, and counts
        check_results(config, 3 + len(config.unseen), 4 * counted)

    def train(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        screening: Report | None = None,
    ) -> Evolved:
        config, policy, opponents = self.config, self.policy, self.learners()
        key = keys if len(keys) > 1 else keys[0]
        if config.meta_learner == "ppo":

            def play(key: jax.Array, parameters: Any) -> History:
                return play_sampled(
                    key, self.game, policy, parameters, opponents, keep_trajectories=True, **self.lengths
                )

            number, ppo = config.num_shapers, config.meta_ppo
            found = sampled_ppo(play, policy, key, ppo, num_shapers=number, store=store, report=report)
        else:
            lengths = {"episode_length": config.episode_length, "num_envs": config.num_envs}
            trial = shaping_trial(self.game, policy, opponents, meta_steps=config.episodes, **lengths)
            # Several trainings one after the other, for a generation of one is wide enough and fills the memory.
            found = evolve(
                trial,
                policy.init,
                key,
                config.evolving,
                num_trials=config.trials,
                store=store,
                report=report,
                start=config.make_start(trial, policy.init, screening),
                together="run",
            )
        if key.ndim:
            return found
        return found._replace(parameters=jax.tree.map(lambda x: x[None], found.parameters))

    def init(self, key: jax.Array) -> Any:
        return self.policy.init(key)

    def groups(self) -> dict[str, Callable[[jax.Array, Any], EvaluationResult]]:
        number = self.config.num_shapers

        def against(learners: list[Learner]) -> Callable[[jax.Array, Any], EvaluationResult]:
            def trial(key: jax.Array, parameters: Any) -> EvaluationResult:
                history = play_sampled(key, self.game, self.policy, parameters, learners, **self.lengths)
                seats = jnp.stack(history.rewards)
                return EvaluationResult(seats[:number].mean(0), seats[number:].mean(0), history.infos)

            return trial

        specs = dict.fromkeys((self.config.opponent, *self.config.unseen))
        return {spec: against(self.learners(spec)) for spec in specs} | {ALONE: against(self.learners(alone=True))}

    def analyse(self, played: EvaluationResult) -> dict[str, Any]:
        found: dict[str, Any] = {
            "shaper_last_episode": mean_and_error(played.shaper[:, -1]),
            "opponent_last_episode": mean_and_error(played.opponent[:, -1]),
        }
        for counted, name in SHARES.items():
            if counted in played.more:
                found[name] = [mean_and_error(share) for share in share_of_trials(counted, played.more).T]
        return found

    def find(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        del number
        # Trial k of all groups has one key, from which much of the same is drawn: the samples are paired.
        gain = groups[self.config.opponent].shaper.mean(1) - groups[ALONE].shaper.mean(1)
        return {"gain_over_naive": mean_and_error(gain)}

    def summarize(self, found: dict[str, Any]) -> dict[str, Any]:
        sides = found["against"][self.config.opponent]
        return {"shaper_return": sides["shaper"], "opponent_return": sides["opponent"]}

    def about(self) -> dict[str, Any]:
        return {"environment": self.config.environment, "num_shapers": self.config.num_shapers}

    def agents(self, parameters: Any) -> dict[str, tuple[ShapingConfig, Any]]:
        return {"": (self.config, parameters)}

    def draw(self, folder: Path, groups: dict[str, EvaluationResult], first: dict[str, Any]) -> list[Path]:
        del first
        return figures.draw_counts(folder, groups, self.config.opponent, self.config.num_shapers)

    def animate(self, parameters: Any, path: Path) -> list[Path]:
        if type(self.game).render is Game.render:
            return []
        opponents = self.learners()

        @jax.jit
        def states(key: jax.Array, parameters: Any) -> Any:
            lengths = self.lengths | {"keep_trajectories": True}
            history = play_sampled(key, self.game, self.policy, parameters, opponents, **lengths)
            chosen = jnp.array([0, (self.config.episodes - 1) // 2, self.config.episodes - 1])
            return jax.tree.map(lambda x: x[chosen, :, 0], history.game_states)

        # A key that neither training nor evaluation draws from.
        played = states(jax.random.fold_in(jax.random.key(self.config.seed), RunBranch.FILM), parameters)
        films = [self.game.frames(jax.tree.map(lambda x, i=i: np.asarray(x[i]), played)) for i in range(len(MOMENTS))]
        height, width = films[0][0].shape[:2]
        along = int(width < 4 * height)  # next to each other, or strips one above the other
        gap = np.full((height, 12, 3) if along else (12, width, 3), 255, np.uint8)
        frames = [np.concatenate([a, gap, b, gap, c], along) for a, b, c in zip(*films, strict=True)]
        return [save_whole(path, partial(save_gif, frames, frames_per_second=4.0))]

    def header(self) -> dict[str, str]:
        config = self.config
        trial = f"{many(config.episodes, 'episode')} of {many(config.episode_length, 'step')} in "
        trial += f"{many(config.num_envs, 'environment')}: {many(self.steps, 'step')}"
        return {"game": config.environment, "trial": trial}

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        gain = summary["gain_over_naive"]
        apart = f", {gain['mean'] / gain['standard_error']:.1f} standard errors" if gain["standard_error"] else ""
        console.print(
            f"gain over the opponent's own kind in the shaper's place: {with_error(gain)}{apart}", highlight=False
        )
        for counted, share in SHARES.items():
            if share in summary["naive"]:
                table = Table(figures.COUNTED[counted], "shaper", "opponent", box=None)
                for rows, heading in ((summary["against"], ""), (controls_of(summary), IN_PLACE)):
                    if heading:
                        table.add_row(f"[bold]{heading}")
                    for name, found in rows.items():
                        table.add_row(textwrap.fill(name, 26), *(with_error(found[share][i]) for i in (0, -1)))
                console.print(table)

    def shortened(self, generations: int) -> ShapingConfig:
        """As many candidates as are played at once, in trials of so many episodes as fill `MEASURED_STEPS`."""
        config, evolution = self.config, self.config.evolution
        at_once = (evolution.chunk_size or evolution.population_size) * len(jax.local_devices())
        at_once = min(evolution.population_size, at_once + at_once % 2)  # candidates may come in pairs
        trials = config.trials_per_generation if config.meta_learner == "ppo" else at_once * config.trials
        episode = trials * config.episode_length * config.num_envs
        return dataclasses.replace(
            config,
            unseen=(),
            seeds=1,
            start="random",
            episodes=min(config.episodes, math.ceil(MEASURED_STEPS / episode)),
            evolution=dataclasses.replace(evolution, generations=generations, population_size=at_once),
            meta_ppo=dataclasses.replace(config.meta_ppo, iterations=generations),
        )


def share_of_trials(counted: str, counts: dict[str, np.ndarray]) -> np.ndarray:
    """How much of what each player took, or did where it met another, was of one kind over a trial.

    Args:
      counted: the kind, as of `figures.occasions`.
      counts: what the game counted, `[trials, episodes, players]`.

    Returns:
      `[trials, players]`; a half of nothing.
    """
    part, whole = (x.mean(1) for x in figures.occasions(counted, counts))
    return np.divide(part, whole, out=np.full_like(part, 0.5), where=whole > 0)
