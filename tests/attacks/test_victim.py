"""The paper's victim: one whole update, recomputed in float64 NumPy from the same steps."""

import dataclasses

import jax
import numpy as np
import pytest

import configs
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from configs.specs import read
from games.wrappers.cheap_talk import CheapTalk
from marl.core.learn import learning
from tests.nightly import grid

ENVS, STEPS = 2, 24
SHORT = {  # games in which a limit ends episodes within the steps; Breakout's are ended by its rules
    "cartpole_paper": "CartPole-v1(max_steps_in_episode=8)",
    "pendulum_paper": "pendulum(gravity=9.8, max_speed=1000000.0, explicit=True, squash=True, episode_length=8)",
    "reacher_paper": "reacher(reward='quadratic', squash=True, episode_length=8)",
    "breakout_paper": "Breakout-MinAtar",
}
ACTIVATIONS = {
    "tanh": (np.tanh, lambda output: 1 - output**2),
    "relu": (lambda x: np.maximum(x, 0), lambda output: 1.0 * (output > 0)),
}


def forward(w, x, activation):
    act = ACTIVATIONS[activation][0]
    first = act(x @ w["Dense_0"]["kernel"] + w["Dense_0"]["bias"])
    second = act(first @ w["Dense_1"]["kernel"] + w["Dense_1"]["bias"])
    heads = [second @ w["_Heads_0"][name]["kernel"] + w["_Heads_0"][name]["bias"] for name in ("Dense_0", "Dense_1")]
    return first, second, heads[0], heads[1][..., 0]


def of_policy(output, scales, action):
    """(log probabilities, gradients of these and of the entropy in the outputs, and in the logarithms of scales)."""
    if scales is None:
        logits = output - output.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        p, taken = np.exp(log_p), np.eye(output.shape[-1])[action.astype(int)]
        entropy = -(p * log_p).sum(-1, keepdims=True)
        return (log_p * taken).sum(-1), taken - p, -p * (log_p + entropy), None, None
    deviation = (action - output) / np.exp(scales)
    log_prob = (-0.5 * deviation**2 - scales - 0.5 * np.log(2 * np.pi)).sum(-1)
    return log_prob, deviation / np.exp(scales), np.zeros_like(output), deviation**2 - 1, np.ones_like(output)


def gradient(w, x, action, old_log_prob, old_value, advantage, activation, entropy_coefficient):
    """The gradient of PPO's loss with both clips at 0.2, half the value's loss and a share of the entropy; by hand."""
    first, second, output, value = forward(w, x, activation)
    scales, number = w["_Heads_0"].get("scales"), len(x)
    log_prob, of_log_prob, of_entropy, scales_of_log_prob, scales_of_entropy = of_policy(output, scales, action)
    ratio = np.exp(log_prob - old_log_prob)
    normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    unclipped = ratio * normal <= np.clip(ratio, 0.8, 1.2) * normal
    weight = -(unclipped * ratio * normal)[:, None]
    to_output = weight * of_log_prob - entropy_coefficient * of_entropy
    target, step = old_value + advantage, value - old_value
    clipped = old_value + np.clip(step, -0.2, 0.2)
    free = (abs(step) <= 0.2) | ((value - target) ** 2 > (clipped - target) ** 2)
    to_value = (0.5 * free * (value - target))[:, None]
    found = {"_Heads_0": {}}
    if scales is not None:
        found["_Heads_0"]["scales"] = (weight * scales_of_log_prob - entropy_coefficient * scales_of_entropy).mean(0)
    back = 0.0
    for name, error in (("Dense_0", to_output / number), ("Dense_1", to_value / number)):
        found["_Heads_0"][name] = {"kernel": second.T @ error, "bias": error.sum(0)}
        back = back + error @ w["_Heads_0"][name]["kernel"].T
    for name, output, inputs in (("Dense_1", second, first), ("Dense_0", first, x)):
        error = back * ACTIVATIONS[activation][1](output)
        found[name] = {"kernel": inputs.T @ error, "bias": error.sum(0)}
        back = error @ w[name]["kernel"].T
    return found


@pytest.fixture(scope="module", params=grid(SHORT, "cartpole_paper", "pendulum_paper"))
def train_one(request):
    """The preset's config, the victim's first parameters, the steps from which it learns, the parameters after that."""
    config = configs.load(AttackConfig, "act", request.param)
    attack = resolve(dataclasses.replace(config, environment=SHORT[request.param]))
    talk = CheapTalk(attack.game, (), lambda _, obs: 2 * obs.ravel()[:2] - 1, 2)
    begin, update = learning(
        talk, [attack.make_victim(talk)], steps_per_update=STEPS, num_envs=ENVS, keep_trajectories=True
    )

    def run(key):
        carry, key = begin(key)
        after, history = update(carry, key)
        return carry.states[0].params, history.trajectories[0], after.states[0].params

    return config, *jax.tree.map(lambda x: np.asarray(x, np.float64), jax.jit(run)(jax.random.key(5)))


@pytest.mark.system
def test_the_papers_victim_learns_as_numpy_says(train_one):
    """Weights, running statistics, ends at the limit, all steps but the last, both clips, Adam and the norm's clip."""
    config, before, t, after = train_one
    s = {"activation": "tanh", "discount": 0.99, "entropy_coefficient": 0.01} | read("victim", config.victim, "ppo")[1]
    how = s["activation"], s["entropy_coefficient"]
    seen = np.zeros_like(t.obs)
    for step in range(STEPS):
        so_far = t.obs[: step + 1]
        seen[step] = (t.obs[step] - so_far.mean((0, 1))) / np.sqrt(so_far.var((0, 1)) + s["observation_epsilon"])
    *_, output, value = forward(before, seen, s["activation"])
    log_prob = of_policy(output, before["_Heads_0"].get("scales"), t.action)[0]
    assert t.truncated.any() == (config.environment != "Breakout-MinAtar")
    assert (t.done > t.truncated).any() == (t.action.ndim == 2)  # episodes end by falls, if there are any
    advantage = np.zeros((STEPS, ENVS))  # the last row stays 0, because no update uses it
    for step in reversed(range(STEPS - 1)):
        goes_on = 1 - t.done[step]  # a limit is an end
        delta = t.reward[step] + s["discount"] * goes_on * value[step + 1] - value[step]
        advantage[step] = delta + s["discount"] * 0.95 * goes_on * advantage[step + 1]
    batch = [x[:-1].reshape(-1, *x.shape[2:]) for x in (seen, t.action, log_prob, value, advantage)]
    w, mean, square = before, jax.tree.map(np.zeros_like, before), jax.tree.map(np.zeros_like, before)
    for i in range(1, s["epochs"] + 1):
        g = gradient(w, *batch, *how)
        norm = np.sqrt(sum((x**2).sum() for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x, norm=norm: x * min(1, 0.5 / norm), g)
        mean = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, mean, g)
        square = jax.tree.map(lambda s, x: 0.999 * s + 0.001 * x**2, square, g)

        def step_of(w, m, v, i=i):
            return w - s["learning_rate"] * m / (1 - 0.9**i) / (np.sqrt(v / (1 - 0.999**i)) + 1e-5)

        w = jax.tree.map(step_of, w, mean, square)
    way = s["learning_rate"] * s["epochs"]  # the way of a parameter whose gradient keeps its sign
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=0.0025 * way), after, w)
    # The comparison is meaningful: the way is fifty times as long.
    moved = abs(after["Dense_0"]["kernel"] - before["Dense_0"]["kernel"])
    assert moved[moved.any(1)].mean() > 0.125 * way  # for the entries of observations that changed


def test_the_papers_weights_are_normal_with_variance_one_over_inputs(train_one):
    """Weights of the policy have it too, so that it is not uniform at first."""
    before = train_one[1]
    for layer in (before["Dense_0"], before["Dense_1"], before["_Heads_0"]["Dense_0"]):
        kernel = layer["kernel"]
        inputs = len(kernel)
        assert kernel.std() == pytest.approx(inputs**-0.5, abs=4 * (2 * inputs * kernel.size) ** -0.5)
        assert abs(kernel).max() <= 2 / 0.8796 * inputs**-0.5 * 1.001  # cut off at two standard deviations
