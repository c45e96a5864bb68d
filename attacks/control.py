"""The attack at test time: a victim that learned under one message is then steered by another to goals not its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from attacks.messages import Message
from attacks.victim_training import MakeVictim, TrainingSchedule, VictimTraining, train_victim
from games import Game, Rollout
from games.core.arguments import check_arguments
from games.core.game import Actions, Scalar, Step, static
from games.core.modes import in_any_mode
from games.core.spaces import Box
from games.wrappers.cheap_talk import CheapTalk
from games.wrappers.goals import GoalConditioned, GoalState
from marl.blocks.distributions import distribution
from marl.blocks.networks import feed_forward
from marl.core.evaluate import act_best, evaluate
from marl.core.learn import learn
from marl.core.learner import Learner, keep_state
from marl.learners.sampled.ppo import ppo
from meta import Outcome

__all__ = ["Puppet", "control_trial", "controller_ppo", "goal_reward", "oracle", "speaker", "train_puppet"]


@struct.dataclass(eq=False)
class Puppet(GoalConditioned):
    """A game with goals, played through a victim that no longer learns: an action is the message that it hears.

    What is seen is [o, goal]; the victim sees [o, message], as in its training, and acts by its `act_greedy`, or
    by `act` without one. A learner of this game learns to control it.

    Actions: messages, `[message_size]`, in [-scale, scale]; beyond it they are clipped.

    Attributes:
      game: the bare game.
      victim_policy: what it has become.
      victim: the learner, without memory.
      message_size: entries of a message.
      scale: of messages.

    Raises:
      ValueError: for a game without goals, or a victim with memory.

    Source: Lu et al., Adversarial Cheap Talk (2023), arXiv:2211.11030, section 4.
    """

    victim_policy: Any
    victim: Learner = static(None)
    message_size: int = static(2)
    scale: Scalar = 2 * math.pi

    def __post_init__(self) -> None:
        GoalConditioned.__post_init__(self)
        if self.victim.reset_memory is not None:
            raise ValueError("victim: got a learner with memory; one whose actions depend on what it sees is needed")

    def step_env(self, key: jax.Array, state: GoalState, actions: Actions) -> Step[GoalState]:
        message = jnp.clip(jnp.asarray(actions["agent_0"], jnp.float32), -self.scale, self.scale)
        talk = CheapTalk(self.game, message, lambda parameters, obs: parameters, self.message_size)
        heard = talk.get_obs(state.bare)["agent_0"][None]  # learners act in a batch of environments
        memory = self.victim.init_memory(self.victim_policy, 1)  # statistics at most
        action, _ = act_best(self.victim, jax.random.fold_in(key, 0), self.victim_policy, memory, heard)
        return GoalConditioned.step_env(self, key, state, {"agent_0": action[0]})

    def get_avail_actions(self, state: GoalState) -> dict[str, jax.Array]:
        return Game.get_avail_actions(self, state)

    def action_space(self, agent: str) -> Box:
        return Box(-self.scale, self.scale, (self.message_size,))

    @property
    def name(self) -> str:
        return f"{self.game.name} through a puppet"


@check_arguments
def speaker(message: Message) -> Learner:
    """A player of `Puppet` that says what a message function of [o, goal] says; its state is the parameters.

    Args:
      message: of [o, goal].
    """

    def act(key: jax.Array, parameters: Any, memory: tuple[()], obs: jax.Array) -> tuple[jax.Array, tuple, tuple]:
        return jax.vmap(message.speak, (None, 0))(parameters, obs), memory, ()

    return Learner(init=message.init, act=act, update=keep_state)


@check_arguments
def controller_ppo(puppet: Game) -> Learner:
    """PPO as in the paper's public code for CartPole, which learns what to say.

    Two shared layers of 32 tanh units, 16 epochs of the full batch, learning rate 0.02, entropy 0.005.

    Args:
      puppet: the game.
    """
    messages, shape = distribution(puppet.action_space("agent_0")), puppet.observation_space("agent_0").shape
    network = feed_forward(shape, messages.num_outputs, num_scales=messages.num_scales, hidden=(32, 32), shared=True)
    return ppo(puppet, network=network, learning_rate=0.02, epochs=16, minibatches=1, entropy_coefficient=0.005)


def first_parameters(shaper: Message, controller: Message) -> Callable[[jax.Array], dict[str, Any]]:
    """`(key) -> {"shaper": ..., "controller": ...}`: where `evolve` begins, and what random ones are."""

    def init(key: jax.Array) -> dict[str, Any]:
        shaper_key, controller_key = jax.random.split(key)
        return {"shaper": shaper.init(shaper_key), "controller": controller.init(controller_key)}

    return init


@check_arguments
def train_puppet(
    key: jax.Array,
    game: Game,
    shaper: Message,
    parameters: Any,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    size: int = 2,
) -> tuple[Puppet, VictimTraining]:
    """A victim's training run under a shaper, as `train_victim`, and the game in which it is steered afterwards.

    Args:
      key: of the training run.
      game: the bare game; it has goals.
      shaper: what is said during the training run, of the observation.
      parameters: of the shaper.
      make_victim: `(game with cheap talk) -> learner`, without memory.
      schedule: of the training run.
      size: entries of a message.

    Raises:
      ValueError: for a game without goals, or a victim with memory.
    """
    victim = make_victim(shaper.talk(game, parameters, size))
    Puppet(game, None, victim)  # refuses what cannot be steered before it learns
    training = train_victim(key, game, shaper, parameters, make_victim, schedule, size=size)
    return Puppet(game, victim.policy(training.state), victim, size), training


@check_arguments
def goal_reward(
    key: jax.Array, puppet: Puppet, controller: Learner, state: Any, *, num_episodes: int, num_steps: int
) -> jax.Array:
    """The goal reward of a controlled victim in a step, `[]` in [0, 1].

    It is the sum of rewards over an episode, divided by `num_steps`, and the mean over fresh episodes, each with a goal
    of its own. A game that ends early pays nothing after its end.

    Args:
      key: of games and goals.
      puppet: with the victim.
      controller: plays it: `speaker(message)`, or what `oracle` trained.
      state: of the controller.
      num_episodes: played at once.
      num_steps: of an episode.
    """
    returns = evaluate(key, puppet, controller, state, num_episodes=num_episodes, num_steps=num_steps)
    return returns.mean() / num_steps


@check_arguments
def oracle(
    key: jax.Array, puppet: Puppet, *, num_updates: int = 64, steps_per_update: int = 256, num_envs: int = 4
) -> tuple[Learner, Any]:
    """A controller that learned to steer this very victim: (the learner, its state in the end).

    Args:
      key: of the learning.
      puppet: with the victim, which does not learn any more.
      num_updates: as of `learn`; 64 in the paper's CartPole, to 256.
      steps_per_update: as of `learn`.
      num_envs: as of `learn`.
    """
    controller = controller_ppo(puppet)
    history = learn(
        key, puppet, [controller], num_updates=num_updates, steps_per_update=steps_per_update, num_envs=num_envs
    )
    return controller, history.states[0]


@check_arguments
def control_trial(
    game: Game,
    shaper: Message,
    controller: Message,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    size: int = 2,
) -> Callable[[Any, jax.Array], Outcome]:
    """The trial of a shaper and a controller together: fitness is the `goal_reward` after the victim's training.

    The paper gives every candidate 4 victims, the `num_trials` of `evolve`, and 64 episodes with each.

    Args:
      game: the bare game; it has goals.
      shaper: what is said during the training run, of the observation.
      controller: what is said after it, of [o, goal].
      make_victim: `(game with cheap talk) -> learner`, without memory.
      schedule: of the training run; its episodes are also those of the control.
      size: entries of a message.

    Returns:
      `trial({"shaper": ..., "controller": ...}, key) -> Outcome`, with the metric `victim_return`: what the victim
      itself got in its own game under the shaper.
    """
    speak = speaker(controller)

    def trial(parameters: Any, key: jax.Array) -> Outcome:
        training_key, control_key = jax.random.split(key)
        puppet, training = train_puppet(
            training_key, game, shaper, parameters["shaper"], make_victim, schedule, size=size
        )
        how = {"num_episodes": schedule.num_episodes, "num_steps": schedule.num_steps}
        reward = goal_reward(control_key, puppet, speak, parameters["controller"], **how)
        return Outcome(reward, {"victim_return": training.final_return})

    return in_any_mode(trial)


class Comparison(NamedTuple):
    """Value of control, on one victim, or on more in leading axes.

    Attributes:
      goal_rewards: `[]` for each of ROWS
      victim_returns: `[]` for each of SHAPERS: under its talk, at the end of the training run
    """

    goal_rewards: dict[str, jax.Array]
    victim_returns: dict[str, jax.Array]


SHAPERS = ("evolved", "random", "silent")
PLAIN = ("silent_shaper", "random_shaper")  # shapers that are not evolved, for whose victims controllers are
BEST = "best_random_shaper"
ALONE = ("controller_alone", "controller_other_shaper")  # the evolved controller, for victims of others
BASELINES = (*PLAIN, *ALONE, "constant", "still", "random", "silent")  # without a shaper, or without a controller
ROWS = ("evolved", "oracle", "random_shaper_oracle", BEST, *BASELINES)
NUM_TRAININGS = 5  # of each victim: under an evolved, a random, a silent, another random and the best random shaper
NUM_CONSTANTS = 25  # messages of which the best is a baseline


def compare(
    key: jax.Array,
    game: Game,
    shaper: Message,
    controller: Message,
    parameters: Any,
    make_victim: MakeVictim,
    schedule: TrainingSchedule,
    *,
    num_updates: int = 64,
    steps_per_update: int | None = None,
    num_envs: int | None = None,
    size: int = 2,
) -> Comparison:
    """Evolved control beside its baselines, on a fresh victim; pure, to be batched over keys and compiled once.

    `evolved` is shaper and controller as evolved; `oracle` the evolved shaper and a controller that learned on the
    victim; `random_shaper_oracle` the same with a random shaper; `silent_shaper` and `random_shaper` are controllers
    that were evolved for the victims of silence, and of the random shaper that this victim hears;
    `best_random_shaper` is the one of the latter pairs with the highest fitness in its evolution: it was chosen among
    shapers, and so is no baseline; `controller_alone` and `controller_other_shaper` are the evolved controller before
    victims of silence and of a random shaper;
    `constant` is the evolved shaper and the message among `NUM_CONSTANTS` that does best without change, as other
    episodes with this victim have shown; `still` what it is worth if nothing moves from where an episode begins;
    `random` a random shaper and a random controller; `silent` zeros during the training run and a random controller
    after it.
    All rows share the keys of the victim's weights, of the games, of the goals, of the random functions and of the
    oracle's learning, so their differences are paired; but `still`, whose episodes begin elsewhere.

    Args:
      key: of everything.
      game: the bare game; it has goals.
      shaper: as of `control_trial`.
      controller: as of `control_trial`.
      parameters: `{"shaper": ..., "controller": ...}` as `evolved`; the same for each of `PLAIN` and for
        `BEST`, with a leading axis of which every victim draws an entry.
      make_victim: as of `control_trial`.
      schedule: as of `control_trial`.
      num_updates: of the oracle.
      steps_per_update: of the oracle; the victim's if None.
      num_envs: of the oracle; the victim's if None.
      size: entries of a message.
    """
    victim = make_victim(shaper.talk(game, parameters["evolved"]["shaper"], size))
    Puppet(game, None, victim)  # refuses what cannot be steered before anything learns

    random_key, training_key, oracle_key, control_key = jax.random.split(key, 4)
    constants_key, choice_key = jax.random.split(jax.random.fold_in(key, 4))
    drawn = first_parameters(shaper, controller)(random_key)
    drawer = jax.random.fold_in(key, 5)
    evolved = parameters["evolved"]
    silent, other, best = (_one_of(drawer, parameters[name]) for name in (*PLAIN, BEST))
    shapers = _stacked(*(one["shaper"] for one in (evolved, drawn, silent, other, best)))
    pairs = {  # the number of the shaper that a victim learns under, and the one whose controller it hears then
        "evolved": (0, evolved),
        "random": (1, drawn),
        "silent": (2, drawn),
        "silent_shaper": (2, silent),
        "random_shaper": (3, other),
        BEST: (4, best),
        "controller_alone": (2, evolved),
        "controller_other_shaper": (1, evolved),
    }
    trained_under = jnp.array([number for number, _ in pairs.values()])
    controllers = _stacked(*(one["controller"] for _, one in pairs.values()))

    def train_one(parameters: Any) -> VictimTraining:
        return train_victim(training_key, game, shaper, parameters, make_victim, schedule, size=size)

    def judged(puppet: Puppet, speaker: Learner, state: Any, key: jax.Array = control_key) -> jax.Array:
        episodes, steps = schedule.num_episodes, schedule.num_steps
        return goal_reward(key, puppet, speaker, state, num_episodes=episodes, num_steps=steps)

    def controlled(victim_policy: Any, parameters: Any) -> jax.Array:
        return judged(Puppet(game, victim_policy, victim, size), speaker(controller), parameters)

    def learned(victim_policy: Any) -> jax.Array:
        puppet = Puppet(game, victim_policy, victim, size)
        steps, envs = steps_per_update or schedule.steps_per_update, num_envs or schedule.num_envs
        taught = oracle(oracle_key, puppet, num_updates=num_updates, steps_per_update=steps, num_envs=envs)
        return judged(puppet, *taught)

    def unchanging(victim_policy: Any) -> jax.Array:
        puppet = Puppet(game, victim_policy, victim, size)
        said = speaker(Message(lambda key: jnp.zeros(size), lambda parameters, obs: parameters))
        constants = jax.random.uniform(constants_key, (NUM_CONSTANTS, size), minval=-puppet.scale, maxval=puppet.scale)
        rewards = jax.lax.map(lambda constant: judged(puppet, said, constant, choice_key), constants)
        return judged(puppet, said, constants[jnp.argmax(rewards)])

    trainings = jax.vmap(train_one)(shapers)
    policies = jax.vmap(victim.policy)(trainings.state)
    spoken = jax.vmap(controlled)(jax.tree.map(lambda x: x[trained_under], policies), controllers)
    rewards = dict(zip(pairs, spoken, strict=True))
    trained = jax.vmap(learned)(jax.tree.map(lambda x: x[:2], policies))
    rewards |= {"oracle": trained[0], "random_shaper_oracle": trained[1]}
    rewards["constant"] = unchanging(jax.tree.map(lambda x: x[0], policies))
    rewards["still"] = still_reward(control_key, GoalConditioned(game), num_episodes=schedule.num_episodes)
    returns = trainings.final_return[: len(SHAPERS)]
    return Comparison({name: rewards[name] for name in ROWS}, dict(zip(SHAPERS, returns, strict=True)))


def still_reward(key: jax.Array, game: GoalConditioned, *, num_episodes: int) -> jax.Array:
    """The reward of a step where nothing moves from where an episode begins, `[]`; the mean over fresh episodes."""
    states = jax.vmap(game.reset)(jax.random.split(key, num_episodes))[1]
    return jax.vmap(game.goal_reward)(states).mean()


def _one_of(key: jax.Array, several: Any) -> Any:
    """An entry of the leading axis, drawn evenly."""
    i = jax.random.randint(key, (), 0, len(jax.tree.leaves(several)[0]))
    return jax.tree.map(lambda x: x[i], several)


def _stacked(*trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def steer(
    key: jax.Array,
    puppet: Puppet,
    controller: Learner,
    state: Any,
    goals: jax.Array,
    *,
    steps_per_goal: int = 100,
) -> Rollout:
    """One victim is steered to several goals, one after the other: a rollout for `games.animate`.

    Time limits are not heeded; where the game ends by its rules it is reset, with the same goal.

    Args:
      key: of the game.
      puppet: with the victim.
      controller: as of `goal_reward`.
      state: of the controller.
      goals: `[G, size]`, in that order.
      steps_per_goal: steps of the game.

    Returns:
      A `Rollout` of the puppet, `[G * steps_per_goal]`.
    """

    def step(carry: Any, inputs: Any) -> Any:
        before, memory = carry
        goal, key = inputs
        act_key, step_key, reset_key = jax.random.split(key, 3)
        before = GoalState(before.bare, goal)
        seen = puppet.get_obs(before)
        batch = seen["agent_0"][None]
        message, memory = act_best(controller, act_key, policy, memory, batch)
        actions = {"agent_0": message[0]}
        after, state, rewards, dones, infos = puppet.step_env(step_key, before, actions)
        terminated = {agent: done & ~infos["truncated"][0] for agent, done in dones.items()}
        _, following = puppet.auto_reset(reset_key, after, state, terminated)
        return (following, memory), (seen, actions, rewards, terminated, infos, state)

    policy = controller.policy(state)
    reset_key, run_key = jax.random.split(key)
    first = GoalState(puppet.reset(reset_key)[1].bare, goals[0])
    inputs = jnp.repeat(goals, steps_per_goal, 0), jax.random.split(run_key, len(goals) * steps_per_goal)
    _, kept = jax.lax.scan(step, (first, controller.init_memory(policy, 1)), inputs)
    return Rollout(puppet, first, *kept)
