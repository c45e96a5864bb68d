"""Agents: their files, and one seat for agents of all kinds."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from games import InfinitelyRepeated, matrix_games
from games import make as make_game_with
from games.registry import make_game
from marl.core.evaluate import evaluate
from marl.experiments import export
from marl.experiments.saved.load_agent import load_agent
from marl.experiments.shaping.agents import AGENT_FILE, as_row, make_agent, save_agent, shaping_config
from marl.experiments.shaping.config import ExactShapingConfig
from marl.learners.exact import learner_switch
from marl.learners.exact.learner_switch import switch
from marl.learners.registry import make_learner
from marl.shapers.registry import drawn
from marl.shapers.trial import play
from meta import scalarize
from meta.runs import array_files
from tests.nightly import grid

GAME = InfinitelyRepeated(matrix_games["prisoners_dilemma"])
LATE = "mfos(observe='before')"
PENNIES = InfinitelyRepeated(matrix_games["matching_pennies"])


def trained(config):
    """Parameters at the start of a training run."""
    init = config.make_shaper().init
    return init(jax.random.key(3)) if config.seeds == 1 else jax.vmap(init)(jax.random.split(jax.random.key(3), 2))


@pytest.mark.parametrize("shaper", ["mfos", "good_shepherd", "shaper"])
def test_a_saved_agent_plays_as_before(tmp_path, shaper):
    config = ExactShapingConfig(shaper=shaper, hidden_units=4)
    parameters = trained(config)
    save_agent(tmp_path / AGENT_FILE, config, parameters)
    save_agent(tmp_path / AGENT_FILE, config, parameters)  # the older file is replaced
    agent = load_agent(tmp_path)
    assert agent.config == config
    jax.tree.map(np.testing.assert_array_equal, agent.parameters, parameters)
    learners = [make(p) for make, p in ((agent.learner, agent.parameters), (config.make_shaper().learner, parameters))]
    opponent = make_agent("all_c", GAME, 1).learner(())
    payoffs = [play(jax.random.key(1), GAME, one, opponent, meta_steps=3).rewards for one in learners]
    np.testing.assert_array_equal(*payoffs)
    assert [file.name for file in tmp_path.iterdir()] == [AGENT_FILE]


def test_each_of_two_seeds_is_drawn_half_of_the_time(tmp_path):
    config = ExactShapingConfig(shaper="good_shepherd", seeds=2)
    save_agent(tmp_path / "two.safetensors", config, jnp.stack([jnp.full(5, -1.0), jnp.full(5, 2.0)]))
    agent = load_agent(tmp_path / "two.safetensors")

    def second_action(key):
        learner = agent.learner(agent.parameters)
        policy = learner.policy(learner.init(key))
        memory = learner.act(key, policy, learner.init_memory(policy, None), jnp.zeros(10))[1]  # the first is random
        return learner.act(key, policy, memory, jnp.zeros(10))[0]

    actions = jax.jit(jax.vmap(second_action))(jax.random.split(jax.random.key(0), 1000))
    assert set(np.unique(actions)) == {-1.0, 2.0}
    assert np.all(actions == actions[:, :1])
    assert abs(np.mean(actions[:, 0] == 2.0) - 0.5) < 4 * 0.5 / 1000**0.5


def test_parameters_of_one_training_are_none_of_several(tmp_path):
    config = ExactShapingConfig(shaper="good_shepherd", seeds=2)
    save_agent(tmp_path / "two.safetensors", config, jnp.zeros((2, 5)))
    agent = load_agent(tmp_path / "two.safetensors")
    with pytest.raises(ValueError, match="parameters: got those of another shape; those of all 2 trainings are needed"):
        agent.learner(agent.parameters[0])
    load_agent(tmp_path / "two.safetensors", number=0).learner(agent.parameters[0])


def test_a_file_without_an_agent_is_refused_in_one_line(tmp_path):
    config = ExactShapingConfig(hidden_units=4)
    parameters = trained(config)
    path = tmp_path / "agent.safetensors"
    save_agent(path, config, parameters)
    whole = path.read_bytes()
    arrays, metadata = array_files.load_arrays(path)

    def written(**changes):
        path.unlink()
        array_files.replace_arrays(path, arrays | changes.pop("arrays", {}), metadata | changes)

    def cut():
        path.write_bytes(whole[:-20])

    for damage, words in (
        (cut, "cannot be read"),
        (partial(written, arrays={"w1": arrays["w1"][:3]}), "shape"),
        (partial(written, arrays={"b1": np.full(4, np.nan, np.float32)}), "not finite"),
        (partial(written, method="mmaml"), "trained shaper"),
        (partial(written, config={"shaper": "no_such_shaper"}), "no_such_shaper"),
        (path.unlink, "is needed"),
    ):
        damage()
        with pytest.raises(ValueError, match=words) as raised:
            load_agent(path)
        assert "\n" not in str(raised.value)


def test_an_agent_of_another_game_or_seat_is_refused(tmp_path):
    config = ExactShapingConfig(game="matching_pennies", shaper="good_shepherd")
    save_agent(tmp_path / AGENT_FILE, config, jnp.zeros(5))
    assert make_agent(str(tmp_path), PENNIES, 0).config == config
    for game, seat in ((PENNIES, 1), (GAME, 0)):
        with pytest.raises(ValueError, match="another game"):
            make_agent(str(tmp_path), game, seat)


def test_the_column_of_matching_pennies_is_the_row_of_the_game_with_both_payoffs_negated():
    seen = as_row(PENNIES, 1).payoffs
    assert (seen.row_payoffs, seen.column_payoffs) == ([-1.0, 1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0])
    assert as_row(as_row(PENNIES, 1), 1).payoffs.row_payoffs == PENNIES.payoffs.row_payoffs


def test_a_shaper_by_name_is_trained_against_its_opponent_once_for_both_seats_of_a_symmetric_game():
    first, second = (shaping_config("mfos:lola(learning_rate=0.5)", GAME, player, seed=2) for player in (0, 1))
    assert first == second
    assert (first.shaper, first.opponent, first.seed) == ("mfos", "lola(learning_rate=0.5)", 2)
    assert shaping_config("shaper", PENNIES, 1) != shaping_config("shaper", PENNIES, 0)
    assert shaping_config("naive", GAME, 0) is None


@pytest.fixture(scope="module")
def table():
    """A few agents, and a function that plays trials of two of them by number."""
    config = ExactShapingConfig(hidden_units=4)
    parameters = trained(config)
    names = ["naive", "lookahead(learning_rate=0.5)", "tft", "naive(learning_rate=[0.5, 2]) + tft"]
    seats = [
        [make_agent(name, GAME, player).learner(()) for name in names]
        + [replace(config, shaper=spec).make_shaper().learner(parameters) for spec in ("mfos", LATE)]
        for player in (0, 1)
    ]

    def by_number(key, row, column):
        players = switch(seats[0], row, GAME), switch(seats[1], column, GAME)
        return play(key, GAME, *players, meta_steps=4).rewards

    return seats, jax.jit(jax.vmap(scalarize(by_number), (0, None, None)))


@pytest.mark.system
@pytest.mark.parametrize("pair", grid([(0, 1), (4, 1), (3, 4), (4, 2), (5, 1), (3, 5)], (4, 2), (3, 5)))
def test_an_agent_chosen_by_number_plays_its_own_trial(table, pair):
    seats, by_number = table
    keys = jax.random.split(jax.random.key(5), 8)
    found = by_number(keys, *map(jnp.int32, pair))
    row, column = seats[0][pair[0]], seats[1][pair[1]]
    expected = jax.jit(jax.vmap(lambda key: play(key, GAME, row, column, meta_steps=4).rewards))(keys)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_learner_chosen_by_number_may_keep_a_key():
    """Whole numbers and keys are the same bits after a way as floats."""
    state = {"n": jnp.array([3, -1]), "key": jax.random.split(jax.random.key(7)), "x": jnp.float32(0.1)}
    packed = learner_switch._pack(state, learner_switch._size(state) + 2)
    assert len(packed) == 2 + 4 + 1 + 2
    found = learner_switch._unpack(packed, jax.eval_shape(lambda: state))
    assert (jax.random.key_data(found["key"]) == jax.random.key_data(state["key"])).all()
    np.testing.assert_array_equal(found["n"], state["n"])
    assert found["x"] == state["x"]


def test_a_shaper_chosen_by_number_sees_the_actions_that_were_played(table):
    seats, by_number = table
    keys = jax.random.split(jax.random.key(5), 8)
    early, late = (by_number(keys, jnp.int32(row), jnp.int32(1))[0] for row in (4, 5))
    assert np.abs(early[:, 2:] - late[:, 2:]).max() > 2e-3  # ten times the tolerance of a trial by number
    learner = seats[0][5]
    some = drawn(lambda key: jnp.int32(0), lambda which: learner, learner.reset_memory)
    found = jax.jit(jax.vmap(lambda key: play(key, GAME, some, seats[1][2], meta_steps=4, keep_trajectories=True)))(
        keys
    )
    before, seen = (np.asarray(x)[:, :, 0] for x in (found.trajectories[1].action, found.trajectories[0].obs))
    np.testing.assert_allclose(seen[:, 1:, 5:], jax.nn.sigmoid(before)[:, :-1], rtol=1e-6)


def test_two_shapers_see_the_last_action_of_each_other():
    def spy(learner):
        def act(key, policy, memory, obs):
            action, memory, _ = learner.act(key, policy, memory, obs)
            return action, memory, (obs, action)

        return learner._replace(act=act)

    config = ExactShapingConfig(hidden_units=4)
    one, two = (spy(config.make_shaper().learner(config.make_shaper().init(jax.random.key(i)))) for i in (0, 1))
    history = play(jax.random.key(2), GAME, one, two, meta_steps=3, keep_trajectories=True)
    for trajectory, other in (history.trajectories, history.trajectories[::-1]):
        seen, own = (np.asarray(x)[:, 0] for x in trajectory.extras)
        theirs = np.asarray(other.extras[1])[:, 0]
        expected = jax.nn.sigmoid(np.concatenate([own, theirs], 1)[:-1])
        np.testing.assert_allclose(seen[1:], expected, rtol=1e-6)


def test_a_directory_with_the_name_of_an_agent_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, game in (("zd", GAME), ("ppo", make_game("ipd"))):
        (tmp_path / name).mkdir()
        assert make_agent(name, game, 0).config is None
    with pytest.raises(ValueError, match="the file or the run's directory of a trained shaper"):
        make_agent("./zd", GAME, 0)


@pytest.mark.system
@pytest.mark.parametrize(
    ("game", "spec", "name", "value"),
    [
        # After 16 of 32 steps DQN explores as little as ever, and SAC's actions are no longer uniform.
        (
            "CartPole-v1",
            "dqn(hidden=[4], buffer_size=64, batch_size=4, learning_starts=8, epsilon_steps=16, epsilon_end=0.25)",
            "epsilon",
            0.25,
        ),
        ("Pendulum-v1", "sac(hidden=[4], buffer_size=64, batch_size=4, learning_starts=8)", "random", False),
    ],
)
def test_a_trained_learner_explores_as_at_its_end(within, tmp_path, game, spec, name, value):
    line = [game, f"--learner={spec}", "--num-envs=2", "--steps-per-update=8", "--total-steps=32"]
    done = within(*line, "--evaluation-episodes=2", "--quiet", "--out=run", cwd=tmp_path, module="marl.train")
    assert done.returncode == 0, done.stderr
    assert float(getattr(load_agent(tmp_path / "run").parameters, name)) == value


def test_a_learner_kept_without_its_exploration_acts_greedily():
    """Files of earlier versions have the parameters of DQN alone, whose first policy acts at random."""
    game, spec = make_game("CartPole-v1"), "dqn(hidden=[4], buffer_size=8)"
    learner = make_learner(spec, game)
    policy = learner.policy(learner.init(jax.random.key(1)))
    arrays = array_files.named_leaves({"params": policy.params})
    loaded, own = export.with_parameters(spec, game, 0, arrays, "a file")
    obs = jnp.tile(jnp.array([0.1, -0.2, 0.03, 0.4]), (64, 1))
    found, *_ = loaded.act(jax.random.key(2), own, loaded.init_memory(own, 64), obs)
    greedy, _ = learner.act_greedy(policy, learner.init_memory(policy, 64), obs)
    np.testing.assert_array_equal(found, greedy)
    explored, *_ = learner.act(jax.random.key(2), policy, learner.init_memory(policy, 64), obs)
    assert len(np.unique(explored)) == 2  # as it would act by the first policy


@pytest.mark.system
@pytest.mark.parametrize("spec", ["lola_dice", "loqa(hidden=[4])", "reciprocator(hidden=[4])"])
def test_a_learner_whose_policy_is_not_called_params_is_kept(within, tmp_path, spec):
    line = ["ipd", f"--learner={spec}", "--num-envs=2", "--steps-per-update=8", "--total-steps=32"]
    done = within(*line, "--evaluation-episodes=2", "--quiet", "--out=run", cwd=tmp_path, module="marl.train")
    assert done.returncode == 0, done.stderr
    agent = load_agent(tmp_path / "run")
    assert len_of(agent) > 4
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(agent.parameters))


@pytest.mark.system
def test_runs_of_all_kinds_are_loaded_and_printed_in_one_line(within, tmp_path):
    small = "ppo(hidden=[4], epochs=1, minibatches=1)"
    line = ["CartPole-v1(max_steps_in_episode=20)", f"--learner={small}", "--num-envs=2", "--steps-per-update=8"]
    line += ["--total-steps=32", "--evaluation-episodes=2", "--seeds=2", "--quiet", "--out=trained"]
    assert within(*line, cwd=tmp_path, module="marl.train").returncode == 0
    game = make_game_with("CartPole-v1", max_steps_in_episode=20)
    first, second = (load_agent(tmp_path / "trained", number=number) for number in (0, 1))
    assert repr(first) == f"Agent('{tmp_path / 'trained'} ({small})', {len_of(first)} parameters)"
    player = first.learner(first.parameters)
    returns = evaluate(jax.random.key(0), game, player, player.init(jax.random.key(0)), num_episodes=2, num_steps=20)
    assert (returns >= 1).all()
    assert any(
        (a != b).any() for a, b in zip(*map(jax.tree.leaves, (first.parameters, second.parameters)), strict=True)
    )
    with pytest.raises(ValueError, match="number: got 2; one of 0, 1 is needed"):
        load_agent(tmp_path / "trained", number=2)
    config = AttackConfig(environment="CartPole-v1", message="linear")
    message = resolve(config).message
    (tmp_path / "attack").mkdir()
    metadata = {"method": "attack", "config": configs.plain(config)}
    array_files.replace_arrays(tmp_path / "attack" / "adversary.safetensors", message.init(jax.random.key(0)), metadata)
    adversary = load_agent(tmp_path / "attack")
    assert repr(adversary) == f"Adversary('{tmp_path / 'attack'}', {len_of(adversary)} parameters)"
    jax.tree.map(np.testing.assert_array_equal, adversary.parameters, message.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="a trained shaper"):
        make_agent(str(tmp_path / "trained"), game, 0)


def len_of(agent):
    return sum(x.size for x in jax.tree.leaves(agent.parameters))
