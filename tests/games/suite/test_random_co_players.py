"""Random co-players: the bare game between the agents, and play of the drawn policies by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import games

BARE = games.make("ipd", episode_length=6)
ENVS, ROUNDS = 64, 6


def play(game, key=0):
    """Observations, actions, rewards and states of random play, `[T, N, ...]`, in one program for all games."""

    def step(carry, key):
        obs, state = carry
        keys = jax.random.split(key, (3, ENVS))
        actions = jax.vmap(lambda k: jax.random.randint(k, (2,), 0, 2))(keys[0])
        by_agent = {"agent_0": actions[:, 0], "agent_1": actions[:, 1]}
        after, following, rewards, dones, infos = jax.vmap(game.step_env)(keys[1], state, by_agent)
        last = (obs, actions, rewards, state, dones["__all__"], infos)
        return jax.vmap(game.auto_reset)(keys[2], after, following, dones), last

    begun = jax.vmap(game.reset)(jax.random.split(jax.random.key(key), ENVS))
    return jax.lax.scan(step, begun, jax.random.split(jax.random.key(key + 1), 2 * ROUNDS))[1]


@pytest.fixture(scope="module")
def played():
    game = games.RandomCoPlayers(BARE, identified=1.0)
    run = jax.jit(lambda share: play(dataclasses.replace(game, share=share)))
    return {share: jax.tree.map(np.asarray, run(share)) for share in (0.0, 0.5, 1.0)}


def test_without_policies_it_is_the_bare_game(played):
    _, actions, rewards, state, done, _ = played[0.0]
    table = np.array([[[-1, -1], [-3, 0]], [[0, -3], [-2, -2]]])
    paid = table[actions[..., 0], actions[..., 1]]
    for i in (0, 1):
        np.testing.assert_array_equal(rewards[f"agent_{i}"], paid[..., i])
    assert not state.apart.any()
    np.testing.assert_array_equal(done.all(1), [False] * 5 + [True] + [False] * 5 + [True])
    # Each sees its own action first, and the start after the end.
    np.testing.assert_array_equal(state.seen[1, :, 0], 1 + 2 * actions[0, :, 0] + actions[0, :, 1])
    np.testing.assert_array_equal(state.seen[1, :, 1], 1 + 2 * actions[0, :, 1] + actions[0, :, 0])
    np.testing.assert_array_equal(state.seen[6], 0)


def test_policies_act_by_their_probabilities_in_their_own_view():
    first = games.RandomCoPlayers(BARE, 1.0)
    # One that cooperates at the start and after CD alone, in its own view, where the agent has defected.
    policy = jnp.tile(jnp.array([1.0, 0.0, 1.0, 0.0, 0.0]), (2, 1))
    _, state = first.reset(jax.random.key(0))
    state = state.replace(policies=policy)
    seen = []
    for action in (1, 1, 0, 0):
        _, state, rewards, _, _ = first.step_env(jax.random.key(1), state, {"agent_0": action, "agent_1": action})
        seen.append((int(state.seen[0]), float(rewards["agent_0"]), float(rewards["agent_1"])))
    # DC, and again DC because it cooperates after its CD, then CC, and then CD because it defects after CC.
    assert seen == [(3, 0.0, 0.0), (3, 0.0, 0.0), (1, -1.0, -1.0), (2, -3.0, -3.0)]


def test_the_share_is_of_episodes_and_identities_are_told_as_they_are(played):
    obs, _, _, state, _, infos = played[0.5]
    assert (state.apart[:6] == state.apart[0]).all()
    assert 0.3 < state.apart.mean() < 0.7
    np.testing.assert_array_equal(infos["apart"][..., 0], state.apart)
    told = obs["agent_1"][..., 5:]
    np.testing.assert_array_equal(told[..., 0], state.apart)
    np.testing.assert_allclose(told[..., 1:], np.where(state.apart[..., None], state.policies[..., 1, :], 0))
    np.testing.assert_array_equal(obs["agent_0"][..., :5].argmax(-1), state.seen[..., 0])


def test_sharpness_moves_probabilities_to_the_ends():
    drawn = {}
    for sharpness in (1.0, 3.0):
        game = games.RandomCoPlayers(BARE, sharpness=sharpness)
        drawn[sharpness] = np.asarray(jax.vmap(game.reset)(jax.random.split(jax.random.key(0), 512))[1].policies)
    u = drawn[1.0].astype(float)
    np.testing.assert_allclose(drawn[3.0], u**3 / (u**3 + (1 - u) ** 3), atol=1e-5)
    assert u.mean() == pytest.approx(0.5, abs=0.02)
    assert u.std() == pytest.approx(12**-0.5, abs=0.01)


def test_large_exponents_leave_0_and_1_and_no_nan():
    game = games.RandomCoPlayers(BARE, sharpness=500.0)
    policies = jax.vmap(lambda key: game.reset(key)[1].policies)(jax.random.split(jax.random.key(0), 256))
    near = np.minimum(policies, 1 - policies)
    assert np.isfinite(near).all()
    assert (near < 1e-3).mean() > 0.95
    assert 0.4 < np.mean(policies) < 0.6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: games.RandomCoPlayers(games.make("coin_game")), "game: got CoinGame; a repeated game of two players"),
        (lambda: games.RandomCoPlayers(games.make("ipd", memory=2)), "with two actions and a memory of 1 is needed"),
        (
            lambda: games.RandomCoPlayers(games.make("ipd", discount=0.9)),
            "discount: got 0.9; a game with a fixed number",
        ),
        (lambda: games.RandomCoPlayers(BARE, 2.0), r"share: got 2.0; a number in \[0, 1\] is needed"),
        (lambda: games.RandomCoPlayers(BARE, identified=5.0), r"identified: got 5.0; a number in \[0, 1\] is needed"),
        (lambda: games.RandomCoPlayers(BARE, sharpness=0.0), "sharpness: got 0.0"),
    ],
)
def test_misfits_name_what_is_needed(make, message):
    with pytest.raises(ValueError, match=message):
        make()
