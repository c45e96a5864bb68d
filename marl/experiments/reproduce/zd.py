"""Whether a trained shaper plays zero-determinant extortion, meta-step by meta-step, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from games import InfinitelyRepeated, MatrixGame
from games.exact.zd import CO_PLAYERS, MAX_RESIDUAL, exact_payoffs, fit, is_dilemma, random_policies, zd_policy
from marl.experiments.reproduce import figures
from marl.experiments.shaping.agents import Agent
from marl.experiments.shaping.config import ShapingConfig
from marl.shapers.trial import play_trials
from meta import RunDirectory
from meta.runs.claims import Claim, Section, number, table
from meta.runs.keys import ANALYSIS

CHIS = (1.5, 2.0, 3.0, 5.0, 10.0)  # of the extortioners by theory
TIE = 1e-9  # payoffs that differ by less are the same
ROUNDING = 1e-13  # payoffs of both sides are sums of a few dozen products, each exact to 1e-16


class Enforced(NamedTuple):
    """What a policy holds random co-players to, as seen in their payoffs (own against other's)."""

    own: np.ndarray  # `[N]`
    other: np.ndarray  # `[N]`
    slope: float  # own - P over other - P along the line through (P, P) that is nearest to all of them
    distance: float  # root mean square of the payoffs from that line
    below: float  # share of co-players who get more than the policy: below the diagonal
    above: float  # share who get less


def enforced(game: MatrixGame, probabilities: np.ndarray, co_players: np.ndarray, *, discount: float) -> Enforced:
    """Plays a policy `[5]` against co-players `[N, 5]` and measures what it enforces."""
    own, other = exact_payoffs(game, probabilities, co_players, discount=discount)
    (_, _, _, own_floor), (_, _, _, other_floor) = game.seen_by(0)
    points = np.stack([other - other_floor, own - own_floor], axis=1)
    # The first principal direction: both payoffs scatter, and what is near the vertical has a line as well.
    _, (_, second), ((x, y), _) = np.linalg.svd(points, full_matrices=False)
    slope, distance = float(y / x) if x else float("inf"), float(second / len(points) ** 0.5)
    return Enforced(own, other, slope, distance, float(np.mean(own < other - TIE)), float(np.mean(own > other + TIE)))


def check(config: ShapingConfig) -> None:
    """Raises ValueError where extortion is not defined, and for pairs."""
    game = config.make_game()
    if config.environment:
        raise ValueError(f"agent: got one of {config.environment}; one of a repeated prisoner's dilemma is needed")
    if config.is_self_play or not (game.discount and is_dilemma(game.payoffs)):
        raise ValueError(
            f"agent: got one of {config.game} with a discount of {config.discount} against {config.opponent}; "
            "one of a repeated prisoner's dilemma is needed"
        )


def analyse(agent: Agent, *, seed: int, num_trials: int) -> dict[str, Any]:
    """Everything that is reported about a trained shaper; of several seeds in a file, about the first.

    Args:
      agent: from its file.
      seed: of the trials and of the co-players.
      num_trials: fresh trials, over which its policies are averaged at each meta-step.
    """
    config = agent.config
    assert config is not None
    game, parameters = config.make_game(), agent.parameters
    if config.seeds > 1:
        parameters = jax.tree.map(lambda x: x[0], parameters)

    @jax.jit
    def play(key: jax.Array, parameters: Any) -> Any:
        options = {"meta_steps": config.meta_steps, "num_trials": num_trials}
        return play_trials(key, game, config.make_shaper(), parameters, config.make_opponent(), **options)

    trials = play(jax.random.fold_in(jax.random.key(seed), ANALYSIS), parameters)
    every = np.asarray(trials.shaper_policies, np.float64)  # `[trials, meta_steps, 5]`
    policies, co_players = every.mean(0), random_policies(np.random.default_rng(seed))
    fits = [fit(game.payoffs, policy, discount=game.discount) for policy in policies]
    nearest = min(range(len(fits)), key=lambda i: (fits[i].phi <= 0, fits[i].residual))
    moments = {"start": 0, "middle": len(policies) // 2, "end": len(policies) - 1, "nearest": nearest}
    steps = []
    for i, policy in enumerate(policies):
        found = enforced(game.payoffs, policy, co_players, discount=game.discount)
        residuals = [fit(game.payoffs, one[i], discount=game.discount).residual for one in every[:256]]
        steps.append(
            {"meta_step": i + 1, "policy": policy.tolist(), **fits[i].verdict}
            | {name: getattr(found, name) for name in ("slope", "distance", "below", "above")}
            | {"residual_quartiles": np.quantile(residuals, [0.25, 0.75]).tolist()}
        )
    own, other = (np.asarray(x, np.float64).mean() for x in (trials.shaper_payoffs, trials.opponent_payoffs))
    return {
        "shaper_return": float(own),
        "opponent_return": float(other),
        "num_trials": num_trials,
        "num_co_players": len(co_players),
        "moments": {name: i + 1 for name, i in moments.items()},
        "steps": steps,
        "theory": [theory(game, chi, co_players) for chi in CHIS],
    }


def theory(game: InfinitelyRepeated, chi: float, co_players: np.ndarray) -> dict[str, Any]:
    """The extortioner with a given chi (phi in the middle of what is feasible), held against the same co-players."""
    policy = zd_policy(game.payoffs, chi, discount=game.discount)
    found = enforced(game.payoffs, policy, co_players, discount=game.discount)
    (_, _, _, own_floor), (_, _, _, other_floor) = game.payoffs.seen_by(0)
    misses = np.abs((found.own - own_floor) - chi * (found.other - other_floor))
    return {
        "chi": chi,
        "phi": fit(game.payoffs, policy, discount=game.discount).phi,
        "policy": policy.tolist(),
        "largest_miss": float(misses.max()),
        **{name: getattr(found, name) for name in ("slope", "distance", "below", "above")},
    }


def sections(found: dict[str, Any], config: ShapingConfig, folder: RunDirectory, seed: int) -> list[Section]:
    """The parts of the report; draws its figures."""
    game, steps = config.make_game(), found["steps"]
    co_players = random_policies(np.random.default_rng(seed), found["num_co_players"])
    panels = []
    for step in dict.fromkeys(found["moments"].values()):
        at, words = steps[step - 1], ", ".join(name for name, i in found["moments"].items() if i == step)
        played = enforced(game.payoffs, np.asarray(at["policy"]), co_players, discount=game.discount)
        panels.append({"title": f"meta-step {step} ({words})", "chi": at["chi"], "played": played} | at)
    three = next(one for one in found["theory"] if one["chi"] == 3.0)
    played = enforced(game.payoffs, np.asarray(three["policy"]), co_players, discount=game.discount)
    panels.append({"title": "an extortioner by theory", "played": played, "residual": 0.0} | three)
    scatter = figures.draw_scatter(folder.figures, game, panels)
    slopes = figures.draw_enforced_slopes(folder.figures, steps, MAX_RESIDUAL)
    nearest = steps[found["moments"]["nearest"] - 1]
    learned = [
        Claim(f"residual of the nearest policy, meta-step {nearest['meta_step']}", nearest["residual"], None)._replace(
            most=MAX_RESIDUAL, comment="root mean square over CC, CD, DC, DD, in probability"
        ),
        Claim("its extortion factor chi", nearest["chi"], None)._replace(
            least=nearest["least_chi"] or np.inf, comment="the least that any strategy enforces at this discount"
        ),
        Claim("its scale phi", nearest["phi"], None, least=0.0),
        Claim(
            f"share of {CO_PLAYERS:,} random co-players above the diagonal",
            nearest["above"],
            None,
            comment="they get less than the shaper; no target",
        ),
    ]
    exact = [
        Claim("chi = 3: slope, less 3", three["slope"] - 3, None, most=ROUNDING, least=-ROUNDING),
        Claim("chi = 3: largest miss of a co-player", three["largest_miss"], None, most=ROUNDING),
    ]
    intro = (
        f"A shaper of {config.game} (discount {config.discount}) against {config.opponent}: "
        f"{found['shaper_return']:.3f} a round in {found['num_trials']:,} fresh trials, its opponent "
        f"{found['opponent_return']:.3f}. Its policy at each meta-step is the mean over the trials. The "
        "zero-determinant strategy through (P, P) that is nearest to it, by least squares, has the extortion factor "
        "chi and the scale phi; what is left over is the residual. A chi is given where the residual is at most "
        f"{MAX_RESIDUAL:g}, and it is extortion where chi is at least {steps[0]['least_chi'] or np.inf:.3f}, the least "
        "that any strategy enforces in this game. Below the diagonal are co-players who get more than the policy, "
        "above it those who get less."
    )
    return [
        Section(
            "The learned policies",
            intro,
            learned,
            [_steps_table(found)],
            [("Payoffs against random co-players", _inside(scatter)), ("The enforced slope", _inside(slopes))],
        ),
        Section(
            "Extortioners by theory",
            "The same measurements of strategies by the formula of Hilbe, Traulsen and Sigmund (2015), which enforce "
            "s_X - P = chi (s_Y - P) on everybody.",
            exact,
            [_theory_table(found["theory"])],
        ),
    ]


def _inside(path: Path) -> str:
    return f"figures/{path.name}"


def _steps_table(found: dict[str, Any]) -> str:
    steps, moments = found["steps"], found["moments"]
    shown = sorted({*moments.values(), *range(1, 6), *range(10, len(steps) + 1, 10)} & set(range(1, len(steps) + 1)))
    columns = ["meta-step", "start", "CC", "CD", "DC", "DD", "chi", "phi", "residual", "extortionate"]
    columns += ["slope through (P, P)", "distance from it", "below the diagonal", "above"]
    rows = []
    for i in shown:
        at, names = steps[i - 1], ", ".join(name for name, step in moments.items() if step == i)
        cells = [*(f"{p:.2f}" for p in at["policy"]), number(at["chi"], 2), number(at["phi"]), number(at["residual"])]
        cells += ["yes" if at["extortionate"] else "no", number(at["slope"], 2), number(at["distance"])]
        rows.append([f"{i}{f' ({names})' if names else ''}", *cells, f"{at['below']:.1%}", f"{at['above']:.1%}"])
    return table(columns, rows)


def _theory_table(found: list[dict[str, Any]]) -> str:
    columns = ["chi", "phi", "slope through (P, P)", "slope - chi", "largest miss", "below the diagonal", "above"]
    rows = [
        (
            f"{one['chi']:g} {number(one['phi'])} {one['slope']:.6f} {one['slope'] - one['chi']:.1e} "
            f"{one['largest_miss']:.1e} {one['below']:.1%} {one['above']:.1%}"
        ).split()
        for one in found
    ]
    return table(columns, rows)
