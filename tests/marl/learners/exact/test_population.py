"""Populations: a learner and its settings are drawn for each trial."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from games import Differentiable, InfinitelyRepeated, chicken
from games.exact.differentiable import tandem
from marl import Member, cgd, learn, lola, make_learner, make_shaper, naive, population, shaping_trial
from marl.learners.exact.naive import PolicyState
from marl.learners.registry import FORMULA
from meta import Evolution, evolve
from tests.marl.exact_game import GAME
from tests.nightly import nightly

SPEC = "naive + naive(learning_rate=[0.5, 2], init_scale=[0, 3]) + memory_one(probabilities=[0.9, 1, 0, 1, 0])"
TRIALS = 3000


@pytest.fixture(scope="module")
def drawn():
    return jax.jit(jax.vmap(make_learner(SPEC, GAME, 1).init))(jax.random.split(jax.random.key(0), TRIALS))


def test_members_are_drawn_uniformly(drawn):
    counts = np.bincount(drawn.which, minlength=3)
    # Pearson's statistic, with two degrees of freedom: above 13.8 in one of a thousand such tests.
    assert ((counts - TRIALS / 3) ** 2).sum() / (TRIALS / 3) < 13.8


def test_a_range_above_0_is_drawn_from_on_a_logarithmic_scale_and_another_evenly(drawn):
    assert drawn.settings[0] == drawn.settings[2] == {}
    settings = {name: np.sort(x) for name, x in drawn.settings[1].items()}
    uniform = {
        "learning_rate": np.log(settings["learning_rate"] / 0.5) / np.log(4),
        "init_scale": settings["init_scale"] / 3,
    }
    assert uniform.keys() == settings.keys()
    for x in uniform.values():
        # Kolmogorov's statistic: above 1.95 / sqrt(n) in one of a thousand such tests.
        assert abs(x - np.arange(TRIALS) / TRIALS).max() < 1.95 / TRIALS**0.5
    # Settings and the member are independent.
    both = np.corrcoef([*drawn.settings[1].values(), drawn.which])
    assert abs(both - np.eye(3)).max() < 4 / TRIALS**0.5


def test_the_policy_is_that_of_the_member_that_was_drawn(drawn):
    for member, state in enumerate(drawn.states):
        mine = np.asarray(drawn.which) == member
        np.testing.assert_array_equal(drawn.logits[mine], state.logits[mine])
    fixed = jax.nn.sigmoid(drawn.logits[np.asarray(drawn.which) == 2])
    np.testing.assert_allclose(fixed, np.tile([0.9, 1, 0, 1, 0], (len(fixed), 1)), atol=1e-6)


def test_a_drawn_member_learns_as_it_does_alone():
    game = Differentiable(tandem)
    ranges = ({}, {"learning_rate": (0.01, 0.1)}, {"lookahead_rate": (0.1, 0.2)})

    def make(which, seat, settings):
        rates = {"learning_rate": 0.03} | settings
        return (lola if which == 2 else cgd)(game, seat, **rates)

    mixture = population([Member(partial(make, i, 1), ranges[i]) for i in range(3)])
    play = partial(learn, game=game, num_updates=20, keep_trajectories=True)

    @jax.jit
    @jax.vmap
    def run(key):
        first = make(2, 0, {})
        history = play(key, learners=[first, mixture])
        logits, state = history.trajectories[1].action, history.states[1]
        begin = {"init": lambda key: PolicyState(logits[0, 0])}
        alone = [make(i, 1, settings)._replace(**begin) for i, settings in enumerate(state.settings)]
        return logits, [play(key, learners=[first, one]).trajectories[1].action for one in alone], state.which

    together, alone, which = run(jax.random.split(jax.random.key(1), 12))
    assert set(which.tolist()) == {0, 1, 2}
    for trial, member in enumerate(which):
        same = [np.allclose(together[trial], one[trial], rtol=1e-4, atol=1e-5) for one in alone]
        assert same == [i == member for i in range(3)]


@nightly
def test_only_the_drawn_member_is_computed_where_candidates_share_a_trial():
    shaper = make_shaper("mfos(hidden_units=2)", GAME)

    def trial_of(alone):
        learner = make_learner("naive + naive(learning_rate=[0.1, 3]) + tft", GAME, 1, alone=alone)
        return shaping_trial(GAME, shaper, learner, meta_steps=5)

    trial, how = trial_of(True), {"evolution": Evolution(population_size=8, generations=3), "num_trials": 4}
    keys = jax.random.split(jax.random.key(4))
    together = evolve(trial_of(False), shaper.init, keys, **how)
    alone = evolve(trial, shaper.init, keys, **how, together="trial")
    for name, values in together.metrics.items():
        np.testing.assert_allclose(values, alone.metrics[name], rtol=2e-4, atol=2e-5, err_msg=name)

    def over_candidates(key):
        return jax.vmap(trial, (0, None))(jax.vmap(shaper.init)(jax.random.split(key, 8)), key)

    def branches(function, *arguments):
        jaxprs, found = [jax.make_jaxpr(function)(*arguments).jaxpr], []
        while jaxprs:
            for equation in jaxprs.pop().eqns:
                found += [len(equation.params["branches"])] if equation.primitive.name == "cond" else []
                jaxprs += jaxprs_in_params(equation.params)
        return found

    assert branches(over_candidates, keys[0]).count(3) == 1
    assert 3 not in branches(jax.vmap(over_candidates), keys)  # all three in each trial, and a choice


@pytest.mark.usefixtures("nans")
def test_a_member_that_diverges_is_not_seen_where_another_was_drawn():
    broken = make_learner("0,0,0,0,0", GAME, 1)._replace(init=lambda key: PolicyState(jnp.full(5, jnp.nan)))
    learner = population([Member(lambda settings: broken), Member(lambda settings: make_learner("tft", GAME, 1))])

    @jax.jit
    @jax.vmap
    def run(key):
        state = learner.update(key, learner.init(key), None)[0]
        return state.which, learner.act(key, learner.policy(state), (), jnp.zeros(10))[0]

    which, played = map(np.asarray, run(jax.random.split(jax.random.key(2), 8)))
    assert 0 < which.sum() < 8
    np.testing.assert_array_equal(np.isfinite(played).all(1), which == 1)
    np.testing.assert_array_equal(played[which == 1] > 0, [[True, True, False, True, False]] * which.sum())


def test_a_name_without_ranges_is_the_learner_itself():
    alone = make_learner("naive", GAME, 1).init(jax.random.key(3))
    np.testing.assert_array_equal(alone.logits, naive(GAME, 1).init(jax.random.key(3)).logits)
    assert alone._fields == ("logits",)


@pytest.mark.parametrize("spec", ["naive + 0.9,1,0,1,0", "0.9,1,0,1,0 + naive", "mmaml(file='') + .9,1,0,1,0"])
def test_five_numbers_are_a_member_too(spec):
    state = jax.eval_shape(make_learner(spec, GAME, 1).init, jax.random.key(0))
    assert len(state.states) == 2


def test_every_learner_has_a_range_for_its_step_size_and_can_be_in_a_population():
    learners = [
        name for name in FORMULA.names() if name.startswith(("naive", "lo", "so", "cgd", "sga", "rein", "tab", "q_"))
    ]
    assert len(learners) >= 9
    learner = make_learner(" + ".join(f"{name}(learning_rate=[0.1, 1])" for name in learners), GAME, 1)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    assert [list(settings) for settings in state.settings] == [["learning_rate"]] * len(learners)


def test_in_a_game_that_is_played_once_policies_are_one_logit():
    learner = make_learner("lola(learning_rate=[0.5, 2]) + best_response", InfinitelyRepeated(chicken, 0.0), 1)
    state = jax.eval_shape(learner.init, jax.random.key(0))
    assert state.logits.shape == (1,)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("naive + naiv", "got 'naiv'; did you mean naive"),
        ("naive - lola", "got 'naive - lola'; a name such as naive"),
        ("naive + lola(rate=1)", "lola has no setting 'rate'; it takes learning_rate"),
        ("naive(learning_rate=[2, 0.5])", r"learning_rate: got \[2, 0.5\]; a number, or \[lowest, highest\]"),
        ("naive(learning_rate=[1, 1])", r"learning_rate: got \[1, 1\]; a number, or \[lowest, highest\]"),
        ("naive(learning_rate=[1])", r"learning_rate: got \[1\]; a number"),
        ("naive(learning_rate=[0.1, 1e999])", r"learning_rate: got \[0.1, inf\]; a number"),
        ("naive(learning_rate=[True, 2])", r"learning_rate: got \[True, 2\]; a number"),
        ("naive + ", "got ''; a name such as naive"),
        ("reinforce(episodes=[2, 8])", r"reinforce: episodes: got \[2, 8\]; a whole number is needed"),
        ("hola(order=[1, 2]) + naive", r"hola: order: got \[1, 2\]; a whole number is needed"),
        ("pola(inner_steps=2.5)", "pola: inner_steps: got 2.5; a whole number is needed"),
        ("pola(inner_beta=[0, 4])", "pola: inner_beta: got 0.0; a number above 0"),
        ("tabular_ppo(clip=[0.5, 3])", r"tabular_ppo: clip: got 3.0; a number in \(0, 1\) is needed"),
        ("q_learning(temperature=[-1, 1])", "q_learning: temperature: got -1.0; a number above 0"),
        ("sos(a=-1)", r"sos: a: got -1; a number in \(0, 1\)"),
        ("lola(lookahead_rate=-1)", "lola: lookahead_rate: got -1; a number of at least 0"),
        ("q_learning(learning_rate=2)", r"q_learning: learning_rate: got 2; a number in \[0, 1\]"),
        ("tabular_ppo(epochs=0)", "tabular_ppo: epochs: got 0; a whole number of at least 1"),
        ("random(probability=[0, 1])", "random: probability: cannot be drawn for each trial; a plain number"),
        ("zd(chi=[2, 4])", "zd: chi: cannot be drawn for each trial; a plain number"),
        ("memory_one(probabilities=[0, 1])", "probabilities: got 2 of them; 5 are needed"),
    ],
)
def test_bad_specs_are_refused_in_one_line(spec, message):
    with pytest.raises(ValueError, match=message) as error:
        make_learner(spec, GAME, 1, field="opponent")
    assert str(error.value).startswith("opponent: ")
    assert "\n" not in str(error.value)


def test_a_population_has_members():
    with pytest.raises(ValueError, match=r"members: got \[\]; a list of at least one Member is needed"):
        population([])
