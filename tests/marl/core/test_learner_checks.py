"""Refusals of `learn` and `evolve`: one sentence that names the learner or the function."""

import functools
import gc
import resource
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, make, prisoners_dilemma, stag_hunt
from games.core.fingerprint import compiled_once, fingerprint
from marl import (
    Learner,
    a2c,
    dqn,
    evaluate,
    learn,
    make_learner,
    make_shaper,
    memory_one,
    naive,
    ppo,
    pqn,
    proximal_advantage_alignment,
    shaping_trial,
)
from marl.blocks.networks import feed_forward
from meta import Evolution, Outcome, evolve

KEY = jax.random.key(0)
CART_POLE = make("CartPole-v1")
FORMULA = InfinitelyRepeated(prisoners_dilemma)
SAMPLED = make("ipd")
THREE = make("three_player_ipd")
ONES = jnp.ones(3, jnp.float32)


def zeros(key, parameters, memory, obs):
    return jnp.zeros(4, int), memory, ()


def learner(**parts):
    return Learner(**{"init": lambda key: ONES, "act": zeros, "update": lambda key, s, t: (s, {}), **parts})


NEEDED = "the learner in seat 0: "
WRONG = {
    "two outputs": (
        learner(act=lambda k, p, m, o: (1, m)),
        "act returned 2 values; (action, memory, extras) is needed",
    ),
    "one output": (learner(act=lambda k, p, m, o: o), "act returned an array float32[4, 4]; (action, memory, extras)"),
    "no metrics": (
        learner(update=lambda k, s, t: s),
        "update returned an array float32[3]; (state, metrics) is needed",
    ),
    "metrics of no dict": (
        learner(update=lambda k, s, t: (s, 1)),
        "update returned 1 as metrics; a dict, which may be",
    ),
    "one action": (
        learner(act=lambda k, p, m, o: (jnp.int32(0), m, ())),
        "act returned an action of shape (); one action for each of the 4 environments, [4, ...], is needed",
    ),
    "another shape": (
        learner(update=lambda k, s, t: (s[0], {})),
        "update returned state as float32[]; float32[3], as it got it, is needed",
    ),
    "another dtype": (
        learner(update=lambda k, s, t: (s.astype(jnp.int32), {})),
        "update returned state as int32[3]; float32[3], as it got it, is needed",
    ),
    "another structure": (learner(update=lambda k, s, t: ((s, s), {})), "update returned a state of another structure"),
    "another memory": (learner(act=lambda k, p, m, o: (jnp.zeros(4, int), 3, ())), "act returned a memory of another"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_learner_with_wrong_results_is_refused_in_one_line(name):
    wrong, words = WRONG[name]
    with pytest.raises((TypeError, ValueError)) as said:
        learn(KEY, CART_POLE, [wrong], num_updates=1, num_envs=4)
    assert str(said.value).startswith(NEEDED + words)
    assert "\n" not in str(said.value)


CALLS = {
    "key: got 0; one key of jax.random.key(seed) is needed": lambda: learn(0, SAMPLED, [], num_updates=1),
    "key: got an array uint32[2]; one key": lambda: learn(jax.random.PRNGKey(0), SAMPLED, [], num_updates=1),
    "game: got 'ipd'; a Game is needed": lambda: learn(KEY, "ipd", [], num_updates=1),
    "learners: got a Learner; a list": lambda: learn(KEY, CART_POLE, learner(), num_updates=1),
    "learners: got 'ppo' in seat 0; a Learner is needed": lambda: learn(KEY, CART_POLE, ["ppo"], num_updates=1),
    "num_updates: got 0; a whole number of at least 1": lambda: learn(KEY, CART_POLE, [learner()], num_updates=0),
    "num_envs: got 2.0; a whole number": lambda: learn(KEY, CART_POLE, [learner()], num_updates=1, num_envs=2.0),
    "learn() got an unexpected keyword argument 'steps'": lambda: learn(KEY, CART_POLE, [], num_updates=1, steps=3),
    "the learner in seat 0 (ppo): update does not fit what it was given; num_envs is None": lambda: learn(
        KEY, CART_POLE, [ppo(CART_POLE)], num_updates=1
    ),
    "key: got 0; a key of jax.random.key(seed), or an array [K] of them": lambda: evolve(fine, init, 0),
    "key: got an array uint32[2]; a key": lambda: evolve(fine, init, jax.random.PRNGKey(0)),
    "init: got 3; a function is needed": lambda: evolve(fine, 3, KEY),
    "trial: returned a float; meta.Outcome(fitness, metrics) is needed": lambda: evolve(lambda p, k: 3.0, init, KEY),
    "trial: returned fitness of shape (3,); a scalar": lambda: evolve(lambda p, k: Outcome(p, {}), init, KEY),
    "trial: returned x of shape (3,)": lambda: evolve(lambda p, k: Outcome(p.sum(), {"x": p}), init, KEY),
    "trial: returned a dict as x; a scalar": lambda: evolve(
        lambda p, k: Outcome(p.sum(), {"x": {"y": p.sum()}}), init, KEY
    ),
    "trial: returned a metric named 1; a text": lambda: evolve(lambda p, k: Outcome(p.sum(), {1: 2.0}), init, KEY),
    "init: returned int32[2] at ['n']; floating-point": lambda: evolve(
        fine, lambda key: {"n": jnp.zeros(2, jnp.int32)}, KEY
    ),
    "trial: returned a int as metrics": lambda: evolve(lambda p, k: Outcome(p.sum(), 3), init, KEY),
    "shaper: got a Policy; a Shaper": lambda: shaping_trial(FORMULA, make_shaper("mfos", SAMPLED), naive_of(1)),
    "opponents: got 0; 1 to 2 is needed in RepeatedGame, which has 3 players": lambda: shaping_trial(
        THREE, make_shaper("mfos", THREE), []
    ),
    "opponents: got 2; 1 is needed": lambda: shaping_trial(FORMULA, make_shaper("mfos", FORMULA), [memory()] * 2),
    "learners: got one for seat 0 in seat 1": lambda: learn(KEY, FORMULA, [naive(FORMULA)] * 2, num_updates=1),
    "opponents: got one for seat 0 in seat 1": lambda: shaping_trial(
        FORMULA, make_shaper("mfos", FORMULA), naive_of(0)
    ),
    "meta_steps: got 0": lambda: shaping_trial(FORMULA, make_shaper("mfos", FORMULA), naive_of(1), meta_steps=0),
    "scored_from: got 2; less than the 2 meta_steps": lambda: shaping_trial(
        FORMULA, make_shaper("mfos", FORMULA), naive_of(1), meta_steps=2, scored_from=2
    ),
    "the learner in seat 0: act returned an action of shape (5,); one of shape (), a whole number": lambda: learn(
        KEY, SAMPLED, naive_pair(), num_updates=1
    ),
    "the learner in seat 0: act returned an action of shape (5,); one of shape (1,), an array": lambda: learn(
        KEY, InfinitelyRepeated(prisoners_dilemma, 0), naive_pair(), num_updates=1
    ),
    "the learner in seat 0 (dqn): act does not fit what it was given; ": lambda: three_outputs(dqn),
    "the learner in seat 0 (pqn): act does not fit what it was given; ": lambda: three_outputs(pqn),
    "the learner in seat 0 (loqa): update does not fit what it was given; num_envs is None": lambda: learn(
        KEY, SAMPLED, [make_learner("loqa", SAMPLED, seat) for seat in (0, 1)], num_updates=1, steps_per_update=4
    ),
    "state: got a DQNState; a state of this learner (ppo) is needed": lambda: evaluate(
        KEY, CART_POLE, ppo(CART_POLE), dqn(CART_POLE).init(KEY), num_episodes=1, num_steps=2
    ),
    "epochs: got 3; this learner chooses it": lambda: a2c(CART_POLE, epochs=3),
    "objective: got 'classic'; this learner chooses it": lambda: proximal_advantage_alignment(
        SAMPLED, objective="classic"
    ),
    "learner: mmaml: learning_rate: got 0.5 with learned_rate": lambda: make_learner(
        "mmaml(learned_rate=True, learning_rate=0.5)", InfinitelyRepeated(prisoners_dilemma, 0.96)
    ),
    "learner: got 'lola', which is there for games that are formulas": lambda: make_learner("lola", SAMPLED),
    "learner: got 'ppo', which is there for games that are sampled": lambda: make_learner("ppo", FORMULA),
    "game: got 'ipd'; a Game": lambda: make_learner("ppo", "ipd"),
    "payoffs: got shape (3, 2, 2, 2); an axis of actions for each of 2 agents is needed, or num_agents=2": lambda: make(
        "matrix_game", payoffs=np.zeros((3, 2, 2, 2))
    ),
    "payoffs: got shape (2, 2, 3); an axis of actions": lambda: make("matrix_game", payoffs=jnp.zeros((2, 2, 3))),
    "num_agents: got 3 with payoffs of shape (2, 2, 2)": lambda: make(
        "matrix_game", payoffs=np.zeros((2, 2, 2)), num_agents=3
    ),
}


def init(key):
    return ONES


def fine(parameters, key):
    return Outcome(parameters.sum(), {})


def naive_of(seat):
    return make_learner("naive", FORMULA, seat)


def naive_pair():
    return [naive(FORMULA, seat) for seat in (0, 1)]


def three_outputs(make):
    made = make(CART_POLE, network=feed_forward((4,), 3, shared=True))
    return learn(KEY, CART_POLE, [made], num_updates=1, steps_per_update=4, num_envs=2)


def memory():
    return memory_one([0.5] * 5)


@pytest.mark.parametrize("words", CALLS)
def test_a_call_that_does_not_fit_is_one_sentence(words):
    with pytest.raises((TypeError, ValueError)) as said:
        CALLS[words]()
    assert str(said.value).startswith(words)
    assert "\n" not in str(said.value)


def test_a_stack_of_games_is_a_game():
    assert make("matrix_game", payoffs=np.zeros((3, 2, 2, 2)), num_agents=2).num_agents == 2


def test_evolution_takes_a_trial_that_fits():
    found = evolve(fine, init, KEY, Evolution(population_size=2, generations=1), num_trials=1)
    assert found.metrics["fitness"].shape == (1,)


def a_run(seed, rate=0.1):
    game = InfinitelyRepeated(stag_hunt)

    def update(key, logits, trajectory):
        return (1 - rate) * logits + rate * trajectory.others[0][-1], {}

    imitator = Learner(
        init=lambda key: jax.random.normal(key, (5,)), act=lambda key, logits, m, o: (logits, m, ()), update=update
    )
    return learn(jax.random.key(seed), game, [imitator, memory_one([0.9, 1, 0, 1, 0])], num_updates=3)


def test_a_loop_over_seeds_compiles_once_and_its_memory_is_flat(monkeypatch):
    """The loop makes its learners again in every round, as in a user's script."""
    traced = []
    monkeypatch.setattr("marl.core.learn.learning", count(traced))
    for seed in range(3):
        a_run(seed)
    assert len(traced) == 1
    assert not np.array_equal(a_run(0).states[0], a_run(1).states[0])
    gc.collect()
    before = resident_pages()
    for seed in range(200):
        a_run(seed)
    assert (resident_pages() - before) * resource.getpagesize() < 4_096_000  # a leak would be 10 MB a call
    a_run(0, rate=0.2)
    assert len(traced) == 2  # another setting is another program


def resident_pages():
    """Memory of this process now: its maximum since the start would hide smaller changes."""
    return int(Path("/proc/self/statm").read_text().split()[1])


def count(traced):
    from marl.core.learn import learning

    def counted(*arguments, **settings):
        traced.append(1)
        return learning(*arguments, **settings)

    return counted


@pytest.mark.system
def test_learn_gives_the_same_bits_alone_and_within_a_compiled_program():
    learners = [naive_of(0), naive_of(1)]

    def run(key):
        return learn(key, FORMULA, learners, num_updates=4)

    jax.tree.map(np.testing.assert_array_equal, run(KEY), jax.jit(run)(KEY))
    each = jax.vmap(run)(jax.random.split(KEY, 2))
    np.testing.assert_allclose(each.rewards[0][0], run(jax.random.split(KEY, 2)[0]).rewards[0], rtol=1e-5)


def test_factories_with_the_same_settings_have_the_same_fingerprint():
    assert fingerprint(memory_one([0.9, 1, 0, 1, 0])) == fingerprint(memory_one([0.9, 1, 0, 1, 0]))
    assert fingerprint(memory_one([0.9, 1, 0, 1, 0])) != fingerprint(memory_one([0.8, 1, 0, 1, 0]))
    assert fingerprint(naive_of(0)) == fingerprint(naive_of(0)) != fingerprint(naive_of(1))
    assert fingerprint(ppo(CART_POLE)) == fingerprint(ppo(CART_POLE)) != fingerprint(ppo(CART_POLE, epochs=2))
    assert fingerprint([1, True, 1.0]) != fingerprint([1, 1, 1.0])
    assert fingerprint(np.arange(3)) == fingerprint(np.arange(3)) != fingerprint(np.arange(3.0))
    assert fingerprint(functools.partial(max, 1)) == fingerprint(functools.partial(max, 1))
    assert fingerprint(object()) != fingerprint(object())

    def itself(n):
        return itself(n - 1)

    assert fingerprint(itself) == fingerprint(itself)


CELL = """
def rate():
    return RATE

def update(state):
    return [state + rate() for _ in range(1)]
"""


def test_a_cell_of_a_notebook_that_runs_again_with_another_global_has_another_fingerprint():
    """The code and the functions are the same; the global is read by a function that `update` calls."""
    cell = {"RATE": 1.0}
    exec(CELL, cell)
    first, same = fingerprint(cell["update"]), fingerprint(cell["update"])
    cell["RATE"] = 2.0
    assert first == same != fingerprint(cell["update"])


def test_attributes_of_a_subclass_of_a_dataclass_are_part_of_the_fingerprint():
    class Twice(type(FORMULA)):
        def __init__(self, times):
            super().__init__(FORMULA.payoffs, FORMULA.discount)
            object.__setattr__(self, "times", times)

    assert fingerprint(Twice(1)) == fingerprint(Twice(1)) != fingerprint(Twice(2))


def test_compiled_functions_keep_no_tracers():
    def twice(value):
        return compiled_once(lambda: 2 * value)()

    with jax.checking_leaks():
        np.testing.assert_array_equal(jax.vmap(twice)(jnp.arange(3.0)), [0, 2, 4])
