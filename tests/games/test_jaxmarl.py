"""Every game as an environment of JaxMARL: what its own tests ask of an environment, its wrappers, its IPPO."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxmarl.environments.multi_agent_env import MultiAgentEnv
from jaxmarl.environments.spaces import Space
from jaxmarl.wrappers.baselines import CTRolloutManager, LogWrapper

import games
from games.jaxmarl import wrap
from tests.games.every_game import every_game

EVERY = every_game("CartPole-v1", "Pendulum-v1")
KEY = jax.random.PRNGKey(0)  # raw, as JaxMARL's code has them


def sampled(env, key):
    return {agent: env.action_space(agent).sample(key) for agent in env.agents}


@pytest.mark.parametrize("name", EVERY)
def test_every_game_is_a_jaxmarl_environment(name):
    """The checks of JaxMARL's own tests, and its protocol beyond them."""
    env = wrap(name)
    assert isinstance(env, MultiAgentEnv)
    assert env.num_agents == len(env.agents)
    for agent in env.agents:
        for spaces, space in ((env.observation_spaces, env.observation_space), (env.action_spaces, env.action_space)):
            assert spaces[agent] == space(agent)
            assert isinstance(space(agent), Space)
    observations, state = env.reset(KEY)
    actions = sampled(env, KEY)
    stepped = env.step(KEY, state, actions)
    assert isinstance(stepped, tuple)
    # Its own IPPO scripts take their batch of actions apart by a reshape that ends in -1, and so hand over [1] for [].
    longer = jax.eval_shape(env.step, KEY, state, {agent: action.reshape(-1) for agent, action in actions.items()})
    assert jax.tree.map(jnp.shape, longer) == jax.tree.map(jnp.shape, stepped)
    for observed in (observations, stepped[0]):
        for agent in env.agents:
            assert env.observation_space(agent).contains(observed[agent])
            assert observed[agent].shape == env.observation_space(agent).shape
    assert set(stepped[3]) == {*env.agents, "__all__"}
    assert all(jnp.ndim(stepped[2][agent]) == 0 for agent in env.agents)
    assert jax.tree.structure(stepped[1]) == jax.tree.structure(state)
    assert env.get_avail_actions(state).keys() == set(env.agents)
    assert sorted(agent for agents in env.agent_classes.values() for agent in agents) == sorted(env.agents)


def test_a_wrapped_game_is_the_game_step_for_step():
    game = games.make("coin_game", episode_length=2)
    env = wrap(game)
    assert env.name == "CoinGame"
    assert env.grid_size == 3
    (seen, state), (expected, _) = env.reset(KEY), game.reset(KEY)
    jax.tree.map(np.testing.assert_array_equal, seen, expected)
    for i in range(3):
        ours = jax.jit(game.step)(jax.random.PRNGKey(i), state, sampled(env, KEY))
        theirs = env.step(jax.random.PRNGKey(i), state, sampled(env, KEY))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        state = ours[1]


@pytest.mark.parametrize("make", [games.make, wrap])
def test_a_game_that_ends_goes_on_from_the_state_that_is_given(make):
    """JaxMARL's API test, for the bare game too, because it has the same protocol."""
    env = make("coin_game", episode_length=2)
    _, state = env.reset(jax.random.PRNGKey(1))
    _, other = env.reset(jax.random.PRNGKey(2))
    _, going_on, _, dones, _ = env.step(KEY, state, sampled(env, KEY), reset_state=other)
    assert not dones["__all__"]
    assert int(going_on.time) == 1
    observations, begun, _, dones, _ = env.step(KEY, going_on, sampled(env, KEY), reset_state=other)
    assert dones["__all__"]
    jax.tree.map(np.testing.assert_array_equal, begun, other)
    jax.tree.map(np.testing.assert_array_equal, observations, env.get_obs(other))


@pytest.mark.usefixtures("promoted")
@pytest.mark.parametrize("make", [games.make, wrap])
def test_its_log_wrapper_counts_episodes_in_a_scan(make):
    env = LogWrapper(make("ipd", episode_length=5))
    num_envs = 3

    def step(state, key):
        actions = {agent: jnp.full(num_envs, i) for i, agent in enumerate(env.agents)}  # one is exploited
        _, state, _, _, info = jax.vmap(env.step)(jax.random.split(key, num_envs), state, actions)
        return state, jax.tree.map(lambda x: x.reshape(num_envs * env.num_agents), info)

    @jax.jit
    def play(key):
        _, state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
        return jax.lax.scan(step, state, jax.random.split(key, 12))[1]

    info = play(KEY)
    assert info["returned_episode"].sum() == 2 * num_envs * 2
    np.testing.assert_array_equal(info["returned_episode_lengths"][-1], 5)
    np.testing.assert_array_equal(info["returned_episode_returns"][-1], [-15, 0] * num_envs)
    np.testing.assert_array_equal(info["CD"][-1], [1, 0] * num_envs)


def test_its_rollout_manager_plays_for_its_q_learners():
    env = CTRolloutManager(wrap("three_player_ipd"), batch_size=4)
    observations, state = env.batch_reset(KEY)
    actions = {agent: env.batch_sample(KEY, agent) for agent in env.agents}
    observations, state, rewards, _, _ = env.batch_step(KEY, state, actions)
    assert observations["agent_0"].shape == (4, 9 + 3)  # with the number of the agent
    assert observations["__all__"].shape == (4, 3 * 9)
    np.testing.assert_allclose(rewards["__all__"], sum(rewards[agent] for agent in env.agents))


class ActorCritic(nn.Module):
    num_actions: int

    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Dense(32)(x))
        return nn.Dense(self.num_actions)(x), nn.Dense(1)(x)[..., 0]


class Transition(NamedTuple):
    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array
    info: dict


def ippo(env, *, num_envs=32, num_steps=16, num_updates, epochs=4, discount=0.96):
    """Independent PPO with shared parameters, with the batches of JaxMARL's baselines: actors are agents x games."""
    num_actors = env.num_agents * num_envs
    network = ActorCritic(env.action_space(env.agents[0]).n)
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2))

    def batchify(x):
        return jnp.stack([x[agent] for agent in env.agents]).reshape(num_actors, -1)

    def unbatchify(x):
        return dict(zip(env.agents, x.reshape(env.num_agents, num_envs, -1), strict=True))

    def play(carry, key):
        params, env_state, last_obs = carry
        act_key, step_key = jax.random.split(key)
        obs = batchify(last_obs)
        logits, value = network.apply(params, obs)
        action = jax.random.categorical(act_key, logits)
        log_prob = jax.nn.log_softmax(logits)[jnp.arange(num_actors), action]
        last_obs, env_state, reward, done, info = jax.vmap(env.step)(
            jax.random.split(step_key, num_envs), env_state, unbatchify(action)
        )
        info = jax.tree.map(lambda x: x.reshape(num_actors), info)
        transition = Transition(
            batchify(done).squeeze(), action, value, batchify(reward).squeeze(), log_prob, obs, info
        )
        return (params, env_state, last_obs), transition

    def loss(params, batch, advantages, targets):
        logits, value = network.apply(params, batch.obs)
        log_probs = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(log_probs, batch.action[..., None], -1)[..., 0] - batch.log_prob)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        actor = jnp.minimum(ratio * advantages, jnp.clip(ratio, 0.8, 1.2) * advantages).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
        return 0.5 * jnp.square(value - targets).mean() - actor - 0.01 * entropy

    def update(carry, key):
        params, optimiser_state, env_state, last_obs = carry
        (_, env_state, last_obs), batch = jax.lax.scan(
            play, (params, env_state, last_obs), jax.random.split(key, num_steps)
        )

        def advantage(carry, transition):
            advantage, next_value = carry
            goes_on = discount * (1 - transition.done)
            advantage = transition.reward + goes_on * next_value - transition.value + 0.95 * goes_on * advantage
            return (advantage, transition.value), advantage

        last_value = network.apply(params, batchify(last_obs))[1]
        _, advantages = jax.lax.scan(advantage, (jnp.zeros(num_actors), last_value), batch, reverse=True)

        def epoch(carry, _):
            params, optimiser_state = carry
            gradients = jax.grad(loss)(params, batch, advantages, advantages + batch.value)
            updates, optimiser_state = optimiser.update(gradients, optimiser_state)
            return (optax.apply_updates(params, updates), optimiser_state), None

        (params, optimiser_state), _ = jax.lax.scan(epoch, (params, optimiser_state), None, epochs)
        return (params, optimiser_state, env_state, last_obs), jax.tree.map(jnp.mean, batch.info)

    @jax.jit
    def train(key):
        init_key, reset_key, run_key = jax.random.split(key, 3)
        last_obs, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
        params = network.init(init_key, batchify(last_obs))
        carry = params, optimiser.init(params), env_state, last_obs
        return jax.lax.scan(update, carry, jax.random.split(run_key, num_updates))[1]

    return train(KEY)


@pytest.mark.system
@pytest.mark.usefixtures("promoted")
def test_its_ippo_learns_to_defect():
    info = ippo(LogWrapper(wrap("ipd", episode_length=16)), num_updates=60)
    assert info["cooperation"][0] == pytest.approx(0.5, abs=0.2)
    assert info["DD"][-1] > 0.9
    assert info["returned_episode_returns"][-1] == pytest.approx(-32, abs=3)


@pytest.mark.slow
def test_its_ippo_learns_to_pick_up_coins():
    """Selfish learners take every coin, their own or not: the dilemma. On the game itself: it has the protocol."""
    info = ippo(LogWrapper(games.make("coin_game")), num_updates=150)
    taken = info["own_coin"] + info["other_coin"]
    assert taken[-10:].mean() > 1.5 * taken[:10].mean()
    assert info["other_coin"][-10:].mean() > 1.5 * info["other_coin"][:10].mean()
