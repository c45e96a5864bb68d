"""Descriptions of the commands of `marl`, one function each, whose docstring is the head of the command's --help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meta.runs.command import Command, Nothing, ToFile, ToTable

if TYPE_CHECKING:
    from marl.experiments.shaping.experiment import Shaping

# A function imports what its own command is made of, and no other's.


def mfos() -> Command:
    """`python -m marl.mfos PRESET [options]`: train a shaper and see whom it shapes.

    PRESET is one of the presets below or the path of a YAML file: a game that is a formula or, where it names an
    `environment`, one that is sampled step by step, against learners with networks or tables. A stopped run goes on with
    `python -m marl.mfos --resume DIR`.
    """
    from marl.experiments.shaping.config import ShapingConfig
    from meta.runs.experiment import run_and_print

    def prepare(config: ShapingConfig) -> Shaping:
        from marl.experiments.shaping.jobs import make_shaping  # here, because --help needs none of it
        from meta.xla.devices import claim_cores

        if config.is_sampled or config.screening:
            claim_cores()
        return make_shaping(config)

    return Command(
        config=ShapingConfig,
        prepare=prepare,
        run=run_and_print,
        name=lambda preset, config: f"{preset}-{config.shaper if config.is_sampled else config.opponent}-{config.seed}",
        presets="mfos",
        evolves=True,
    )


def crossplay() -> Command:
    """`python -m marl.crossplay PRESET --agents naive,lola,mfos`: everybody against everybody, in both seats.

    PRESET is one of the presets below or the path of a YAML file. Who has to be trained is trained, once: named again with
    the same --out, or by --resume DIR, a directory keeps its agents and every pair that it has already played, and goes on
    with a training that was stopped. A table grows and loses nobody: all agents that it has are named again beside new
    ones, and what is played stays the same, but for more pairs.

    Agents, with commas between them: any opponent of marl.mfos, such as "lola(learning_rate=0.5)"; the shapers mfos,
    good_shepherd and shaper, trained against a naive learner, or against another as in mfos:lola; the file or the run
    directory of a trained shaper; all for one of every kind.

    With --environment the game is one of two players that is sampled step by step, and the agents are opponents of
    marl.mfos there, such as tabular_ppo or "ppo(hidden=[16])", shapers that are trained now, as in shaper:reinforce, and
    files or run directories of trained ones.
    """
    from marl.experiments.crossplay.config import CrossplayConfig
    from marl.experiments.crossplay.experiment import line_up, play_table

    return Command(
        config=CrossplayConfig,
        prepare=line_up,
        run=play_table,
        output=ToTable,
        name=lambda preset, config: f"crossplay-{preset}-{config.seed}",
        presets="crossplay",
        evolves=True,
    )


def play() -> Command:
    """`python -m marl.play PRESET AGENT`, or `python -m marl.play DIR`: play against an agent, as its opponents see it.

    PRESET is one of the presets below or the path of a YAML file. AGENT is the file or the run directory of a trained
    shaper, or any opponent's name, such as tft or "lola(learning_rate=0.5)". DIR, a run directory or an agent's file, is
    both: the game is that of the training.

    You sit where the learner sits that a shaper is trained against: the agent is the row player, you are the column. In
    every round the agent draws its action from a policy of memory one: probabilities of C (the first action) at the start
    and after each joint action, its own action first. You choose c or d, or q to stop.

    Such agents answer a policy and not an action. Yours is not known, and so it is estimated after every round by how
    often you have played C in each situation, (C + 1) / (rounds + 2); it is a half where you have not been yet. With this
    estimate the agent takes its next step: a shaper is asked for its next policy, and a learner learns once. Before the
    first round there is one such step with nothing known.

    With --environment, or where DIR was trained in one, the game is sampled: you sit in the second seat of a game of two
    players, choose the number of an action in every step, and see the board. The agent acts on what it sees, and learns
    after every --episode-length steps.
    """
    from marl.experiments.play import PRESETS, PlayConfig, load_match, make_match, play_match

    return Command(
        config=PlayConfig,
        prepare=make_match,
        run=play_match,
        output=Nothing,
        presets=PRESETS,
        choice="a run directory,",
        load=load_match,
    )


def bound() -> Command:
    """`python -m marl.bound PRESET [options]`: how much could any shaper get, by ascent through an opponent's learning.

    PRESET is one of the presets below or the path of a YAML file. The file that is written is what reports call the bound
    when it lies in marl/trained/.

    From a given initial state the opponent's learning is a differentiable function of the shaper's sequence of policies,
    which is ascended with Adam from several starts; the best of them is an estimate, from below, of what the best shaper
    could get there. A shaper that reacts is a way to choose such a sequence, so that none gets more than the true bound.
    """
    from marl.experiments.bound import BoundConfig, file_name, find_bound
    from marl.experiments.file_command import checked

    return Command(
        config=BoundConfig,
        prepare=checked,
        run=find_bound,
        output=ToFile,
        name=lambda preset, config: file_name(config.game, config.opponent),
        presets="bound",
    )


def train() -> Command:
    """`python -m marl.train ENVIRONMENT [options]`: train a learner alone and see how well it plays.

    ENVIRONMENT is a game of one player such as CartPole-v1, with parameters in brackets, one of the presets below, which
    are known to learn, or the path of a YAML file. A stopped run goes on with `python -m marl.train --resume DIR`.
    """
    from marl.experiments.single_agent import SingleAgent, TrainConfig, choose_devices, config_of
    from meta.runs.experiment import run_and_print

    return Command(
        config=TrainConfig,
        prepare=SingleAgent,
        choose_devices=choose_devices,
        run=run_and_print,
        name=lambda first, config: f"{first}-{config.learner_name}-{config.seed}",
        presets="train",
        first="environment",
        choice="a game's name such as CartPole-v1,",
        load=config_of,
    )


def distributed() -> Command:
    """`python -m marl.distributed ENVIRONMENT [options]`: train learners by actors, in environments that live on hosts.

    ENVIRONMENT is one of Gymnasium's such as CartPole-v1 or ALE/Pong-v5, one of PettingZoo's such as pistonball_v6, one of
    our own games, one of the presets below, each a system of the literature, or the path of a YAML file. envpool(NAME) and
    games(NAME) say whose it is where several have it. A stopped run goes on with
    `python -m marl.distributed --resume DIR`.
    """
    from marl.distributed.config import DistributedConfig, choose_devices, config_of
    from marl.distributed.experiment import DistributedExperiment
    from meta.runs.experiment import run_and_print

    return Command(
        config=DistributedConfig,
        prepare=DistributedExperiment,
        choose_devices=choose_devices,
        connects=("address",),
        run=run_and_print,
        name=lambda first, config: f"{first}-{config.learner_name}-{config.seed}",
        presets="distributed",
        first="environment",
        choice="an environment's name such as CartPole-v1,",
        load=config_of,
    )


def discover() -> Command:
    """`python -m marl.discover drift|value_loss ENVIRONMENT [options]`: evolve the objective inside a learner.

    drift: what holds PPO's policy back from the one that gathered the data, as in Lu et al., Discovered Policy Optimisation
    (2022), arXiv:2210.05639. value_loss: how far a value is from its target. ENVIRONMENT is a game such as CartPole-v1, one
    of the presets below, or the path of a YAML file; in a game of several players all have the objective, which is judged
    by what they get together. A stopped run goes on with `python -m marl.discover --resume DIR`.

    `ppo(objective='DIR')`, or `ppo(value_loss='DIR')`, is a learner with what was found.
    """
    from marl.experiments.discovery.config import DiscoveryConfig, config_of
    from marl.experiments.discovery.experiment import Discovery
    from meta.runs.experiment import run_and_print

    return Command(
        config=DiscoveryConfig,
        prepare=Discovery,
        run=run_and_print,
        name=lambda first, config: f"{first.replace(' ', '-')}-{config.seed}",
        presets="discover",
        first="kind and environment",
        words=2,
        choice="drift or value_loss, and then a game's name such as CartPole-v1,",
        load=config_of,
        all_cores=True,
        evolves=True,
    )


def cola() -> Command:
    """`python -m marl.cola PRESET [options]`: train COLA's consistent update functions, and write them to a file.

    PRESET is one of the presets below or the path of a YAML file. The file is an opponent: "cola(file='...')".
    """
    from marl.experiments.cola_training import ConsistencyConfig, make_consistent
    from marl.experiments.file_command import checked

    return Command(
        config=ConsistencyConfig,
        prepare=checked,
        run=make_consistent,
        output=ToFile,
        name=lambda preset, config: f"cola-{config.game}.safetensors",
        presets="cola",
    )


def mmaml() -> Command:
    """`python -m marl.mmaml PRESET [options]`: meta-learn where a naive learner begins (M-MAML), and write it to a file.

    PRESET is one of the presets below or the path of a YAML file. The file is an opponent: "mmaml(file='...')".
    """
    from marl.experiments.file_command import checked
    from marl.experiments.mmaml_training import MetaLearningConfig, meta_learn

    return Command(
        config=MetaLearningConfig,
        prepare=checked,
        run=meta_learn,
        output=ToFile,
        name=lambda preset, config: f"mmaml-{config.game}.safetensors",
        presets="mmaml",
    )


def export() -> Command:
    """`python -m marl.export DIR [options]`: a trained policy as a file of C that needs nothing else.

    DIR is a run directory of marl.train or marl.distributed, or its learner.safetensors. The file has one function, which
    takes an observation and gives the action without exploration. Layers with less than half of their weights, as
    `sparsity` leaves them, are kept in compressed rows. Where there is a C compiler, what it does is compared with the
    learner, and measured.
    """
    from marl.experiments.export import ExportConfig, checked, export

    return Command(
        config=ExportConfig,
        prepare=checked,
        run=export,
        output=Nothing,
        first="",
    )


def reproduce() -> Command:
    """`python -m marl.reproduce EXPERIMENT [options]`: are the papers' figures met?

    mfos: the matrix games of Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447: learners head to head in
    three games, shapers evolved against each of them, meta-self-play. zd: whether a shaper of the prisoner's dilemma plays
    zero-determinant extortion. generalists: shapers of one learner and of many against learners that they met in training
    and others. shaper: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023),
    arXiv:2312.12568: shapers of learners that sample, in repeated games, the coin game and in the matrix. coin_game: the
    learners of the last years, each trained with its kind, then all against all, as in Duque et al., Advantage Alignment
    Algorithms (2024), arXiv:2406.14662. discovery: drifts of PPO and distances of values that are evolved, as in Lu et al.,
    Discovered Policy Optimisation (2022), arXiv:2210.05639, against PPO that is tuned as long. rlx2:
    TD3 with a twelfth of its weights, as in Tan et al., RLx2 (2023), arXiv:2205.15043. sparse: shapers of learners with few
    weights. Each says beforehand how long it will take, and writes report.md, report.json and figures. A stopped run goes
    on with --resume DIR, and does nothing twice.
    """
    from marl.experiments.reproduce.papers import (
        CoinGameConfig,
        DiscoveryClaimsConfig,
        GeneralistsConfig,
        MfosConfig,
        Rlx2Config,
        ShaperConfig,
        SparseConfig,
        ZdConfig,
        checked,
        reproduce,
    )

    return Command(
        config={
            "mfos": MfosConfig,
            "zd": ZdConfig,
            "generalists": GeneralistsConfig,
            "shaper": ShaperConfig,
            "coin_game": CoinGameConfig,
            "discovery": DiscoveryClaimsConfig,
            "rlx2": Rlx2Config,
            "sparse": SparseConfig,
        },
        prepare=checked,
        run=reproduce,
        name=lambda experiment, config: f"reproduce-{experiment}",
        first="experiment",
        evolves=True,
    )
