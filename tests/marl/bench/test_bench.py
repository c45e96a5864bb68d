"""Shaping Bench: payoffs by the library's own trials, and the command."""

import copy
import dataclasses
import json
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import marl
from games import InfinitelyRepeated
from marl.bench import exact, protocol, verify
from marl.bench.experiment import PartConfig
from marl.bench.methods import called, function_of, is_function, make_method, source_of
from marl.bench.protocol import Budget, games_of, root_key, tasks
from marl.bench.tracks import Part
from marl.experiments.shaping.agents import save_agent
from marl.experiments.shaping.config import ExactShapingConfig
from marl.shapers.trial import play
from meta.run_keys import RunBranch
from tests.nightly import grid, nightly

TINY = Budget("small", 2, 4, 1)
SHORT = 5  # learning steps


@pytest.fixture(scope="module", autouse=True)
def _short():
    """Short trials: what is compared is computed from the same constants."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (protocol, exact):
            patch.setattr(module, "META_STEPS", SHORT)
        patch.setattr("marl.bench.methods.META_STEPS", SHORT)
        patch.setattr(exact, "TRIALS", 8)
        yield


@pytest.fixture(scope="module")
def played():
    """Tit for tat against naive learners in all games, two trainings each."""
    return exact.play_track(make_method("tft"), "naive", [*tasks("naive")], TINY, seed=3, seeds=2)


def by_hand(name, training, learning_rate, steps, spec="tft"):
    game = InfinitelyRepeated(tasks(training=training)[name])
    player = marl.make_learner(spec, game)
    opponent = marl.make_learner(f"naive(learning_rate={learning_rate})", game, 1)
    keys = jax.random.split(jax.random.fold_in(root_key(training, name, "naive"), RunBranch.EVALUATION), 8)

    def trial(key):  # keys of the learning steps are split by their number: the longer trial is played for all forms
        rewards = play(key, game, player, opponent, meta_steps=2 * SHORT).rewards
        return [reward[1 : 1 + steps].mean() for reward in rewards]

    return [float(x.mean()) for x in jax.vmap(trial)(keys)]


@pytest.mark.parametrize(
    ("name", "training", "form", "learning_rate", "steps"),
    [
        ("random", 1, "training", 1.0, SHORT),
        ("chicken", 0, "slower", 0.5, SHORT),
        ("stag_hunt", 1, "faster", 2.0, SHORT),
        ("prisoners_dilemma", 0, "longer", 1.0, 2 * SHORT),
    ],
)
def test_payoffs_are_those_of_trials_with_this_form(played, name, training, form, learning_rate, steps):
    found = [side[form][[*tasks()].index(name), training] for side in played]
    np.testing.assert_allclose(found, by_hand(name, 3 + training, learning_rate, steps), rtol=1e-4)


def test_each_training_has_a_random_game_of_its_own_and_games_are_what_the_protocol_says():
    drawn = [tasks(training=i)["random"].row_payoffs for i in range(6)]
    assert len({tuple(x) for x in drawn[:5]}) == 5
    assert drawn[5] == drawn[0]
    assert all(-3 <= x <= 0 for row in drawn for x in row)
    assert "random" not in tasks("mmaml")
    arrays = games_of([*tasks().values()])
    assert arrays.beginnings.shape == (6, 2, 10, 5)
    np.testing.assert_array_equal(arrays.payoffs[2], [[3, 1, 4, 0], [3, 4, 1, 0]])


def test_beginnings_of_mmaml_are_those_of_its_files():
    game = InfinitelyRepeated(tasks()["matching_pennies"])
    ours = protocol.make_opponent("mmaml", jax.tree.map(lambda x: x[0], games_of([game.payoffs])), 1, 0.5)
    theirs = marl.make_learner("mmaml(learning_rate=0.5)", game, 1)
    for key in jax.random.split(jax.random.key(0), 3):
        assert np.array_equal(ours.init(key).logits, theirs.init(key).logits)
        assert float(ours.init(key).learning_rate) == 0.5


@pytest.mark.system
@pytest.mark.parametrize("opponent", grid(protocol.OPPONENTS, "naive", "mmaml", "q_learning"))
def test_every_opponent_meets_its_own_kind_in_every_form(opponent):
    games = games_of([tasks()["chicken"]] * 2)
    found = exact.play_forms(exact.own_kind(opponent), opponent, games, jax.random.split(jax.random.key(0)))
    assert found.shape == (4, 2, 2)
    assert np.isfinite(found).all()
    assert ((found >= 0) & (found <= 4)).all()
    assert len(np.unique(found[:, 0, 0])) == 4  # the forms differ


def test_a_pair_of_a_function_of_ones_own_has_the_parameters_of_its_training(monkeypatch):
    def train(game, opponent, budget, key):
        assert budget == TINY
        shift = float(game.payoffs.row_payoffs[0])  # a number of this training
        return lambda logits: marl.make_learner("all_c", game)._replace(init=lambda key: State(logits)), jnp.full(
            5, shift
        )

    State = type(marl.make_learner("all_c", InfinitelyRepeated(tasks()["chicken"])).init(jax.random.key(0)))
    monkeypatch.setitem(sys.modules, "own_module", type(sys)("own_module"))
    sys.modules["own_module"].train = train
    trained = make_method("own_module:train").train(
        "naive",
        [*tasks().values()],
        games_of([*tasks().values()]),
        TINY,
        jax.random.split(jax.random.key(0), 6),
        None,
        None,
        [0] * 6,
    )
    assert [list(one.runs) for one in trained] == [[0, 1, 2, 3, 4, 5]]
    firsts = [game.row_payoffs[0] for game in tasks().values()]
    np.testing.assert_allclose(trained[0].parameters[:, 0], firsts, rtol=1e-6)


def test_what_a_function_returns_is_checked_with_the_training_that_it_is_of():
    learner = marl.make_learner("tft", InfinitelyRepeated(tasks()["chicken"]))
    for player, message in (
        (42, "got returned 42; a marl.Learner, or a pair of a function and its parameters, is needed"),
        ((np.zeros(5), lambda x: learner), "a pair of a function and its parameters, is needed"),
        ((lambda x: learner, learner), "parameters that are no arrays"),
        ((lambda x: learner, np.array([0.0, np.nan])), "parameters that are not finite"),
        ((lambda x: x, np.zeros(5)), "a pair whose function makes"),
        (learner._replace(seat=1), "a learner for seat 1; one for seat 0 is needed"),
    ):
        with pytest.raises(ValueError, match="in chicken against naive") as refused:
            called("got", [("chicken against naive, seed 0", lambda player=player: player)])
        assert message in str(refused.value)
        assert str(refused.value).startswith("method: got returned")
    pairs = [(lambda x: learner, np.zeros(n)) for n in (4, 5)]
    with pytest.raises(ValueError, match=r"parameters \(5,\), after parameters \(4,\) in seed 0; .* in seed 1"):
        called("got", [(f"seed {i}", lambda pair=pair: pair) for i, pair in enumerate(pairs)])
    keyed = (lambda x: learner, {"key": jax.random.key(0), "logits": np.zeros(5, np.int8)})
    assert called("got", [("seed 0", lambda: keyed)])[0].parameters["key"].shape == (1,)

    def fails():
        raise ValueError("of the user")

    with pytest.raises(RuntimeError, match="own:train failed in chicken against lola, seed 3") as raised:
        called("own:train", [("chicken against lola, seed 3", fails)])
    assert str(raised.value.__cause__) == "of the user"


def test_a_function_is_found_in_the_current_directory_and_a_result_says_whose_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "found_here.py").write_text("def train(game, opponent, budget, key):\n    return 1\n")
    assert source_of("found_here:train")["packages"] == {}
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    assert function_of("found_here:train")(1, 2, 3, 4) == 1
    assert len(source_of("found_here:train")["sha256"]) == 64
    assert source_of("pytest:main")["packages"]["pytest"] == pytest.__version__
    assert not is_function("hub:mfos-ipd-naive")


def test_a_learner_that_needs_the_numbers_of_its_game_has_a_program_for_each_game():
    def insured(game, seat):
        return marl.make_learner("all_d" if float(game.payoffs.row_payoffs[3]) > -1.5 else "all_c", game)

    marl.register_learner("insured", insured, kind="formula", replace=True)
    chosen = [tasks(training=i)[name] for name in ("chicken", "prisoners_dilemma") for i in range(2)]
    found = make_method("insured").train("naive", chosen, games_of(chosen), TINY, None)
    assert [list(one.runs) for one in found] == [[0, 1], [2, 3]]
    first = [float(one.learner((), None).init(jax.random.key(0)).logits[0]) for one in found]
    assert first[0] < 0 < first[1]
    assert [list(one.runs) for one in make_method("tft").train("naive", chosen, games_of(chosen), TINY, None)] == [
        [0, 1, 2, 3]
    ]


@pytest.mark.system
def test_a_shaper_is_trained_for_each_game_and_training():
    found = exact.play_track(make_method("good_shepherd"), "naive", ["chicken"], TINY, seed=0, seeds=2)
    assert all(np.isfinite(side[form]).all() for side in found for form in protocol.FORMS)
    again = exact.play_track(make_method("good_shepherd"), "naive", ["chicken"], TINY, seed=1, seeds=1)
    np.testing.assert_allclose(again.method["training"][0, 0], found.method["training"][0, 1], rtol=1e-5)


def test_an_agent_plays_in_the_game_of_its_training_alone():
    found = exact.play_track(make_method("hub:good_shepherd-ipd-naive"), "naive", [*tasks()], TINY, seed=0, seeds=1)
    finite = np.isfinite(found.method["training"][:, 0])
    assert [name for name, there in zip(tasks(), finite, strict=True) if there] == ["prisoners_dilemma"]


def test_a_result_is_verified_in_both_payoffs_and_in_every_training(played):
    """Tit for tat again: the same bits hold, and a claim that is off in one payoff, or has none, does not."""
    method = make_method("tft")
    tables = {f: [side[f].tolist() for side in played] for f in protocol.FORMS}
    rows = {
        t: {"naive": {"payoffs": {f: [side[i] for side in x] for f, x in tables.items()}}}
        for i, t in enumerate(tasks())
    }
    honest = {"tasks": rows, "seed": 3, "trainings": 2, "size": "small", "track": "exact"}
    part = Part("naive", "naive", ("chicken", "random"))
    check = lambda result: verify.verify(  # noqa: E731
        verify.Checked(result, method, [part]), None, Console(quiet=True)
    )
    check(honest)
    for task, side, value in (("chicken", 1, 3.9), ("random", 0, -0.1), ("random", 1, float("nan"))):
        claimed = copy.deepcopy(honest)
        claimed["tasks"][task]["naive"]["payoffs"]["slower"][side][1] = value
        with pytest.raises(ValueError, match=r"^result: "):
            check(claimed)


def test_an_agent_of_any_random_game_of_the_bench_is_a_method(tmp_path):
    for number in (0, 3):
        game = protocol.random_game(number)
        payoffs = {side: tuple(map(float, getattr(game, side))) for side in ("row_payoffs", "column_payoffs")}
        config = ExactShapingConfig(**payoffs, hidden_units=2)
        shaper = config.make_shaper()
        save_agent(tmp_path / "shaper.safetensors", config, shaper.init(jax.random.key(0)))
        assert make_method(str(tmp_path / "shaper.safetensors")).kind == "agent"
    config = dataclasses.replace(config, row_payoffs=(1.0, 2.0, 3.0, 4.0))
    save_agent(tmp_path / "shaper.safetensors", config, shaper.init(jax.random.key(0)))
    with pytest.raises(ValueError, match="trained in a game that the bench does not have"):
        make_method(str(tmp_path / "shaper.safetensors"))


def test_parts_are_done_again_when_the_module_of_a_method_has_changed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_method.py").write_text("def train(game, opponent, budget, key):\n    return 1\n")
    part = PartConfig("own_method:train", "exact", "naive", "small", 1, 0)
    before = part.reads
    (tmp_path / "own_method.py").write_text("def train(game, opponent, budget, key):\n    return 2\n")
    assert before != part.reads
    names = ("hub:mfos-ipd-naive", "hub:good_shepherd-ipd-naive")
    assert len({PartConfig(name, "exact", "naive", "small", 1, 0).reads for name in names} - {""}) == 2
    assert PartConfig("tft", "exact", "naive", "small", 1, 0).reads == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tftt"], "method: got 'tftt'; did you mean tft or gtft?"),
        (["zd(chi=3)"], "in matching_pennies"),
        (["os:nothing"], "method: got 'os:nothing'; module 'os' has no attribute 'nothing'"),
        (["nowhere:train"], "method: got 'nowhere:train'; No module named 'nowhere'"),
        (["json"], " A function of the module json is written json:train."),
        (["json:dumps"], "; a function of (game, opponent, budget, key) is needed"),
        (["tft", "--opponents", "nave"], "opponents: got 'nave'; did you mean naive?"),
        (["tft", "--seeds=0"], "seeds: got 0; a whole number of at least 1 is needed"),
        (
            ["hub:shaper-ipd_sampled-tabular_ppo"],
            "method: got 'hub:shaper-ipd_sampled-tabular_ppo', trained in a sampled game",
        ),
        (["verify"], "result: got none; the file of a result is needed"),
    ],
)
def test_misfits_are_one_line(arguments, message, within, tmp_path):
    found = within(*arguments, cwd=tmp_path, module="marl.bench.__main__")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert message in found.stderr
    assert not list(tmp_path.iterdir())


@nightly
def test_a_killed_run_ends_as_an_unbroken_one_and_is_verified(environment, tmp_path, within):
    """Against naive learners alone, one training in each game."""
    line = [sys.executable, "-m", "marl.bench", "good_shepherd", "--opponents", "naive", "--seeds=1", "--quiet"]
    first = subprocess.Popen([*line, "--out=run"], cwd=tmp_path, env=environment)
    rows = tmp_path / "run" / "opponents" / "naive" / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not rows.is_file() or not rows.read_bytes():
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "run" / "result.json").exists()
    for arguments in (["--resume", "run", "--quiet"], ["good_shepherd", *line[4:], "--out=whole"]):
        done = subprocess.run([*line[:3], *arguments], cwd=tmp_path, env=environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "whole")]
    assert results[0]["tasks"] == results[1]["tasks"]
    assert results[0]["trials"] == 6 * 100 * 64 * 4
    assert len(results[0]["missing"]) == 35
    # A result that claims more is found out; the learners of a strategy need no training again.
    claimed = results[0] | {"method": "tft"}
    (tmp_path / "claimed.json").write_text(json.dumps(claimed))
    found = within("verify", "claimed.json", cwd=tmp_path, module="marl.bench.__main__")
    assert found.returncode == 1
    assert "result: is not what was played again: the largest difference is" in found.stderr
