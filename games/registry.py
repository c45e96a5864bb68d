"""Every game by its name."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple, get_type_hints

import jax
import numpy as np

from configs import ConfigError, ContractError, one_of, plugins, shown
from configs.specs import NAME, first_line, read
from games.core.contract import check_contract
from games.core.game import Game
from games.core.modes import lenient
from games.exact import matrix
from games.suite import maps
from games.suite.playground import SUFFIX, from_playground


class Entry(NamedTuple):
    """A game's class, its default arguments, and one line about it."""

    factory: Callable[..., Game] | str  # or "module:name", imported when it is asked for
    params: dict[str, Any]
    description: str
    preset_of: str | None = None  # a game whose parameters these are, in another size


_MATRIX = {
    "ipd": (matrix.prisoners_dilemma, "iterated prisoner's dilemma"),
    "imp": (matrix.matching_pennies, "iterated matching pennies"),
    "chicken": (matrix.chicken, "iterated chicken, with a crash that costs 100"),
    "stag_hunt": (matrix.stag_hunt, "iterated stag hunt"),
    "battle_of_the_sexes": (matrix.battle_of_the_sexes, "iterated battle of the sexes"),
    "hawk_dove": (matrix.hawk_dove, "iterated hawk and dove"),
}

_ENTRIES: dict[str, Entry] = {
    **{name: Entry("suite.rounds:repeated", {"game": game}, words) for name, (game, words) in _MATRIX.items()},
    "rock_paper_scissors": Entry("suite.rounds:rock_paper_scissors", {}, "iterated rock, paper, scissors"),
    "matrix_game": Entry("suite.rounds:matrix_game", {}, "any payoffs, for any number of players and actions"),
    "three_player_ipd": Entry("suite.rounds:three_player_ipd", {}, "iterated prisoner's dilemma of three"),
    "public_goods": Entry(
        "suite.social_dilemmas:public_goods", {}, "n players give to a pot that is multiplied and shared"
    ),
    "volunteers_dilemma": Entry("suite.social_dilemmas:volunteers_dilemma", {}, "one volunteer of n players is enough"),
    "n_player_stag_hunt": Entry("suite.social_dilemmas:n_player_stag_hunt", {}, "a stag needs enough of n hunters"),
    "coin_game": Entry("suite.coin_game:CoinGame", {}, "coins of two colours; taking the other's costs its owner"),
    **{
        f"{name}_in_the_matrix": Entry(
            f"suite.in_the_matrix:{name}_in_the_matrix", {}, f"{words}, played in a gridworld"
        )
        for name, words in {
            "ipd": "prisoner's dilemma",
            "imp": "matching pennies",
            "chicken": "chicken",
            "stag_hunt": "stag hunt",
            "battle_of_the_sexes": "battle of the sexes",
            "hawk_dove": "hawk and dove",
            "rock_paper_scissors": "rock, paper, scissors",
        }.items()
    },
    "harvest": Entry(
        "suite.harvest:Harvest", {}, "apples that regrow where others are left: the tragedy of the commons"
    ),
    "cleanup": Entry("suite.cleanup:Cleanup", {}, "apples grow only while a player cleans the river"),
    "coop_mining": Entry("suite.coop_mining:CoopMining", {}, "iron for one, or gold for those that mine it together"),
    "mushrooms": Entry(
        "suite.mushrooms:Mushrooms",
        {},
        "mushrooms that pay their eater, all players, or all others",
    ),
    "gift_refinement": Entry(
        "suite.gift_refinement:GiftRefinement", {}, "tokens that are worth three times as much when given away"
    ),
    "territory": Entry("suite.territory:Territory", {}, "walls that pay the player in whose colour they are painted"),
    "foraging": Entry("suite.foraging:Foraging", {}, "food that takes players of enough levels together"),
    "coins": Entry("suite.coins:Coins", {}, "the coin game on a wide grid"),
    "donation": Entry(
        "suite.donation:Donation", {}, "help for partners that change, and a reputation by a social norm"
    ),
    "trust_and_split": Entry(
        "suite.trust_and_split:TrustAndSplit", {}, "two talk about their hands, and then split coins"
    ),
    "rice_n": Entry("suite.rice:Rice", {}, "regions choose savings, mitigation and trade in one climate"),
    "fishery": Entry("suite.fishery:Fishery", {}, "a common stock of fish with logistic growth"),
    "cournot": Entry("suite.cournot:Cournot", {}, "firms choose quantities and share one market"),
    "ultimatum": Entry(
        "suite.ultimatum:Ultimatum", {}, "one proposes a split, the other takes it or leaves both with nothing"
    ),
    "negotiation": Entry("suite.negotiation:Negotiation", {}, "items are split between players with private values"),
    "bayesian_battle_of_the_sexes": Entry(
        "suite.bayesian:BayesianBattleOfTheSexes", {}, "battle of the sexes with types that are drawn"
    ),
    "reacher": Entry("suite.reacher:Reacher", {}, "an arm of two joints reaches for a goal"),
    "pendulum": Entry("suite.pendulum:Pendulum", {}, "a rod is swung up and held there"),
    "inverted_pendulum": Entry("suite.cart_pole:CartPole", {"start": "upright"}, "a pole on a cart is balanced"),
    "cart_pole_swing_up": Entry("suite.cart_pole:CartPole", {"start": "hanging"}, "a pole on a cart is swung up"),
}

# Wrappers, whose parameter `game` is a game or its spec. They are in no list, because each is one for every game.
_FITTING: set[tuple[str, str]] = set()  # games of a user's by name and parameters that were found to fit
_WRAPPERS = {
    name: Entry(f"wrappers.social_rewards:{factory}", {}, "")
    for name, factory in {
        "common_reward": "common_reward",
        "self_interest": "SelfInterest",
        "inequity_aversion": "InequityAversion",
        "social_value_orientation": "SocialValueOrientation",
    }.items()
}

_COMMONS = {"num_agents": 7, "view_size": 11, "beam_length": 2, "zap_steps": 1}
_HARVEST = {**_COMMONS, "regrowth": (0.0, 0.001, 0.005, 0.025)}
_PRESETS: dict[str, Entry] = {
    name: Entry(_ENTRIES[game].factory, params, words, game)
    for name, game, params, words in (
        ("harvest_open", "harvest", {"layout": maps.HARVEST_OPEN, **_HARVEST}, "seven players, patches open to all"),
        ("harvest_closed", "harvest", {"layout": maps.HARVEST_CLOSED, **_HARVEST}, "two rooms that one can guard each"),
        (
            "harvest_partnership",
            "harvest",
            {"layout": maps.HARVEST_PARTNERSHIP, **_HARVEST},
            "two rooms, one of which takes two to guard",
        ),
        (
            "cleanup_large",
            "cleanup",
            {"layout": maps.CLEANUP_LARGE, **_COMMONS, "waste_delay": 50},
            "seven players, waste from step 50 on",
        ),
        ("coins_large", "coins", {"layout": maps.COINS_LARGE, "view_size": 11}, "two players on 16 x 11 cells"),
        (
            "pd_arena",
            "ipd_in_the_matrix",
            {
                "payoffs": (((3.0, 3.0), (-1.0, 5.0)), ((5.0, -1.0), (1.0, 1.0))),
                "num_agents": 4,
                "grid_size": 24,
                "view_size": 11,
                "episode_length": 1000,
            },
            "four players on 24 x 24 cells",
        ),
        ("c_rice_n", "rice_n", {"club": "fixed"}, "with a climate club"),
    )
}


NAMESPACE = "marl-shaping/"  # of our games in other libraries' registries
DOWNLOADED = ("MNISTBandit-bsuite",)  # whose data gymnax fetches from the network when it is made


def names() -> list[str]:
    """The names of all games: ours, their presets, and gymnax's.

    Left out are those of `DOWNLOADED`, which `make` makes where their data can be had.
    """
    own = [*ours(), *presets()]
    return own + [name for name in foreign() if name not in (*own, *DOWNLOADED)]


def ids() -> dict[str, str]:
    """The names of our games by what they are called in other libraries' registries, `marl-shaping/ipd-v0`."""
    return {f"{NAMESPACE}{name}-v0": name for name in (*ours(), *presets())}


def make(name: str, **params: Any) -> Game:
    """A game by its name, with parameters of your own: `make("coin_game", grid_size=5)`.

    Args:
      name: one of `names()`. Those of MuJoCo Playground, an extra, have their own names with -playground behind:
        `CheetahRun-playground`. A wrapper too, with the `game` inside it: `make("inequity_aversion", game="harvest")`
        is `InequityAversion(make("harvest"))`; likewise common_reward, self_interest and social_value_orientation.
      **params: parameters of the game.

    Raises:
      ValueError: for a name or a parameter that does not exist, naming the nearest that do, or a value that does not
        fit.

    Example:
      >>> import games
      >>> game = games.make("coin_game", grid_size=4)
      >>> game.agents, game.observation_space("agent_0").shape
      (['agent_0', 'agent_1'], (4, 4, 4))
    """
    game = make_with(name, params)
    check_own(name, params, game)
    return game


def check_own(name: str, params: dict[str, Any], game: Any) -> None:
    """Raises ContractError for a game of a user's that does not do what it should, once for equal `repr(params)`."""
    while isinstance(game, Game) and type(game).__module__.startswith("games."):
        if not isinstance(inner := getattr(game, "game", None), Game):
            return
        game = inner  # what a wrapper of ours has inside
    if (called := (name, repr(params))) not in _FITTING:
        check_contract(game)
        _FITTING.add(called)


def make_with(name: str, params: dict[str, Any]) -> Game:
    """As `make`, with parameters of any names, which a command or a spec gives."""
    theirs = not isinstance(name, str) or not (is_ours(name) or name in _WRAPPERS)
    if theirs and (unknown := next((param for param in ("name", "environment") if param in params), None)):
        raise ValueError(f"{name}: unknown parameter {unknown}")
    if isinstance(name, str) and name.endswith(SUFFIX):
        return from_playground(name.removesuffix(SUFFIX), **params)
    if isinstance(name, str) and name in _WRAPPERS:
        params["game"] = _inner(name, params.get("game"))
        return _checked(name, _WRAPPERS[name], params)
    if isinstance(name, str) and not is_ours(name):
        _load_plugins()
    if not isinstance(name, str) or not (is_ours(name) or name in foreign()):
        raise ValueError(f"game: got {shown(name)}; {one_of(str(name), [*names(), *_WRAPPERS])}")
    if not is_ours(name):
        from games.suite.gymnax import from_gymnax

        return from_gymnax(name, **params)
    return _checked(name, _entry(name), params)


def _inner(name: str, game: Any) -> Game:
    """The game inside a wrapper, from the spec of one."""
    if isinstance(game, Game):
        return game
    if not isinstance(game, str):
        raise ValueError(f"{name}: game: got {shown(game)}; a game or its spec, such as 'harvest', is needed")
    try:
        return make_game(game)
    except ValueError as error:
        raise ValueError(f"{name}: game: {first_line(error).removeprefix('environment: ')}") from None


def _checked(name: str, entry: Entry, params: dict[str, Any]) -> Game:
    """The game of an entry; ValueError for parameters that it does not have or take."""
    factory = _load(entry.factory)
    allowed = _parameters(entry)
    # Arrays of JAX are checked as those of NumPy are, unless they are traced.
    params = {param: np.asarray(x) if _is_known(x) else x for param, x in params.items()}
    for param, value in params.items():
        if param not in allowed:
            raise ValueError(f"{name}: unknown parameter {param}; {one_of(param, list(allowed))}")
        default = allowed[param]
        if (value is None and default is not None) or isinstance(value, dict | set | complex | date):
            plain = isinstance(default, int | float | str | list | tuple)
            words = f"a value such as {default!r}" if plain else "another value"
            raise ValueError(f"{name}: {param}: got {shown(value)}; {words} is needed")
    with lenient():
        return factory(**entry.params | params)


def _is_known(value: Any) -> bool:
    """True for a concrete array of JAX with axes."""
    is_array = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) and value.ndim
    return bool(is_array) and not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def register(
    name: str, factory: Callable[..., Game], description: str, *, replace: bool = False, **params: Any
) -> None:
    """Makes a game of your own known by a name.

    Args:
      name: by which `make` finds it.
      factory: `(**params) -> Game`.
      description: a few words, for lists.
      replace: whether the name may be taken.
      **params: given to the factory; `make` may override them.

    Raises:
      ValueError: for a name that is taken, or that other libraries' registries would not take; or for no function.

    Example:
      >>> import games
      >>> games.register("small_coin_game", games.CoinGame, "the coin game on two by two cells", grid_size=2)
      >>> games.make("small_coin_game").grid_size
      2
    """
    if not isinstance(name, str) or not re.fullmatch(NAME, name) or name.endswith(SUFFIX):
        raise ValueError(f"name: got {name!r}; letters, digits, - and _ are needed, a letter first, without {SUFFIX}")
    if not callable(factory):
        raise ValueError(f"factory: got {shown(factory)}; a function that makes a game is needed")
    taken = is_ours(name) or name in _WRAPPERS
    taken = taken or ("-" in name and name in foreign())  # theirs have hyphens, and take seconds to list
    if taken and not replace:
        raise ValueError(f"name: got {name!r}, which is taken; another name, or replace=True, is needed")
    _PRESETS.pop(name, None)
    _WRAPPERS.pop(name, None)
    _ENTRIES[name] = Entry(factory, params, description)
    _FITTING.clear()


def presets(game: str | None = None) -> list[str]:
    """The names of games of ours in other sizes; of one game, or of all."""
    return [name for name, entry in _PRESETS.items() if game in (None, entry.preset_of)]


def exists(name: str) -> bool:
    """True for a name that `make` takes: of a game, of a wrapper, or of an environment of MuJoCo Playground."""
    return name.endswith(SUFFIX) or name in _WRAPPERS or name in names()


def is_ours(name: str) -> bool:
    """True for the name of a game of ours, a preset of one, or a game that was registered."""
    return name in _ENTRIES or name in _PRESETS


def _entry(name: str) -> Entry:
    return _ENTRIES[name] if name in _ENTRIES else _PRESETS[name]


def ours() -> list[str]:
    """The names of our own games, and of those that were registered."""
    _load_plugins()
    return list(_ENTRIES)


def _load_plugins() -> None:
    """Registers the games of installed packages; the first line of a factory's docstring describes each."""

    def add(name: str, factory: Callable[..., Game]) -> None:
        register(name, factory, (inspect.getdoc(factory) or name).partition("\n")[0])

    plugins.load("games", add)


def foreign() -> list[str]:
    """The names of gymnax's environments, without ours if `games.gymnax` has registered them there."""
    import gymnax  # here, for it takes seconds

    return [name for name in gymnax.registered_envs if not name.startswith(NAMESPACE)]


def describe(name: str) -> str:
    """A game in a few words."""
    if not is_ours(name):
        return "single-agent environment of gymnax"
    entry = _entry(name)
    return f"{entry.preset_of}: {entry.description}" if entry.preset_of else entry.description


def parameters(name: str) -> dict[str, Any]:
    """The parameters of one of our games, with their defaults."""
    return _parameters(_entry(name))


def _parameters(entry: Entry) -> dict[str, Any]:
    factory = _load(entry.factory)
    found = {
        field: entry.params.get(field, parameter.default)
        for field, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
        and not (field in entry.params and isinstance(entry.factory, str) and not entry.preset_of)
    }
    if not inspect.isclass(factory):  # a factory hands unknown parameters on to the class that it makes
        try:
            kind = get_type_hints(factory).get("return", Game)
        except (TypeError, NameError):  # a partial has none, and some name what is not there
            kind = Game
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            found.setdefault(field.name, entry.params.get(field.name, field.default))
    return found


def _load(factory: Callable[..., Game] | str) -> Callable[..., Game]:
    if not isinstance(factory, str):
        return factory
    module, attribute = factory.split(":")
    return getattr(importlib.import_module(f"games.{module}"), attribute)


def refuse_game(name: str, preset: str, players: range) -> None:
    """Raises ConfigError for the name of a game with so many players where one of a preset is needed."""
    if os.path.exists(name) or "(" in name or not is_ours(name) or make(name).num_agents not in players:
        return
    raise ConfigError(f"preset: got {name!r}, a game; a preset is needed, as in {preset} --environment {name}")


def make_game(spec: str) -> Game:
    """A game by its name, with parameters in brackets: `reacher`, `inequity_aversion(game='harvest', alpha=2)`.

    Raises:
      ValueError: for a spec of another form, and as `games.make`; of the option `environment`.
    """
    name, params = read("environment", spec, "reacher")
    try:
        game = make_with(name, params)
    except ValueError as error:
        raise ValueError(f"environment: {first_line(error).removeprefix('game: ')}") from None
    except (TypeError, NotImplementedError, RuntimeError) as error:  # a value, a space or a download that failed
        raise ValueError(f"environment: got {spec!r}; {first_line(error)}") from None
    try:
        check_own(name, params, game)
    except ContractError as error:  # and no other, which is of the game's own code
        raise ValueError(f"environment: {error}") from None
    return game
