"""PPO over whole trials, against its loss in float64 NumPy, and its learning."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import make
from marl.blocks.distributions import categorical
from marl.core.learn import History
from marl.core.learner import Trajectory
from marl.experiments.shaping.config import SampledShapingConfig
from marl.experiments.shaping.jobs import make_shaping
from marl.learners.registry import make_learner
from marl.shapers.meta_ppo_config import SampledMetaPPO
from marl.shapers.sampled_policies import Extras, Policy, mfos
from marl.shapers.sampled_ppo import coala_returns, sampled_ppo
from marl.shapers.trial import play_sampled
from meta import NonFiniteFitness, RunDirectory
from tests.nightly import nightly

EPISODES, STEPS, ENVS = 3, 4, 2
DISCOUNT, GAE_LAMBDA, ENTROPY, VALUE_COEFFICIENT, RATE, CLIP = 0.9, 0.7, 0.03, 0.4, 0.25, 0.2
FIRST = {"see": 0.7, "keep": 0.8, "policy": 1.3, "value": -0.6, "push": 0.4}


def small_policy():
    """h <- tanh(see o + keep h), of the trial; h is pushed up when the others learn and halved when an episode ends."""

    def act(p, memory, obs):
        h = jnp.tanh(p["see"] * obs + p["keep"] * memory["h"] + p["push"] * memory["turns"])
        outputs = jnp.stack([p["policy"] * h, jnp.zeros_like(h)], -1)
        return outputs, p["value"] * h, {"h": h, "turns": memory["turns"]}

    def reset_memory(memory, done):
        return memory | {"h": jnp.where(done, 0.5, 1.0) * memory["h"]}

    return Policy(
        lambda key: {name: jnp.float32(x) for name, x in FIRST.items()},
        lambda num_envs: {"h": jnp.zeros(num_envs), "turns": jnp.zeros(num_envs)},
        act,
        reset_memory,
        categorical(2),
        lambda memory: memory | {"turns": memory["turns"] + 1},
    )


def in_numpy(parameters, obs, done):
    """Logits of action 0 and values, `[EPISODES, STEPS, ENVS]`, of the policy above."""
    h, found = np.zeros(ENVS), []
    for episode in range(EPISODES):
        for step in range(STEPS):
            h = np.tanh(parameters["see"] * obs[episode, step] + parameters["keep"] * h + parameters["push"] * episode)
            found.append((parameters["policy"] * h, parameters["value"] * h))
            h = np.where(done[episode, step], 0.5 * h, h)
    return np.moveaxis(np.reshape(found, (EPISODES, STEPS, 2, ENVS)), 2, 0)


def log_probs(logits, actions):
    return np.where(actions == 0, -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits)))


def public_advantages(reward, value):
    """M-FOS's advantages: an environment's rewards to the end of an episode, then the mean over environments."""
    found, mean = np.zeros_like(reward), 0.0
    for episode in reversed(range(EPISODES)):
        own = np.full(ENVS, mean)
        for step in reversed(range(STEPS)):
            own = reward[episode, step] + DISCOUNT * own
            mean = reward[episode, step].mean() + DISCOUNT * mean
            found[episode, step] = own
    return found - value


def coala_advantages(rewards, values):
    """COALA's: the rest of an environment's episode and all later episodes, less the mean of the other trial."""
    found = np.zeros_like(rewards)
    for trial, episode, step, env in itertools.product(range(2), range(EPISODES), range(STEPS), range(ENVS)):
        reward = rewards[trial]
        found[trial, episode, step, env] = reward[episode, step:, env].sum() + reward[episode + 1 :].sum()
    found = found - found.mean(3, keepdims=True)[::-1]
    return found / found.std() - values


def of_each(credit):
    """Advantages of both trials from those of one."""
    return lambda rewards, values: np.stack([credit(*one) for one in zip(rewards, values, strict=True)])


def advantages(reward, value):
    """sum_k (discount lambda)^k delta_{t+k} to the end of the trial, across the ends of episodes."""
    reward, value = (x.reshape(-1, ENVS) for x in (reward, value))
    following = np.concatenate([value[1:], np.zeros((1, ENVS))])
    error = reward + DISCOUNT * following - value
    found = [
        sum((DISCOUNT * GAE_LAMBDA) ** (k - t) * error[k] for k in range(t, len(error))) for t in range(len(error))
    ]
    return np.reshape(found, (EPISODES, STEPS, ENVS))


@pytest.fixture(scope="module")
def given():
    """Two trials of two shapers: (obs, done, action, reward, excess log probability of the action).

    `[2, EPISODES, STEPS, ENVS]` each.
    """
    generator, shape = np.random.default_rng(3), (2, EPISODES, STEPS, ENVS)

    def one():
        obs, reward = generator.normal(size=shape), generator.normal(size=shape)
        done, action = generator.random(shape) < 0.4, generator.integers(0, 2, shape)
        return obs, done, action, reward, generator.normal(size=shape) / 2

    return [one(), one()]


def loss(parameters, given, advantages):
    """The loss of both shapers together; some of the probability ratios are clipped."""
    ratios, weights, value_errors, entropies = [], [], [], []
    for obs, done, action, reward, more in given:
        old_logits, old_value = both(FIRST, obs, done)
        advantage = advantages(reward, old_value)
        logits, value = both(parameters, obs, done)
        ratios.append(np.exp(log_probs(logits, action) - log_probs(old_logits, action) - more))
        weights.append(advantage)
        value_errors.append((value - (old_value + advantage)) ** 2 / 2)
        p = 1 / (1 + np.exp(-logits))
        entropies.append(-p * np.log(p) - (1 - p) * np.log(1 - p))
    weights = np.stack(weights)
    weights = (weights - weights.mean()) / (weights.std() + 1e-8)
    value_loss, entropy = np.mean(value_errors), np.mean(entropies)
    ratios = np.stack(ratios)
    surrogate = np.minimum(ratios * weights, np.clip(ratios, 1 - CLIP, 1 + CLIP) * weights)
    assert 0.1 < (surrogate != ratios * weights).mean() < 0.9
    total = -surrogate.mean() + VALUE_COEFFICIENT * value_loss - ENTROPY * entropy
    return total, value_loss, entropy


def both(parameters, obs, done):
    """The logits and values of both trials."""
    found = [in_numpy(parameters, *one) for one in zip(obs, done, strict=True)]
    return tuple(np.stack(x) for x in zip(*found, strict=True))


def history(given, trial):
    """The trial of a number as a history; the third player gets 1 more than the first."""
    trajectories = []
    for obs, done, action, reward, more in given:
        logits, value = both(FIRST, obs, done)
        numbers = obs, reward, log_probs(logits, action) + more, value
        obs, reward, log_prob, value = (jnp.asarray(x, jnp.float32)[trial] for x in numbers)
        ended = jnp.asarray(done)[trial]
        extras = Extras(log_prob, value)
        trajectories.append(Trajectory(obs, jnp.asarray(action)[trial], reward, ended, extras, (), ended, obs))
    rewards = [x.reward.mean((1, 2)) for x in trajectories]
    return History((*rewards, rewards[0] + 1), (), (), (), {}, (*trajectories, trajectories[0]), None, ())


@pytest.mark.parametrize("kind", ["critic", "public", "coala"])
def test_a_step_goes_down_the_loss_of_the_whole_trial(given, kind):
    credit = {"critic": of_each(advantages), "public": of_each(public_advantages), "coala": coala_advantages}[kind]
    settings = SampledMetaPPO(
        iterations=1,
        batch_size=2,
        epochs=1,
        learning_rate=RATE,
        discount=DISCOUNT,
        clip=CLIP,
        gae_lambda=1.0 if kind == "public" else GAE_LAMBDA,
        later_episodes="mean" if kind == "public" else "environment",
        advantages="coala" if kind == "coala" else "critic",
        entropy_coefficient=ENTROPY,
        value_coefficient=VALUE_COEFFICIENT,
        # Adam's first step is rate * g / (|g| + 1e-8): of a gradient cut to a length of 1e-8 the direction is left.
        max_gradient_norm=1e-8,
    )
    # The keys of the two trials, by which a trial finds which of them it is.
    play_key = jax.random.split(jax.random.fold_in(jax.random.split(jax.random.key(0))[1], 0))[0]
    second = jax.random.key_data(jax.random.split(play_key)[1])

    def play(key, parameters):
        return history(given, jnp.all(jax.random.key_data(key) == second).astype(int))

    trained = sampled_ppo(play, small_policy(), jax.random.key(0), settings, num_shapers=2)
    _, value_loss, entropy = loss(FIRST, given, credit)
    assert trained.metrics["value_loss"][0] == pytest.approx(value_loss, rel=1e-5)
    assert trained.metrics["entropy"][0] == pytest.approx(entropy, rel=1e-5)
    more = np.stack([one[-1] for one in given])
    assert trained.metrics["kl"][0] == pytest.approx((np.exp(-more) - 1 + more).mean(), rel=1e-5)
    mean = np.mean([reward.mean() for *_, reward, _ in given])
    assert trained.metrics["shaper_return"][0] == pytest.approx(mean, rel=1e-5)
    assert trained.metrics["opponent_return"][0] == pytest.approx(given[0][3].mean() + 1, rel=1e-5)
    gradient = {}
    for name in FIRST:
        up, down = (loss(FIRST | {name: FIRST[name] + h}, given, credit)[0] for h in (1e-6, -1e-6))
        gradient[name] = (up - down) / 2e-6
    length = np.linalg.norm(list(gradient.values()))
    for name, slope in gradient.items():
        direction = slope / length
        expected = FIRST[name] - RATE * direction / (abs(direction) + 1)
        assert float(trained.parameters[name]) == pytest.approx(expected, abs=2e-4), name


def test_coala_returns_give_the_gradient_of_the_return_with_learning():
    """Every course of a tiny game: two environments, two episodes of two steps, and an opponent that learns from both.

    In the second episode the opponent cooperates with the frequency of cooperation in the first; rewards are expected
    ones. The shaper's action depends on the step and on its last action.
    """
    actions = np.array(list(itertools.product(range(2), repeat=8))).reshape(-1, 4, 2)  # course, step, environment
    before = np.concatenate([np.zeros_like(actions[:, :1]), actions[:, :-1]], 1)
    learned = 1 - actions[:, :2].mean((1, 2))
    cooperates = np.stack([np.full(len(actions), 0.3)] * 2 + [learned] * 2, 1)[:, :, None]
    rewards = np.where(actions == 0, 2 * cooperates - 3, 2 * cooperates - 2)  # action 0 is to cooperate
    parameters = np.array([0.3, -0.5, 0.2, 0.7, -0.9])

    def logits(parameters):
        return parameters[:4, None] + parameters[4] * before

    def probabilities(parameters):
        return np.exp(log_probs(logits(parameters), actions).sum((1, 2)))

    def expected(parameters):
        return probabilities(parameters) @ rewards.sum(1).mean(1)

    def estimate(credit):
        weighted = ((actions == 0) - 1 / (1 + np.exp(-logits(parameters)))) * credit / ENVS
        by_step, by_action = weighted.sum(2), (weighted * before).sum((1, 2))
        return probabilities(parameters) @ np.column_stack([by_step, by_action])

    exact = np.array([(expected(parameters + h) - expected(parameters - h)) / 2e-5 for h in 1e-5 * np.eye(5)])
    episodes = jnp.float32(rewards.reshape(-1, 2, 2, ENVS))
    credit = np.asarray(jax.jit(jax.vmap(coala_returns))(episodes), np.float64).reshape(rewards.shape)
    np.testing.assert_allclose(estimate(credit), exact, rtol=1e-5, atol=1e-6)
    # With the own environment's rewards alone, an action of the first episode gets half the credit for its teaching.
    own = np.cumsum(rewards[:, ::-1], 1)[:, ::-1]
    assert abs(estimate(own) - exact)[:2].min() > 0.05
    np.testing.assert_allclose(estimate(own)[2:4], exact[2:4], rtol=1e-5)


def test_a_stopped_training_ends_as_an_unbroken_one(given, tmp_path):
    def train(path, iterations):
        path.mkdir(exist_ok=True)
        settings = SampledMetaPPO(iterations=iterations, batch_size=4, minibatches=2, epochs=2, learning_rate=0.01)
        store = RunDirectory(path)
        return sampled_ppo(
            lambda key, parameters: history(given, 0), small_policy(), jax.random.key(0), settings, store=store
        )

    whole = train(tmp_path / "whole", 3)
    train(tmp_path / "run", 1)
    resumed = train(tmp_path / "run", 3)
    assert (whole.first_generation, resumed.first_generation) == (0, 1)
    for found, expected in ((resumed.parameters, whole.parameters), (resumed.metrics, whole.metrics)):
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert float(whole.parameters["see"]) != FIRST["see"]


@pytest.fixture(scope="module")
def trained():
    """M-FOS by PPO in the prisoner's dilemma against chance, with one pass over each batch: (policy, `Evolved`)."""
    game = make("ipd", episode_length=3)
    policy, opponent = mfos(game, hidden_units=4), make_learner("random", game, 1, num_updates=2)

    def play(key, parameters):
        lengths = {"meta_steps": 2, "episode_length": 3, "num_envs": 2}
        return play_sampled(key, game, policy, parameters, [opponent], keep_trajectories=True, **lengths)

    settings = SampledMetaPPO(iterations=40, batch_size=32, minibatches=1, epochs=1, learning_rate=0.05, discount=0.5)
    return policy, sampled_ppo(play, policy, jax.random.key(1), settings)


@pytest.mark.system
def test_each_gradient_step_replays_the_trial(trained):
    _, found = trained
    assert np.abs(found.metrics["kl"]).max() < 1e-6
    assert found.metrics["entropy"][0] > 0.3  # so that another memory would be noticed


def test_defection_is_learned_against_random_play(trained):
    policy, found = trained
    returns = found.metrics["shaper_return"]
    assert found.metrics["fitness"].tolist() == returns.tolist()
    # Cooperation gets -2 on average against random play, defection -1; 32 trials of 12 rounds have an error of 0.05.
    assert returns[0] < -1.3
    assert returns[-8:].mean() < -0.9
    assert returns[-8:].mean() > -1.1
    assert set(found.parameters) == set(policy.init(jax.random.key(0)))
    assert (found.first_generation, len(returns)) == (0, 40)


@pytest.mark.usefixtures("nans")
def test_a_return_that_is_not_finite_is_an_error(given):
    broken = [(obs, done, action, reward * np.nan, more) for obs, done, action, reward, more in given]
    settings = SampledMetaPPO(iterations=1, batch_size=2, epochs=1)
    with pytest.raises(NonFiniteFitness, match="generation 1: the return is not finite"):
        sampled_ppo(lambda key, parameters: history(broken, 0), small_policy(), jax.random.key(0), settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, "meta_ppo.iterations: got 0; a whole number from 1 to 2147483647 is needed"),
        ({"batch_size": 8, "minibatches": 3}, "meta_ppo.minibatches: got 3; a divisor of the 8 trials is needed"),
    ],
)
def test_unsuitable_settings_are_refused(settings, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared below)
        SampledMetaPPO(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize("shaper", ["shaper(hidden_units=3)", "counts"])
def test_coala_is_refused_for_a_shaper_that_hears_of_other_environments_within_an_episode(shaper):
    config = SampledShapingConfig(
        environment="ipd(episode_length=4)",
        shaper=shaper,
        opponent="random",
        meta_steps=2,
        episode_length=4,
        meta_learner="ppo",
        meta_ppo=SampledMetaPPO(advantages="coala"),
    )
    with pytest.raises(ValueError, match=r"meta_ppo\.advantages: got coala with shaper (shaper|counts)"):
        make_shaping(config)


@nightly
@pytest.mark.usefixtures("nans")
def test_diverged_parameters_end_the_training():
    """NaN logits still act, with finite returns."""
    config = SampledShapingConfig(
        environment="ipd(episode_length=4)",
        shaper="shaper(hidden_units=3)",
        opponent="random",
        meta_steps=2,
        episode_length=4,
        meta_learner="ppo",
        meta_ppo=SampledMetaPPO(iterations=3, batch_size=2, epochs=1, learning_rate=1e30),
    )
    with pytest.raises(NonFiniteFitness):
        make_shaping(config).train_shapers(jax.random.key(0)[None])
