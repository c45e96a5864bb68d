"""The API reference: every public name once, on a page for what a user does."""

from __future__ import annotations

import inspect
import types
from typing import Any

from docs.site.examples import EXAMPLES
from docs.site.names import ADAPTERS, find, public_names

# Page: its title, one sentence, and its sections, each with its names.
PAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "play": (
        "Games that are formulas or played step by step, and what plays and draws them.",
        "games",
        {
            "Make a game": "games.make games.names games.register games.Game",
            "Play a game": "games.rollout games.Rollout games.random_actions games.animate",
            "Spaces": "games.Box games.Discrete games.MultiDiscrete",
            "Exact games": """
                games.InfinitelyRepeated games.Differentiable games.tandem games.discounted_payoffs games.state_visits
            """,
            "Payoffs": """
                games.MatrixGame games.symmetric games.matrix_games games.prisoners_dilemma games.chicken
                games.stag_hunt games.battle_of_the_sexes games.hawk_dove games.matching_pennies
            """,
            "Zero-determinant strategies": """
                games.zd games.zd.zd_policy games.zd.least_chi games.zd.feasible_phi games.zd.fit games.zd.Fit
                games.zd.longest_extortion games.zd.observed_policy
                games.zd.exact_payoffs games.zd.random_policies games.zd.is_dilemma games.zd.CO_PLAYERS
                games.zd.MAX_RESIDUAL games.zd.IN_A_ROW games.zd.REPEAT
            """,
            "Sampled games": """
                games.RepeatedGame games.repeated games.CoinGame games.SocialDilemma games.JaxMARL games.from_jaxmarl
            """,
            "Games around games": """
                games.CheapTalk games.GoalConditioned games.SelfInterest games.common_reward games.InequityAversion
                games.SocialValueOrientation games.RandomCoPlayers
            """,
            "Social dilemmas": """
                games.social_metrics games.SocialMetrics games.scripted_policies games.ScriptedPolicies
            """,
            "In other libraries": " ".join(f"{module}.{name}" for module, names in ADAPTERS.items() for name in names),
        },
    ),
    "learn": (
        "The loop in which every player learns from scratch, and the learners.",
        "learners",
        {
            "The loop": """
                marl.learn marl.History marl.learning marl.shared marl.evaluate marl.evaluate_team marl.past_selves
                marl.stale
            """,
            "A learner": "marl.Learner marl.Trajectory marl.make_learner marl.register_learner",
            "Learners of exact games": """
                marl.naive marl.lookahead marl.lola marl.hola marl.sos marl.sga marl.cgd marl.pola marl.best_response
                marl.q_learning marl.follow marl.one_policy
            """,
            "Fixed strategies": """
                marl.memory_one marl.play_memory_one marl.always_cooperate marl.always_defect
            """,
            "Populations": "marl.population marl.Member",
            "Learners of sampled games": """
                marl.ppo marl.mappo marl.a2c marl.impala marl.a3c marl.dqn marl.ape_x marl.pqn marl.r2d2 marl.td3
                marl.sac marl.reinforce marl.naive_dice marl.lola_dice marl.pola_dice marl.advantage_alignment
                marl.proximal_advantage_alignment marl.loqa marl.reciprocator marl.ppi
            """,
            "Networks": """
                marl.Network marl.feed_forward marl.convolutional marl.recurrent marl.sparse marl.widen
            """,
        },
    ),
    "shape": (
        "Shapers, whose parameters are trained over whole learning runs of others and fixed within each.",
        "exact",
        {
            "Shapers": """
                marl.shapers marl.shapers.mfos marl.shapers.good_shepherd marl.shapers.shaper marl.shapers.counts
                marl.Shaper marl.shapers.Policy marl.make_shaper marl.register_shaper
            """,
            "Trials": "marl.shaping_trial marl.play_trials marl.play_sampled marl.Trials",
        },
    ),
    "attack": (
        "Messages to a learner that harm, help or control it, and defences against them.",
        "attacks",
        {
            "A victim's training run": """
                attacks.train_victim attacks.train_time_trial attacks.train_in attacks.TrainingSchedule
                attacks.VictimTraining
            """,
            "Messages": """
                attacks.messages attacks.Message attacks.make_message attacks.messages.mlp attacks.messages.linear
                attacks.messages.quadratic attacks.messages.lstm attacks.messages.table attacks.messages.turn
                attacks.messages.constant attacks.messages.echo attacks.register_message
            """,
            "Defences": """
                attacks.defences attacks.Defence attacks.defences.DEFENCES attacks.defences.undefended
                attacks.defences.message_dropout attacks.defences.masking attacks.defences.input_noise
                attacks.defences.input_decay attacks.defences.power_regularization attacks.defences.ensemble
                attacks.defences.seeing attacks.defences.disturbed
            """,
            "Control": """
                attacks.control attacks.control_trial attacks.control.Puppet attacks.control.train_puppet
                attacks.control.controller_ppo attacks.control.speaker attacks.control.goal_reward
                attacks.control.oracle
            """,
        },
    ),
    "evolve": (
        "Evolution of whatever a trial depends on, and the objectives that it may evolve.",
        "discovery",
        {
            "Evolution": """
                meta.evolve meta.Evolution meta.Outcome meta.Evolved meta.screen meta.Screened meta.strategy_names
                meta.scalarize meta.NonFiniteFitness
            """,
            "Objectives": """
                marl.objectives marl.objectives.Objective marl.objectives.clipped_surrogate
                marl.objectives.policy_gradient marl.objectives.dpo marl.objectives.quadratic_drift
                marl.objectives.with_drift marl.objectives.drift_network marl.objectives.learned
                marl.objectives.dice_objective marl.objectives.magic_box marl.objectives.Parametric
                marl.objectives.Timed marl.objectives.Aligned marl.objectives.NO_DRIFT
            """,
            "Losses of values": """
                marl.value_losses marl.value_losses.ValueLoss marl.value_losses.l2 marl.value_losses.clipped_l2
                marl.value_losses.huber marl.value_losses.expectile marl.value_losses.distance_network
                marl.value_losses.distance_of
            """,
        },
    ),
    "run": (
        "Run directories, configs, and learners spread over threads and machines.",
        "finished",
        {
            "Runs": "marl.load_run marl.SavedRun meta.RunDirectory",
            "Trained agents": "marl.load_agent marl.list_agents marl.Card marl.TrainedAgent marl.Adversary",
            "Shaping Bench": "marl.bench.Train marl.bench.Budget",
            "Trackers": "meta.Tracker meta.TrackedRun meta.MetricsRow meta.make_tracker",
            "Configs": """
                configs.load configs.presets configs.from_file configs.to_text configs.ConfigError configs.ContractError
            """,
            "Actors and learners": """
                marl.distributed marl.distributed.train marl.distributed.System marl.distributed.make_env
            """,
        },
    ),
}


def pages() -> dict[str, str]:
    """A page for each thing that a user does, and an index of all names.

    Raises:
      ValueError: for a public name on no page or on two, and for a name that is not public.
    """
    public = public_names()
    placed = [name for _, _, sections in PAGES.values() for names in sections.values() for name in names.split()]
    for name in sorted({*public, *placed}):
        if name not in public:
            raise ValueError(f"docs/site/api.py: {name} is no public name, or has a shorter path")
        if placed.count(name) != 1:
            raise ValueError(f"docs/site/api.py: {name} is placed {placed.count(name)} times; once is needed")
    written = {f"api/{page}.md": _page(page, public) for page in PAGES}
    return written | {"api/index.md": _index()}


def has_doctest(name: str) -> bool:
    """True if the docstring of a public name has an example; adapters are not imported."""
    return not _is_adapter(name) and ">>>" in (_about(find(name)) or "")


def _page(page: str, public: dict[str, list[str]]) -> str:
    sentence, guide, sections = PAGES[page]
    parts = [f"# {page.capitalize()}", f"{sentence} [Guide](../guides/{guide}.md), [all names](index.md)."]
    for title, names in sections.items():
        parts.append(f"## {title}")
        for name in names.split():
            parts.append(_entry(name, public[name]))
    return "\n\n".join(parts) + "\n"


def _entry(name: str, others: list[str]) -> str:
    """An object rendered by mkdocstrings, with its other paths and an example."""
    is_module = not _is_adapter(name) and isinstance(find(name), types.ModuleType)
    options = "".join(f"\n      {option}" for option in ("members: false", "show_source: false")) if is_module else ""
    parts = [f"::: {name}\n    options:\n      heading_level: 3{options}"]
    if others:
        anchors = "".join(f'<a id="{other}"></a>' for other in others)
        parts.append(f"{anchors}Also {', '.join(f'`{other}`' for other in others)}.")
    if name in EXAMPLES and not has_doctest(name):
        parts.append(f"Example:\n\n```python\n{EXAMPLES[name].strip()}\n```")
    return "\n\n".join(parts)


def _index() -> str:
    """All names in tables, with the first sentence of each docstring."""
    about = (
        "Every public name, by what it is used for; [types](types.md) that signatures name have a page of their own."
    )
    parts = ["# API reference", about]
    for page, (sentence, _, sections) in PAGES.items():
        parts += [f"## [{page.capitalize()}]({page}.md)", sentence]
        for title, names in sections.items():
            rows = [f"| [`{name}`]({page}.md#{name}) | {_first_sentence(name)} |" for name in names.split()]
            parts.append("\n".join([f"| {title} | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _first_sentence(name: str) -> str:
    if _is_adapter(name):
        return f"Games of this library in another one, by `{name.rpartition('.')[0]}`."
    line = (_about(find(name)) or "").split("\n\n")[0]
    sentence = " ".join(line.split()).split(". ")[0].rstrip(".:")
    return (sentence.replace("|", "\\|") + ".") if sentence else ""


def _about(found: Any) -> str | None:
    """The docstring of a function, a class or a module, and none of a value."""
    return inspect.getdoc(found) if isinstance(found, type | types.ModuleType) or inspect.isfunction(found) else None


def _is_adapter(name: str) -> bool:
    return name.rpartition(".")[0] in ADAPTERS
