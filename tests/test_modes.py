"""JAX's modes are the user's: games, adapters, learners, evolution and attacks compute the same in all of them.

Traced, but for `jax_debug_nans`, which looks at numbers.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games.gymnax
import games.jaxmarl
from attacks import TrainingSchedule, messages, train_time_trial
from games import InfinitelyRepeated, make, prisoners_dilemma, registry
from games.gymnasium import Seat, _reset, _step
from marl import learn, make_learner, make_shaper, shaping_trial
from marl.experiments.learner_training import TrainConfig, train
from marl.learners.registry import FORMULA, SAMPLED
from meta import Evolution, Outcome, evolve
from meta.batched_trials import with_nan, without_nan
from tests.nightly import grid

pytestmark = pytest.mark.system

KEY = jax.random.key(0)
MODES = {
    "default": contextlib.nullcontext,
    "x64": functools.partial(jax.enable_x64, True),
    "ranks": functools.partial(jax.numpy_rank_promotion, "raise"),
    "dtypes": functools.partial(jax.numpy_dtype_promotion, "strict"),
}
every_mode = pytest.mark.parametrize("mode", grid((name for name in MODES if name != "default"), "x64", "dtypes"))
# Of grids over all games and learners: x64 changes the default types, and the nightly run has the other modes.
every_mode_of_many = pytest.mark.parametrize("mode", grid((name for name in MODES if name != "default"), "x64"))
IPD = make("ipd", episode_length=4)
REACHER = make("reacher")
FORMULA_GAME = InfinitelyRepeated(prisoners_dilemma)
CONTINUOUS = ("td3", "sac")
APART = ("memory_one", "axelrod", "cola", "meva")
WITHOUT_NAN = ("ppo", "reinforce", "dqn", "r2d2", "impala", "loqa", "lola_dice", "tabular_ppo")
# One of each mechanism is always tested, and all of them by the nightly run.
GAMES = ("ipd", "three_player_ipd", "coin_game", "coins", "ipd_in_the_matrix", "negotiation", "fishery", "pendulum")
OF_SAMPLES = ("ppo", "a3c", "dqn", "lola_dice", "tabular_ppo", "reinforce", "mfos", "zd", "random", "always_defect")
OF_FORMULAS = ("naive", "lola", "reinforce", "mfos", "zd")
# Settings with which learners learn from few steps and are traced fast.
SMALL = {
    **dict.fromkeys(("ppo", "a2c", "impala", "a3c", "advantage_alignment", "loqa"), "hidden=[4]"),
    "proximal_advantage_alignment": "hidden=[4], epochs=1, minibatches=1",
    "ppo": "hidden=[4], epochs=1, minibatches=1",
    "r2d2": "hidden=[4], memory=4, sequence_length=8, burn_in=2",
    "ppi": "memory=4, sequence_length=8, buffer_size=16, gradient_steps=1, horizon=2, rollouts=1",
    "pola_dice": "outer_steps=1, inner_steps=1",
    "lola_dice": "episodes=2",
    "reciprocator": "epochs=1",
    "tabular_ppo": "epochs=1",
}


def dtypes(tree):
    return [str(x.dtype) for x in jax.tree.leaves(tree)]


def traced(mode, function, *arguments):
    with MODES[mode]():
        return jax.eval_shape(function, *arguments)


def played(game, key):
    """Results of a game from a reset and from two kinds of steps."""
    observations, state = game.reset(key)
    actions = {agent: game.action_space(agent).sample(key) for agent in game.agents}
    return observations, state, game.step(key, state, actions), game.step_env(key, state, actions)


@every_mode_of_many
@pytest.mark.parametrize("name", grid(registry.ours(), *GAMES))
def test_a_game_has_the_dtypes_of_its_spaces_and_of_its_first_state(name, mode):
    game = make(name)
    found = traced(mode, functools.partial(played, game), KEY)
    assert dtypes(found) == dtypes(traced("default", functools.partial(played, game), KEY))
    first, state, *steps = found
    for observations, after, rewards, dones, _ in ((s[0], s[1], s[2], s[3], s[4]) for s in steps):
        assert dtypes(after) == dtypes(state)
        for agent in game.agents:
            space = game.observation_space(agent)
            assert first[agent].dtype == observations[agent].dtype == jnp.dtype(space.dtype)
            assert (rewards[agent].dtype, dones[agent].dtype) == (jnp.float32, jnp.bool_)


@every_mode
@pytest.mark.parametrize("name", ["ipd_in_the_matrix", "reacher", "fishery", "negotiation"])
def test_adapters_have_the_dtypes_of_their_spaces(name, mode):
    game = make(name)

    def stepped(key):
        seat = Seat.of(game, 0, None)
        _, carried = _reset(seat, jnp.uint32(0))
        action = game.action_space("agent_0").sample(key)
        of_gymnax = games.gymnax.env(game)
        _, state = of_gymnax.reset(key)
        of_jaxmarl = games.jaxmarl.wrap(game)
        actions = {agent: game.action_space(agent).sample(key) for agent in game.agents}
        return (
            _step(seat, jnp.uint32(0), jnp.uint32(1), carried, action),
            of_gymnax.step(key, state, action)[:3],
            of_jaxmarl.step(key, of_jaxmarl.reset(key)[1], actions),
        )

    found = traced(mode, stepped, KEY)
    assert dtypes(found) == dtypes(traced("default", stepped, KEY))
    assert "float64" not in dtypes(found)


def of_learner(name, game):
    settings = SMALL.get(name, "") if game is not FORMULA_GAME else ""
    return make_learner(f"{name}({settings})", game, 0, num_updates=2)


@every_mode_of_many
@pytest.mark.parametrize(
    "name", grid((x for x in SAMPLED.names() if x not in ("memory_one", *CONTINUOUS)), *OF_SAMPLES)
)
def test_a_learner_of_samples_keeps_its_dtypes(name, mode):
    with MODES[mode]():
        players = [of_learner(name, IPD), make_learner("random", IPD, 1)]
        found = jax.eval_shape(lambda key: learn(key, IPD, players, num_updates=2, steps_per_update=8, num_envs=2), KEY)
    assert not {"float64", "int64"} & set(dtypes(found))


@every_mode
@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_learner_of_continuous_actions_keeps_its_dtypes(name, mode):
    with MODES[mode]():
        player = make_learner(f"{name}(hidden=[4], buffer_size=16, batch_size=4)", REACHER)
        found = jax.eval_shape(lambda key: learn(key, REACHER, [player], num_updates=2, num_envs=2), KEY)
    assert not {"float64", "int64"} & set(dtypes(found))


@every_mode_of_many
@pytest.mark.parametrize("name", grid((x for x in FORMULA.names() if x not in APART), *OF_FORMULAS))
def test_a_learner_of_formulas_keeps_its_dtypes(name, mode):
    with MODES[mode]():
        players = [of_learner(name, FORMULA_GAME), make_learner("naive", FORMULA_GAME, 1)]
        found = jax.eval_shape(lambda key: learn(key, FORMULA_GAME, players, num_updates=2), KEY)
    assert not {"float64", "int64"} & set(dtypes(found))


@every_mode
def test_shaping_and_attacks_are_traced(mode):
    with MODES[mode]():
        for game in (FORMULA_GAME, IPD):
            shaper, opponent = make_shaper("mfos", game), make_learner("reinforce", game, 1)
            trial = shaping_trial(game, shaper, opponent, meta_steps=2, episode_length=4)
            assert jax.eval_shape(trial, jax.eval_shape(shaper.init, KEY), KEY).fitness.shape == ()
        cart_pole = make("CartPole-v1")
        message = messages.linear(cart_pole.observation_space("agent_0").shape, 2)
        schedule = TrainingSchedule(2, 4, 2, 2, 4)
        attack = train_time_trial(
            cart_pole, message, lambda game: make_learner("ppo(hidden=[4], epochs=1, minibatches=1)", game), schedule
        )
        assert jax.eval_shape(attack, jax.eval_shape(message.init, KEY), KEY).fitness.shape == ()


@every_mode
@pytest.mark.parametrize("noise", ["full", "low_rank"])
def test_evolution_runs(mode, noise):
    """The trial itself is strict in its dtypes and ranks."""
    with MODES[mode]():
        evolution = Evolution(population_size=4, generations=2, noise=noise)
        trial = lambda x, key: Outcome(-((jnp.ones((2, 3), jnp.float32) @ x) ** 2).sum(), {})  # noqa: E731
        found = evolve(trial, lambda key: jnp.ones((3, 4), jnp.float32), KEY, evolution)
    assert np.isfinite(found.metrics["fitness"]).all()
    assert found.parameters.dtype == jnp.float32


@pytest.mark.parametrize("mode", grid(("x64", "ranks", "dtypes"), "x64", "dtypes"))
def test_a_shaper_is_evolved_to_the_same_bits(mode):
    """Parameters, trials and fitness have 32 bits even if JAX's default numbers have 64."""
    shaper = make_shaper("good_shepherd", FORMULA_GAME)
    trial = shaping_trial(FORMULA_GAME, shaper, make_learner("naive", FORMULA_GAME, 1), meta_steps=2)
    evolution, found = Evolution(population_size=4, generations=3), {}
    for one in ("default", mode):
        with MODES[one]():
            found[one] = evolve(trial, lambda key: shaper.init(key).astype(jnp.float32), jax.random.key(3), evolution)
    assert found[mode].parameters.dtype == jnp.float32
    if mode != "x64":  # JAX draws other bits there
        np.testing.assert_array_equal(found["default"].parameters, found[mode].parameters)


@pytest.mark.parametrize("name", ["ipd", "coin_game", "harvest", "reacher", "negotiation", "cournot"])
def test_games_make_no_nan(name):
    with jax.debug_nans(True):
        jax.jit(functools.partial(played, make(name)))(KEY)


@pytest.mark.parametrize("name", grid(WITHOUT_NAN, "dqn"))
def test_learners_make_no_nan_but_the_return_of_no_episode(name):
    """No episode of a hundred steps ends in two updates: its return is NaN, which is no fault."""
    game = make("ipd")
    players = [of_learner(name, game), make_learner("random", game, 1)]
    with jax.debug_nans(True):
        found = learn(KEY, game, players, num_updates=2, steps_per_update=8, num_envs=2)
    assert np.isnan(found.returns[0]).all()
    assert np.isfinite(found.rewards[0]).all()


def test_training_makes_no_nan_but_the_return_of_no_episode():
    learner = "ppo(hidden=[4], epochs=1, minibatches=1)"
    config = TrainConfig(environment="CartPole-v1", learner=learner, total_steps=16, num_envs=2, steps_per_update=8)
    with jax.debug_nans(True):
        found = train(config)
    assert np.isnan(found.returns).all()
    assert np.isfinite(found.loop.metrics["reward"]).all()


def test_missing_numbers_leave_a_program_and_are_nan_on_the_host():
    missing = {"curve": jnp.array([1.0, jnp.nan, -2.0]), "last": jnp.float32(3)}
    with jax.debug_nans(True):
        found = with_nan(jax.jit(lambda: without_nan(missing))())
    jax.tree.map(np.testing.assert_array_equal, found, missing)


@pytest.mark.parametrize("noise", ["full", "low_rank"])
def test_evolution_makes_no_nan(noise):
    with jax.debug_nans(True):
        test_evolution_runs("default", noise)


@pytest.mark.parametrize("name", grid(CONTINUOUS, "td3"))
def test_learners_of_continuous_actions_make_no_nan(name):
    player = make_learner(f"{name}(hidden=[4], buffer_size=16, batch_size=4)", REACHER)
    with jax.debug_nans(True):
        assert np.isfinite(learn(KEY, REACHER, [player], num_updates=2, num_envs=2).rewards[0]).all()
