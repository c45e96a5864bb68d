"""Descriptions of the commands of `attacks`, one function each, whose docstring is the head of the command's --help."""

from __future__ import annotations

from functools import partial

import configs
from meta.runs.command import Command, Quiet


def act() -> Command:
    """`python -m attacks.act PRESET [options]`: evolve messages that harm, help or control a learner.

    PRESET is one of the presets below or the path of a YAML file. `python -m attacks.act --resume DIR`
    continues a stopped run.
    """
    from attacks.experiments.config import AttackConfig
    from attacks.experiments.preparation import prepare
    from meta.runs.experiment import run_and_print

    def load(preset: str) -> AttackConfig:
        if preset not in configs.presets("act"):
            from games.registry import refuse_game  # here, because --help needs none of it

            refuse_game(preset, "cartpole", range(1, 2))
        return configs.load(AttackConfig, "act", preset)

    return Command(
        config=AttackConfig,
        load=load,
        prepare=prepare,
        prepare_again=partial(prepare, begun=True),
        run=run_and_print,
        name=lambda preset, config: f"{preset}-{config.goal}-{config.seed}",
        presets="act",
        all_cores=True,
        evolves=True,
    )


def examine() -> Command:
    """`python -m attacks.examine DIR [options]`: test an attack on other learners and against defences.

    DIR is a finished run of `python -m attacks.act` with the goal harm or help, or hub:NAME of an adversary that comes
    with the library. Victims of other algorithms, sizes and learning rates, and victims with defences, learn under its
    messages and in silence. The command writes examination.json, figures/transfer.png and figures/defences.png there.
    Called again after a stop, it continues.
    """
    from attacks.experiments.transfer import ExaminationConfig, checked, examine_and_show

    return Command(
        config=ExaminationConfig,
        prepare=checked,
        run=examine_and_show,
        output=Quiet,
        first="",
        all_cores=True,
    )


def reproduce() -> Command:
    """`python -m attacks.reproduce act [options]`: test the claims of Adversarial Cheap Talk.

    Messages that harm, help and, where there are goals, control are evolved in each environment. They are evaluated on
    fresh victims, on other learners, and on victims with defences. The command prints its time beforehand, and writes
    report.md, report.json and figures. --resume DIR continues a stopped run, and repeats nothing.
    """
    from attacks.experiments.reproduction import ReproduceConfig, checked, reproduce

    return Command(
        config=ReproduceConfig,
        run=reproduce,
        prepare=checked,
        name=lambda experiment, config: f"reproduce-{experiment}",
        presets="reproduce",
        first="experiment",
        all_cores=True,
        evolves=True,
    )
