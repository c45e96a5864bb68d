"""Shapers by reinforcement learning: the loss, the meta-policy, and the results of a short training."""

import dataclasses
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import multivariate_normal

from games import InfinitelyRepeated, prisoners_dilemma
from marl.experiments.shaping.config import ExactShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from marl.learners.registry import make_learner
from marl.shapers.exact_ppo import PPOState, TrialBatch, check_finite, gaussian_mfos, improve, meta_ppo, rewards_to_go
from marl.shapers.meta_ppo_config import ExactMetaPPO, SampledMetaPPO
from marl.shapers.trial import play
from meta import NonFiniteFitness, RunDirectory
from tests.nightly import nightly

GAME = InfinitelyRepeated(prisoners_dilemma, 0.96)
SMALL = ExactMetaPPO(
    iterations=40, batch_size=64, hidden_units=8, learning_rate=0.03, entropy_coefficient=0.0, checkpoint_seconds=60
)


def test_returns_by_hand():
    rewards = jnp.array([[1.0, 0.0], [2.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(rewards_to_go(rewards, 0.5), [[2.75, 1.0], [3.5, 2.0], [3.0, 4.0]])


def in_numpy(parameters, x):
    hidden = np.tanh(parameters["w1"] @ x + parameters["b1"][:, None])
    return parameters["w2"] @ hidden + parameters["b2"][:, None]


def loss_in_numpy(parameters, fixed_values, rollout, settings):
    """The whole batch at once in float64; the values in the advantage are held fixed."""
    steps, logits, batch = rollout.action.shape
    returns = np.zeros((steps, batch))
    discount = settings.discount if settings.advantages == "critic" else 1.0
    for t in range(steps):
        returns[t] = sum(discount ** (k - t) * rollout.reward[k] for k in range(t, steps))
    axis = None if settings.advantages == "critic" else 1
    targets = (returns - returns.mean(axis, keepdims=True)) / (returns.std(axis, ddof=1, keepdims=True) + 1e-5)
    total = 0.0
    for t in range(steps):
        out = in_numpy(parameters["actor"], rollout.obs[t])
        mean, variance = out[:logits], np.log1p(np.exp(out[logits:]))
        for n in range(batch):
            normal = multivariate_normal(mean[:, n], np.diag(variance[:, n]))
            ratio = np.exp(normal.logpdf(rollout.action[t, :, n]) - rollout.log_prob[t, n])
            advantage = targets[t, n] - fixed_values[t, n]
            clipped = np.clip(ratio, 1 - settings.clip, 1 + settings.clip)
            total -= min(ratio * advantage, clipped * advantage) + settings.entropy_coefficient * normal.entropy()
        if settings.advantages == "critic":
            value = in_numpy(parameters["critic"], rollout.obs[t])[0]
            total += settings.value_coefficient * ((value - targets[t]) ** 2).sum()
    return total / (steps * batch)


@pytest.mark.parametrize("advantages", ["critic", "coala"])
def test_a_gradient_step_is_that_of_the_papers_loss(advantages):
    settings = ExactMetaPPO(epochs=1, advantages=advantages, clip=0.1, discount=0.9, entropy_coefficient=0.05)
    rng = np.random.default_rng(0)
    parameters = gaussian_mfos(2, hidden_units=3).init(jax.random.key(0))
    shapes = TrialBatch((3, 4, 6), (3, 2, 6), (3, 6), (3, 6), (3, 6))
    rollout = TrialBatch(*(rng.normal(size=shape) for shape in shapes))
    out = np.stack([in_numpy(parameters["actor"], x) for x in rollout.obs])
    mean, variance = out[:, :2], np.log1p(np.exp(out[:, 2:]))
    exact = -0.5 * ((rollout.action - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum(1)
    rollout = rollout._replace(log_prob=exact + 0.2 * rng.normal(size=exact.shape))  # some ratios are clipped
    values = np.stack([in_numpy(parameters["critic"], x)[0] for x in rollout.obs]) * (advantages == "critic")

    optimizer = optax.sgd(1.0)
    single = jax.tree.map(jnp.asarray, rollout)
    after, _ = jax.jit(lambda state: improve(optimizer, settings, state, single))(
        PPOState(parameters, optimizer.init(parameters))
    )
    wide = jax.tree.map(lambda x: np.asarray(x, np.float64), parameters)
    for seed in range(4):
        directions = np.random.default_rng(seed)
        direction = jax.tree.map(lambda x, r=directions: r.normal(size=x.shape), wide)
        ends = [
            loss_in_numpy(jax.tree.map(lambda x, d, s=s: x + s * 1e-5 * d, wide, direction), values, rollout, settings)
            for s in (1, -1)
        ]
        steps = jax.tree.map(lambda new, old, d: float(np.sum((old - np.asarray(new)) * d)), after[0], wide, direction)
        assert sum(jax.tree.leaves(steps)) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=2e-3, abs=1e-5)


def test_the_meta_policy_is_a_gaussian_of_the_networks_mean_and_variance():
    parameters = gaussian_mfos(5, hidden_units=16).init(jax.random.key(3))
    bounds = {"w1": 10**-0.5, "b1": 10**-0.5, "w2": 0.25, "b2": 0.25}
    for name, bound in bounds.items():
        size = float(jnp.abs(parameters["actor"][name]).max())
        assert 0.5 * bound < size <= bound
    obs = jax.random.uniform(jax.random.key(1), (10,))
    out = in_numpy(jax.tree.map(np.asarray, parameters["actor"]), np.asarray(obs)[:, None])[:, 0]
    mean, variance = out[:5], np.log1p(np.exp(out[5:]))

    def second_action(sample, key):
        learner = gaussian_mfos(5, hidden_units=16, sample=sample).learner(parameters)
        state = learner.init(key)
        _, memory, _ = learner.act(key, state, learner.init_memory(state, None), obs)
        action, _, (log_prob, _) = learner.act(key, state, memory, obs)
        return action, log_prob

    keys = jax.random.split(jax.random.key(0), 20000)
    actions, log_probs = jax.jit(jax.vmap(lambda key: second_action(True, key)))(keys)
    np.testing.assert_allclose(actions.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(actions.var(0), variance, rtol=0.04)
    expected = multivariate_normal(mean, np.diag(variance)).logpdf(np.asarray(actions[:50]))
    np.testing.assert_allclose(log_probs[:50], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second_action(False, jax.random.key(7))[0], mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("observe", ["after", "before"])
def test_the_first_step_is_random_and_the_next_follow_from_observations(observe):
    shaper = gaussian_mfos(5, hidden_units=8, sample=False, observe=observe)
    parameters = shaper.init(jax.random.key(0))
    opponent = make_learner("naive", GAME, 1)
    history = play(jax.random.key(1), GAME, shaper.learner(parameters), opponent, meta_steps=3, keep_trajectories=True)
    own, other = history.trajectories
    logits = np.asarray(own.action[:, 0])
    for t in range(1, 4):
        # The last policy played, and the naive learner's next policy, after its learning step. Or its policy of the
        # same step.
        theirs = other.action[t if observe == "after" else t - 1, 0]
        seen = jax.nn.sigmoid(jnp.concatenate([logits[t - 1], theirs]))
        expected = in_numpy(jax.tree.map(np.asarray, parameters["actor"]), np.asarray(seen)[:, None])[:5, 0]
        np.testing.assert_allclose(logits[t], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(own.extras[1][t, 0], seen, rtol=1e-5)  # PPO learns from these


@pytest.fixture(scope="module")
def trained():
    """Two runs against an unconditional cooperator: exploitation is worth 0, cooperation -1."""
    opponent = make_learner("all_c", GAME, 1)
    keys = jnp.stack([jax.random.key(0), jax.random.key(1)])
    return opponent, meta_ppo(lambda: (GAME, opponent), 5, keys, SMALL, meta_steps=5)


@nightly
def test_the_best_reply_to_a_cooperator_is_learned(trained):
    _, found = trained
    assert found.metrics["shaper_return"].shape == (40, 2)
    assert (found.metrics["shaper_return"][0] < -0.4).all()
    assert (found.metrics["shaper_return"][-1] > -0.15).all()
    assert (found.metrics["opponent_return"][-1] < -2.7).all()
    assert (found.metrics["non_finite"] == 0).all()


@nightly
def test_a_stopped_run_goes_on_bit_for_bit(trained, tmp_path):
    opponent, whole = trained
    keys = jnp.stack([jax.random.key(0), jax.random.key(1)])
    for iterations in (2, 5):  # the number decides only the end
        settings, store = dataclasses.replace(SMALL, iterations=iterations), RunDirectory(tmp_path)
        parts = meta_ppo(lambda: (GAME, opponent), 5, keys, settings, meta_steps=5, store=store)
        del store
    assert parts.first_generation == 2
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["generation"] for row in rows] == [1, 2, 3, 4, 5]
    for name, values in parts.metrics.items():
        np.testing.assert_array_equal(values, whole.metrics[name][:5], err_msg=name)


def test_a_return_that_is_not_finite_stops_with_its_number():
    with pytest.raises(NonFiniteFitness, match=r"generation 6: the return is not finite; a smaller meta_ppo\.learning"):
        check_finite({"fitness": np.array([[-1.0, -1.0], [-1.0, np.nan]])}, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "meta_ppo.iterations: got 0; a whole number from 1 to 2147483647 is needed"),
        ({"batch_size": 0}, "meta_ppo.batch_size: got 0; a whole number from 1 to 2147483647"),
        ({"epochs": 0}, "meta_ppo.epochs: got 0"),
        ({"learning_rate": float("nan")}, "meta_ppo.learning_rate: got nan; a number above 0"),
        ({"clip": 0.0}, "meta_ppo.clip: got 0.0"),
        ({"entropy_coefficient": -1.0}, "meta_ppo.entropy_coefficient: got -1.0; a number of at least 0"),
        ({"discount": 1.1}, "meta_ppo.discount: got 1.1; a number from 0 to 1"),
    ],
)
def test_impossible_settings_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        ExactMetaPPO(**changes)


@pytest.mark.parametrize(
    ("settings", "advantages"), [(ExactMetaPPO, "critic"), (ExactMetaPPO, "coala"), (SampledMetaPPO, "coala")]
)
def test_comparisons_within_a_batch_need_two_trials(settings, advantages):
    with pytest.raises(ValueError, match=r"meta_ppo.batch_size: got 1; a whole number from 2 to 2147483647"):
        settings(batch_size=1, advantages=advantages)


def test_ppo_trains_the_meta_policy_of_mfos_alone():
    with pytest.raises(ValueError, match="shaper: got 'shaper'; meta_learner ppo trains mfos"):
        make_shaping(ExactShapingConfig(shaper="shaper", meta_learner="ppo"))


@pytest.mark.system
def test_the_command_trains_by_ppo(within, tmp_path):
    options = ["--meta-ppo.iterations=3", "--meta-ppo.batch-size=8", "--meta-ppo.hidden-units=4", "--meta-steps=4"]
    result = within(
        "ipd",
        "--discount=0",
        "--meta-learner=ppo",
        *options,
        "--evaluation-trials=8",
        "--seeds=2",
        "--out=run",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (found["meta_learner"], found["generations"], found["num_meta_steps"]) == ("ppo", 3, 3 * 8 * 4 * 2)
    assert len(found["runs"]) == 2
    assert len(list((tmp_path / "run" / "figures").glob("*.png"))) == 6
    assert "3 iterations of 8 trials" in result.stdout
    returns = [f"{found[f'{side}_return']:.2f}" for side in ("opponent", "shaper")]
    assert f"The opponent gets {returns[0]} per round" in result.stdout
    assert f"and gets {returns[1]} per round (a learner of the opponent's kind" in " ".join(result.stdout.split())


@nightly
def test_the_kind_of_evaluation_changes_no_training():
    """Two shapers that learn against each other act by samples, also if their means are evaluated."""
    found = []
    for evaluation in ("sample", "mean"):
        settings = ExactMetaPPO(iterations=2, batch_size=4, hidden_units=4, evaluation=evaluation)
        config = ExactShapingConfig(opponent="self_play", meta_learner="ppo", meta_ppo=settings, meta_steps=3)
        found.append(make_shaping(config).train_shapers(jax.random.key(0)[None]).parameters)
    chex.assert_trees_all_equal(*found)


@pytest.mark.slow
@pytest.mark.parametrize("advantages", ["critic", "coala"])
def test_a_naive_learner_is_extorted(advantages):
    settings = ExactMetaPPO(iterations=300, batch_size=256, advantages=advantages)
    shaping = make_shaping(ExactShapingConfig(meta_learner="ppo", meta_ppo=settings))
    found = shaping.train_shapers(jax.random.key(0)[None])
    assert found.metrics["shaper_return"][-1] > -0.65
    assert found.metrics["opponent_return"][-1] < -1.85
