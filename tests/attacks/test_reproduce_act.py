"""`python -m attacks.reproduce act` and `python -m attacks.examine`."""

import json

import pytest

import configs
from attacks.config import AttackConfig
from attacks.reproduction import Part, ReproduceConfig, make_parts
from meta import Evolution


def test_every_environment_is_harmed_and_helped_and_those_with_goals_controlled(tmp_path):
    names = [part.path.name for part in make_parts(ReproduceConfig(), tmp_path)]
    assert names == [
        *("cartpole-harm", "cartpole-help", "cartpole-control"),
        *("pendulum-harm", "pendulum-help", "pendulum-control"),
        *("reacher-harm", "reacher-help", "reacher-control"),
        *("breakout-harm", "breakout-help"),
    ]


def test_the_steps_of_a_part_worked_out_by_hand(tmp_path):
    evolution = Evolution(population_size=4, generations=3)
    config = AttackConfig(
        num_updates=5,
        steps_per_update=10,
        num_envs=2,
        evaluation_episodes=2,
        evaluation_steps=7,
        num_victims=6,
        warm_up_updates=1,
        warm_up=evolution,
        evolution=evolution,
        trials=2,
        oracle_updates=3,
    )
    # 24 short lives of 20 steps and 24 of 100, each judged by 14; 6 victims choose between two, and 18 are fresh.
    assert Part("cartpole", config, tmp_path).steps == 24 * (20 + 14) + 24 * (100 + 14) + 12 * 114 + 18 * 114


def test_every_preset_is_a_config():
    for name in configs.presets("act"):
        config = configs.load(AttackConfig, "act", name)
        assert config.steps_of_a_life == config.num_updates * config.steps_per_update * config.num_envs
    paper = configs.load(AttackConfig, "act", "cartpole_paper")
    assert paper.trials * paper.evolution.population_size * paper.evolution.generations == 8_388_608


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("attacks.reproduce", ["act", "--environments", "cartpool"], "environments: got 'cartpool'; did you mean"),
        ("attacks.examine", ["nowhere"], "directory: got 'nowhere'"),
        ("attacks.examine", ["nowhere", "--no-transfer", "--no-defences"], "one of them is needed"),
    ],
)
def test_bad_input_is_one_line(within, tmp_path, module, arguments, words):
    finished = within(*arguments, cwd=tmp_path, module=module)
    assert finished.returncode == 2
    assert words in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_smoke_run_writes_a_report_and_does_nothing_twice(within, tmp_path):
    arguments = ("act", "--environments", "cartpole", "--fast", "--out", "run")
    finished = within(*arguments, cwd=tmp_path, module="attacks.reproduce")
    assert finished.returncode == 0, finished.stderr
    report = (tmp_path / "run/report.md").read_text()
    found = json.loads((tmp_path / "run/report.json").read_text())
    assert found["claimed"] == 3
    assert set(found["examinations"]) == {"cartpole-harm", "cartpole-help"}
    for words in ("smoke run", "cartpole: harm", "cartpole: control", "message dropout", "DQN"):
        assert words in report
    assert (tmp_path / "run/figures/cartpole.png").is_file()
    again = within("--resume", "run", cwd=tmp_path, module="attacks.reproduce")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("done before") == 3
