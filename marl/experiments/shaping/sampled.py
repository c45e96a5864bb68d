"""Shapers in sampled games: counts, films, and the gain over the opponent's own kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from configs.specs import first_line
from games import Game, Rollout, social_metrics
from games.toolbox.drawing import save_gif
from marl.core.learn import History, check_update
from marl.core.learner import Learner
from marl.experiments.shaping import figures
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.evaluation import OWN_KIND, UNTRAINED, EvaluationResult, Trial
from marl.experiments.shaping.experiment import Results, Shaping, add_rows
from marl.shapers.imitation import imitate
from marl.shapers.registry import SAMPLED
from marl.shapers.sampled_ppo import sampled_ppo
from marl.shapers.trial import play_sampled, shaping_trial
from meta import Evolved, Outcome, evolve
from meta.atomic_files import save_whole
from meta.loop import Report, Store
from meta.run_keys import RunBranch
from meta.runs.formatting import amount, duration, many, say
from meta.statistics import mean_and_error, rounded, with_error
from meta.xla.memory import bytes_of, check_bytes

LONG = 2e9  # environment steps of a run that is measured beforehand, because its first generation may take an hour
SHARES = {"own_coin": "own_coin_share", "cooperation": "cooperation"}  # in a summary, of what a game counts
SOCIAL = ("efficiency", "equality", "sustainability", "peace")  # in a summary, of more than two players
MOMENTS = ("early", "middle", "late")  # episodes in the film


class SampledShaping(Shaping):
    """A shaper in a game that is sampled.

    Args:
      config: the experiment's settings.

    Raises:
      ValueError: for an opponent, shaper or start that does not exist or does not fit the game, or for sizes that no
        memory can hold.
    """

    unit, counted = "steps", "environment_steps"
    at_once = 32
    payoff = "average payoff per step"
    time = "episode"
    config: SampledShapingConfig

    def __init__(self, config: SampledShapingConfig):
        game, number = config.make_game(), config.num_shapers
        self.config, self.game, self.num_shapers = config, game, number
        self.lengths: dict[str, Any] = {
            "meta_steps": config.meta_steps,
            "episode_length": config.episode_length,
            "num_envs": config.num_envs,
        }
        if not number < game.num_agents:
            raise ValueError(
                f"num_shapers: got {number}; {config.environment} has {game.num_agents} player(s), and one of them at "
                "least has to learn"
            )
        self.shaper = config.make_shaper()
        self.start = config.make_start()
        self.own_kind = [config.make_opponent(seat=seat) for seat in range(game.num_agents)]
        seats = [(game.observation_space(a), game.action_space(a)) for a in game.agents[:number]]
        if any(str(seat) != str(seats[0]) for seat in seats):
            raise ValueError(
                f"num_shapers: got {number}; the shapers of {config.environment} would see or do different things, and "
                "they have one policy"
            )
        opponents = {
            spec: [config.make_opponent(spec, seat) for seat in range(number, game.num_agents)]
            for spec in dict.fromkeys((config.opponent, *config.unseen))
        }
        carries = {spec: self._check_opponent(spec, learners) for spec, learners in opponents.items()}
        self.opponents = opponents[config.opponent]
        self.trials = {spec: self._against(learners) for spec, learners in opponents.items()}
        self.trials |= {OWN_KIND: self._against(self.own_kind), UNTRAINED: self.trials[config.opponent]}
        # A result has a number of each player and episode at least.
        self.check_memory(bytes_of(carries[config.opponent]), 4 * game.num_agents * config.meta_steps)
        if imitation := self.start.imitation:
            steps = imitation.trials * min(imitation.episodes, config.meta_steps) * config.episode_length
            seen = bytes_of(jax.eval_shape(game.observation_space(game.agents[0]).sample, jax.random.key(0)))
            check_bytes("start", config.starting, config.seeds * steps * config.num_envs * number * seen)
        name, given = SAMPLED.read("shaper", config.shaper)
        averages = given.get("averaging", "averaging" in SAMPLED.settings(name)) or name == "counts"
        if config.meta_learner == "ppo" and config.meta_ppo.advantages == "coala" and averages:
            raise ValueError(
                f"meta_ppo.advantages: got coala with shaper {config.shaper}, in which an environment hears of the "
                "others within an episode; shaper(averaging=False) or the like is needed"
            )

    def _check_opponent(self, spec: str, learners: list[Learner]) -> Any:
        """Shapes of a learning step; raises ValueError for a learner that cannot learn from so many steps."""
        config, game = self.config, self.game
        random = [config.make_opponent("random", seat) for seat in range(self.num_shapers)]
        try:
            carry = check_update(
                game, [*random, *learners], steps_per_update=config.episode_length, num_envs=config.num_envs
            )
        except ValueError as error:
            raise ValueError(f"opponent: {spec}: {first_line(error)}") from None
        check_bytes("opponent", spec, bytes_of(carry.states))
        check_bytes("num_envs", config.num_envs, bytes_of(carry))
        return carry

    def _against(self, learners: list[Learner]) -> Trial:
        def trial(key: jax.Array, parameters: Any) -> EvaluationResult:
            # The returns of two players say already how much they get, and how evenly.
            several = self.game.num_agents > 2
            history = self._play_trial(key, parameters, learners, keep_trajectories=several)
            seats, number = jnp.stack(history.rewards), self.num_shapers
            more = history.infos | (social_metrics_of(self.game, history) if several else {})
            return EvaluationResult(seats[:number].mean(0), seats[number:].mean(0), more)

        return trial

    def _play_trial(self, key: jax.Array, parameters: Any, learners: list[Learner], **settings: bool) -> History:
        return play_sampled(key, self.game, self.shaper, parameters, learners, **self.lengths, **settings)

    def train_shapers(
        self,
        keys: jax.Array,
        *,
        store: Store | None = None,
        report: Report | None = None,
        before: Report | None = None,
        numbers: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Evolved:
        config, policy, opponents = self.config, self.shaper, self.opponents
        key = keys if len(keys) > 1 else keys[0]
        if config.meta_learner == "ppo":

            def play(key: jax.Array, parameters: Any) -> History:
                return self._play_trial(key, parameters, opponents, keep_trajectories=True)

            number, ppo = config.num_shapers, config.meta_ppo
            trained = sampled_ppo(play, policy, key, ppo, num_shapers=number, store=store, report=report)
        else:

            def trial(parameters: Any, key: jax.Array, *own: Mapping[str, Any]) -> Outcome:
                return self.trial_with(*own)(parameters, key)

            # Several trainings one after the other: a generation of one is wide enough, and fills the memory.
            trained = evolve(
                trial,
                policy.init,
                key,
                config.evolving,
                num_trials=config.trials,
                store=store,
                report=report,
                start=self._make_start(trial, before),
                together="run",
                context=(lambda *_: settings) if settings else None,
                numbers=numbers,
            )
        if key.ndim:
            return trained
        return trained._replace(parameters=jax.tree.map(lambda x: x[None], trained.parameters))

    def _make_start(self, trial: Callable[..., Outcome], report: Report | None) -> Callable[[jax.Array], Any] | None:
        if not (imitation := self.start.imitation):
            return self.start.make(trial, self.shaper.init, sigma=self.config.evolving.sigma, report=report)

        def alone(key: jax.Array) -> History:
            return self._play_trial(key, None, self.own_kind, keep_trajectories=True)

        return lambda key: imitate(alone, self.shaper, key, imitation, num_players=self.num_shapers, report=report)

    def trial_with(self, settings: Mapping[str, Any] | None = None) -> Callable[[Any, jax.Array], Outcome]:
        seats, opponents = range(self.num_shapers, self.game.num_agents), self.opponents
        if settings:
            opponents = [self.config.make_opponent(seat=seat, traced=settings) for seat in seats]
        return shaping_trial(self.game, self.shaper, opponents, **self.lengths, scored_from=self.config.scored_from)

    def measure(self, groups: dict[str, EvaluationResult], number: int = 0) -> dict[str, Any]:
        # Trial k of all groups has one key, from which much of the same is drawn: the samples are paired.
        gain = groups[self.config.opponent].shaper.mean(1) - groups[OWN_KIND].shaper.mean(1)
        return super().measure(groups, number) | {"gain_over_own_kind": mean_and_error(gain)}

    def measure_group(self, played: EvaluationResult) -> dict[str, Any]:
        found = super().measure_group(played) | {
            "shaper_last_episode": mean_and_error(played.shaper[:, -1]),
            "opponent_last_episode": mean_and_error(played.opponent[:, -1]),
        }
        for counted, name in SHARES.items():
            if counted in played.more:
                found[name] = [mean_and_error(share) for share in share_of_trials(counted, played.more).T]
        for name in SOCIAL:
            if name in played.more:
                found[name] = mean_and_error(played.more[name].mean(1))
                found[f"{name}_last_episode"] = mean_and_error(played.more[name][:, -1])
        if SOCIAL[0] in played.more:
            sides = {"shaper": np.s_[..., : self.num_shapers], "opponent": np.s_[..., self.num_shapers :]}
            found["counts"] = {
                name: {side: mean_and_error(x[seats].mean((1, 2))) for side, seats in sides.items()}
                for name, x in played.more.items()
                if name not in SOCIAL
            }
        return found

    def headline(self, found: dict[str, Any]) -> dict[str, Any]:
        sides = found["against"][self.config.opponent]
        return {"shaper_return": sides["shaper"], "opponent_return": sides["opponent"]}

    def summarize(self, trained: Evolved, found: Results) -> dict[str, Any]:
        game = {"environment": self.config.environment, "num_shapers": self.num_shapers}
        return game | super().summarize(trained, found)

    def draw(self, folder: Path, trained: Evolved, found: Results) -> list[Path]:
        files = super().draw(folder, trained, found)
        files += figures.draw_counts(folder, found.groups, self.config.opponent, self.num_shapers)
        if type(self.game).render is Game.render:
            return files
        return [*files, self._film(jax.tree.map(lambda x: np.asarray(x)[0], trained.parameters), folder)]

    def _film(self, parameters: Any, folder: Path) -> Path:
        """Writes a film of some episodes of a fresh trial, next to each other or one above the other."""
        last = self.config.meta_steps - 1

        @jax.jit
        def states(key: jax.Array, parameters: Any) -> Any:
            history = self._play_trial(key, parameters, self.opponents, keep_trajectories=True)
            chosen = jnp.array([0, last // 2, last])
            return jax.tree.map(lambda x: x[chosen, :, 0], history.game_states)

        # A key that neither training nor evaluation draws from.
        played = states(jax.random.fold_in(jax.random.key(self.config.seed), RunBranch.FILM), parameters)
        films = [self.game.frames(jax.tree.map(lambda x, i=i: np.asarray(x[i]), played)) for i in range(len(MOMENTS))]
        height, width = films[0][0].shape[:2]
        axis = int(width < 4 * height)
        gap = np.full((height, 12, 3) if axis else (12, width, 3), 255, np.uint8)
        frames = [np.concatenate([a, gap, b, gap, c], axis) for a, b, c in zip(*films, strict=True)]
        return save_whole(folder / "episodes.gif", partial(save_gif, frames, frames_per_second=4.0))

    def describe_game(self) -> dict[str, str]:
        config = self.config
        trial = f"{many(config.meta_steps, 'learning step')}, each after {many(config.episode_length, 'step')} in "
        trial += f"{many(config.num_envs, 'environment')}: {many(config.steps_of_a_trial, 'step')}"
        limit, games = self.game.time_limit, {}
        if limit is None or int(limit) != config.episode_length:
            ends = "by the game's own rules" if limit is None else f"after {many(int(limit), 'step')}"
            games = {"episode": f"ends {ends}; learning steps do not reset the game"}
        return {"game": config.environment, **games, "trial": trial}

    def print_header(self, console: Console) -> None:
        """Prints the header, and how long the run takes where its first line of progress may come late."""
        super().print_header(console)
        if self.config.training_steps > LONG and not console.quiet:
            say(console, "measuring the speed of this machine")
            speed = SampledShaping(self.config.shortened()).speed()
            pace = f"{amount(speed.steps_per_second)} steps/s"
            seconds = duration(speed.seconds(self.config))
            say(console, f"{pace}: the whole run takes about {seconds} on this machine")

    def conclusion(self, summary: dict[str, Any]) -> str:
        own, other = (rounded(summary[f"{side}_return"]["mean"], 3) for side in ("shaper", "opponent"))
        kind, gain = rounded(summary["own_kind"]["shaper"]["mean"], 3), with_error(summary["gain_over_own_kind"])
        return (
            f"The shaper gets {own} per step and the opponent {other}; the opponent's own kind in the shaper's place "
            f"gets {kind}, so that the gain is {gain}."
        )

    def print_result(self, console: Console, summary: dict[str, Any]) -> None:
        self.print_returns(console, summary)
        gain = summary["gain_over_own_kind"]
        errors = f", {gain['mean'] / gain['standard_error']:.1f} standard errors" if gain["standard_error"] else ""
        words = f"gain over the opponent's own kind in the shaper's place: {with_error(gain)}{errors}"
        console.print(words, highlight=False)
        for counted, share in SHARES.items():
            if share in summary["own_kind"]:
                table = Table(figures.COUNTED[counted], "shaper", "opponent", box=None)
                add_rows(table, summary, lambda found: [with_error(found[share][i]) for i in (0, -1)], 26)  # noqa: B023 (called at once)
                console.print(table)
        shown = [name for name in SOCIAL if name in summary["own_kind"]]
        if shown:
            table = Table("against", *shown, title="all players", title_justify="left", box=None)
            add_rows(table, summary, lambda found: [with_error(found[metric]) for metric in shown])
            console.print(table)


def social_metrics_of(game: Game, history: History) -> dict[str, jax.Array]:
    """Social metrics of a trial, `[K]` each: means over the environments in which the players learn at once.

    They are of the rewards as paid, and of the steps before each update as if these began an episode.

    Args:
      game: what was played.
      history: of one learner in each seat, with its trajectories.
    """
    assert history.trajectories is not None
    by_agent = zip(game.agents, history.trajectories, strict=True)
    rewards = {agent: jnp.moveaxis(one.reward, 1, -1) for agent, one in by_agent}  # [K, N, T]
    ended = jnp.moveaxis(history.trajectories[0].done, 1, -1)
    found = social_metrics(Rollout(game, (), {}, {}, rewards, {"__all__": ended}, {}, ()))
    metrics = {name: getattr(found, name).mean(1) for name in SOCIAL[:3]}
    if "away" in history.infos:
        metrics["peace"] = game.num_agents - history.infos["away"].sum(1)
    return metrics


def share_of_trials(counted: str, counts: dict[str, np.ndarray]) -> np.ndarray:
    """The share of one kind in everything that a player took or did over a trial.

    Args:
      counted: the kind, as of `figures.occasions`.
      counts: what the game counted, `[trials, episodes, players]`.

    Returns:
      `[trials, players]`; a half of nothing.
    """
    part, whole = (x.mean(1) for x in figures.occasions(counted, counts))
    return np.divide(part, whole, out=np.full_like(part, 0.5), where=whole > 0)
