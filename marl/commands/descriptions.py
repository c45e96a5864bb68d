"""Descriptions of the commands of `marl`, one function each, whose docstring is the head of the command's --help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import configs
from meta.runs.command import Command, Nothing, Quiet, ToFile, ToTable
from meta.xla.devices import claim_cores

if TYPE_CHECKING:
    from marl.experiments.shaping.experiment import Shaping

# A function imports what its own command is made of, and no other's.


def mfos() -> Command:
    """`python -m marl.mfos PRESET [options]`: train a shaper against a learner, and evaluate it.

    PRESET is one of the presets below or the path of a YAML file. A preset with an `environment` is of a sampled game, in
    which learners have networks or tables; all others are of exact games, which are formulas.
    `python -m marl.mfos --resume DIR` continues a stopped run.
    """
    from marl.experiments.shaping.config import ShapingConfig
    from meta.runs.experiment import run_and_print

    def prepare(config: ShapingConfig) -> Shaping:
        from marl.experiments.shaping.jobs import make_shaping  # here, because --help needs none of it

        return make_shaping(config)

    def choose_devices(config: ShapingConfig) -> None:
        if config.is_sampled or config.preparation:
            claim_cores()

    def load(preset: str) -> configs.CommandConfig:
        if preset not in configs.presets("mfos"):
            from games.registry import refuse_game

            refuse_game(preset, "ipd_sampled", range(2, 100))
        return configs.load(ShapingConfig.class_of({}), "mfos", preset)

    return Command(
        config=ShapingConfig,
        load=load,
        prepare=prepare,
        choose_devices=choose_devices,
        run=run_and_print,
        name=lambda preset, config: f"{preset}-{config.shaper if config.is_sampled else config.opponent}-{config.seed}",
        presets="mfos",
        evolves=True,
    )


def crossplay() -> Command:
    """`python -m marl.crossplay PRESET --agents naive,lola,mfos`: a table of all pairs of agents in both seats.

    PRESET is one of the presets below or the path of a YAML file. Shapers are trained once. With the same --out, or with
    --resume DIR, a table keeps its agents and the pairs that were played, and continues a training that was stopped. To
    add agents, name those of the table and the new ones; the game has to stay the same, but pairs may become more.

    Agents, with commas between them: any opponent of marl.mfos, such as "lola(learning_rate=0.5)"; the shapers mfos,
    good_shepherd and shaper, trained against a naive learner, or against another as in mfos:lola; the file or the run
    directory of a trained shaper; all for 24 learners, strategies and shapers of exact games, or 15 learners and
    strategies of sampled ones.

    With --environment the game is one of two players that is sampled step by step, and the agents are opponents of
    marl.mfos there, such as tabular_ppo or "ppo(hidden=[16])", shapers that are trained now, as in shaper:reinforce, and
    files or run directories of trained ones.
    """
    from marl.experiments.crossplay.config import CrossplayConfig
    from marl.experiments.crossplay.experiment import line_up, play_table

    return Command(
        config=CrossplayConfig,
        prepare=line_up,
        choose_devices=lambda config: claim_cores() if config.environment else None,
        run=play_table,
        output=ToTable,
        name=lambda preset, config: f"crossplay-{preset}-{config.seed}",
        presets="crossplay",
        evolves=True,
    )


def play() -> Command:
    """`python -m marl.play PRESET AGENT`, or `python -m marl.play DIR`: play against an agent yourself.

    PRESET is one of the presets below or the path of a YAML file. AGENT is the file or the run directory of a trained
    shaper, or any opponent's name, such as tft or "lola(learning_rate=0.5)". DIR, a run directory or an agent's file, is
    both: the game is that of the training.

    You take the seat of the learner: the agent is the row player, you are the column player. In every round the agent
    draws its action from a memory-one policy: probabilities of C (the first action) at the start and after each joint
    action, its own action first. You choose c or d, or q to stop.

    Such agents respond to a policy and not to an action. Your policy is estimated after every round by the share of C in
    each situation, (C + 1) / (rounds + 2), which is a half in new situations. With this estimate the agent takes its next
    step: a shaper chooses its next policy, and a learner learns once. One such step comes before the first round.

    With --environment, or where DIR was trained in one, the game is sampled: you have the second seat of a game of two
    players, choose the number of an action in every step, and see the board. The agent acts on its observations, and
    learns after every --episode-length steps.
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
    """`python -m marl.bound PRESET [options]`: bound a shaper's payoff by ascent through an opponent's learning.

    PRESET is one of the presets below or the path of a YAML file. Reports use the file as the
    bound if it is in marl/trained/.

    From a given initial state the opponent's learning is a differentiable function of the shaper's sequence of policies,
    which is ascended with Adam from several starts; the best of them is an estimate, from below, of the best shaper's
    payoff there. A shaper that reacts chooses such a sequence too, so that no shaper gets more than the true bound.
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


def schelling() -> Command:
    """`python -m marl.schelling GAME [options]`: measure a Schelling diagram of a game, and whether it is a dilemma.

    GAME is a game of two players or more such as harvest, with parameters in brackets, one of the presets below, or the
    path of a YAML file. Each player is a cooperator or a defector, in every number of them and in random seats. The
    diagram has the payoff of each by the number of other cooperators. Both are scripted policies, which see the whole
    state, or agents that act on observations. `games.scripted_policies.register` adds scripted policies of a game.

    A table says which inequalities of a social dilemma hold: mutual cooperation beats mutual defection and being
    exploited, and defection pays beside defectors (fear) or beside cooperators (greed).
    """
    from marl.experiments.schelling import SchellingConfig, config_of, measure_and_print, prepare

    return Command(
        config=SchellingConfig,
        prepare=prepare,
        run=measure_and_print,
        name=lambda first, config: f"schelling-{first}-{config.seed}",
        presets="schelling",
        first="environment",
        choice="a game's name such as harvest,",
        load=config_of,
    )


def train() -> Command:
    """`python -m marl.train ENVIRONMENT [options]`: train a learner alone or in all seats of a game, and evaluate it.

    ENVIRONMENT is a game such as CartPole-v1 or harvest, with parameters in brackets, one of the tuned presets below,
    or the path of a YAML file. In a game of several players all of them learn: with one network for all, or with
    `--no-share` one for each. `python -m marl.train --resume DIR` continues a stopped run.
    """
    from marl.experiments.learner_training import TrainConfig, choose_devices, config_of
    from marl.experiments.team import make_experiment
    from meta.runs.experiment import run_and_print

    return Command(
        config=TrainConfig,
        prepare=make_experiment,
        choose_devices=choose_devices,
        run=run_and_print,
        name=lambda first, config: f"{first}-{config.learner_name}-{config.seed}",
        presets="train",
        first="environment",
        choice="a game's name such as CartPole-v1,",
        load=config_of,
    )


def distributed() -> Command:
    """`python -m marl.distributed ENVIRONMENT [options]`: train learners by actors, in environments of other libraries.

    ENVIRONMENT is one of Gymnasium's such as CartPole-v1 or ALE/Pong-v5, one of PettingZoo's such as pistonball_v6, one of
    our own games, one of the presets below, each a system of the literature, or the path of a YAML file. envpool(NAME) and
    games(NAME) choose the library. `python -m marl.distributed --resume DIR` continues a
    stopped run.
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

    drift: the term that keeps PPO's policy near the one that gathered the data, as in Lu et al., Discovered Policy
    Optimisation (2022), arXiv:2210.05639. value_loss: the distance of a value from its target. ENVIRONMENT
    is a game such as CartPole-v1, one of the presets below, or the path of a YAML file; in a game of several players all
    have the objective, and their joint reward is the fitness. `python -m marl.discover --resume DIR` continues a stopped
    run.

    `ppo(objective='DIR')`, or `ppo(value_loss='DIR')`, is a learner with the objective of a run.
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


def meva() -> Command:
    """`python -m marl.meva PRESET [options]`: train MeVa's meta-values, and write them to a file.

    PRESET is one of the presets below or the path of a YAML file. The file is an opponent: "meva(file='...')".
    """
    from marl.experiments.file_command import checked
    from marl.experiments.meva_training import MetaValueConfig, make_meta_values

    return Command(
        config=MetaValueConfig,
        prepare=checked,
        run=make_meta_values,
        output=ToFile,
        name=lambda preset, config: f"meva-{config.game}.safetensors",
        presets="meva",
    )


def mmaml() -> Command:
    """`python -m marl.mmaml PRESET [options]`: meta-learn initial parameters of a naive learner (M-MAML).

    PRESET is one of the presets below or the path of a YAML file. The command writes a file, which is an opponent:
    "mmaml(file='...')".
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


def agents() -> Command:
    """`python -m marl.agents [NAME]`: list the trained agents that come with the library, or show the card of one.

    `marl.load_agent('NAME')` loads an agent; on command lines it is hub:NAME, as in `python -m marl.play ipd hub:NAME`.
    --again DIR trains it again by its command.
    """
    from marl.experiments.saved.agent_catalogue import AgentsConfig, checked, run

    return Command(
        config=AgentsConfig,
        prepare=checked,
        run=run,
        output=Nothing,
        first="",
    )


def export() -> Command:
    """`python -m marl.export DIR [options]`: write a trained policy as a file of C without dependencies.

    DIR is a run directory of marl.train or marl.distributed, or its learner.safetensors. The file has one function,
    from an observation to the action without exploration. Layers with less than half of their weights are stored in
    compressed rows. With a C compiler at hand, the function is compared with the learner, and its speed is measured.
    """
    from marl.experiments.export import ExportConfig, checked, export

    return Command(
        config=ExportConfig,
        prepare=checked,
        run=export,
        output=Nothing,
        first="",
    )


def report() -> Command:
    """`python -m marl.report DIR`: write the report of a run again, from the files of its directory.

    DIR is the run directory of any command. Every command writes DIR/report.html at its end: one page for a browser with
    the result, tables, figures, curves, settings and versions. It loads nothing from elsewhere.
    """
    from meta.runs.reports.run_report import ReportConfig, prepare, report_again

    return Command(config=ReportConfig, prepare=prepare, run=report_again, output=Quiet, first="")


def compare() -> Command:
    """`python -m marl.compare RUN RUN ... [options]`: put runs side by side, in one page and one CSV file.

    RUN is the directory of a finished run. Runs that differ in their seeds alone are trainings of one method; a run of
    several seeds has several. For each method and game the page has the interquartile mean of a score with a 95 %
    stratified bootstrap interval over trainings, the probability that a training of one method scores higher than one of
    another, and curves with bands.
    """
    from meta.runs.reports.comparison import CompareConfig, compare, prepare

    return Command(config=CompareConfig, prepare=prepare, run=compare, output=Quiet, first="")


def reproduce() -> Command:
    """`python -m marl.reproduce EXPERIMENT [options]`: compare with the figures of the papers.

    mfos: the matrix games of Lu et al., Model-Free Opponent Shaping (2022), arXiv:2205.01447: learners head to head in
    three games, shapers evolved against each of them, meta-self-play. zd: a test of a shaper of the prisoner's dilemma for
    zero-determinant extortion. generalists: shapers trained against one learner or many, evaluated against others too.
    shaper: Khan et al., Scaling Opponent Shaping to High Dimensional Games (2023),
    arXiv:2312.12568: shapers in sampled games: repeated games, the coin game, in the matrix. coin_game: recent learners,
    each trained with its kind, then all against all, as in Duque et al., Advantage Alignment Algorithms (2024),
    arXiv:2406.14662. discovery: evolved drifts of PPO and losses of values, as in Lu et al., Discovered Policy
    Optimisation (2022), arXiv:2210.05639, against PPO that is tuned as long. distillation: the evolved
    objectives as networks of one unit and as closed formulas. rlx2: TD3 with a twelfth of its weights, as in
    Tan et al., RLx2 (2023), arXiv:2205.15043. sparse: shapers of sparse learners. social: PPO, MAPPO and PQN with one
    network for all players. in_context: a pool of policies and learners, as in Weis et al. (2026), arXiv:2602.16301.
    Each experiment prints its time beforehand, and writes report.md, report.json and figures. --resume DIR continues a
    stopped run, and repeats nothing.
    """
    from marl.experiments.reproduce.config import (
        CoinGameConfig,
        DiscoveryClaimsConfig,
        DistillationConfig,
        GeneralistsConfig,
        InContextConfig,
        MfosConfig,
        OfSamples,
        Rlx2Config,
        ShaperConfig,
        SocialConfig,
        SparseConfig,
        ZdConfig,
        checked,
    )
    from marl.experiments.reproduce.papers import reproduce

    return Command(
        config={
            "mfos": MfosConfig,
            "zd": ZdConfig,
            "generalists": GeneralistsConfig,
            "shaper": ShaperConfig,
            "coin_game": CoinGameConfig,
            "discovery": DiscoveryClaimsConfig,
            "distillation": DistillationConfig,
            "rlx2": Rlx2Config,
            "sparse": SparseConfig,
            "social": SocialConfig,
            "in_context": InContextConfig,
        },
        prepare=checked,
        choose_devices=lambda config: claim_cores() if isinstance(config, OfSamples) else None,
        run=reproduce,
        name=lambda experiment, config: f"reproduce-{experiment}",
        first="experiment",
        evolves=True,
    )
