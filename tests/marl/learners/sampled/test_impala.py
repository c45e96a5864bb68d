"""IMPALA and A3C: one update against the policy gradient in float64, the gradient's parameters, and invalid steps."""

import jax
import numpy as np
import pytest

from marl import a3c, impala, learn, make_learner, stale
from marl.learners.sampled.impala import ActorCriticExtras, ActorCriticMemory
from tests.marl.sampled_steps import CART_POLE, DISCOUNT, ENVS, STEPS, gradient, linear, log_softmax, single, some_steps
from tests.nightly import nightly

SETTINGS = {"discount": DISCOUNT, "learning_rate": 1e-3, "max_gradient_norm": 1e9}


def played(log_prob, seed=0):
    """Steps of a policy with these log probabilities."""
    t = some_steps(seed)
    t.next_obs[:-1] = np.where(t.done[:-1, :, None], t.next_obs[:-1], t.obs[1:])
    memory = ActorCriticMemory((), ())
    return t._replace(extras=ActorCriticExtras(log_prob, ()), first_memory=memory, last_memory=memory)


def loss(params, t, corrected, value_coefficient=0.5, entropy_coefficient=0.01, fixed=None, clips=(1.0, 1.0, np.inf)):
    """The loss with targets and advantages by the parameters `fixed`; rho, the trace and the reward are clipped."""
    rho_clip, trace_clip, reward_clip = clips
    fixed = params if fixed is None else fixed
    now, still = t.obs @ params, t.obs @ fixed
    log_probs = log_softmax(now[..., :-1])
    log_prob = np.take_along_axis(log_probs, t.action[..., None], -1)[..., 0]
    then = np.take_along_axis(log_softmax(still[..., :-1]), t.action[..., None], -1)[..., 0]
    ratio = np.exp(then - t.extras.log_prob) if corrected else np.ones_like(then)
    rho, trace = np.minimum(rho_clip, ratio), np.minimum(trace_clip, ratio)
    reward = np.clip(t.reward, -reward_clip, reward_clip)
    value, next_value = still[..., -1], (t.next_obs @ fixed)[..., -1]
    target, advantage = np.zeros_like(value), np.zeros_like(value)
    later = np.zeros(ENVS)
    for s in reversed(range(STEPS)):
        goes_on = DISCOUNT * ~(t.done[s] & ~t.truncated[s])
        error = reward[s] + goes_on * next_value[s] - value[s]
        later = np.where(t.done[s], 0.0, later)
        advantage[s] = rho[s] * (error + DISCOUNT * 0.95 * later)
        later = rho[s] * error + DISCOUNT * 0.95 * trace[s] * later
        target[s] = value[s] + later
    entropy = -(np.exp(log_probs) * log_probs).sum(-1).mean()
    off = 0.5 * ((now[..., -1] - target) ** 2).mean()
    return value_coefficient * off - entropy_coefficient * entropy - (advantage * log_prob).mean()


@pytest.mark.parametrize(("corrected", "clips"), [(True, (1.0, 1.0, np.inf)), (True, (1.2, 0.7, 0.5)), (False, None)])
def test_an_update_follows_the_gradient_of_its_loss(corrected, clips):
    given, clips = (
        zip(("rho_clip", "trace_clip", "reward_clip"), clips or (), strict=False),
        clips or (1.0, 1.0, np.inf),
    )
    settings = SETTINGS | {name: value for name, value in given if np.isfinite(value)}
    learner = impala(CART_POLE, network=linear(), corrected=corrected, trace_lambda=0.95, **settings)
    state = learner.init(jax.random.key(0))
    params = np.asarray(state.params, np.float64)
    t = played(np.log(np.random.default_rng(5).uniform(0.2, 0.8, (STEPS, ENVS))))
    after, _ = jax.jit(learner.update)(jax.random.key(1), state, single(t))
    expected = gradient(lambda x: loss(x, t, corrected, fixed=params, clips=clips), params)
    # Adam's first moment is a tenth of the gradient by then, and its first step is rate * g / (|g| + epsilon).
    first = next(x for x in jax.tree.leaves(after.optimizer) if x.ndim == 1)
    np.testing.assert_allclose(10 * first.reshape(params.shape), expected, rtol=2e-3, atol=1e-5)
    step = -1e-3 * expected / (np.abs(expected) + 1e-5)
    np.testing.assert_allclose(np.asarray(after.params) - params, step, rtol=5e-3, atol=1e-6)


def test_rmsprop_has_the_decay_of_the_paper():
    """The second moment is a hundredth of the square of the first gradient; by optax's default it is a tenth."""
    learner = impala(CART_POLE, network=linear(), optimizer="rmsprop", trace_lambda=0.95, **SETTINGS)
    state, t = learner.init(jax.random.key(0)), played(np.zeros((STEPS, ENVS)))
    after, _ = jax.jit(learner.update)(jax.random.key(1), state, single(t))
    params = np.asarray(state.params, np.float64)
    expected = gradient(lambda x: loss(x, t, True, fixed=params), params)
    (second,) = (x for x in jax.tree.leaves(after.optimizer) if x.ndim == 1)
    np.testing.assert_allclose(100 * second.reshape(params.shape), expected**2, rtol=5e-3, atol=1e-6)


def test_a3c_takes_its_gradient_at_the_actors_parameters():
    """The gradient is taken at the actor's parameters and applied to the learner's."""
    learner = a3c(CART_POLE, network=linear(), discount=DISCOUNT, trace_lambda=0.95, max_gradient_norm=1e9)
    then, now = (learner.init(jax.random.key(i)) for i in (0, 1))
    t = played(np.zeros((STEPS, ENVS)))
    memory = ActorCriticMemory((), np.asarray(then.params))
    t = t._replace(last_memory=memory, first_memory=memory)
    found, _ = learner.gradients.of(jax.random.key(2), single(t))
    params = np.asarray(then.params, np.float64)
    expected = gradient(lambda x: loss(x, t, False, fixed=params), params)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-5)
    after, _ = learner.update(jax.random.key(2), now, single(t))
    applied = learner.gradients.apply(now, found)
    np.testing.assert_allclose(after.params, applied.params, rtol=1e-6)
    assert not np.array_equal(after.params, now.params)


def test_invalid_steps_have_no_gradient():
    log_prob = np.log(np.random.default_rng(5).uniform(0.2, 0.8, (STEPS, ENVS)))
    t = played(log_prob)
    valid = np.ones((STEPS, ENVS), bool)
    done = t.done.copy()
    valid[3, 1], done[2, 1], done[3, 1] = False, True, True
    truncated = t.truncated & done
    truncated[3, 1] = False
    t = t._replace(valid=valid, done=done, truncated=truncated)
    for make in (impala, a3c):
        learner = make(CART_POLE, network=linear(), discount=DISCOUNT)
        state = learner.init(jax.random.key(0))
        memory = ActorCriticMemory((), np.asarray(state.params) if make is a3c else ())
        found = []
        for nonsense in (0.0, 50.0):
            reward, obs = t.reward.copy(), t.obs.copy()
            reward[3, 1], obs[3, 1] = nonsense, nonsense
            steps = t._replace(reward=reward, obs=obs, first_memory=memory, last_memory=memory)
            found.append(learner.update(jax.random.key(1), state, single(steps))[0].params)
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-7)


@nightly
def test_v_trace_corrects_the_targets_of_old_steps():
    """Steps of an old policy: the corrected targets are those of the current policy, so that both runs differ."""
    settings = {"num_updates": 12, "steps_per_update": 8, "num_envs": 4}
    kept = {}
    for corrected in (True, False):
        for lag in (0, 4):
            learner = stale(
                make_learner(f"impala(hidden=[8], corrected={corrected}, learning_rate=0.01)", CART_POLE), lag
            )
            found = jax.jit(lambda key, learner=learner: learn(key, CART_POLE, [learner], **settings))(
                jax.random.key(0)
            )
            kept[corrected, lag] = np.concatenate([x.ravel() for x in jax.tree.leaves(found.states[0])])
    np.testing.assert_allclose(kept[True, 0], kept[False, 0], rtol=1e-3, atol=1e-5)  # on policy they are equal
    assert np.abs(kept[True, 4] - kept[False, 4]).max() > 1e-3


def test_bad_settings():
    for spec, words in {
        "impala(trace_lambda=1.5)": "trace_lambda: got 1.5",
        "impala(optimizer='sgd')": "optimizer: got 'sgd'; one of adam, rmsprop",
        "a3c(reward_clip=0)": "reward_clip: got 0",
        "a3c(rho_clip=2)": "rho_clip",
    }.items():
        with pytest.raises(ValueError, match=words.replace("(", r"\(")):
            make_learner(spec, CART_POLE)
