"""Shapers against their networks in float64 NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, chicken
from marl import follow, make_learner, make_shaper
from marl.learners.exact.naive import normal_logits
from marl.shapers.exact_policies import ShaperMemory, ShaperState, counts, good_shepherd, shaper
from marl.shapers.registry import FORMULA
from marl.shapers.trial import play, play_trials
from tests.marl.exact_game import GAME, sigmoid, visits

HIDDEN = 3
DRIFTING = follow(lambda own, other: 0.1 * other - 0.2 * own, normal_logits(1.0, 5))  # an opponent that changes


def gated_recurrent_unit(w, obs, h):
    """(logits, h) of one step."""
    gates = sigmoid(np.concatenate([obs, h]) @ w["gates"] + w["gates_bias"])
    reset, keep = gates[:HIDDEN], gates[HIDDEN:]
    candidate = np.tanh(np.concatenate([obs, reset * h]) @ w["candidate"] + w["candidate_bias"])
    h = (1 - keep) * candidate + keep * h
    return h @ w["out"] + w["out_bias"], h


@pytest.fixture(scope="module")
def recurrent():
    """(a shaper with biases that are not 0, its parameters, the same in NumPy)."""
    made = shaper(hidden_units=HIDDEN)
    shapes = made.init(jax.random.key(0))
    rng = np.random.default_rng(1)
    parameters = {name: rng.normal(size=x.shape) for name, x in shapes.items()}
    return made, jax.tree.map(jnp.float32, parameters), parameters


def test_the_good_shepherd_plays_its_parameters_after_a_random_step():
    made = good_shepherd()
    parameters = made.init(jax.random.key(0))
    history = jax.jit(
        lambda key: play(key, GAME, made.learner(parameters), DRIFTING, meta_steps=4, keep_trajectories=True)
    )(jax.random.key(1))
    actions = np.asarray(history.trajectories[0].action[:, 0])
    np.testing.assert_array_equal(actions[1:], np.tile(parameters, (4, 1)))
    assert (actions[0] != parameters).all()
    theirs = np.asarray(history.trajectories[1].action[:, 0])
    assert (theirs[1:] != theirs[:-1]).all()  # the opponent learns meanwhile


@pytest.mark.parametrize("observe", ["after", "before"])
def test_the_shaper_is_a_gated_recurrent_unit_that_remembers_the_whole_trial(recurrent, observe):
    _, parameters, w = recurrent
    made, steps = shaper(hidden_units=HIDDEN, observe=observe), 6
    history = jax.jit(
        lambda key: play(key, GAME, made.learner(parameters), DRIFTING, meta_steps=steps, keep_trajectories=True)
    )(jax.random.key(2))
    own, theirs = (np.asarray(t.action[:, 0], np.float64) for t in history.trajectories)
    memory, memories = np.zeros(HIDDEN), []
    for step in range(1, steps + 1):  # the random first step leaves no memory
        # It sees its own last policy and the opponent's next one, after its learning step; or the opponent's last
        # one.
        seen = theirs[step if observe == "after" else step - 1]
        logits, memory = gated_recurrent_unit(w, sigmoid(np.concatenate([own[step - 1], seen])), memory)
        np.testing.assert_allclose(own[step], logits, rtol=1e-3, atol=1e-4)
        memories.append(memory)
    remembered = history.trajectories[0].last_memory.hidden[-1]
    np.testing.assert_allclose(remembered, memory, rtol=1e-3, atol=1e-4)
    assert abs(memories[-1]).max() > 0.1


def test_counts_maps_the_shares_of_all_joint_actions_played_so_far():
    made, steps = counts(GAME, hidden_units=HIDDEN), 6
    rng = np.random.default_rng(3)
    w = {name: rng.normal(size=x.shape) for name, x in made.init(jax.random.key(0)).items()}
    learner = made.learner(jax.tree.map(jnp.float32, w))
    history = jax.jit(lambda key: play(key, GAME, learner, DRIFTING, meta_steps=steps, keep_trajectories=True))(
        jax.random.key(2)
    )
    own, theirs = (np.asarray(t.action[:, 0], np.float64) for t in history.trajectories)
    shares = np.stack([(1 - GAME.discount) * visits(x, y) for x, y in zip(own, theirs, strict=True)])
    np.testing.assert_allclose(shares.sum(1), 1)
    for step in range(1, steps + 1):
        logits = np.tanh(shares[:step].mean(0) @ w["w1"] + w["b1"]) @ w["w2"] + w["b2"]
        np.testing.assert_allclose(own[step], logits, rtol=1e-4, atol=1e-5)


def test_counts_are_a_mean_over_environments_and_read_certain_policies():
    made = counts(GAME, hidden_units=HIDDEN)
    learner = made.learner(made.init(jax.random.key(0)))
    memory = learner.init_memory(learner.init(jax.random.key(1)), None)._replace(started=jnp.ones((), bool))
    # Own action first: always cooperate against always defect, and two that always cooperate.
    obs = jnp.concatenate([jnp.ones((2, 5)), jnp.tile(jnp.array([[0.0], [1.0]]), (1, 5))], 1)
    logits, memory, _ = learner.act(jax.random.key(0), learner.init(jax.random.key(1)), memory, obs)
    np.testing.assert_allclose(memory.hidden, [0.5, 0.5, 0, 0, 1], atol=1e-6)
    np.testing.assert_array_equal(logits[0], logits[1])


def test_only_shapers_with_a_memory_depend_on_old_observations():
    last = jnp.linspace(0.1, 0.9, 10)

    @jax.jit
    @partial(jax.vmap, in_axes=(None, 0))
    def play_after(key, seen):
        played = {}
        for name in FORMULA.names():
            made = make_shaper(name, GAME, hidden_units=HIDDEN)
            learner = made.learner(made.init(key))
            state = learner.init(key)
            memory = learner.init_memory(state, None)
            for obs in (last, jnp.full(10, seen), last, last):
                played[name], memory, _ = learner.act(key, state, memory, obs)
        return played

    differs = {name: x[0] != x[1] for name, x in play_after(jax.random.key(3), jnp.arange(2.0)).items()}
    assert differs.pop("shaper").all()
    assert differs.pop("counts").all()
    assert not any(x.any() for x in differs.values())


def test_several_environments_share_the_mean_memory(recurrent):
    made, parameters, w = recurrent
    learner = made.learner(parameters)
    obs = np.random.default_rng(2).uniform(size=(4, 10))
    memory = np.array([0.3, -0.2, 0.1])
    before = ShaperMemory(jnp.ones((), bool), jnp.float32(memory))
    action, after, _ = learner.act(jax.random.key(0), ShaperState(jnp.zeros(5)), before, jnp.float32(obs))
    each = [gated_recurrent_unit(w, x, memory) for x in obs]
    np.testing.assert_allclose(action, [logits for logits, _ in each], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(after.hidden, np.mean([h for _, h in each], 0), rtol=1e-4, atol=1e-5)


def test_all_environments_of_an_exact_game_are_equal(recurrent):
    made, parameters, _ = recurrent
    opponent = make_learner("naive", GAME, 1)

    def rewards(**options):
        run = jax.jit(lambda key: play(key, GAME, made.learner(parameters), opponent, meta_steps=3, **options).rewards)
        return run(jax.random.key(3))

    np.testing.assert_allclose(rewards(num_envs=2), rewards(), rtol=1e-5)


def test_the_first_step_is_random_in_every_trial_and_everywhere_the_same():
    @jax.jit
    @jax.vmap
    def first_steps(key):
        learners = [made.learner(made.init(key)) for made in (make_shaper(name, GAME) for name in FORMULA.names())]
        states = [learner.init(key) for learner in learners]
        return [
            learner.act(key, state, learner.init_memory(state, 2), jnp.zeros((2, 10)))[0]
            for learner, state in zip(learners, states, strict=True)
        ]

    for first in map(np.asarray, first_steps(jax.random.split(jax.random.key(7), 1000))):
        np.testing.assert_array_equal(first[:, 0], first[:, 1])
        assert abs(first.mean()) < 4 / 5000**0.5
        assert first[:, 0].std() == pytest.approx(1, abs=4 / 10000**0.5)
        assert len(np.unique(first[:, 0])) > 4990


def test_first_parameters_give_outputs_of_unit_variance():
    """LeCun's initialisation: outputs have unit variance for inputs of unit variance."""
    recurrent = jax.tree.map(np.asarray, jax.jit(shaper(hidden_units=64).init)(jax.random.key(8)))
    for name, inputs in (("gates", 74), ("candidate", 74), ("out", 64)):
        weights = recurrent[name]
        assert weights.std() == pytest.approx(inputs**-0.5, rel=4 / (2 * weights.size) ** 0.5)  # four standard errors
    assert not any(recurrent[name].any() for name in ("gates_bias", "candidate_bias", "out_bias"))


@pytest.mark.parametrize("name", FORMULA.names())
def test_a_policy_for_a_one_shot_game_is_one_logit(name):
    made = make_shaper(name, InfinitelyRepeated(chicken, 0.0))

    def play(key):
        learner = made.learner(made.init(key))
        state = learner.init(key)
        return learner.act(key, state, learner.init_memory(state, None), jnp.zeros(2))[0]

    assert jax.eval_shape(play, jax.random.key(9)).shape == (1,)


def test_cooperation_is_the_share_that_the_payoffs_of_the_dilemma_imply():
    """With R, S, T, P = -1, -3, 0, -2: 2 CC + CD + DC = s_X + s_Y + 4, and CD - DC = (s_Y - s_X) / 3."""
    made = good_shepherd()
    trials = jax.jit(
        lambda key: play_trials(key, GAME, made, made.init(jax.random.key(2)), DRIFTING, meta_steps=3, num_trials=4)
    )(jax.random.key(3))
    own, other = (np.asarray(x, np.float64) for x in (trials.shaper_payoffs, trials.opponent_payoffs))
    total, difference = own + other + 4, (other - own) / 3
    expected = np.stack([total + difference, total - difference], -1) / 2
    np.testing.assert_allclose(trials.cooperation, expected, atol=1e-5)
