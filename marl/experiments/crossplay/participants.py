"""Participants of a table: agents by their names, trained where they have to be."""

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
from marl.experiments.shaping.agents import AGENT_FILE, Agent, is_path, load_shaper, save_agent
from marl.experiments.shaping.config import ShapingConfig
from marl.experiments.shaping.experiment import Shaping
from marl.learners.registry import terms
from marl.learners.spec_dependencies import digests
from marl.trained.catalogue import located
from meta import RunDirectory
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
    seats: tuple[Agent | Shaping, Agent | Shaping]
    identity: str  # changes with whatever its play depends on
    files: str = ""  # digests of what was learned before and is read when it plays or trains


def split_agents(text: str, kinds: Sequence[str] = ALL) -> list[str]:
    """The specs in a list with commas between them; those inside brackets or quotes are none of ours.

    Args:
      text: the list.
      kinds: the specs that `all` stands for.

    Raises:
      ValueError: if there is none, or one twice.
    """
    specs = [spec.strip() for spec in terms(text, ",") if spec.strip()]
    specs = [name for spec in specs for name in (kinds if spec == "all" else [spec])]
    if not specs or text.count("(") != text.count(")"):
        raise ValueError(f"agents: got {text!r}; names with commas between them, or all, are needed")
    for spec in specs:
        if re.fullmatch(r"[\d.]+", spec):
            raise ValueError(f"agents: got {spec}; five probabilities are memory_one(probabilities=[1, 1, 0, 1, 0])")
        if specs.count(spec) > 1:
            raise ValueError(f"agents: got {spec} twice; each name once is needed")
    return specs


def enter(
    agents: str, kinds: Sequence[str], sit: Callable[[str, int], Agent | Shaping]
) -> tuple[list[Participant], list[str]]:
    """The participants, and the agents of `all` that cannot play, with the reason.

    Args:
      agents: their specs, with commas between them.
      kinds: the specs that `all` stands for.
      sit: `(spec, seat)` -> the agent, or the experiment that trains it for that seat.

    Raises:
      ValueError: for an agent that there is not, or that cannot play this game.
    """
    participants, left_out = [], []
    from_all = "all" in [spec.strip() for spec in agents.split(",")]
    for spec in split_agents(agents, kinds):
        try:
            first, second = sit(spec, 0), sit(spec, 1)
        except ValueError as error:
            if not (from_all and spec in kinds):
                raise ValueError(f"agents: {str(error).removeprefix('agent: ')}") from None
            left_out.append(f"{spec} ({error})")
            continue
        participants.append(Participant(spec, (first, second), *_identity(spec, (first, second))))
    return participants, left_out


def _identity(spec: str, seats: Sequence[Agent | Shaping]) -> tuple[str, str]:
    if is_path(spec):
        place = Path(located(spec))
        path = place / AGENT_FILE if place.is_dir() else place
        return hashlib.sha256(path.read_bytes()).hexdigest(), ""
    files = "".join(digests(spec))
    names = [digest_of(configs.plain(one.config)) if isinstance(one, Shaping) else spec for one in seats]
    return "+".join(names) + files, files


def digest_of(value: Any) -> str:
    """Twelve hexadecimal digits that change with what JSON can hold."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def work_of_trainings(participants: Sequence[Participant], run: RunDirectory) -> dict[str, float]:
    """Steps of the trainings that are left for both seats, by the names of their stages, in the unit of the game."""
    found = {}
    for seat, participant in itertools.product((0, 1), participants):
        shaping = participant.seats[seat]
        if isinstance(shaping, Shaping) and not _file(participant, shaping.config, run).is_file():
            found[_stage(participant, shaping.config, seat)] = sum(shaping.work_of_training().values())
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
    shaping = participant.seats[seat]
    if isinstance(shaping, Agent):
        return shaping
    config = shaping.config
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
            shutil.rmtree(folder, ignore_errors=True)  # of a run that was stopped after it wrote the file
            return agent
        except ValueError as error:
            say(console, f"{words}: {error}; trained again")
    stages.begin(_stage(participant, config, seat))
    store = open_run(folder, config, console)
    with shaping.progress(stages) as progress:
        before = progress.before(shaping.start.describe)
        trained = shaping.train_shapers(shaping.keys, store=store, report=progress, before=before)
    save_agent(path, config, jax.tree.map(lambda x: x[0], trained.parameters))
    shutil.rmtree(folder, ignore_errors=True)
    return load_shaper(path)
