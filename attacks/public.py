"""Public names of `attacks`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from attacks import control, defences, messages
from attacks.control import control_trial
from attacks.messages import Message, make_message, register_message
from attacks.victim_training import (
    Defence,
    TrainingSchedule,
    VictimTraining,
    train_in,
    train_time_trial,
    train_victim,
)
