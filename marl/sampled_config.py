"""The config of `python -m marl.mfos` where the game is sampled and the opponents learn from what they see."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal, get_args

import jax

from games import Game
from marl.learn import Learner, learning
from marl.sampled_opponents import make_sampled_opponent
from marl.sampled_ppo import SampledPPO
from marl.sampled_shapers import SAMPLED_SHAPERS, Kept, Policy
from marl.specs import defaults, first_line, make_game, parse, whole
from meta import Evolution


@dataclasses.dataclass(frozen=True)
class SampledConfig:
    """A shaper trained against learners in a game that is sampled step by step."""

    environment: str = "ipd(episode_length=100)"
    """A game of two players or more by its name, with parameters in brackets; `python -m games` lists them."""
    opponent: str = "tabular_ppo"
    """Who is shaped: ppo, a2c, dqn, tabular_ppo, reinforce, naive_dice, lola_dice or random; settings in brackets."""
    unseen: tuple[str, ...] = ()
    """Further opponents that the shaper meets in its evaluation alone."""
    shaper: str = "shaper"
    """shaper, good_shepherd or mfos; with settings such as "shaper(hidden_units=32, memory='episode')"."""
    num_shapers: int = 1
    """How many of the players are shapers, the first ones: all with the same parameters, each with its own memory."""
    episodes: int = 100
    """Learning steps of an opponent in a trial."""
    episode_length: int = 100
    """Steps of the game between two of them."""
    num_envs: int = 2
    """Environments in which an opponent learns at once."""
    trials: int = 4
    """Opponents that each candidate meets in each generation; the same draws for all candidates."""
    evaluation_trials: int = 256
    """Fresh opponents of the result, at least 2."""
    seed: int = 0
    """What is drawn in the whole run depends on it alone."""
    meta_learner: Literal["evolution", "ppo"] = "evolution"
    """How the shaper is trained: evolution, with the settings under evolution, or ppo, with those under meta_ppo."""
    evolution: Evolution = field(default_factory=lambda: Evolution(population_size=32, generations=300))
    meta_ppo: SampledPPO = field(default_factory=SampledPPO)

    def __post_init__(self) -> None:
        for name, least in (
            ("num_shapers", 1),
            ("episodes", 1),
            ("episode_length", 1),
            ("num_envs", 1),
            ("trials", 1),
            ("evaluation_trials", 2),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}; a whole number of at least {least} is needed")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed: got {self.seed}; a whole number from 0 to 2**32 - 1 is needed")
        game = self.make_game()
        if not self.num_shapers < game.num_agents:
            raise ValueError(
                f"num_shapers: got {self.num_shapers}; {self.environment} has {game.num_agents} player(s), and one of "
                "them at least has to learn"
            )
        self.make_shaper(game)
        seats = [(game.observation_space(a), game.action_space(a)) for a in game.agents[: self.num_shapers]]
        if any(str(seat) != str(seats[0]) for seat in seats):
            raise ValueError(
                f"num_shapers: got {self.num_shapers}; the shapers of {self.environment} would see or do different "
                "things, and they have one policy"
            )
        for spec in (self.opponent, *self.unseen):
            self.make_opponents(game, spec)
            _check(self.environment, spec, self.num_shapers, *self.lengths.values())

    @property
    def generations(self) -> int:
        """How often the shaper is improved: generations of an evolution, iterations of PPO."""
        return self.meta_ppo.iterations if self.meta_learner == "ppo" else self.evolution.generations

    @property
    def trials_per_generation(self) -> int:
        """Trials that are played in each."""
        return self.meta_ppo.batch_size if self.meta_learner == "ppo" else self.evolution.population_size * self.trials

    @property
    def steps_of_a_trial(self) -> int:
        """Environment steps."""
        return self.episodes * self.episode_length * self.num_envs

    @property
    def lengths(self) -> dict[str, Any]:
        """The settings of `play_sampled`."""
        return {
            "num_episodes": self.episodes,
            "episode_length": self.episode_length,
            "num_envs": self.num_envs,
        }

    def make_game(self) -> Game:
        """What is played."""
        try:
            return make_game(self.environment)
        except (NotImplementedError, RuntimeError) as error:  # an unknown space; data that cannot be downloaded
            raise ValueError(f"environment: got {self.environment!r}; {first_line(error)}") from None

    def make_shaper(self, game: Game) -> Policy:
        """The policy that is trained."""
        known = {name: defaults(make) for name, make in SAMPLED_SHAPERS.items()}
        name, settings = parse("shaper", self.shaper, known, "shaper")
        for setting, value in settings.items():
            kind, fits = _KINDS[setting]
            if not fits(value):
                raise ValueError(f"shaper: {name}: {setting}: got {value!r}; {kind} is needed")
        try:
            return SAMPLED_SHAPERS[name](game, **settings)
        except ValueError as error:
            raise ValueError(f"environment: {self.environment}: {first_line(error)}") from None

    def make_opponents(self, game: Game, spec: str | None = None) -> list[Learner]:
        """The players that learn, those of `opponent` if no other spec is given."""
        return [self.make_learner(game, seat, spec) for seat in range(self.num_shapers, game.num_agents)]

    def make_learner(self, game: Game, seat: int, spec: str | None = None) -> Learner:
        """A learner for any seat, also for those of the shapers."""
        spec = self.opponent if spec is None else spec
        return make_sampled_opponent(spec, game, seat, num_envs=self.num_envs, num_updates=self.episodes)


@functools.lru_cache(maxsize=64)  # of what was traced, for a config is made again and again
def _check(environment: str, spec: str, num_shapers: int, episodes: int, episode_length: int, num_envs: int) -> None:
    """Raises ValueError for an opponent that cannot learn from so many steps, such as one with minibatches."""
    game = make_game(environment)
    learners = [
        make_sampled_opponent(
            "random" if seat < num_shapers else spec, game, seat, num_envs=num_envs, num_updates=episodes
        )
        for seat in range(game.num_agents)
    ]
    begin, update = learning(game, learners, steps_per_update=episode_length, num_envs=num_envs)
    try:
        carry, key = jax.eval_shape(begin, jax.random.key(0))
        jax.eval_shape(update, carry, key)
    except ValueError as error:
        raise ValueError(f"opponent: {spec}: {first_line(error)}") from None


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "hidden_units": ("a whole number of at least 1", lambda x: whole(x) and x > 0),
    "channels": ("a whole number of at least 0", lambda x: whole(x) and x >= 0),
    "memory": (f"one of {', '.join(get_args(Kept))}", lambda x: x in get_args(Kept)),
    "averaging": ("True or False", lambda x: isinstance(x, bool)),
}
