"""Methods of the bench: shapers, learners, trained agents, and functions of a user's package."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np

from configs import plugins, shown
from configs.specs import first_line
from games import InfinitelyRepeated, MatrixGame
from marl.bench.protocol import META_STEPS, Budget, Games, all_games, make_opponent, tasks
from marl.core.learner import Learner
from marl.experiments.shaping.agents import AGENT_FILE, Agent, is_path, load_shaper
from marl.experiments.shaping.config import ExactShapingConfig
from marl.experiments.shaping.initialisation import LARGEST_FACTOR, SCREENED, Screening, Start
from marl.learners.exact.trained import game_metadata
from marl.learners.registry import make_learner
from marl.learners.spec_dependencies import digests
from marl.shapers.registry import FORMULA as SHAPERS
from marl.shapers.registry import make_shaper
from marl.shapers.trial import shaping_trial
from marl.trained.catalogue import located
from meta import Outcome, evolve
from meta.loop import Report, Store
from meta.runs.array_files import digest, load_arrays
from meta.runs.progress import Progress
from meta.screening import BATCH
from meta.strategies import Evolution

UNTRAINED = "untrained"  # M-FOS with random parameters, drawn for each trial
Kind = Literal["shaper", "learner", "agent", "function"]
SPENDING = ("shaper", "function")  # kinds that use trials of the budget
Player = Learner | tuple[Callable[[Any], Learner], Any]


class Train(Protocol):
    """A method of one's own: `module:function` on the command line.

    Example:
      >>> import games, jax, marl
      >>> from marl.bench import Budget
      >>> def train(game, opponent, budget, key):  # a method that needs no training
      ...     return marl.make_learner("tft", game)
      >>> game = games.InfinitelyRepeated(games.prisoners_dilemma)
      >>> opponent = marl.make_learner("naive", game, seat=1)
      >>> type(train(game, opponent, Budget("small", 100, 64, 4), jax.random.key(0))).__name__
      'Learner'
    """

    def __call__(self, game: Any, opponent: Any, budget: Budget, key: jax.Array, /) -> Player:
        """Trains a player for the first seat of a game against an opponent in the second.

        Args:
          game: an `InfinitelyRepeated` 2 x 2 game, or in the sampled track a `Game`; `marl.shaping_trial` makes a trial
            of it, with `budget.lengths`.
          opponent: a learner, which begins a new trial with its `init`; a list of two in a game of three players.
          budget: the trials that the training may take, and their lengths.
          key: of all that is drawn.

        Returns:
          A `marl.Learner`; or `(make, parameters)` with `make(parameters)` a learner. The pair compiles one program for
          all trainings with one opponent, so `make` must use nothing else of its training, and the parameters of all
          trainings have the same shapes.

        It is called as plain Python, once for each training in each task, so what it compiles is compiled again for
        each, unless arrays such as the key are arguments of a function that outlives the call.
        """


class Trained(NamedTuple):
    """Some trainings of a method against one opponent.

    Attributes:
      learner: `(parameters, place) -> Learner` for the first seat of one game: an exact one by its `Games`, a sampled
        one by the name of its task.
      parameters: of all runs, `[runs, ...]`.
      runs: their numbers among the runs that were asked for.
    """

    learner: Callable[[Any, Any], Learner]
    parameters: Any
    runs: Sequence[int]


class Preparation(NamedTuple):
    """A training from the payoffs of the games alone, before the first opponent is met.

    Attributes:
      what: name of what is trained, in plural, for messages.
      iterations: of the training.
      steps: learning steps of an iteration in one task.
      seconds: time on one core of each training in each task.
    """

    what: str
    iterations: int
    steps: int
    seconds: float


class Method(NamedTuple):
    """A method that can be trained and played.

    Attributes:
      kind: of which kind it is.
      train: of the exact track `(opponent, chosen, games, budget, keys, store, report, numbers)`: the name of the
        opponent; the games of the runs, as a list and as arrays `[K, ...]`; keys `[K]`; two as of `evolve`; the numbers
        of the trainings. Of the sampled track `(task, opponent, budget, keys, store, report)`.
      trials: `(size, opponent, tasks)`: trials of a training against an opponent, in so many tasks; None for the
        budget of all.
      generations: `(budget)`: generations of an evolution.
      preparation: of a learner that is prepared for its games.
      trains_once: whether its trainings are those of all tasks, so that they have a store of their own.
    """

    kind: Kind
    train: Callable[..., list[Trained]]
    trials: Callable[[str, str, int], int] | None = None
    generations: Callable[[Budget], int] = lambda budget: budget.generations
    preparation: Preparation | None = None
    trains_once: bool = False

    @property
    def spends(self) -> bool:
        """True if it uses trials of the budget."""
        return self.kind in SPENDING


def make_method(spec: str) -> Method:
    """A method from its spec.

    Args:
      spec: a shaper such as `mfos`, which is trained; a learner such as `lola`, or a strategy such as `tft`;
        `untrained`; the run directory or the file of a trained shaper, or `hub:NAME`; or `module:function`.

    Raises:
      ValueError: if there is no such method, or if it does not fit; one line.
    """
    game = InfinitelyRepeated(tasks()["prisoners_dilemma"])
    if is_path(spec):
        return _agent(spec)
    if is_function(spec):
        return Method("function", partial(_call, spec, function_of(spec)))
    if spec.partition("(")[0].strip() in SHAPERS:
        make_shaper(spec, game, field="method")
        return Method("shaper", partial(train_shaper, spec))
    learner = "mfos" if spec == UNTRAINED else spec
    for name, payoffs in all_games().items():
        try:
            make_learner(learner, InfinitelyRepeated(payoffs), field="method")
        except ValueError as error:
            where = "" if name == game.payoffs.name else f", in {name}"
            raise ValueError(f"{first_line(error)}{where}{module_hint(spec)}") from None
    return Method("learner", partial(_no_training, learner))


def digest_of_files(spec: str) -> str:
    """The digest of the files that a method is made of: of an agent, of a module, or of those that a spec names."""
    if is_path(spec):
        file = Path(located(spec))
        return digest(load_arrays(file / AGENT_FILE if file.is_dir() else file)[0])
    if is_function(spec):
        plugins.search_here()
        source = importlib.util.find_spec(spec.partition(":")[0])
        return hashlib.sha256(Path(source.origin).read_bytes()).hexdigest() if source and source.origin else ""
    return "".join(digests(spec))


def is_function(spec: str) -> bool:
    """True for `module:function`."""
    return ":" in spec and not is_path(spec)


def source_of(spec: str) -> dict[str, Any]:
    """The code of a function, for its result: the installed packages that have it, and the digest of its file."""
    plugins.search_here()
    module = spec.partition(":")[0].partition(".")[0]
    found = importlib.util.find_spec(module)
    here = found is not None and Path(found.origin or "").is_relative_to(Path.cwd())
    packages = [] if here else importlib.metadata.packages_distributions().get(module, [])
    return {"packages": {name: importlib.metadata.version(name) for name in packages}, "sha256": digest_of_files(spec)}


def module_hint(spec: str) -> str:
    """The end of a message about an unknown method that is the name of a module; empty for another."""
    plugins.search_here()
    try:
        is_module = importlib.util.find_spec(spec) is not None
    except (ImportError, ValueError):
        is_module = False
    return f" A function of the module {spec} is written {spec}:train." if is_module else ""


def _no_training(spec: str, opponent: str, chosen: list[MatrixGame], games: Games, *_: Any) -> list[Trained]:
    """All games in one program; one for each game, where payoffs have to be known to make the learner."""

    def learner(parameters: Any, games: Games) -> Learner:
        del parameters
        return make_learner(spec, games.game, field="method")

    one = jax.tree.map(lambda x: x[0], games)
    try:
        jax.eval_shape(lambda games: learner((), games).init(jax.random.key(0)), one)
    except jax.errors.JAXTypeError:
        alike: dict[MatrixGame, list[int]] = {}
        for i, game in enumerate(chosen):
            alike.setdefault(game, []).append(i)
        return [
            Trained(lambda parameters, games, game=game: make_learner(spec, InfinitelyRepeated(game)), (), runs)  # type: ignore[misc]
            for game, runs in alike.items()
        ]
    return [Trained(learner, (), range(len(chosen)))]


def train_shaper(
    spec: str,
    opponent: str,
    chosen: list[MatrixGame],
    games: Games,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
    *_: Any,
    is_screened: bool = False,
) -> list[Trained]:
    """Evolves a shaper for each game and training.

    Args:
      spec: of the shaper.
      opponent: as of `Method.train`, like the arguments that follow.
      chosen: the games of the runs.
      games: the same as arrays.
      budget: of each training.
      keys: `[K]`.
      store: as of `evolve`.
      report: as of `evolve`.
      is_screened: whether a fifth of the trials chooses random parameters, where the evolution begins, with a sigma and
        a shaping of fitness that keep them.
    """

    def shaper_of(game: InfinitelyRepeated) -> Any:
        return make_shaper(spec, game, hidden_units=ExactShapingConfig.hidden_units)

    def trial(parameters: Any, key: jax.Array, own: Games) -> Outcome:
        outcome: Outcome = shaping_trial(
            own.game, shaper_of(own.game), make_opponent(opponent, own), meta_steps=META_STEPS
        )(parameters, key)
        return outcome

    init, start, settings, generations = shaper_of(InfinitelyRepeated(chosen[0])).init, None, {}, budget.generations
    if is_screened:
        sizes, generations = screening_of(budget)
        settings, screened = SCREENED, Start(sizes, LARGEST_FACTOR, "mean")
        screening = report.before(screened.describe) if isinstance(report, Progress) else None
        start = screened.make(trial, init, context=games, sigma=SCREENED["sigma"], report=screening)
    evolution = Evolution(population_size=budget.population, generations=generations, **settings)
    found = evolve(
        trial,
        init,
        keys,
        evolution,
        num_trials=budget.trials,
        store=store,
        report=report,
        context=lambda *_: games,
        start=start,
    )
    return [
        Trained(
            lambda parameters, games: shaper_of(games.game).learner(parameters), found.parameters, range(len(chosen))
        )
    ]


def screening_of(budget: Budget) -> tuple[Screening, int]:
    """The sizes of a screening by a fifth of a budget, and the generations that are left.

    Four fifths of its trials try candidates, and the others the best of them again.
    """
    trials, tried = budget.training_trials // 5, 8
    candidates = trials * 4 // 5 // tried
    candidates -= candidates % BATCH if candidates > BATCH else 0
    finalists = min(128, max(4, candidates // 32), candidates)
    sizes = Screening(candidates, tried, finalists, max(1, trials // 5 // max(1, finalists)))
    generations = budget.generations - -(-sizes.num_trials // (budget.population * budget.trials))
    if not finalists or generations < 1:
        raise ValueError(f"method: got a budget of {budget.training_trials} trials; more are needed for a screening")
    return sizes, generations


def agent_of(spec: str) -> Agent:
    """A trained shaper; raises ValueError, one line, if there is none."""
    try:
        return load_shaper(spec)
    except ValueError as error:
        raise ValueError(f"method: {str(error).removeprefix('agent: ')}") from None


def _agent(spec: str) -> Method:
    """A trained shaper, in the game of its training alone."""
    agent = agent_of(spec)
    if not isinstance(agent.config, ExactShapingConfig):
        raise ValueError(f"method: got {spec!r}, trained in a sampled game; one of an exact game is needed")
    wanted = game_metadata(agent.config.make_game())
    known = [name for name, game in all_games().items() if game_metadata(InfinitelyRepeated(game)) == wanted]
    if not known:
        raise ValueError(f"method: got {spec!r}, trained in a game that the bench does not have")

    def train(opponent: str, chosen: list[MatrixGame], games: Games, *_: Any) -> list[Trained]:
        runs = [i for i, game in enumerate(chosen) if game_metadata(InfinitelyRepeated(game)) == wanted]
        same = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(runs), *np.shape(x))), agent.parameters)
        return [Trained(lambda parameters, games: agent.learner(parameters), same, runs)]

    return Method("agent", train)


def function_of(spec: str) -> Train:
    """The function of `module:function`; raises ValueError, one line, if there is none."""
    module, _, name = spec.partition(":")
    plugins.search_here()
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"method: got {spec!r}; {first_line(error)}") from None
    needed = "a function of (game, opponent, budget, key) is needed"
    if not callable(function):
        raise ValueError(f"method: got {spec!r}; {needed}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a function in C
        return cast(Train, function)
    try:
        signature.bind(*range(4))
    except TypeError:
        raise ValueError(f"method: got {spec!r}, of {shown(str(signature))}; {needed}") from None
    return cast(Train, function)


def _call(
    spec: str,
    function: Train,
    opponent: str,
    chosen: list[MatrixGame],
    games: Games,
    budget: Budget,
    keys: jax.Array,
    store: Store | None,
    report: Report | None,
    numbers: Sequence[int],
) -> list[Trained]:
    del store, report
    each = [jax.tree.map(lambda x, i=i: x[i], games) for i in range(len(chosen))]
    calls = [
        (
            f"{game.name or 'the random game'} against {opponent}, seed {number}",
            partial(function, InfinitelyRepeated(game), make_opponent(opponent, own), budget, key),
        )
        for game, own, key, number in zip(chosen, each, keys, numbers, strict=True)
    ]
    return called(spec, calls)


def called(spec: str, calls: Sequence[tuple[str, Callable[[], Player]]]) -> list[Trained]:
    """Trainings from the players that a function of one's own returns.

    Args:
      spec: its name, for messages.
      calls: of each training, a description of it and the call.

    Raises:
      ValueError: for a player that does not fit, or one of another kind or shape than the first; one line.
      RuntimeError: for any error of the function, which is the cause.
    """
    found: list[Any] = []
    for place, call in calls:
        try:
            player = call()
            wrong = _misfit(player)
        except Exception as error:
            raise RuntimeError(f"{spec} failed in {place}") from error
        if not wrong and found and _shape(player) != _shape(found[0]):
            wrong = f"{_shape(player)}, after {_shape(found[0])} in {calls[0][0]}; the same shapes are needed"
        if wrong:
            raise ValueError(f"method: {spec} returned {wrong}, in {place}")
        found.append(player)
    if isinstance(found[0], Learner):
        return [
            Trained(lambda parameters, place, player=player: player, (), [i])  # type: ignore[misc]
            for i, player in enumerate(found)
        ]
    make = found[0][0]
    parameters = jax.tree.map(lambda *x: jnp.stack(x), *(pair[1] for pair in found))
    return [Trained(lambda parameters, place: make(parameters), parameters, range(len(found)))]


def _shape(player: Any) -> str:
    if isinstance(player, Learner):
        return "a learner"
    return f"parameters {jax.tree.map(lambda x: jnp.shape(x), player[1])}"


def _misfit(player: Any) -> str:
    """The reason that a returned player does not fit; empty if it fits."""
    needed = "a marl.Learner, or a pair of a function and its parameters, is needed"
    learner = player
    if not isinstance(player, Learner):
        if not (isinstance(player, tuple) and len(player) == 2 and callable(player[0])):
            return f"{shown(player)}; {needed}"
        make, parameters = player
        try:
            arrays = [jnp.asarray(x) for x in jax.tree.leaves(parameters)]
        except (TypeError, ValueError):
            return f"parameters that are no arrays; {needed}"
        if not all(np.isfinite(x).all() for x in arrays if jnp.issubdtype(x.dtype, jnp.inexact)):
            return "parameters that are not finite"
        learner = make(parameters)
    if not isinstance(learner, Learner):
        return f"a pair whose function makes {shown(learner)}; a marl.Learner is needed"
    return "" if learner.seat in (None, 0) else f"a learner for seat {learner.seat}; one for seat 0 is needed"
