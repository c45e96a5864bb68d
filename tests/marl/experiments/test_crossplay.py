"""The cross-play table: known head-to-head results, and what `python -m marl.crossplay` keeps."""

import contextlib
import csv
import gc
import io
import json
import math
import re
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import configs
from games import InfinitelyRepeated, matrix_games
from marl.crossplay import main
from marl.experiments.crossplay import table as crossplay_table
from marl.experiments.crossplay.config import CrossplayConfig
from marl.experiments.crossplay.experiment import _cells, line_up
from marl.experiments.crossplay.participants import Participant, split_agents
from marl.experiments.crossplay.table import COLUMNS
from marl.experiments.saved.load_agent import load_agent
from marl.experiments.shaping.agents import Agent, make_agent, pair_program, save_agent
from marl.experiments.shaping.config import ExactShapingConfig, SampledShapingConfig
from marl.learners.sampled import objective_registry
from marl.trained import folder
from meta import RunDirectory
from meta.runs import array_files
from meta.runs.array_files import load_arrays
from meta.statistics import with_error
from tests.nightly import nightly

pytestmark = pytest.mark.system

# Row's payoff with its standard error over 4096 pairs, by the public code of Lu et al. (2022).
PUBLISHED = {("naive", "naive"): -1.983, ("naive", "lola"): -1.516, ("lola", "naive"): -1.309, ("lola", "lola"): -1.09}
PUBLISHED_ERROR = 0.005
THREE = ["ipd", "--agents", "naive,all_d,mfos:tft"]
SMALL = [
    "--evolution.population-size=8",
    "--evolution.generations=4",
    "--evolution.checkpoint-seconds=0",
    "--trials=2",
    "--meta-steps=5",
    "--hidden-units=4",
    "--evaluation-trials=64",
    "--sampled-evaluation-trials=32",
]


def head_to_head(game_name, names, trials):
    """(mean, standard error) `[row, column, player]` each."""
    game = InfinitelyRepeated(matrix_games[game_name])
    seats = [[make_agent(name, game, seat) for name in names] for seat in (0, 1)]
    program = pair_program(game, seats, meta_steps=100)
    payoffs = np.empty((len(names), len(names), 2, trials))
    for i, j in np.ndindex(len(names), len(names)):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), len(names) * i + j), trials)
        payoffs[i, j] = program([[()] * len(names)] * 2, keys, jnp.int32(i), jnp.int32(j))
    return payoffs.mean(-1), payoffs.std(-1, ddof=1) / trials**0.5


@nightly
def test_naive_and_lola_get_what_was_measured_with_the_public_code():
    names = ["naive", "lola"]
    means, errors = head_to_head("prisoners_dilemma", names, 2048)
    for (row, column), expected in PUBLISHED.items():
        i, j = names.index(row), names.index(column)
        for mean, error in ((means[i, j, 0], errors[i, j, 0]), (means[j, i, 1], errors[j, i, 1])):
            assert abs(mean - expected) < 3 * math.hypot(error, PUBLISHED_ERROR), (row, column)


@nightly
def test_matching_pennies_is_antisymmetric():
    means, errors = head_to_head("matching_pennies", ["naive", "lola"], 1024)
    np.testing.assert_allclose(means[..., 0], -means[..., 1], atol=1e-4)  # a zero-sum game
    both = np.hypot(errors[..., 0], errors[..., 0].T)
    assert np.all(np.abs(means[..., 0] + means[..., 0].T) < 4 * both)


def test_only_commas_outside_brackets_separate_agents():
    text = 'naive, zd(chi=2, phi=0.1),mfos:naive(learning_rate=[0.1, 3]) + tft , axelrod(name="a, b"),'
    text += "ppo(value_loss='huber(delta=1.0)', hidden=[4, 4])"
    assert split_agents(text) == [
        "naive",
        "zd(chi=2, phi=0.1)",
        "mfos:naive(learning_rate=[0.1, 3]) + tft",
        'axelrod(name="a, b")',
        "ppo(value_loss='huber(delta=1.0)', hidden=[4, 4])",
    ]
    named = """naive lookahead lola hola2 sos cgd sga cola pola mmaml reinforce q_learning best_response mfos
        good_shepherd shaper all_c all_d tft wsls grim gtft random zd"""
    assert set(split_agents("all")) == set(named.split())
    for wrong in ("", " , ", "naive,naive"):
        with pytest.raises(ValueError, match=r"^agents: got "):
            split_agents(wrong)
    with pytest.raises(ValueError, match=r"agents: got 0\.9; five probabilities are memory_one\(probabilities="):
        split_agents("tft,0.9,1,0,1,0")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a small table, and its console output."""
    folder, output = tmp_path_factory.mktemp("table"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setattr(signal, "signal", lambda *_: None)  # the tests' own process keeps its handlers
        patch.chdir(folder)
        assert main([*THREE, *SMALL, "--out", "run"]) == 0
    return folder / "run", output.getvalue()


def rows(path):
    with (path / "crossplay.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_table_has_every_ordered_pair_and_its_config(finished):
    path, shown = finished
    table = rows(path)
    names = ["naive", "all_d", "mfos:tft"]
    assert list(table[0]) == COLUMNS
    assert [(row["row"], row["column"]) for row in table] == [(a, b) for a in names for b in names]
    assert all(row["num_trials"] == "64" for row in table)
    found = json.loads((path / "crossplay.json").read_text())
    assert [f"{pair['row_return']}" for pair in found["pairs"]] == [row["row_return"] for row in table]
    assert found["config"]["meta_steps"] == 5
    assert found["config_digest"] == json.loads((path / "run.json").read_text())["config_digest"]
    assert (path / "figures" / "crossplay.png").read_bytes()[:4] == b"\x89PNG"
    both_defect = table[4]
    assert float(both_defect["row_return"]) == pytest.approx(-2, abs=1e-5)
    assert float(both_defect["row_standard_error"]) == pytest.approx(0, abs=1e-6)
    for words in ("-2.000 ± 0.000", "training of mfos:tft, row, against tft", "mfos:tft, column: trained, cached", "±"):
        assert words in shown
    payoffs = np.array([float(row["row_return"]) for row in table]).reshape(3, 3)
    (least, *_, most), means = np.argsort(payoffs.mean(1)), payoffs.mean(1)
    ends = [f"{means[i]:.3f} per round ({payoffs[i, i]:.3f} against itself)" for i in (most, least)]
    assert f"columns, {names[most]} gets most, {ends[0]}, and {names[least]} least, {ends[1]}." in shown


def test_a_larger_table_trains_and_plays_only_new_agents(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    before, pairs = rows(path), (path / "pairs.jsonl").read_text()
    agents = {file.name: file.read_bytes() for file in (path / "agents").iterdir()}
    again = within("--resume", "run", cwd=path.parent, module="marl.crossplay")
    assert again.returncode == 0, again.stderr
    assert "training" not in again.stdout.replace("another training", "")
    assert "to play" not in again.stdout
    assert rows(path) == before
    agents_and_one_more = ("ipd", "--agents", "tft,naive,all_d,mfos:tft", *SMALL, "--out", "run")
    more = within(*agents_and_one_more, cwd=path.parent, module="marl.crossplay")
    assert more.returncode == 0, more.stderr
    assert "7 of 16 pairs to play" in more.stdout
    assert (path / "pairs.jsonl").read_text().startswith(pairs)
    assert {file.name: file.read_bytes() for file in (path / "agents").iterdir()} == agents
    assert [row for row in rows(path) if "tft" not in (row["row"], row["column"])] == before


@nightly
def test_a_killed_run_is_resumed_with_the_files_of_an_unbroken_one(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    first, whole = rows(path), (path / "pairs.jsonl").read_text()
    for file in ("crossplay.csv", "crossplay.json"):
        (path / file).unlink()
    kept = whole.splitlines(keepends=True)[:5]
    (path / "pairs.jsonl").write_text("".join(kept)[:-5])  # the last line cut short
    again = within("ipd", "--resume", "run", cwd=tmp_path, module="marl.crossplay")
    assert again.returncode == 0, again.stderr
    assert "training against" not in again.stdout
    assert "5 of 9 pairs to play" in again.stdout
    assert rows(path) == first
    assert (path / "pairs.jsonl").read_text() == whole


def test_damaged_files_are_computed_again(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    first, whole = rows(path), (path / "pairs.jsonl").read_text()
    lines = [
        line.replace("-", "+", 1) if i == 2 else "[]" if i == 4 else line for i, line in enumerate(whole.splitlines())
    ]
    (path / "pairs.jsonl").write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    (file,) = (path / "agents").iterdir()
    agent = load_arrays(file)
    file.write_bytes(file.read_bytes()[:-7])
    again = within("--resume", "run", cwd=tmp_path, module="marl.crossplay")
    assert again.returncode == 0, again.stderr
    assert "3 of 10 lines are damaged; their pairs are played again" in again.stdout
    assert "2 of 9 pairs to play" in again.stdout
    assert "it cannot be read (Error while deserializing header" in again.stdout
    assert rows(path) == first
    assert sorted((path / "pairs.jsonl").read_text().splitlines()) == sorted(whole.splitlines())
    assert_same(load_arrays(file), agent)


def assert_same(found, expected):
    """Asserts that two files of arrays are equal."""
    (arrays, metadata), (theirs, about) = found, expected
    assert metadata == about
    assert {name: x.tolist() for name, x in arrays.items()} == {name: x.tolist() for name, x in theirs.items()}


def test_pairs_are_identified_by_the_agents_parameters(finished):
    config = configs.from_file(CrossplayConfig, finished[0] / "config.yaml")
    participants = line_up(config).participants
    (file,) = (finished[0] / "agents").iterdir()
    agent, naive = load_agent(file), participants[0].seats[0]
    other = agent._replace(parameters=jax.tree.map(lambda x: x + 1, agent.parameters))
    (first, again, changed) = (
        [cell.known_by for cell in _cells(config, participants, [[naive, naive, row], [naive, naive, agent]])]
        for row in (agent, agent, other)
    )
    assert first == again
    assert [before == now for before, now in zip(first, changed, strict=True)] == [True] * 6 + [False] * 3
    written = (json.loads(line)["cell"] for line in (finished[0] / "pairs.jsonl").read_text().splitlines())
    assert sorted(written) == sorted(first)


def test_a_killed_training_is_resumed(finished, within, tmp_path, monkeypatch):
    """Its agents and the table are those of an unbroken run."""
    save, saved = RunDirectory.save, []

    class Killed(BaseException):
        """A substitute for `kill -9`: nothing is saved after it."""

    def save_and_die(run, generation, *rest):
        save(run, generation, *rest)
        saved.append(generation)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "save", save_and_die)
        with pytest.raises(Killed):
            within(*THREE, *SMALL, "--out=run", cwd=tmp_path, module="marl.crossplay")
    gc.collect()  # frees the lock of the run
    path, restore, found = tmp_path / "run", RunDirectory.restore, []
    assert not list((path / "agents").iterdir())

    def restored(*arguments):
        found.append(restore(*arguments))
        return found[-1]

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "restore", restored)
        again = within("--resume=run", cwd=tmp_path, module="marl.crossplay")
    assert again.returncode == 0, again.stderr
    assert saved == [found[0][0]] == [1]
    assert not list((path / "trainings").iterdir())
    assert rows(path) == rows(finished[0])
    (file,) = (path / "agents").iterdir()
    assert_same(load_arrays(file), load_arrays(finished[0] / "agents" / file.name))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agents=naive,mfos:tft,tft"], "agents: got 'naive,mfos:tft,tft', without all_d; the table there has"),
        (["--agents=all_d,naive,mfos:tft", "--seed=1"], "seed: got 1; 0, as in the table that is there, is needed"),
        (
            ["--agents=all_d,naive,mfos:tft", "--evaluation-trials=63"],
            "evaluation_trials: got 63; at least 64, as in the table",
        ),
        (["--agents=all_d,naive,mfos:tft", "--evolution.sigma=0.3"], "evolution.sigma: got 0.3; 0.2, as in the table"),
    ],
)
def test_a_table_with_other_settings_or_fewer_agents_is_refused(finished, within, tmp_path, arguments, words):
    path = shutil.copytree(finished[0], tmp_path / "run")
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    other = {argument.split("=")[0] for argument in arguments}
    same = [argument for argument in SMALL if argument.split("=")[0] not in other]
    result = within("ipd", *same, *arguments, "--out=run", cwd=tmp_path, module="marl.crossplay")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before


def test_a_training_depends_on_the_files_of_its_opponent(tmp_path):
    """An agent trained against an earlier content of a file is another agent."""
    config = CrossplayConfig(agents=f"mfos:cola(file='{tmp_path / 'file'}')")
    found = []
    for name in ("prisoners_dilemma", "prisoners_dilemma", "changed"):
        arrays, metadata = load_arrays(folder() / "cola-prisoners_dilemma.safetensors")
        changed = {key: array + (name == "changed") for key, array in arrays.items()}
        if len(found) != 1:  # the second time the file does not change
            array_files.replace_arrays(tmp_path / "file", changed, metadata)
        (participant,) = line_up(config).participants
        found.append((participant.files, participant.identity))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


def test_a_training_depends_on_the_evolved_objectives_that_it_names(tmp_path):
    path = tmp_path / "drift"
    path.mkdir()
    config = CrossplayConfig(environment="ipd(episode_length=4)", agents=f"ppo(objective='{path}')")
    found = []
    for scale in (1, 1, 2):
        arrays, metadata = load_arrays(folder() / "drift-classic.safetensors")
        array_files.replace_arrays(
            path / objective_registry.FILE, {key: array * scale for key, array in arrays.items()}, metadata
        )
        (participant,) = line_up(config).participants
        found.append(participant.identity)
    assert found[0] == found[1] != found[2]


def test_a_shaper_is_trained_in_the_seat_that_it_takes(tmp_path):
    """The seats of matching pennies have different games; both seats of a dilemma have one training."""

    def seats(environment):
        config = CrossplayConfig(environment=environment, agents="shaper:reinforce", trials=1)
        (participant,) = line_up(config).participants
        return [shaping.config for shaping in participant.seats]

    row, column = seats("imp(episode_length=4)")
    np.testing.assert_array_equal(column.make_game().payoffs, -np.asarray(row.make_game().payoffs))
    assert column.make_game().episode_length == 4
    one, other = seats("ipd(episode_length=4)")
    assert one == other
    save_agent(tmp_path / "agent.safetensors", column, column.make_shaper().init(jax.random.key(0)))
    game, path = row.make_game(), str(tmp_path / "agent.safetensors")
    assert make_agent(path, game, 1).config == column
    with pytest.raises(ValueError, match="trained in the other seat of this game"):
        make_agent(path, game, 0)


def test_the_name_of_an_opponent_may_exceed_the_length_of_a_file_name(within, tmp_path):
    agents = f"all_d,mfos:naive(learning_rate=1.{'0' * 250})"
    result = within("ipd", "--agents", agents, *SMALL, "--out=run", cwd=tmp_path, module="marl.crossplay")
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "run" / "agents").iterdir())) == 1


def test_an_unknown_start_is_refused_also_without_an_evolution():
    with pytest.raises(ValueError, match="start: got 'nonsense'"):
        CrossplayConfig(agents="naive,lola", start="nonsense")


def test_only_pairs_with_a_sampling_learner_are_fewer():
    """A shaper trained against REINFORCE has its name in its own, but does not sample itself."""
    config = CrossplayConfig(evaluation_trials=4096, sampled_evaluation_trials=64)
    evolved = Agent("mfos:reinforce", lambda parameters: None, config=ExactShapingConfig())
    fixed, samples = (Agent(name, lambda parameters: None) for name in ("all_d", "reinforce"))
    agents = [evolved, fixed, samples]
    participants = [Participant(agent.name, (agent, agent), agent.name, "") for agent in agents]
    cells = _cells(config, participants, (agents, agents))
    assert [cell.num_trials for cell in cells] == [4096, 4096, 64, 4096, 4096, 64, 64, 64, 64]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ipd", "--agents", "naive,nothing"], "agents: got 'nothing'"),
        (["chicken", "--agents", "tft"], "agents: tft: "),
        (["ipd", "--agents", "./missing.safetensors"], "agents: got './missing.safetensors'"),
        (["ipd", "--agents", "naive(,tft"], "agents: got 'naive(,tft'"),
        (["ipd", "--agents", "tft,mfos:self_play"], "self_play trains two at once"),
        (
            ["ipd", "--agents", "naive(learning_rate=1,learning_rate=2),tft"],
            "naive: learning_rate: given twice; once is needed",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, within, arguments, words):
    result = within(*arguments, cwd=tmp_path, module="marl.crossplay")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr
    assert list(tmp_path.iterdir()) == []


def saved(path, seeds):
    """Saves a shaper of the sampled dilemma with this number of trainings and initial parameters."""
    config = SampledShapingConfig(environment="ipd(episode_length=4)", shaper="shaper(hidden_units=2)", seeds=seeds)
    init = config.make_shaper().init
    keys = jax.random.split(jax.random.key(5), seeds)
    # Large parameters, so that two of them play differently.
    save_agent(path, config, jax.tree.map(lambda x: 9 * x, jax.vmap(init)(keys) if seeds > 1 else init(keys[0])))


@pytest.mark.parametrize("number", [1, 2, 7, 24])
def test_a_table_keeps_its_names_and_numbers_in_eighty_columns(number):
    """Tables with errors from 1e-9 to 1 and the longest names."""
    labels = [f"{'advantage_alignment'[: 5 + i % 15]} {i}" for i in range(number)]
    cells = [
        [with_error({"mean": -1 / (3 + i + j), "standard_error": 10.0 ** -((i + j) % 10)}) for j in range(number)]
        for i in range(number)
    ]
    console = Console(file=io.StringIO(), width=80)
    for table in crossplay_table._tables("the row's payoff", labels, cells, 80):
        console.print(table)
    shown = console.file.getvalue()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in shown
    for label, row in zip(labels, cells, strict=True):
        own = " ".join(line for line in lines if re.match(rf"│ {label} ", line))
        assert all(cell in own for cell in row)
    assert all(re.fullmatch(r"-?\d\.\d{3,6} ± (\d\.\d{3,6}|\de-\d\d)", cell) for row in cells for cell in row)
