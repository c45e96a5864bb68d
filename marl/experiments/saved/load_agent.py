"""Trained agents by the directory of their run, their file or their name."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from configs import one_of, shown
from games import Game, InfinitelyRepeated
from marl.core.learner import Learner, keep_state, whole_state
from marl.core.learner_checks import check_number
from marl.experiments import export
from marl.experiments.saved.agent_play import play_agent
from marl.experiments.shaping.agents import AGENT_FILE, Agent, load_shaper, of_training, size_in_words
from marl.experiments.single_agent import LEARNER_FILE
from marl.learners.sampled.objective_registry import FILE as OBJECTIVE_FILE
from marl.learners.sampled.objective_registry import METHOD as OBJECTIVE_METHOD
from marl.learners.sampled.objective_registry import load_objective
from marl.trained.catalogue import list_agents, located
from meta.runs import array_files
from meta.runs.directory import naming_imports

ADVERSARY_FILE = "adversary.safetensors"  # of a run of attacks.act
MISSING = "the directory of a run, or one of marl.list_agents(), is needed"


class TrainedAgent(Agent):
    """An agent that was trained: a shaper, or a learner that learns no more.

    Attributes:
      name: the directory of the run, or the name.
      learner: `(parameters) -> marl.Learner`.
      parameters: of what was trained, a pytree.
      config: of the training of a shaper; None for a learner.
      game: in which a learner was trained; None for a shaper, whose config has it.
    """

    def play(
        self,
        opponent: str | Learner | Sequence[Learner] | None = None,
        num_episodes: int = 64,
        *,
        game: str | Game | InfinitelyRepeated | None = None,
        key: jax.Array | None = None,
    ) -> Any:
        """Plays fresh trials of a shaper, or fresh episodes of a learner in a game of one player.

        Args:
          opponent: of a shaper: a spec such as `tft` or `hub:NAME`, the path of a trained agent or such an agent, or
            a learner, in a sampled game one for each seat; the opponent of the training if None. A learner of one
            player has none.
          num_episodes: trials of a shaper, in each of which the opponent learns from the beginning; else episodes.
          game: the game, or the name of a sampled one; that of the training if None.
          key: of all that is drawn; `jax.random.key(0)` if None.

        Returns:
          The `Trials` of a shaper, or the returns `[num_episodes]` of a learner.

        Raises:
          ValueError: for an opponent or a game that does not fit.

        Example:
          >>> import marl
          >>> shaper = marl.load_agent("good_shepherd-ipd-naive")
          >>> shaper.play("tft", num_episodes=8).shaper_payoffs.shape  # one for each learning step
          (8, 100)
        """
        return play_agent(self, opponent, num_episodes, game, key)


class Adversary(NamedTuple):
    """The message function that a run of attacks.act has evolved.

    Attributes:
      name: the directory of the run, or the name.
      message: an `attacks.Message`.
      parameters: of the message; with a controller, those of both as `shaper` and `controller`.
      config: of the attack.
      controller: for the goal control, the function that steers a trained victim; else None.
    """

    name: str
    message: Any
    parameters: Any
    config: Any
    controller: Any = None

    def __repr__(self) -> str:
        """One line, without the numbers."""
        return f"Adversary({self.name!r}, {size_in_words(self.parameters)})"

    def play(self, num_episodes: int = 64, *, key: jax.Array | None = None) -> dict[str, np.ndarray]:
        """Trains fresh victims, each under the evolved messages, in silence and under random messages as large.

        Args:
          num_episodes: victims, each trained from the beginning.
          key: of all that is drawn; `jax.random.key(0)` if None.

        Returns:
          Final returns without exploration, `[num_episodes]`, by `evolved`, `silent` and `random`.

        Raises:
          ValueError: for the goal control, of which `python -m attacks.act --goal control` has measures of its own.
        """
        if self.controller is not None:
            raise ValueError(f"play: got {self.name}, with the goal control; one that harms or helps is needed")
        check_number("num_episodes", num_episodes)
        attack = importlib.import_module("attacks.experiments.attack").resolve(self.config)
        play_adversary = importlib.import_module("attacks.experiments.evaluation").play_adversary
        return play_adversary(attack, self.parameters, num_episodes, jax.random.key(0) if key is None else key)


class Objective(NamedTuple):
    """The objective of PPO's policy, or the loss of its value, that a run of marl.discover has evolved.

    Attributes:
      name: the directory of the run, or the name.
      kind: `drift` or `value_loss`.
      parameters: of its network.
      settings: of a learner with it: `marl.ppo(game, **objective.settings)`.
    """

    name: str
    kind: str
    parameters: Any
    settings: dict[str, Any]

    def __repr__(self) -> str:
        """One line, without the numbers."""
        return f"Objective({self.name!r}, {self.kind}, {size_in_words(self.parameters)})"


def load_agent(path: Path | str, *, number: int | None = None) -> TrainedAgent | Adversary | Objective:
    """The agent of a finished run, from its directory or its file, or one that comes with the library, by its name.

    Args:
      path: of a run of marl.mfos (a shaper), marl.train or marl.distributed (a learner), attacks.act (an adversary) or
        marl.discover (an objective); or one of `marl.list_agents()`, also as `hub:NAME`.
      number: of the training, where a run has several seeds, or of the player of a run of marl.distributed; of a run of
        marl.train --no-share, seed times players plus seat. If None, a
        learner is the first; a shaper is one of all, drawn evenly for each trial.

    Returns:
      A `TrainedAgent`, whose `learner(parameters)` acts and learns no more, an `Adversary` or an `Objective`.

    Raises:
      ValueError: if the file is missing, damaged or none of these; one line that names it.

    Example:
      >>> import marl
      >>> agent = marl.load_agent("good_shepherd-ipd-naive")
      >>> trials = agent.play("tft", num_episodes=8)
      >>> round(float(trials.shaper_payoffs.mean()), 2)
      -1.87
    """
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path: got {shown(path)}; the directory of a run, or a name, is needed")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise ValueError(f"number: got {shown(number)}; a whole number of at least 0, or None, is needed")
    name, path = str(path), located(path)
    names = (LEARNER_FILE, ADVERSARY_FILE, OBJECTIVE_FILE)
    files = [Path(path) / file for file in names] if os.path.isdir(path) else [Path(path)]
    file = next(filter(os.path.isfile, files), None)
    method = array_files.load_arrays(file)[1].get("method") if file else None
    if file and method in ("train", "distributed"):
        with naming_imports(path):
            return _load_learner(file, name, number or 0)
    if file and method == "attack":
        # By its name, because marl does not depend on attacks.
        attack, parameters = importlib.import_module("attacks.experiments.attack").load_attack(file, "path", "a file")
        return Adversary(name, attack.message, parameters, attack.config, attack.controller)
    if file and method == OBJECTIVE_METHOD:
        form, parameters, clip = load_objective(str(file))
        return Objective(name, form.kind, parameters, form.settings(parameters, clip))
    if os.path.isdir(path) and not os.path.isfile(Path(path) / AGENT_FILE):
        runs = "a finished run of marl.mfos, marl.train, marl.distributed, marl.discover or attacks.act"
        raise ValueError(f"path: got {shown(name)}; the directory of {runs} is needed")
    if not os.path.exists(path) and os.sep not in name and not name.endswith(".safetensors"):
        raise ValueError(f"path: got {shown(name)}; {one_of(name, list(list_agents()), MISSING)}")
    agent = load_shaper(path)
    seeds = agent.config.seeds if agent.config else 1
    if number is not None and number >= seeds:
        raise ValueError(f"number: got {number}; {'0' if seeds == 1 else f'one of 0 to {seeds - 1}'} is needed")
    return TrainedAgent(*(agent if number is None else of_training(agent, number)))._replace(name=name)


def _load_learner(file: Path, name: str, number: int) -> TrainedAgent:
    found = export.load_arrays(file, number)
    learner, parameters = export.with_parameters(found.spec, found.game, found.seat, found.arrays, str(file))

    def fixed(parameters: Any) -> Learner:
        return learner._replace(
            init=lambda key: parameters, policy=whole_state, update=keep_state, gradients=None, sync=None
        )

    return TrainedAgent(f"{name} ({found.spec})", fixed, parameters, game=found.game)
