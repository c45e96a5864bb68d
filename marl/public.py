"""Public names of `marl`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from marl import distributed, shapers
from marl.blocks import objectives, value_losses
from marl.blocks.network_growth import widen
from marl.blocks.networks import Network, convolutional, feed_forward, recurrent
from marl.blocks.sparse import sparse
from marl.core.evaluate import evaluate, evaluate_team
from marl.core.league import past_selves
from marl.core.learn import History, learn, learning
from marl.core.learner import Learner, Trajectory
from marl.core.policy_lag import stale
from marl.core.seats import shared
from marl.experiments.saved.load_agent import Adversary, TrainedAgent, load_agent
from marl.experiments.saved.saved_run import SavedRun, load_run
from marl.learners.exact.factories import cgd, hola, lola, lookahead, naive, pola, sga, sos
from marl.learners.exact.fixed import memory_one
from marl.learners.exact.model_free import best_response, q_learning
from marl.learners.exact.naive import follow, one_policy
from marl.learners.exact.population import Member, population
from marl.learners.registry import make_learner, register_learner
from marl.learners.sampled.alignment import advantage_alignment, proximal_advantage_alignment
from marl.learners.sampled.dice import naive_dice, reinforce
from marl.learners.sampled.dqn import ape_x, dqn
from marl.learners.sampled.fixed import always_cooperate, always_defect, play_memory_one
from marl.learners.sampled.impala import a3c, impala
from marl.learners.sampled.lola_dice import lola_dice, pola_dice
from marl.learners.sampled.loqa import loqa
from marl.learners.sampled.mappo import mappo
from marl.learners.sampled.ppi import ppi
from marl.learners.sampled.ppo import a2c, ppo
from marl.learners.sampled.pqn import pqn
from marl.learners.sampled.r2d2 import r2d2
from marl.learners.sampled.reciprocator import reciprocator
from marl.learners.sampled.sac import sac
from marl.learners.sampled.td3 import td3
from marl.shapers.exact_policies import Shaper
from marl.shapers.registry import make_shaper, register_shaper
from marl.shapers.trial import Trials, play_sampled, play_trials, shaping_trial
from marl.trained.catalogue import Card, list_agents
