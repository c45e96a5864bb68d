"""Learners and shapers by their specs, and refusals of bad specs."""

import dataclasses
import re
from functools import partial

import jax
import numpy as np
import pytest

from configs.specs import REQUIRED
from games import Box, Differentiable, Discrete, Game, InfinitelyRepeated, chicken, make, prisoners_dilemma, tandem
from games.core.fingerprint import fingerprint
from marl import Learner, learn, make_learner, make_shaper, naive, register_learner
from marl.blocks.networks import convolutional, feed_forward, nature, recurrent
from marl.core.learn import learning
from marl.learners import registry
from marl.learners.sampled.dqn import dqn
from marl.learners.sampled.fixed import random
from marl.learners.sampled.mappo import mappo
from marl.learners.sampled.ppo import a2c, ppo
from marl.learners.sampled.pqn import pqn
from marl.learners.sampled.sac import sac
from marl.learners.sampled.td3 import td3
from marl.shapers import registry as shapers
from marl.shapers import sampled_policies
from marl.shapers.exact_policies import mfos
from tests.marl.sampled_steps import CART_POLE
from tests.nightly import grid

EXACT, ROUNDS = InfinitelyRepeated(prisoners_dilemma), make("ipd", episode_length=4)
BREAKOUT, PENDULUM = make("Breakout-MinAtar"), make("Pendulum-v1")
IMAGE = BREAKOUT.observation_space("agent_0").shape
SMALL = {"hidden": (8,)}
SPECS = {
    "ppo": (CART_POLE, ppo(CART_POLE)),
    "ppo(hidden=[8], activation='relu', shared=True, normalize_observations=True)": (
        CART_POLE,
        ppo(
            CART_POLE,
            network=feed_forward((4,), 2, activation="relu", shared=True, **SMALL),
            normalize_observations=True,
        ),
    ),
    "ppo(network='recurrent', memory=5, hidden=[8])": (
        CART_POLE,
        ppo(CART_POLE, network=recurrent((4,), 2, memory=5, **SMALL)),
    ),
    "a2c(network='convolutional', channels=2, hidden=[8])": (
        BREAKOUT,
        a2c(BREAKOUT, network=convolutional(IMAGE, 3, channels=2, **SMALL)),
    ),
    "dqn(buffer_size=6)": (CART_POLE, dqn(CART_POLE, replay={"buffer_size": 6})),
    "dqn(buffer_size=6, hidden=[8])": (
        CART_POLE,
        dqn(CART_POLE, replay={"buffer_size": 6}, network=feed_forward((4,), 2, shared=True, **SMALL)),
    ),
    "pqn(hidden=[8], epsilon_end=0.1, minibatches=2)": (
        CART_POLE,
        pqn(
            CART_POLE,
            network=feed_forward((4,), 2, hidden=[8], activation="relu", shared=True, layer_norm=True),
            exploration={"epsilon_end": 0.1},
            minibatches=2,
        ),
    ),
    "mappo(hidden=[8])": (
        ROUNDS,
        mappo(ROUNDS, network=feed_forward((5,), 2, **SMALL), critic=feed_forward((10,), 2, **SMALL)),
    ),
    "tabular_ppo": (ROUNDS, ppo(ROUNDS, network=feed_forward((5,), 2, hidden=(), shared=True))),
}


@pytest.mark.parametrize(("spec", "expected"), SPECS.items(), ids=SPECS)
def test_a_spec_is_the_learner_with_these_settings(spec, expected):
    game, by_hand = expected
    learner = make_learner(spec, game, num_updates=1)
    ours, theirs = (jax.jit(one.init)(jax.random.key(0)) for one in (learner, by_hand))
    assert type(ours) is type(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)


GROUPED = {
    "td3(batch_size=8, target_noise=0.3, buffer_drift=0.1, buffer_every=5)": td3(
        PENDULUM, replay={"batch_size": 8}, noise={"target_noise": 0.3},
        dynamic_buffer={"buffer_drift": 0.1, "buffer_every": 5},
    ),
    "sac(temperature=0.5)": sac(PENDULUM, entropy={"temperature": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("spec", GROUPED)
def test_a_spec_names_the_settings_of_groups_beside_the_others(spec):
    assert fingerprint(make_learner(spec, PENDULUM)) == fingerprint(GROUPED[spec]._replace(seat=0))
    assert fingerprint(make_learner(spec.partition("(")[0], PENDULUM)) != fingerprint(make_learner(spec, PENDULUM))


@pytest.mark.parametrize("game", [EXACT, ROUNDS], ids=["formula", "sampled"])
def test_every_default_may_be_given_as_a_setting(game):
    for name in registry._registry(game, "").names():
        settings = registry.settings(name, game)
        if "network" in settings:  # settings of other networks
            networks = registry.NETWORKS
            others = {setting for network in networks.names() for setting in networks.settings(network)}
            others -= networks.settings(settings["network"]).keys()
            settings = {setting: x for setting, x in settings.items() if setting not in others}
        if REQUIRED not in settings.values() and name != "axelrod":  # the name of a strategy has no default
            spec = f"{name}({', '.join(f'{setting}={x!r}' for setting, x in settings.items())})"
            continuous = make("pendulum") if name in ("td3", "sac") else game
            make_learner(spec, continuous, num_updates=1)


@pytest.mark.system
def test_annealing_ends_with_the_last_update():
    spec = "ppo(anneal=True, epochs=2, minibatches=2, learning_rate=0.01, hidden=[4])"
    learner = make_learner(spec, CART_POLE, num_updates=3)
    begin, update = learning(CART_POLE, [learner], steps_per_update=4, num_envs=2)
    carry, key = jax.jit(begin)(jax.random.key(0))
    step, states = jax.jit(update), []
    for _ in range(4):
        carry, _ = step(carry, key)
        states.append(np.concatenate([x.ravel() for x in jax.tree.leaves(carry.states[0].params)]))
    first, second, third, fourth = states
    assert abs(second - first).max() > abs(third - second).max() > 0
    np.testing.assert_array_equal(third, fourth)


class Cube(Game):
    """A game with an observation of three axes that is no image."""

    num_agents = 1

    def observation_space(self, agent):
        return Box(0.0, 1.0, (5, 5, 5))

    def action_space(self, agent):
        return Discrete(2)


def test_only_images_are_convolved_over_height_and_width():
    spec, depths = "ppo(network='convolutional', channels=2, hidden=[4])", {"coin_game": 4, "Seaquest-MinAtar": 10}
    for name, depth in depths.items():
        params = jax.eval_shape(make_learner(spec, make(name)).init, jax.random.key(0)).params
        assert params["Conv_0"]["kernel"].shape == (3, 3, depth, 2)
    with pytest.raises(ValueError, match=r"network: got observations \(5, 5, 5\); images \[height, width, channels\]"):
        make_learner(spec, Cube())
    encoder = jax.eval_shape(shapers.SAMPLED.build("shaper", {"channels": 2}, Cube(), 0).init, jax.random.key(0))
    assert "see_convolution_w" not in encoder
    seaquest = shapers.SAMPLED.build("shaper", {"channels": 2}, make("Seaquest-MinAtar"), 0)
    assert jax.eval_shape(seaquest.init, jax.random.key(0))["see_w"].shape[0] == 10 * 10 * 2


def test_a_learner_fits_its_seat():
    learner = make_learner("ppo", ROUNDS, 1)
    assert learner.init(jax.random.key(0)).params["Dense_0"]["kernel"].shape == (5, 64)

    class Lopsided(type(ROUNDS)):
        def action_space(self, agent):
            return Discrete(2 + self.agents.index(agent))

    game = Lopsided(**{field.name: getattr(ROUNDS, field.name) for field in dataclasses.fields(ROUNDS)})

    def widths(seat):
        params = jax.eval_shape(make_learner("ppo", game, seat).init, jax.random.key(0)).params
        return {leaf.shape[-1] for leaf in jax.tree.leaves(params)}

    assert widths(1) - widths(0) == {3}


@pytest.fixture
def a_name():
    yield "mine"
    for one in (registry.FORMULA, registry.SAMPLED, shapers.FORMULA, shapers.SAMPLED):
        if "mine" in one:
            one.unregister("mine")


def test_a_registered_learner_has_a_name_in_every_game(a_name):
    seen = []

    def mine(game, seat, *, step: float = 0.5, num_updates: int | None = None, kind="calm") -> Learner:
        seen.append((game, seat, step, num_updates, kind))
        return random(game, seat) if game is ROUNDS else naive(game, seat, learning_rate=step)

    register_learner(a_name, mine)
    make_learner("mine", ROUNDS, 1, num_updates=7)
    make_learner("mine(step=2, kind='wild')", EXACT, 1)
    assert [seen[0], seen[-1]] == [(ROUNDS, 1, 0.5, 7, "calm"), (EXACT, 1, 2, None, "wild")]
    assert registry.settings("mine", EXACT) == {"step": 0.5, "kind": "calm"}
    assert make_learner("tft + mine(step=[0.1, 1])", EXACT).init(jax.random.key(0)).settings[1].keys() == {"step"}
    for spec, message in {
        "mine(num_updates=3)": "learner: mine has no setting 'num_updates'; it takes step, kind",
        "mine(step='big')": "learner: mine: step: got 'big'; a number is needed",
        "mine(kind=3)": "learner: mine: kind: got 3; text in quotes is needed",
    }.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            make_learner(spec, ROUNDS)


def test_a_taken_name_is_refused_unless_it_is_replaced(a_name):
    def mine(game, seat) -> Learner:
        return random(game, seat)

    register_learner(a_name, mine, kind="sampled")
    with pytest.raises(ValueError, match="name: got 'mine', which is taken; another name, or replace=True, is needed"):
        register_learner(a_name, mine)
    assert a_name not in registry.FORMULA  # the refused call changed nothing
    register_learner(a_name, lambda game, seat: mine(game, seat), replace=True)
    assert a_name in registry.FORMULA
    with pytest.raises(ValueError, match="name: got 'two words'; letters, digits, - and _ are needed"):
        register_learner("two words", mine)


class Labelled(Game):
    """A game whose observations are dictionaries."""

    num_agents = 1

    def observation_space(self, agent):
        return {"position": Discrete(3)}

    def action_space(self, agent):
        return Discrete(2)


REFUSED = {
    "pop": "learner: got 'pop'; did you mean ppo or ppi?",
    "ppo(0.1)": "learner: got 'ppo(0.1)'; a name such as ppo, or name(setting=value), is needed",
    "ppo(": "learner: got 'ppo('; a name such as ppo, or name(setting=value), is needed",
    "a2c(clip=0.1)": "learner: a2c has no setting 'clip'; it takes learning_rate, gae_lambda, ",
    "ppo(num_envs=2)": "learner: ppo has no setting 'num_envs'; it takes ",
    "ppo(objective='mine')": (
        "ppo: objective: got 'mine'; one of clipped, dpo, quadratic, classic, policy_gradient is needed"
    ),
    "ppo(epochs=0)": "learner: ppo: epochs: got 0; a whole number of at least 1 is needed",
    "ppo(epochs=True)": "learner: ppo: epochs: got True; a whole number is needed",
    "ppo(minibatches=0)": "learner: ppo: minibatches: got 0; a whole number of at least 1 is needed",
    "ppo(gae_lambda=1.1)": "learner: ppo: gae_lambda: got 1.1; a number in [0, 1] is needed",
    "ppo(clip=-0.1)": "learner: ppo: clip: got -0.1; a number above 0 is needed",
    "ppo(anneal=1)": "learner: ppo: anneal: got 1; True or False is needed",
    "ppo(learning_rate='fast')": "learner: ppo: learning_rate: got 'fast'; a number is needed",
    "a2c(learning_rate=-1)": "learner: a2c: learning_rate: got -1; a number of at least 0 is needed",
    "dqn(tau=2)": "learner: dqn: tau: got 2; a number in (0, 1] is needed",
    "dqn(batch_size=0)": "learner: dqn: batch_size: got 0; a whole number of at least 1 is needed",
    "dqn(learning_starts=0)": "learner: dqn: learning_starts: got 0; a whole number of at least 1 is needed",
    "ppo(value_clip=-1)": "learner: ppo: value_clip: got -1; a number above 0 is needed",
    "ppo(value_loss='huber', value_clip=0.5)": "learner: ppo: value_clip: got 0.5; it is of the loss without ",
    "ppo(value_clip='no')": "learner: ppo: value_clip: got 'no'; a number or None is needed",
    "ppo(hidden=[8, 0])": "learner: ppo: hidden: got [8, 0]; a list of whole numbers of at least 1 is needed",
    "ppo(hidden=8)": "learner: ppo: hidden: got 8; a list of whole numbers is needed",
    "ppo(activation='gelu')": "learner: ppo: activation: got 'gelu'; one of tanh, relu is needed",
    "ppo(network='lstm')": "network: got 'lstm'; one of feed_forward, convolutional, recurrent, nature is needed",
    "ppo(memory=3)": "learner: ppo: memory: a feed_forward network has none; it has hidden, activation, shared",
    "ppo(network='recurrent', memory=0)": "learner: ppo: memory: got 0; a whole number of at least 1 is needed",
    "ppo(network='convolutional')": "learner: ppo: network: got observations (4,); images [height, width, channels]",
    "dqn(network='recurrent')": "learner: dqn: network: got one with memory",
    "pqn(trace_lambda=2)": "learner: pqn: trace_lambda: got 2; a number in [0, 1] is needed",
    "pqn(buffer_size=2)": "learner: pqn has no setting 'buffer_size'; it takes ",
    "mappo(critic='nature')": "learner: mappo has no setting 'critic'; it takes ",
    "mfos(hidden_units=0)": "learner: mfos: hidden_units: got 0; a whole number of at least 1 is needed",
}


@pytest.mark.parametrize(("spec", "message"), REFUSED.items(), ids=REFUSED)
def test_bad_specs_are_refused_in_one_line(spec, message):
    with pytest.raises(ValueError, match="learner: ") as error:
        make_learner(spec, CART_POLE, num_updates=1)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_annealing_needs_the_number_of_updates():
    with pytest.raises(ValueError, match=r"victim: ppo: anneal: got True; .* num_updates, is needed"):
        make_learner("ppo(anneal=True)", CART_POLE, field="victim")


def test_a_game_that_no_network_can_play_is_refused_in_one_line():
    with pytest.raises(ValueError, match=r"learner: ppo: observations: got \{'position': .*; an array is needed"):
        make_learner("ppo", Labelled())
    with pytest.raises(ValueError, match=r"learner: dqn: action space: got Box.*; Discrete is needed"):
        make_learner("dqn", make("Pendulum-v1"))


@pytest.mark.parametrize("game", [EXACT, ROUNDS], ids=["formula", "sampled"])
def test_a_seat_outside_the_game_is_refused(game):
    for make_one in (make_learner, make_shaper):
        with pytest.raises(ValueError, match=r": seat: got 2; one of 0 to 1 is needed"):
            make_one("mfos", game, 2)


def test_a_shaper_by_its_name_and_settings():
    key = jax.random.key(0)
    for found, by_hand in (
        (make_shaper("mfos(hidden_units=3)", EXACT, hidden_units=8), mfos(hidden_units=3)),
        (make_shaper("mfos", EXACT, hidden_units=8), mfos(hidden_units=8)),
        (make_shaper("mfos", InfinitelyRepeated(chicken, 0.0)), mfos(1)),
        (make_shaper("shaper(hidden_units=3)", ROUNDS, 1), sampled_policies.shaper(ROUNDS, 1, hidden_units=3)),
    ):
        jax.tree.map(np.testing.assert_array_equal, found.init(key), by_hand.init(key))
    assert make_shaper("good_shepherd", EXACT, hidden_units=8).init(key).shape == (5,)  # it has no hidden units


@pytest.mark.parametrize(
    ("game", "spec", "message"),
    [
        (EXACT, "mofs", "shaper: got 'mofs'; did you mean mfos?"),
        (EXACT, "gaussian_mfos", "shaper: got 'gaussian_mfos'; one of mfos, good_shepherd, shaper, counts is needed"),
        (EXACT, "mfos(hidden_units=0)", "shaper: mfos: hidden_units: got 0; a whole number of at least 1 is needed"),
        (EXACT, "good_shepherd(hidden_units=3)", "shaper: good_shepherd has no setting 'hidden_units'; it takes none"),
        (ROUNDS, "mfos(hidden_units=0)", "shaper: mfos: hidden_units: got 0; a whole number of at least 1 is needed"),
        (ROUNDS, "shaper(memory='run')", "shaper: shaper: memory: got 'run'; one of trial, episode is needed"),
        (ROUNDS, "shaper(averaging=1)", "shaper: shaper: averaging: got 1; True or False is needed"),
        (Labelled(), "shaper", "shaper: shaper: observations: got {'position': "),
    ],
)
def test_bad_specs_of_shapers_are_refused_in_one_line(game, spec, message):
    with pytest.raises(ValueError, match="shaper: ") as error:
        make_shaper(spec, game)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.system
@pytest.mark.parametrize("name", grid(("mfos", "shaper"), "shaper"))
def test_an_untrained_shaper_is_a_learner_with_random_parameters(name):
    """Parameters are drawn for each trial and do not change while the co-player learns."""

    def exact(key):
        return learn(key, EXACT, [make_learner(name, EXACT), make_learner("naive", EXACT, 1)], num_updates=3)

    def rounds(key):
        players = [make_learner(f"{name}(hidden_units=3)", ROUNDS), make_learner("random", ROUNDS, 1)]
        return learn(key, ROUNDS, players, num_updates=2, steps_per_update=8, num_envs=2)

    keys = jax.random.split(jax.random.key(0), 2)
    for play, game in ((exact, EXACT), (rounds, ROUNDS)):
        history = jax.jit(jax.vmap(play))(keys)
        shaper = make_shaper(name, game) if game is EXACT else make_shaper(f"{name}(hidden_units=3)", game)
        for trial, key in enumerate(keys):
            drawn = shaper.init(jax.random.split(jax.random.split(key, 4)[2])[0])
            found = jax.tree.map(lambda x, trial=trial: x[trial], history.states[0].which)
            jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), found, drawn)
        assert np.isfinite(history.rewards[0]).all()


def test_only_learners_with_one_policy_are_members_of_populations():
    with pytest.raises(ValueError, match="opponent: shaper: one policy, as members of a population have, is needed"):
        make_learner("naive + shaper", EXACT, 1, field="opponent")


@pytest.mark.parametrize("register", [register_learner, shapers.register_shaper])
@pytest.mark.parametrize("kind", ["exact", ["formula", "sampled"]])
def test_other_kinds_and_what_is_no_factory_are_refused(register, kind, a_name):
    with pytest.raises(ValueError, match=r"kind: got .*; one of formula, sampled.* is needed"):
        register(a_name, naive, kind=kind)
    with pytest.raises(TypeError, match="factory: got 'foo'; a function is needed"):
        register(a_name, "foo", kind="formula")


@pytest.mark.parametrize("name", registry.WHITE_BOX)
def test_white_box_learners_are_named_in_differentiable_games_too(name):
    made = make_learner(name, Differentiable(tandem), 1)
    assert made.seat == 1
    assert made.init(jax.random.key(0)).logits.shape == (1,)
    assert registry.settings(name, Differentiable(tandem)) == registry.settings(name, EXACT)


@pytest.mark.parametrize("make_one", [ppo, dqn])
def test_a_network_of_bytes_is_refused_behind_normalised_observations(make_one):
    images = nature((36, 36, 1), 2, filters=[2], hidden=[4])
    make_one(CART_POLE, network=images)
    with pytest.raises(ValueError, match="normalize_observations: got True with nature"):
        make_one(CART_POLE, network=images, normalize_observations=True)


def test_a_registered_shaper_is_an_untrained_learner_too(a_name):
    def mine(game, seat, *, width):
        return mfos(game.num_logits, hidden_units=width)

    shapers.register_shaper(a_name, mine, kind="formula")
    assert make_shaper("mine(width=2)", EXACT).init(jax.random.key(0))["w1"].shape == (10, 2)
    assert make_learner("mine(width=2)", EXACT).init(jax.random.key(0)).which["w1"].shape == (10, 2)
    with pytest.raises(ValueError, match="shaper: mine: width: not given; a value is needed"):
        make_shaper("mine", EXACT)
