"""How much could any shaper get: ascent through an opponent's learning, and the bounds that come with the library."""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

import configs
from games import InfinitelyRepeated
from marl.core.learn import Learner, Trajectory
from marl.experiments.one_file import TrainingConfig, write
from marl.learners.exact.trained import SHIPPED, describe, read_by
from marl.learners.registry import make_learner
from marl.shapers.trial import play
from meta import RunDirectory, scalarize
from meta.loop import Report, Store, compiler_options, iterate
from meta.runs.keys import NOISE
from meta.runs.progress import Progress
from meta.runs.tensors import Arrays, load
from meta.runs.words import many

# Sequences to start from, besides random ones: logits of policies that are played throughout.
STARTS = {
    "random": None,
    "extortion": (-3.0, 2.0, -1.0, 0.0, -3.0),  # near the extortioners of Press and Dyson (2012)
    "tit_for_tat": (2.0, 2.0, -2.0, 2.0, -2.0),
    "defection": (-2.0, -2.0, -2.0, -2.0, -2.0),
}


class Bound(NamedTuple):
    """The best sequences that were found, one for each initial state."""

    shaper_payoffs: jax.Array  # `[states]`, mean over the trial
    opponent_payoffs: jax.Array  # `[states]`
    policies: jax.Array  # `[states, meta_steps, logits]`, logits
    start: jax.Array  # `[states]`, the number of the start that led there
    by_start: jax.Array  # `[starts, states]`, the shaper's payoff from each
    history: np.ndarray  # `[iterations]`, mean over states of the best start's payoff so far in the ascent


def white_box_bound(
    key: jax.Array,
    game: InfinitelyRepeated,
    opponent: Learner,
    *,
    meta_steps: int = 100,
    num_states: int = 64,
    iterations: int = 600,
    learning_rate: float = 0.1,
    store: Store | None = None,
    report: Report | None = None,
    checkpoint_seconds: float = 15.0,
) -> Bound:
    """Ascends the shaper's mean payoff over a trial, on its sequence of policies, from several starts.

    The initial states are those of `play_trials` with the same key and number of trials, so that a shaper's payoffs
    there can be compared trial by trial. Draws of a learner that samples differ from those there.

    Args:
      key: of the initial states.
      game: whose first agent is the shaper.
      opponent: a learner whose update is differentiable by the co-player's policy.
      meta_steps: learning steps of the opponent that count.
      num_states: how many initial states.
      iterations: steps of Adam.
      learning_rate: of Adam, on logits; it falls to zero along half a cosine.
      store: keeps metrics and checkpoints, and gives back those of a run that was stopped.
      report: called as `report(iterations so far, {"shaper_return": ...}, seconds of running)` by the host.
      checkpoint_seconds: as of `iterate`.
    """
    n = game.num_logits
    keys, noise_key = jax.random.split(key, num_states), jax.random.fold_in(key, NOISE)
    fixed = [jnp.zeros(n) if start is None else jnp.asarray(start[:n]) for start in STARTS.values()]
    scales = jnp.asarray([1.0 if start is None else 0.1 for start in STARTS.values()])
    noise = jax.random.normal(noise_key, (len(fixed), num_states, meta_steps, n)) * scales[:, None, None, None]
    starts = jnp.stack(fixed)[:, None, None, :] + noise
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, iterations))

    def loss(sequence: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        own, other = play_sequence(key, game, opponent, sequence)
        return -own, other

    batched = jax.vmap(jax.vmap(scalarize(jax.value_and_grad(loss, has_aux=True))), (0, None))

    def step(keys: jax.Array, iteration: jax.Array, carry: Any) -> tuple[Any, dict[str, jax.Array]]:
        del iteration  # nothing is drawn
        sequences, state, best = carry
        (losses, others), gradients = batched(sequences, keys)
        best = jax.tree.map(partial(_better, losses < best[1]), (sequences, losses, others), best)  # Adam overshoots
        updates, state = optimiser.update(jax.tree.map(_finite, gradients), state)
        return (optax.apply_updates(sequences, updates), state, best), {"shaper_return": -best[1].min(0).mean()}

    nothing = jnp.full(starts.shape[:2], jnp.inf)
    found = iterate(
        step,
        (starts, optimiser.init(starts), (starts, nothing, nothing)),
        keys,
        iterations,
        store=store,
        report=report,
        checkpoint_seconds=checkpoint_seconds,
    )
    policies, losses, others = found.state[2]
    best, each = jnp.argmin(losses, axis=0), jnp.arange(num_states)
    return Bound(
        -losses[best, each], others[best, each], policies[best, each], best, -losses, found.metrics["shaper_return"]
    )


def _better(better: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(better.reshape(better.shape + (1,) * (new.ndim - better.ndim)), new, old)


def _finite(gradient: jax.Array) -> jax.Array:
    """A long trajectory of a learner that shapes may explode; what is not finite does not move."""
    return jnp.clip(jnp.nan_to_num(gradient, posinf=0.0, neginf=0.0), -1.0, 1.0)


def play_sequence(
    key: jax.Array, game: InfinitelyRepeated, opponent: Learner, sequence: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean payoffs (shaper's, opponent's) of a fixed sequence of policies `[meta_steps, logits]`, differentiable.

    The same trial as `play` with this key: the first step is random and does not count.
    """
    _, run_key, first_key, state_key = jax.random.split(key, 4)
    first, state = jax.random.normal(first_key, (game.num_logits,)), opponent.init(state_key)

    def step(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        policy, step_key = inputs
        payoffs = game.values(0, policy, state.logits)
        own, other = ((1 - game.discount) * value for value in payoffs)
        nothing = jnp.zeros((1,))
        obs = jax.nn.sigmoid(jnp.concatenate([state.logits, policy]))[None]
        trajectory = Trajectory(
            obs, state.logits[None], other[None], nothing > 0, (), (policy[None],), nothing > 0, obs
        )
        state, _ = opponent.update(step_key, state, trajectory)
        return state, (own, other)

    # The way back computes each step again: what XLA need not store it need not compute many times over (`scalarize`),
    # which makes the gradient through a LOLA learner three times as fast to compile and twice as fast to run.
    policies = jnp.concatenate([first[None], sequence])
    inputs = policies, jax.random.split(run_key, len(policies))
    _, (own, other) = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), state, inputs)
    return own[1:].mean(), other[1:].mean()


class KnownBound(NamedTuple):
    """What is known of a setting, as mean payoffs of the shaper over a trial."""

    naive_return: float  # of a naive learner in the shaper's seat
    bound: float
    bound_standard_error: float  # over initial states


def known_bound(game: InfinitelyRepeated, opponent: str, meta_steps: int) -> KnownBound | None:
    """The bound that comes with the library for a game, an opponent and a number of meta-steps; None without."""
    file = SHIPPED / file_name(game.payoffs.name, opponent)
    if not file.is_file():
        return None
    arrays, metadata = load(file)
    settings = metadata["config"]
    same = settings["opponent"] == opponent and settings["meta_steps"] == meta_steps
    if not same or metadata["game"] != describe(game) or metadata.get("opponent_files", []) != read_by(opponent, game):
        return None
    return _known(arrays)


def _known(arrays: Arrays) -> KnownBound:
    payoffs = arrays["shaper_payoffs"]
    error = float(payoffs.std(ddof=1) / len(payoffs) ** 0.5)
    return KnownBound(float(arrays["naive_payoffs"].mean()), float(payoffs.mean()), error)


def file_name(game: str, opponent: str) -> str:
    """Of the bound of a game against an opponent."""
    return f"bound-{game}-{re.sub(r'[^A-Za-z0-9.=]+', '-', opponent).strip('-')}.safetensors"


@dataclasses.dataclass(frozen=True)
class BoundConfig(TrainingConfig):
    """The ascent of a shaper's sequences of policies."""

    opponent: str = "naive"
    """Any opponent of python -m marl.mfos whose update is differentiable by the co-player's policy."""
    meta_steps: int = 100
    """Learning steps of the opponent in a trial."""
    num_states: int = 64
    """Initial states."""
    iterations: int = 600
    """Steps of Adam from each start."""
    learning_rate: float = 0.1
    """Of Adam, on logits; it falls to zero along half a cosine."""
    naive_trials: int = 4096
    """Trials of a naive learner in the shaper's place, for comparison."""

    def __post_init__(self) -> None:
        super().__post_init__()
        opponent = make_learner(self.opponent, self.make_game(), 1, field="opponent")
        if not hasattr(jax.eval_shape(opponent.init, jax.random.key(0)), "logits"):
            raise ValueError(f"opponent: got {self.opponent!r}; a learner that is one policy is needed")
        if blind := re.search(r"\b(best_response|q_learning|reinforce|tabular_ppo)\b", self.opponent):
            raise ValueError(f"opponent: got {self.opponent!r}; no gradient comes through the learning of {blind[0]}")
        configs.check_least(self, num_states=2)

    def needed(self) -> dict[str, float]:
        of_logits = 20.0 * self.meta_steps
        sequences = 4 * len(STARTS) * self.num_states * of_logits  # with their gradients and Adam's two moments
        return {"num_states": sequences, "naive_trials": 8.0 * self.naive_trials * self.meta_steps}

    @property
    def may_rise(self) -> dict[str, list[str]]:
        """How long the ascent is, and what falls over it."""
        return {"iterations": ["learning_rate"]}

    @property
    def may_change(self) -> tuple[str, ...]:
        """Fields of the evaluation."""
        return ("naive_trials",)

    def positive(self) -> tuple[str, ...]:
        return "meta_steps", "iterations", "learning_rate", "naive_trials"


def find_bound(config: BoundConfig, run: RunDirectory, console: Console) -> None:
    """Finds the bound of a setting, says where it came from, and writes it to a file."""
    game, key = config.make_game(), jax.random.key(config.seed)
    opponent = make_learner(config.opponent, game, 1, field="opponent")
    steps = len(STARTS) * config.num_states * config.meta_steps
    console.print(
        f"{many(config.iterations, 'ascent')} of {len(STARTS)} x {config.num_states} sequences of {config.meta_steps} "
        f"{'policy' if config.meta_steps == 1 else 'policies'}",
        highlight=False,
    )

    def describe(metrics: dict[str, np.ndarray]) -> str:
        return f"mean of the best sequences {metrics['shaper_return']:.4f}"

    with Progress(console, config.iterations, steps, "meta-steps", describe) as progress:
        found = white_box_bound(key, game, opponent, **config.settings(white_box_bound), store=run, report=progress)
    arrays = {
        "shaper_payoffs": np.asarray(found.shaper_payoffs),
        "opponent_payoffs": np.asarray(found.opponent_payoffs),
        "by_start": np.asarray(found.by_start),
        "naive_payoffs": _naive_payoffs(key, game, opponent, config),
    }
    known = _known(arrays)
    table = Table(title="shaper's average payoff per round, over the opponent's learning", title_justify="left")
    for column in ("", "payoff", "better than the other starts"):
        table.add_column(column, justify="left" if not column else "right")
    best = np.bincount(np.asarray(found.start), minlength=len(STARTS)) / config.num_states
    for name, payoffs, share in zip(STARTS, arrays["by_start"], best, strict=True):
        table.add_row(f"from {name.replace('_', ' ')}", f"{payoffs.mean():.3f}", f"{share:.0%} of the states")
    table.add_row("[bold]bound: the best of each state", f"{known.bound:.3f} ± {known.bound_standard_error:.3f}", "")
    table.add_row("a naive learner in the shaper's place", f"{known.naive_return:.3f}", "")
    console.print(table)
    about = {"jax": jax.__version__, "opponent_files": read_by(config.opponent, game)}
    write(run, console, "bound", config, arrays, about)


def _naive_payoffs(key: jax.Array, game: InfinitelyRepeated, opponent: Learner, config: BoundConfig) -> np.ndarray:
    def payoff(key: jax.Array) -> jax.Array:
        history = play(key, game, make_learner("naive", game), opponent, meta_steps=config.meta_steps)
        return history.rewards[0][1:].mean()

    program = jax.jit(jax.vmap(scalarize(payoff)), compiler_options=compiler_options())
    return np.asarray(program(jax.random.split(key, config.naive_trials)))
