"""Every shaper by its name, for every game: `make_shaper("mfos(hidden_units=32)", game)`.

A shaper's name is also the name of a learner: the untrained shaper, with random parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, get_type_hints

import jax

from configs import shown
from configs.plugins import load
from configs.specs import Registry, naming
from games import Game, InfinitelyRepeated
from marl.core.learner import Learner, Metrics, Trajectory
from marl.learners import registry as learners
from marl.shapers import exact_policies, sampled_policies
from marl.shapers.exact_policies import Shaper
from marl.shapers.sampled_policies import Policy


def load_plugins() -> None:
    """Registers the shapers of installed packages."""
    load("shapers", _register_plugin)


FORMULA: Registry[Shaper] = Registry("mfos", plugins=load_plugins)
SAMPLED: Registry[Policy] = Registry("shaper", plugins=load_plugins)


def make_shaper(spec: str, game: Game, seat: int = 0, *, field: str = "shaper", **defaults: Any) -> Any:
    """A shaper from its name, or its name with settings: `mfos`, `shaper(hidden_units=32, memory='episode')`.

    Args:
      spec: mfos, good_shepherd, shaper or counts, or one that was registered.
      game: what is played.
      seat: the player's number among the game's agents.
      field: what the spec is of, for messages.
      **defaults: other defaults of settings, for the shapers that have them.

    Returns:
      A `Shaper` of an exact game, a `Policy` of any other.

    Raises:
      ValueError: for an unknown name or setting, or a value that does not fit, naming what is allowed, or a game that
        the shaper cannot play.
    """
    learners.check_seat(field, game, seat)
    registry = _registry(game)
    name, given = registry.read(field, spec)
    settings = {setting: x for setting, x in defaults.items() if setting in registry.settings(name)} | given
    with naming(field, name):
        return registry.build(name, settings, game, seat)


def build_shaper(name: str, game: Game, seat: int, settings: dict[str, Any]) -> Any:
    """The shaper of a name and its settings, which are its factory's to check."""
    return _registry(game).build(name, settings, game, seat)


def _registry(game: Game) -> Registry[Any]:
    return FORMULA if isinstance(game, InfinitelyRepeated) else SAMPLED


def register_shaper(name: str, factory: Callable[..., Any], *, kind: learners.Kind, replace: bool = False) -> None:
    """Makes a shaper of your own known by a name, and one that is not trained known as a learner.

    Args:
      name: letters, digits, hyphens and underscores, a letter first.
      factory: `(game, seat, **settings)`, which returns a `Shaper` for exact games (formula), a `Policy` for sampled
        ones. Its keyword-only parameters are the settings of a spec, their type hints and defaults what these may be.
      kind: the games that it plays.
      replace: whether the name may be taken.

    Raises:
      ValueError: for a name that no spec can have, or that a shaper or a learner has.
    """
    learners.check_kind(kind, ("formula", "sampled"))
    if not callable(factory):
        raise TypeError(f"factory: got {shown(factory)}; a function is needed")

    @functools.wraps(factory)
    def untrained(game: Game, seat: int, **settings: Any) -> Learner:
        made = factory(game, seat, **settings)
        some = made.learner(jax.eval_shape(made.init, jax.random.key(0)))  # forgetting reads no parameters
        return drawn(made.init, made.learner, some.reset_memory)

    of_learners, of_shapers = (learners.FORMULA, FORMULA) if kind == "formula" else (learners.SAMPLED, SAMPLED)
    of_learners.register(name, untrained, replace=replace)
    of_shapers.register(name, factory, replace=replace)


def _register_plugin(name: str, factory: Callable[..., Any]) -> None:
    """Registers the shaper of an installed package, which plays the games that its return type says."""
    kinds: dict[Any, learners.Kind] = {Shaper: "formula", Policy: "sampled"}
    returned = get_type_hints(factory).get("return")
    if returned not in kinds:
        raise ValueError(f"got a factory that returns {returned}; the return type marl.Shaper or Policy is needed")
    register_shaper(name, factory, kind=kinds[returned])


class Drawn(NamedTuple):
    """The state, and the policy, of a player that is drawn for each trial."""

    which: Any  # what was drawn
    inner: Any  # of the learner that it makes

    @property
    def late(self) -> Any:
        """As of a shaper's state."""
        return getattr(self.inner, "late", False)


def drawn(draw: Callable[[jax.Array], Any], make: Callable[[Any], Learner], reset_memory: Any) -> Learner:
    """One of several players, drawn for each trial.

    Args:
      draw: `(key) -> which`.
      make: `(which) -> learner`.
      reset_memory: of all of them alike.
    """

    def init(key: jax.Array) -> Drawn:
        draw_key, key = jax.random.split(key)
        which = draw(draw_key)
        return Drawn(which, make(which).init(key))

    def policy(state: Drawn) -> Drawn:
        return state._replace(inner=make(state.which).policy(state.inner))

    def init_memory(own: Drawn, num_envs: int | None) -> Any:
        return make(own.which).init_memory(own.inner, num_envs)

    def act(key: jax.Array, own: Drawn, memory: Any, obs: jax.Array) -> tuple[Any, Any, Any]:
        return make(own.which).act(key, own.inner, memory, obs)

    def update(key: jax.Array, state: Drawn, trajectory: Trajectory) -> tuple[Drawn, Metrics]:
        inner, metrics = make(state.which).update(key, state.inner, trajectory)
        return state._replace(inner=inner), metrics

    return Learner(init=init, act=act, update=update, policy=policy, init_memory=init_memory, reset_memory=reset_memory)


def _of_logits(factory: Callable[..., Shaper]) -> Callable[..., Shaper]:
    """A shaper of policies of some length, as one of a game and a seat."""

    @functools.wraps(factory)
    def make(game: InfinitelyRepeated, seat: int, **settings: Any) -> Shaper:
        del seat
        return factory(game.num_logits, **settings)

    return make


for _exact in (exact_policies.mfos, exact_policies.good_shepherd, exact_policies.shaper):
    register_shaper(_exact.__name__, _of_logits(_exact), kind="formula")
register_shaper("counts", exact_policies.counts, kind="formula")
for _sampled in (
    sampled_policies.shaper,
    sampled_policies.good_shepherd,
    sampled_policies.mfos,
    sampled_policies.counts,
):
    register_shaper(_sampled.__name__, _sampled, kind="sampled")
