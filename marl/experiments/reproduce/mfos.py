"""The matrix-game experiments of Lu et al. (2022): players, trainings, and claims about the results."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import configs
from games.exact.zd import IN_A_ROW, MAX_RESIDUAL
from marl.experiments import bound
from marl.experiments.crossplay.config import CrossplayConfig
from marl.experiments.crossplay.experiment import line_up, play_table
from marl.experiments.reproduce import figures
from marl.experiments.shaping.config import ExactShapingConfig
from meta import RunDirectory
from meta.atomic_files import write_whole
from meta.runs.jobs import open_run
from meta.runs.reports.claims import STANDARD_ERRORS, Claim, Section, difference, number, summary, table
from meta.statistics import or_nan, rounded

PRESETS = {"ipd": "prisoners_dilemma", "imp": "matching_pennies", "chicken": "chicken"}
LEARNERS = ("naive", "lola", "mmaml")
SELF_PLAY = {"self-play": "self_play", "self-play-without-annealing": "self_play(annealing=0)"}
LONGER, LONGER_SEEDS = 4, 5  # times as many generations, and how many runs

# Row's and column's average payoff per round in the prisoner's dilemma, by the public implementation of the paper
# over so many pairs. Its M-MAML starts from ten stored initialisations, between which payoffs have this deviation.
PUBLIC_PAIRS = 4096
PUBLIC_SPREAD = 0.15  # 0.1 to 0.2
PUBLIC = {
    ("naive", "naive"): (-1.983, -1.983),
    ("naive", "lola"): (-1.516, -1.299),
    ("naive", "mmaml"): (-1.278, -1.253),
    ("lola", "naive"): (-1.309, -1.527),
    ("lola", "lola"): (-1.090, -1.092),
    ("lola", "mmaml"): (-1.040, -1.150),
    ("mmaml", "naive"): (-1.252, -1.276),
    ("mmaml", "lola"): (-1.152, -1.041),
    ("mmaml", "mmaml"): (-1.175, -1.174),
}
PROTOTYPE = {"ipd-naive": -0.40, "ipd-mmaml": -0.41}  # of the same evolution, one run each
TARGETS = {"ipd-naive": -0.42, "ipd-mmaml": -0.45, "ipd-lola": -0.70, "imp-naive": 0.75, "chicken-naive": 0.95}
BELOW_LONGER = 0.03  # how far below the best of the longer runs the default ones may be
SELF_PLAY_TARGET = -1.10

Parts = dict[str, ExactShapingConfig]
Tables = dict[str, list[dict[str, Any]]]  # cells of the head-to-head tables, by preset


def make_configs(*, seeds: int, seed: int, ppo: bool, fast: bool) -> Parts:
    """Every shaper that is trained, by its name, in the order in which it is."""
    found = {}
    for preset in ("ipd",) if fast else PRESETS:
        for opponent in LEARNERS[:1] if fast else LEARNERS:
            found[f"{preset}-{opponent}"] = _config(preset, fast, opponent=opponent, seeds=seeds, seed=seed)
    if fast:
        found["chicken-naive"] = _config("chicken", fast, opponent="naive", seeds=seeds, seed=seed)
    for name, opponent in list(SELF_PLAY.items())[: 1 if fast else None]:
        found[f"ipd-{name}"] = _config("ipd", fast, opponent=opponent, seeds=seeds, seed=seed)
    if not fast:
        # Other seeds than those that they are compared with.
        longer = _config("ipd", fast, opponent="naive", seeds=LONGER_SEEDS, seed=seed + 1000)
        evolution = dataclasses.replace(longer.evolution, generations=LONGER * longer.evolution.generations)
        found["ipd-naive-longer"] = dataclasses.replace(longer, evolution=evolution)
    for opponent in (LEARNERS[:1] if fast else LEARNERS) if ppo else ():
        found[f"ipd-{opponent}-ppo"] = _config("ipd", fast, opponent=opponent, seeds=1, seed=seed, meta_learner="ppo")
    return found


def _config(preset: str, fast: bool, **changes: Any) -> ExactShapingConfig:
    config = dataclasses.replace(configs.load(ExactShapingConfig, "mfos", preset), **changes)
    return config.small() if fast else config


def head_to_head(folder: Path, preset: str, *, seed: int, fast: bool) -> list[dict[str, Any]]:
    """Plays the learners against each other, or finds what they played before: the cells of the table."""
    path, silent = folder / "head_to_head" / preset, Console(quiet=True)
    config = configs.load(CrossplayConfig, "crossplay", preset)
    config = dataclasses.replace(config, agents=",".join(LEARNERS[::2] if fast else LEARNERS), seed=seed)
    config = dataclasses.replace(config, evaluation_trials=32, meta_steps=5) if fast else config
    return play_table(line_up(config), open_run(path, config, silent), silent)


def games_head_to_head(fast: bool) -> list[str]:
    """The games that are played, as presets."""
    return ["ipd"] if fast else list(PRESETS)


def fraction(ours: float, error: float, known: bound.KnownBound) -> tuple[float | None, float | None]:
    """Our payoff on the scale from naive play (0) to the white-box bound (1), and its standard error.

        f = (ours - naive) / (bound - naive),    error^2 = (error_ours^2 + (f error_bound)^2) / (bound - naive)^2

    Nothing where `KnownBound.way` has nothing.
    """
    found, bound_error = known.way(ours), known.bound_standard_error
    if found is None:
        return None, None
    error = math.hypot(error, found * (bound_error if math.isfinite(bound_error) else 0.0))
    return found, error / (known.bound - known.naive_return)


def sections(run: RunDirectory, tables: Tables, parts: Parts, results: dict[str, Any]) -> list[Section]:
    """The parts of the report; draws and copies its figures.

    Args:
      run: where to.
      tables: the cells of every game's head-to-head table, by preset.
      parts: what was trained, by its name.
      results: their summaries, by name.
    """
    found = [_head_to_head_section(run, tables)]
    if "imp" in tables:
        found.append(_antisymmetry_section(tables["imp"]))
    found.append(_shapers_section(run, tables, parts, results))
    found += [_self_play_section(run, parts, results), _extortion_section(run, parts, results)]
    found += [_ppo_section(parts, results)] if any(config.meta_learner == "ppo" for config in parts.values()) else []
    return [*found, _settings_section(parts, results)]


def head_to_head_claims(cells: Sequence[dict[str, Any]]) -> list[Claim]:
    """Both players' payoffs of every pair in the prisoner's dilemma against those of the public implementation.

    The standard error of a reference is what the deviation between our own pairs gives over as many as it was of. With
    M-MAML it is the deviation between the public initialisations, of which ours is another.
    """
    claims, own = [], []
    for cell in cells:
        pair = cell["row"], cell["column"]
        for side, reference in zip(("row", "column"), PUBLIC[pair], strict=True):
            other_beginning = "mmaml" in pair
            comment = "M-MAML starts from our own initialisations" if other_beginning else ""
            name = f"{pair[0]} against {pair[1]}, {side}'s payoff"
            ours, error = cell[f"{side}_return"], cell[f"{side}_standard_error"]
            of_pairs = (error or 0.0) * (cell["num_trials"] / PUBLIC_PAIRS) ** 0.5
            reference_error = PUBLIC_SPREAD if other_beginning else of_pairs
            claims.append(Claim(name, ours, error, reference, reference_error, comment=comment))
            if pair[0] == "mmaml" and side == "row":
                words = f"M-MAML's initialisation against {pair[1]}"
                own.append(Claim(words, ours, error, reference, reference_error, least=reference))
    return claims + own


def antisymmetry_claims(cells: Sequence[dict[str, Any]]) -> list[Claim]:
    """In a zero-sum game that looks alike from both seats, A's payoff as row against B is minus B's against A."""
    by_pair = {(cell["row"], cell["column"]): (cell["row_return"], cell["row_standard_error"]) for cell in cells}
    claims = []
    for (row, column), (ours, error) in by_pair.items():
        other, other_error = by_pair[column, row]
        if row == column:
            claims.append(Claim(f"{row} against itself", ours, error, 0.0))
        elif row < column:
            minus = None if other is None else -other
            claims.append(Claim(f"{row} against {column}: minus the reverse", ours, error, minus, other_error or 0.0))
    return claims


def _head_to_head_section(run: RunDirectory, tables: Tables) -> Section:
    pictures, written = [], []
    for preset, cells in tables.items():
        path = run.path / "head_to_head" / preset
        steps = json.loads((path / "crossplay.json").read_text(encoding="utf-8"))["config"]["meta_steps"]
        picture = run.figures / f"head_to_head_{preset}.png"
        write_whole(picture, (path / "figures" / "crossplay.png").read_bytes())
        pictures.append((f"head to head, {PRESETS[preset]}", f"figures/{picture.name}"))
        names = list(dict.fromkeys(cell["row"] for cell in cells))
        rows = [
            [f"**{name}**"]
            + [
                f"{_pair(cell['row_return'], cell['row_standard_error'])} / {number(cell['column_return'])}"
                for cell in cells
                if cell["row"] == name
            ]
            for name in names
        ]
        columns = [f"{PRESETS[preset].replace('_', ' ')}: row / column", *names]
        written.append(table(columns, rows))
    text = (
        f"Average payoff per round over {steps} steps of simultaneous learning, against the public implementation of "
        f"the paper ({PUBLIC_PAIRS:,} pairs each), which publishes no errors. The standard error of a reference is "
        "computed from the deviation between our own pairs. M-MAML's initial parameters are the result of a "
        "training: ours followed gradients that are normalised for each opponent, the public ones did not. Payoffs "
        "differ between the ten public ones by a standard deviation of 0.1 to 0.2. Rows with M-MAML take "
        f"{PUBLIC_SPREAD:g} as the error of the reference, so they can hardly fail. The last rows claim separately "
        "that ours gain more; they are of one training of ours."
    )
    answer = f"Against their kind, per round of the prisoner's dilemma: {_against_their_kind(tables['ipd'])}."
    return Section("Head to head", text, head_to_head_claims(tables["ipd"]), written, pictures, answer)


def _against_their_kind(cells: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{cell['row']} {rounded(cell['row_return'], 3)} (public code {PUBLIC[cell['row'], cell['row']][0]:.3f})"
        for cell in cells
        if cell["row"] == cell["column"]
    )


def _antisymmetry_section(cells: Sequence[dict[str, Any]]) -> Section:
    text = (
        "The game is zero-sum and the same from both seats, up to the name of an action. Errors are between pairs. "
        "They leave out that M-MAML is another learner in each seat: its ten initialisations in the library were "
        "trained separately. Between these it gets 0.019 ± 0.020 against itself, 0.028 ± 0.012 as row and "
        "0.010 ± 0.005 as column against naive learners, so its claims can fail for that reason alone."
    )
    claims = antisymmetry_claims(cells)
    most = max((abs(apart) for claim in claims if (apart := difference(claim)) is not None), default=math.nan)
    passed, total = summary(claims)
    answer = (
        f"{passed} of {total} pairs are antisymmetric to within {STANDARD_ERRORS:g} standard errors; the largest "
        f"departure is {rounded(most, 1)}."
    )
    return Section("Matching pennies is antisymmetric", text, claims, answer=answer)


def _evolved(parts: Parts) -> Parts:
    return {
        name: config for name, config in parts.items() if config.meta_learner == "evolution" and not config.is_self_play
    }


def _shapers_section(run: RunDirectory, tables: Tables, parts: Parts, results: dict[str, Any]) -> Section:
    claims, rows, ways, answers = [], [], [], []
    drawn: dict[str, list[dict[str, Any]]] = {}
    for part, config in _evolved(parts).items():
        result = results[part]
        if part.endswith("-longer"):
            continue
        ours, error = result["shaper_return"], result["shaper_standard_error"]
        name = f"{config.game.replace('_', ' ')} against {config.opponent}"
        claims.append(Claim(name, ours, error, PROTOTYPE.get(part), least=TARGETS.get(part)))
        known, naive = (
            bound.known_bound(config.make_game(), config.opponent, config.meta_steps),
            _naive_return(tables, part, config),
        )
        if config.game == "prisoners_dilemma":
            beside = known.naive_return if known else naive
            answers.append(f"{rounded(ours)} against {config.opponent} (a naive learner {rounded(beside)})")
        each = _returns(result, "shaper")
        rows.append([name, _pair(ours, error), number(result["opponent_return"])])
        rows[-1].append(f"{number(min(each))} to {number(max(each))}")
        ways.append([name, number(known.naive_return if known else naive), "", "", ""])
        if known:
            way, way_error = fraction(ours, error, known)
            share = "" if way is None or way_error is None else f"{way:.1%} ± {way_error:.1%}"
            ways[-1][2:] = [_pair(known.bound, known.bound_standard_error), number(known.gain), share]
        drawn.setdefault(config.game, []).append(
            {"opponent": config.opponent, "shaper": _returns(result, "shaper"), "shaped": _returns(result, "opponent")}
            | {"naive": known.naive_return if known else naive, "bound": known and known.bound}
        )
    if longer := results.get("ipd-naive-longer"):
        best = max(longer["runs"], key=lambda one: -math.inf if one["shaper_return"] is None else one["shaper_return"])
        result, value = results["ipd-naive"], or_nan(best["shaper_return"])
        reference = f"the best of {LONGER_SEEDS} runs of {LONGER} times the generations"
        words = f"prisoners dilemma against naive, the default; reference: {reference}"
        claims.append(
            Claim(words, result["shaper_return"], result["shaper_standard_error"], value)._replace(
                reference_error=best["shaper_standard_error"], least=value - BELOW_LONGER
            )
        )
    shown = [
        table(["", "shaper", "opponent", "seeds from - to"], rows),
        table(["", "naive instead", "bound", "gain", "of the way"], ways),
    ]
    figure = figures.draw_shapers(run.figures, drawn)
    pictures = [("Shapers between naive play and the white-box bound", f"figures/{figure.name}")]
    several = min(config.seeds for config in _evolved(parts).values()) > 1
    text = (
        f"Average payoff per round over the opponent's learning; standard errors are "
        f"{'between seeds' if several else 'over fresh trials'}. References are single runs of a prototype of the same "
        "evolution, without an error, and the best of the longer runs. Targets were set by hand and are not the "
        "paper's. The way leads from a naive learner's payoff in the shaper's place (0 %) to the white-box bound "
        "(100 %), an estimate from below by ascent through the opponent's learning (`python -m marl.bound`). Gain is "
        "the contribution of the second half of the ascent's starts. Cells are empty without a known bound; the way "
        "is empty if the bound has not converged or the shaper exceeds it."
    )
    answer = f"Shapers of the prisoner's dilemma get {', '.join(answers)} per round."
    return Section("Shapers", text, claims, shown, pictures, answer)


def _pair(value: float | None, error: float | None) -> str:
    return f"{number(value)} ± {number(error)}"


def _naive_return(tables: Tables, name: str, config: ExactShapingConfig) -> float | None:
    """The payoff of a naive learner in the shaper's place, from the head-to-head table; None if it was not played."""
    cells = tables.get(name.split("-")[0], [])
    played = [cell for cell in cells if (cell["row"], cell["column"]) == ("naive", config.opponent)]
    return played[0]["row_return"] if played else None


def _returns(result: dict[str, Any], side: str) -> list[float]:
    return [or_nan(one[f"{side}_return"]) for one in result["runs"]]


def _self_play_section(run: RunDirectory, parts: Parts, results: dict[str, Any]) -> Section:
    claims, pictures, answers = [], [], []
    for part, config in parts.items():
        if not config.is_self_play:
            continue
        result, annealed = results[part], bool(config.annealing)
        for side, name in (("shaper", "row"), ("opponent", "column")):
            words = f"{'with' if annealed else 'without'} annealing, {name} shaper"
            claim = Claim(words, result[f"{side}_return"], result[f"{side}_standard_error"])
            claims.append(claim._replace(least=SELF_PLAY_TARGET if annealed else None))
        both = " and ".join(rounded(result[f"{side}_return"]) for side in ("shaper", "opponent"))
        answers.append(f"{both} {'with' if annealed else 'without'} annealing")
        pictures.append(_picture(run, part, "learning_curve", "payoffs over the generations"))
    text = (
        "Two shapers trained together in the prisoner's dilemma. With annealing they play naive learners at first, as "
        "in the paper, and each other more and more. Both rows of a pair describe the same runs."
    )
    answer = f"Two shapers trained together get {', and '.join(answers)} (mutual cooperation -1, mutual defection -2)."
    return Section("Meta-self-play", text, claims, (), pictures, answer)


def _extortion_section(run: RunDirectory, parts: Parts, results: dict[str, Any]) -> Section:
    rows, pictures, extorting, kept = [], [], [], []
    for part, config in _evolved(parts).items():
        if config.game != "prisoners_dilemma" or part.endswith("-longer"):
            continue
        for one in results[part]["runs"]:
            zd = one["zd"]
            extorting.append(zd["trials"]["mean"])
            kept.append(zd["chance"]["kept"]["mean"])
            shares = zd["trials"], zd["chance"]["kept"], zd["chance"]["redrawn"], zd["meta_steps"]
            cells = [f"{share['mean']:.1%} ± {share['standard_error']:.1%}" for share in shares]
            rows.append([f"against {config.opponent}, seed {one['seed']}", *cells])
        pictures += [
            _picture(run, part, "payoff_polygon", "payoffs over a trial, among all that two players can get"),
            _picture(run, part, "policy", "the policy over a trial"),
            _picture(run, part, "trial_payoffs", "payoffs over a trial"),
        ]
    columns = ["", "trials", "random policy, kept", "random, in each meta-step", "meta-steps"]
    text = (
        "The share of trials whose own policies are extortionate in "
        f"{IN_A_ROW} meta-steps in a row: near a zero-determinant strategy through (P, P), with a residual of at most "
        f"{MAX_RESIDUAL:g} and a chi of at least the least feasible one. Beside it are the rates of random policies "
        "and the share of all meta-steps that are extortionate. Each row is a training; its errors are over fresh "
        "trials. `python -m marl.reproduce zd` compares with extortioners."
    )
    answer = (
        f"{min(extorting):.1%} to {max(extorting):.1%} of a training's trials are extortion, and {min(kept):.1%} to "
        f"{max(kept):.1%} of those of random policies that are kept."
    )
    return Section("Zero-determinant extortion", text, (), [table(columns, rows)], pictures, answer)


def _ppo_section(parts: Parts, results: dict[str, Any]) -> Section:
    claims, answers = [], []
    for part, config in parts.items():
        if config.meta_learner == "ppo":
            result, twin = results[part], results[part.removesuffix("-ppo")]
            words = f"prisoners dilemma against {config.opponent}; reference: our evolution"
            claim = Claim(words, result["shaper_return"], result["shaper_standard_error"], twin["shaper_return"])
            least = TARGETS.get(part.removesuffix("-ppo"))
            claims.append(claim._replace(reference_error=twin["shaper_standard_error"], least=least))
            own, other = rounded(result["shaper_return"]), rounded(twin["shaper_return"])
            answers.append(f"{own} against {config.opponent} (our evolution {other})")
    text = (
        "The paper's own meta-learner at its settings, one seed each; the standard error is over fresh trials. It is "
        "held to the targets of the evolution."
    )
    return Section("Proximal policy optimisation", text, claims, answer=f"PPO gets {', '.join(answers)} per round.")


def _picture(run: RunDirectory, part: str, figure: str, words: str) -> tuple[str, str]:
    """A picture of a part, copied beside the report: (what is seen, path)."""
    target = run.figures / f"{part}_{figure}.png"
    write_whole(target, (run.path / "shapers" / part / "figures" / f"{figure}.png").read_bytes())
    return f"{part}: {words}", f"figures/{target.name}"


def _settings_section(parts: Parts, results: dict[str, Any]) -> Section:
    rows = []
    for part, config in parts.items():
        result = results[part]
        speed, evolution = result["meta_steps_per_second"], config.evolution
        ways = f"{evolution.strategy}, {evolution.population_size} x {config.trials}"
        if config.meta_learner == "ppo":
            ways = f"ppo, {config.trials_per_generation}"
        seeds = f"{config.seed} to {config.seed + config.seeds - 1}"
        cells = [ways, str(config.generations), seeds, f"{result['num_meta_steps'] / 1e6:,.1f}"]
        cells += [f"{speed / 1e6:.2f}" if speed else "", f"{result['seconds_to_compile']:.0f}"]
        rows.append([f"{part}, {config.opponent}", *cells])
    columns = ["part", "candidates x trials", "generations", "seeds", "M meta-steps", "M meta-steps/s", "s to compile"]
    text = "Each part is a run directory of `python -m marl.mfos` under shapers/, with its config, metrics and agent."
    steps = sum(result["num_meta_steps"] for result in results.values()) / 1e6
    answer = f"All parts together took {steps:,.1f} M meta-steps."
    return Section("Settings", text, (), [table(columns, rows)], answer=answer)
