"""The paper's victim: one whole update of it again, in float64 NumPy, from the same steps."""

import dataclasses

import jax
import numpy as np
import pytest

import configs
from attacks.config import AttackConfig
from games.wrappers.cheap_talk import CheapTalk
from marl.core.learn import learning

ENVS, STEPS, EPOCHS, ACTIONS = 2, 24, 16, 2


def forward(w, x):
    first = np.tanh(x @ w["Dense_0"]["kernel"] + w["Dense_0"]["bias"])
    second = np.tanh(first @ w["Dense_1"]["kernel"] + w["Dense_1"]["bias"])
    heads = [second @ w["_Heads_0"][name]["kernel"] + w["_Heads_0"][name]["bias"] for name in ("Dense_0", "Dense_1")]
    logits = heads[0] - heads[0].max(-1, keepdims=True)
    return first, second, logits - np.log(np.exp(logits).sum(-1, keepdims=True)), heads[1][..., 0]


def gradient(w, x, action, old_log_prob, old_value, advantage):
    """Of PPO's loss with both clips at 0.2, half the value's loss and 0.01 of the entropy; by hand."""
    first, second, log_p, value = forward(w, x)
    number, p = len(x), np.exp(log_p)
    taken = np.eye(ACTIONS)[action]
    ratio = np.exp((log_p * taken).sum(-1) - old_log_prob)
    normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    unclipped = ratio * normal <= np.clip(ratio, 0.8, 1.2) * normal
    entropy = -(p * log_p).sum(-1, keepdims=True)
    to_logits = -(unclipped * ratio * normal)[:, None] * (taken - p) + 0.01 * p * (log_p + entropy)
    target, step = old_value + advantage, value - old_value
    clipped = old_value + np.clip(step, -0.2, 0.2)
    free = (abs(step) <= 0.2) | ((value - target) ** 2 > (clipped - target) ** 2)
    to_value = (0.5 * free * (value - target))[:, None]
    found = {"_Heads_0": {}}
    back = 0.0
    for name, error in (("Dense_0", to_logits / number), ("Dense_1", to_value / number)):
        found["_Heads_0"][name] = {"kernel": second.T @ error, "bias": error.sum(0)}
        back = back + error @ w["_Heads_0"][name]["kernel"].T
    for name, output, inputs in (("Dense_1", second, first), ("Dense_0", first, x)):
        error = back * (1 - output**2)
        found[name] = {"kernel": inputs.T @ error, "bias": error.sum(0)}
        back = error @ w[name]["kernel"].T
    return found


@pytest.fixture(scope="module")
def lived():
    """The victim's first parameters, the steps from which it learns, and the parameters after its first update."""
    config = configs.load(AttackConfig, "act", "cartpole_paper")
    game = dataclasses.replace(config, environment="CartPole-v1(max_steps_in_episode=8)").make_game()
    talk = CheapTalk(game, (), lambda _, obs: 2 * obs[:2] - 1)
    begin, update = learning(
        talk, [config.make_victim(talk)], steps_per_update=STEPS, num_envs=ENVS, keep_trajectories=True
    )

    def run(key):
        carry, key = begin(key)
        after, history = update(carry, key)
        return carry.states[0].params, history.trajectories[0], after.states[0].params

    return jax.tree.map(lambda x: np.asarray(x, np.float64), jax.jit(run)(jax.random.key(5)))


def test_the_papers_victim_learns_as_numpy_says(lived):
    """Weights, running statistics, ends at the limit, all steps but the last, both clips, Adam and the norm's clip."""
    before, t, after = lived
    seen = np.zeros_like(t.obs)
    for step in range(STEPS):
        so_far = t.obs[: step + 1]
        seen[step] = (t.obs[step] - so_far.mean((0, 1))) / np.sqrt(so_far.var((0, 1)) + 1e-4)
    *_, log_p, value = forward(before, seen)
    assert t.truncated.any()
    assert (t.done > t.truncated).any()  # and somebody fell
    advantage = np.zeros((STEPS, ENVS))  # the last row stays 0: nobody learns from it
    for step in reversed(range(STEPS - 1)):
        goes_on = 1 - t.done[step]  # a limit is an end
        delta = t.reward[step] + 0.99 * goes_on * value[step + 1] - value[step]
        advantage[step] = delta + 0.99 * 0.95 * goes_on * advantage[step + 1]
    action = t.action.astype(int)
    log_prob = np.take_along_axis(log_p, action[..., None], -1)[..., 0]
    batch = [x[:-1].reshape(-1, *x.shape[2:]) for x in (seen, action, log_prob, value, advantage)]
    w, mean, square = before, jax.tree.map(np.zeros_like, before), jax.tree.map(np.zeros_like, before)
    for i in range(1, EPOCHS + 1):
        g = gradient(w, *batch)
        norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x, norm=norm: x * min(1, 0.5 / norm), g)
        mean = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, mean, g)
        square = jax.tree.map(lambda s, x: 0.999 * s + 0.001 * x**2, square, g)
        w = jax.tree.map(
            lambda w, m, s, i=i: w - 0.005 * m / (1 - 0.9**i) / (np.sqrt(s / (1 - 0.999**i)) + 1e-5), w, mean, square
        )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-4), after, w)
    # Which says something: the way is fifty times as long.
    assert abs(after["Dense_0"]["kernel"] - before["Dense_0"]["kernel"]).mean() > 0.01


def test_the_papers_weights_are_normal_with_variance_one_over_inputs(lived):
    before = lived[0]
    for name, inputs in (("Dense_0", 6), ("Dense_1", 32)):
        kernel = before[name]["kernel"]
        assert kernel.std() == pytest.approx(inputs**-0.5, abs=4 * (2 * inputs * kernel.size) ** -0.5)
        assert abs(kernel).max() <= 2 / 0.8796 * inputs**-0.5 * 1.001  # cut off at two standard deviations
    assert before["_Heads_0"]["Dense_0"]["kernel"].std() > 0.1  # a policy that is not uniform at first
