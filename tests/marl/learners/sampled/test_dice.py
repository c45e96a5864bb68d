"""Policy gradients of any order, against enumerated games, float64 NumPy and the exact games' LOLA."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, make, prisoners_dilemma
from marl.blocks.networks import recurrent
from marl.blocks.objectives import dice_objective
from marl.core.learn import learn
from marl.core.learner import Trajectory
from marl.learners.exact.white_box import hola, lola
from marl.learners.sampled.dice import DiceState, Table, naive_dice, reinforce
from marl.learners.sampled.lola_dice import LolaState, lola_dice
from tests.nightly import nightly

STEPS, ENVS, DISCOUNT = 7, 3, 0.9
OWN = np.array([-1.0, -3.0, 0.0, -2.0])  # after CC, CD, DC, DD, own action first
SWAP = np.array([0, 1, 3, 2, 4])  # the co-player's view of start, CC, CD, DC, DD


def some_steps(seed=0):
    """Steps of several episodes in the prisoner's dilemma, with random rewards."""
    rng = np.random.default_rng(seed)
    done = rng.random((STEPS, ENVS)) < 0.3
    assert done[:-1].any()
    states, actions = rng.integers(5, size=(STEPS, ENVS)), rng.integers(2, size=(2, STEPS, ENVS))
    obs, rewards = np.eye(5, dtype=np.float32)[states], rng.normal(size=(STEPS, ENVS)).astype(np.float32)
    return Trajectory(obs, actions[0], rewards, done, (), (actions[1],), done, None), states


def advantages(rewards, done, baseline):
    """discount^t (G_t - b_t), t counted from the beginning of an episode, and the number of the episode."""
    found, episodes = np.zeros((STEPS, ENVS)), np.zeros((STEPS, ENVS), int)
    for env in range(ENVS):
        begin = 0
        for t in range(STEPS):
            to_go = 0.0
            for k in range(t, STEPS):
                to_go += DISCOUNT ** (k - t) * rewards[k, env]
                if done[k, env]:
                    break
            found[t, env] = DISCOUNT ** (t - begin) * (to_go - baseline[t, env])
            episodes[t, env] = done[:t, env].sum()
            begin = t + 1 if done[t, env] else begin
    return found, episodes


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def derivative(function, x, h=1e-4):
    steps = [h * e.reshape(x.shape) for e in np.eye(x.size)]
    return np.array([(function(x + e) - function(x - e)) / (2 * h) for e in steps]).reshape(
        *x.shape, *np.shape(function(x))
    )


@pytest.mark.parametrize("baseline", [True, False])
def test_derivatives_by_the_log_probabilities_are_advantages(baseline):
    t, _ = some_steps()
    values = np.random.default_rng(1).normal(size=(STEPS, ENVS)).astype(np.float32) * baseline
    log_probs = -np.ones((STEPS, ENVS), np.float32)

    @jax.jit
    def found(log_probs):
        def objective(x):
            return dice_objective(x, t.reward, DISCOUNT, jnp.asarray(values) if baseline else None, t.done)

        return objective(log_probs), jax.grad(objective)(log_probs), jax.hessian(objective)(log_probs)

    value, first, second = found(log_probs)
    weights, episodes = advantages(t.reward, t.done, values)
    returns, _ = advantages(t.reward, t.done, np.zeros((STEPS, ENVS)))
    begins = np.concatenate([np.ones((1, ENVS), bool), t.done[:-1]])
    assert float(value) == pytest.approx((returns * begins).sum() / ENVS, rel=1e-5)
    # Williams' gradient: each log probability is weighted by the advantage of the steps from it on ...
    np.testing.assert_allclose(first, weights / ENVS, rtol=1e-4, atol=1e-6)
    # ... and each pair of them by the advantage from the later one on, if they belong to one episode.
    later = np.maximum(np.arange(STEPS)[:, None], np.arange(STEPS))
    for env in range(ENVS):
        together = episodes[:, None, env] == episodes[None, :, env]
        np.testing.assert_allclose(second[:, env, :, env], weights[later, env] * together / ENVS, rtol=1e-4, atol=1e-6)


def test_the_expected_hessian_is_that_of_the_expected_return_with_any_baseline():
    # Two rounds of the prisoner's dilemma: all 16 courses, each in an environment of its own.
    actions = np.array(list(itertools.product(range(2), repeat=4))).reshape(16, 2, 2)  # course, round, player
    after = 1 + 2 * actions[:, 0, 0] + actions[:, 0, 1]
    states = np.stack([np.zeros((16, 2), int), np.stack([after, SWAP[after]], 1)], 1)
    rewards = OWN[2 * actions[..., 0] + actions[..., 1]]
    logits = np.random.default_rng(0).normal(size=(2, 5))

    def probabilities(logits):
        cooperate = 1 / (1 + np.exp(-logits[np.arange(2), states]))
        return np.where(actions == 0, cooperate, 1 - cooperate).prod((1, 2))

    def expected(logits):
        return probabilities(logits) @ rewards @ [1, DISCOUNT]

    baseline = np.stack([np.full(16, 3.0), np.sin(after)], 1)  # the second has seen the first round

    @jax.jit
    def hessians(logits):
        def objectives(logits, values):
            chosen = jnp.asarray(logits)[np.arange(2), states]
            log_probs = jax.nn.log_sigmoid(jnp.where(actions == 0, chosen, -chosen)).sum(-1)

            def one(*course):
                log_probs, rewards, values = (x[:, None] for x in course)
                return dice_objective(log_probs, rewards, DISCOUNT, values)

            return jax.vmap(one)(log_probs, jnp.float32(rewards), values)

        return [jax.hessian(objectives)(logits, values) for values in (jnp.zeros((16, 2)), jnp.float32(baseline))]

    exact = derivative(lambda x: derivative(expected, x), logits)
    for hessian in hessians(jnp.float32(logits)):
        mean = np.tensordot(probabilities(logits), np.asarray(hessian, np.float64), 1)
        np.testing.assert_allclose(mean, exact, atol=2e-5)


@pytest.mark.parametrize("make_learner", [naive_dice, reinforce])
def test_a_step_from_the_definitions(make_learner):
    t, states = some_steps()
    rng = np.random.default_rng(2)
    logits, values = rng.normal(size=(5, 2)), rng.normal(size=5)
    rates = {"learning_rate": 0.7} | ({"value_learning_rate": 0.4} if make_learner is naive_dice else {})
    learner = make_learner(make("ipd"), discount=DISCOUNT, **rates)
    state = DiceState(Table(jnp.float32(logits), jnp.float32(values)))
    found = jax.jit(learner.update)(jax.random.key(0), state, t)[0].params

    expected = values[states] if make_learner is naive_dice else np.zeros((STEPS, ENVS))
    begins = np.zeros((STEPS, ENVS), int)
    for i in range(1, STEPS):
        begins[i] = np.where(t.done[i - 1], i, begins[i - 1])
    weights = DISCOUNT ** (np.arange(STEPS)[:, None] - begins)
    errors = advantages(t.reward, t.done, expected)[0] / weights
    step, value_step = np.zeros((5, 2)), np.zeros(5)
    for i, env in itertools.product(range(STEPS), range(ENVS)):
        others = np.delete(errors[i], env).mean()  # the mean over the other environments
        score = np.eye(2)[t.action[i, env]] - softmax(logits[states[i, env]])
        step[states[i, env]] += weights[i, env] * (errors[i, env] - others) * score / ENVS
        value_step[states[i, env]] += errors[i, env] / (STEPS * ENVS)
    np.testing.assert_allclose(found.logits, logits + 0.7 * step, rtol=1e-4, atol=1e-5)
    if make_learner is naive_dice:
        np.testing.assert_allclose(found.values, values + 0.4 * value_step, rtol=1e-4, atol=1e-5)


def test_a_single_environment_has_no_baseline():
    obs = np.eye(5, dtype=np.float32)[[[0], [4]]]
    t = Trajectory(obs, np.array([[0], [1]]), np.float32([[1], [2]]), np.array([[False], [True]]), (), (), None, None)
    learner = reinforce(make("ipd"), learning_rate=1.0, discount=0.5)
    state = DiceState(Table(jnp.zeros((5, 2)), jnp.zeros(5)))
    found = jax.jit(learner.update)(jax.random.key(0), state, t)[0].params.logits
    # Returns to go are 2 and 2, the later one discounted by half; scores are +-1/2.
    np.testing.assert_allclose(found[0], [1.0, -1.0], rtol=1e-6)
    np.testing.assert_allclose(found[4], [-0.5, 0.5], rtol=1e-6)


def truncated_return(own, other, steps, discount):
    """Expected discounted return of some rounds; logits of cooperation, both in their own view."""
    p, q = 1 / (1 + np.exp(-own)), 1 / (1 + np.exp(-other[SWAP]))
    table = np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], -1)
    state, total = table[0], 0.0
    for t in range(steps):
        total += discount**t * state @ OWN
        state = state @ table[1:]
    return total


def test_expected_steps_are_the_exact_gradient():
    batches, steps = 256, 8
    logits = np.random.default_rng(0).normal(size=(2, 5, 2))
    game = make("ipd", episode_length=steps)
    # Wrong values change nothing.
    tables = [DiceState(Table(jnp.float32(x), jnp.float32([-7, 3, 0, 1, -2]))) for x in logits]
    learners = [
        make_learner(game, seat, learning_rate=1.0, discount=DISCOUNT)._replace(init=lambda key, x=tables[seat]: x)
        for seat, make_learner in enumerate((naive_dice, reinforce))
    ]

    @jax.jit
    @jax.vmap
    def steps_of(key):
        states = learn(key, game, learners, num_updates=1, steps_per_update=steps, num_envs=32).states
        return [state.params.logits - table.params.logits for state, table in zip(states, tables, strict=True)]

    found = steps_of(jax.random.split(jax.random.key(0), batches))
    own = logits[..., 0] - logits[..., 1]
    for seat in range(2):
        exact = derivative(lambda x, p=seat: truncated_return(x, own[1 - p], steps, DISCOUNT), own[seat])
        sample = np.asarray(found[seat], np.float64)
        error = sample.std(0, ddof=1) / batches**0.5
        assert (abs(sample.mean(0) - np.stack([exact, -exact], -1)) < 4.5 * error).all()
        assert (abs(exact) > 9 * error[:, 0]).any()  # the comparison is meaningful


def table(logits):
    """A table of two logits from one."""
    return jnp.float32(np.stack([logits, -logits], -1) / 2)


@nightly
@pytest.mark.usefixtures("promoted")
def test_lola_follows_the_gradient_of_exact_lola():
    batches, steps, discount, rate = 24, 24, 0.8, 0.3
    game = make("ipd", episode_length=steps)
    rng = np.random.default_rng(3)
    own, other = rng.normal(size=(2, 5))
    state = LolaState(table(own), table(other[SWAP]))
    t = Trajectory(
        jnp.eye(5)[jnp.zeros((steps, 1), int)], jnp.zeros((steps, 1), int), jnp.zeros((steps, 1)),
        jnp.zeros((steps, 1), bool), (), (jnp.zeros((steps, 1), int),), None, None,
    )  # fmt: skip
    # Its memory fixes the model.
    learner = lola_dice(game, learning_rate=1.0, lookahead_rate=rate, episodes=256, model_memory=1e9, discount=discount)
    update = jax.jit(jax.vmap(learner.update, (0, None, None)))
    after, _ = update(jax.random.split(jax.random.key(0), batches), state, t)
    sample = np.asarray((after.logits - state.logits), np.float64)
    sample = (sample[..., 0] - sample[..., 1]) / 2  # the derivative by the one logit of the exact game

    exact_game = InfinitelyRepeated(prisoners_dilemma, discount)

    def direction(make_learner, eta):
        exact = make_learner(lambda x, y: exact_game.values(0, x, y), lookahead_rate=eta)
        begin = exact.init(jax.random.key(0))._replace(logits=jnp.float32(own))
        played = Trajectory(*[None] * 5, (jnp.float32(other)[None],), None, None)
        return np.asarray(jax.jit(exact.update)(jax.random.key(0), begin, played)[0].logits) - own

    naive, taylor, full = direction(lola, 0.0), direction(lola, 2 * rate), direction(hola_1, 2 * rate)
    mean, error = sample.mean(0), sample.std(0, ddof=1) / batches**0.5
    assert np.linalg.norm(full - naive) > 8 * np.linalg.norm(error)  # the shaping term exceeds the noise
    np.testing.assert_array_less(abs(mean - full), 4.5 * error + 0.005 * abs(full).max())
    for exact in (taylor, full):
        assert np.corrcoef(mean - naive, exact - naive)[0, 1] > 0.95


def hola_1(payoffs, **settings):
    return hola(payoffs, order=1, **settings)


def test_the_model_of_the_co_player_is_a_smoothed_frequency_that_forgets():
    t, states = some_steps()
    learner = lola_dice(make("ipd"), episodes=2, model_memory=3.0, model_smoothing=0.1)
    before = np.random.default_rng(4).normal(size=(5, 2))
    state = LolaState(jnp.zeros((5, 2)), jnp.float32(before))
    found, metrics = jax.jit(learner.update)(jax.random.key(0), state, t)
    old, expected = softmax(before), []
    for s in range(5):
        answers = t.others[0][states == s]
        counts = np.bincount(answers, minlength=2)
        expected.append((3 * old[s] + 0.9 * counts + 0.05 * len(answers)) / (3 + len(answers)))
    np.testing.assert_allclose(softmax(np.asarray(found.model)), expected, rtol=1e-5)
    likelihood = np.log(old[states, t.others[0]]).mean()
    assert float(metrics["model_log_likelihood"]) == pytest.approx(likelihood, rel=1e-5)


@pytest.mark.system
def test_the_model_of_image_observations_maximises_the_likelihood():
    game = make("coin_game")
    rng = np.random.default_rng(5)
    observe = jax.jit(jax.vmap(jax.vmap(lambda key: game.reset(key)[0]["agent_0"])))
    obs = observe(jax.random.split(jax.random.key(0), (4, 50)))
    actions = np.where(obs[:, :, 0, 0].any(-1), 1, rng.integers(4, size=(4, 50)))  # the upper row is constant
    nothing = jnp.zeros((4, 50))
    t = Trajectory(obs, jnp.asarray(actions), nothing, nothing > 0, (), (jnp.asarray(actions),), None, None)
    learner = lola_dice(game, learning_rate=0.0, episodes=2, model_memory=1e-3, model_smoothing=1e-3)

    @jax.jit
    def fit(state):
        return jax.lax.scan(lambda s, key: learner.update(key, s, t), state, jax.random.split(jax.random.key(0), 40))

    state, metrics = fit(learner.init(jax.random.key(1)))
    likelihood = np.asarray(metrics["model_log_likelihood"])
    assert likelihood[0] == pytest.approx(-np.log(4), rel=1e-5)
    assert (np.diff(likelihood) > -1e-4).all()
    # At the maximum every feature has the same expected and observed frequency with each action.
    flat = np.asarray(obs.reshape(200, -1))
    expected = flat.T @ softmax(flat @ np.asarray(state.model))
    seen = flat.T @ np.eye(4)[actions.reshape(-1)]
    assert abs(expected - seen).max() < 2.0
    assert abs(flat.sum(0)[:, None] / 4 - seen).max() > 10


@pytest.mark.parametrize("make_learner", [naive_dice, reinforce, lola_dice])
def test_actions_are_drawn_from_the_policy_and_greedy_ones_are_its_mode(make_learner):
    learner = make_learner(make("coin_game"), 1)
    state = learner.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (1, 4, 3, 3))
    logits = obs.reshape(-1) @ jax.tree.leaves(state)[0]
    policy = learner.policy(state)
    action, _, _ = learner.act(jax.random.key(2), policy, (), jnp.broadcast_to(obs, (20000, 4, 3, 3)))
    np.testing.assert_allclose(np.bincount(action, minlength=4) / 20000, softmax(np.asarray(logits)), atol=0.02)
    assert int(learner.act_greedy(policy, (), obs)[0][0]) == int(logits.argmax())
    assert learner.reset_memory is None


@pytest.mark.parametrize("make_learner", [naive_dice, reinforce, lola_dice])
def test_bad_input_is_one_clear_line(make_learner):
    with pytest.raises(ValueError, match=r"action space: got Box.*; Discrete is needed"):
        make_learner(make("cournot"))
    with pytest.raises(ValueError, match=r"discount: got 1\.5; a number in"):
        make_learner(make("ipd"), discount=1.5)


def test_games_and_settings_that_some_learners_refuse():
    with pytest.raises(ValueError, match="lola_dice: got a game of 3 players; one of two is needed"):
        lola_dice(make("three_player_ipd"))
    with pytest.raises(ValueError, match="episodes: got 1; a whole number of at least 2 is needed"):
        lola_dice(make("ipd"), episodes=1)
    with pytest.raises(ValueError, match="network: got one with memory; a feed-forward one is needed"):
        naive_dice(make("ipd"), network=recurrent((5,), 2))


@pytest.mark.slow
def test_two_lola_learners_cooperate_where_two_naive_ones_defect():
    game, updates = make("ipd"), 150

    def last(make_learner, **settings):
        learners = [make_learner(game, player, **settings) for player in range(2)]

        def run(key):
            rewards = learn(key, game, learners, num_updates=updates, steps_per_update=100, num_envs=8).rewards
            return jnp.stack(rewards)[:, -20:].mean()

        return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 16)))

    naive, shaping = last(naive_dice), last(lola_dice)
    assert naive.mean() < -1.85
    assert shaping.mean() > -1.4
    assert shaping.mean() - naive.mean() > 4 * np.hypot(shaping.std(), naive.std()) / 4
