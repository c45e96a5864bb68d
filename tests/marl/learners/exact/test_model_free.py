"""Learners from samples, against the same episodes replayed in float64 NumPy, and an oracle against brute force."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import InfinitelyRepeated, MatrixGame, chicken, prisoners_dilemma
from marl import Trajectory, learn, make_learner
from marl.learners.exact.model_free import QState, best_response, q_learning, reinforce, tabular_ppo
from marl.learners.exact.naive import PolicyState
from tests.marl.exact_game import gradient, sigmoid

PAYOFFS = MatrixGame("lopsided", ((3.0, 0.5), (3.5, 1.0)), ((2.5, 3.0), (-0.5, 0.0)))
GAME = InfinitelyRepeated(PAYOFFS, 0.9)
# Own and other payoffs after CC, CD, DC, DD, own action first, in both seats.
OWN = np.array([[3.0, 0.5, 3.5, 1.0], [2.5, -0.5, 3.0, 0.0]])
EPISODES, ROUNDS = 8, 6
SAMPLES = {"episodes": EPISODES, "rounds": ROUNDS}


def policies(seed, count):
    return np.random.default_rng(seed).normal(size=(count, 5))


def trajectory(others):
    """A trajectory with the one part that these learners read: the co-player's policies, `[environments, logits]`."""
    return Trajectory(None, None, None, None, (), (jnp.asarray(others)[None],), None, None)


def joint(own, other):
    """Probabilities of CC, CD, DC, DD in each of the five states, `[5, 4]`; both policies in their own view."""
    p, q = sigmoid(own), sigmoid(other)[[0, 1, 3, 2, 4]]
    return np.stack([p * q, p * (1 - q), (1 - p) * q, (1 - p) * (1 - q)], -1)


def truncated_return(seat, own, other):
    """Expected discounted return of the first rounds."""
    table = joint(own, other)
    state, total = table[0], 0.0
    for t in range(ROUNDS):
        total += 0.9**t * state @ OWN[seat]
        state = state @ table[1:]
    return total


def replay(seat, key, own, others):
    """Episodes of a key, `[T, environments, N]`: states, actions and rewards, and the states after.

    A round is one word for each episode, of which the lower half is one's own draw and the upper half the other's.
    """
    found = []
    for k, other in zip(jax.random.split(key, len(others)), others, strict=True):
        state, rounds = np.zeros(EPISODES, int), []
        for word in np.asarray(jax.random.bits(k, (ROUNDS, EPISODES), "uint32")).astype(np.int64):
            swapped = np.array([0, 1, 3, 2, 4])[state]
            action = (word % 65536 / 65536 >= sigmoid(own)[state]).astype(int)
            answer = (word // 65536 / 65536 >= sigmoid(other)[swapped]).astype(int)
            after = 1 + 2 * action + answer
            rounds.append((state, action, OWN[seat][after - 1], after))
            state = after
        found.append(rounds)
    return [np.stack([[r[i] for r in rounds] for rounds in found], 1) for i in range(4)]


def advantages(rewards):
    """The discounted reward to go less its mean over the other episodes."""
    weighted = rewards * (0.9 ** np.arange(ROUNDS))[:, None, None]
    to_go = weighted[::-1].cumsum(0)[::-1]
    return to_go - (to_go.sum(-1, keepdims=True) - to_go) / (EPISODES - 1)


def log_probability(logits, states, actions):
    return np.log(sigmoid(np.where(actions == 0, 1, -1) * logits[states]))


def step(learner):
    return jax.jit(lambda key, state, others: learner.update(key, state, trajectory(others))[0])


@pytest.fixture(scope="module")
def reinforced():
    return [step(reinforce(GAME, player, learning_rate=0.7, **SAMPLES)) for player in (0, 1)]


@pytest.mark.parametrize("seat", [0, 1])
def test_the_expected_step_is_the_exact_gradient_of_the_truncated_return(seat, reinforced):
    own, *others = policies(3, 3)
    keys = jax.random.split(jax.random.key(0), 8192)
    batch = jax.vmap(reinforced[seat], (0, None, None))
    steps = np.asarray(batch(keys, PolicyState(jnp.float32(own)), jnp.float32(others)).logits, np.float64) - own
    exact = [gradient(lambda x, other=other: truncated_return(seat, x, other), own) for other in others]
    standard_error = steps.std(0) / len(keys) ** 0.5
    assert (abs(steps.mean(0) - 0.7 * np.mean(exact, 0)) < 4 * standard_error).all()
    assert (standard_error < 0.1 * abs(np.mean(exact, 0)).max()).all()  # the comparison is meaningful


@pytest.mark.parametrize("seat", [0, 1])
def test_a_step_of_reinforce_is_that_of_the_replayed_episodes(seat, reinforced):
    own, *others = policies(4, 3)
    states, actions, rewards, _ = replay(seat, jax.random.key(5), own, others)
    score = gradient(
        lambda x: (advantages(rewards) * log_probability(x, states, actions)).sum() / EPISODES / len(others), own
    )
    found = reinforced[seat](jax.random.key(5), PolicyState(jnp.float32(own)), jnp.float32(others)).logits
    np.testing.assert_allclose(found, own + 0.7 * score, rtol=1e-3, atol=1e-3)


def test_the_first_epoch_of_ppo_is_the_step_of_reinforce(reinforced):
    own, *others = jnp.float32(policies(5, 3))
    arguments = jax.random.key(6), PolicyState(own), jnp.stack(others)
    one = step(tabular_ppo(GAME, 0, learning_rate=0.7, epochs=1, **SAMPLES))
    np.testing.assert_allclose(one(*arguments).logits, reinforced[0](*arguments).logits, rtol=1e-4, atol=1e-5)


def test_further_epochs_climb_the_clipped_surrogate():
    own, *others = policies(6, 3)
    states, actions, rewards, _ = replay(1, jax.random.key(7), own, others)
    weights = advantages(rewards) / EPISODES / len(others)
    old, logits = log_probability(own, states, actions), own

    def surrogate(x):
        ratio = np.exp(log_probability(x, states, actions) - old)
        return np.minimum(ratio * weights, np.clip(ratio, 0.95, 1.05) * weights).sum()

    clipped = np.zeros(2)
    for _ in range(4):
        ratio = np.exp(log_probability(logits, states, actions) - old)
        clipped += ((ratio > 1.05) & (weights > 0)).sum(), ((ratio < 0.95) & (weights < 0)).sum()
        logits = logits + 0.7 * gradient(surrogate, logits)
    assert (clipped > 0).all()
    learner = step(tabular_ppo(GAME, 1, learning_rate=0.7, clip=0.05, epochs=4, **SAMPLES))
    found = learner(jax.random.key(7), PolicyState(jnp.float32(own)), jnp.float32(others)).logits
    np.testing.assert_allclose(found, logits, rtol=1e-3, atol=1e-3)


def test_q_learning_is_watkins_rule_on_the_replayed_episodes():
    learner = q_learning(GAME, 1, learning_rate=0.3, temperature=0.5, **SAMPLES)
    state = learner.init(jax.random.key(8))
    others = policies(7, 2)
    update = step(learner)
    q = np.asarray(state.q, np.float64)
    np.testing.assert_allclose(q.mean(1), OWN[1].mean() / (1 - 0.9), rtol=1e-5)
    for key in jax.random.split(jax.random.key(9), 2):
        logits = (q[:, 0] - q[:, 1]) / 0.5
        np.testing.assert_allclose(state.logits, logits, rtol=1e-3, atol=1e-3)
        for s, a, r, after in zip(*replay(1, key, logits, others), strict=True):
            errors = r + 0.9 * q.max(1)[after] - q[s, a]
            for pair in itertools.product(range(5), range(2)):
                here = (s == pair[0]) & (a == pair[1])
                if here.any():
                    q[pair] += 0.3 * errors[here].mean()
        state = update(key, state, jnp.float32(others))
        np.testing.assert_allclose(state.q, q, rtol=1e-4)


@pytest.mark.usefixtures("promoted")
def test_q_learning_finds_the_values_of_the_decision_process_that_a_fixed_co_player_is():
    """Q-learning with expected errors would be value iteration, whose fixed point is Q*."""
    other = policies(8, 1)
    learner = q_learning(GAME, 0, learning_rate=0.1, temperature=20.0, episodes=64, rounds=50)
    state = QState(jnp.zeros(5), jnp.full((5, 2), 10.0))

    @jax.jit
    def run(state):
        def body(state, key):
            return learner.update(key, state, trajectory(jnp.float32(other)))[0], None

        return jax.lax.scan(body, state, jax.random.split(jax.random.key(1), 60))[0]

    np.testing.assert_allclose(run(state).q, optimal_values(0, other[0]), atol=0.4)


def optimal_values(seat, other):
    """Q* by value iteration, `[5, 2]`."""
    cooperates = sigmoid(other)[[0, 1, 3, 2, 4]]
    chances = np.stack([cooperates, 1 - cooperates], -1)  # the other's two actions, in own states
    q = np.zeros((5, 2))
    for _ in range(400):
        after = OWN[seat] + 0.9 * q.max(1)[1:]
        q = chances @ after.reshape(2, 2).T
    return q


def returns(seat, policy, other, start):
    """Return of a deterministic policy (True cooperates): from the start, or uniformly from the four states."""
    table = joint(np.where(policy, 1000.0, -1000.0), other)
    values = np.linalg.solve(np.eye(4) - 0.9 * table[1:], table[1:] @ OWN[seat])
    return table[0] @ (OWN[seat] + 0.9 * values) if start else values.mean()


DETERMINISTIC = list(itertools.product([True, False], repeat=5))


@pytest.fixture(scope="module")
def replies():
    def reply(seat):
        return jax.jit(jax.vmap(lambda others: best_response(GAME, seat).update(None, None, trajectory(others))[0]))

    return [reply(0), reply(1)]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("seat", [0, 1])
def test_the_best_response_is_the_best_of_all_32_and_value_iterations_policy(seat, replies):
    others = 3 * policies(9, 32)
    found = np.asarray(replies[seat](jnp.float32(others)[:, None]).logits)
    assert (abs(found) == 20).all()
    distinct = set()
    for policy, other in zip(found > 0, others, strict=True):
        best = max(returns(seat, candidate, other, start=True) for candidate in DETERMINISTIC)
        assert returns(seat, policy, other, start=True) == pytest.approx(best, abs=1e-4)
        gains = np.diff(optimal_values(seat, other))[:, 0]  # probability of defecting in each state
        np.testing.assert_array_equal(policy[abs(gains) > 1e-3], gains[abs(gains) > 1e-3] < 0)
        distinct.add(tuple(policy))
    assert len(distinct) > 4


@pytest.mark.filterwarnings("ignore:overflow")
def test_against_several_the_best_response_has_the_best_mean(replies):
    pairs = 3 * policies(10, 16).reshape(8, 2, 5)
    found = np.asarray(replies[0](jnp.float32(pairs)).logits) > 0
    for policy, others in zip(found, pairs, strict=True):

        def mean(candidate, start, others=others):
            return np.mean([returns(0, candidate, other, start) for other in others])

        assert mean(policy, False) == pytest.approx(max(mean(c, False) for c in DETERMINISTIC), abs=1e-4)
        other_first = (not policy[0], *policy[1:])
        assert mean(policy, True) > mean(other_first, True) - 1e-4


def test_the_best_reply_to_tit_for_tat_is_to_cooperate():
    game = InfinitelyRepeated(prisoners_dilemma)
    players = [make_learner("best_response", game, 0), make_learner("tft", game, 1)]
    rewards = jax.jit(lambda key: learn(key, game, players, num_updates=2).rewards[0])(jax.random.key(0))
    assert float(rewards[1]) == pytest.approx(-1, abs=1e-4)


def test_without_a_further_round_all_learn_chicken():
    """Against swerving with probability q, swerving is worth q - 1, and going straight q - 100 (1 - q)."""
    game = InfinitelyRepeated(chicken, 0.0)
    samples = {"episodes": 4096, "init_scale": 0.0}
    learners = {
        "best_response": best_response(game, 0),
        "reinforce": reinforce(game, 0, **samples),
        "tabular_ppo": tabular_ppo(game, 0, epochs=1, learning_rate=1.0, **samples),
        "q_learning": q_learning(game, 0, learning_rate=1.0, temperature=5.0, **samples),
    }

    @jax.jit
    def updated(key):
        others = trajectory(jnp.array([[2.0]]))
        return {name: one.update(key, one.init(key), others)[0].logits for name, one in learners.items()}

    logits = {name: float(x[0]) for name, x in updated(jax.random.key(0)).items()}
    q = sigmoid(2.0)
    gain = (q - 1) - (q - 100 * (1 - q))
    assert logits["best_response"] == 20
    # The derivative of a policy's value in its logit at 1/2 is a quarter of the gain.
    assert logits["reinforce"] == pytest.approx(gain / 4, rel=0.1)
    assert logits["tabular_ppo"] == pytest.approx(gain / 4, rel=0.1)
    assert logits["q_learning"] == pytest.approx(gain / 5, rel=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(reinforce, episodes=1), "episodes: got 1; a whole number of at least 2"),
        (partial(reinforce, rounds=0), "rounds: got 0; a whole number of at least 1"),
        (partial(tabular_ppo, clip=1.0), r"clip: got 1.0; a number in \(0, 1\)"),
        (partial(tabular_ppo, epochs=1.5), "epochs: got 1.5; a plain whole number"),
        (partial(q_learning, temperature=0.0), "temperature: got 0.0; a number above 0"),
        (partial(q_learning, episodes=True), "episodes: got True; a plain whole number"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(GAME, 0)
