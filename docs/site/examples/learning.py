"""Examples of learners and shapers."""

from __future__ import annotations

_GAME = """
import jax
import games, marl
from games import InfinitelyRepeated, prisoners_dilemma

game = InfinitelyRepeated(prisoners_dilemma)
"""
_PAIR = f"""{_GAME}
learners = [marl.lola(game), marl.naive(game, seat=1)]
"""
_SHAPE = f"""{_GAME}
shaper, opponent = marl.shapers.KIND(game), marl.naive(game, seat=1)
parameters = shaper.init(jax.random.key(0))
"""
_PLAY = """
trials = marl.play_trials(jax.random.key(1), game, shaper, parameters, opponent, meta_steps=10, num_trials=4)
print(trials.shaper_payoffs.mean(), trials.opponent_payoffs.mean())
"""
_SAMPLED_SHAPER = """
import jax
import games, marl

game = games.make("ipd", episode_length=8)
policy, opponent = marl.shapers.shaper(game, hidden_units=4), marl.make_learner("tabular_ppo", game, seat=1)
parameters = policy.init(jax.random.key(0))
history = marl.play_sampled(
    jax.random.key(1), game, policy, parameters, [opponent], meta_steps=2, episode_length=8, num_envs=2
)
print(history.rewards)  # of the shaper and of the opponent, `[2]` each
"""
_NETWORK = """
import jax
import games, marl

game = games.make("GAME")
network = marl.KIND(game.observation_space("agent_0").shape, num_outputs=game.action_space("agent_0").n)
learner = marl.ppo(game, network=network)
print(jax.tree.map(lambda x: x.shape, network.init(jax.random.key(0))))
"""

EXAMPLES: dict[str, str] = {
    "marl.learn": f"{_PAIR}print(marl.learn(jax.random.key(0), game, learners, num_updates=5).rewards)",
    "marl.History": f"{_PAIR}print(marl.learn(jax.random.key(0), game, learners, num_updates=5).states[0].logits)",
    "marl.learning": f"""{_PAIR}
begin, update = marl.learning(game, learners)
carry, run_key = begin(jax.random.key(0))
for key in jax.random.split(run_key, 3):
    carry, history = update(carry, key)
    print(history.rewards)  # of one update""",
    "marl.evaluate": """
        import jax
        import games, marl

        game = games.make("CartPole-v1", max_steps_in_episode=20)
        learner = marl.ppo(game)
        state = learner.init(jax.random.key(0))
        print(marl.evaluate(jax.random.key(1), game, learner, state, num_episodes=4, num_steps=20))  # returns, `[4]`
    """,
    "marl.past_selves": """
        import jax
        import games, marl

        game = games.make("ipd")
        learner = marl.make_learner("ppo(hidden=[8])", game)
        pair = [learner, marl.past_selves(learner, share=0.5, every=1)]
        history = marl.learn(jax.random.key(0), game, pair, num_updates=2, steps_per_update=16, num_envs=4)
        print(history.metrics[1]["against_past"])
    """,
    "marl.stale": """
        import jax
        import games, marl

        game = games.make("CartPole-v1")
        learner = marl.stale(marl.make_learner("impala(hidden=[8])", game), lag=1)
        history = marl.learn(jax.random.key(0), game, [learner], num_updates=2, steps_per_update=16, num_envs=4)
        print(history.rewards[0])
    """,
    "marl.Learner": f"""{_GAME}
stubborn = marl.Learner(
    init=lambda key: jax.random.normal(key, (5,)),
    act=lambda key, logits, memory, obs: (logits, memory, ()),
    update=lambda key, logits, trajectory: (logits, {{}}),
)
print(marl.learn(jax.random.key(0), game, [stubborn, marl.naive(game, seat=1)], num_updates=5).rewards[1])""",
    "marl.Trajectory": f"""{_PAIR}
history = marl.learn(jax.random.key(0), game, learners, num_updates=5, keep_trajectories=True)
print(history.trajectories[0].action.shape)  # five updates of one step, five logits""",
    "marl.make_learner": f"{_GAME}print(marl.make_learner('lola(learning_rate=0.5)', game, seat=1).seat)",
    "marl.register_learner": f"""{_GAME}
marl.register_learner("slow", lambda game, seat: marl.naive(game, seat, learning_rate=0.1), kind="formula")
print(marl.make_learner("slow", game).seat)""",
    "marl.follow": f"""{_GAME}
ascend = jax.grad(lambda own, other: game.value(0, own, other))
learner = marl.follow(ascend, init=lambda key: jax.random.normal(key, (5,)), learning_rate=0.5)
print(marl.learn(jax.random.key(0), game, [learner, marl.naive(game, seat=1)], num_updates=2).rewards[0])""",
    "marl.memory_one": f"""{_GAME}
learners = [marl.memory_one([0.9, 1, 0, 1, 0]), marl.naive(game, seat=1)]
print(marl.learn(jax.random.key(0), game, learners, num_updates=2).rewards[1])""",
    "marl.play_memory_one": """
        import jax
        import games, marl

        game = games.make("ipd")
        learners = [marl.play_memory_one([0.9, 1, 0, 1, 0]), marl.always_defect(game, seat=1)]
        print(marl.learn(jax.random.key(0), game, learners, num_updates=1, steps_per_update=16, num_envs=4).rewards)
    """,
    "marl.population": f"""{_GAME}
members = [marl.Member(lambda drawn: marl.naive(game, 1)), marl.Member(lambda drawn: marl.lola(game, 1))]
learners = [marl.naive(game), marl.population(members)]
print(marl.learn(jax.random.key(0), game, learners, num_updates=2).rewards[0])""",
    "marl.Member": f"""{_GAME}
member = marl.Member(lambda drawn: marl.naive(game, 1, **drawn), {{"learning_rate": (0.1, 3.0)}})
print(marl.learn(jax.random.key(0), game, [marl.naive(game), marl.population([member])], num_updates=2).rewards[0])""",
    "marl.Network": _NETWORK.replace("KIND", "feed_forward").replace("GAME", "CartPole-v1"),
    "marl.feed_forward": _NETWORK.replace("KIND", "feed_forward").replace("GAME", "CartPole-v1"),
    "marl.recurrent": _NETWORK.replace("KIND", "recurrent").replace("GAME", "CartPole-v1"),
    "marl.convolutional": _NETWORK.replace("KIND", "convolutional").replace("GAME", "coin_game"),
    "marl.sparse": """
        import games, marl

        learner = marl.ppo(games.make("CartPole-v1"), sparsity=marl.sparse(density=0.1, until=1_000))
        print(learner.seat)
    """,
    "marl.widen": """
        import jax
        import games, marl

        small, large = (marl.make_learner(f"ppo(hidden=[{units}])", games.make("CartPole-v1")) for units in (8, 16))
        grown = marl.widen(small.init(jax.random.key(0)), large.init(jax.random.key(1)))
        print(jax.tree.map(lambda x: x.shape, grown.params))
    """,
    "marl.shapers.mfos": _SHAPE.replace("KIND", "mfos") + _PLAY,
    "marl.shapers.good_shepherd": _SHAPE.replace("KIND", "good_shepherd") + _PLAY,
    "marl.shapers.shaper": _SHAPE.replace("KIND", "shaper") + _PLAY,
    "marl.shapers.counts": _SHAPE.replace("KIND", "counts") + _PLAY,
    "marl.Shaper": _SHAPE.replace("KIND", "mfos") + "print(shaper.learner(parameters).seat)",
    "marl.shapers.Policy": _SAMPLED_SHAPER,
    "marl.play_sampled": _SAMPLED_SHAPER,
    "marl.play_trials": _SHAPE.replace("KIND", "mfos") + _PLAY,
    "marl.Trials": _SHAPE.replace("KIND", "mfos") + _PLAY,
    "marl.make_shaper": f"{_GAME}print(marl.make_shaper('mfos(hidden_units=4)', game).learner)",
    "marl.register_shaper": f"""{_GAME}
marl.register_shaper("small", lambda game, seat: marl.shapers.mfos(game, seat, hidden_units=4), kind="formula")
print(marl.make_shaper("small", game).learner)""",
    "marl.shaping_trial": _SHAPE.replace("KIND", "mfos")
    + """
trial = marl.shaping_trial(game, shaper, opponent, meta_steps=10)
print(trial(parameters, jax.random.key(1)).fitness)  # what `evolve` maximises""",
    "marl.one_policy": f"""{_GAME}
kept = marl.naive(game)  # its state has `logits`
learner = marl.one_policy(kept.init, lambda key, state, trajectory: (state, {{}}))
print(marl.learn(jax.random.key(0), game, [learner, marl.naive(game, seat=1)], num_updates=2).rewards[1])""",
    "marl.load_run": """
        import marl
        from marl.train import main

        main(["CartPole-v1", "--total-steps", "2048", "--evaluation-episodes", "2", "--out", "run"])
        run = marl.load_run("run")
        print(run, run.summary["seeds"], sorted(run.metrics))
    """,
    "marl.SavedRun": """
        import marl
        from marl.train import main

        main(["CartPole-v1", "--total-steps", "2048", "--evaluation-episodes", "2", "--out", "run"])
        run = marl.load_run("run")
        run.plot().savefig("metrics.png")
        print(run.config["learner"], run.figures)
    """,
    "marl.load_agent": """
        import marl

        agent = marl.load_agent("mfos-ipd-naive")
        print(agent, agent.play("tft", num_episodes=4).shaper_payoffs.mean())
    """,
    "marl.list_agents": """
        import marl

        for name, card in marl.list_agents().items():
            print(name, card.results)
    """,
    "marl.Card": """
        import marl

        card = marl.list_agents()["mfos-ipd-naive"]
        print(card.conclusion, card.command, card.file, sep="\\n")
    """,
    "marl.TrainedAgent": """
        import marl

        shaper = marl.load_agent("good_shepherd-ipd-naive", number=0)
        trials = shaper.play("lola", num_episodes=4)
        print(trials.shaper_payoffs.mean(), trials.opponent_policies.shape)
    """,
    "marl.Adversary": """
        import attacks, jax, marl

        message = attacks.make_message("linear", (4,), 2)
        adversary = marl.Adversary("mine", message, message.init(jax.random.key(0)), config=None)
        print(adversary, adversary.message.speak(adversary.parameters, jax.numpy.ones(4)))
    """,
}
