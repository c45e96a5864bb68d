"""Public names of `games`, imported when the first of them is used."""

# mypy: implicit-reexport
# ruff: noqa: F401

from games.core.game import Game
from games.core.metrics import SocialMetrics, social_metrics
from games.core.rollout import Rollout, random_actions, rollout
from games.core.spaces import Box, Discrete, MultiDiscrete
from games.exact import zd
from games.exact.differentiable import Differentiable, tandem
from games.exact.infinite import InfinitelyRepeated
from games.exact.matrix import (
    MatrixGame,
    battle_of_the_sexes,
    chicken,
    discounted_payoffs,
    hawk_dove,
    matching_pennies,
    matrix_games,
    prisoners_dilemma,
    stag_hunt,
    state_visits,
    symmetric,
)
from games.registry import make, names, register
from games.scripted import ScriptedPolicies, scripted_policies
from games.suite.coin_game import CoinGame
from games.suite.jaxmarl import JaxMARL, from_jaxmarl
from games.suite.random_co_players import RandomCoPlayers
from games.suite.rounds import RepeatedGame, repeated
from games.suite.social_dilemmas import SocialDilemma
from games.toolbox.drawing import animate
from games.wrappers.cheap_talk import CheapTalk
from games.wrappers.goals import GoalConditioned
from games.wrappers.social_rewards import InequityAversion, SelfInterest, SocialValueOrientation, common_reward
