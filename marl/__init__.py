"""Who learns: learners, shapers, and the loop in which they meet."""

from marl.a2c import a2c
from marl.deep_learners import make_learner
from marl.dqn import dqn
from marl.evaluation import evaluate
from marl.learn import History, Learner, Trajectory, learn
from marl.naive import follow, naive
from marl.networks import Network, convolutional, feed_forward, recurrent
from marl.opponents import OPPONENTS, make_opponent
from marl.population import Member, population
from marl.ppo import clipped_surrogate, ppo
from marl.shapers import Shaper, good_shepherd, mfos, shaper
from marl.shaping import Trials, play_trials, shaping_trial
from marl.strategies import memory_one, play_memory_one
from marl.white_box import cgd, hola, lola, lookahead, pola, sga, sos
from marl.zd import Fit, fit, payoffs_against_random, zd_policy

__all__ = [
    "OPPONENTS",
    "Fit",
    "History",
    "Learner",
    "Member",
    "Network",
    "Shaper",
    "Trajectory",
    "Trials",
    "a2c",
    "cgd",
    "clipped_surrogate",
    "convolutional",
    "dqn",
    "evaluate",
    "feed_forward",
    "fit",
    "follow",
    "good_shepherd",
    "hola",
    "learn",
    "lola",
    "lookahead",
    "make_learner",
    "make_opponent",
    "memory_one",
    "mfos",
    "naive",
    "payoffs_against_random",
    "play_memory_one",
    "play_trials",
    "pola",
    "population",
    "ppo",
    "recurrent",
    "sga",
    "shaper",
    "shaping_trial",
    "sos",
    "zd_policy",
]
