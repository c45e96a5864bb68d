"""Every learner by its name, for every game: `make_learner("lola(learning_rate=0.5)", game, 1)`, and whole populations.

Which learner a name means depends on the kind of game. A formula, `InfinitelyRepeated`, is played by policies that see
it through and by samplers of their own; any other game is played step by step.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
import optax

from configs import shown
from configs.plugins import load
from configs.specs import Range, Registry, Setting, grouped, naming, settings_of
from configs.specs import terms as terms
from games import Differentiable, Game, InfinitelyRepeated
from games.core.arguments import check_game
from games.core.game import Scalar
from games.exact.strategies import STRATEGIES, formula_of
from marl.blocks.distributions import distribution
from marl.blocks.networks import Network, convolutional, feed_forward, nature, recurrent
from marl.blocks.objectives import Objective, Timed, clipped_surrogate
from marl.blocks.sparse import make_sparsity
from marl.blocks.value_losses import ValueLoss
from marl.core.learner import Learner
from marl.learners.exact import factories, model_free
from marl.learners.exact.best_response_shaping import best_response_shaping
from marl.learners.exact.cola import cola_opponent
from marl.learners.exact.fixed import memory_one
from marl.learners.exact.meta_value import meva_opponent
from marl.learners.exact.mmaml import mmaml
from marl.learners.exact.population import Member, population
from marl.learners.sampled import dice
from marl.learners.sampled.alignment import advantage_alignment, proximal_advantage_alignment
from marl.learners.sampled.dqn import ape_x, dqn
from marl.learners.sampled.fixed import always_cooperate, always_defect, play_memory_one, random
from marl.learners.sampled.impala import a3c, impala
from marl.learners.sampled.lola_dice import lola_dice, pola_dice
from marl.learners.sampled.loqa import loqa
from marl.learners.sampled.mappo import JointSpaces, mappo
from marl.learners.sampled.objective_registry import make_objective, make_value_loss
from marl.learners.sampled.ppi import ppi
from marl.learners.sampled.ppo import ONE_STEP, a2c, ppo
from marl.learners.sampled.pqn import pqn
from marl.learners.sampled.r2d2 import r2d2
from marl.learners.sampled.reciprocator import reciprocator
from marl.learners.sampled.sac import sac
from marl.learners.sampled.td3 import td3
from marl.trained.catalogue import PREFIX

Kind = Literal["formula", "sampled"]
Make = Callable[..., Learner]  # (game, seat, **settings) -> learner

_GIVEN = ("num_updates",)  # known from `learn`, and no setting
_SHAPERS = "marl.shapers.registry"  # an untrained shaper is a learner too
_AGENTS = "marl.experiments.shaping.agents"  # and so is a trained one, `hub:NAME`


def _plugins() -> None:
    load("learners", register_learner)
    importlib.import_module(_SHAPERS).load_plugins()  # an untrained shaper is a learner


FORMULA: Registry[Learner] = Registry("naive", given=_GIVEN, ranges=True, more=_SHAPERS, plugins=_plugins)
SAMPLED: Registry[Learner] = Registry("ppo", given=_GIVEN, more=_SHAPERS, plugins=_plugins)
FORMULA.elsewhere = {"games that are sampled, such as games.make('ipd'),": SAMPLED}
SAMPLED.elsewhere = {"games that are formulas, such as InfinitelyRepeated,": FORMULA}
NETWORKS: Registry[Network] = Registry("feed_forward", given=("num_scales",))  # of `(obs_shape, num_outputs)`


def make_learner(
    spec: str,
    game: Game,
    seat: int = 0,
    *,
    num_updates: int | None = None,
    alone: bool = False,
    field: str = "learner",
    traced: Mapping[str, Any] | None = None,
) -> Learner:
    """A learner from its name, or its name with settings: `naive`, `zd(chi=2)`, `ppo(hidden=[32], anneal=True)`.

    All learners with a network, such as ppo, dqn or loqa, take `network`, which is feed_forward, recurrent, or of
    images convolutional or nature (dqn and ape_x take no memory, r2d2 nothing without one), the settings of that beside
    its own, and `anneal`, with which the learning rate falls on a straight line to 0 at the optimiser's last step, as
    if every update had its steps (dqn, ape_x and r2d2 have none before `learning_starts`, and end above 0):
    `ppo(network='recurrent', hidden=[32], memory=32)`, or `r2d2(network='nature', memory=512)`. With `sparsity`, as in
    `ppo(sparsity='rigl(density=0.1, until=5_000)')`, which all but loqa take, few of its weights are there, as of
    `marl.blocks.sparse`; td3 and sac take that too, and no network. The members of a group of settings, which is a dict
    in Python as in `dqn(game, replay={"buffer_size": 64})`, stand beside the others: `dqn(buffer_size=64)`.

    In a repeated game of two players and actions, five numbers, as in `0.9,1,0,1,0`, are a memory-one policy. Several
    specs with a plus between them are a population, of which one is drawn for each trial: `naive + lola + tft`. A
    number that is given as two in brackets is drawn for each trial too, evenly on a logarithmic scale if both are above
    0: `naive(learning_rate=[0.1, 3])`. A shaper's name is an untrained shaper, drawn for each trial.

    Args:
      spec: values of settings are Python's literals.
      game: what is played.
      seat: the player's number among the game's agents.
      num_updates: as of `learn`; `anneal` needs it.
      alone: of a population, as of `population`.
      field: what the spec is of, for messages.
      traced: settings in place of the spec's, for one learner alone; numbers among them may be traced.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed, or a game that
        the learner cannot play.

    Example:
      >>> import games, jax, marl
      >>> learner = marl.make_learner("0.9,1,0,1,0", games.InfinitelyRepeated(games.prisoners_dilemma))
      >>> [round(float(p), 2) for p in jax.nn.sigmoid(learner.init(jax.random.key(0)).logits)]
      [0.9, 1.0, 0.0, 1.0, 0.0]
    """
    check_seat(field, game, seat)
    if not isinstance(spec, str):
        raise ValueError(f"{field}: got {shown(spec)}; a name such as naive or ppo(hidden=[32]) is needed")
    if traced:
        return _with_traced(field, spec, game, seat, num_updates, traced)._replace(seat=seat)
    return _make(field, spec, game, seat, num_updates, alone)._replace(seat=seat)


def _make(field: str, spec: str, game: Game, seat: int, num_updates: int | None, alone: bool) -> Learner:
    if spec.startswith(PREFIX):
        try:
            trained = importlib.import_module(_AGENTS).make_agent(spec, game, seat)
        except ValueError as error:
            raise ValueError(f"{field}: {str(error).removeprefix('agent: ')}") from None
        return trained.learner(trained.parameters)
    if not isinstance(game, InfinitelyRepeated):
        return _registry(game, spec).make(field, _named(spec), game, seat, num_updates=num_updates)
    members = [_member(field, one.strip(), game, seat, num_updates) for one in terms(spec)]
    if len(members) == 1 and not members[0].ranges:
        return members[0].make({})
    for member, one in zip(members, terms(spec), strict=True):
        drawn = {setting: low for setting, (low, _) in member.ranges.items()}
        if not hasattr(jax.eval_shape(member.make(drawn).init, jax.random.key(0)), "logits"):
            raise ValueError(f"{field}: {one.strip()}: one policy, as members of a population have, is needed")
    return population(members, alone=alone)


def _with_traced(
    field: str, spec: str, game: Game, seat: int, num_updates: int | None, traced: Mapping[str, Any]
) -> Learner:
    registry = _registry(game, spec)
    name, given = registry.read(field, _named(spec))
    if unknown := next((setting for setting in traced if setting not in registry.settings(name)), None):
        raise ValueError(f"{field}: {name} has no setting {shown(unknown)}")
    with naming(field, name):
        return registry.build(name, given | dict(traced), game, seat, num_updates=num_updates)


def register_learner(name: str, factory: Make, *, kind: Kind | None = None, replace: bool = False) -> None:
    """Makes a learner of your own known by a name, on every command line of a program that does so first, too.

    Args:
      name: letters, digits, hyphens and underscores, a letter first.
      factory: `(game, seat, **settings) -> Learner`. Its keyword-only parameters are the settings of a spec, their
        type hints and defaults what these may be. A keyword `num_updates` is what `make_learner` was given.
      kind: the games that it plays, formula or sampled; None for both.
      replace: whether the name may be taken.

    Raises:
      ValueError: for a name that no spec can have, or that is taken.
    """
    check_kind(kind, ("formula", "sampled", None))
    registries = {"formula": [FORMULA], "sampled": [SAMPLED], None: [FORMULA, SAMPLED]}[kind]
    # Where it may be taken comes first: an error changes nothing.
    for registry in sorted(registries, key=lambda registry: name not in registry):
        registry.register(name, factory, replace=replace)


def check_kind(kind: Any, allowed: Sequence[Kind | None]) -> None:
    """Raises ValueError for what is no kind of games that a registered player may play."""
    if not isinstance(kind, str | None) or kind not in allowed:
        names = ", ".join(one or "None for both" for one in allowed)
        raise ValueError(f"kind: got {shown(kind)}; one of {names} is needed (formula is that of exact games)")


def settings(name: str, game: Game) -> dict[str, Any]:
    """The settings of a learner of a game, with their defaults."""
    return {setting: default for setting, (_, default) in _registry(game, name).settings(name).items()}


def check_seat(field: str, game: Game, seat: int) -> None:
    """Raises ValueError for a seat that a game does not have, TypeError for what is no game."""
    check_game(game)
    if isinstance(seat, bool) or not isinstance(seat, int | np.integer) or seat not in range(game.num_agents):
        raise ValueError(f"{field}: seat: got {shown(seat)}; one of 0 to {game.num_agents - 1} is needed")


def _registry(game: Game, spec: str) -> Registry[Learner]:
    """The registry of a learner, by its name or its spec."""
    white_box = isinstance(game, Differentiable) and spec.partition("(")[0].strip() in WHITE_BOX
    return FORMULA if isinstance(game, InfinitelyRepeated) or white_box else SAMPLED


def _named(spec: str) -> str:
    """A spec of numbers alone as that of the strategy with these probabilities."""
    return f"memory_one(probabilities=[{spec}])" if spec[:1].isdigit() or spec[:1] == "." else spec


def _member(field: str, spec: str, game: InfinitelyRepeated, seat: int, num_updates: int | None) -> Member:
    name, given = FORMULA.read(field, _named(spec))
    ranges = {setting: (x.low, x.high) for setting, x in given.items() if isinstance(x, Range)}
    fixed = {setting: x for setting, x in given.items() if setting not in ranges}

    def make(drawn: dict[str, Any]) -> Learner:
        with naming(field, name):
            return FORMULA.build(name, fixed | drawn, game, seat, num_updates=num_updates)

    # What does not fit is said now: at the ends of all ranges (once if there are none), and where values are traced.
    for ends in itertools.product(*ranges.values()):
        make(dict(zip(ranges, ends, strict=True)))
    if ranges:
        try:
            jax.eval_shape(lambda drawn: make(drawn).init(jax.random.key(0)), dict.fromkeys(ranges, 0.0))
        except (TypeError, ValueError):
            message = f"{field}: {name}: {', '.join(ranges)}: cannot be drawn for each trial"
            raise ValueError(f"{message}; a plain number is needed") from None
    return Member(make, ranges)


def _memory_one(name: str) -> Make:
    """A memory-one strategy of `games.exact.strategies` in a formula."""
    factory = STRATEGIES.factory(name)

    @functools.wraps(factory)
    def make(game: InfinitelyRepeated, seat: int, **settings: Any) -> Learner:
        return memory_one(factory(game, seat, **settings)[: game.num_logits])

    return make


def _memory_one_in_rounds(name: str) -> Make:
    """The same in a sampled game, where it draws an action in every round."""
    factory = STRATEGIES.factory(name)

    @functools.wraps(factory)
    def make(game: Game, seat: int, **settings: Any) -> Learner:
        formula = formula_of(game)
        if (memory := getattr(game, "memory", 1)) != 1:
            raise ValueError(f"got {game.name} with a memory of {memory} rounds; one of a single round is needed")
        probabilities = tuple(factory(formula, seat, **settings))
        return play_memory_one(probabilities * 5 if len(probabilities) == 1 else probabilities)  # one in a single round

    return make


def _axelrod(game: InfinitelyRepeated, seat: int, *, name: str = "") -> Learner:
    """A strategy of the Axelrod library, as it plays that library's own game."""
    try:
        from marl.learners.exact.axelrod import strategy  # an optional library, which takes seconds to import
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None
    return memory_one(strategy(name)[: game.num_logits])


def _ppo(
    game: Game,
    seat: int,
    *,
    clip: Scalar = 0.2,
    objective: str | Objective | Timed = "clipped",
    value_loss: str | ValueLoss | None = None,
    num_updates: int | None = None,
    **settings: Any,
) -> Learner:
    """PPO with an objective and a value's loss that are functions, or named, or in files."""
    if objective != "clipped" and clip != 0.2:
        raise ValueError(f"clip: got {clip}; it is of the objective clipped, and of no other")
    value_clip = settings.get("details", {}).get("value_clip", 0.2)
    if value_loss is not None and value_clip is not None and value_clip != 0.2:
        raise ValueError(f"value_clip: got {value_clip}; it is of the loss without value_loss, and of no other")
    if objective == "clipped":
        objective = clipped_surrogate(clip=clip)
    elif isinstance(objective, str):
        objective = make_objective(objective)
    if isinstance(objective, Timed):
        objective = objective._replace(num_updates=num_updates)
    if isinstance(value_loss, str):
        value_loss = make_value_loss(value_loss)
    return ppo(game, seat, objective=objective, value_loss=value_loss, **settings)


def _register_deep(
    name: str,
    *factories: Callable[..., Learner],
    without: Sequence[str] = (),
    central: bool = False,
    **defaults: Any,
) -> None:
    """A learner with a network.

    Args:
      name: of the learner.
      *factories: the one that makes it, and those to which it hands its keywords on.
      without: settings of the latter that it leaves out.
      central: whether it has a critic of the same kind that sees all observations.
      **defaults: of its settings and of its network's, where they differ from theirs.
    """
    default_network = defaults.pop("network", "feed_forward")
    own = {name: setting for name, setting in settings_of(*factories, **defaults).items() if name not in without}

    def of_all() -> dict[str, Setting]:
        networks = [NETWORKS.settings(network) for network in (default_network, *NETWORKS.names())]
        found = own | {name: setting for name, setting in settings_of(make).items() if name not in without}
        for setting, (hint, default) in (pair for network in networks for pair in network.items()):
            found.setdefault(setting, Setting(hint, defaults.get(setting, default)))
        return found

    def make(
        game: Game,
        seat: int,
        *,
        anneal: bool = False,
        network: str = default_network,
        sparsity: str | None = None,
        num_updates: int | None = None,
        **settings: Any,
    ) -> Learner:
        of_learner = {setting: default for setting, (_, default) in own.items()}
        of_learner |= {setting: x for setting, x in settings.items() if setting in own}
        of_learner |= {"num_updates": num_updates} if "num_updates" in own else {}
        of_learner |= {"sparsity": make_sparsity(sparsity)} if sparsity else {}
        if anneal:
            if num_updates is None:
                raise ValueError("anneal: got True; the number of updates, num_updates, is needed")
            parts = (of_learner.get(part, 1) for part in ("epochs", "minibatches", "gradient_steps"))
            rate = optax.linear_schedule(of_learner["learning_rate"], 0.0, num_updates * math.prod(parts))
            of_learner["learning_rate"] = rate
        of_network = {setting: x for setting, x in settings.items() if setting not in own}
        made = _network(network, defaults, of_network, game, seat)
        if central:
            of_learner["critic"] = _network(network, defaults, of_network, JointSpaces(game), seat)
        return factories[0](game, seat, network=made, **grouped(of_learner, *factories))

    SAMPLED.register(name, make, settings=of_all)


def _register_continuous(name: str, factory: Callable[..., Learner]) -> None:
    """A learner of actions that are numbers, which makes its networks itself."""

    def make(
        game: Game, seat: int, *, sparsity: str | None = None, critic_sparsity: str | None = None, **settings: Any
    ) -> Learner:
        named = {"sparsity": sparsity, "critic_sparsity": critic_sparsity}
        sparsities = {name: make_sparsity(spec) for name, spec in named.items() if spec}
        return factory(game, seat, **grouped(settings, factory), **sparsities)

    SAMPLED.register(name, make, settings=lambda: settings_of(factory, make))


def _network(spec: str, defaults: dict[str, Any], given: dict[str, Any], game: Game, seat: int) -> Network:
    """A network for what a player sees and does; defaults that it does not have are left out."""
    seen = game.observation_space(game.agents[seat])
    if not hasattr(seen, "shape"):
        raise ValueError(f"observations: got {seen}; an array is needed")
    name, inside = NETWORKS.read("network", spec)
    allowed = NETWORKS.settings(name)
    for setting in given:
        if setting not in allowed:
            raise ValueError(f"{setting}: a {name} network has none; it has {', '.join(allowed)}")
    if name in ("convolutional", "nature") and not getattr(seen, "image", False):
        raise ValueError(f"network: got observations {seen.shape}; images [height, width, channels] are needed")
    chosen = {setting: x for setting, x in defaults.items() if setting in allowed} | inside | given
    actions = distribution(game.action_space(game.agents[seat]))
    return NETWORKS.build(name, chosen, seen.shape, actions.num_outputs, num_scales=actions.num_scales)


for _network_factory in (feed_forward, convolutional, recurrent, nature):
    NETWORKS.register(_network_factory.__name__, _network_factory)

WHITE_BOX = ("naive", "lookahead", "lola", "hola", "sos", "cgd", "sga", "pola")  # they play `Differentiable` games too
_formula: dict[str, Make] = {
    **{name: getattr(factories, name) for name in WHITE_BOX},
    "cola": cola_opponent,
    "meva": meva_opponent,
    "mmaml": mmaml,
    "reinforce": model_free.reinforce,
    "tabular_ppo": model_free.tabular_ppo,
    "q_learning": model_free.q_learning,
    "best_response": model_free.best_response,
    "best_response_shaping": best_response_shaping,
    **{name: _memory_one(name) for name in STRATEGIES.names()},
    "axelrod": _axelrod,
}
for _name, _factory in _formula.items():
    FORMULA.register(_name, _factory)
FORMULA.register("exact_lola", factories.hola, order=1)
FORMULA.register("hola2", factories.hola, order=2)

_register_deep("ppo", _ppo, ppo)
_register_deep("mappo", mappo, ppo, central=True)
_register_deep("a2c", a2c, ppo, without=ONE_STEP)
_register_deep("advantage_alignment", advantage_alignment, ppo, without=ONE_STEP)
_register_deep("proximal_advantage_alignment", proximal_advantage_alignment, ppo)
_register_deep("loqa", loqa, without=["sparsity"])
_register_deep("dqn", dqn, shared=True)
_register_deep("ape_x", ape_x, dqn, shared=True)
_register_deep("pqn", pqn, shared=True, hidden=[128, 128], activation="relu", layer_norm=True)
_register_deep("r2d2", r2d2, network="recurrent")
_register_deep("impala", impala)
_register_deep("a3c", a3c)
_register_continuous("td3", td3)
_register_continuous("sac", sac)
# A table of logits and one of values, where observations are one-hot; the rates are those at which two of them defect
# within a hundred episodes of the prisoner's dilemma.
_table: dict[str, Any] = {"hidden": [], "shared": True, "learning_rate": 0.1, "epochs": 4, "minibatches": 1}
_register_deep("tabular_ppo", _ppo, ppo, **_table, discount=0.96)
_register_deep("reciprocator", reciprocator, ppo, hidden=[], shared=True)
_sampled: dict[str, Make] = {
    "reinforce": dice.reinforce,
    "naive_dice": dice.naive_dice,
    "lola_dice": lola_dice,
    "pola_dice": pola_dice,
    "ppi": ppi,
    "always_cooperate": always_cooperate,
    "always_defect": always_defect,
    **{name: _memory_one_in_rounds(name) for name in STRATEGIES.names()},
    "random": random,
}
for _name, _factory in _sampled.items():
    SAMPLED.register(_name, _factory)
