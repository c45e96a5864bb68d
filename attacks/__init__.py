"""Who whispers: messages to a learner, evolved over its whole training to harm, help or control it."""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING

import marl_shaping as marl_shaping  # first: it reports a file that hides one of the packages

__all__ = [
    "DEFENCES",
    "Comparison",
    "Defence",
    "Message",
    "Puppet",
    "TrainingSchedule",
    "VictimTraining",
    "constant",
    "control_trial",
    "controller_ppo",
    "disturbed",
    "echo",
    "ensemble",
    "goal_reward",
    "input_decay",
    "input_noise",
    "linear",
    "lstm",
    "make_message",
    "masking",
    "message_dropout",
    "mlp",
    "oracle",
    "quadratic",
    "seeing",
    "speaker",
    "table",
    "train_in",
    "train_puppet",
    "train_time_trial",
    "train_victim",
    "turn",
    "undefended",
]

if TYPE_CHECKING:
    from attacks.public import *
else:

    def __getattr__(name):  # so that `import attacks` takes no time
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from attacks import public

        found = globals()[name] = getattr(public, name)
        return found


def __dir__() -> list[str]:
    return __all__
