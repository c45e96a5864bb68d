"""COLA: consistent update functions, as learners and as files."""

import contextlib
import io
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, matrix_games
from games.exact.differentiable import Differentiable, tandem
from marl.cola import main
from marl.core.learn import learn
from marl.experiments.cola_training import ConsistencyConfig
from marl.learners.exact.cola import (
    cola,
    cola_opponent,
    consistency_loss,
    load_cola,
    train_cola,
    updates,
    white_box_updates,
)
from marl.learners.exact.white_box import hola, lola
from marl.trained import folder
from meta.runs.array_files import load_arrays, replace_arrays

GAMES = {"prisoners_dilemma": 0.96, "matching_pennies": 0.96, "chicken": 0.0}
POINTS = jax.random.uniform(jax.random.key(9), (2, 256, 1), minval=-2, maxval=2)
RIVALS = {"lola": lola, "exact lola": partial(hola, order=1), "hola2": partial(hola, order=2)}


def tandem_loss(functions):
    return float(consistency_loss(functions, tandem, *POINTS, 1.0))


def rival_loss(name):
    make = partial(RIVALS[name], learning_rate=1.0, num_logits=1)
    return tandem_loss(white_box_updates(make, tandem))


@pytest.fixture(scope="module")
def trained():
    return train_cola(
        jax.random.key(0),
        tandem,
        1,
        region=2.0,
        hidden=(8,),
        activation="relu",
        iterations=2000,
        learning_rate=1e-2,
    )


@pytest.mark.system
def test_the_loss_of_exact_lola_and_its_next_order_in_the_tandem_game_by_hand():
    # With s = x + y and eta 1, LOLA steps 6 - 2s; against that step 14 - 2s is best, and against this 30 - 2s.
    assert rival_loss("exact lola") == pytest.approx(2 * 8**2, rel=1e-4)
    assert rival_loss("hola2") == pytest.approx(2 * 16**2, rel=1e-4)


def test_steps_that_are_consistent_by_hand_have_no_loss_and_are_not_the_only_ones():
    # a_1 - s / 2 and a_2 - s / 2 with a_1 + a_2 = 2: d/dx [2x - (s + a_2 - s / 2)^2] = 2 - a_2 - s / 2.
    for first in (1.0, 0.3):
        pair = (lambda x, y, a=first: a - (x + y) / 2, lambda x, y, a=2 - first: a - (x + y) / 2)
        assert tandem_loss(pair) == pytest.approx(0, abs=1e-6)


@pytest.mark.system
def test_the_loss_falls_below_that_of_lola_of_every_order(trained):
    assert tandem_loss(updates(trained)) < 0.1 < min(rival_loss(name) for name in RIVALS)


def test_trained_steps_are_those_of_the_closed_form(trained):
    first, second = (jax.vmap(update)(*POINTS) for update in updates(trained))
    assert np.asarray(first + second) == pytest.approx(np.asarray(2 - POINTS.sum(0)), abs=0.25)


def test_two_cola_players_leave_the_stable_fixed_points_of_the_tandem_game(trained):
    """Willi et al. (2022): consistent updates do not preserve stable fixed points, here x + y = 1; s goes to 2."""
    game = Differentiable(tandem)
    players = [cola(trained, player, learning_rate=0.5, init_scale=0.3) for player in range(2)]
    history = learn(jax.random.key(1), game, players, num_updates=3, keep_trajectories=True)
    start = sum(float(trajectory.action[0, 0, 0]) for trajectory in history.trajectories)
    end = sum(float(state.logits[0]) for state in history.states)
    assert 2 - end == pytest.approx((2 - start) / 2**3, abs=0.15)
    assert end > 1.5


def test_a_learning_rate_multiplies_the_step_and_each_player_takes_its_own(trained):
    x, y = POINTS[0, 0], POINTS[1, 0]
    first, second = white_box_updates(lambda _: cola(trained, 1, learning_rate=3.0), tandem)
    # As the first player's learner it would be handed (own, other) = (x, y), which to player 1 are (y, x).
    assert float(first(x, y)[0]) == pytest.approx(3 * float(updates(trained)[1](y, x)[0]), rel=1e-4)
    assert float(second(x, y)[0]) == pytest.approx(3 * float(updates(trained)[1](x, y)[0]), rel=1e-4)


def shipped_loss(game, functions):
    points = jax.random.uniform(jax.random.key(5), (2, 1024, game.num_logits), minval=-7, maxval=7)
    measure = jax.jit(partial(consistency_loss, functions, partial(game.values, 0), lookahead_rate=1.0))
    return float(measure(*points))


@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize("name", GAMES)
def test_the_trained_networks_are_more_consistent_than_lola(name):
    game = InfinitelyRepeated(matrix_games[name], GAMES[name])
    recorded = load_arrays(folder() / f"cola-{name}.safetensors")[1]["consistency_losses"]
    found = shipped_loss(game, updates(load_cola(game)))
    assert found < min(recorded["LOLA"], recorded["exact LOLA"]) / 10
    if name == "chicken":  # LOLA's second derivatives of a repeated game take long to compile
        rival = white_box_updates(partial(lola, num_logits=1), partial(game.values, 0))
        assert shipped_loss(game, rival) == pytest.approx(recorded["LOLA"], rel=0.3)


def test_cola_players_cooperate_in_the_prisoners_dilemma():
    """Two COLA players get more than two naive learners, which get -1.98 each."""
    game = InfinitelyRepeated(matrix_games["prisoners_dilemma"])
    players = [cola_opponent(game, seat) for seat in range(2)]
    play = jax.jit(jax.vmap(lambda key: learn(key, game, players, num_updates=101).rewards))
    rewards = play(jax.random.split(jax.random.key(2), 256))
    assert min(float(reward[:, 1:].mean()) for reward in rewards) > -1.4


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cola")
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
    assert "20/20" in output
    metadata = load_arrays(path)[1]
    losses, (row, column) = metadata["consistency_losses"], metadata["payoffs"]
    rivals = f"{losses['LOLA']:.4g} of LOLA and {losses['exact LOLA']:.4g} of exact LOLA"
    assert f"a consistency loss of {losses['COLA']:.4g}, beside {rivals}. Two COLA players get {row:.3f} and" in output
    assert f"{column:.3f} per round over 100 learning steps." in output
    game = InfinitelyRepeated(matrix_games["chicken"], 0.0)
    assert load_cola(game, str(path)).networks["kernel_0"].shape == (2, 2, 4)
    players = [cola_opponent(game, player, file=str(path)) for player in range(2)]
    assert jnp.isfinite(learn(jax.random.key(0), game, players, num_updates=3).rewards[0]).all()


def test_files_that_do_not_fit_get_one_line(written, tmp_path):
    contents = written[0].read_bytes()
    chicken = InfinitelyRepeated(matrix_games["chicken"], 0.0)
    damaged, cut = tmp_path / "damaged.safetensors", tmp_path / "cut.safetensors"
    damaged.write_bytes(b"\xff" * 40)
    cut.write_bytes(contents[:-4])
    swapped = tmp_path / "swapped.safetensors"
    arrays, metadata = load_arrays(written[0])
    metadata["config"]["activation"] = "sine"
    replace_arrays(swapped, arrays, metadata)
    for game, file, message in (
        (chicken, damaged, "cannot be read"),
        (chicken, cut, "cannot be read"),
        (chicken, tmp_path / "none", "cannot be read"),
        (chicken, swapped, "tanh or relu is needed"),
        (chicken, folder() / "mmaml-chicken.safetensors", "one that python -m marl.cola wrote is needed"),
        (InfinitelyRepeated(matrix_games["hawk_dove"], 0.0), written[0], "other payoffs"),
        (InfinitelyRepeated(matrix_games["stag_hunt"]), "", "none comes with the library for stag_hunt"),
        (InfinitelyRepeated(matrix_games["prisoners_dilemma"], 0.9), "", "another discount"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            cola_opponent(game, file=str(file))
        assert "\n" not in str(error.value)


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match=r"^activation: got 'sine'; "):
        ConsistencyConfig(activation="sine")
