"""A test of a trained shaper for zero-determinant extortion, beside extortioners and beside chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from games import InfinitelyRepeated, MatrixGame
from games.exact.zd import (
    IN_A_ROW,
    MAX_RESIDUAL,
    exact_payoffs,
    fit,
    is_dilemma,
    least_chi,
    longest_extortion,
    random_policies,
    zd_policy,
)
from marl.core.learner import Learner
from marl.experiments.reproduce import figures
from marl.experiments.shaping.agents import Agent
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig, ShapingConfig
from marl.experiments.shaping.evaluation import pool_seeds
from marl.experiments.shaping.figures import draw_polygon
from marl.learners.exact.fixed import logits_of
from marl.shapers.exact_policies import after_a_random_step
from marl.shapers.trial import Trials, play_trial
from meta import RunDirectory
from meta.run_keys import RunBranch
from meta.runs.reports.claims import Claim, Section, number, table
from meta.statistics import mean_and_error, rounded, with_error

CHIS = (1.5, 2.0, 3.0, 5.0, 10.0)  # of the extortioners by theory
TIE = 1e-9  # payoffs that differ by less are the same
ROUNDING = 1e-13  # payoffs of both sides are sums of a few dozen products, each exact to 1e-16

SUSPICIOUS_TIT_FOR_TAT = (0.0, 1.0, 0.0, 1.0, 0.0)
# Final policies of shapers of a naive learner, rounded: they defect, and return to mutual cooperation once in fifty
# rounds with opponents that let themselves be exploited. And the same without the return.
LURE, NO_LURE = (0.02, 1.0, 0.0, 0.02, 0.0), (0.02, 1.0, 0.0, 0.0, 0.0)
BY_HAND = 20  # meta-steps of suspicious tit for tat before them
STFT, EXTORTIONER = "suspicious tit for tat", "zd(chi={:g})"
KEPT, REDRAWN, UNTRAINED = "a random policy that is kept", "a random policy in each meta-step", "untrained shapers"


class Enforced(NamedTuple):
    """The relation of payoffs that a policy enforces on random co-players (own against other's)."""

    own: np.ndarray  # `[N]`
    other: np.ndarray  # `[N]`
    slope: float  # own - P over other - P along the line through (P, P) that is nearest to all of them
    distance: float  # root mean square of the payoffs from that line
    below: float  # share of co-players that get more than the policy: below the diagonal
    above: float  # share that get less


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
    if isinstance(config, SampledShapingConfig):
        raise ValueError(f"agent: got one of {config.environment}; one of a repeated prisoner's dilemma is needed")
    assert isinstance(config, ExactShapingConfig)
    game = config.make_game()
    if config.is_self_play or not (game.discount and is_dilemma(game.payoffs)):
        raise ValueError(
            f"agent: got one of {config.game} with a discount of {config.discount} against {config.opponent}; "
            "one of a repeated prisoner's dilemma is needed"
        )
    if (least := least_chi(game.payoffs, discount=game.discount)) > min(CHIS):
        raise ValueError(
            f"agent: got one of {config.game} with a discount of {config.discount}, at which no extortion factor below "
            f"{least:.2f} can be enforced; one with at most {min(CHIS):g} is needed"
        )


def analyse(agent: Agent, *, seed: int, num_trials: int) -> tuple[dict[str, Any], dict[str, Trials]]:
    """Everything that is reported about a trained shaper, of each of its seeds, and about others in its place.

    Args:
      agent: from its file.
      seed: of the trials, the random policies and the co-players.
      num_trials: fresh trials of each player, all with the same opponents.

    Returns:
      (what is in the report, the trials of each player by its name).
    """
    config = agent.config
    assert isinstance(config, ExactShapingConfig)
    game, co_players = config.make_game(), random_policies(np.random.default_rng(seed))
    played = _play(agent, seed, num_trials)
    players = {name: judge(game.payoffs, trials, discount=game.discount) for name, trials in played.items()}
    found = {
        "num_trials": num_trials,
        "least_chi": least_chi(game.payoffs, discount=game.discount),
        "shaper": pool_seeds([players[name] for name in _shapers(config)]),
        "players": players,
        "steps": _steps(game, _together(played, config)),
        "num_co_players": len(co_players),
        "theory": [theory(game, chi, co_players) for chi in CHIS],
    }
    return found, played


def judge(game: MatrixGame, trials: Trials, *, discount: float) -> dict[str, Any]:
    """Payoffs of a player in the shaper's place, and shares of zero-determinant extortion; errors over trials."""
    own, other, policies = map(np.asarray, trials[:3])
    fits = fit(game, policies, discount=discount)
    (_, _, _, own_floor), (_, _, _, other_floor) = game.seen_by(0)
    return {
        "shaper": mean_and_error(own.mean(1)),
        "opponent": mean_and_error(other.mean(1)),
        "trials": mean_and_error(longest_extortion(game, policies, discount=discount) >= IN_A_ROW),
        "meta_steps": mean_and_error(fits.extortionate.mean(1)),
        # No extortioner has more than P from a co-player who has less: s_X - P = chi (s_Y - P).
        "beyond": mean_and_error(((own > own_floor) & (other < other_floor)).mean(1)),
        "chi": _median(fits.chi[fits.near]),
        "residual": _median(fits.residual),
    }


def _play(agent: Agent, seed: int, num_trials: int) -> dict[str, Trials]:
    """Fresh trials of the shaper of each seed and of the players of the comparison, in float64."""
    config = agent.config
    assert isinstance(config, ExactShapingConfig)
    game, shaper, opponent, length = config.make_game(), config.make_shaper(), config.make_opponent(), config.meta_steps
    play_key, init_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), RunBranch.ANALYSIS))
    keys, generator = jax.random.split(play_key, num_trials), np.random.default_rng([seed, 1])  # not the co-players

    def plays(make: Callable[[Any], Learner]) -> Callable[[Any], Trials]:
        @jax.jit
        @jax.vmap
        def play(key: jax.Array, parameters: Any) -> Trials:
            return play_trial(key, game, make(parameters), opponent, meta_steps=length)._replace(opponents=())

        return lambda parameters: jax.tree.map(lambda x: np.asarray(x, np.float64), play(keys, parameters))

    def sequence(policies: jax.Array) -> Learner:  # `[meta_steps, 5]`, logits
        return after_a_random_step(lambda key, step, obs: (policies[step[0].astype(int)], step + 1, ()), 5, 1)

    networks, sequences, each = plays(shaper.learner), plays(sequence), (num_trials, length, 5)
    parameters = agent.parameters if config.seeds > 1 else jax.tree.map(lambda x: x[None], agent.parameters)
    found = {}
    for i, name in enumerate(_shapers(config)):
        found[name] = networks(
            jax.tree.map(lambda x, i=i: jnp.broadcast_to(x[i], (num_trials, *x[i].shape)), parameters)
        )
    fixed: dict[str, Any] = {STFT: SUSPICIOUS_TIT_FOR_TAT}
    fixed |= {EXTORTIONER.format(chi): zd_policy(game.payoffs, chi, discount=game.discount) for chi in CHIS}
    fixed |= {"always defects": np.zeros(5)}
    for then in (LURE, NO_LURE):
        by_hand = np.where(np.arange(length)[:, None] < BY_HAND, SUSPICIOUS_TIT_FOR_TAT, then)
        fixed[f"{STFT} for {BY_HAND} meta-steps, then {then}"] = by_hand
    fixed |= {KEPT: generator.uniform(size=(num_trials, 1, 5)), REDRAWN: generator.uniform(size=each)}
    for name, p in fixed.items():
        found[name] = sequences(np.broadcast_to(logits_of(p), each))
    found[UNTRAINED] = networks(jax.vmap(shaper.init)(jax.random.split(init_key, num_trials)))
    return found


def _shapers(config: ExactShapingConfig) -> list[str]:
    return [f"the shaper, seed {config.seed + i}" for i in range(config.seeds)]


def _together(played: dict[str, Trials], config: ExactShapingConfig) -> Trials:
    return jax.tree.map(lambda *x: np.concatenate(x), *(played[name] for name in _shapers(config)))


def _steps(game: InfinitelyRepeated, trials: Trials) -> list[dict[str, Any]]:
    """Means over all trials of each meta-step, and medians of chi and residual."""
    own, other, policies = map(np.asarray, trials[:3])
    fits = fit(game.payoffs, policies, discount=game.discount)
    return [
        {"meta_step": i + 1, "policy": policies[:, i].mean(0).tolist()}
        | {"shaper": float(own[:, i].mean()), "opponent": float(other[:, i].mean())}
        | {name: float(getattr(fits, name)[:, i].mean()) for name in ("near", "extortionate")}
        | {"chi": _median(fits.chi[:, i][fits.near[:, i]]), "residual": _median(fits.residual[:, i])}
        for i in range(policies.shape[1])
    ]


def _median(values: np.ndarray) -> float | None:
    return float(np.median(values)) if values.size else None


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


def sections(
    found: dict[str, Any], played: dict[str, Trials], config: ExactShapingConfig, folder: RunDirectory, seed: int
) -> list[Section]:
    """The parts of the report of what `analyse` returns; draws its figures."""
    pictures = _pictures(found, played, config, folder)
    exact = next(one for one in found["theory"] if one["chi"] == 3.0)
    exact_claims = [
        Claim("chi = 3: slope, less 3", exact["slope"] - 3, None, most=ROUNDING, least=-ROUNDING),
        Claim("chi = 3: largest miss of a co-player", exact["largest_miss"], None, most=ROUNDING),
    ]
    over = f"{config.seeds} trainings" if config.seeds > 1 else "trials"
    criterion = (
        "A policy is called extortionate if the zero-determinant strategy through (P, P) that is nearest to it, by "
        f"least squares over CC, CD, DC and DD, has a residual of at most {MAX_RESIDUAL:g} and an extortion factor chi "
        f"of at least {found['least_chi']:.3f}, the least that any strategy enforces in this game. A trial is called "
        f"zero-determinant extortion where its own policies are extortionate in {IN_A_ROW} meta-steps in a row. "
        "Suspicious tit for tat defects first and then repeats what the other did. Random policies and untrained "
        "shapers show what passes by chance."
    )
    intro = (
        f"Shapers of {config.game} (discount {config.discount}) and others in their place against {config.opponent}, "
        f"{found['num_trials']:,} fresh trials each, with the same opponents: average payoffs per round, and the share "
        "of trials and of meta-steps that are extortionate. Chi is the median over policies with a residual of at most "
        f"{MAX_RESIDUAL:g} on a line that rises, the residual that over all policies. Beyond are meta-steps in which "
        "the player gets more than P and the opponent less, which no extortioner brings about. Standard errors are "
        f"over trials, in the claims over {over}."
    )
    shaper, players, first, last = found["shaper"], found["players"], found["steps"][0], found["steps"][-1]
    best = _best_extortioner(players)
    extortion = (
        f"{shaper['trials']['mean']:.1%} of the shaper's trials are zero-determinant extortion, and "
        f"{players[KEPT]['trials']['mean']:.1%} of those of a random policy that is kept."
    )
    payoffs = (
        f"The shaper gets {rounded(shaper['shaper']['mean'])} per round and its opponent "
        f"{rounded(shaper['opponent']['mean'])}; the best extortioner, {best}, gets "
        f"{rounded(players[best]['shaper']['mean'])}, and its opponent {rounded(players[best]['opponent']['mean'])}."
    )
    over_a_trial = (
        f"From the first meta-step to the last, the shaper's payoff goes from {first['shaper']:.2f} to "
        f"{last['shaper']:.2f}, and the opponent's from {first['opponent']:.2f} to {last['opponent']:.2f}."
    )
    return [
        Section("Is it zero-determinant extortion?", criterion, _claims(found), (), pictures, extortion),
        Section("Payoffs", intro, (), [_players_table(found["players"])], answer=payoffs),
        Section(
            "The shaper over a trial",
            "Means over the trials of all seeds; chi is the median of those that are near a zero-determinant strategy.",
            (),
            [_steps_table(found["steps"])],
            [_scatter(found, played, config, folder, seed)],
            over_a_trial,
        ),
        Section(
            "Extortioners by theory",
            "Payoffs of random co-players against strategies by the formula of Hilbe, Traulsen and Sigmund (2015), "
            "which enforce s_X - P = chi (s_Y - P) on all. Below the diagonal are co-players that get more than the "
            "strategy.",
            exact_claims,
            [_theory_table(found["theory"])],
            answer=f"Payoffs of {found['num_co_players']:,} random co-players of an extortioner with chi = 3 miss its "
            f"line by at most {exact['largest_miss']:.1e}.",
        ),
    ]


def _best_extortioner(players: dict[str, dict[str, Any]]) -> str:
    return max((EXTORTIONER.format(chi) for chi in CHIS), key=lambda name: players[name]["shaper"]["mean"])


def _claims(found: dict[str, Any]) -> list[Claim]:
    shaper, players = found["shaper"], found["players"]
    best = _best_extortioner(players)

    def claim(words: str, name: str, **target: Any) -> Claim:
        return Claim(words, shaper[name]["mean"], shaper[name]["standard_error"])._replace(**target)

    chance = "; ".join(f"{name} {with_error(players[name]['trials'], 4)}" for name in (KEPT, REDRAWN, UNTRAINED))
    return [
        claim("share of trials that are extortion", "trials", most=0.5, comment=f"at most half; by chance {chance}"),
        claim("share of meta-steps beyond what extortion brings about", "beyond", least=0.5, comment="at least half"),
        claim("the shaper's payoff", "shaper", least=players[best]["shaper"]["mean"], comment=f"that of {best}"),
    ]


def _pictures(
    found: dict[str, Any], played: dict[str, Trials], config: ExactShapingConfig, folder: RunDirectory
) -> list[tuple[str, str]]:
    game, together = config.make_game(), _together(played, config)
    shown = [STFT, *(EXTORTIONER.format(chi) for chi in (2.0, 5.0)), "always defects", KEPT, UNTRAINED]
    beside = {name: tuple(found["players"][name][side]["mean"] for side in ("shaper", "opponent")) for name in shown}
    payoffs = together.shaper_payoffs, together.opponent_payoffs
    polygon = draw_polygon(folder.figures, game, *payoffs, found["least_chi"], beside)  # type: ignore[arg-type]

    def longest(name: str) -> np.ndarray:
        policies = np.asarray(played[name].shaper_policies)
        return longest_extortion(game.payoffs, policies, discount=game.discount)

    others = {name: longest(name) for name in (STFT, KEPT, REDRAWN, UNTRAINED)}
    shapers = [longest(name) for name in _shapers(config)]
    verdict = figures.draw_verdict(folder.figures, shapers, others, found["steps"])
    return [
        ("What the shaper and others in its place get", _inside(polygon)),
        ("How long trials are extortion, and when the shaper is", _inside(verdict)),
    ]


def _scatter(
    found: dict[str, Any], played: dict[str, Trials], config: ExactShapingConfig, folder: RunDirectory, seed: int
) -> tuple[str, str]:
    """Single policies against random co-players: of the first trial of the first seed, and of others."""
    game, (first, *_) = config.make_game(), _shapers(config)
    co_players = random_policies(np.random.default_rng(seed), found["num_co_players"])
    own = np.asarray(played[first].shaper_policies[0])
    policies: dict[str, Any] = {
        f"the shaper, meta-step {i + 1}": own[i] for i in sorted({min(1, len(own) - 1), len(own) - 1})
    }
    policies |= {STFT: SUSPICIOUS_TIT_FOR_TAT, KEPT: played[KEPT].shaper_policies[0, 0]}
    policies |= {EXTORTIONER.format(3): zd_policy(game.payoffs, 3.0, discount=game.discount)}
    panels = [
        {"title": title, "played": enforced(game.payoffs, np.asarray(policy), co_players, discount=game.discount)}
        | {"fit": fit(game.payoffs, np.asarray(policy), discount=game.discount)}
        for title, policy in policies.items()
    ]
    return "Single policies against random co-players", _inside(figures.draw_scatter(folder.figures, game, panels))


def _inside(path: Path) -> str:
    return f"figures/{path.name}"


def _players_table(players: dict[str, dict[str, Any]]) -> str:
    columns = ["", "payoff", "s.e.", "opponent's", "s.e.", "trials that are extortion", "s.e.", "meta-steps", "chi"]
    rows = []
    for name, one in players.items():
        cells = [number(one[key][x]) for key in ("shaper", "opponent") for x in ("mean", "standard_error")]
        cells += [*_percent(one["trials"]), _percent(one["meta_steps"])[0]]
        cells += [number(one["chi"], 2), number(one["residual"]), _percent(one["beyond"])[0]]
        rows.append([name, *cells])
    return table([*columns, "residual", "beyond"], rows)


def _percent(share: dict[str, float]) -> list[str]:
    return [f"{share[name]:.1%}" for name in ("mean", "standard_error")]


def _steps_table(steps: list[dict[str, Any]]) -> str:
    shown = [step for step in steps if step["meta_step"] <= 10 or step["meta_step"] % 10 == 0]
    columns = ["meta-step", "start", "CC", "CD", "DC", "DD", "payoff", "opponent's", "near a strategy", "extortionate"]
    rows = []
    for one in shown:
        cells = [*(f"{p:.2f}" for p in one["policy"]), number(one["shaper"], 2), number(one["opponent"], 2)]
        cells += [f"{one['near']:.1%}", f"{one['extortionate']:.1%}", number(one["chi"], 2), number(one["residual"])]
        rows.append([str(one["meta_step"]), *cells])
    return table([*columns, "chi", "residual"], rows)


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
