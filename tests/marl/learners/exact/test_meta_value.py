"""MeVa: meta-values against float64 NumPy and a closed form, as learners and as files."""

import contextlib
import io
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, matrix_games
from marl.core.learn import learn
from marl.experiments.meva_training import MetaValueConfig
from marl.learners.exact.meta_value import (
    MetaValues,
    bellman_error,
    load_meva,
    meta_values,
    meva,
    meva_opponent,
    train_meva,
)
from marl.meva import main
from marl.trained import folder
from meta.runs.array_files import load_arrays, replace_arrays
from tests.marl.exact_game import GAME, gradient, sigmoid, values

GAMMA, ALPHA = 0.8, 0.5
PAYOFFS = partial(GAME.values, 0)
RNG = np.random.default_rng(0)
SHAPES = {
    "kernel_0": (2, 10, 3),
    "bias_0": (2, 3),
    "kernel_1": (2, 3, 1),
    "bias_1": (2, 1),
    "shift": (2,),
    "scale": (2,),
}
NETWORKS = {name: RNG.normal(size=shape) for name, shape in SHAPES.items()}
META = MetaValues({name: jnp.float32(x) for name, x in NETWORKS.items()}, GAMMA, ALPHA)
POINT = RNG.normal(size=(2, 5))


def future(seat, x, y):
    """U of a seat in float64."""
    seen = sigmoid(np.concatenate([x, y] if seat == 0 else [y, x]))
    hidden = np.tanh(seen @ NETWORKS["kernel_0"][seat] + NETWORKS["bias_0"][seat])
    value = hidden @ NETWORKS["kernel_1"][seat] + NETWORKS["bias_1"][seat]
    return NETWORKS["shift"][seat] + NETWORKS["scale"][seat] * value[0]


def value(seat, x, y):
    return (1 - GAMMA) * values(x, y)[seat] + GAMMA * future(seat, x, y)


def steps(x, y):
    return ALPHA * gradient(lambda x: value(0, x, y), x), ALPHA * gradient(lambda y: value(1, x, y), y)


def test_players_climb_the_meta_value_of_the_definition():
    @jax.jit
    def changes(x, y):
        first, second = (meva(META, PAYOFFS, seat, learning_rate=2.0) for seat in (0, 1))
        players = (first._replace(init=lambda key: first.init(key)._replace(logits=x)),
                   second._replace(init=lambda key: second.init(key)._replace(logits=y)))  # fmt: skip
        return [state.logits for state in learn(jax.random.key(0), GAME, players, num_updates=1).states]

    after = changes(*jnp.float32(POINT))
    for found, before, step in zip(after, POINT, steps(*POINT), strict=True):
        np.testing.assert_allclose(found - before, 2 * step, rtol=2e-3, atol=1e-4)


def test_the_bellman_error_is_that_of_the_definition():
    after = [point + step for point, step in zip(POINT, steps(*POINT), strict=True)]
    expected = np.mean([(future(seat, *POINT) - value(seat, *after)) ** 2 for seat in (0, 1)])
    found = jax.jit(partial(bellman_error, META, PAYOFFS))(*jnp.float32(POINT)[:, None])
    assert float(found) == pytest.approx(expected, rel=1e-3)


def test_without_later_steps_it_is_the_payoff():
    naive = META._replace(meta_discount=0.0)
    found = [float(value(*jnp.float32(POINT))) for value in meta_values(naive, PAYOFFS)]
    assert found == pytest.approx(values(*POINT), rel=1e-4)


@pytest.mark.system
def test_meta_values_of_two_that_climb_parabolas_are_learned():
    """With f = -(x - 1)^2 / 2 for each alone, V = -p (x - 1)^2 / 2 and p = 1 - gamma + gamma p (1 - alpha p)^2."""

    def parabolas(x, y):
        return -0.5 * (x[0] - 1) ** 2, -0.5 * (y[0] - 1) ** 2

    p = 1.0
    for _ in range(100):
        p = 1 - GAMMA + GAMMA * p * (1 - ALPHA * p) ** 2
    settings = {"meta_discount": GAMMA, "step_size": ALPHA, "start_scale": 1.5, "length": 16, "hidden": (32, 32)}
    meta = train_meva(jax.random.key(0), parabolas, 1, **settings, iterations=3000, learning_rate=3e-3, batch=64)
    points = jnp.linspace(-1, 1.5, 11)[:, None]
    for seat, value in enumerate(meta_values(meta, parabolas)):
        found, slopes = jax.vmap(jax.value_and_grad(value, seat))(points, points)
        np.testing.assert_allclose(found, -p * (points[:, 0] - 1) ** 2 / 2, atol=0.1)
        np.testing.assert_allclose(slopes[:, 0], -p * (points[:, 0] - 1), atol=0.15)


def test_two_of_them_cooperate_in_the_prisoners_dilemma():
    """Two naive learners get -1.98 each, and one beside MeVa less than it."""
    game = InfinitelyRepeated(matrix_games["prisoners_dilemma"])
    players = [meva_opponent(game, seat) for seat in range(2)]
    play = jax.jit(jax.vmap(lambda key: learn(key, game, players, num_updates=101).rewards))
    rewards = play(jax.random.split(jax.random.key(2), 256))
    assert min(float(reward[:, 1:].mean()) for reward in rewards) > -1.2


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meva")
    settings = ["--iterations=20", "--hidden", "4", "--evaluation-trials=8", "--out=small.safetensors"]
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr("signal.signal", lambda *_: None)  # signal handlers of this process stay as they are
        patch.chdir(folder)
        assert main(["chicken", *settings]) == 0
    return folder / "small.safetensors", output.getvalue()


@pytest.mark.system
def test_the_command_writes_a_file_that_plays(written):
    path, output = written
    found = load_arrays(path)[1]["payoffs"]
    row, column = found["meva"]
    text = " ".join(output.split())
    assert f"Two MeVa players get {row:.3f} and {column:.3f} per round over 100 learning steps" in text
    assert f"one gets {found['naive'][0]:.3f} beside naive, {found['lola'][0]:.3f} beside lola." in text
    game = InfinitelyRepeated(matrix_games["chicken"], 0.0)
    assert load_meva(game, str(path)).networks["kernel_0"].shape == (2, 2, 4)


@pytest.mark.system
def test_files_that_do_not_fit_get_one_line(written, tmp_path):
    chicken = InfinitelyRepeated(matrix_games["chicken"], 0.0)
    without = tmp_path / "without.safetensors"
    arrays, metadata = load_arrays(written[0])
    del metadata["config"]["step_size"]
    replace_arrays(without, arrays, metadata)
    for game, file, message in (
        (chicken, without, "without the settings that python -m marl.meva writes"),
        (chicken, folder() / "mmaml-chicken.safetensors", "one that python -m marl.meva wrote is needed"),
        (InfinitelyRepeated(matrix_games["stag_hunt"]), "", "none comes with the library for stag_hunt"),
        (InfinitelyRepeated(matrix_games["prisoners_dilemma"], 0.9), "", "another discount"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            meva_opponent(game, file=str(file))
        assert "\n" not in str(error.value)


def test_a_meta_discount_of_one_is_refused():
    with pytest.raises(ValueError, match=r"^meta_discount: got 1.0; a number in \[0, 1\) is needed"):
        MetaValueConfig(meta_discount=1.0)
