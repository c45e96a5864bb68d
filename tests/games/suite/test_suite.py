"""Promises of every game of the suite; one compilation each. The nightly run has the games that others represent."""

import socket
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from games import registry
from games.core.rollout import rollout
from games.toolbox.drawing import pictures
from tests.games.every_game import suite

NAMES = [*registry.ours(), "CartPole-v1", "Pendulum-v1"]
STEPS, GAMES = 6, 2
KEYS = jax.random.split(jax.random.key(0), GAMES)
play = jax.jit(lambda game, keys: jax.vmap(lambda key: rollout(key, game, STEPS))(keys))


def make(name, limit):
    return games.make(name, **{"max_steps_in_episode" if "-v" in name else "episode_length": limit})


@pytest.mark.parametrize("name", suite("CartPole-v1", "Pendulum-v1"))
def test_a_game_keeps_the_promises_of_the_suite(name):
    game = make(name, 100)
    played = play(game, KEYS)
    compiled = play._cache_size()

    players = {*game.agents}
    assert len(players) == game.num_agents
    assert {*played.rewards} == {*played.actions} == {*played.observations} == players
    assert {*played.dones} == players | {"__all__"}
    assert "truncated" in played.infos
    for values in played.infos.values():
        assert values.shape == (GAMES, STEPS, game.num_agents)
    for agent in game.agents:
        seen, act = (space(agent).to_gymnasium() for space in (game.observation_space, game.action_space))
        assert (seen.shape, act.shape) == (game.observation_space(agent).shape, game.action_space(agent).shape)
        for values, space in ((played.observations[agent], seen), (played.actions[agent], act)):
            assert values.dtype == space.dtype or space.dtype == np.int64
            for value in np.asarray(values).reshape(-1, *space.shape):
                assert space.contains(value.astype(space.dtype))
        rewards = np.asarray(played.rewards[agent])
        assert rewards.shape == (GAMES, STEPS)
        assert rewards.dtype == np.float32
        assert np.isfinite(rewards).all()
        # Available actions are actions of the space, and at least one is available.
        available = game.get_avail_actions(jax.tree.map(lambda x: x[0], played.first))[agent]
        assert available.shape == ((act.n,) if hasattr(act, "n") else act.shape)
        assert available.any()

    # A shorter time limit is another number in the same program: the episode is truncated, and the next one begins.
    short = play(make(name, 3), KEYS)
    assert play._cache_size() == compiled
    done, cut = np.asarray(short.dones["__all__"]), np.asarray(short.infos["truncated"])
    assert (cut == cut[..., :1]).all()
    assert (cut[..., 0] <= done).all()
    steps = np.zeros(GAMES, int)
    for t in range(STEPS):
        steps += 1
        np.testing.assert_array_equal(cut[:, t, 0] | (done[:, t] & (steps <= 3)), done[:, t])
        np.testing.assert_array_equal(steps >= 3, done[:, t] & (steps == 3))
        steps[done[:, t]] = 0


@pytest.mark.parametrize("name", suite("CartPole-v1", "Pendulum-v1"))
def test_every_game_has_pictures(name):
    game = make(name, 100)
    one = jax.tree.map(lambda x: x[0], play(game, KEYS))
    frames = pictures(one.replace(game=game))
    assert len(frames) == STEPS + 1
    assert {(frame.dtype, frame.shape) for frame in frames} == {(np.dtype(np.uint8), frames[0].shape)}
    assert frames[0].ndim == 3
    assert frames[0].shape[2] == 3
    assert any((frame != frames[0]).any() for frame in frames[1:])


def test_a_game_is_a_pytree_of_its_parameters():
    cournot = games.make("cournot")
    state = cournot.reset(jax.random.key(0))[1]

    def profit(game):
        return game.step_env(jax.random.key(0), state, {"agent_0": 10.0, "agent_1": 20.0})[2]["agent_0"]

    # Of ten units sold, each costs one for every unit of the marginal cost, and brings as much as the intercept rises.
    slopes = jax.grad(profit, allow_int=True)(cournot)
    assert (float(slopes.marginal_cost), float(slopes.intercept), float(slopes.slope)) == (-10, 10, -300)
    shares = jax.vmap(lambda multiplier: games.make("public_goods", multiplier=multiplier).payoffs[0, 3])
    np.testing.assert_allclose(shares(jax.numpy.array([1.0, 2.0])), [1.0, 2.0])
    penalties = jax.vmap(lambda penalty: games.make("coin_game", penalty=penalty))(jax.numpy.array([-1.0, -3.0]))
    np.testing.assert_array_equal(jax.tree.map(lambda x: -x, penalties).penalty, [1, 3])


def test_a_rollout_plays_the_policy_that_it_is_given():
    game = games.make("ipd", episode_length=4)
    act = partial(lambda key, obs: {"agent_0": obs["agent_0"].argmax() % 2, "agent_1": 0})
    played = rollout(jax.random.key(0), game, 6, act)
    # The start is entry 0: action 0, after CC entry 1: action 1, after DC entry 3: action 1; then the start again.
    np.testing.assert_array_equal(played.actions["agent_0"], [0, 1, 1, 1, 0, 1])
    np.testing.assert_array_equal(played.states.time, [1, 2, 3, 4, 1, 2])


def test_an_animation_is_a_gif_that_repeats(tmp_path):
    from PIL import Image

    game = games.make("coin_game")
    games.animate(rollout(jax.random.key(0), game, 5), tmp_path / "coins.gif")
    with Image.open(tmp_path / "coins.gif") as gif:
        assert (gif.format, gif.info["loop"], gif.size) == ("GIF", 0, (192, 192))
        assert gif.n_frames > 1


@pytest.mark.parametrize("action", [2, -1, 0.5, np.int64(7), jax.numpy.array(3), "C", float("nan")])
def test_an_action_that_there_is_not_is_refused_where_it_is_known(action):
    game = games.make("ipd")
    state = game.reset(KEYS[0])[1]
    for step in (game.step, game.step_env):
        with pytest.raises(ValueError, match=r"^actions: agent_1: got .*; a whole number from 0 to 1 is needed$"):
            step(KEYS[0], state, {"agent_0": 0, "agent_1": action})
        for possible in (1, 1.0, np.int8(1), jax.numpy.array([1])[0], True):
            assert float(step(KEYS[0], state, {"agent_0": 0, "agent_1": possible})[2]["agent_0"]) == -3


@pytest.mark.usefixtures("nans")
def test_exact_games_refuse_what_is_no_game_and_no_number():
    with pytest.raises(ValueError, match="payoffs: got 'ipd'; a MatrixGame is needed"):
        games.InfinitelyRepeated("ipd")
    with pytest.raises(ValueError, match="payoffs: got 'tandem'; a function"):
        games.Differentiable("tandem")
    game = games.InfinitelyRepeated(games.prisoners_dilemma)
    state = game.reset(KEYS[0])[1]
    logits = jax.numpy.zeros(5)
    with pytest.raises(ValueError, match=r"actions: agent_0: got \[0.0, nan, 0.0, 0.0, 0.0\]; an array in"):
        game.step(KEYS[0], state, {"agent_0": logits.at[1].set(np.nan), "agent_1": logits})
    # Continuous actions beyond their bounds are clipped, as the game says.
    pendulum = games.make("pendulum")
    state = pendulum.reset(KEYS[0])[1]
    beyond, most = (pendulum.step(KEYS[0], state, {"agent_0": np.array([x])})[0] for x in (9.0, 2.0))
    np.testing.assert_array_equal(beyond["agent_0"], most["agent_0"])


def test_observations_of_three_axes_are_images():
    spaces = {name: make(name, 100).observation_space("agent_0") for name in NAMES}
    images = {name: space.shape for name, space in spaces.items() if getattr(space, "image", False)}
    assert images == {name: space.shape for name, space in spaces.items() if len(space.shape) == 3}
    assert images["coin_game"] == (3, 3, 4)
    assert images["ipd_in_the_matrix"] == (5, 5, 12)
    assert games.make("Seaquest-MinAtar").observation_space("agent_0").image
    assert not games.make("CartPole-v1").observation_space("agent_0").image
    with pytest.raises(ValueError, match=r"image: got the shape \(3, 4\); \[height, width, channels\] is needed"):
        games.Box(0, 1, (3, 4), image=True)


def test_names_are_ours_and_those_of_gymnax():
    names = games.names()
    assert len(set(names)) == len(names)
    assert {"ipd", "coin_game", "harvest", "CartPole-v1", "Breakout-MinAtar"} <= {*names}


def test_games_that_differ_in_payoffs_alone_differ_in_their_pictures():
    """Each shows its payoffs and the names of its actions; without them all two by two games look the same."""
    drawn = {}
    for name in registry.ours():
        game = games.make(name)
        if hasattr(game, "payoffs") and name != "matrix_game":  # its default is the prisoner's dilemma
            state = jax.eval_shape(game.reset, KEYS[0])[1]
            drawn[name] = game.render(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), state))
    assert len(drawn) > 15
    assert len({picture.tobytes() for picture in drawn.values()}) == len(drawn)
    game = games.make("ipd")
    state = game.reset(KEYS[0])[1]
    played = [game.render(game.step_env(KEYS[0], state, {"agent_0": 1, "agent_1": other})[1]) for other in (0, 1)]
    table = slice(-72, None), slice(None)  # of three rows, in which the joint action is marked
    assert not np.array_equal(played[0][table], played[1][table])
    many = games.make("matrix_game", payoffs=np.zeros((2, 10, 2)))  # more than fit
    assert many.render(many.reset(KEYS[0])[1]).shape[0] == 64


def test_every_name_is_a_game_without_a_network(monkeypatch):
    """A game whose data gymnax would download is not in the list, but its name is known."""

    def unreachable(*arguments, **named):
        raise OSError("no route to host")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    monkeypatch.setattr(socket.socket, "connect", unreachable)
    assert "MNISTBandit-bsuite" not in games.names()
    assert "MNISTBandit-bsuite" in registry.foreign()
    for name in games.names():
        games.make(name)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("coin_gme", {}, "game: got 'coin_gme'; did you mean coin_game"),
        ("nothing like it", {}, "game: got 'nothing like it'; one of ipd, imp"),
        ("coin_game", {"grid_sise": 3}, "coin_game: unknown parameter grid_sise; did you mean grid_size"),
        ("public_goods", {"multiplyer": 3}, "public_goods: unknown parameter multiplyer; did you mean multiplier"),
        ("ipd", {"game": "chicken"}, "ipd: unknown parameter game"),
        (3, {}, "game: got 3; one of ipd"),
        ("CartPole-v1", {"max_steps": 3}, "CartPole-v1: unknown parameter max_steps"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(name, params, message):
    with pytest.raises(ValueError, match=message):
        games.make(name, **params)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("coin_game", {"stay": "yes"}, "stay: got 'yes'; one of True, False is needed"),
        ("coin_game", {"num_coins": True}, "num_coins: got True; one of 1, 2 is needed"),
        ("coin_game", {"reward": None}, "coin_game: reward: got None; a value such as 1.0 is needed"),
        ("coin_game", {"grid_size": jax.numpy.array(3)}, "grid_size: got Array.*; a plain whole number"),
        ("matrix_game", {"payoffs": "ipd"}, "payoffs: got 'ipd'"),
        ("harvest", {"regrowth": np.array([0.0, 0.1])}, "regrowth: got"),
        ("inverted_pendulum", {"ends_at_track": "no"}, "ends_at_track: got 'no'; one of True, False is needed"),
        (
            "bayesian_battle_of_the_sexes",
            {"love_probability": np.full(3, 0.5)},
            "love_probability: got .*; one for each",
        ),
        ("fishery", {"carrying_capacity": np.float32(1), "initial_stock": 3.0}, "initial_stock: got 3.0"),
    ],
)
def test_values_that_do_not_fit_are_refused(name, params, message):
    with pytest.raises(ValueError, match=message):
        games.make(name, **params)


def test_parameters_of_any_names_are_refused():
    for name in ("ipd", "CartPole-v1", "CheetahRun-playground"):
        for param in ("name", "environment"):
            with pytest.raises(ValueError, match=f"{name}: unknown parameter {param}"):
                registry.make_with(name, {param: 3})
    assert games.make(name="ipd").name == games.make("ipd").name


def test_actions_of_other_agents_or_shapes_are_refused():
    game = games.make("reacher")
    _, state = game.reset(KEYS[0])
    by_list = game.step(KEYS[1], state, {"agent_0": [0.1, 0.2]})[2]
    for same in (np.array([0.1, 0.2]), np.array([[0.1, 0.2]])):
        assert by_list == game.step(KEYS[1], state, {"agent_0": same})[2]
    several = games.make("trust_and_split")  # of MultiDiscrete actions
    begun = several.reset(KEYS[0])[1]
    paid = [several.step(KEYS[1], begun, dict.fromkeys(several.agents, act))[2] for act in ([1, 3], [[1, 3]])]
    assert paid[0] == paid[1]
    with pytest.raises(ValueError, match=r"actions: agent_0: got \[\[?1, 99\]\]?; whole numbers"):
        several.step(KEYS[1], begun, {agent: [[1, 99]] for agent in several.agents})
    with pytest.raises(ValueError, match=r"actions: agent_0: got shape \(3,\); .* of shape \(2,\) is needed"):
        game.step(KEYS[1], state, {"agent_0": np.zeros(3)})
    traced = jax.jit(lambda game, action: game.step(KEYS[1], game.reset(KEYS[0])[1], {"agent_0": action}))
    with pytest.raises(
        ValueError, match=r"actions: agent_0: got shape \(3,\); an array in the space's bounds of shape"
    ):
        traced(games.make("pendulum"), jnp.zeros(3))  # whose bounds are among its parameters
    with pytest.raises(ValueError, match=r"actions: agent_0: got shape \(\); .* of shape \(2,\) is needed"):
        rollout(KEYS[0], game, 2, lambda key, observations: {"agent_0": jnp.float32(1)})
    for step in (game.step, game.step_env):
        with pytest.raises(ValueError, match=r"actions: agent_0: got shape \(3,\); .* of shape \(2,\) is needed"):
            step(KEYS[1], state, {"agent_0": jnp.zeros(3)})
        with pytest.raises(ValueError, match="actions: got those of none; those of agent_0 are needed"):
            step(KEYS[1], state, {})
        with pytest.raises(ValueError, match="actions: got those of agent_0, agent_1; those of agent_0 are needed"):
            step(KEYS[1], state, {"agent_0": np.zeros(2), "agent_1": np.zeros(2)})
        with pytest.raises(ValueError, match=r"actions: got \[0\]; a dict with those of agent_0 is needed"):
            step(KEYS[1], state, [0])


def test_a_subclass_may_have_another_action_space():
    """An arm whose joints turn alike is steered by one number."""

    class Stiff(type(games.make("reacher"))):
        def action_space(self, agent):
            return games.Box(-1, 1, ())

        def step_env(self, key, state, actions):
            return super().step_env(key, state, {"agent_0": jnp.full(2, actions["agent_0"])})

    stiff, state = Stiff(), games.make("reacher").reset(KEYS[0])[1]
    for step in (stiff.step_env, jax.jit(stiff.step_env)):
        moved = step(KEYS[1], state, {"agent_0": 0.5})[2]
        same = games.make("reacher").step_env(KEYS[1], state, {"agent_0": jnp.full(2, 0.5)})[2]
        np.testing.assert_allclose(moved["agent_0"], same["agent_0"], rtol=1e-6)
        with pytest.raises(ValueError, match=r"actions: agent_0: got shape \(2,\); .* of shape \(\) is needed"):
            step(KEYS[1], state, {"agent_0": jnp.zeros(2)})


def test_what_is_no_game_is_not_played():
    with pytest.raises(TypeError, match="game: got 'ipd'; a game, such as"):
        rollout(KEYS[0], "ipd", 2)
    with pytest.raises(TypeError, match="act: got 'tft'; a function or None is needed"):
        rollout(KEYS[0], games.make("ipd"), 2, "tft")
    with pytest.raises(TypeError, match="rollout: got 5; a Rollout is needed"):
        games.animate(5, "never.gif")


def test_a_batch_is_not_animated():
    played = jax.vmap(lambda key: rollout(key, games.make("ipd"), 2))(KEYS)
    with pytest.raises(ValueError, match=r"rollout: got a batch of shape \(2, 2\)"):
        games.animate(played, "never.gif")


def test_a_registered_game_may_take_the_name_of_a_wrapper(monkeypatch):
    monkeypatch.setattr(registry, "_WRAPPERS", dict(registry._WRAPPERS))
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    for name in ("common_reward", "CartPole-v1"):
        games.register(name, games.CoinGame, "two by two", grid_size=2, replace=True)
        assert games.make(name).grid_size == 2
        assert games.names().count(name) == 1
    with pytest.raises(ValueError, match="factory: got 5; a function that makes a game is needed"):
        games.register("of_no_use", 5, "of no use")
    with pytest.raises(ValueError, match="name: got 5; letters, digits"):
        games.register(5, games.CoinGame, "of no use")


def test_a_registered_game_is_made_by_its_name():
    games.register("tiny_coin_game", games.CoinGame, "two by two", grid_size=2)
    try:
        assert games.make("tiny_coin_game").grid_size == 2
        assert games.make("tiny_coin_game", grid_size=4).grid_size == 4
        assert "tiny_coin_game" in games.names()
        for name in ("tiny_coin_game", "ipd", "CartPole-v1"):
            with pytest.raises(ValueError, match=f"name: got '{name}', which is taken; another name, or replace=True"):
                games.register(name, games.CoinGame, "three by three", grid_size=3)
        assert games.make("tiny_coin_game").grid_size == 2
        games.register("tiny_coin_game", games.CoinGame, "three by three", replace=True, grid_size=3)
        assert games.make("tiny_coin_game").grid_size == 3
        games.register("tiny_coin_game", partial(games.CoinGame, grid_size=5), "five by five", replace=True)
        assert games.make("tiny_coin_game").grid_size == 5
        for name in (
            "tiny game",
            "2_coins",
            "tiny-playground",
        ):  # gymnasium or make could not read these names
            with pytest.raises(ValueError, match=f"name: got '{name}'; letters, digits"):
                games.register(name, games.CoinGame, "of no use")
    finally:
        del registry._ENTRIES["tiny_coin_game"]
