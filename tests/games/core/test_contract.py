"""Games of one's own whose functions do not fit their agents and spaces: one line each, before anything is played."""

import jax
import jax.numpy as jnp
import pytest
from flax import struct

import games
from games import Box, Discrete, Game
from games.registry import make_game
from marl import learn
from marl.learners.sampled.fixed import random

PLAYERS = ("agent_0", "agent_1")


class Fine(Game):
    """The observation is the number of steps."""

    num_agents = 2

    def reset(self, key):
        return self.get_obs(jnp.int32(0)), jnp.int32(0)

    def get_obs(self, state):
        return dict.fromkeys(PLAYERS, jnp.full(3, state, jnp.float32))

    def step_env(self, key, state, actions):
        rewards, done = {name: actions[name] * 1.0 for name in PLAYERS}, dict.fromkeys((*PLAYERS, "__all__"), state > 3)
        return self.get_obs(state), state + 1, rewards, done, {"truncated": jnp.zeros(2, bool)}

    def observation_space(self, agent):
        return Box(-jnp.inf, jnp.inf, (3,))

    def action_space(self, agent):
        return Discrete(2)


def changed(**functions):
    return type("Mine", (Fine,), functions)


def result(**changes):
    """The game with other results of a step."""

    def step_env(self, key, state, actions):
        names = "observations", "state", "rewards", "dones", "infos"
        found = dict(zip(names, Fine.step_env(self, key, state, actions), strict=True))
        return tuple((found | {name: change(found[name]) for name, change in changes.items()}).values())

    return changed(step_env=step_env)


FAULTS = {
    "no game": (lambda: 3, "game: got 3 of a factory; a Game is needed"),
    "observation": (
        changed(observation_space=lambda self, agent: Box(0, 1, (2,))),
        r"Mine.reset returned an observation of shape \(3,\) for agent_0; \(2,\), as in its observation_space",
    ),
    "of one player": (
        result(observations=lambda x: x | {"agent_1": jnp.zeros(4)}),
        r"Mine.step_env returned an observation of shape \(4,\) for agent_1; \(3,\)",
    ),
    "state alone": (
        changed(reset=lambda self, key: jnp.int32(0)),
        r"Mine.reset returned a .*; \(observations, state\) is",
    ),
    "four values": (
        changed(step_env=lambda self, key, state, actions: Fine.step_env(self, key, state, actions)[:4]),
        r"Mine.step_env returned 4 values; \(observations, state, rewards, dones, infos\) is needed",
    ),
    "dtype": (result(state=lambda x: x * 1.0), r"returned a state with float32\[\] at its root; int32\[\] is needed"),
    "structure": (result(state=lambda x: (x, x)), "returned a state of another structure"),
    "reward": (result(rewards=lambda x: {"agent_0": x["agent_0"]}), "returned rewards without agent_1, but with"),
    "rewards": (result(rewards=lambda x: [1, 2]), "returned rewards that are a list; a dict is needed"),
    "shape": (
        result(rewards=lambda x: {name: value[None] for name, value in x.items()}),
        r"returned rewards of shape \(1,\) for agent_0; a scalar is needed",
    ),
    "done": (result(dones=lambda x: dict.fromkeys(PLAYERS, x["agent_0"])), "returned dones without __all__"),
    "limit": (result(infos=lambda x: {}), "returned infos without truncated"),
    "one limit": (
        result(infos=lambda x: {"truncated": False}),
        r"returned infos of shape \(\) for truncated; \(2,\) is needed",
    ),
}


@pytest.fixture
def registered():
    """Registers a game, until the test ends."""
    yield lambda factory: games.register("mine", factory, "one's own", replace=True)
    games.registry._ENTRIES.pop("mine")


class Layout:
    """Two that are made apart are equal, and not alike in words."""

    def __eq__(self, other):
        return isinstance(other, Layout)

    def __hash__(self):
        return 0


@struct.dataclass
class Drawn:
    time: object
    layout: Layout = struct.field(pytree_node=False)


def drawn_apart(observations, state, *rest):
    return observations, Drawn(state, Layout()), *rest


def undefined(self, agent):
    raise NotImplementedError


FITTING = {
    "all": Fine,
    "more rewards": result(rewards=lambda x: x | {"sum": jnp.zeros(3)}),
    "a list": changed(reset=lambda self, key: list(Fine.reset(self, key))),
    "a whole number": changed(reset=lambda self, key: (self.get_obs(0), jnp.float32(0))),
    "no action space": changed(action_space=undefined, step_env=undefined),
    "no observation space": changed(observation_space=undefined),
    "equal layouts": changed(
        reset=lambda self, key: (self.get_obs(0), Drawn(jnp.int32(0), Layout())),
        step_env=lambda self, key, state, actions: drawn_apart(*Fine.step_env(self, key, state.time, actions)),
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_game_that_fits_is_made(name, registered):
    registered(FITTING[name])
    assert isinstance(games.make("mine"), Fine)
    assert isinstance(make_game("mine"), Fine)


def test_an_error_in_the_code_of_a_game_shows_its_line(registered):
    def step_env(self, key, state, actions):
        return None + state

    registered(changed(step_env=step_env))
    with pytest.raises(TypeError, match="unsupported operand") as error:
        make_game("mine")
    assert any(one.name == "step_env" for one in error.traceback)


def test_a_game_is_learned_in(registered):
    registered(Fine)
    game = games.make("mine")
    found = learn(
        jax.random.key(0), game, [random(game), random(game, 1)], num_updates=1, steps_per_update=4, num_envs=2
    )
    assert found.rewards[0].shape == (1,)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_game_that_does_not_fit_is_refused_in_one_line(fault, registered):
    factory, words = FAULTS[fault]
    registered(factory)
    with pytest.raises((TypeError, ValueError), match=words) as error:
        games.make("mine")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="environment: "):
        make_game("mine")


def test_a_game_inside_a_wrapper_is_looked_at():
    assert games.make("common_reward", game=Fine()).num_agents == 2
    faulty, words = FAULTS["reward"]
    with pytest.raises((TypeError, ValueError), match=words):
        games.make("common_reward", game=faulty())
