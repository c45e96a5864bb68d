"""Public names of `attacks`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from attacks.control import (
    Comparison,
    Puppet,
    control_trial,
    controller_ppo,
    goal_reward,
    oracle,
    speaker,
    train_puppet,
)
from attacks.defences import (
    DEFENCES,
    Defence,
    disturbed,
    ensemble,
    input_decay,
    input_noise,
    masking,
    message_dropout,
    seeing,
    undefended,
)
from attacks.messages import Message, constant, echo, linear, lstm, make_message, mlp, quadratic, table, turn
from attacks.victim_training import TrainingSchedule, VictimTraining, train_in, train_time_trial, train_victim
