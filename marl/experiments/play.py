"""A person against an agent: in a repeated game, round by round, or in a sampled one, step by step."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.text import Text

import configs
from configs.specs import first_line
from configs.usage import Positional
from games import Game, InfinitelyRepeated
from marl.core.learn import check_update
from marl.core.learner import Learner, Trajectory
from marl.experiments import play_sampled
from marl.experiments.game_config import EXACT_FIELDS, AnyGameConfig
from marl.experiments.shaping.agents import is_path, load_shaper, make_agent
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig
from marl.learners.sampled.fixed import random
from marl.shapers.registry import FORMULA as SHAPERS
from marl.trained.catalogue import PREFIX, list_agents
from meta.runs.formatting import many, say
from meta.xla.memory import bytes_of, check_bytes

PRESETS = "bound"  # which name a game and nothing else
STATES = ("start", "CC", "CD", "DC", "DD")


@dataclasses.dataclass(frozen=True)
class PlayConfig(AnyGameConfig):
    """A game, the opponent, and the number of rounds.

    Of a game that is a formula are game, row_payoffs, column_payoffs and discount; of one that is sampled environment
    and episode_length.
    """

    agent: Annotated[str, Positional("AGENT")] = ""
    """The file or the run directory of a trained shaper, hub:NAME, or an opponent such as "lola(learning_rate=1)"; the
    trained M-FOS that comes with the library if none is named."""
    rounds: int = 100
    """How many rounds, or steps of a sampled game."""
    episode_length: int = 100
    """Steps of a sampled game after each of which the agent learns."""
    seed: int = 0
    """What the agent draws depends on it alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        configs.check_least(self, rounds=1, episode_length=1)
        configs.check_seed(self.seed)

    def of_other_kind(self) -> tuple[str, ...]:
        return EXACT_FIELDS if self.environment else ("episode_length",)


def load_match(first: str) -> PlayConfig:
    """The config that the command's first argument stands for: a preset, a YAML file, or an opponent.

    Raises:
      ValueError: if it is none of them.
    """
    if first in configs.presets(PRESETS) or not is_path(first) or first.endswith((".yaml", ".yml")):
        config = configs.load(PlayConfig, PRESETS, first)
        shipped = f"mfos-{first}-naive"  # the opponent where none is named
        known = not config.agent and shipped in list_agents()
        return dataclasses.replace(config, agent=f"{PREFIX}{shipped}") if known else config
    trained = load_shaper(first).config
    if isinstance(trained, SampledShapingConfig):
        return PlayConfig(environment=trained.environment, agent=first, episode_length=trained.episode_length)
    assert isinstance(trained, ExactShapingConfig)
    return PlayConfig(trained.game, trained.row_payoffs, trained.column_payoffs, trained.discount, agent=first)


class AgentState(NamedTuple):
    """The agent between two rounds."""

    state: Any  # its learner's
    memory: Any
    policy: jax.Array  # `[logits]`, probabilities of its first action, which it plays next


def make_agent_step(
    game: InfinitelyRepeated, learner: Learner
) -> tuple[Callable[[jax.Array], AgentState], Callable[..., AgentState]]:
    """An agent in the row's seat that takes a step after every round.

    Args:
      game: what is played.
      learner: the agent.

    Returns:
      `begin(key) -> AgentState` and `step(key, state, estimate) -> AgentState`, where `estimate` `[logits]` are the
      probabilities that the other is thought to play, in its own view; both compiled.
    """

    def begin(key: jax.Array) -> AgentState:
        init_key, act_key, step_key = jax.random.split(key, 3)
        half = jnp.full(game.num_logits, 0.5)
        # The first step of a trial, which a shaper plays at random.
        state = learner.init(init_key)
        parameters = learner.policy(state)
        memory = learner.init_memory(parameters, None)
        logits, memory, _ = learner.act(act_key, parameters, memory, jnp.concatenate([half, half]))
        return step(step_key, AgentState(state, memory, jax.nn.sigmoid(logits)), half)

    def step(key: jax.Array, mind: AgentState, estimate: jax.Array) -> AgentState:
        update_key, act_key = jax.random.split(key)
        seen, nothing = jnp.concatenate([mind.policy, estimate]), jnp.zeros(1)
        played, others = (jnp.log(p) - jnp.log1p(-p) for p in (jnp.clip(mind.policy, 1e-7, 1 - 1e-7), estimate))
        trajectory = Trajectory(
            seen[None],
            played[None],
            nothing,
            nothing > 0,
            (),
            (others[None],),
            nothing > 0,
            seen[None],
            mind.memory,
            mind.memory,
        )
        state, _ = learner.update(update_key, mind.state, trajectory)
        logits, memory, _ = learner.act(act_key, learner.policy(state), mind.memory, seen)
        return AgentState(state, memory, jax.nn.sigmoid(logits))

    return jax.jit(begin), jax.jit(step)


class Person:
    """An estimate of a person's policy: the share of first actions in each situation.

    Attributes:
      counts: `[logits, 2]`, how often each action.
    """

    def __init__(self, num_logits: int):
        self.counts = np.zeros((num_logits, 2))

    def saw(self, state: int, action: int) -> None:
        """One more action, in a state of the person's own view."""
        self.counts[state, action] += 1

    @property
    def estimate(self) -> np.ndarray:
        """Probabilities of the first action `[logits]`: Laplace's rule of succession."""
        return ((self.counts[:, 0] + 1) / (self.counts.sum(1) + 2)).astype(np.float32)


class Match(NamedTuple):
    """The game and the opponent of the person."""

    config: PlayConfig
    game: InfinitelyRepeated | Game
    learner: Learner


def make_match(config: PlayConfig) -> Match:
    """The agent of a config, in its game.

    Raises:
      ValueError: if there is none, or if it cannot play there.
    """
    name, game = config.agent, config.make_game()
    if not name:
        raise ValueError("agent: none given; a name, an agent's file or the directory of its run is needed")
    if config.environment:
        play_sampled.check_game(game)
    elif re.split(r"[:(]", name)[0].strip() in SHAPERS:
        shaper, _, opponent = name.partition(":")
        options: dict[str, Any] = {"game": config.game, "discount": config.discount}
        options |= {"row-payoffs": config.row_payoffs, "column-payoffs": config.column_payoffs}
        options |= {"shaper": shaper, "opponent": opponent or "naive", "out": "DIR"}
        words = ["python", "-m", "marl.mfos", "ipd"]
        for option, value in options.items():
            words += (
                [f"--{option}", *map(str, value if isinstance(value, tuple) else [value])] if value is not None else []
            )
        raise ValueError(f"agent: {name} has to be trained first: {shlex.join(words)}, and then DIR is its name")
    episodes = -(-config.rounds // config.episode_length) if config.environment else None
    agent = make_agent(name, game, 0, num_updates=episodes)
    learner = agent.learner(agent.parameters)
    if config.environment and config.rounds >= config.episode_length:  # so that it learns
        try:
            players = [learner, random(game, play_sampled.PERSON)]
            carry = check_update(game, players, steps_per_update=config.episode_length, num_envs=1)
        except ValueError as error:
            raise ValueError(f"agent: {name}: {first_line(error)}") from None
        check_bytes("agent", name, bytes_of(carry.states))
    return Match(config, game, learner)


def play_match(match: Match, target: None, console: Console) -> None:
    """Asks for an action in every round, and says what it was answered with, and what both got.

    Raises:
      KeyboardInterrupt: if the person presses Ctrl-C; the result is shown before.
    """
    config, game, learner = match
    if not isinstance(game, InfinitelyRepeated):
        steps = {"rounds": config.rounds, "episode_length": config.episode_length, "seed": config.seed}
        title = f"{config.environment}, {many(config.rounds, 'step')} against {config.agent}"
        play_sampled.play_steps(game, learner, console, title=title, **steps)
        return
    begin, step = make_agent_step(game, learner)
    key, draws = jax.random.key(config.seed), np.random.default_rng(config.seed)
    mind, person = begin(jax.random.fold_in(key, 0)), Person(game.num_logits)
    _introduce(console, config, game)
    _show_policy(console, mind, 0)
    state, played = 0, 0  # the state is in the person's view
    totals, first_actions = np.zeros(2), np.zeros(2)  # the person's, and the agent's
    try:
        while played < config.rounds:
            prompt, answers = f"round {played + 1} of {config.rounds}: ", {"c": 0, "d": 1}
            action = play_sampled.ask(console, prompt, answers, "c, d or q is needed")
            if action is None:
                break
            answer = int(draws.random() >= float(mind.policy[_other_view(state)]))
            payoffs = [side[2 * action + answer] for side in game.payoffs.seen_by(1)]
            person.saw(state, action)
            totals, played = totals + payoffs, played + 1
            first_actions += [action == 0, answer == 0]
            state = 1 + 2 * action + answer if game.num_logits > 1 else 0
            mind = step(jax.random.fold_in(key, played), mind, person.estimate)
            play_sampled.say_round(console, "CD"[action], "CD"[answer], payoffs, totals / played)
            _show_policy(console, mind, _other_view(state))
    finally:
        say(console, f"\n{conclusion(game, played, totals / played, first_actions / played)}" if played else "")


def conclusion(game: InfinitelyRepeated, rounds: int, payoffs: np.ndarray, shares: np.ndarray) -> str:
    """The person's and the agent's average payoffs and shares of C, beside mutual C and mutual D, in one sentence."""
    (own, other), (own_share, other_share) = payoffs, shares
    (both_c, *_, both_d) = zip(*game.payoffs.seen_by(1), strict=True)
    mutual = "; ".join(f"both {name}: {x:g} and {y:g}" for name, (x, y) in {"C": both_c, "D": both_d}.items())
    return (
        f"Over {many(rounds, 'round')} you played C in {own_share:.0%} and got {own:.3f} per round; the agent played C "
        f"in {other_share:.0%} and got {other:.3f} ({mutual})."
    )


def _other_view(state: int) -> int:
    """The same state seen from the other side: its CD is one's own DC."""
    return (0, 1, 3, 2, 4)[state]


def _introduce(console: Console, config: PlayConfig, game: InfinitelyRepeated) -> None:
    own, other = game.payoffs.seen_by(1)
    console.print(
        f"{game.payoffs.name}, {many(config.rounds, 'round')} against {config.agent}", markup=False, soft_wrap=True
    )
    table = "   ".join(f"{s}: {a:g} / {b:g}" for s, a, b in zip(STATES[1:], own, other, strict=True))
    console.print(f"payoffs, you / the agent, your action first: {table}", soft_wrap=True)
    console.print(
        "after every round the agent takes one step against what your policy seems to be, (C + 1) / (rounds + 2) in "
        "each situation so far; its probabilities of C are shown, its own action first, [the next one] in brackets",
        markup=False,
    )


def _show_policy(console: Console, mind: AgentState, state: int) -> None:
    text = Text("agent's probability of C:")
    for i, probability in enumerate(np.asarray(mind.policy)):
        words = f"{STATES[i]} {probability:.3f}"
        text.append("  ")
        text.append(f"[{words}]" if i == state else f" {words} ", "bold reverse" if i == state else "")
    console.print(text, soft_wrap=True)
