"""Extensions: packages that are installed, and modules that `--import` names."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attacks
import games
import marl
from configs import ConfigError, plugins
from configs.specs import Registry
from marl.learners.registry import FORMULA
from marl.shapers import registry as shapers
from tests.nightly import nightly

PACKAGE = Path(__file__).parents[1] / "examples" / "package"


@pytest.fixture
def offered(monkeypatch):
    """Offers objects as an installed package does."""

    def offer(**objects):
        points = [metadata.EntryPoint(name, f"{__name__}:{name}", "group") for name in objects]
        monkeypatch.setattr(metadata.EntryPoint, "load", lambda point: objects[point.name]())
        monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "marl_shaping.tests" else [])
        monkeypatch.setattr(plugins, "_loaded", set())

    return offer


def test_a_name_is_looked_for_in_installed_packages_and_only_if_it_is_unknown(offered):
    def broken():
        raise ImportError("no such\nlibrary")

    offered(double=lambda: lambda x: 2 * x, broken=broken, own=lambda: lambda x: -x)
    registry = Registry("own", plugins=lambda: plugins.load("tests", registry.register))
    registry.register("own", lambda x: x)
    assert registry.make("function", "own", 3) == 3
    assert not plugins._loaded
    with pytest.warns(UserWarning, match="marl_shaping.tests") as warned:
        assert registry.make("function", "double", 3) == 6
    assert [str(one.message).partition(" of ")[0] for one in warned] == [
        "marl_shaping.tests: broken",
        "marl_shaping.tests: own",  # a name that is taken
    ]
    assert "(no such library)" in str(warned[0].message)
    assert registry.names() == ["own", "double"]
    assert registry.make("function", "own", 3) == 3


def test_a_shaper_of_a_package_says_by_its_return_type_what_it_plays():
    from marl.shapers.registry import _register_plugin

    def neither(game, seat):
        return None

    with pytest.raises(ValueError, match=r"returns None; the return type marl.Shaper or Policy is needed"):
        _register_plugin("neither", neither)


def test_modules_are_imported_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugins, "_imported", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "a_module_of_mine.py").write_text("x = 1")
    (tmp_path / "a_broken_module.py").write_text("1 / 0")
    rest = plugins.import_named(["ipd", "--import", "a_module_of_mine", "--seed=3", "--import=a_module_of_mine"])
    assert rest == ["ipd", "--seed=3"]
    assert sys.modules.pop("a_module_of_mine").x == 1
    assert plugins.imported() == ["--import", "a_module_of_mine"]
    assert plugins.missing("--import other --import a_module_of_mine --seed 3") == ["--import", "other"]
    for name, problem in (
        ("a_broken_module", "ZeroDivisionError: division by zero"),
        ("not_there", "ModuleNotFoundError"),
        ("../up", "it is no name of a module"),
        ("", "it is no name of a module"),
    ):
        with pytest.raises(ConfigError, match=f"--import: got '{name}'; a module that can be imported .*{problem}"):
            plugins.import_named(["--import", name])


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder into which the example package is installed."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "package"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)  # building leaves files there
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", str(folder), str(source)], check=True)
    return folder


@pytest.fixture
def with_package(installed, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(plugins, "_loaded", set())


@pytest.mark.system
def test_the_example_package_adds_what_it_names(with_package):
    game = games.InfinitelyRepeated(games.prisoners_dilemma)
    learner = marl.make_learner("sign_naive(step=0.25)", game, 1)
    state = learner.init(jax.random.key(0))
    players = [marl.make_learner("all_d", game, 0), learner]
    history = marl.learn(jax.random.key(1), game, players, num_updates=1)
    moved = np.abs(np.asarray(history.states[1].logits) - np.asarray(_first_logits(players, game)))
    np.testing.assert_allclose(moved, 0.25, atol=1e-6)
    assert state.logits.shape == (5,)
    shaper = marl.make_shaper("tilted(tilt=3)", game)
    key = jax.random.key(2)
    np.testing.assert_allclose(shaper.init(key), marl.shapers.good_shepherd(game).init(key) - 3, rtol=1e-6)
    assert "tilted" in marl.make_learner.__globals__["FORMULA"].names()  # untrained, it is a learner
    message = attacks.make_message("sine(frequency=2.0)", (3,), 2)
    np.testing.assert_allclose(message.speak(jnp.eye(3, 2), jnp.array([0.1, 0.2, 5])), np.sin([0.2, 0.4]), rtol=1e-5)
    deadlock = games.make("deadlock", episode_length=3)
    assert deadlock.episode_length == 3
    assert deadlock.payoffs[1][1].tolist() == [2.0, 2.0]


def _first_logits(players, game):
    """The logits with which the learner began: of the same key, before any step."""
    _, *keys = jax.random.split(jax.random.key(1), 2 + len(players))
    return players[1].init(keys[2]).logits


@nightly
def test_commands_know_the_names_of_an_installed_package(installed, environment, tmp_path):
    environment = environment | {"PYTHONPATH": os.pathsep.join([str(installed), str(PACKAGE.parents[1])])}

    def run(*arguments):
        line = [sys.executable, "-m", *arguments]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    listed = run("games")
    assert "Iterated deadlock: both prefer mutual defection" in listed.stdout
    tiny = ["--meta-steps=3", "--trials=1", "--evaluation-trials=4", "--discount=0", "--quiet"]
    tiny += ["--evolution.generations=2", "--evolution.population-size=4", "--out=run"]
    shaped = run("marl.mfos", "ipd", "--shaper=tilted", "--opponent=sign_naive(step=0.2)", *tiny)
    assert (shaped.returncode, shaped.stderr) == (0, "")
    assert marl.load_run(tmp_path / "run").config["shaper"] == "tilted"
    refused = run("marl.mfos", "ipd", "--opponent=sign_naiv", *tiny)
    assert refused.returncode == 2
    assert "did you mean sign_naive" in refused.stderr


@pytest.mark.system
def test_a_run_with_a_module_of_ones_own_goes_on_with_it(within, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "_imported", [])
    (tmp_path / "a_learner_of_mine.py").write_text(
        "import marl\nmarl.register_learner('slow', lambda game, seat: marl.naive(game, seat, learning_rate=0.01),"
        " replace=True)\nfrom marl.shapers.exact_policies import mfos\nmarl.register_shaper('habit', lambda game, seat:"
        " mfos(game.num_logits, hidden_units=2), kind='formula', replace=True)\n"
    )
    tiny = ["--opponent=slow", "--shaper=habit", "--meta-steps=3", "--trials=1", "--evaluation-trials=4", "--quiet"]
    tiny += ["--discount=0", "--evolution.population-size=4", "--evolution.generations=2", "--out=run"]
    own = ["--import", "a_learner_of_mine"]
    first = within("ipd", *tiny, *own, cwd=tmp_path, module="marl.mfos")
    assert (first.returncode, first.stderr) == (0, "")
    monkeypatch.setattr(plugins, "_imported", [])
    for one in (FORMULA, shapers.FORMULA):
        one.unregister("habit")
    with pytest.raises(ValueError, match=r"shaper: got 'habit'; .*run was begun with --import a_learner_of_mine$"):
        marl.load_agent(tmp_path / "run")
    without = within("--resume=run", cwd=tmp_path, module="marl.mfos")
    assert without.returncode == 2
    assert "which was begun with --import a_learner_of_mine; it is needed again" in without.stderr
    monkeypatch.delitem(sys.modules, "a_learner_of_mine")
    again = within("--resume=run", "--evolution.generations=3", "--quiet", *own, cwd=tmp_path, module="marl.mfos")
    assert again.returncode == 0, again.stderr
