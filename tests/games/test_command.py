"""`python -m games` in a process, as for a user."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from PIL import Image

from games import catalogue, chicken, registry
from games.__main__ import main
from games.suite.rounds import repeated


def run(*arguments, cwd):
    line = [sys.executable, "-m", "games", *arguments]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_the_list_has_every_game_with_its_numbers(capsys):
    assert main([]) == 0
    listed = capsys.readouterr().out
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in listed.splitlines() if line.strip()}
    assert {*rows} == {"game", *registry.names()}
    assert rows["coin_game"].startswith("2 3 x 3 x 4 4 discrete")
    assert rows["CartPole-v1"].startswith("1 4 2 discrete")


@pytest.mark.system
def test_the_file_of_the_list_is_what_the_games_are():
    """`python -m games.catalogue` writes it again."""
    kept = Path(catalogue.__file__).with_name(catalogue.FILE).read_text()
    found = catalogue.text()
    if kept.partition("\n")[0] == found.partition("\n")[0]:  # of the installed gymnax
        assert kept == found


def test_a_registered_game_is_in_the_list(capsys):
    registry.register("my_game", repeated, "a game of mine", game=chicken)
    assert main([]) == 0
    assert "a game of mine" in capsys.readouterr().out


QUICK = """
import sys
from games.__main__ import main
assert main(sys.argv[1:]) == 0
assert "jax" not in sys.modules
"""


@pytest.mark.parametrize("arguments", [[], ["--version"]])
def test_the_list_and_the_version_do_not_wait_for_jax(arguments, tmp_path):
    found = subprocess.run([sys.executable, "-c", QUICK, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert "coin_game" in found.stdout or f"marl-shaping {metadata.version('marl-shaping')}, jax" in found.stdout


@pytest.mark.system
def test_a_game_is_played_and_drawn(tmp_path):
    played = run("coin_game", "--gif", "c.gif", "--png", "c.png", "--params", "grid_size=4", cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert "own_coin" in played.stdout
    assert "all players, over 2 whole episodes: efficiency " in played.stdout
    with Image.open(tmp_path / "c.gif") as gif, Image.open(tmp_path / "c.png") as png:
        assert gif.size == png.size == (256, 256)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coin_gam"], "game: got 'coin_gam'; did you mean coin_game"),
        (["ipd", "--params", "discount=1"], "discount: got 1; a number in [0, 1) is needed"),
        (["ipd", "--params", "discount"], "--params: got 'discount'; NAME=VALUE is needed"),
        (["ipd", "--params", "discount=["], "--params: discount: got '['"),
        (["ipd", "--steps", "0"], "--steps: got 0; a whole number of at least 1"),
        (["--gif", "x.gif"], "game: none given; a name is needed with --gif"),
        (["--steps", "3"], "game: none given; a name is needed with --steps"),
        (["ipd", "--gallery", "."], "--gallery: given with ipd"),
        (["coin_game", "--params", "reward=[1, 2]"], "reward: got [1, 2]; a number is needed"),
        (
            ["coin_game", "--params", "reward=2026-11-24"],
            "coin_game: reward: got datetime.date(2026, 11, 24); a value",
        ),
        (["ipd_in_the_matrix", "--params", "payoffs=5"], "payoffs: got shape ()"),
        (["SimpleBandit-bsuite", "--png", "x.png"], "SimpleBandit-bsuite: there is no picture of it"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"python -m games: {message}")


def test_an_unknown_option_exits_with_status_2(capsys):
    assert main(["--gift", "x"]) == 2
    assert capsys.readouterr().err == "python -m games: unknown option --gift; did you mean --gif?\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path, capsys):
    assert main(["ipd", "--steps", "2", "--gif", str(tmp_path / "none" / "x.gif")]) == 2
    assert str(tmp_path / "none" / "x.gif") in capsys.readouterr().err


@pytest.mark.system
def test_the_gallery_has_a_picture_of_every_game(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", {name: registry._ENTRIES[name] for name in ("ipd", "coin_game")})
    assert main(["--gallery", str(tmp_path)]) == 0
    text = (tmp_path / "games.md").read_text()
    for name in ("ipd", "coin_game"):
        assert f": random play](games/{name}.gif)\n\n*`python -m games {name} --steps 24 --gif" in text
        assert Image.open(tmp_path / "games" / f"{name}.gif").width > 100
