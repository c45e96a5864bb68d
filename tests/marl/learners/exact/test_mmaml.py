"""M-MAML: initial parameters learned by differentiating through the learning of both players."""

import contextlib
import io
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, MatrixGame, matrix_games
from marl.core.learn import learn
from marl.learners.exact.mmaml import mmaml, payoff_of_learning, train_mmaml
from marl.learners.exact.naive import naive
from marl.mmaml import main
from marl.trained import folder
from meta.runs.array_files import load_arrays, replace_arrays

IPD = InfinitelyRepeated(matrix_games["prisoners_dilemma"])
PENNIES = InfinitelyRepeated(matrix_games["matching_pennies"])
CHICKEN = InfinitelyRepeated(matrix_games["chicken"], 0.0)
TURNED = InfinitelyRepeated(MatrixGame.of(PENNIES.payoffs.name, *PENNIES.payoffs.seen_by(1)))


def chicken_by_hand(own, rate, other, steps):
    """Sum of one player's payoffs in float64; p and q are the probabilities of swerving, their gradients by hand."""
    total = 0.0
    for _ in range(steps):
        p, q = 1 / (1 + np.exp(-own)), 1 / (1 + np.exp(-other))
        total += -p * (1 - q) + (1 - p) * q - 100 * (1 - p) * (1 - q)
        own_gradient = p * (1 - p) * (-(1 - q) - q + 100 * (1 - q))
        other_gradient = q * (1 - q) * (-(1 - p) - p + 100 * (1 - p))
        own, other = own + rate * own_gradient, other + other_gradient
    return total


def test_the_payoff_of_learning_and_its_gradient_against_numpy_and_finite_differences():
    def total(own, rate, other):
        values = partial(CHICKEN.values, 0)
        return payoff_of_learning(values, own[None], rate, other[None], meta_steps=4)

    point = (3.0, 0.3, 4.0)
    value, gradient = jax.value_and_grad(total, (0, 1))(*map(jnp.float32, point))
    assert float(value) == pytest.approx(chicken_by_hand(*point, 4), rel=1e-5)
    for i in range(2):
        step = np.eye(3)[i] * 1e-6
        difference = chicken_by_hand(*(point + step), 4) - chicken_by_hand(*(point - step), 4)
        assert float(gradient[i]) == pytest.approx(difference / 2e-6, rel=1e-3)


def test_training_raises_the_payoff_and_leaves_the_step_size_of_1_alone():
    payoffs = []
    learned = train_mmaml(
        jax.random.key(0),
        CHICKEN,
        initialisations=3,
        iterations=150,
        normalise=False,
        report=lambda iteration, metrics, seconds: payoffs.append(metrics["payoff"]),
    )
    assert payoffs[0].shape == (2, 1, 3)
    assert (payoffs[-1].mean((1, 2)) > payoffs[0].mean((1, 2)) + 0.1).all()
    assert (learned.learning_rate[0] == 1).all()
    assert (learned.learning_rate[1] != 1).all()


def head_to_head(row, column):
    play = jax.jit(jax.vmap(lambda key: learn(key, IPD, [row, column], num_updates=101).rewards))
    return [float(r[:, 1:].mean()) for r in play(jax.random.split(jax.random.key(3), 512))]


@pytest.mark.system
def test_the_trained_start_does_at_least_as_well_as_that_of_the_public_code():
    """Against a naive learner the public code's initial parameters get -1.25 / -1.28; two naive ones get -1.98."""
    own, other = head_to_head(mmaml(IPD, 0), naive(partial(IPD.value, 1)))
    assert -1.25 < own < -0.9
    assert other == pytest.approx(-1.28, abs=0.15)


def test_against_itself_it_does_at_least_as_well_as_that_of_the_public_code():
    row, column = head_to_head(mmaml(IPD, 0), mmaml(IPD, 1))
    assert -1.175 < row < -0.99
    assert row == pytest.approx(column, abs=0.03)


def test_the_learned_step_size_suits_the_initial_parameters_learned_with_it():
    """The step size lets the player mostly stand still and extort."""
    own, other = head_to_head(mmaml(IPD, 0, learned_rate=True), naive(partial(IPD.value, 1)))
    assert own > -0.9
    assert other < -1.4


def test_one_of_ten_initial_parameters_is_drawn_uniformly_for_each_seat():
    arrays, _ = load_arrays(folder() / "mmaml-matching_pennies.safetensors")
    assert arrays["logits"].shape == (2, 2, 10, 5)
    for seat in range(2):
        states = jax.vmap(mmaml(PENNIES, seat, learning_rate=0.5).init)(jax.random.split(jax.random.key(0), 2000))
        drawn = (np.asarray(states.logits)[:, None] == arrays["logits"][0, seat]).all(-1)
        assert drawn.mean(0) == pytest.approx(0.1, abs=0.03)
        assert (states.learning_rate == 0.5).all()


def test_mmaml_learns_by_naive_steps():
    learners = [mmaml(CHICKEN, seat, learning_rate=0.5) for seat in (0, 1)]
    history = learn(jax.random.key(1), CHICKEN, learners, num_updates=2, keep_trajectories=True)
    own, other = (float(t.action[0, 0, 0]) for t in history.trajectories[::-1])
    after = float(history.trajectories[1].action[1, 0, 0])
    gradient = jax.grad(lambda own: CHICKEN.value(1, own, jnp.array([other])))(jnp.array([own]))
    assert after == pytest.approx(own + 0.5 * float(gradient[0]), rel=1e-4)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mmaml")
    settings = ["--iterations=20", "--initialisations=3", "--meta-steps=5", "--evaluation-trials=8"]
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr("signal.signal", lambda *_: None)  # signal handlers of this process stay as they are
        patch.chdir(folder)
        assert main(["chicken", *settings]) == 0
    return folder / "mmaml-chicken.safetensors", output.getvalue()


@pytest.mark.usefixtures("promoted")
def test_the_command_writes_a_file_that_plays(written):
    path, output = written
    assert "20/20" in output
    assert "written to mmaml-chicken.safetensors" in output
    arrays, metadata = load_arrays(path)
    _, found = metadata["payoffs"]  # at a step size of 1, and at the learned one
    own, other = f"{found['payoff']:.3f}", f"{found['naive_payoff']:.3f}"
    expected = f"M-MAML gets {own} per round at its learned step sizes, and the naive learner against it {other}."
    assert f"As row, {expected}" in output
    assert (arrays["logits"].shape, arrays["learning_rate"].shape) == ((2, 1, 3, 1), (2, 1, 3))
    assert metadata["config"]["iterations"] == 20
    state = mmaml(CHICKEN, 0, file=str(path)).init(jax.random.key(0))
    assert state.logits in arrays["logits"][0, 0]


def test_files_that_do_not_fit_get_one_line(written, tmp_path):
    cut, other = tmp_path / "cut.safetensors", tmp_path / "other.safetensors"
    cut.write_bytes(written[0].read_bytes()[:-4])
    arrays, metadata = load_arrays(written[0])
    replace_arrays(other, {"lagits" if name == "logits" else name: array for name, array in arrays.items()}, metadata)
    for game, file, message in (
        (CHICKEN, cut, "cannot be read"),
        (CHICKEN, other, "with arrays of shape"),
        (CHICKEN, folder() / "cola-chicken.safetensors", "one that python -m marl.mmaml wrote is needed"),
        (IPD, written[0], "other payoffs"),
        (InfinitelyRepeated(matrix_games["stag_hunt"]), "", "none comes with the library for stag_hunt"),
        (TURNED, "", "none comes with the library for matching_pennies as its column sees it"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            mmaml(game, file=str(file))
        assert "\n" not in str(error.value)
