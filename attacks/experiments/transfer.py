"""Does an attack work on other learners, and what helps against it: victims on which nothing was evolved."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
from rich.console import Console
from rich.table import Table

import configs
from attacks.defences import DEFENCES, learned_steps
from attacks.experiments import figures
from attacks.experiments.attack import ADVERSARY_FILE, Attack, load_adversary, with_training
from attacks.experiments.evaluation import controlled, fresh_victims
from attacks.experiments.gymnasium_victims import host_of, host_returns
from attacks.experiments.preparation import check_defence
from attacks.random_play import observations_of_play
from configs.specs import write
from configs.usage import Positional
from games import Discrete
from marl.learners.layer_specs import hidden_layers, with_hidden
from marl.learners.registry import SAMPLED, settings
from marl.trained.catalogue import PREFIX, located
from meta import RunDirectory
from meta.atomic_files import check_folder, write_whole
from meta.runs import array_files
from meta.runs.formatting import duration, many, say
from meta.runs.reports.ending import print_report
from meta.runs.reports.tables import OF_EXAMINATION, keep_tables
from meta.statistics import mean_and_error, or_nan, rounded, with_error

FILE = "examination.json"
SAME = "as evolved on"
ERRORS = 2.0  # beyond random messages, for an effect on another learner
PARTS = ("transfer", "defences", "host")
COLUMNS = {  # of tables
    "silent": "in silence",
    "difference": "evolved adds",
    "random_difference": "random adds",
    "beyond_random": "evolved less\nrandom",
}


@dataclasses.dataclass(frozen=True)
class ExaminationConfig(configs.CommandConfig):
    """Which attack is examined, and how."""

    directory: Annotated[str, Positional("DIR")] = ""
    """The directory of a finished run of attacks.act with the goal harm or help, or hub:NAME of an adversary that comes
    with the library; its results are then written to runs/NAME."""
    evaluation_trials: int = 256
    """Fresh victims of each kind, the same under messages and in silence; at least 2."""
    seed: int = 1
    """Of the victims."""
    transfer: bool = True
    """Try other learners."""
    defences: bool = True
    """Try learners that defend themselves."""
    host: bool = False
    """Try victims whose environment is Gymnasium's of that name, on the host; and nothing else."""
    host_trials: int = 8
    """Fresh victims on the host under each kind of message; at least 2. Some seconds each."""

    @property
    def without_effect(self) -> dict[str, str]:
        """Fields that change nothing, with the reason."""
        if self.host:
            return dict.fromkeys(("evaluation_trials", "transfer", "defences"), "with --host, which tries nothing else")
        return {"host_trials": "without --host"}

    def __post_init__(self) -> None:
        configs.check_least(self, evaluation_trials=2, host_trials=2)
        configs.check_seed(self.seed)
        if not (self.transfer or self.defences or self.host):
            raise ValueError("defences: got False, and transfer too; one of them is needed")


def other_victims(attack: Attack) -> dict[str, str]:
    """The learner that the attack was evolved on; PPOs that differ from it in one thing; A2C and DQN."""
    config = attack.config
    name, given = SAMPLED.read("victim", config.victim)
    specs = {SAME: config.victim}
    if name == "ppo":
        now = settings(name, attack.game) | given
        layers, relu, shared = hidden_layers(config.victim), now["activation"] == "relu", now["shared"]
        several, normalized = now["minibatches"] > 1, now["normalize_observations"]
        learned = config.num_envs
        if attack.make_victim(attack.game).reset_memory is None:  # those with memory take whole environments
            learned *= config.steps_per_update - (not now["learn_last_step"])
        if layers:
            specs["twice as wide"] = with_hidden(config.victim, [2 * units for units in layers])
            specs["one layer more"] = with_hidden(config.victim, [*layers, layers[-1]])
        changes: dict[str, dict[str, Any]] = {
            "tanh" if relu else "relu": {"activation": "tanh" if relu else "relu"},
            "a third of the learning rate": {"learning_rate": now["learning_rate"] / 3},
            ("without" if normalized else "with") + " normalisation": {"normalize_observations": not normalized},
        }
        if now["network"] == "feed_forward":
            title = "value apart from policy" if shared else "value and policy share layers"
            changes[title] = {"shared": not shared}
        if several or _few(learned) > 1:
            changes["full batch" if several else "minibatches"] = {"minibatches": 1 if several else _few(learned)}
        specs |= {title: write(name, given | other) for title, other in changes.items()}
    if name != "a2c":
        specs["A2C"] = "a2c(anneal=True)"
    if name != "dqn" and isinstance(attack.game.action_space("agent_0"), Discrete):
        specs["DQN"] = "dqn(anneal=True)"
    return specs


def _few(steps: int) -> int:
    """Four minibatches, or the next number of them that divides the steps."""
    return next(number for number in (4, 5, 6, 7, 3, 2, 1) if steps % number == 0)


def checked(config: ExaminationConfig) -> ExaminationConfig:
    """The config, of which the directory is known to hold an attack that can be examined.

    Raises:
      ValueError: if it does not.
    """
    if not config.directory:
        raise ValueError("directory: none given; that of a run of python -m attacks.act is needed")
    if config.directory.startswith(PREFIX):
        attack, _ = load_adversary(config.directory)
        if config.host:
            host_of(attack)
        folder = _unpacked(config.directory.removeprefix(PREFIX), attack)
        return dataclasses.replace(config, directory=str(folder))
    if not os.path.isdir(config.directory):  # results are written there
        needed = f"the directory of a finished run of python -m attacks.act, or {PREFIX}NAME, is needed"
        raise ValueError(f"directory: got {config.directory!r}; {needed}")
    check_folder(Path(config.directory))
    attack, _ = load_adversary(config.directory)
    if config.host:
        host_of(attack)
    return config


def _unpacked(name: str, attack: Attack) -> Path:
    """The folder runs/NAME with the file of an adversary of the library and its config.

    Raises:
      ValueError: if another attack is there.
    """
    file, folder = Path(located(PREFIX + name)), Path("runs", name)
    for place, content in (
        (ADVERSARY_FILE, file.read_bytes()),
        ("config.yaml", configs.to_text(attack.config).encode()),
    ):
        if not (folder / place).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / place, content)
        elif place == ADVERSARY_FILE and (folder / place).read_bytes() != content:
            raise ValueError(f"directory: {folder} holds another attack; another working directory is needed")
    return folder


def examine(options: ExaminationConfig, console: Console) -> dict[str, Any]:
    """Examines the attack in a run directory, and writes what it finds there.

    Args:
      options: which attack, and how much is tried.
      console: shows progress.

    Returns:
      What is in `examination.json`: `transfer` and `defences`, each a dict from the kind of victim to `evolved`,
      `silent` and `random` (each a mean and a standard error of the final returns; random messages are of the same
      kind and as large), what the evolved and random ones change, `difference` and `random_difference`, what the
      evolved ones do `beyond_random`, and the `num_trials` and the `seed` of the victims; and `digests`, by which a
      result is known to be whole, and that of this attack and of these victims.

    Raises:
      ValueError: if there is no attack in the directory.
      FileExistsError: if another process is writing there.
    """
    path = Path(options.directory)
    attack, parameters = load_adversary(path)
    config = attack.config
    run = RunDirectory(path, lambda text: say(console, text))
    run.check_reads(config.reads)
    key, victims = jax.random.key(options.seed), other_victims(attack)
    depends = [configs.plain(config), array_files.digest(parameters), *COLUMNS]

    def digest(part: str, name: str, result: Any) -> str:
        victim = victims[name if part == "transfer" else SAME]
        return hashlib.sha256(json.dumps([*depends, part, name, victim, result]).encode()).hexdigest()

    found = {"goal": config.goal} | _read_known(path / FILE, digest, console)
    wanted = {"num_trials": options.host_trials if options.host else options.evaluation_trials, "seed": options.seed}

    def is_there(part: str, name: str) -> bool:
        return name in found[part] and wanted.items() <= found[part][name].items()

    def row_of(returns: dict[str, Any]) -> dict[str, Any]:
        return {kind: mean_and_error(values) for kind, values in returns.items()} | {
            "difference": mean_and_error(returns["evolved"] - returns["silent"]),
            "random_difference": mean_and_error(returns["random"] - returns["silent"]),
            "beyond_random": mean_and_error(returns["evolved"] - returns["random"]),
            **wanted,
        }

    kinds = [
        ("transfer", name)
        for name, victim in victims.items()
        if options.transfer
        and not options.host
        and (config.defence == "none" or _fits(with_training(attack, victim=victim), config.defence, console))
    ]
    if options.defences and not options.host:
        kinds += [("defences", name) for name in DEFENCES if name in found["defences"] or _fits(attack, name, console)]
    kinds = [("host", SAME)] if options.host else kinds
    todo = [(part, name) for part, name in kinds if not is_there(part, name)]
    play, started = observations_of_play(attack.game), time.perf_counter()
    for i, (part, name) in enumerate(todo):
        left = f"; about {duration((time.perf_counter() - started) / i * (len(todo) - i))} left" if i else ""
        say(console, f"{part}: {name} ({i + 1} of {len(todo)}{left})")
        if part == "host":
            row = row_of(host_returns(attack, parameters, options.host_trials, options.seed, partial(say, console)))
        elif part == "defences" and name == config.defence == "none" and is_there("transfer", SAME):
            row = found["transfer"][SAME]  # these are the same victims
        else:
            other = with_training(attack, victim=victims[name if part == "transfer" else SAME])
            steps = learned_steps(other.schedule, name if part == "defences" else config.defence)
            spoken, speakers = controlled(other.message, parameters, play, steps)
            own_defence = DEFENCES[name] if part == "defences" else None
            run_trainings = fresh_victims(other, spoken, options.evaluation_trials, own_defence)
            row = row_of({kind: run_trainings(key, own).final_returns for kind, own in speakers.items()})
        found[part][name], found["digests"][part][name] = row, digest(part, name, row)
        run.write(FILE, json.dumps(found, indent=2) + "\n")
    for part in PARTS:
        if found[part]:
            figures.draw_differences(run.figures / f"{part}.png", found[part], config.goal)
    return found


def _fits(attack: Attack, defence: str, console: Console) -> bool:
    """True if victims of this kind can have the defence; prints the reason if not."""
    try:
        check_defence(attack, defence)
    except ValueError as error:
        say(console, f"left out: {error}")
        return False
    return True


def _read_known(file: Path, digest: Callable[[str, str, Any], str], console: Console) -> dict[str, Any]:
    """The results in a file that have the digests that they should have; says if there are others."""
    found: dict[str, Any] = {part: {} for part in PARTS} | {"digests": {part: {} for part in PARTS}}
    if not file.is_file():
        return found
    others = 0
    try:
        before = {"host": {}} | json.loads(file.read_bytes())  # which older files lack
        known_digests = {"host": {}} | before["digests"]
        for part in PARTS:
            for name, result in before[part].items():
                known_by = known_digests[part].get(name)
                try:
                    known = known_by == digest(part, name, result)
                except KeyError:  # of a victim that there is not any more
                    known = False
                if known:
                    found[part][name], found["digests"][part][name] = result, known_by
                others += not known
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        say(console, f"{file}: damaged, and computed again")
        return found
    if others:
        text = f"{others} result(s) of another attack, of other victims or of an earlier version are left out"
        say(console, f"{file}: {text}; the requested results are computed again")
    return found


def examine_and_show(config: ExaminationConfig, target: None, console: Console) -> None:
    """Examines an attack, and shows what came of it."""
    found, path = examine(config, console), Path(config.directory)
    with keep_tables(console, path, OF_EXAMINATION):
        print_result(console, found)
    print_report(console, path)


def conclusion(found: dict[str, Any]) -> str:
    """The effect of the attack, beside random messages, on other learners, defences and the host: a sentence each."""
    direction = 1 if found["goal"] == "help" else -1

    def effect(row: dict[str, Any]) -> str:
        evolved, random = (rounded(row[column]["mean"], 1) for column in ("difference", "random_difference"))
        return f"by {evolved} (random messages: {random})"

    def works(row: dict[str, Any]) -> bool:
        beyond = row["beyond_random"]
        return direction * or_nan(beyond["mean"]) > ERRORS * or_nan(beyond["standard_error"])

    sentences, others = [], dict(found["transfer"])
    if own := others.pop(SAME, None):
        sentences.append(
            f"The attack changes the final return of the learner that it was evolved on {effect(own)}, and "
            f"{found['goal']}s {sum(map(works, others.values()))} of {many(len(others), 'other learner')} by "
            f"{ERRORS:g} standard errors more than random messages do."
        )
    defences = dict(found["defences"])
    if without := defences.pop("none", None):
        sentence = f"Without a defence it changes the return {effect(without)}"
        # Not the one with the least difference, because one that ruins the victim leaves none.
        left = {name: sum(or_nan(row[x]["mean"]) for x in ("silent", "difference")) for name, row in defences.items()}
        if finite := [name for name, number in left.items() if math.isfinite(number)]:
            best = max(finite, key=left.__getitem__)
            silent = rounded(defences[best]["silent"]["mean"], 1)
            sentence += f", and {effect(defences[best])} from {silent} in silence with {best}, the defence of "
            sentence += f"{len(defences)} with the highest return under evolved messages"
        sentences.append(f"{sentence}.")
    sentences += [f"In Gymnasium it changes the final return {effect(row)}." for row in found["host"].values()]
    return " ".join(sentences)


def print_result(console: Console, found: dict[str, Any]) -> None:
    """The conclusion, and a table for each part."""
    say(console, conclusion(found))
    for part, title in (("transfer", "victim"), ("defences", "defence"), ("host", "victim on a host")):
        if not found[part]:
            continue
        table = Table(title, box=None)
        for column in COLUMNS.values():
            table.add_column(column, no_wrap=True)
        for name, row in found[part].items():
            table.add_row(name.replace("_", " "), *(with_error(row[column], 1) for column in COLUMNS))
        console.print(table)
    numbers = {row["num_trials"] for part in PARTS for row in found[part].values()}
    text = " or ".join(f"{number:,}" for number in sorted(numbers))
    say(console, f"{text} fresh victims of each kind; ± one standard error; random: as large")
