"""Message functions against their definitions in float64."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games
from attacks import messages
from attacks.experiments import evaluation
from attacks.messages import make_message

KEY = jax.random.key(0)
OBS = np.array([0.3, -1.2, 0.05, 2.0], np.float32)


def late(speak, memory, parameters, obs):
    return speak(parameters, obs, memory)


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
    message = messages.linear((4,), 2, scale=2.0, units=[1, 2, 0.1, 1])
    w, b = np.arange(8).reshape(4, 2) / 10, np.array([0.1, -0.2])
    parameters = {"w": jnp.asarray(w), "b": jnp.asarray(b), "volume": jnp.log(0.5)}
    linear_part = (OBS / [1, 2, 0.1, 1]) @ w + b
    np.testing.assert_allclose(spoken(message, parameters), 2 * np.tanh(0.5 * linear_part), rtol=1e-5)
    assert jax.tree.map(jnp.shape, message.init(KEY)) == jax.tree.map(jnp.shape, parameters)
    assert messages.linear((4,), volume=0.1).init(KEY)["volume"] == pytest.approx(math.log(0.1))


def test_a_quadratic_message_by_the_definition():
    message = messages.quadratic((4,), 2, scale=2.0, units=[1, 2, 0.1, 1])
    parameters = message.init(KEY)
    assert parameters["w"].shape == (4 + 10, 2)
    x = OBS / np.array([1, 2, 0.1, 1])
    products = [x[i] * x[j] for i in range(4) for j in range(i, 4)]
    linear_part = np.array([*x, *products]) @ np.asarray(parameters["w"], float) / 14**0.5 + [0.1, 0.0]
    parameters |= {"b": jnp.array([0.1, 0.0]), "volume": jnp.log(0.5)}
    np.testing.assert_allclose(spoken(message, parameters), 2 * np.tanh(0.5 * linear_part), rtol=1e-5)
    with pytest.raises(ValueError, match="65 entries; 64 at most"):
        messages.quadratic((65,))


def test_a_network_without_hidden_layers_and_with_units():
    message = messages.mlp((4,), hidden=(), scale=2.0, units=2.0)
    parameters = message.init(KEY)
    expected = 2 * np.tanh(OBS / 2 @ np.asarray(parameters["w0"], float))
    np.testing.assert_allclose(spoken(message, parameters), expected, rtol=1e-5)


def test_random_messages_have_the_given_amplitude_and_evolved_ones_do_not_change():
    observations = jax.random.normal(jax.random.key(7), (64, 4))
    for message in (messages.mlp((4,)), messages.echo((4,), 3), messages.constant((4,))):
        own = message.init(KEY)
        volume = evaluation.magnitude(message, own, observations)
        said = np.stack([spoken(message, own, obs) for obs in observations[:3]])
        larger = evaluation.with_magnitude(message, observations, 3 * volume)
        assert float(evaluation.magnitude(larger, larger.init(jax.random.key(8)), observations)) == pytest.approx(
            3 * float(volume), rel=1e-4
        )
        again = np.stack([spoken(larger, (own, jnp.ones(())), obs) for obs in observations[:3]])
        np.testing.assert_array_equal(again, said)
    nothing = evaluation.with_magnitude(messages.linear((4,)), observations, jnp.zeros(()))
    assert not spoken(nothing, nothing.init(KEY)).any()


def test_an_echo_says_one_number_in_every_entry_and_is_clipped():
    message = messages.echo((4,), 3, scale=2.0, units=[1.0, 2.0, 0.1, 1.0])
    weights = jnp.array([1.0, 0.5, -2.0, 1.0])
    np.testing.assert_allclose(spoken(message, weights), 3 * [0.3 - 0.3 - 1.0 + 2.0], rtol=1e-5)
    np.testing.assert_array_equal(spoken(message, -10 * weights), 3 * [-2.0])
    assert message.init(KEY).shape == (4,)


def test_a_constant_message_does_not_depend_on_the_observation():
    message = messages.constant((4,), 3)
    parameters = message.init(KEY)
    np.testing.assert_array_equal(spoken(message, parameters), spoken(message, parameters, 100 * OBS))
    np.testing.assert_allclose(spoken(message, jnp.array([0.0, 1.0, -50.0])), [0, 4.7853, -2 * math.pi], atol=1e-3)


def test_an_lstm_by_its_equations_remembers_what_it_saw():
    """The equations in float64: i, f, o = sigmoid(W x + U h + b), c = f c + i tanh(W x + U h + b), h = o tanh(c)."""
    message = messages.lstm((4,), 2, scale=1.5, units=3)
    parameters = jax.tree.map(lambda x: x + 0.1, message.init(KEY))
    cell = jax.tree.map(lambda x: np.asarray(x, float), parameters["cell"])
    sights = np.asarray(jax.random.normal(jax.random.key(4), (5, 4)))
    (_, h), said = jax.jit(lambda x: evaluation.hear(message, parameters, message.memory, x))(sights)
    c, hidden = np.zeros(3), np.zeros(3)
    for i, x in enumerate(sights.astype(float)):
        gates = {
            k: x @ cell[f"i{k}"]["kernel"] + hidden @ cell[f"h{k}"]["kernel"] + cell[f"h{k}"]["bias"] for k in "ifgo"
        }
        sigmoid = {k: 1 / (1 + np.exp(-z)) for k, z in gates.items()}
        c = sigmoid["f"] * c + sigmoid["i"] * np.tanh(gates["g"])
        hidden = sigmoid["o"] * np.tanh(c)
        expected = 1.5 * np.tanh(hidden @ np.asarray(parameters["w"], float) + np.asarray(parameters["b"], float))
        np.testing.assert_allclose(said[i], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(h, hidden, rtol=1e-4, atol=1e-5)
    # As many units, and as many numbers in each part, as in the paper's code.
    shapes = jax.tree.map(jnp.shape, messages.lstm((4,)).init(KEY))
    assert (shapes["w"], shapes["b"]) == ((32, 2), (2,))
    assert shapes["cell"]["hf"] == {"kernel": (32, 32), "bias": (32,)}
    assert shapes["cell"]["ii"] == {"kernel": (4, 32)}


def test_a_turning_message_changes_its_parameters_once():
    message = messages.turn((4,), 2, steps=12, what="linear(scale=2)")
    parameters = message.init(KEY)
    assert parameters["turn"] == pytest.approx(2.5, abs=2)
    parameters["turn"] = jnp.log(jnp.float32(0.25 / 0.75))  # a quarter of 12
    said = evaluation.hear(message, parameters, message.memory, jnp.tile(OBS, (6, 1)))[1]
    linear = messages.linear((4,), 2, scale=2)
    for i in range(6):
        own = parameters["first" if i < 3 else "then"]
        np.testing.assert_allclose(said[i], spoken(linear, own), rtol=1e-5)
    assert np.abs(said[2] - said[3]).max() > 0.1


def test_a_random_message_with_a_memory_has_the_given_amplitude_too():
    observations = jax.random.normal(jax.random.key(7), (64, 4))
    for message in (messages.lstm((4,), units=4), messages.turn((4,), steps=64)):
        larger = evaluation.with_magnitude(message, observations, jnp.float32(0.7))
        assert float(evaluation.magnitude(larger, larger.init(KEY), observations)) == pytest.approx(0.7, rel=1e-4)
        assert evaluation.magnitude(larger, jax.tree.map(jnp.zeros_like, larger.init(KEY)), observations) == 0


def test_a_table_by_hand():
    message = messages.table((2,), 1, low=[0, -1], high=[3, 1], bins=3, scale=1.0)
    parameters = jnp.arange(9.0)[:, None] / 10
    assert message.init(KEY).shape == (9, 1)
    # The first entry chooses among 0, 1, 2, and the second among 0, 3, 6; values beyond belong to the border.
    for obs, cell in (
        ([0.5, -0.9], 0),
        ([1.5, -0.9], 1),
        ([2.5, 0.0], 5),
        ([0.1, 0.9], 6),
        ([99, 99], 8),
        ([-9, -9], 0),
    ):
        np.testing.assert_allclose(
            spoken(message, parameters, np.array(obs, np.float32)), np.tanh(cell / 10), rtol=1e-6
        )


@pytest.mark.parametrize(
    "message",
    [
        messages.mlp((4,), 2, scale=0.5),
        messages.linear((4,), 2, scale=0.5),
        messages.echo((4,), 2, scale=0.5),
        messages.constant((4,), 2, scale=0.5),
        messages.table((4,), 2, scale=0.5, low=[-1], high=[1], bins=2),
        messages.lstm((4,), 2, scale=0.5),
        messages.turn((4,), 2, scale=0.5),
    ],
)
def test_messages_lie_within_the_scale_and_parameters_of_zeros_give_zeros(message):
    large = jax.tree.map(lambda x: 1e3 * x, message.init(KEY))
    if message.remember:
        memory = jax.tree.map(lambda x: x + 5, message.memory)
        message = message._replace(speak=partial(late, message.speak, memory))
    assert np.abs(spoken(message, large)).max() <= 0.5
    np.testing.assert_array_equal(spoken(message, jax.tree.map(jnp.zeros_like, large)), [0.0, 0.0])
    assert spoken(message, large).shape == (2,)


def test_a_message_by_its_name_and_settings():
    message = make_message("mlp(hidden=[3], scale=0.25)", (4,), 2)
    parameters = message.init(KEY)
    assert parameters["w0"].shape == (4, 3)
    same = messages.mlp((4,), 2, hidden=(3,), scale=0.25)
    np.testing.assert_array_equal(spoken(message, parameters), spoken(same, parameters))


@pytest.mark.parametrize("spec", ["mlp(hidden=[3])", "lstm(units=2)", "echo"])
def test_a_message_about_other_observations_is_refused_in_one_line(spec):
    message = make_message(spec, (5,), 2)
    needed = r"^message: got one that reads other observations; .* CartPole-v1, \(4,\), is needed$"
    with pytest.raises(ValueError, match=needed):
        message.talk(games.make("CartPole-v1"), message.init(KEY), 2)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("mpl", r"^message: .*mpl.*mlp"),
        ("mlp(hiden=[3])", r"^message: .*hiden.*hidden"),
        ("mlp(hidden=3)", r"^message: mlp: hidden: got 3; a list of whole numbers"),
        ("linear(scale='large')", r"^message: linear: scale: got 'large'; a number is needed$"),
        ("echo(units=[1, 2])", r"^message: echo: units: got 2; one number, or 4 are needed$"),
        ("echo(units=0)", r"^message: echo: units: got .*; numbers above 0 are needed$"),
        ("echo(units='SI')", r"^message: echo: units: got 'SI'; a number or a list of numbers is needed$"),
        ("table", r"^message: table: "),
        ("linear(units=[1, 2, 3])", r"^message: linear: units: got 3; one number, or 4 are needed$"),
        ("lstm(units=0)", r"^message: lstm: units: got 0; a whole number of at least 1 is needed$"),
        ("turn(what='lstm')", r"^message: turn: what: got 'lstm'; a message without memory is needed$"),
        ("turn(what='mpl')", r"^message: turn: what: got 'mpl'; did you mean mlp\?$"),
        ("turn(steps=0)", r"^message: turn: steps: got 0; .*needed$"),
        ("table(low=[0], high=[1], bins=0)", r"^message: table: bins: got 0; a whole number of at least 1 is needed$"),
        ("table(low=[0], high=[0])", r"^message: table: got the bounds .*; finite ones, high above low, are needed$"),
        ("table(low=[0, 0], high=[1])", r"^message: table: low: got 2 numbers; 4, one for each input, are needed$"),
        ("table(low=[0], high=[1], bins=100)", r"^message: table: got 100,000,000 cells; a million at most"),
    ],
)
def test_bad_messages_are_refused_in_one_line(spec, error):
    with pytest.raises(ValueError, match=error) as raised:
        make_message(spec, (4,), 2)
    assert "\n" not in str(raised.value)
