"""Play of trained agents: fresh trials of a shaper, fresh episodes of a learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from configs import shown
from games import Discrete, Game, InfinitelyRepeated
from games.core.arguments import check_game
from games.registry import make_game
from marl.core.evaluate import evaluate
from marl.core.learner import Learner
from marl.core.learner_checks import check_key, check_number
from marl.experiments.learner_training import longest_episode
from marl.experiments.shaping.agents import Agent, check_spaces, make_agent
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig
from marl.shapers.trial import Trials, trials_of

AnyConfig = ExactShapingConfig | SampledShapingConfig


def play_agent(agent: Agent, opponent: Any, num_episodes: int, game: Any, key: jax.Array | None) -> Any:
    """Fresh trials or episodes of an agent; as `TrainedAgent.play`."""
    check_number("num_episodes", num_episodes)
    key = jax.random.key(0) if key is None else key
    check_key(key)
    config = agent.config
    if game is None:
        game = config.make_game() if config else agent.game
    game = make_game(game) if isinstance(game, str) else game
    check_game(game)
    if config is None:
        return _play_learner(agent, opponent, num_episodes, game, key)
    assert isinstance(config, AnyConfig)
    number, lengths = 1, {"episode_length": 1, "num_envs": 1}
    if isinstance(config, SampledShapingConfig):
        number, lengths = config.num_shapers, {"episode_length": config.episode_length, "num_envs": config.num_envs}
        for seat in range(number):
            check_spaces(agent.name, config, game, seat)
    elif not isinstance(game, InfinitelyRepeated) or game.num_logits != config.make_game().num_logits:
        raise ValueError(f"game: got {shown(game)}; an InfinitelyRepeated with a discount as in the training is needed")
    if opponent is None and config.is_self_play:
        name = f"{agent.name}/column_agent.safetensors"
        raise ValueError(f"opponent: got None, and this agent was trained by self-play; one such as {name!r} is needed")
    learners = _opponents(config.opponent if opponent is None else opponent, game, number, config)

    def play(parameters: Any, key: jax.Array) -> Trials:
        shapers, steps = [agent.learner(parameters)] * number, {"meta_steps": config.meta_steps}
        return trials_of(key, game, shapers, learners, num_trials=num_episodes, **steps, **lengths)

    return jax.jit(play)(agent.parameters, key)


def _opponents(opponent: Any, game: Any, first: int, config: AnyConfig) -> list[Learner]:
    """A learner for each seat from the first on."""
    seats = range(first, game.num_agents)
    if isinstance(opponent, Agent):
        opponent = [opponent.learner(opponent.parameters)] * len(seats)
    if not isinstance(opponent, str):
        learners = [opponent] if isinstance(opponent, Learner) else opponent
        if not isinstance(learners, Sequence) or not all(isinstance(one, Learner) for one in learners):
            raise ValueError(f"opponent: got {shown(opponent)}; a spec such as tft, or a learner for each, is needed")
        if len(learners) != len(seats):
            raise ValueError(f"opponent: got {len(learners)} learners; {len(seats)} of them are needed")
        return list(learners)
    updates = config.meta_steps if isinstance(config, SampledShapingConfig) else None
    agents = [make_agent(opponent, game, seat, num_updates=updates) for seat in seats]
    return [one.learner(one.parameters) for one in agents]


def _play_learner(agent: Agent, opponent: Any, num_episodes: int, game: Game, key: jax.Array) -> jax.Array:
    """Returns `[num_episodes]` of a learner that learns no more."""
    if opponent is not None or game.num_agents != 1:
        got = f"opponent: got {shown(opponent)}" if opponent is not None else f"game: got {game.num_agents} players"
        raise ValueError(f"{got}; a game of one player without an opponent is needed for {agent.name}")
    if type(game).step_env is Game.step_env:
        raise ValueError(f"game: got that of {agent.name}, which another library plays; one of games.make is needed")
    if agent.game and _spaces(game) != _spaces(agent.game):
        raise ValueError(f"game: got {_spaces(game)}; {_spaces(agent.game)} as in the training are needed")

    def play(parameters: Any, key: jax.Array) -> jax.Array:
        init_key, play_key = jax.random.split(key)
        learner = agent.learner(parameters)
        steps = {"num_episodes": num_episodes, "num_steps": longest_episode(game)}
        return evaluate(play_key, game, learner, learner.init(init_key), **steps)

    return jax.jit(play)(agent.parameters, key)


def _spaces(game: Game) -> str:
    observation, action = game.observation_space(game.agents[0]), game.action_space(game.agents[0])
    actions = f"{action.n} actions" if isinstance(action, Discrete) else f"actions of shape {action.shape}"
    return f"observations of shape {observation.shape} and {actions}"
