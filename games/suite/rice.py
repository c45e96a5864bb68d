"""Rice-N: regions choose savings, mitigation and trade, and share one climate; with a climate club, C-Rice-N."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from games.core import checks
from games.core.game import Actions, Game, Observations, Scalar, Step, static
from games.core.spaces import Box
from games.toolbox.drawing import PLAYERS, bars

YEARS = 5.0  # of a step
CARBON_FLOWS = np.array([[0.88, 0.196, 0.0], [0.12, 0.797, 0.001465], [0.0, 0.007, 0.99853488]])
HEAT_FLOWS = np.array([[0.8718, 0.0088], [0.025, 0.975]])
CARBON, HEAT = np.array([851.0, 460.0, 1740.0]), np.array([0.85, 0.0068])  # at the start
CARBON_1750, FORCING = 588.0, 3.6813  # of a doubling
CAPITAL_SHARE, DAMAGE, COST_EXPONENT = 0.3, 0.00236, 2.6
INTEREST, CREDIT = 0.1, 10.0  # of balances in a step; debt over capital at which imports end is 1 / CREDIT
HOME, SUBSTITUTION = 0.5, 0.5  # of domestic and of imported goods in consumption
TINY = 1e-30


@functools.cache
def regions(number: int) -> dict[str, np.ndarray]:
    """The numbers of the 5 or 27 regions in 2015, one array `[number]` for each column."""
    with open(Path(__file__).with_name("rice_regions.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row.pop("regions")) == number]
    return {name: np.array([float(row[name]) for row in rows], np.float32) for name in rows[0]}


@struct.dataclass
class RiceState:
    """The climate, the economies, and what the last step has shown; all `[n]` unless another shape is given."""

    heat: jax.Array  # `[2]`, warming of the air and the deep sea since 1750, kelvins
    carbon: jax.Array  # `[3]`, in the air, the upper and the lower sea, gigatonnes
    labor: jax.Array  # millions
    capital: jax.Array  # trillions of dollars
    technology: jax.Array
    intensity: jax.Array  # emissions for each unit of output
    balance: jax.Array  # of trade
    tariffs: jax.Array  # `[n, n]`, of row i on imports from column j, in the step to come
    output: jax.Array
    production: jax.Array
    investment: jax.Array
    consumption: jax.Array
    damages: jax.Array  # the share of output that is left
    abatement: jax.Array  # the share of output that mitigation costs
    revenue: jax.Array  # of tariffs
    carbon_price: jax.Array
    member: jax.Array  # of the club, 0 or 1
    club: jax.Array  # `[2]`, mitigation rate and tariff of the club
    actions: jax.Array  # `[n, k]`, of the last step
    time: jax.Array  # `[]`, steps since the reset


@struct.dataclass(eq=False)
class Rice(Game):
    """Regions of the world economy decide how much to save, to mitigate and to trade; the same warming harms all.

    A step is five years. Output is technology capital^0.3 (labor / 1000)^0.7, less the damage by warming and the cost
    of mitigation. A region invests a share of it, sells up to a share of it to others, and consumes the rest together
    with what it imports, by an aggregate in which goods of different regions are imperfect substitutes. Its reward is
    the utility of consumption. Emissions, output without the mitigated share times an intensity that falls slowly, warm
    the air through three reservoirs of carbon and two of heat. Mitigation costs the region that does it and pays all: a
    public good with a long delay. A tariff takes a share of the imports from a region in the next step.

    With `club="fixed"` a region may join a climate club. Members mitigate at `club_mitigation`, ask at least
    `club_tariff` of all others, and nothing of one another. With `club="mediated"` one more player, the last, sets both
    rates in every step, and is rewarded with `climate_weight` for less warming and `welfare_weight` for the sum of
    utilities.

    Actions: numbers in [0, 1], beyond which they are clipped. Of a region, `[3 + 2 n]`, or `[4 + 2 n]` with a club: the
    share of output that is invested; the mitigated share of emissions; the largest share of output to export; the
    tariff on each region; imports wanted from each region, units of output; whether it joins, from 0.5 on. Of a
    mediator, `[2]`: the club's mitigation rate and its tariff. The observation, of the same shape for all, is one's own
    seat in one-hot form, the time over the limit, warming, carbon over 1000, and of all regions labor, capital and
    output over those at the start, consumption and investment over output at the start, the balance over capital at the
    start, tariff revenue, carbon price, membership, damages, abatement and the last actions; and the rates of the club.
    Nothing is random; seats are regions of their own.

    Infos: `warming` of the air; `mitigation` and `savings`, shares after the rules of the club; `output`;
    `consumption`; `emissions`; `member`, of the club. A mediator's are 0, but for the warming.

    Attributes:
      num_regions: 5 or 27.
      club: `none`, `fixed` or `mediated`.
      club_mitigation: of members of a fixed club.
      club_tariff: of members of a fixed club.
      climate_weight: of a mediator, for a kelvin of warming in a step.
      welfare_weight: of a mediator, for the sum of utilities over 10 times the number of regions.
      mitigation_price: of the backstop technology at the start.
      intensity_decline: rate at which emissions for each unit of output fall by themselves.
      risk_aversion: of the utility.
      episode_length: steps until the time limit.

    Source: Zhang et al., AI for Global Climate Cooperation: Modeling Global Climate Negotiations, Agreements, and
    Long-Term Cooperation in RICE-N (2022), arXiv:2208.07004, after Nordhaus, RICE (2010); the numbers of the regions
    are of its public code, and the club is that of Pax (Willi et al., 2023), after Nordhaus, Climate Clubs (2015).
    """

    num_regions: int = static(5)
    club: str = static("none")
    club_mitigation: Scalar = 0.3
    club_tariff: Scalar = 0.1
    climate_weight: Scalar = 0.0
    welfare_weight: Scalar = 1.0
    mitigation_price: Scalar = 550.0
    intensity_decline: Scalar = 0.0025
    risk_aversion: Scalar = 1.45
    episode_length: Scalar = 20

    def __post_init__(self) -> None:
        checks.choice("num_regions", self.num_regions, (5, 27))
        checks.choice("club", self.club, ("none", "fixed", "mediated"))
        for name in ("club_mitigation", "club_tariff"):
            checks.number(name, getattr(self, name), 0, 1)
        for name in ("climate_weight", "welfare_weight", "mitigation_price", "intensity_decline"):
            checks.number(name, getattr(self, name), 0)
        checks.number("risk_aversion", self.risk_aversion, 1, brackets="(]")
        checks.whole("episode_length", self.episode_length, 1)

    @property
    def num_agents(self) -> int:  # type: ignore[override]
        return self.num_regions + (self.club == "mediated")

    @property
    def num_choices(self) -> int:
        """Length of a region's action."""
        return 3 + 2 * self.num_regions + (self.club != "none")

    def reset(self, key: jax.Array) -> tuple[Observations, RiceState]:
        n, start = self.num_regions, regions(self.num_regions)
        zeros, technology, capital, labor = jnp.zeros(n), start["technology"], start["capital"], start["labor"]
        state = RiceState(
            heat=jnp.asarray(HEAT, jnp.float32),
            carbon=jnp.asarray(CARBON, jnp.float32),
            labor=jnp.asarray(labor),
            capital=jnp.asarray(capital),
            technology=jnp.asarray(technology),
            intensity=jnp.asarray(start["intensity"]),
            balance=zeros,
            tariffs=jnp.zeros((n, n)),
            output=jnp.asarray(_production(technology, capital, labor)),
            production=jnp.asarray(_production(technology, capital, labor)),
            investment=zeros,
            consumption=zeros,
            damages=jnp.ones(n),
            abatement=zeros,
            revenue=zeros,
            carbon_price=zeros,
            member=zeros,
            club=jnp.array([self.club_mitigation, self.club_tariff], jnp.float32) * (self.club == "fixed"),
            actions=jnp.zeros((n, self.num_choices)),
            time=jnp.zeros((), jnp.int32),
        )
        return self.get_obs(state), state

    def step_env(self, key: jax.Array, state: RiceState, actions: Actions) -> Step[RiceState]:
        n, start = self.num_regions, regions(self.num_regions)
        acts = jnp.stack([jnp.asarray(actions[agent], jnp.float32) for agent in self.agents[:n]]).clip(0, 1)
        savings, mitigation, exports = acts[:, 0], acts[:, 1], acts[:, 2]
        tariffs, wanted = acts[:, 3 : 3 + n], acts[:, 3 + n : 3 + 2 * n]
        past = state.time.astype(jnp.float32)  # steps

        club, member = state.club, jnp.zeros(n)
        if self.club == "mediated":
            club = jnp.asarray(actions[self.agents[n]], jnp.float32).clip(0, 1)
        if self.club != "none":
            member = (acts[:, -1] >= 0.5).astype(jnp.float32)
            mitigation = jnp.where(member > 0, club[0], mitigation)
            least = jnp.where(member > 0, club[1], 0.0)[:, None]
            tariffs = jnp.maximum(tariffs, least) * (1 - member[:, None] * member[None])
        tariffs = tariffs * (1 - jnp.eye(n))

        # Equations 2 to 9 of the paper: cost of mitigation, damages, output.
        price = self.mitigation_price / (1000 * COST_EXPONENT) * 0.999**past
        cost = price * state.intensity
        abatement = jnp.minimum(cost * mitigation**COST_EXPONENT, 1)
        damages = 1 / (1 + DAMAGE * state.heat[0] ** 2)
        production = _production(state.technology, state.capital, state.labor)
        output = damages * (1 - abatement) * production
        investment = savings * output

        owned = state.balance * (1 + INTEREST)
        imports = self._trade(
            owned, wanted * (1 - jnp.eye(n)), jnp.minimum(exports * output, output - investment), output
        )
        arrived, revenue = imports * (1 - state.tariffs), (imports * state.tariffs).sum(1)
        sold = imports.sum(0)
        balance = owned + YEARS * (sold - imports.sum(1))
        own = jnp.maximum(output - investment - sold, 0)
        foreign = (1 - HOME) / (n - 1) * (arrived**SUBSTITUTION).sum(1)
        consumption = (HOME * own**SUBSTITUTION + foreign) ** (1 / SUBSTITUTION)
        people, power = state.labor / 1000, 1 - self.risk_aversion
        utility = people * ((consumption / people + 1) ** power - 1) / power

        exogenous = 0.5 + jnp.minimum(0.5, 0.5 / 20 * past)
        forcing = FORCING * jnp.log2(state.carbon[0] / CARBON_1750) + exogenous
        heat = jnp.asarray(HEAT_FLOWS, jnp.float32) @ state.heat + jnp.array([0.1005, 0.0]) * forcing
        emissions = state.intensity * (1 - mitigation) * production + 2.6 * 0.999**past / n
        carbon = jnp.asarray(CARBON_FLOWS, jnp.float32) @ state.carbon
        carbon += jnp.array([1.36388, 0.0, 0.0]) * emissions.sum()
        growth = np.exp(0.0033) + start["technology_growth"] * jnp.exp(-start["technology_decay"] * YEARS * past)
        intensity = state.intensity * jnp.exp(-self.intensity_decline * 0.9 ** (YEARS * past) * YEARS)
        limit = (1 + start["labor_limit"]) / (1 + state.labor)
        carbon_price = COST_EXPONENT * damages * mitigation ** (COST_EXPONENT - 1) * cost / intensity
        after = RiceState(
            heat=heat,
            carbon=carbon,
            labor=state.labor * limit ** start["labor_growth"],
            capital=0.9**YEARS * state.capital + YEARS * investment,
            technology=state.technology * growth,
            intensity=intensity,
            balance=balance,
            tariffs=tariffs,
            output=output,
            production=production,
            investment=investment,
            consumption=consumption,
            damages=jnp.broadcast_to(damages, (n,)),
            abatement=abatement,
            revenue=revenue,
            carbon_price=carbon_price,
            member=member,
            club=club,
            actions=acts,
            time=state.time + 1,
        )
        rewards, counts = (
            utility,
            {
                "warming": jnp.broadcast_to(heat[0], (n,)),
                "mitigation": mitigation,
                "savings": savings,
                "output": output,
                "consumption": consumption,
                "emissions": emissions,
                "member": member,
            },
        )
        if self.club == "mediated":
            warming, welfare = heat[0] - state.heat[0], utility.sum() / (10 * n)
            rewards = jnp.append(rewards, self.welfare_weight * welfare - self.climate_weight * warming)
            counts = {name: jnp.append(x, heat[0] if name == "warming" else 0.0) for name, x in counts.items()}
        dones, ending = self._ending(jnp.zeros((), bool), after.time >= self.episode_length)
        return self.get_obs(after), after, self._by_agent(rewards), dones, ending | counts

    def _trade(self, owned: jax.Array, wanted: jax.Array, most: jax.Array, output: jax.Array) -> jax.Array:
        """Imports of row i from column j: no more than i's output, less the more it owes, and than j sells, `most`."""
        asked = wanted.sum(1)
        debt = jnp.clip(CREDIT * owned / regions(self.num_regions)["capital"], -1, 0)
        imports = wanted * (output / jnp.maximum(jnp.maximum(asked, output), TINY) * (1 + debt))[:, None]
        asked, most = imports.sum(0), jnp.maximum(most, 0)
        return imports * (most / jnp.maximum(asked, jnp.maximum(most, TINY)))[None]

    def get_obs(self, state: RiceState) -> Observations:
        start = regions(self.num_regions)
        labor, capital = start["labor"], start["capital"]
        output = _production(start["technology"], capital, labor)
        seen = [
            jnp.atleast_1d(state.time / self.episode_length),
            state.heat,
            state.carbon / 1000,
            state.labor / labor,
            state.capital / capital,
            state.output / output,
            state.consumption / output,
            state.investment / output,
            state.balance / capital,
            state.revenue,
            state.carbon_price,
            state.member,
            state.damages,
            state.abatement,
            state.actions.ravel(),
            state.club,
        ]
        shown = jnp.concatenate([part.astype(jnp.float32) for part in seen])
        seats = jnp.eye(self.num_agents, dtype=jnp.float32)
        return self._by_agent([jnp.concatenate([seat, shown]) for seat in seats])

    def observation_space(self, agent: str) -> Box:
        n = self.num_regions
        return Box(-jnp.inf, jnp.inf, (self.num_agents + 6 + 11 * n + n * self.num_choices + 2,))

    def action_space(self, agent: str) -> Box:
        mediates = self.club == "mediated" and agent == self.agents[-1]
        return Box(0.0, 1.0, (2 if mediates else self.num_choices,))

    def render(self, state: Any) -> np.ndarray:
        mitigation = np.where(state.member > 0, state.club[0], state.actions[:, 1])
        entries = [("warming", float(state.heat[0]) / 6, f"{float(state.heat[0]):.2f} K", "#D62728")]
        for i in range(min(self.num_regions, 8)):
            words = f"consumes {float(state.consumption[i]):.3g}" + (", member" if state.member[i] else "")
            entries.append((f"region {i} mitigates", float(mitigation[i]), words, PLAYERS[i % len(PLAYERS)]))
        return bars(f"Rice-N, year {2015 + int(YEARS) * int(state.time)}", entries)


def _production(technology: Any, capital: Any, labor: Any) -> Any:
    """Output before damages and mitigation, equation 5."""
    return technology * capital**CAPITAL_SHARE * (labor / 1000) ** (1 - CAPITAL_SHARE)
