"""Who learns: learners, shapers, and the loop in which they meet."""

from marl.learn import History, Learner, Trajectory, learn
from marl.naive import naive
from marl.shapers import Shaper, mfos
from marl.shaping import Trials, play, play_trials, shaping_trial
from marl.strategies import make_opponent, memory_one, play_memory_one
from marl.zd import Fit, fit, payoffs_against_random, zd_policy

__all__ = [
    "Fit",
    "History",
    "Learner",
    "Shaper",
    "Trajectory",
    "Trials",
    "fit",
    "learn",
    "make_opponent",
    "memory_one",
    "mfos",
    "naive",
    "payoffs_against_random",
    "play",
    "play_memory_one",
    "play_trials",
    "shaping_trial",
    "zd_policy",
]
