"""The page of the API on types: what signatures of public functions name, and what is no public name itself."""

from __future__ import annotations

import importlib

SETTINGS = "Settings of learners"
# Groups of types by their paths, each with a sentence if its docstring says too little. Signatures link to them.
TYPES: dict[str, dict[str, str]] = {
    "Functions of a learner": {
        "marl.core.learner.InitFn": "",
        "marl.core.learner.ActFn": "",
        "marl.core.learner.UpdateFn": "",
        "marl.core.learner.PolicyFn": "",
        "marl.core.learner.InitMemoryFn": "",
        "marl.core.learner.ResetMemoryFn": "",
        "marl.core.learner.ActGreedyFn": "",
        "marl.core.learner.OutputsFn": "",
        "marl.core.learner.SyncFn": "",
        "marl.core.learner.GradientFn": "",
        "marl.core.learner.ApplyGradientFn": "",
        "marl.core.learner.Gradients": "",
        "marl.learners.registry.Make": "A function `(game, seat, **settings) -> learner`, for `register_learner`.",
        "marl.learners.sampled.alignment.Baseline": "The baseline of advantages, by name.",
        "marl.learners.registry.Kind": "The games that a learner plays: exact games (`formula`) or sampled ones.",
    },
    "Arrays of a learner": {
        "marl.core.learner.LearnerState": "All that learning needs, a pytree of arrays: weights, replay buffer, ...",
        "marl.core.learner.Parameters": "What acting needs of a state, a pytree of arrays; it alone travels to actors.",
        "marl.core.learner.Memory": "An actor's own between two steps, a pytree of arrays; `()` for none.",
        "marl.core.learner.Metrics": "Numbers of an update by their names.",
        "marl.core.learn.Carry": "",
        "marl.core.evaluate.TeamEvaluation": "",
        "marl.shapers.sampled_policies.Parameters": "The parameters of a shaper's policy, by their names.",
        "marl.shapers.sampled_policies.Memory": "The memory of a shaper's policy, `[N, ...]` each, by their names.",
    },
    SETTINGS: {
        "marl.learners.sampled.ppo.OneStepDetails": "",
        "marl.learners.sampled.ppo.Details": "",
        "marl.learners.sampled.impala.Optimizer": "The optimizer of IMPALA and its like, by name.",
        "marl.blocks.replay.Buffer": "",
        "marl.blocks.replay.Replay": "",
        "marl.blocks.replay.Priorities": "",
        "marl.learners.sampled.dqn.Exploration": "",
        "marl.learners.sampled.dqn.DQNPriorities": "",
        "marl.learners.sampled.pqn.FallingEpsilon": "",
        "marl.learners.sampled.off_policy.OffPolicyReplay": "",
        "marl.learners.sampled.off_policy.DynamicBuffer": "",
        "marl.learners.sampled.off_policy.Targets": "",
        "marl.learners.sampled.td3.TD3Targets": "",
        "marl.learners.sampled.td3.Noise": "",
        "marl.learners.sampled.sac.Entropy": "",
    },
    "Networks": {
        "marl.blocks.layers.Activation": "The activation of hidden layers, by name.",
        "marl.blocks.layers.Init": "The distribution of first weights, by name.",
        "marl.blocks.distributions.Distribution": "",
        "marl.blocks.sparse.Sparsity": "A function that turns an optimizer into one of sparse weights; `marl.sparse` "
        "returns it.",
        "marl.blocks.sparse.Topology": "The rule by which connections move during training.",
        "marl.blocks.sparse.Allocation": "The rule by which connections are divided among layers.",
    },
    "Games": {
        "games.core.game.State": "A pytree of arrays, by custom a `flax.struct` dataclass with the `time`.",
        "games.core.game.Observations": "An observation for each agent, by its name.",
        "games.core.game.Actions": "An action for each agent, by its name.",
        "games.core.game.Rewards": "A reward for each agent, by its name.",
        "games.core.game.Dones": "The end of the episode for each agent, by its name, and for all by `__all__`.",
        "games.core.game.Infos": "What a game counts in a step, by the names that its page explains.",
        "games.core.game.Step": "The result of `step_env`: observations, state, rewards, ends and infos.",
        "games.core.game.Scalar": "A number, or a float array of shape `[]`, which `vmap` may batch.",
        "games.core.spaces.Space": "Values of an observation or an action: a `Discrete`, a `MultiDiscrete` or a `Box`.",
        "games.scripted.Policy": "A function `(key, state, agent) -> action` that sees the whole state.",
        "games.wrappers.social_rewards.SocialRewards": "",
        "games.exact.matrix.Scalar": "A number, or a float array of shape `[]`, which `vmap` may batch.",
        "games.exact.differentiable.Payoffs": "A differentiable function of both parameter vectors: both payoffs.",
        "games.exact.infinite.RepeatedState": "",
        "games.suite.rounds.Rounds": "",
        "games.wrappers.goals.GoalState": "",
        "games.wrappers.cheap_talk.Speak": "A message function: `(parameters, observation) -> message`.",
        "games.wrappers.cheap_talk.Remember": "Its next memory: `(parameters, memory, observation) -> memory`.",
        "games.single_agent.Opponent": "A function `(key, observation) -> action` in JAX, an object with a memory, a "
        'learner, or the name of a fixed strategy such as `"tft"`.',
    },
    "Games in other libraries": {
        "games.gymnasium.SeatEnv": "",
        "games.gymnasium.SeatVectorEnv": "",
        "games.gymnax.SeatEnvironment": "",
        "games.jaxmarl.JaxMARLGame": "",
        "games.pettingzoo.ParallelGame": "",
        "games.pettingzoo.BatchedParallelGame": "",
        "games.stable_baselines3.SeatVecEnv": "",
    },
    "Attacks": {
        "attacks.victim_training.MakeVictim": "A function that makes the victim: it gets the game with cheap talk, and "
        "returns a learner of it, as `lambda talk: marl.make_learner('ppo', talk)` does.",
        "attacks.defences.Transform": "A change of observations: `(key, observations [N, entries]) -> observations`.",
    },
    "Agents of runs": {
        "marl.experiments.shaping.agents.Agent": "",
        "marl.experiments.shaping.config.ShapingConfig": "The config of `marl.mfos`, whose fields are its options.",
        "meta.runs.reading.RunFiles": "",
        "marl.bench.methods.Player": "A learner, or a pair of a function of parameters and the parameters.",
        "marl.experiments.saved.load_agent.Objective": "",
    },
    "Evolution and runs": {
        "configs.Part": "",
        "configs.Config": "The class of a config, a frozen dataclass.",
        "meta.evaluators.Evaluator": "",
        "meta.loop.Iterated": "",
        "meta.loop.Report": "A function of the generation, its metrics and the seconds so far; called after each "
        "transfer to the host.",
        "meta.loop.Store": "",
        "meta.strategies.Fall": "The curve along which step size and sigma fall, by name.",
        "meta.strategies.FitnessShaping": "The transformation of fitness before a strategy reads it, by name.",
        "meta.strategies.Noise": "The noise of a candidate's matrices, by name.",
        "meta.strategies.Sharing": "The candidates that share trials, by name.",
        "meta.runs.checkpoints.Metrics": "Metrics by their names, one row for each generation or update.",
        "meta.runs.directory.Warn": "A function that shows a line to the user.",
        "meta.runs.provenance.Record": "",
    },
    "Actors and learners": {
        "marl.distributed.runtime.Trained": "",
        "marl.distributed.vector_env.MakeVectorEnv": "A function without arguments that makes a vector environment.",
        "marl.distributed.adapters.maker.EnvMaker": "",
        "marl.distributed.system.Where": "The place of the actors, by name.",
        "marl.distributed.system.Path": "The way from actors to the learner, by name.",
        "marl.distributed.system.Inference": "The place where actions are computed, by name.",
        "marl.distributed.dispatcher.Broken": "",
    },
}
# Adapters are classes of other libraries, whose members are described there.
BARE = ("Games in other libraries", "Actors and learners", "Evolution and runs")


def pages() -> dict[str, str]:
    """One page, with an entry for each type."""
    parts = ["# Types", "Types that signatures name, by their modules. [Public names](index.md) are on other pages."]
    for group, types in TYPES.items():
        parts.append(f"## {group}")
        described = {path: sentence or _keys(path, group) for path, sentence in types.items()}
        parts += [_entry(path, sentence, bare=group in BARE) for path, sentence in described.items()]
    return {"api/types.md": "\n\n".join(parts) + "\n"}


def _keys(path: str, group: str) -> str:
    """The keys of a dict of settings, which the learner that takes it explains; empty for other groups."""
    if group != SETTINGS:
        return ""
    module, _, name = path.rpartition(".")
    keys = getattr(importlib.import_module(module), name).__annotations__
    return f"Keys: {', '.join(f'`{key}`' for key in keys)}. The arguments of the learner explain them."


def _entry(path: str, sentence: str, *, bare: bool) -> str:
    options = ["heading_level: 3", "show_source: false", "filters: ['!^_[^_]', '!^__repr__']"]
    options += ["show_bases: false"] + ["members: false"] * bare
    lines = "".join(f"\n      {option}" for option in options)
    return f"::: {path}\n    options:{lines}\n\n{sentence}".strip()
