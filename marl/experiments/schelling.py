"""Schelling diagrams: payoffs of a cooperator and a defector by the number of other cooperators, and the dilemma."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import configs
from configs.specs import first_line
from games import Game, Rollout, SocialMetrics, scripted_policies, social_metrics
from games.scripted import Policy
from marl.core.learner import Learner
from marl.experiments.game_config import SampledGameConfig
from marl.experiments.saved.load_agent import TrainedAgent, load_agent
from marl.experiments.shaping.agents import Agent, check_same_spaces, is_path, make_agent
from marl.experiments.single_agent import LEARNER_FILE
from marl.trained.catalogue import located
from meta import RunDirectory, process
from meta.loop import compiler_options
from meta.runs import provenance
from meta.runs.array_files import load_arrays
from meta.runs.formatting import many, say
from meta.runs.plotting import BARS, colors_of, new_axes, save_figure
from meta.runs.progress import Progress
from meta.runs.reports.ending import print_report
from meta.runs.reports.tables import keep_tables
from meta.statistics import mean_and_error, rounded, with_error
from meta.xla.memory import bytes_of, check_bytes

SCRIPTED = "scripted"
LONGEST_EPISODE = 1000  # steps, where a game has no time limit
CERTAIN = 2.0  # standard errors that a difference has to exceed
ROUNDING = 1e-6  # of the largest payoff, which is no difference
MOST_PLAYERS = 64


@dataclasses.dataclass(frozen=True)
class SchellingConfig(SampledGameConfig):
    """A game, and the two policies that its players may have."""

    environment: str = "harvest"
    """A game of two players or more by its name, with parameters in brackets; `python -m games` lists them."""
    cooperator: str = SCRIPTED
    """The cooperator: scripted, an opponent of marl.mfos, or the file or run of a trained shaper or of marl.train."""
    defector: str = SCRIPTED
    """The defector: the same."""
    episodes: int = 100
    """Episodes with different seeds for each number of cooperators; errors are over them."""
    steps: int = 0
    """Steps of an episode; 0 for the time limit of the game, or 1,000 where it has none."""
    seed: int = 0
    """Seed of all draws of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        configs.check_least(self, episodes=2, steps=0)
        configs.check_product(self, "episodes", "steps")
        configs.check_seed(self.seed)

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("episodes",)


class Player(NamedTuple):
    """A policy that any player may have: of the state, or of the observations."""

    begin: Callable[[jax.Array], Any]  # (key) -> memory
    act: Callable[..., tuple[jax.Array, Any]]  # (key, state, observations [n, ...], memory) -> (actions [n], memory)
    reset: Callable[[Any, jax.Array], Any]  # (memory, done []) -> memory


class Payoffs(NamedTuple):
    """Mean rewards per step in each episode, `[n, episodes]`: row i is beside i other cooperators."""

    cooperator: np.ndarray
    defector: np.ndarray
    metrics: SocialMetrics  # `[n + 1, episodes]` each: row k is with k cooperators


class Inequality(NamedTuple):
    """One inequality of a social dilemma, and the verdict: `holds`, `fails` or `undecided`."""

    meaning: str
    formula: str
    difference: float
    standard_error: float
    verdict: str


class Diagram(NamedTuple):
    """A diagram that is ready to be measured."""

    config: SchellingConfig
    game: Game
    cooperator: Player
    defector: Player
    meaning: str
    steps: int


def prepare(config: SchellingConfig) -> Diagram:
    """The game and the two players of a config.

    Raises:
      ValueError: for a game of one player or too many, without scripted policies where they are asked for, or for an
        agent that cannot play every seat.
    """
    game = config.make_game()
    if not 2 <= game.num_agents <= MOST_PLAYERS:
        got = f"{config.environment!r}, of {many(game.num_agents, 'player')}"
        raise ValueError(f"environment: got {got}; a game of 2 to {MOST_PLAYERS} players is needed")
    limit = game.time_limit
    steps = config.steps or (LONGEST_EPISODE if limit is None else int(limit))
    state = bytes_of(jax.eval_shape(game.reset, jax.random.key(0)))
    per_step = 64.0 * game.num_agents
    check_bytes("episodes", config.episodes, config.episodes * (state + per_step * steps))
    meaning, players = "", []
    for name in ("cooperator", "defector"):
        spec = getattr(config, name)
        try:
            if spec == SCRIPTED:
                policies = scripted_policies(game)
                meaning = policies.meaning
                players.append(_scripted(policies.cooperate if name == "cooperator" else policies.defect, game))
            else:
                players.append(_acting(spec, game))
        except ValueError as error:
            field, _, words = first_line(error).partition(": ")
            raise ValueError(f"{'environment' if field == 'game' else name}: {words}") from None
    return Diagram(config, game, players[0], players[1], meaning, steps)


def _scripted(policy: Policy, game: Game) -> Player:
    def act(key: jax.Array, state: Any, observations: jax.Array, memory: tuple[()]) -> tuple[jax.Array, tuple[()]]:
        seats = jnp.arange(game.num_agents)
        return jax.vmap(policy, (0, None, 0))(jax.random.split(key, len(seats)), state, seats), memory

    return Player(lambda key: (), act, lambda memory, done: memory)


def _acting(spec: str, game: Game) -> Player:
    """An agent that takes any seat, each with a memory of its own. It learns nothing."""
    spaces = {str((game.observation_space(agent), game.action_space(agent))) for agent in game.agents}
    if len(spaces) > 1:
        raise ValueError(f"agent: got {spec!r} in {game.name}, whose seats differ; scripted is needed")
    agent = _agent(spec, game)
    learner: Learner = agent.learner(agent.parameters)

    def begin(key: jax.Array) -> Any:
        policy = learner.policy(learner.init(key))
        memory = learner.init_memory(policy, 1)
        return policy, jax.tree.map(lambda x: jnp.broadcast_to(x, (game.num_agents, *jnp.shape(x))), memory)

    def act(key: jax.Array, state: Any, observations: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        policy, memories = memory
        if learner.sees_all:  # what the others see is read by the critic alone
            observations = jnp.concatenate([observations] * (agent.game or game).num_agents, -1)
        keys = jax.random.split(key, game.num_agents)
        actions, memories, _ = jax.vmap(lambda *given: learner.act(given[0], policy, *given[1:]))(
            keys, memories, observations[:, None]
        )
        return actions[:, 0], (policy, memories)

    def reset(memory: Any, done: jax.Array) -> Any:
        if not learner.reset_memory:
            return memory
        return memory[0], jax.vmap(learner.reset_memory, (0, None))(memory[1], done[None])

    return Player(begin, act, reset)


def _agent(spec: str, game: Game) -> Agent:
    """The first learner of a run of marl.train, or another agent as of `make_agent`."""
    if not is_path(spec):
        return make_agent(spec, game, 0)
    path = Path(located(spec))
    file = path / LEARNER_FILE if path.is_dir() else path
    if not file.is_file() or load_arrays(file)[1].get("method") not in ("train", "distributed"):
        return make_agent(spec, game, 0)
    agent = load_agent(path)
    assert isinstance(agent, TrainedAgent)
    assert agent.game is not None
    check_same_spaces(spec, agent.game, game, 0)
    return agent


def measure(diagram: Diagram, report: Callable[[int, dict[str, Any], float], None]) -> Payoffs:
    """Plays the episodes of every number of cooperators.

    Args:
      diagram: what is measured.
      report: as of `Progress`, after each number of cooperators.
    """
    n, episodes = diagram.game.num_agents, diagram.config.episodes
    keys = jax.random.split(jax.random.key(diagram.config.seed), (n + 1, episodes))  # other seeds for every number
    program = jax.jit(jax.vmap(lambda key, k: _episode(diagram, key, k), (0, None)))
    compiled = program.lower(keys[0], jnp.int32(0)).compile(compiler_options())
    found, started = [], time.perf_counter()
    for k in range(n + 1):
        found.append(jax.tree.map(np.asarray, compiled(keys[k], jnp.int32(k))))
        report(k + 1, {"efficiency": found[-1][2].efficiency.mean()}, time.perf_counter() - started)
    cooperator, defector, metrics = jax.tree.map(lambda *rows: np.stack(rows).astype(np.float64), *found)
    return Payoffs(cooperator[1:], defector[:-1], metrics)


def _episode(diagram: Diagram, key: jax.Array, cooperators: jax.Array) -> tuple[jax.Array, jax.Array, SocialMetrics]:
    """Mean rewards per step of the cooperators and of the defectors, in random seats, and the social metrics."""
    game, players = diagram.game, (diagram.cooperator, diagram.defector)
    seat_key, reset_key, run_key, *begin_keys = jax.random.split(key, 5)
    cooperates = jax.random.permutation(seat_key, game.num_agents) < cooperators

    def step(carry: Any, key: jax.Array) -> Any:
        observations, state, memories = carry
        step_key, reset_key, *act_keys = jax.random.split(key, 4)
        seen = jax.tree.map(lambda *x: jnp.stack(x), *(observations[agent] for agent in game.agents))
        acted = [p.act(k, state, seen, memory) for p, k, memory in zip(players, act_keys, memories, strict=True)]
        shape = (-1,) + (1,) * (acted[0][0].ndim - 1)
        actions = jnp.where(cooperates.reshape(shape), acted[0][0], acted[1][0])
        by_agent = dict(zip(game.agents, actions, strict=True))
        after, state, rewards, dones, infos = game.step_env(step_key, state, by_agent)
        memories = [p.reset(memory, dones["__all__"]) for p, (_, memory) in zip(players, acted, strict=True)]
        return (*game.auto_reset(reset_key, after, state, dones), memories), (rewards, dones, infos)

    memories = [player.begin(k) for player, k in zip(players, begin_keys, strict=True)]
    _, (rewards, dones, infos) = jax.lax.scan(
        step, (*game.reset(reset_key), memories), jax.random.split(run_key, diagram.steps)
    )
    mean = jnp.stack([rewards[agent].mean() for agent in game.agents])
    number = jnp.maximum(jnp.array([cooperators, game.num_agents - cooperators]), 1)
    metrics = social_metrics(Rollout(game, (), {}, {}, rewards, dones, infos, ()))
    return (mean * cooperates).sum() / number[0], (mean * ~cooperates).sum() / number[1], metrics


def inequalities(payoffs: Payoffs) -> dict[str, Inequality]:
    """The inequalities of a social dilemma among payoffs.

    With R_c(i) and R_d(i), the payoffs of a cooperator and of a defector beside i other cooperators, and n players:
    cooperation R_c(n - 1) > R_d(0), no exploitation R_c(n - 1) > R_c(0), fear R_d(0) > R_c(0), greed
    R_d(n - 1) > R_c(n - 1). One holds if the difference exceeds two standard errors; episodes of two payoffs are
    independent. In a game without chance there are none, and any difference counts.

    Source: Leibo et al., Multi-agent Reinforcement Learning in Sequential Social Dilemmas (2017), arXiv:1702.03037;
    for n players Hughes et al. (2018), arXiv:1803.08884.
    """
    c, d = payoffs.cooperator, payoffs.defector
    last = f"{len(c) - 1}"
    pairs = {
        "cooperation": ("mutual cooperation beats mutual defection", f"R_c({last}) > R_d(0)", c[-1], d[0]),
        "no_exploitation": ("mutual cooperation beats being exploited", f"R_c({last}) > R_c(0)", c[-1], c[0]),
        "fear": ("fear: defection beats lone cooperation", "R_d(0) > R_c(0)", d[0], c[0]),
        "greed": ("greed: defection beats mutual cooperation", f"R_d({last}) > R_c({last})", d[-1], c[-1]),
    }
    rounding = ROUNDING * max(np.abs(c).max(), np.abs(d).max())
    found = {}
    for name, (meaning, formula, more, less) in pairs.items():
        difference = float(more.mean() - less.mean())
        error = float(np.sqrt((more.var(ddof=1) + less.var(ddof=1)) / len(more)))
        bound = CERTAIN * error + rounding
        close = "undecided" if error > rounding else "fails"
        verdict = "holds" if difference > bound else "fails" if difference < -bound else close
        found[name] = Inequality(meaning, formula, difference, error, verdict)
    return found


def conclusion(environment: str, payoffs: Payoffs, found: dict[str, Inequality]) -> str:
    """The dilemma, or the first inequality that stands against it, in one sentence."""
    both, one = [found[name] for name in ("cooperation", "no_exploitation")], [found["fear"], found["greed"]]
    mutual, defection = (with_error(mean_and_error(x)) for x in (payoffs.cooperator[-1], payoffs.defector[0]))
    numbers = f"mutual cooperation pays {mutual} a step, and mutual defection {defection}"
    reasons = [name for name in ("fear", "greed") if found[name].verdict == "holds"]
    if failed := [x for x in both if x.verdict == "fails"]:
        return f"{environment} is no social dilemma, because it is false that {failed[0].meaning}: {numbers}."
    if all(x.verdict == "fails" for x in one):
        return f"{environment} is no social dilemma, because there is neither fear nor greed: {numbers}."
    if reasons and all(x.verdict == "holds" for x in both):
        return f"{environment} is a social dilemma with {' and '.join(reasons)}: {numbers}."
    return f"These episodes do not decide whether {environment} is a social dilemma: {numbers}."


def draw_diagram(path: Path, environment: str, payoffs: Payoffs) -> Path:
    """The payoffs of both by the number of other cooperators, with bars of two standard errors."""
    figure, axes = new_axes("other players that cooperate", "payoff: mean reward per step")
    sides = {"cooperator": payoffs.cooperator, "defector": payoffs.defector}
    for name, color in colors_of(sides).items():
        values = sides[name]
        error = CERTAIN * values.std(1, ddof=1) / values.shape[1] ** 0.5
        style = BARS | {"linestyle": "-", "marker": "o", "color": color}
        axes.errorbar(np.arange(len(values)), values.mean(1), error, label=name, **style)
    axes.set_xticks(range(len(payoffs.cooperator)))
    note = f"bars: two standard errors over {many(payoffs.cooperator.shape[1], 'episode')} with different seeds"
    return save_figure(figure, path, f"Payoffs of a cooperator and of a defector in {environment}", note)


def measure_and_print(diagram: Diagram, run: RunDirectory, console: Console) -> None:
    """Measures a diagram, writes summary, figure and report into the run directory, and prints the tables."""
    config, n = diagram.config, diagram.game.num_agents
    say(
        console,
        f"{config.environment}: {many(config.episodes, 'episode')} of {many(diagram.steps, 'step')} for each number of "
        f"cooperators, 0 to {n}",
    )
    if diagram.meaning:
        say(console, f"scripted policies: {diagram.meaning}")
    size = config.episodes * diagram.steps
    with Progress(
        console,
        n + 1,
        size,
        "environment steps",
        lambda metrics: f"efficiency {metrics['efficiency']:.3f}",
        name="number of cooperators",
    ) as progress:
        payoffs = measure(diagram, progress)
    found = inequalities(payoffs)
    kept = {name: [mean_and_error(row) for row in getattr(payoffs, name)] for name in ("cooperator", "defector")}
    social = {
        name: [mean_and_error(row) for row in values]
        for name, values in payoffs.metrics._asdict().items()
        if name != "counts" and values is not None
    }
    summary = {
        "conclusion": conclusion(config.environment, payoffs, found),
        **{name: getattr(config, name) for name in ("environment", "cooperator", "defector", "episodes", "seed")},
        "steps": diagram.steps,
        "payoffs": kept,
        "inequalities": {name: one._asdict() for name, one in found.items()},
        "social_metrics": social,
        "wall_seconds": time.perf_counter() - process.began(),
    }
    run.write_summary(summary | provenance.environment())
    figure = draw_diagram(run.figures / "schelling.png", config.environment, payoffs)
    say(console, summary["conclusion"])
    with keep_tables(console, run.path):
        _print_tables(console, kept, found, social)
        over = f"{many(config.episodes, 'episode')} with different seeds"
        say(console, f"payoffs are mean rewards per step, and ± is a standard error over {over}")
    print_report(console, run.path)
    say(console, f"written to {run.path}: summary.json, config.yaml")
    say(console, f"  {figure}")


def _print_tables(
    console: Console, payoffs: dict[str, list[Any]], found: dict[str, Inequality], social: dict[str, list[Any]]
) -> None:
    table = Table("other cooperators", "cooperator", "defector", title="payoffs", title_justify="left")
    for others, pair in enumerate(zip(payoffs["cooperator"], payoffs["defector"], strict=True)):
        table.add_row(str(others), *(with_error(one, 4) for one in pair))
    console.print(table)
    table = Table("inequality", "", "difference", "verdict", title="social dilemma", title_justify="left")
    for one in found.values():
        numbers: dict[str, float | None] = {"mean": one.difference, "standard_error": one.standard_error}
        table.add_row(one.meaning, one.formula, with_error(numbers, 4), one.verdict)
    console.print(table)
    table = Table("cooperators", *social, title="social metrics", title_justify="left")
    for k in range(len(social["efficiency"])):
        table.add_row(str(k), *(rounded(values[k]["mean"], 3) for values in social.values()))
    console.print(table)


def config_of(first: str) -> SchellingConfig:
    """The config from a preset, a file, or a game by its name; a preset comes before a game of its name."""
    presets = configs.presets("schelling")
    if first in presets or first.endswith((".yaml", ".yml")) or os.path.isfile(first):
        return configs.load(SchellingConfig, "schelling", first)
    return configs.build(SchellingConfig, {"environment": first}, "environment")
