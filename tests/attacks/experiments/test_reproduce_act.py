"""`python -m attacks.reproduce act` and `python -m attacks.examine`."""

import dataclasses
import io
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from rich.console import Console

import configs
from attacks import control
from attacks.defences import undefended
from attacks.experiments import evaluation, reproduction, transfer
from attacks.experiments.attack import ADVERSARY_FILE, load_adversary, resolve
from attacks.experiments.attack_experiment import TITLES
from attacks.experiments.config import AttackConfig
from attacks.experiments.evaluation import VictimTrainings, make_trainings
from attacks.experiments.reproduction import (
    Part,
    ReproduceConfig,
    _beside,
    _read_trainings,
    _section,
    between,
    checked,
    make_parts,
)
from attacks.experiments.transfer import FILE, _fits, _read_known
from marl.trained.catalogue import located
from meta import Evolution, RunDirectory
from meta.runs import array_files
from meta.runs.directory import READS
from meta.runs.reading import RunFiles
from meta.runs.reports.claims import passes
from tests.nightly import nightly

pytestmark = pytest.mark.system


def test_every_environment_is_harmed_and_helped_and_those_with_goals_controlled(tmp_path):
    parts = make_parts(ReproduceConfig(searches=2, seed=3), tmp_path)
    names = [
        *("cartpole-harm", "cartpole-help", "cartpole-control"),
        *("pendulum-harm", "pendulum-help", "pendulum-control"),
        *("reacher-harm", "reacher-help", "reacher-control"),
        *("breakout-harm", "breakout-help"),
    ]
    assert [part.path.name for part in parts] == [f"{name}-{seed}" for name in names for seed in (3, 4)]
    assert [part.config.seed for part in parts] == [3, 4] * len(names)
    harm, helping = parts[0].config, parts[2].config  # the second is that of the preset cartpole_help
    assert (harm.warm_up_updates, helping.warm_up_updates) == (8, 4)
    alike = ("victim", "environment", "num_updates", "steps_per_update", "num_envs", "evaluation_steps")
    assert all(getattr(harm, name) == getattr(helping, name) for name in alike)


def test_a_part_goes_on_with_the_chunks_of_the_machine_that_began_it(tmp_path):
    config = ReproduceConfig(environments=("cartpole",), goals=("harm",), searches=1)
    (part,) = make_parts(config, tmp_path)
    there = dataclasses.replace(part.config, evolution=dataclasses.replace(part.config.evolution, chunk_size=0))
    with RunDirectory.create(part.path, there, "python -m attacks.act cartpole"):
        pass
    assert reproduction._with_chunks_begun(part).config == there != part.config
    (part.path / "run.json").write_text("damaged")
    assert reproduction._with_chunks_begun(part) == part


def test_control_alone_in_a_game_without_goals_is_refused():
    with pytest.raises(ValueError, match="goals: got control alone; there are no goals in breakout"):
        checked(ReproduceConfig(environments=("breakout",), goals=("control",)))


def test_victims_of_one_game_are_shown_beside_each_other(tmp_path):
    config = configs.load(ReproduceConfig, "reproduce", "sparse")
    parts = make_parts(dataclasses.replace(config, searches=2), tmp_path)
    kinds = ["cartpole-harm", "cartpole_sparse-harm"]
    assert [part.path.name for part in parts] == [f"{kind}-{seed}" for kind in kinds for seed in (0, 1)]
    dense, sparse = parts[0].config, parts[2].config
    rigl = "sparsity='rigl(density=0.2, every=16, until=400)'"
    assert sparse == dataclasses.replace(dense, victim=dense.victim.removesuffix(")") + f", {rigl})")
    attack = resolve(dataclasses.replace(sparse, message="linear"))
    attack.make_victim(attack.game)
    differences = {"cartpole": (-100, -140), "cartpole_sparse": (-50, -50)}
    summaries = {
        part.path.name: {
            "evolved": {"difference_from_silent": {"mean": differences[part.environment][part.config.seed]}},
            "random": {"difference_from_silent": {"mean": 1.0 + part.config.seed}},
        }
        for part in parts
    }
    attacks = {("cartpole", "harm"): parts[:2], ("cartpole_sparse", "harm"): parts[2:]}
    (section,) = _beside(tmp_path, attacks, summaries)
    assert "| cartpole | -120.0 ± 20.0 | 1.5 ± 0.5 |" in section.tables[0]
    assert "| cartpole_sparse | -50.0 ± 0.0 | 1.5 ± 0.5 |" in section.tables[0]
    assert (
        section.answer == "Evolved messages change the final return by -120.0 for cartpole, -50.0 for cartpole_sparse."
    )
    assert (tmp_path / "beside-harm-0.png").is_file()
    assert not _beside(tmp_path, {("cartpole", "harm"): parts[:2]}, summaries)  # nothing to compare with


def test_a_section_answers_with_the_means_of_its_searches(tmp_path):
    parts = make_parts(ReproduceConfig(("cartpole",), ("harm", "control"), searches=2), tmp_path)

    def value(mean):
        differences = {"difference_from_silent": mean - 180.0, "difference_from_random": mean - 160.0}
        one = {"mean": mean, "standard_error": 1.0}
        return one | {name: one | {"mean": difference} for name, difference in differences.items()}

    def summary(offset):
        rows = {"evolved": value(40.0 + offset), "silent": value(180.0 + offset), "random": value(160.0)}
        rewards = dict.fromkeys(control.ROWS, value(1.0)) | {"evolved": value(6.0), "silent": value(3.0 + offset)}
        more = {"num_trials": 8, "difference_from_silent": value(-140.0), "goal_reward": rewards}
        return rows | dict.fromkeys(TITLES, rows) | more

    summaries = {part.path.name: summary(10.0 * part.config.seed) for part in parts}
    harm, steered = (_section(parts[first : first + 2], summaries, {}) for first in (0, 2))
    assert harm.text == f"Victim: `{parts[0].config.victim}`; 8 fresh ones of each kind, 2 searches."
    assert harm.answer == (
        "A victim's final return is 185.0 in silence, 45.0 under messages evolved to harm, and 160.0 under random "
        "messages that are as large."
    )
    more = harm.claims[0]  # 120 and 110 beyond random messages: a mean of 115, an error between searches of 5
    assert (more.name, more.ours) == ("more harm than by random messages, in standard errors", 23.0)
    assert passes(more)
    by_any_message = {name: one | {"evolved": value(155.0)} for name, one in summaries.items()}
    assert not passes(_section(parts[:2], by_any_message, {}).claims[0])
    assert steered.answer == (
        "A controlled victim gets a goal reward of 6.00 with the evolved shaper and controller, and 8.00 with the best "
        "baseline (silent)."
    )
    beyond, times = steered.claims[:2]  # 6 without an error, 8 with one of 5 between searches: -6 / 7.5, and 6 / 8
    assert (beyond.name, beyond.ours) == ("goal reward beyond 1.5 times that of silent, in standard errors", -0.8)
    assert (passes(beyond), times.ours) == (False, 0.75)


def test_an_error_is_between_searches_where_there_are_several():
    one = {"mean": 1.0, "standard_error": 0.5}
    assert between([one]) == one
    assert between([one, {"mean": 4.0, "standard_error": 0.1}]) == pytest.approx({"mean": 2.5, "standard_error": 1.5})
    assert between([one, {"mean": None, "standard_error": None}]) == {"mean": None, "standard_error": None}


def test_the_steps_of_a_part_worked_out_by_hand(tmp_path):
    evolution = Evolution(population_size=4, generations=3)
    config = AttackConfig(
        num_updates=5,
        steps_per_update=10,
        num_envs=2,
        evaluation_episodes=2,
        evaluation_steps=7,
        evaluation_trials=6,
        warm_up_updates=1,
        warm_up=evolution,
        evolution=evolution,
        trials=2,
        oracle_updates=3,
    )
    # 24 short training runs of 20 steps, as many as in 4 whole ones, and 24 of 100, each evaluated for 14 steps; 6
    # victims choose between two, and 18 are fresh.
    assert Part("cartpole", config, tmp_path).steps == (4 + 24) * (100 + 14) + 12 * 114 + 18 * 114
    # Eight experts have twelve training runs; their message is a third choice, and a fourth kind of messages.
    taught = dataclasses.replace(config, begin="expert")
    assert Part("cartpole", taught, tmp_path).steps == (4 + 24 + 18 + 24 + 96) * 114
    # Victims of silence and of 5 shapers, 2 in each of 3 generations, each evaluated 4 times; 24 training runs of the
    # search; 6 victims choose between two, and train under 5 shapers, with two oracles of 3 updates.
    control = dataclasses.replace(config, goal="control", shapers=5)
    assert (config.victims_trained, control.victims_trained) == (48, 36 + 24)
    steps = 36 * (100 + 4 * 14) + 24 * 114 + 12 * 114 + 30 * 114 + 2 * 6 * 3 * 20
    assert Part("cartpole", control, tmp_path).steps == steps


def test_the_papers_search_has_as_many_victims_as_its_code():
    paper = configs.load(AttackConfig, "act", "cartpole_paper")
    assert paper.trials * paper.evolution.population_size * paper.evolution.generations == 8_388_608


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("attacks.reproduce", ["act", "--environments", "cartpool"], "environments: got 'cartpool'; did you mean"),
        ("attacks.reproduce", ["act", "--goals", "harm", "harm"], "goals: got ('harm', 'harm'); some of harm, help"),
        ("attacks.reproduce", ["act", "--environments", "reacher", "reacher"], "are needed, each once"),
        ("attacks.examine", ["hub:adversary-cartpol"], "directory: got 'hub:adversary-cartpol'; hub:NAME, did you"),
        ("attacks.examine", ["hub:ppo-cartpole"], "directory: got 'hub:ppo-cartpole', which is no attack"),
        ("attacks.examine", ["hub:steered-cartpole"], "is a run with the goal control; one that harms or helps"),
        ("attacks.examine", ["nowhere"], "directory: got 'nowhere'"),
        ("attacks.examine", ["nowhere", "--no-transfer", "--no-defences"], "one of them is needed"),
        ("attacks.examine", ["nowhere", "--host-trials", "9"], "host_trials: has no effect without --host"),
        ("attacks.examine", ["nowhere", "--host", "--no-transfer"], "transfer: has no effect with --host"),
        ("attacks.examine", ["hub:ally-breakout", "--host"], "host: got 'Breakout-MinAtar', which Gymnasium does not"),
        ("attacks.reproduce", ["act", "--searches", "2000000000"], "a whole number from 1 to 1000 is needed"),
    ],
)
def test_bad_input_is_one_line(within, tmp_path, module, arguments, words):
    finished = within(*arguments, cwd=tmp_path, module=module)
    assert finished.returncode == 2
    assert words in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_defences_that_a_victim_cannot_have_are_left_out_with_a_message():
    tiny = {"num_updates": 1, "steps_per_update": 8, "evaluation_episodes": 2, "evaluation_steps": 8}
    config = AttackConfig(num_envs=2, victim="ppo(hidden=[4], minibatches=1)", message="linear", **tiny)
    console = Console(record=True, file=io.StringIO(), width=300)
    assert all(_fits(resolve(config), name, console) for name in ("none", "masking", "decay"))
    assert console.export_text() == ""
    alone = resolve(dataclasses.replace(config, num_envs=1))
    assert not _fits(alone, "masking", console)
    assert "left out: defence: masking: num_envs: got 1" in console.export_text()
    random = resolve(dataclasses.replace(config, victim="random"))
    assert not _fits(random, "decay", console)
    assert "left out: defence: got 'decay' for random; a victim with networks" in console.export_text()


def test_an_adversary_of_the_library_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = transfer.checked(transfer.ExaminationConfig("hub:adversary-cartpole"))
    assert config.directory == str(Path("runs", "adversary-cartpole"))
    assert transfer.checked(dataclasses.replace(config, seed=3)).seed == 3  # the folder is as good as its name
    ours, theirs = load_adversary(config.directory), load_adversary("hub:adversary-cartpole")
    jax.tree.map(np.testing.assert_array_equal, ours[1], theirs[1])
    assert RunFiles(Path(config.directory)).config["evaluation_trials"] == 1024
    Path(config.directory, ADVERSARY_FILE).write_bytes(b"another")
    with pytest.raises(ValueError, match="adversary-cartpole holds another attack; another working directory"):
        transfer.checked(transfer.ExaminationConfig("hub:adversary-cartpole"))


@pytest.fixture
def attacked(tmp_path):
    """Writes the files of a finished run, with unevolved parameters of this seed."""
    config = AttackConfig(num_updates=1, steps_per_update=8, num_envs=2, evaluation_episodes=2, evaluation_steps=60)

    def attack(seed):
        kept = {"method": "attack", "config": configs.plain(config)}
        (tmp_path / "run").mkdir(exist_ok=True)
        parameters = resolve(config).message.init(jax.random.key(seed))
        array_files.replace_arrays(tmp_path / "run" / ADVERSARY_FILE, parameters, kept)
        return tmp_path / "run" / FILE

    return attack


@nightly
def test_an_examination_is_computed_again_for_another_adversary(attacked, within, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "DEFENCES", {"none": undefended})
    monkeypatch.setattr(transfer, "other_victims", lambda attack: {transfer.SAME: attack.config.victim})
    examined, parts = [], (("transfer", transfer.SAME), ("defences", "none"))

    def make(*arguments, **settings):
        examined.append(settings["defence"])
        return make_trainings(*arguments, **settings)

    monkeypatch.setattr(evaluation, "make_trainings", make)

    def examine(*arguments):
        examined.clear()
        line = ["run", *(arguments or ("--evaluation-trials=2", "--no-transfer"))]
        result = within(*line, cwd=tmp_path, module="attacks.examine")
        assert result.returncode == 0, result.stderr
        return len(examined), json.loads(file.read_text()), result.stdout

    file = attacked(0)
    number, first, shown = examine()
    assert number == 1
    assert "computed again" not in shown
    assert examine()[:2] == (0, first)
    number, again, shown = examine("--evaluation-trials=3", "--seed=2", "--no-defences")
    assert number == 1
    assert again["defences"] == first["defences"]  # which was not asked for, and stays
    kept = {part: (again[part][name]["num_trials"], again[part][name]["seed"]) for part, name in parts}
    assert kept == {"transfer": (3, 2), "defences": (2, 1)}
    assert "2 or 3 fresh victims of each kind" in shown
    number, last, _ = examine("--evaluation-trials=3", "--no-transfer")
    assert (number, last["defences"]["none"]["num_trials"]) == (1, 3)
    file.unlink()
    assert examine()[:2] == (1, first)
    attacked(1)
    number, other, shown = examine()
    assert number == 1
    assert (
        "1 result(s) of another attack, of other victims or of an earlier version are left out; the requested results "
        "are computed again" in shown
    )
    assert other["defences"]["none"] != first["defences"]["none"]
    change, random = (other["defences"]["none"][name]["mean"] for name in ("difference", "random_difference"))
    assert f"Without a defence it changes the return by {change:.1f} (random messages: {random:.1f})." in shown
    mean = other["defences"]["none"]["evolved"]["mean"]
    file.write_text(file.read_text().replace(f'"mean": {mean}', f'"mean": {mean + 1}', 1))
    assert examine()[:2] == (1, other)
    file.write_text(file.read_text()[:-20])
    console = Console(record=True, file=io.StringIO())
    assert _read_known(file, lambda *result: "", console)["defences"] == {}
    assert "examination.json: damaged, and computed again" in console.export_text()


def test_an_attack_whose_files_have_changed_is_not_examined(within, tmp_path, monkeypatch):
    monkeypatch.setattr(AttackConfig, "reads", "now")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ADVERSARY_FILE).write_bytes(Path(located("hub:adversary-cartpole")).read_bytes())
    (tmp_path / "run" / READS).write_text("then")
    found = within("run", cwd=tmp_path, module="attacks.examine")
    assert "run: files that its config names have changed since; a new run is needed" in found.stderr
    assert not (tmp_path / "run" / "examination.json").exists()


def test_the_conclusion_of_an_examination_counts_learners_that_are_harmed_beyond_random_messages():
    def row(difference, random, beyond, error, silent=180.0):
        means = {"silent": silent, "difference": difference, "random_difference": random}
        return {name: {"mean": x} for name, x in means.items()} | {
            "beyond_random": {"mean": beyond, "standard_error": error}
        }

    same, a2c = row(-130.0, -8.0, -122.0, 5.0), row(-189.0, -157.0, -32.0, 3.0)
    transfer_rows = {
        "as evolved on": same,
        "A2C": a2c,
        "DQN": row(-89.0, -82.0, -7.0, 6.0),
        "ran away": row(*[None] * 4),
    }
    defences = {"none": same, "noise": row(-119.0, -13.0, -106.0, 5.0, 170.0), "ruin": row(0.0, 0.0, 0.0, 3.0, 9.0)}
    found = {"goal": "harm", "transfer": transfer_rows, "defences": defences, "host": {"as evolved on": a2c}}
    assert transfer.conclusion(found) == (
        "The attack changes the final return of the learner that it was evolved on by -130.0 (random messages: -8.0), "
        "and harms 1 of 3 other learners by 2 standard errors more than random messages do. Without a defence it "
        "changes the return by -130.0 (random messages: -8.0), and by -119.0 (random messages: -13.0) from 170.0 in "
        "silence with noise, the defence of 2 with the highest return under evolved messages. In Gymnasium it "
        "changes the final return by -189.0 (random messages: -157.0)."
    )


def test_an_examination_and_a_run_do_not_write_at_once(attacked, within, tmp_path):
    attacked(0)
    run = RunDirectory(tmp_path / "run")
    result = within("run", "--evaluation-trials=2", cwd=tmp_path, module="attacks.examine")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "run: another run is writing there" in result.stderr
    del run


def test_a_damaged_file_of_victims_is_refused_in_one_line(tmp_path):
    file, arrays = tmp_path / "victims.npz", {}
    for name in ("evolved", "silent", "random"):
        arrays |= {f"{name}_{field}": np.zeros((3, 2)) for field in VictimTrainings._fields}
        arrays |= {f"{name}_final_returns": np.arange(3.0)}
    with pytest.raises(ValueError, match=r"victims.npz: cannot be read \(.*\); its part is computed again"):
        _read_trainings(file)
    np.savez(file, **arrays)
    assert _read_trainings(file)["silent"].final_returns.tolist() == [0, 1, 2]
    whole = file.read_bytes()
    at = whole.index(np.arange(3.0).tobytes())
    for damaged in (b"", whole[:100], whole[:at] + b"\xff" + whole[at + 1 :], b"x" * 300):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"^\S+victims.npz: cannot be read \([^\n]+$"):
            _read_trainings(file)


@pytest.mark.slow
def test_a_smoke_run_writes_a_report_and_repeats_no_finished_part(within, tmp_path):
    arguments = ("act", "--environments", "cartpole", "--searches", "2", "--fast", "--out", "run")
    finished = within(*arguments, cwd=tmp_path, module="attacks.reproduce")
    assert finished.returncode == 0, finished.stderr
    report = (tmp_path / "run/report.md").read_text()
    found = json.loads((tmp_path / "run/report.json").read_text())
    assert found["claimed"] == 3
    assert set(found["examinations"]) == {"cartpole-harm-0", "cartpole-help-0"}
    for words in ("smoke run", "cartpole: harm", "cartpole: control", "dropout", "DQN"):
        assert words in report
    assert (tmp_path / "run/figures/training_curves.png").is_file()
    again = within("--resume", "run", cwd=tmp_path, module="attacks.reproduce")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == 6
