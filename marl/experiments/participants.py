"""Who plays at a table of everybody against everybody: agents by their names, trained where they have to be."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

import configs
from marl.experiments.shaping.agents import (
    AGENT_FILE,
    Agent,
    is_path,
    load_shaper,
    save_agent,
)
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.experiment import make_progress, work_of_training
from marl.experiments.shaping.game_kind import make_kind
from marl.experiments.spec_dependencies import digests
from marl.learners.registry import terms
from meta import RunDirectory
from meta.run_keys import of_seeds
from meta.runs.formatting import say
from meta.runs.jobs import open_run
from meta.runs.progress import Stages

ALL = """naive lookahead lola hola2 sos cgd sga cola pola mmaml reinforce q_learning best_response mfos good_shepherd
    shaper all_c all_d tft wsls grim gtft random zd""".split()  # noqa: SIM905

ALL_SAMPLED = """random reinforce naive_dice lola_dice pola_dice tabular_ppo ppo a2c dqn advantage_alignment
    proximal_advantage_alignment loqa reciprocator always_cooperate always_defect""".split()  # noqa: SIM905


class Participant(NamedTuple):
    """An agent by its name: what it does in each seat, or how it has to be trained for it."""

    name: str
    seats: tuple[Agent | ShapingConfig, Agent | ShapingConfig]
    identity: str  # changes with whatever its play depends on
    files: str = ""  # digests of what was learned before and is read when it plays or trains


def split_agents(text: str, everybody: Sequence[str] = ALL) -> list[str]:
    """The specs in a list with commas between them; those inside brackets or quotes are none of ours.

    Args:
      text: the list.
      everybody: what `all` stands for.

    Raises:
      ValueError: if there is none, or one twice.
    """
    specs = [spec.strip() for spec in terms(text, ",") if spec.strip()]
    specs = [name for spec in specs for name in (everybody if spec == "all" else [spec])]
    if not specs or text.count("(") != text.count(")"):
        raise ValueError(f"agents: got {text!r}; names with commas between them, or all, are needed")
    for spec in specs:
        if specs.count(spec) > 1:
            raise ValueError(f"agents: got {spec} twice; each name once is needed")
    return specs


def enter(
    agents: str, everybody: Sequence[str], sit: Callable[[str, int], Agent | ShapingConfig]
) -> tuple[list[Participant], list[str]]:
    """Everybody who plays, and of `all` those who cannot, with the reason.

    Args:
      agents: their specs, with commas between them.
      everybody: what `all` stands for.
      sit: (spec, seat) -> who sits there, or how it has to be trained for it.

    Raises:
      ValueError: for an agent that there is not, or that cannot play this game.
    """
    participants, left_out = [], []
    from_all = "all" in [spec.strip() for spec in agents.split(",")]
    for spec in split_agents(agents, everybody):
        try:
            first, second = sit(spec, 0), sit(spec, 1)
        except ValueError as error:
            if not (from_all and spec in everybody):
                raise ValueError(f"agents: {str(error).removeprefix('agent: ')}") from None
            left_out.append(f"{spec} ({error})")
            continue
        participants.append(Participant(spec, (first, second), *_identity(spec, (first, second))))
    return participants, left_out


def _identity(spec: str, seats: Sequence[Agent | ShapingConfig]) -> tuple[str, str]:
    if is_path(spec):
        path = Path(spec) / AGENT_FILE if Path(spec).is_dir() else Path(spec)
        return hashlib.sha256(path.read_bytes()).hexdigest(), ""
    files = "".join(digests(spec))
    names = [digest_of(configs.plain(one)) if isinstance(one, ShapingConfig) else spec for one in seats]
    return "+".join(names) + files, files


def digest_of(value: Any) -> str:
    """Twelve hexadecimal digits that change with what JSON can hold."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def work_of_trainings(participants: Sequence[Participant], run: RunDirectory) -> dict[str, float]:
    """What is to be trained for both seats, by the names of the stages: steps of each, in the unit of the game."""
    found = {}
    for seat, participant in itertools.product((0, 1), participants):
        config = participant.seats[seat]
        if isinstance(config, ShapingConfig) and not _file(participant, config, run).is_file():
            found[_stage(participant, config, seat)] = sum(work_of_training(make_kind(config)).values())
    return found


def _stage(participant: Participant, config: ShapingConfig, seat: int) -> str:
    return f"training of {participant.name}, {('row', 'column')[seat]}, against {config.opponent}"


def _file(participant: Participant, config: ShapingConfig, run: RunDirectory) -> Path:
    """The file of a trained agent, named after all that its training depends on."""
    name, depends = re.sub(r"[^\w.=-]+", "-", participant.name).strip("-")[:100], configs.plain(config)
    digest = digest_of([depends, participant.files] if participant.files else depends)
    return run.path / "agents" / f"{name}-{digest}.safetensors"


def ready(participant: Participant, seat: int, run: RunDirectory, stages: Stages) -> Agent:
    """The agent of a seat: as it is, or trained, or found in the directory by what its training depends on.

    A training has a run directory of its own in `trainings`, from which it goes on, until its agent is kept.
    """
    config = participant.seats[seat]
    if isinstance(config, Agent):
        return config
    (run.path / "agents").mkdir(exist_ok=True)
    console, path = stages.console, _file(participant, config, run)
    folder = run.path / "trainings" / path.stem
    words = f"{participant.name}, {('row', 'column')[seat]}"
    if path.is_file():
        try:
            agent = load_shaper(path)
            if agent.config != config:
                raise ValueError(f"agents: {path} holds an agent of another config")
            say(console, f"{words}: trained, cached in {path}")
            shutil.rmtree(folder, ignore_errors=True)  # of who was stopped between the file and here
            return agent
        except ValueError as error:
            say(console, f"{words}: {error}; made anew")
    stages.begin(_stage(participant, config, seat))
    kind, store = make_kind(config), open_run(folder, config, console)
    with make_progress(kind, console, stages) as progress:
        screening = progress.before("random shapers")
        trained = kind.train(of_seeds(config.seed, config.seeds), store=store, report=progress, screening=screening)
    save_agent(path, config, jax.tree.map(lambda x: x[0], trained.parameters))
    shutil.rmtree(folder, ignore_errors=True)
    return load_shaper(path)
