"""Examples of games."""

from __future__ import annotations

_ZD = """
import numpy as np
from games import prisoners_dilemma, zd

policy = zd.zd_policy(prisoners_dilemma, chi=3, discount=0.96)
"""

EXAMPLES: dict[str, str] = {
    "games.make": "import games\n\nprint(games.make('coin_game', grid_size=5).observation_space('agent_0').shape)",
    "games.names": "import games\n\nprint(games.names()[:5])",
    "games.register": """
        import games

        games.register("long_ipd", lambda: games.make("ipd", episode_length=1000), "A long dilemma.")
        print(games.make("long_ipd").episode_length)
    """,
    "games.from_jaxmarl": """
        import jax
        import games

        game = games.from_jaxmarl("switch_riddle", num_agents=4)  # needs pip install "marl-shaping[jaxmarl]"
        print(games.rollout(jax.random.key(0), game, 6).rewards["agent_0"].shape)
    """,
    "games.JaxMARL": """
        import games

        print(games.from_jaxmarl("switch_riddle").num_agents)
    """,
    "games.Game": """
        import jax
        import games

        game = games.make("ipd")
        observations, state = game.reset(jax.random.key(0))
        step = game.step_env(jax.random.key(1), state, {"agent_0": 0, "agent_1": 1})
        print(step[2])  # the rewards of cooperation against defection
    """,
    "games.rollout": """
        import jax
        import games

        played = games.rollout(jax.random.key(0), games.make("coin_game"), num_steps=8)  # random play
        print(played.rewards["agent_0"])
    """,
    "games.ScriptedPolicies": """
        import jax.numpy as jnp
        import games

        class Mine(games.CoinGame):
            pass

        @games.scripted_policies.register
        def policies(game: Mine) -> games.ScriptedPolicies:
            stay, go = (lambda key, state, agent: jnp.int32(0)), (lambda key, state, agent: jnp.int32(1))
            return games.ScriptedPolicies(cooperate=stay, defect=go, meaning="stay, or go")

        print(games.scripted_policies(Mine()).meaning)
    """,
    "games.SocialMetrics": """
        import jax
        import games

        played = games.rollout(jax.random.key(0), games.make("harvest", episode_length=20), num_steps=20)
        print(games.social_metrics(played).counts["apples"])  # of each player, in one episode
    """,
    "games.common_reward": """
        import jax
        import games

        game = games.common_reward(games.make("ipd"))
        _, state = game.reset(jax.random.key(0))
        print(game.step_env(jax.random.key(1), state, {"agent_0": 0, "agent_1": 1})[2])  # both get the mean, -1.5
    """,
    "games.random_actions": """
        import jax
        import games

        game = games.make("coin_game")
        _, state = game.reset(jax.random.key(0))
        print(games.random_actions(jax.random.key(1), game, state))
    """,
    "games.animate": """
        import jax
        import games

        games.animate(games.rollout(jax.random.key(0), games.make("coin_game"), num_steps=8), "coins.gif")
    """,
    "games.Discrete": "import games\n\nprint(games.Discrete(3).contains(2), games.Discrete(3).contains(3))",
    "games.MultiDiscrete": "import games, jax\n\nprint(games.MultiDiscrete((3, 5)).sample(jax.random.key(0)))",
    "games.Box": "import games, jax\n\nprint(games.Box(-1.0, 1.0, (2,)).sample(jax.random.key(0)))",
    "games.InfinitelyRepeated": """
        import jax.numpy as jnp
        from games import InfinitelyRepeated, prisoners_dilemma

        game = InfinitelyRepeated(prisoners_dilemma, discount=0.96)
        defect, tit_for_tat = jnp.full(5, -50.0), jnp.array([50.0, 50, -50, 50, -50])
        print((1 - 0.96) * game.value(0, defect, tit_for_tat))  # -1.92: 0 in one round, -2 in all others
    """,
    "games.Differentiable": """
        import jax
        import games, marl

        game = games.Differentiable(games.tandem, num_parameters=1)
        history = marl.learn(jax.random.key(0), game, [marl.sos(game, seat) for seat in (0, 1)], num_updates=10)
        print(history.rewards[0])
    """,
    "games.tandem": "import games, jax.numpy as jnp\n\nprint(games.tandem(jnp.array([0.5]), jnp.array([0.5])))",
    "games.discounted_payoffs": """
        import jax.numpy as jnp
        import games

        print(games.discounted_payoffs(games.prisoners_dilemma, jnp.zeros(5), jnp.zeros(5), 0.96))  # -1.5 (1 / 0.04)
    """,
    "games.state_visits": """
        import jax.numpy as jnp
        import games

        print(games.state_visits(jnp.zeros(5), jnp.zeros(5), 0.96))  # of CC, CD, DC and DD
    """,
    "games.MatrixGame": """
        import games

        game = games.MatrixGame("mine", row=[[3, 0], [5, 1]], column=[[3, 5], [0, 1]])
        print(games.InfinitelyRepeated(game, discount=0.9).num_logits)
    """,
    "games.symmetric": "import games\n\nprint(games.symmetric('mine', [[3, 0], [5, 1]]).column)",
    "games.matrix_games": "import games\n\nprint(list(games.matrix_games))",
    "games.RepeatedGame": """
        import jax.numpy as jnp
        import games

        game = games.RepeatedGame(episode_length=10, discount=0.9)
        print(game.observation_space("agent_0").shape)
    """,
    "games.repeated": "import games\n\nprint(games.repeated(games.stag_hunt, episode_length=10).episode_length)",
    "games.CoinGame": "import games\n\nprint(games.CoinGame(grid_size=5).observation_space('agent_0').shape)",
    "games.SocialDilemma": "import games\n\nprint(games.make('public_goods', num_agents=3).agents)",
    "games.CheapTalk": """
        import jax
        import attacks, games

        message = attacks.make_message("linear", (4,), 2)
        talk = games.CheapTalk(games.make("CartPole-v1"), message.init(jax.random.key(0)), message.speak)
        print(talk.reset(jax.random.key(1))[0]["agent_0"])  # four numbers that it sees, two that it hears
    """,
    "games.GoalConditioned": """
        import jax
        import games

        game = games.GoalConditioned(games.make("Pendulum-v1"))
        print(game.reset(jax.random.key(0))[0]["agent_0"])  # the observation, then the goal
    """,
    "games.zd": f"{_ZD}print(policy, zd.fit(prisoners_dilemma, policy, discount=0.96).chi)",
    "games.zd.zd_policy": f"{_ZD}print(policy)  # at the start and after CC, CD, DC, DD",
    "games.zd.fit": f"{_ZD}print(zd.fit(prisoners_dilemma, policy, discount=0.96).chi)  # 3",
    "games.zd.Fit": f"{_ZD}print(zd.fit(prisoners_dilemma, policy, discount=0.96).extortionate)  # True",
    "games.zd.least_chi": f"{_ZD}print(zd.least_chi(prisoners_dilemma, discount=0.96))",
    "games.zd.is_dilemma": f"{_ZD}print(zd.is_dilemma(prisoners_dilemma))",
    "games.zd.longest_extortion": f"""{_ZD}policies = np.tile(policy, (2, 10, 1))  # of two trials of ten meta-steps
print(zd.longest_extortion(prisoners_dilemma, policies, discount=0.96))  # [10 10]""",
    "games.zd.random_policies": f"{_ZD}print(zd.random_policies(np.random.default_rng(0), number=2))",
    "games.zd.exact_payoffs": f"""{_ZD}others = zd.random_policies(np.random.default_rng(0), number=4)
print(zd.exact_payoffs(prisoners_dilemma, policy, others, discount=0.96))""",
    "games.Rollout": """
        import jax
        import games

        played = games.rollout(jax.random.key(0), games.make("coin_game"), num_steps=8)
        print(jax.tree.map(lambda x: x.shape, played.observations))  # eight steps and images
    """,
}
