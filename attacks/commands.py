"""Descriptions of the commands of `attacks`, one function each, whose docstring is the head of the command's --help."""

from __future__ import annotations

from functools import partial

from meta.runs.command import Command, Quiet


def act() -> Command:
    """`python -m attacks.act PRESET [options]`: evolve talk that makes a learner fail, thrive or obey.

    PRESET is one of the presets below or the path of a YAML file. A stopped run goes on with
    `python -m attacks.act --resume DIR`.
    """
    from attacks.experiments.config import AttackConfig
    from attacks.experiments.preparation import prepare
    from meta.runs.experiment import run_and_print

    return Command(
        config=AttackConfig,
        prepare=prepare,
        prepare_again=partial(prepare, begun=True),
        run=run_and_print,
        name=lambda preset, config: f"{preset}-{config.goal}-{config.seed}",
        presets="act",
        all_cores=True,
        evolves=True,
    )


def examine() -> Command:
    """`python -m attacks.examine DIR [options]`: does an attack work on other learners, and what helps against it?

    DIR is a finished run of `python -m attacks.act` with the goal harm or help. Victims of other algorithms, sizes and
    learning rates, on which nothing was evolved, and victims that defend themselves learn under its messages and in
    silence. Writes examination.json and figures/transfer.png and figures/defences.png there. What was found before it was
    stopped is kept: called again, it goes on.
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
    """`python -m attacks.reproduce act [options]`: the claims of Adversarial Cheap Talk, and whether they hold.

    An adversary and an ally are evolved in each environment, and a puppeteer where there are goals; then fresh victims show
    what came of it, learners on which nothing was evolved, and victims that defend themselves. Says beforehand how long it
    will take, and writes report.md, report.json and figures. A stopped run goes on with --resume DIR, and does nothing
    twice.
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
