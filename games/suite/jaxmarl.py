"""Environments of JaxMARL, and of libraries in its manner, as games."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from configs import one_of
from games.core import checks
from games.core.game import Actions, Dones, Game, Infos, Observations, Scalar, Step, static
from games.core.modes import lenient, single
from games.core.spaces import Box, Discrete, MultiDiscrete, Space


@struct.dataclass
class JaxMARLState:
    """The environment's state, and the clock."""

    inner: Any  # the environment's own state
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class JaxMARL(Game):
    """An environment of JaxMARL as a game; `from_jaxmarl` makes one.

    Any object with its methods will do, also without `get_obs` as long as no learner asks for it: `reset(key) ->
    (observations, state)` and `step_env(key, state, actions) -> (observations, state, rewards, dones, infos)`, by the
    names in `agents`, or as arrays with the players in front. Player i is agent_i here, by its place in `agents` there.
    Observations, actions and rewards are the environment's own; an observation of several arrays is one vector here.
    The bounds of an observation are those that are declared, or infinite where the declared shape is not that of the
    observation.

    A player whose own game is over before that of all goes on without effect, as there. The game ends with
    `dones["__all__"]`, or at its time limit. JaxMARL does not tell whether an end was a limit:
    `infos["truncated"]` is true for one in step `episode_length` or later.

    Infos: those that have one number for each player.

    Attributes:
      environment: the environment.
      num_agents: the number of its players.
      episode_length: steps until the time limit; None for an environment without.

    Source: Rutherford et al., JaxMARL (2023), arXiv:2311.10090.
    """

    environment: Any = static(None)
    num_agents: int = static(2)
    episode_length: Scalar | None = None

    def __post_init__(self) -> None:
        if self.episode_length is not None:
            checks.whole("episode_length", self.episode_length, 1)

    @property
    def name(self) -> str:
        return str(getattr(self.environment, "name", type(self.environment).__name__))

    @property
    def their_agents(self) -> list[Any]:
        """The names of the players there."""
        return list(self.environment.agents)

    def reset(self, key: jax.Array) -> tuple[Observations, JaxMARLState]:
        observations, inner = self.environment.reset(_raw(key))
        return self._observed(observations), JaxMARLState(jax.tree.map(_strong, inner), jnp.zeros((), jnp.int32))

    def step_env(self, key: jax.Array, state: JaxMARLState, actions: Actions) -> Step[JaxMARLState]:
        observations, inner, rewards, dones, more = self.environment.step_env(
            _raw(key), state.inner, self._their_actions(state, actions)
        )
        # Some change a leaf's dtype after the reset, which a scan does not allow.
        inner = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype).reshape(old.shape), inner, state.inner)
        time = state.time + 1
        over = jnp.asarray(dones["__all__"], bool).reshape(())
        late = jnp.zeros((), bool) if self.episode_length is None else time >= self.episode_length
        all_done, infos = self._ending(over & ~late, late)
        own = (over if set(dones) == {"__all__"} else self._pick(dones, i) for i in range(self.num_agents))
        ends = zip(self.agents, own, strict=True)
        dones = {agent: all_done["__all__"] | jnp.asarray(done, bool).reshape(()) for agent, done in ends}
        paid = {agent: jnp.float32(self._pick(rewards, i)).reshape(()) for i, agent in enumerate(self.agents)}
        state = JaxMARLState(inner, time)
        return (
            self._observed(observations),
            state,
            paid,
            dones | {"__all__": all_done["__all__"]},
            self._counted(more) | infos,
        )

    def auto_reset(
        self,
        key: jax.Array,
        observations: Observations,
        state: JaxMARLState,
        dones: Dones,
        reset_state: JaxMARLState | None = None,
    ) -> tuple[Observations, JaxMARLState]:
        # Chooses between observations that were made, because not every state there determines its observation.
        new = self.reset(key) if reset_state is None else (self.get_obs(reset_state), reset_state)
        return jax.tree.map(lambda x, y: jnp.where(dones["__all__"], x, y), new, (observations, state))

    def get_obs(self, state: JaxMARLState) -> Observations:
        return self._observed(self.environment.get_obs(state.inner))

    def get_avail_actions(self, state: JaxMARLState) -> dict[str, jax.Array]:
        possible = getattr(self.environment, "get_avail_actions", None)
        every = super().get_avail_actions(state)
        try:
            masks = possible(state.inner) if possible else {}
        except (NotImplementedError, AttributeError):
            masks = {}
        found = {a: self._pick(masks, i) for i, a in enumerate(self.agents)} if len(masks) else every
        fits = {a: jnp.asarray(found[a], bool) for a in self.agents if np.shape(found[a]) == every[a].shape}
        return every | fits

    def observation_space(self, agent: str) -> Box:
        with lenient():  # as it is played
            seen = jax.eval_shape(lambda key: self.reset(key)[0], jax.random.key(0))[agent]
        low, high = -jnp.inf, jnp.inf
        declared = self._declared("observation", agent)
        if type(declared).__name__ == "Box" and tuple(np.atleast_1d(declared.shape)) == seen.shape:
            low, high = (_bound(bound, seen.shape) for bound in (declared.low, declared.high))
        elif type(declared).__name__ in ("Discrete", "MultiDiscrete") and not jnp.issubdtype(seen.dtype, jnp.inexact):
            low, high = 0, np.iinfo(seen.dtype).max
        return Box(low, high, seen.shape, single(jnp.zeros((), seen.dtype)).dtype, image=len(seen.shape) == 3)

    def action_space(self, agent: str) -> Space:
        space = self._declared("action", agent)
        kind = type(space).__name__
        if kind == "Discrete":
            return Discrete(int(space.n))
        if kind == "MultiDiscrete":
            return MultiDiscrete(tuple(int(n) for n in np.asarray(space.num_categories)))
        if kind == "Box":
            shape = tuple(int(n) for n in np.atleast_1d(space.shape))
            return Box(_bound(space.low, shape), _bound(space.high, shape), shape)
        raise NotImplementedError(
            f"{self.name}: has actions of the kind {kind}; Discrete, MultiDiscrete and Box are read"
        )

    def _declared(self, what: str, agent: str) -> Any:
        """A space as it is declared there; None if it is not."""
        name = self.their_agents[self.agents.index(agent)]
        spaces = getattr(self.environment, f"{what}_spaces", None)
        if isinstance(spaces, dict) and spaces:
            return self._pick(spaces, self.agents.index(agent))
        method = getattr(self.environment, f"{what}_space", None)
        for arguments in ((name,), ()):
            try:
                found = method(*arguments) if method else None
            except (TypeError, KeyError):
                continue
            return found[0] if isinstance(found, tuple) else found
        return None

    def _pick(self, values: Any, i: int) -> Any:
        """The entry of player i: by one of its names, by its place, or by its place in each of several arrays."""
        if not isinstance(values, dict):
            return values[i]
        name = self.their_agents[i]
        # Numbers have several forms there; a name is a name, because agent_0 may be that of another player.
        forms = (name,) if isinstance(name, str) and name in values else (name, str(name), f"agent_{i}")
        key = next((form for form in forms if form in values), None)
        return jax.tree.map(lambda x: x[i], values) if key is None else values[key]

    def _their_actions(self, state: JaxMARLState, actions: Actions) -> Any:
        chosen = [actions[agent] for agent in self.agents]
        seen = jax.eval_shape(lambda key: self.environment.reset(_raw(key))[0], jax.random.key(0))
        return dict(zip(self.their_agents, chosen, strict=True)) if isinstance(seen, dict) else chosen

    def _observed(self, observations: Any) -> Observations:
        return {agent: _flat(self._pick(observations, i)) for i, agent in enumerate(self.agents)}

    def _counted(self, infos: Any) -> Infos:
        """The entries of infos that have one number for each player."""
        found = {}
        for name, value in infos.items() if isinstance(infos, dict) else ():
            if isinstance(value, dict):
                try:
                    value = jnp.stack([jnp.asarray(self._pick(value, i)) for i in range(self.num_agents)])
                except (KeyError, ValueError, TypeError):
                    continue
            if getattr(value, "shape", None) == (self.num_agents,):
                found[str(name)] = value.astype(jnp.float32)
        return found


def from_jaxmarl(environment: Any, **params: Any) -> JaxMARL:
    """A game from an environment of JaxMARL, or of a library in its manner, such as SocialJax.

    Args:
      environment: a name such as `overcooked`, one of `jaxmarl.registered_envs`; or an instance.
      **params: `episode_length`, at most the environment's own `max_steps` or its like, which holds if none is given;
        where a name is given, also arguments of the environment.

    Raises:
      ValueError: for a name that JaxMARL does not have, arguments that the environment does not take, or an object that
        is no environment.

    Example:
      >>> import games
      >>> game = games.from_jaxmarl("switch_riddle", num_agents=3)
      >>> game.agents, game.action_space("agent_0").n
      (['agent_0', 'agent_1', 'agent_2'], 3)
    """
    length = params.pop("episode_length", None)
    if isinstance(environment, str):
        environment = _named(environment, params)
    elif params:
        raise ValueError(f"{min(params)}: got an instance of an environment; parameters go with a name")
    missing = [name for name in ("reset", "step_env", "agents") if not hasattr(environment, name)]
    if missing:
        raise ValueError(
            f"environment: got {type(environment).__name__} without {missing[0]}; one of JaxMARL is needed"
        )
    names = ("max_steps", "max_steps_in_episode", "episode_length", "num_inner_steps")
    limits = (getattr(environment, name, None) for name in names)
    own = next((int(limit) for limit in limits if isinstance(limit, int | np.integer)), None)
    if own is not None and not hasattr(environment, "max_steps"):
        own *= int(getattr(environment, "num_outer_steps", 1))  # episodes of episodes, in some
    if length is None:
        length = own
    elif own is not None:
        checks.whole("episode_length", length, 1)
        length = min(length, own) if isinstance(length, int) else jnp.minimum(length, own)
    return JaxMARL(environment, len(environment.agents), length)


def _named(name: str, params: dict[str, Any]) -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints which of its parts are missing
            import jaxmarl
    except ModuleNotFoundError as error:
        raise ValueError(
            f"environment: got {name!r}; JaxMARL is not installed ({error.name}): pip install 'marl-shaping[jaxmarl]'"
        ) from None
    if name not in jaxmarl.registered_envs:
        raise ValueError(f"environment: got {name!r}; {one_of(name, jaxmarl.registered_envs)}")
    try:
        with lenient():
            return jaxmarl.make(name, **params)
    except (TypeError, ValueError, ImportError) as error:
        raise ValueError(f"{name}: cannot be made with {params or 'its defaults'} ({error})") from error


def _raw(key: jax.Array) -> jax.Array:
    """The words of a key, as JaxMARL's code has keys."""
    return jax.random.key_data(key)


def _strong(x: Any) -> jax.Array:
    return jnp.asarray(x, jnp.result_type(x))


def _flat(observation: Any) -> jax.Array:
    """An observation; of several arrays one vector."""
    leaves = [_strong(leaf) for leaf in jax.tree.leaves(observation)]
    return leaves[0] if len(leaves) == 1 else jnp.concatenate([leaf.ravel().astype(jnp.float32) for leaf in leaves])


def _bound(bound: Any, shape: tuple[int, ...]) -> Any:
    """A bound that fits a shape: the number, or the array."""
    values = np.asarray(bound, float)
    return values.item() if values.size == 1 else jnp.asarray(np.broadcast_to(values, shape), jnp.float32)
