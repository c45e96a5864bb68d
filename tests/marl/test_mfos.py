"""`python -m marl.mfos` through real processes: what it writes, how it resumes, what it refuses."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

SMALL = [
    "--evolution.population-size=8",
    "--evolution.generations=40",
    "--evolution.checkpoint-seconds=0",
    "--trials=2",
    "--meta-steps=5",
    "--hidden-units=4",
    "--evaluation-trials=16",
]
TIMINGS = ("wall_seconds", "seconds_to_compile", "meta_steps_per_second")
FIGURES = {"learning_curve.png", "trial_payoffs.png", "payoff_polygon.png", "policy.png"}


def summary(path):
    found = json.loads((path / "summary.json").read_text())
    return {name: value for name, value in found.items() if name not in TIMINGS}


def checkpoints(path):
    return [folder for folder in path.glob("checkpoints/*") if folder.name.isdigit()]


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(command, tmp_path_factory):
    """A small run from beginning to end."""
    folder = tmp_path_factory.mktemp("finished")
    result = command("ipd", *SMALL, "--out", "run", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "run", result


def test_a_run_leaves_all_that_is_promised(finished):
    path, _ = finished
    found = json.loads((path / "summary.json").read_text())
    expected = """game opponent seed shaper_return opponent_return shaper_standard_error opponent_standard_error
        num_trials generations num_meta_steps wall_seconds seconds_to_compile meta_steps_per_second zd policy versions
        devices"""
    assert set(expected.split()) <= set(found)
    assert {"chi", "residual", "extortionate"} <= set(found["zd"])
    assert {name: len(policy) for name, policy in found["policy"].items()} == {"start": 5, "middle": 5, "end": 5}
    assert (found["num_trials"], found["generations"], found["num_meta_steps"]) == (16, 40, 8 * 40 * 2 * 5)
    assert [row["generation"] for row in rows(path)] == list(range(1, 41))
    assert {file.name for file in (path / "figures").iterdir()} == FIGURES
    assert all((path / "figures" / name).read_bytes()[:4] == b"\x89PNG" for name in FIGURES)
    assert sorted(file.name for file in (path / "checkpoints").iterdir())[-1] == "00000040"
    assert yaml.safe_load((path / "config.yaml").read_text())["evolution"]["population_size"] == 8


def test_the_output_tells_what_runs_how_far_it_is_and_what_came_out(finished):
    _, result = finished
    for words in ("prisoners_dilemma", "naive", "population 8", "generation 40/40", "meta-steps/s", "left", "start"):
        assert words in result.stdout
    assert "zero-determinant" in result.stdout
    assert "payoff_polygon.png" in result.stdout
    assert result.stderr == ""


def test_a_terminal_shows_a_live_bar(environment, tmp_path):
    terminal, end = pty.openpty()
    line = [sys.executable, "-m", "marl.mfos", "ipd", *SMALL, "--out", "run"]
    variables = environment | {"TERM": "xterm-256color", "COLUMNS": "110"}
    process = subprocess.Popen(line, cwd=tmp_path, stdout=end, stderr=end, env=variables)
    os.close(end)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
        while part := os.read(terminal, 4096):
            shown += part
    assert process.wait(timeout=60) == 0
    text = shown.decode()
    assert "compiling" in text
    assert re.search(r"generation 40/40 .*━+.* shaper .* opponent .* meta-steps/s .*left", text)
    assert "\x1b[" in text  # redrawn in place


def stop(process, path, how):
    """Sends a signal as soon as there is a further checkpoint; (exit status, stderr)."""
    before, deadline = reached(path), time.time() + 120
    while reached(path) <= before and time.time() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(how)
    errors = process.communicate(timeout=60)[1]
    return process.returncode, errors


def reached(path):
    return max((int(folder.name) for folder in checkpoints(path)), default=0)


def test_a_run_that_is_stopped_in_every_way_ends_as_if_never_stopped(environment, within, tmp_path):
    path = tmp_path / "run"
    # Where no step size falls, the number of generations decides nothing but the end, so that it may change.
    options = [*SMALL, "--evolution.learning-rate-end=1", "--evolution.sigma-end=1"]
    arguments = ["ipd", *options, "--evolution.generations=20000", "--out", "run"]
    for how, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGINT, 130)):
        line = [sys.executable, "-m", "marl.mfos", *arguments]
        process = subprocess.Popen(
            line, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        found, errors = stop(process, path, how)
        assert found == status, errors
        assert not (path / "summary.json").exists()
        if how != signal.SIGKILL:
            assert errors.strip().splitlines()[-1].endswith("--resume run")
        arguments = ["--resume", "run"]
    whole = within("ipd", *options, f"--evolution.generations={reached(path) + 30}", "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    shutil.copy(tmp_path / "whole" / "config.yaml", path / "config.yaml")
    resumed = within("--resume", "run", "--quiet", cwd=tmp_path)
    assert (resumed.returncode, resumed.stdout, resumed.stderr) == (0, "", "")
    assert summary(path) == summary(tmp_path / "whole")
    assert rows(path) == rows(tmp_path / "whole")


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    newest = max(checkpoints(path))
    assert len(checkpoints(path)) >= 2
    for file in newest.rglob("*"):
        if file.is_file():
            os.truncate(file, file.stat().st_size // 2)
    (path / "summary.json").unlink()
    result = within("--resume", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"checkpoint {newest.name} is damaged" in result.stderr
    assert summary(path) == summary(finished[0])
    assert rows(path) == rows(finished[0])


def test_changed_bytes_in_a_checkpoint_are_noticed(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    for file in max(checkpoints(path)).rglob("*"):
        if file.is_file():
            contents = bytearray(file.read_bytes())
            contents[len(contents) // 2] ^= 0xFF
            file.write_bytes(contents)
    result = within("--resume", "run", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "is damaged" in result.stderr
    assert summary(path) == summary(finished[0])


def test_a_disk_that_fills_up_ends_in_one_line_and_keeps_what_was_saved(command, within, tmp_path):
    small_files = ("sh", "-c", 'unset JAX_COMPILATION_CACHE_DIR; ulimit -f 80; exec "$@"', "-")  # 40 or 80 KiB a file
    options = [*SMALL, "--evolution.generations=20000"]
    result = command("ipd", *options, "--out", "run", cwd=tmp_path, prefix=small_files)
    assert result.returncode == 1
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert "--resume run" in result.stderr
    assert "File too large" in result.stderr or "could not be written" in result.stderr
    assert checkpoints(tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    config["evolution"]["generations"] = int(max(checkpoints(tmp_path / "run")).name) + 5
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    assert within("--resume", "run", cwd=tmp_path).returncode == 0


def test_two_runs_never_share_a_directory(finished, within, tmp_path):
    path = shutil.copytree(finished[0], tmp_path / "run")
    before = sorted((file, file.stat().st_mtime) for file in path.rglob("*"))
    result = within("ipd", *SMALL, "--out", "run", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--resume run" in result.stderr
    assert sorted((file, file.stat().st_mtime) for file in path.rglob("*")) == before

    import fcntl

    with (path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = within("--resume", "run", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "another run is writing there" in result.stderr


def test_a_directory_is_chosen_where_none_is_named_and_a_yaml_path_is_a_preset(within, tmp_path):
    (tmp_path / "mine.yaml").write_text("game: hawk_dove\nopponent: wsls\ntrials: 1\n")
    for name in ("mine-wsls-7", "mine-wsls-7-2"):
        result = within("mine.yaml", *SMALL[:-1], "--evaluation-trials=4", "--seed=7", "--quiet", cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        found = summary(tmp_path / "runs" / name)
        assert (found["game"], found["opponent"], found["seed"]) == ("hawk_dove", "wsls", 7)
        assert found["zd"]["chi"] is None


def test_several_seeds_are_reported_each_and_pooled(within, finished, tmp_path):
    result = within("ipd", *SMALL, "--seeds=2", "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = summary(tmp_path / "run")
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    a, b = (run["shaper_return"] for run in found["runs"])
    assert found["shaper_return"] == pytest.approx((a + b) / 2)
    assert found["shaper_standard_error"] == pytest.approx(abs(a - b) / 2)
    assert a == pytest.approx(summary(finished[0])["shaper_return"], abs=1e-3)  # as the seed alone
    assert "seed 1" in result.stdout
    assert {file.name for file in (tmp_path / "run" / "figures").iterdir()} == FIGURES


def test_a_game_played_once(within, tmp_path):
    result = within("chicken", *SMALL, "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(summary(tmp_path / "run")["policy"]["end"]) == 1


BAD = {
    "no preset": ([], "preset: none given; one of chicken, coin_game, coin_game_mfos_paper"),
    "unknown preset": (["ipt"], "preset: got 'ipt'; did you mean ipd"),
    "unknown option": (["ipd", "--evolution.popsize=3"], "--evolution.population-size"),
    "unknown game": (
        ["ipd", "--game=prisoner_dilemma"],
        "game: got 'prisoner_dilemma'; did you mean prisoners_dilemma",
    ),
    "unknown opponent": (["ipd", "--opponent=niave"], "opponent: got 'niave'; did you mean naive"),
    "unknown strategy": (["ipd", "--evolution.strategy=cmaes"], "evolution.strategy: got 'cmaes'; did you mean cma_es"),
    "wrong type": (["ipd", "--evolution.population-size=many"], "--evolution.population-size"),
    "wrong choice": (["ipd", "--evolution.fitness-shaping=rank"], "--evolution.fitness-shaping"),
    "missing value": (["ipd", "--seed"], "--seed"),
    "odd population": (["ipd", "--evolution.population-size=7"], "evolution.population_size: got 7"),
    "no trials": (["ipd", "--trials=0"], "trials: got 0"),
    "no generations": (["ipd", "--evolution.generations=0"], "evolution.generations: got 0"),
    "negative seed": (["ipd", "--seed=-1"], "seed: got -1"),
    "discount": (["ipd", "--discount=1"], "discount: got 1.0"),
    "strategy needs memory": (["chicken", "--opponent=tft"], "discount above 0"),
    "missing directory": (["--resume", "nowhere"], "--resume: got 'nowhere'"),
    "foreign directory": (["--resume", "foreign"], "--resume: got 'foreign'"),
    "foreign config": (["--resume", "other"], "unknown field learner"),
    "resume and more": (["--resume", "other", "--seed=3"], "unknown option --seed"),
    "preset and resume": (["ipd", "--resume", "other"], "preset: got 'ipd'; none is needed with --resume"),
    "list for a number": (["ipd", "--opponent=naive(learning_rate=[1,2,0])"], "learning_rate: got [1, 2, 0]"),
    "infinite": (["ipd", "--opponent=naive(learning_rate=1e999)"], "learning_rate: got inf"),
    "no probabilities": (["ipd", "--opponent=memory_one"], "probabilities: got 0 of them; 5 are needed"),
    "fixed weights": (["ipd", "--evolution.strategy=des", "--evolution.fitness-shaping=identity"], "default is needed"),
    "binary file": (["binary.yaml"], "binary.yaml: cannot be read as text"),
    "three payoffs": (["payoffs.yaml"], "row_payoffs: got [1, 2, 3]"),
    "option first": (["--seed=3"], "preset: got '--seed=3' first"),
    "unwritable": (["ipd", "--out=/proc/run"], "out: "),
    "out is a file": (["ipd", "--out=bad.yaml"], "bad.yaml: already holds something"),
    "bad yaml": (["bad.yaml"], "bad.yaml: not valid YAML"),
    "unknown key": (["key.yaml"], "unknown field evolution.population; did you mean population_size"),
    "wrong value": (["value.yaml"], "trials: got 'four'; a whole number is needed"),
    "a list": (["list.yaml"], "fields with values are needed"),
}


FROM_OUTSIDE = ("unknown preset", "unknown option", "resume and more")  # one that we find, and what the parser finds


@pytest.fixture(scope="module")
def bad_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "foreign").mkdir()
    (folder / "other").mkdir()
    (folder / "other" / "config.yaml").write_text("learner: ppo\n")
    (folder / "bad.yaml").write_text("game: [\n")
    (folder / "key.yaml").write_text("evolution: {population: 4}\n")
    (folder / "value.yaml").write_text("trials: four\n")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x80")
    (folder / "payoffs.yaml").write_text("row_payoffs: [1, 2, 3]\n")
    (folder / "list.yaml").write_text("- game\n")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_status_2_and_leaves_nothing(name, request, bad_folder):
    arguments, message = BAD[name]
    before = sorted(bad_folder.rglob("*"))
    run = request.getfixturevalue("command" if name in FROM_OUTSIDE else "within")
    result = run(*arguments, cwd=bad_folder)
    assert result.returncode == 2
    assert result.stderr.strip().count("\n") == 0, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert sorted(bad_folder.rglob("*")) == before


def test_help_explains_every_field(within, tmp_path):
    result = within("ipd", "--help", cwd=tmp_path)
    assert result.returncode == 0
    for flag in (
        "--opponent",
        "--trials",
        "--seeds",
        "--out",
        "--quiet",
        "--evolution.sigma",
        "--evolution.chunk-size",
    ):
        assert flag in result.stdout
    general = within("--help", cwd=tmp_path)
    assert general.returncode == 0
    assert "chicken, coin_game, coin_game_mfos_paper" in general.stdout


def test_a_matrix_game_command_imports_nothing_it_does_not_need():
    code = (
        "import sys, marl.mfos; print([m for m in ('gymnax', 'matplotlib', 'orbax', 'gymnasium') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
