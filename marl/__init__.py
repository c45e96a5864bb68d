"""Who learns: learners, shapers, and the loop in which they meet.

Learners and networks are here; shapers in `marl.shapers`, objectives in `marl.objectives`. Everybody is also known by a
name: `make_learner("lola(learning_rate=0.5)", game, seat=1)`, `make_shaper("mfos", game)`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marl import shapers
    from marl.blocks import objectives
    from marl.blocks.networks import Network, convolutional, feed_forward, recurrent
    from marl.blocks.sparse import sparse
    from marl.core.evaluate import evaluate
    from marl.core.learn import History, Learner, Trajectory, learn
    from marl.core.past_selves import past_selves
    from marl.core.stale import stale
    from marl.experiments.shaping.agents import load_agent
    from marl.learners.exact.fixed import memory_one
    from marl.learners.exact.model_free import best_response, q_learning
    from marl.learners.exact.naive import follow, naive, one_policy
    from marl.learners.exact.population import Member, population
    from marl.learners.exact.white_box import cgd, hola, lola, lookahead, pola, sga, sos
    from marl.learners.registry import make_learner, register
    from marl.learners.sampled.alignment import advantage_alignment, proximal_advantage_alignment
    from marl.learners.sampled.dice import naive_dice, reinforce
    from marl.learners.sampled.dqn import ape_x, dqn
    from marl.learners.sampled.fixed import always_cooperate, always_defect, play_memory_one
    from marl.learners.sampled.impala import a3c, impala
    from marl.learners.sampled.lola import lola_dice, pola_dice
    from marl.learners.sampled.loqa import loqa
    from marl.learners.sampled.off_policy import sac, td3
    from marl.learners.sampled.ppo import a2c, ppo
    from marl.learners.sampled.r2d2 import r2d2
    from marl.learners.sampled.reciprocator import reciprocator
    from marl.shapers.exact import Shaper
    from marl.shapers.registry import make_shaper, register_shaper
    from marl.shapers.trial import Trials, play_trials, shaping_trial

    __version__: str
else:

    def __getattr__(name):  # so that `import marl` takes no time
        if name == "__version__":  # of what was installed
            from importlib import metadata

            return metadata.version("marl-shaping")
        from configs.lazy import find

        return find(__name__, name)


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


def __dir__() -> list[str]:
    return __all__
