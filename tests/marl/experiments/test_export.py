"""Policies as C: the code acts as the learner, and policies that cannot be exported are refused."""

import re
import shutil
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import configs
from games.registry import make_game
from marl.distributed.adapters.maker import make_env
from marl.distributed.seat_learners import make_learners
from marl.experiments import export
from marl.experiments.learner_training import TrainConfig
from marl.experiments.saved.load_agent import load_agent
from marl.experiments.single_agent import LEARNER_FILE
from marl.export import main
from marl.learners.registry import make_learner
from meta.runs import array_files
from tests.nightly import grid, nightly

pytestmark = pytest.mark.system

SPARSE = "sparsity='static(density=0.2)'"
SPECS = {
    f"td3(hidden=[24, 24], buffer_size=8, {SPARSE})": "Pendulum-v1",
    "sac(hidden=[7], buffer_size=8, normalize_observations=True, activation='tanh')": "reacher",
    f"ppo(hidden=[16, 16], normalize_observations=True, observation_epsilon=0.01, {SPARSE})": "CartPole-v1",
    "td3(hidden=[60, 60], buffer_size=8, sparsity='static(density=0.1, constant_fan_in=True)')": "Pendulum-v1",
    "ppo(hidden=[5], shared=True, activation='relu')": "Pendulum-v1",
    "dqn(network='feed_forward(hidden=[9])', buffer_size=8)": "CartPole-v1",
    "impala(hidden=[], head_weights=0.5)": "Acrobot-v1",
    "mappo(hidden=[6])": "public_goods(num_agents=3)",
}

ALWAYS = [spec for spec in SPECS if spec.startswith(("dqn", "ppo(hidden=[5]"))]


@pytest.fixture
def run(tmp_path):
    """Writes a file as by `marl.train`, of two seeds with running statistics."""

    def write(spec, environment):
        learner = make_learner(spec, make_game(environment))

        def state(key):
            found = jax.tree.map(
                lambda x: x + 0.1 * jax.random.normal(key, x.shape) * (x != 0) if x.dtype == jnp.float32 else x,
                learner.init(key),
            )
            if getattr(found, "statistics", None):
                found = found._replace(statistics=jax.tree.map(lambda x: x + 0.5, found.statistics))
            return found

        states = jax.vmap(state)(jax.random.split(jax.random.key(0)))
        config = TrainConfig(environment=environment, learner=spec)
        array_files.replace_arrays(
            tmp_path / LEARNER_FILE,
            jax.vmap(learner.policy)(states),
            {"method": "train", "config": configs.plain(config)},
        )
        return tmp_path

    return write


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
@pytest.mark.parametrize("spec", grid(SPECS, *ALWAYS))
def test_the_code_acts_as_the_learner(run, spec, tmp_path):
    folder = run(spec, SPECS[spec])
    stored = array_files.load_arrays(folder / LEARNER_FILE)[0]
    assert any(name.endswith("kernel.index") for name in stored) == ("fan_in" in spec)
    source = export.read(export.ExportConfig(str(folder), number=1))
    assert any(layer.is_sparse for layer in source.policy.layers) == ("sparsity" in spec)
    found = []
    for compressed in (True, False):
        folder = tmp_path / str(compressed)
        folder.mkdir()
        library = export.compiled(export.to_c(source.policy, spec, compressed=compressed), folder)
        call = export.caller(source.policy, library)
        assert export.disagreement(source, call) <= (0 if source.policy.best else 1e-5)
        obs = np.random.default_rng(1).normal(size=(20, *source.obs_shape))
        found.append(call(obs))
    assert len(np.unique(found[0])) > 1  # it depends on the observation
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_the_file_compiles_alone(run, tmp_path, monkeypatch, capsys):
    """The file is compiled with a main function as strict C99; the layers are computed by hand in float64."""
    spec = next(iter(SPECS))
    folder = run(spec, "Pendulum-v1")
    monkeypatch.chdir(tmp_path)
    assert main([str(folder), "--number=1"]) == 0
    said = capsys.readouterr().out
    assert "written to policy.c" in said
    program = 'int main(void) { float o[3] = {0.6f, -0.8f, 2}, a; policy(o, &a); printf("%.6f", a); return 0; }'
    (tmp_path / "main.c").write_text('#include <stdio.h>\n#include "policy.c"\n' + program)
    line = ["cc", "-std=c99", "-Wall", "-Werror", "-o", "main", "main.c", "-lm"]
    subprocess.run(line, check=True)
    x = np.array([0.6, -0.8, 2.0])
    layers = export.read(export.ExportConfig(str(folder), number=1)).policy.layers
    weights = sum(int((layer.kernel != 0).sum()) for layer in layers)
    assert f"is a function of C with {weights} of 672 weights in 3 layers. On 512 random" in said  # 24 * (3 + 24 + 1)
    assert float(re.search(r"differ from the learner's by (\S+) at most, and a call takes", said)[1]) < 1e-5
    for i, layer in enumerate(layers):
        x = x @ np.asarray(layer.kernel, np.float64) + layer.bias
        x = np.maximum(x, 0) if i < 2 else 2 * np.tanh(x)
    found = subprocess.run(["./main"], check=True, capture_output=True, text=True).stdout
    assert float(found) == pytest.approx(x[0], abs=1e-4)


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_actions_that_no_function_squashes_are_clipped_as_the_game_clips_them(run, tmp_path):
    """Pendulum's torque lies between -2 and 2; the last layer is made to leave it on both sides."""
    folder = run("ppo(hidden=[5])", "Pendulum-v1")
    arrays, about = array_files.load_arrays(folder / LEARNER_FILE)
    steep = {name: 1e4 * x if "Heads" in name and name.endswith("kernel") else x for name, x in arrays.items()}
    array_files.replace_arrays(folder / LEARNER_FILE, steep, about)
    source = export.read(export.ExportConfig(str(folder)))
    call = export.caller(source.policy, export.compiled(export.to_c(source.policy), tmp_path))
    obs = np.random.default_rng(0).normal(size=(50, 3))
    found = call(obs)
    assert (found.min(), found.max()) == (-2, 2)
    np.testing.assert_allclose(found, source.act_greedy(jnp.asarray(obs, jnp.float32)), atol=1e-4)


class Squares(gymnasium.Env):
    """Images of 40 pixels a side, which have the network of images."""

    observation_space = gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        del render_mode


@nightly
def test_a_run_that_saw_images_is_loaded_with_their_network_and_without_its_buffer(tmp_path, monkeypatch):
    spec = gymnasium.envs.registration.EnvSpec("Squares-v0", Squares)
    monkeypatch.setitem(gymnasium.registry, "Squares-v0", spec)
    env = make_env("Squares-v0")()
    learner = make_learners("r2d2(memory=16, buffer_size=64)", env.game, 1)[0]
    env.close()
    policy = learner.policy(learner.init(jax.random.key(0)))
    settings = {"learner": "r2d2(memory=16, buffer_size=2_000_000_000)", "environment": "Squares-v0"}
    array_files.replace_arrays(tmp_path / LEARNER_FILE, {"0": policy}, {"method": "distributed", "config": settings})
    agent = load_agent(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, agent.parameters, policy)


@nightly
@pytest.mark.parametrize("spec", ["r2d2(memory=4, buffer_size=8, batch_size=2)", "ape_x(hidden=[4], buffer_size=8)"])
def test_a_loaded_learner_does_not_explore_as_an_actor_of_many(run, spec):
    """The first of parallel environments acts at random in 40 % of its steps, for ever."""
    agent = load_agent(run(spec, "CartPole-v1"))
    learner = agent.learner(agent.parameters)
    obs = jnp.ones((1, 4))
    memory = learner.init_memory(agent.parameters, 1)
    keys = jax.random.split(jax.random.key(0), 100)
    actions = jax.vmap(lambda key: learner.act(key, agent.parameters, memory, obs)[0])(keys)
    assert len(np.unique(actions)) == 1


def test_players_of_actors_are_learners_of_their_own(tmp_path):
    specs, game = ["random", "ppo(hidden=[4])", "a2c(hidden=[3])"], make_game("public_goods(num_agents=3)")
    learners = [make_learner(spec, game, seat) for seat, spec in enumerate(specs)]
    policies = {str(i): one.policy(one.init(jax.random.key(i))) for i, one in enumerate(learners)}
    settings = {"learner": " + ".join(specs), "environment": "public_goods(num_agents=3)"}
    array_files.replace_arrays(tmp_path / LEARNER_FILE, policies, {"method": "distributed", "config": settings})
    found = [export.read(export.ExportConfig(str(tmp_path), number=number)).policy.layers for number in (1, 2)]
    assert [layers[0].kernel.shape[1] for layers in found] == [4, 3]
    with pytest.raises(ValueError, match="number: got 0; one of 1, 2 is needed"):
        export.read(export.ExportConfig(str(tmp_path)))


@pytest.mark.parametrize(
    ("spec", "environment", "arguments", "words"),
    [
        ("ppo(network='recurrent')", "CartPole-v1", [], "one of layers without memory, feed_forward, is needed"),
        ("ppo(hidden=[4])", "CartPole-v1", ["--number=2"], "number: got 2; one of 0, 1 is needed"),
        ("ppo(hidden=[4])", "CartPole-v1", ["--number=-1"], "number: got -1; a whole number of at least 0 is needed"),
        ("ppo(hidden=[4])", "CartPole-v1", ["--out=nowhere/p.c"], "out: got 'nowhere/p.c'; it cannot be written"),
    ],
)
def test_unsuitable_policies_are_refused(run, spec, environment, arguments, words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status = main([str(run(spec, environment)), *arguments])
    said = capsys.readouterr().err
    assert (status, said.count("\n")) == (1 if words.startswith("out:") else 2, 1), said
    assert words in said


def test_a_missing_run_is_refused(capsys, tmp_path):
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "directory: none given; a run directory of marl.train or marl.distributed is needed" in said
    assert main([str(tmp_path)]) == 2
    assert "there is no such file" in capsys.readouterr().err
    config = TrainConfig(environment="CartPole-v1", learner="random")
    array_files.replace_arrays(tmp_path / LEARNER_FILE, {}, {"method": "train", "config": configs.plain(config)})
    assert main([str(tmp_path)]) == 2
    assert "a learner with parameters is needed" in capsys.readouterr().err


def test_without_a_compiler_the_file_is_written_all_the_same(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export, "compiled", lambda code, folder: None)
    out = tmp_path / "p.c"
    assert main([str(run("ppo(hidden=[4])", "CartPole-v1")), f"--out={out}"]) == 0
    assert "No C compiler here works" in capsys.readouterr().out
    assert "int policy(const float *observation)" in out.read_text()


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_a_loaded_library_leaves_denormal_numbers_as_they_are(tmp_path):
    """In a process of its own, because GCC's -ffast-math would change all that follows in it."""
    code = (
        "import sys, pathlib, numpy as np; from marl.experiments.export import compiled\n"
        "assert compiled('float policy(float x) { return x; }', pathlib.Path(sys.argv[1]))\n"
        "assert np.float32(1e-40) * np.float32(0.5) > 0"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_compiler_has_options_or_does_not_work(tmp_path, monkeypatch):
    code = "int policy(const float *observation) { return observation[0] > 0; }"
    for compiler, works in (("cc -pthread", True), ("false", False), ("no-such-compiler", False)):
        monkeypatch.setenv("CC", compiler)
        assert bool(export.compiled(code, tmp_path)) == works
