"""Rice-N against a plain implementation of its equations in float64, and the rules of the club."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games.suite.rice import Rice, regions

KEY = jax.random.key(0)
_step = jax.jit(lambda game, state, actions: game.step_env(KEY, state, actions))


def simulate(actions):
    """Utilities `[T, 5]` and warming `[T]` of actions `[T, 5, 13]`: the equations of Zhang et al., region by region."""
    start = {name: values.astype(np.float64) for name, values in regions(5).items()}
    n = 5
    technology, capital, labor = start["technology"].copy(), start["capital"].copy(), start["labor"].copy()
    intensity, balance, tariff = start["intensity"].copy(), np.zeros(n), np.zeros((n, n))
    carbon, heat = np.array([851.0, 460.0, 1740.0]), np.array([0.85, 0.0068])
    utilities, warming = [], []
    for t, acts in enumerate(actions.astype(np.float64)):
        output, invested, limit = np.zeros(n), np.zeros(n), np.zeros(n)
        emitted = 0.0
        for i in range(n):
            made = technology[i] * capital[i] ** 0.3 * (labor[i] / 1000) ** 0.7
            cost = 550 / (1000 * 2.6) * 0.999**t * intensity[i]
            output[i] = made * (1 - cost * acts[i, 1] ** 2.6) / (1 + 0.00236 * heat[0] ** 2)
            invested[i] = acts[i, 0] * output[i]
            limit[i] = min(acts[i, 2] * output[i], output[i] - invested[i])
            emitted += intensity[i] * (1 - acts[i, 1]) * made + 2.6 * 0.999**t / n
        imports = acts[:, 8:13].copy()
        new_tariff = acts[:, 3:8].copy()
        np.fill_diagonal(imports, 0)
        np.fill_diagonal(new_tariff, 0)
        balance = balance * 1.1  # interest, also on what is owed
        debts = balance.copy()
        for i in range(n):
            if imports[i].sum() > output[i]:
                imports[i] *= output[i] / imports[i].sum()
            imports[i] *= 1 + np.clip(10 * debts[i] / start["capital"][i], -1, 0)
        for j in range(n):
            if imports[:, j].sum() > limit[j]:
                imports[:, j] *= limit[j] / imports[:, j].sum()
        balance = balance + 5 * (imports.sum(0) - imports.sum(1))
        paid = []
        for i in range(n):
            own = max(output[i] - invested[i] - imports[:, i].sum(), 0)
            foreign = sum(0.5 / (n - 1) * np.sqrt(imports[i, j] * (1 - tariff[i, j])) for j in range(n))
            consumption = (0.5 * np.sqrt(own) + foreign) ** 2
            people = labor[i] / 1000
            paid.append(people * ((consumption / people + 1) ** (1 - 1.45) - 1) / (1 - 1.45))
        forcing = 3.6813 * np.log(carbon[0] / 588) / np.log(2) + min(1.0, 0.5 + 0.025 * t)
        heat = np.array([[0.8718, 0.0088], [0.025, 0.975]]) @ heat + np.array([0.1005 * forcing, 0])
        carbon = np.array([[0.88, 0.196, 0], [0.12, 0.797, 0.001465], [0, 0.007, 0.99853488]]) @ carbon
        carbon[0] += 1.36388 * emitted
        for i in range(n):
            technology[i] *= np.exp(0.0033) + start["technology_growth"][i] * np.exp(
                -start["technology_decay"][i] * 5 * t
            )
            intensity[i] *= np.exp(-0.0025 * 0.9 ** (5 * t) * 5)
            labor[i] *= ((1 + start["labor_limit"][i]) / (1 + labor[i])) ** start["labor_growth"][i]
            capital[i] = 0.9**5 * capital[i] + 5 * invested[i]
        tariff = new_tariff
        utilities.append(paid)
        warming.append(heat[0])
    return np.array(utilities), np.array(warming)


def play(game, actions):
    _, state = game.reset(KEY)
    paid, infos = [], []
    for acts in actions:
        _, state, rewards, _, info = _step(game, state, dict(zip(game.agents, map(jnp.asarray, acts), strict=True)))
        paid.append([float(x) for x in rewards.values()])
        infos.append(info)
    return state, np.array(paid), {name: np.stack([info[name] for info in infos]) for name in infos[0]}


def test_it_follows_the_equations():
    actions = np.random.default_rng(0).uniform(size=(20, 5, 13)).astype(np.float32)
    actions[:, :, 0] *= 0.4
    utilities, warming = simulate(actions)
    _, paid, infos = play(Rice(), actions)
    np.testing.assert_allclose(infos["warming"][:, 0], warming, rtol=2e-5)
    np.testing.assert_allclose(paid, utilities, rtol=2e-5, atol=2e-6)


def test_mitigation_cools_all_and_costs_the_one_that_does_it():
    calm = np.zeros((20, 5, 13), np.float32)
    calm[:, :, 0] = 0.25
    alone, all_do = calm.copy(), calm.copy()
    alone[:, 0, 1], all_do[:, :, 1] = 0.9, 0.9
    results = {name: play(Rice(), actions) for name, actions in (("calm", calm), ("alone", alone), ("all", all_do))}
    warming = {name: infos["warming"][-1, 0] for name, (_, _, infos) in results.items()}
    assert warming["all"] < warming["alone"] < warming["calm"]
    first = {name: paid[0] for name, (_, paid, _) in results.items()}
    assert first["alone"][0] < first["calm"][0]
    np.testing.assert_allclose(first["alone"][1:], first["calm"][1:], rtol=1e-6)


def test_members_of_a_club_mitigate_and_ask_tariffs_of_others_alone():
    game = Rice(club="fixed", club_mitigation=0.6, club_tariff=0.2)
    acts = np.full((1, 5, 14), 0.1, np.float32)
    acts[:, :2, -1] = 1  # two join
    state, _, infos = play(game, acts)
    np.testing.assert_array_equal(infos["member"][0], [1, 1, 0, 0, 0])
    np.testing.assert_allclose(infos["mitigation"][0], [0.6, 0.6, 0.1, 0.1, 0.1])
    expected = np.full((5, 5), 0.1)
    expected[:2] = 0.2
    expected[:2, :2] = 0
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(state.tariffs, expected, rtol=1e-6)


def test_a_mediator_sets_the_rates_and_is_paid_for_the_climate():
    game = Rice(club="mediated", climate_weight=2.0, welfare_weight=0.5)
    assert game.num_agents == 6
    assert game.action_space("agent_5").shape == (2,)
    acts = [np.full(14, 0.7, np.float32)] * 5 + [np.array([0.4, 0.3], np.float32)]
    _, before = game.reset(KEY)
    state, paid, infos = play(game, [acts])
    np.testing.assert_allclose(infos["mitigation"][0], [0.4] * 5 + [0])
    warming = float(state.heat[0] - before.heat[0])
    assert paid[0, 5] == pytest.approx(0.5 * paid[0, :5].sum() / 50 - 2 * warming, rel=1e-4)


@pytest.mark.parametrize("number", [5, 27])
def test_regions_are_read(number):
    assert all(len(values) == number for values in regions(number).values())
    assert all(np.isfinite(values).all() for values in regions(number).values())


def test_mitigation_that_costs_all_leaves_nothing_and_no_nan():
    acts = np.zeros((3, 27, 57), np.float32)
    acts[:, :, 1] = 1
    acts[:, :, 30:] = 0.5
    state, paid, infos = play(Rice(num_regions=27, mitigation_price=1e6), acts)
    assert np.isfinite(paid).all()
    np.testing.assert_array_equal(infos["output"], 0)
    assert np.isfinite(np.asarray(Rice(num_regions=27).get_obs(state)["agent_0"])).all()


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match="num_regions: got 6"):
        Rice(num_regions=6)
    with pytest.raises(ValueError, match="club: got 'open'"):
        Rice(club="open")
