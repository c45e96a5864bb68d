"""Who learns: learners, shapers, and the loop in which they meet.

Learners and networks are here; shapers in `marl.shapers`, objectives in `marl.objectives`. Everybody is also known by a
name: `make_learner("lola(learning_rate=0.5)", game, seat=1)`, `make_shaper("mfos", game)`.
"""

# ruff: noqa: F403, F405

from typing import TYPE_CHECKING

import marl_shaping as marl_shaping  # first: it reports a file that hides one of the packages

__all__ = [
    "History",
    "Learner",
    "Member",
    "Network",
    "Shaper",
    "Trajectory",
    "Trials",
    "a2c",
    "a3c",
    "advantage_alignment",
    "always_cooperate",
    "always_defect",
    "ape_x",
    "best_response",
    "cgd",
    "convolutional",
    "dqn",
    "evaluate",
    "feed_forward",
    "follow",
    "hola",
    "impala",
    "learn",
    "load_agent",
    "lola",
    "lola_dice",
    "lookahead",
    "loqa",
    "make_learner",
    "make_shaper",
    "memory_one",
    "naive",
    "naive_dice",
    "objectives",
    "one_policy",
    "past_selves",
    "play_memory_one",
    "play_trials",
    "pola",
    "pola_dice",
    "population",
    "ppo",
    "proximal_advantage_alignment",
    "q_learning",
    "r2d2",
    "reciprocator",
    "recurrent",
    "register",
    "register_shaper",
    "reinforce",
    "sac",
    "sga",
    "shapers",
    "shaping_trial",
    "sos",
    "sparse",
    "stale",
    "td3",
]

if TYPE_CHECKING:
    from marl.public import *

    __version__: str
else:

    def __getattr__(name):  # so that `import marl` takes no time
        if name == "__version__":  # as it was installed
            from importlib import metadata

            return metadata.version("marl-shaping")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from marl import public

        found = globals()[name] = getattr(public, name)
        return found


def __dir__() -> list[str]:
    return __all__
