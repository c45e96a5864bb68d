"""The donation game: payoffs, pairs, social norms and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.donation import NORMS, Donation
from tests.games.suite.grid_tools import KEY, first_state

GIVE, KEEP = 0, 1
_step = jax.jit(lambda game, key, state, actions: game.step_env(key, state, actions))


def begin(game, **fields):
    return first_state(game).replace(**{name: jnp.array(value) for name, value in fields.items()})


def play(game, state, *acts, key=KEY):
    obs, state, rewards, _, infos = _step(game, key, state, dict(zip(game.agents, map(jnp.int32, acts), strict=True)))
    return {a: np.asarray(x).tolist() for a, x in obs.items()}, state, [float(x) for x in rewards.values()], infos


@pytest.mark.parametrize(("acts", "paid"), [((0, 0), [4, 4]), ((0, 1), [-1, 5]), ((1, 0), [5, -1]), ((1, 1), [0, 0])])
def test_a_pair_plays_a_prisoners_dilemma(acts, paid):
    game = Donation(num_agents=2)
    assert play(game, begin(game), *acts)[2] == paid


def test_each_pays_for_its_own_partner():
    game = Donation(num_agents=4)
    state = begin(game, partner=[2, 3, 0, 1])
    assert play(game, state, GIVE, KEEP, KEEP, KEEP)[2] == [-1, 0, 5, 0]


# What [gave to good, gave to bad, kept from good, kept from bad] is seen as.
@pytest.mark.parametrize(
    ("norm", "good"),
    [
        ("image_scoring", [1, 1, 0, 0]),
        ("simple_standing", [1, 1, 0, 1]),
        ("stern_judging", [1, 0, 0, 1]),
        ("shunning", [1, 0, 0, 0]),
    ],
)
def test_norms_judge(norm, good):
    game = Donation(num_agents=8, norm=norm)
    # Players 0 to 3 act upon 4 to 7, of which 5 and 7 are bad.
    state = begin(game, partner=[4, 5, 6, 7, 0, 1, 2, 3], good=[1, 1, 1, 1, 1, 0, 1, 0])
    _, state, _, infos = play(game, state, GIVE, GIVE, KEEP, KEEP, GIVE, GIVE, GIVE, GIVE)
    assert state.good[:4].tolist() == good
    assert infos["good"][:4].tolist() == good
    assert set(NORMS) == {"image_scoring", "simple_standing", "stern_judging", "shunning"}


def test_errors_have_their_probabilities():
    game = Donation(num_agents=2, execution_error=0.2, assessment_error=0.1, norm="image_scoring")
    state = begin(game)
    acts = {"agent_0": jnp.int32(GIVE), "agent_1": jnp.int32(KEEP)}
    _, after, rewards, _, infos = jax.jit(jax.vmap(lambda key: game.step_env(key, state, acts)))(
        jax.random.split(KEY, 4000)
    )
    assert np.asarray(rewards["agent_1"]).mean() == pytest.approx(0.8 * 5, abs=0.15)
    assert np.asarray(rewards["agent_0"]).mean() == pytest.approx(-0.8, abs=0.03)
    assert np.asarray(after.good[:, 0]).mean() == pytest.approx(0.8 * 0.9 + 0.2 * 0.1, abs=0.03)
    assert np.asarray(after.good[:, 1]).mean() == pytest.approx(0.1, abs=0.02)
    np.testing.assert_array_equal(infos["cooperation"], [[1, 0]] * 4000)  # what it wanted


@pytest.mark.system
def test_pairs_are_mutual_random_and_drawn_again_with_their_probability():
    game = Donation(num_agents=6, rematch=0.25)
    _, states = jax.vmap(game.reset)(jax.random.split(KEY, 3000))
    partner = np.asarray(states.partner)
    everyone = np.arange(6)
    assert (np.take_along_axis(partner, partner, 1) == everyone).all()
    assert (partner != everyone).all()
    np.testing.assert_allclose(np.bincount(partner[:, 0], minlength=6)[1:] / 3000, 1 / 5, atol=0.03)
    state = begin(game)
    acts = dict.fromkeys(game.agents, jnp.int32(GIVE))
    _, after, _, _, infos = jax.jit(jax.vmap(lambda key: game.step_env(key, state, acts)))(jax.random.split(KEY, 3000))
    # Of new pairs one in five has the same partner again.
    assert np.asarray(infos["rematched"])[:, 0].mean() == pytest.approx(0.25 * 4 / 5, abs=0.03)
    np.testing.assert_array_equal(infos["rematched"], after.partner != state.partner)


def test_players_see_reputations_and_what_the_same_partner_did():
    fixed = Donation(num_agents=2, rematch=0.0, norm="image_scoring")
    obs, *_ = play(fixed, begin(fixed), GIVE, KEEP)
    assert obs == {"agent_0": [1, 0, 1, 1, 0, 1], "agent_1": [0, 1, 1, 0, 1, 1]}
    moving = Donation(num_agents=4, rematch=1.0, norm="image_scoring")
    state = begin(moving, partner=[1, 0, 3, 2])
    for i in range(6):
        obs, after, *_ = play(moving, state, GIVE, KEEP, GIVE, KEEP, key=jax.random.key(i))
        with_1 = after.partner[0] == 1
        assert obs["agent_0"][2:] == [float(with_1), 1, 0, 1]
        assert obs["agent_1"][2:] == [float(with_1), 0, float(with_1), 1]


def test_a_discriminator_is_safe_from_defectors_where_a_giver_is_not():
    """Indirect reciprocity: under stern judging a defector earns from those that give to all, and from no others."""
    game = Donation(num_agents=10, norm="stern_judging")

    def returns(discriminates):
        def step(carry, key):
            obs, state = carry
            seen = jnp.stack([obs[agent] for agent in game.agents])
            acts = jnp.where(discriminates, seen[:, 1] == 0, False).astype(jnp.int32).at[0].set(KEEP)
            obs, state, rewards, *_ = game.step_env(key, state, dict(zip(game.agents, acts, strict=True)))
            return (obs, state), jnp.stack(list(rewards.values()))

        _, paid = jax.lax.scan(step, game.reset(KEY), jax.random.split(KEY, 200))
        return np.asarray(paid).mean(0)

    from_givers, from_discriminators = returns(False), returns(True)
    assert from_givers[0] == pytest.approx(5)
    assert from_discriminators[0] < 0.1
    assert from_discriminators[1:].mean() > 3  # nine of ten partners give and get


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_agents": 5}, "num_agents: got 5; an even number is needed"),
        ({"norm": "kind"}, "norm: got 'kind'"),
        ({"norm": [[1.0, 0.0]]}, "norm: got shape"),
        ({"rematch": 2.0}, "rematch: got 2.0"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        Donation(**params)
