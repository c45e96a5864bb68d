"""What messages say, worked out in float64."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attacks import messages
from attacks.messages import make_message

KEY = jax.random.key(0)
OBS = np.array([0.3, -1.2, 0.05, 2.0], np.float32)


def spoken(message, parameters, obs=OBS):
    return np.asarray(jax.jit(message.speak)(parameters, jnp.asarray(obs)))


def test_a_network_by_the_definition():
    message = messages.mlp((2, 2), 3, scale=1.5, hidden=(5, 4))
    parameters = message.init(KEY)
    parameters = jax.tree.map(lambda x: x + 0.1, parameters)  # so that the biases count
    w = {name: np.asarray(x, float) for name, x in parameters.items()}
    hidden = np.maximum(np.maximum(OBS @ w["w0"] + w["b0"], 0) @ w["w1"] + w["b1"], 0)
    expected = 1.5 * np.tanh(hidden @ w["w2"] + w["b2"])
    np.testing.assert_allclose(spoken(message, parameters, OBS.reshape(2, 2)), expected, rtol=1e-5)


def test_the_paper_s_network():
    shapes = {name: x.shape for name, x in messages.mlp((4,)).init(KEY).items()}
    assert shapes == {"w0": (4, 64), "b0": (64,), "w1": (64, 64), "b1": (64,), "w2": (64, 2), "b2": (2,)}


def test_weights_begin_with_variance_one_over_the_inputs():
    parameters = messages.mlp((50,), hidden=(400, 100)).init(KEY)
    for name, inputs in (("w0", 50), ("w1", 400)):
        assert np.std(parameters[name]) == pytest.approx(inputs**-0.5, rel=0.02)
        assert np.mean(parameters[name]) == pytest.approx(0.0, abs=4 * inputs**-0.5 / parameters[name].size ** 0.5)
    assert not np.any(parameters["b0"])


def test_a_linear_message_by_the_definition():
    message = messages.linear((4,), 2, scale=2.0)
    parameters = {"w0": jnp.arange(8.0).reshape(4, 2) / 10, "b0": jnp.array([0.1, -0.2])}
    np.testing.assert_allclose(
        spoken(message, parameters), 2 * np.tanh(OBS @ (np.arange(8).reshape(4, 2) / 10) + [0.1, -0.2]), rtol=1e-5
    )
    assert jax.tree.map(jnp.shape, message.init(KEY)) == jax.tree.map(jnp.shape, parameters)


def test_random_messages_are_as_loud_as_is_said_and_an_evolved_one_stays_what_it_is():
    observations = jax.random.normal(jax.random.key(7), (64, 4))
    for message in (messages.mlp((4,)), messages.echo((4,), 3), messages.constant((4,))):
        own = message.init(KEY)
        volume = messages.loudness(message, own, observations)
        said = np.stack([spoken(message, own, obs) for obs in observations[:3]])
        louder = messages.as_loud(message, observations, 3 * volume)
        assert float(messages.loudness(louder, louder.init(jax.random.key(8)), observations)) == pytest.approx(
            3 * float(volume), rel=1e-4
        )
        again = np.stack([spoken(louder, (own, jnp.ones(())), obs) for obs in observations[:3]])
        np.testing.assert_array_equal(again, said)
    nothing = messages.as_loud(messages.linear((4,)), observations, jnp.zeros(()))
    assert not spoken(nothing, nothing.init(KEY)).any()


def test_an_echo_says_one_number_in_every_entry_and_is_clipped():
    message = messages.echo((4,), 3, scale=2.0, units=[1.0, 2.0, 0.1, 1.0])
    weights = jnp.array([1.0, 0.5, -2.0, 1.0])
    np.testing.assert_allclose(spoken(message, weights), 3 * [0.3 - 0.3 - 1.0 + 2.0], rtol=1e-5)
    np.testing.assert_array_equal(spoken(message, -10 * weights), 3 * [-2.0])
    assert message.init(KEY).shape == (4,)


def test_a_constant_message_does_not_look():
    message = messages.constant((4,), 3)
    words = message.init(KEY)
    np.testing.assert_array_equal(spoken(message, words), spoken(message, words, 100 * OBS))
    np.testing.assert_allclose(spoken(message, jnp.array([0.0, 1.0, -50.0])), [0, 4.7853, -2 * math.pi], atol=1e-3)


def test_a_table_by_hand():
    message = messages.table((2,), 1, low=[0, -1], high=[3, 1], bins=3, scale=1.0)
    words = jnp.arange(9.0)[:, None] / 10
    assert message.init(KEY).shape == (9, 1)
    # The first entry chooses among 0, 1, 2, and the second among 0, 3, 6; what lies beyond belongs to the border.
    for obs, cell in (
        ([0.5, -0.9], 0),
        ([1.5, -0.9], 1),
        ([2.5, 0.0], 5),
        ([0.1, 0.9], 6),
        ([99, 99], 8),
        ([-9, -9], 0),
    ):
        np.testing.assert_allclose(spoken(message, words, np.array(obs, np.float32)), np.tanh(cell / 10), rtol=1e-6)


@pytest.mark.parametrize(
    "message",
    [
        messages.mlp((4,), 2, scale=0.5),
        messages.linear((4,), 2, scale=0.5),
        messages.echo((4,), 2, scale=0.5),
        messages.constant((4,), 2, scale=0.5),
        messages.table((4,), 2, scale=0.5, low=[-1], high=[1], bins=2),
    ],
)
def test_all_lie_within_the_scale_and_nothing_is_said_by_zeros(message):
    loud = jax.tree.map(lambda x: 1e3 * x, message.init(KEY))
    assert np.abs(spoken(message, loud)).max() <= 0.5
    np.testing.assert_array_equal(spoken(message, jax.tree.map(jnp.zeros_like, loud)), [0.0, 0.0])
    assert spoken(message, loud).shape == (2,)


def test_a_message_by_its_name_and_settings():
    message = make_message("mlp(hidden=[3], scale=0.25)", (4,), 2)
    parameters = message.init(KEY)
    assert parameters["w0"].shape == (4, 3)
    same = messages.mlp((4,), 2, hidden=(3,), scale=0.25)
    np.testing.assert_array_equal(spoken(message, parameters), spoken(same, parameters))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("mpl", r"^message: .*mpl.*mlp"),
        ("mlp(hiden=[3])", r"^message: .*hiden.*hidden"),
        ("mlp(hidden=3)", r"^message: mlp: hidden: got 3; a list of whole numbers"),
        ("linear(scale='loud')", r"^message: linear: scale: got 'loud'; a number is needed$"),
        ("echo(units=[1, 2])", r"^message: echo: units: got 2; one number, or 4 are needed$"),
        ("echo(units=0)", r"^message: echo: units: got .*; numbers above 0 are needed$"),
        ("echo(units='SI')", r"^message: echo: units: got 'SI'; a number or a list of numbers is needed$"),
        ("table", r"^message: table: "),
        ("table(low=[0], high=[1], bins=0)", r"^message: table: bins: got 0; a whole number of at least 1 is needed$"),
        ("table(low=[0], high=[0])", r"^message: table: got the bounds .*; finite ones are needed$"),
        ("table(low=[0], high=[1], bins=100)", r"^message: table: got 100,000,000 cells; a million at most"),
    ],
)
def test_bad_messages_are_refused_in_one_line(spec, error):
    with pytest.raises(ValueError, match=error) as raised:
        make_message(spec, (4,), 2)
    assert "\n" not in str(raised.value)
