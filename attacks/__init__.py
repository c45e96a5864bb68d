"""Who whispers: messages to a learner, evolved over its whole training to harm, help or control it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from attacks.trials import Life, Schedule, life_of, live, train_time_trial
else:

    def __getattr__(name):  # so that `import attacks` takes no time
        from configs.lazy import find

        return find(__name__, name)


__all__ = [
    "DEFENCES",
    "Comparison",
    "Defence",
    "Life",
    "Message",
    "Puppet",
    "Schedule",
    "constant",
    "control_trial",
    "controller_ppo",
    "disturbed",
    "echo",
    "ensemble",
    "goal_reward",
    "input_decay",
    "input_noise",
    "life_of",
    "linear",
    "live",
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
    "train_puppet",
    "train_time_trial",
    "turn",
    "undefended",
]


def __dir__() -> list[str]:
    return __all__
