"""Whoever sits down to play: a learner by its name, a trained shaper from its file; and one seat for any of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import configs
from games import InfinitelyRepeated, MatrixGame
from marl import tensors
from marl.config import ShapingConfig
from marl.learn import Learner, Metrics, Trajectory
from marl.opponents import OPPONENTS, make_opponent
from marl.self_play import annealing
from marl.shapers import SHAPERS
from marl.shaping import play
from meta import scalarize
from meta.loop import compiler_options

AGENT_FILE = "agent.safetensors"


class Agent(NamedTuple):
    """A player that can be put into a program: what varies between programs' calls is in `parameters`."""

    name: str
    learner: Callable[[Any], Learner]  # (parameters) -> learner
    parameters: Any = ()  # of a trained shaper; nothing for the others
    config: ShapingConfig | None = None  # how it was trained


def make_agent(spec: str, game: InfinitelyRepeated, player: int) -> Agent:
    """An agent from the spec of an opponent, as in `make_opponent`, or from the file or run of a trained shaper.

    Args:
      spec: a name, a name with settings, a population, five probabilities, or a path.
      game: what is played.
      player: the seat, 0 row or 1 column.

    Raises:
      ValueError: if there is no such agent, or if it was trained for another game or for the other seat; one line.
    """
    if not is_path(spec):
        make_opponent(spec, game, player)  # so that what does not fit is said now
        return Agent(spec, lambda parameters: make_opponent(spec, game, player))
    agent = load_agent(spec)
    assert agent.config is not None
    if tensors.describe(agent.config.make_game()) != tensors.describe(as_row(game, player)):
        seat = "" if game == as_row(game, 1) else f" in the {('row', 'column')[player]}'s seat"
        raise ValueError(f"agent: got {spec!r}, trained in another game than {_describe(game)}{seat}")
    return agent


def is_path(spec: str) -> bool:
    """Whether a spec means a file or a directory, and no name: a directory of an agent's name has to be `./name`."""
    if spec in OPPONENTS or spec in SHAPERS:
        return False
    return os.sep in spec or spec.endswith(".safetensors") or Path(spec).exists()


def as_row(game: InfinitelyRepeated, player: int) -> InfinitelyRepeated:
    """The game as it looks to a player who takes itself for the row: shapers are trained in that seat."""
    (own, other), payoffs = game.payoffs.seen_by(player), game.payoffs
    tables = [((p[0], p[1]), (p[2], p[3])) for p in (own, other)]
    return InfinitelyRepeated(MatrixGame(payoffs.name, *tables), game.discount)


def _describe(game: InfinitelyRepeated) -> str:
    payoffs = game.payoffs
    return f"{payoffs.name} with payoffs {payoffs.row_payoffs} and {payoffs.column_payoffs}, discount {game.discount}"


def save_agent(path: Path, config: ShapingConfig, parameters: Any) -> None:
    """Writes a trained shaper: its parameters as arrays by name, its config as data beside them.

    The file appears whole or not at all, in place of an older one.

    Args:
      path: the file.
      config: of the training.
      parameters: of the shaper, a pytree; with `config.seeds` above 1 all runs' parameters, `[seeds]` first.
    """
    metadata = {"method": "agent", "game": tensors.describe(config.make_game()), "config": configs.plain(config)}
    tensors.replace(path, parameters, metadata)


def load_agent(path: Path | str) -> Agent:
    """A trained shaper from its file, or from the directory of the run that trained it.

    Where several seeds were trained, the agent is one of them, drawn evenly for each trial.

    Raises:
      ValueError: if the file is missing, damaged or none of an agent; one line that names it.
    """
    file = Path(path) / AGENT_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(f"agent: got {str(path)!r}; a name, an agent's file or the directory of its run is needed")
    arrays, metadata = tensors.load(file)
    if metadata.get("method") != "agent":
        raise ValueError(f"agent: got {str(path)!r}; the file of a trained shaper is needed")
    config = configs.build(ShapingConfig, metadata.get("config"), str(file))
    shaper = config.make_shaper()
    several = () if config.seeds == 1 else (config.seeds,)
    like = jax.eval_shape(shaper.init, jax.random.key(0))
    shapes = {name: (*several, *leaf.shape) for name, leaf in tensors.named(like).items()}
    tensors.same_shapes(arrays, shapes, str(file))
    leaves = [jnp.asarray(arrays[name]) for name in shapes]
    parameters = jax.tree.unflatten(jax.tree.structure(like), leaves)
    make = partial(_any_seed, shaper.learner, config.seeds) if several else shaper.learner
    return Agent(str(path), make, parameters, config)


class SeedState(NamedTuple):
    """State of a shaper that is one of several trained alike."""

    which: jax.Array  # `[]`, its number
    state: Any


def _any_seed(make: Callable[[Any], Learner], seeds: int, parameters: Any) -> Learner:
    def one(which: jax.Array) -> Learner:
        return make(jax.tree.map(lambda x: x[which], parameters))

    def init(key: jax.Array) -> SeedState:
        which_key, state_key = jax.random.split(key)
        which = jax.random.randint(which_key, (), 0, seeds)
        return SeedState(which, one(which).init(state_key))

    def act(key: jax.Array, state: SeedState, obs: jax.Array) -> tuple[jax.Array, SeedState, Any]:
        action, inner, extras = one(state.which).act(key, state.state, obs)
        return action, SeedState(state.which, inner), extras

    def update(key: jax.Array, state: SeedState, trajectory: Trajectory) -> tuple[SeedState, Metrics]:
        inner, metrics = one(state.which).update(key, state.state, trajectory)
        return SeedState(state.which, inner), metrics

    return Learner(init, act, update)


def shaping_config(spec: str, game: InfinitelyRepeated, player: int, **settings: Any) -> ShapingConfig | None:
    """How a shaper is trained that is meant by its name: `mfos` against a naive learner, `mfos:lola` against lola.

    Args:
      spec: of an agent.
      game: what is played.
      player: the seat; the training is of the row, in the game as it looks from there.
      **settings: further fields of `ShapingConfig`.

    Returns:
      The config; None for whoever needs no training.

    Raises:
      ValueError: for an opponent that does not exist, or that is trained at the same time.
    """
    shaper, _, opponent = (part.strip() for part in spec.partition(":"))
    if shaper not in SHAPERS or is_path(spec):
        return None
    if annealing(opponent) is not None:
        raise ValueError(f"{spec}: self_play trains two at once; python -m marl.mfos does, and writes a file of each")
    seen = as_row(game, player).payoffs
    payoffs = {
        "row_payoffs": tuple(map(float, seen.row_payoffs)),
        "column_payoffs": tuple(map(float, seen.column_payoffs)),
    }
    fields: dict[str, Any] = {"game": seen.name, **payoffs, "discount": game.discount}
    return ShapingConfig(**fields, shaper=shaper, opponent=opponent or "naive", **settings)


def pair_program(game: InfinitelyRepeated, seats: Sequence[Sequence[Agent]], *, meta_steps: int) -> Any:
    """Every ordered pair as one program: who sits where is a number.

    Args:
      game: what is played.
      seats: the agents of the row's seat, and those of the column's.
      meta_steps: steps that are scored; one more comes first, in which whoever learns does so already.

    Returns:
      The jitted `(parameters, keys [trials], row, column) -> (row's, column's) mean payoffs [trials]`, with the
      parameters of all agents as `[[agent.parameters for agent in seat] for seat in seats]`.
    """

    def trial(parameters: Any, key: jax.Array, row: jax.Array, column: jax.Array) -> tuple[jax.Array, jax.Array]:
        players = [
            seat([agent.learner(p) for agent, p in zip(agents, theirs, strict=True)], which, game)
            for agents, theirs, which in zip(seats, parameters, (row, column), strict=True)
        ]
        rewards = play(key, game, players[0], players[1], meta_steps=meta_steps).rewards
        return rewards[0][1:].mean(), rewards[1][1:].mean()

    def program(parameters: Any, keys: jax.Array, row: jax.Array, column: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.vmap(scalarize(trial), (None, 0, None, None))(parameters, keys, row, column)

    return jax.jit(program, compiler_options=compiler_options())


class SeatState(NamedTuple):
    """State of whoever sits there."""

    logits: jax.Array  # `[logits]`, what others may see: the policy after learning; of a shaper the last one played
    memory: tuple[jax.Array, ...]  # the numbers of the state of the one who plays, and zeros
    key: jax.Array  # its own, for a reason given in `seat`
    step: jax.Array  # `[]`, how often it has updated


def seat(learners: Sequence[Learner], which: jax.Array, game: InfinitelyRepeated) -> Learner:
    """A learner that is the one of `learners` with the number `which`, a traced integer: one program for all of them.

    Only what is chosen runs, also in a batch of trials, as long as the batch shares the number. Given the same key,
    whoever draws nothing after its first policy goes exactly through the trial that it would go through by itself.

    Args:
      learners: players of `game`; extras of their actions are dropped.
      which: `[]`, below their number.
      game: what is played.
    """
    shapes = [jax.eval_shape(learner.init, jax.random.key(0)) for learner in learners]
    size = max(_size(shape) for shape in shapes)

    def choose(make: Callable[[int], Callable[..., Any]], *operands: Any) -> Any:
        return _switch(which, [make(i) for i in range(len(learners))], *operands)

    def public(state: Any, otherwise: jax.Array) -> jax.Array:
        return getattr(state, "logits", otherwise)

    def init(key: jax.Array) -> SeatState:
        def begin(i: int) -> Callable[..., Any]:
            def begin_one(key: jax.Array) -> Any:
                state = learners[i].init(key)
                return public(state, jnp.zeros(game.num_logits)), _pack(state, size)

            return begin_one

        logits, memory = choose(begin, key)
        # Not one of the keys that an `init` splits its own into.
        return SeatState(logits, memory, jax.random.fold_in(key, 2**32 - 1), jnp.zeros((), jnp.uint32))

    def act(key: jax.Array, state: SeatState, obs: jax.Array) -> tuple[jax.Array, SeatState, tuple]:
        # Keys that come from outside would be computed for those too who draw nothing, and cost more than a naive
        # learner's whole step; so they are made inside the branches, from a key that stays.
        del key

        def play(i: int) -> Callable[..., Any]:
            def play_one(key: jax.Array, step: jax.Array, logits: jax.Array, memory: Any, obs: jax.Array) -> Any:
                own = _unpack(memory, shapes[i])
                action, own, _ = learners[i].act(jax.random.fold_in(key, 2 * step), own, obs)
                return action, public(own, action), _pack(own, size)

            return play_one

        action, logits, memory = choose(play, state.key, state.step, state.logits, state.memory, obs)
        return action, state._replace(logits=logits, memory=memory), ()

    def update(key: jax.Array, state: SeatState, trajectory: Trajectory) -> tuple[SeatState, Metrics]:
        del key

        def learn(i: int) -> Callable[..., Any]:
            def learn_one(
                key: jax.Array, step: jax.Array, logits: jax.Array, memory: Any, trajectory: Trajectory
            ) -> Any:
                own = _unpack(memory, shapes[i])
                own, _ = learners[i].update(jax.random.fold_in(key, 2 * step + 1), own, trajectory)
                return public(own, logits), _pack(own, size)

            return learn_one

        logits, memory = choose(learn, state.key, state.step, state.logits, state.memory, trajectory)
        return SeatState(logits, memory, state.key, state.step + 1), {}

    return Learner(init, act, update)


def _switch(which: jax.Array, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`jax.lax.switch` between functions of small arrays, with scalars only inside and across the border.

    A branch that gives back an array would be one fusion of all its arithmetic, and not a fast one.
    """
    shapes = jax.eval_shape(branches[0], *operands)

    def taken_apart(branch: Callable[..., Any]) -> Callable[..., Any]:
        def once(*scalars: Any) -> Any:
            # `scalarize` works inside of loops; so this is a loop of one round.
            inputs = _together(scalars, operands)
            results = jax.lax.scan(lambda carry, _: (carry, _apart(branch(*inputs))), (), None, 1)[1]
            return [x[0] for x in results]

        return scalarize(once)

    return _together(jax.lax.switch(which, [taken_apart(branch) for branch in branches], *_apart(operands)), shapes)


def _is_whole(leaf: Any) -> bool:
    return not leaf.shape or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _apart(tree: Any) -> list[jax.Array]:
    """All numbers of all arrays, and keys as they are."""
    leaves = jax.tree.leaves(tree)
    return [
        x
        for leaf in leaves
        for x in ([leaf] if _is_whole(leaf) else map(leaf.reshape(-1).__getitem__, range(leaf.size)))
    ]


def _together(scalars: Sequence[jax.Array], like: Any) -> Any:
    """The pytree of the shapes of `like` that `_apart` took apart; numbers beyond its end are left out."""
    leaves, first = [], 0
    for leaf in jax.tree.leaves(like):
        if _is_whole(leaf):
            leaves.append(scalars[first])
            first += 1
        else:
            own = scalars[first : first + leaf.size]
            leaves.append(jnp.stack(own).reshape(leaf.shape) if leaf.size else jnp.zeros(leaf.shape, leaf.dtype))
            first += leaf.size
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _size(shape: Any) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shape))


def _pack(state: Any, size: int) -> tuple[jax.Array, ...]:
    """The numbers of a state as floats, and zeros up to `size`."""
    numbers = [_as_float(x) for x in _apart(state)]
    return (*numbers, *[jnp.zeros(())] * (size - len(numbers)))


def _as_float(x: jax.Array) -> jax.Array:
    x = jnp.asarray(x)
    if x.dtype in (jnp.int32, jnp.uint32):  # bit by bit, for not each of them is a float
        return jax.lax.bitcast_convert_type(x, jnp.float32)
    return x.astype(jnp.float32)


def _unpack(memory: Sequence[jax.Array], shape: Any) -> Any:
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(shape) for _ in range(leaf.size)]
    return _together([_from_float(x, dtype) for x, dtype in zip(memory, dtypes, strict=False)], shape)


def _from_float(x: jax.Array, dtype: Any) -> jax.Array:
    return jax.lax.bitcast_convert_type(x, dtype) if dtype in (jnp.int32, jnp.uint32) else x.astype(dtype)
