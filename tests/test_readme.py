"""The Python of README and guides runs unchanged except for shorter lengths."""

import contextlib
import dataclasses
import importlib.util
import io
import itertools
import re
import shlex
from pathlib import Path

import jax
import pytest

import configs
import games
from attacks.experiments.attack import resolve
from attacks.experiments.config import AttackConfig
from attacks.experiments.transfer import PARTS
from configs.flags import check_effect
from games import registry
from marl import make_learner
from marl.commands import COMMANDS, describe
from marl.experiments.shaping.agents import save_agent
from marl.experiments.shaping.config import ExactShapingConfig, ShapingConfig
from marl.learners.registry import FORMULA
from marl.mfos import main as mfos
from meta.runs.execution import _parse
from tests.nightly import MARKS, nightly

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GUIDES = ROOT / "docs" / "guides"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


LEARNERS = [code for name in ("learners", "train") for code in blocks(GUIDES / f"{name}.md")]
(SHAPING,), (OWN, NETWORK, SAMPLED, RUN), (GAMES,), FINISHED = map(
    blocks, (ROOT / "README.md", GUIDES / "python.md", GUIDES / "games.md", GUIDES / "finished.md")
)


def test_the_same_run_in_python():
    """Forty generations of the 500 are already better than mutual defection."""
    code = SHAPING.replace("generations=500", "generations=40, population_size=128").replace("1024", "256")
    assert code.count("generations=40") == code.count('"num_trials": 256') == 1
    output = io.StringIO()
    names: dict = {}
    with contextlib.redirect_stdout(output):
        exec(code, names)
    shaper, opponent = map(float, re.findall(r"-?\d\.\d\d", output.getvalue())[:2])
    assert shaper > -1.2
    assert opponent < shaper
    assert 0 <= float(re.search(r"extortion in (.*)% of the trials", output.getvalue())[1]) <= 100


def test_a_learner_of_ones_own():
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(OWN, {})
    assert 2.0 < float(output.getvalue()) <= 4.0  # stags are caught more often


# The last one trains twice, by self-play and after its network has grown.
@pytest.mark.parametrize("code", [*LEARNERS[:-1], pytest.param(LEARNERS[-1], marks=MARKS)])
def test_the_guides_to_learners(code):
    output = io.StringIO()
    names: dict = {}
    with contextlib.redirect_stdout(output):
        exec(code, names)
    if "cautious" in FORMULA:
        FORMULA.unregister("cautious")  # other tests use all names
    if "history" in names:  # two SOS players on the tandem game
        assert sum(eval(output.getvalue())) == pytest.approx(1.0, abs=0.01)
    elif "grown" in names:  # self-play, and a learner that grows
        assert 0 < float(output.getvalue()) < 0.5
        assert names["after"].states[0].optimizer[1][0].count == 2 * 20 * 16
    else:
        assert names["learner"].init(jax.random.key(0)).logits.shape == (5,)


@nightly
def test_a_run_as_an_object(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = RUN.replace('"--evolution.generations", "20"', '"--evolution.generations", "2", "--evaluation-trials", "8"')
    assert code.count("evaluation-trials") == 1
    exec(code, {})
    assert "<run short: python -m marl.mfos ipd" in capsys.readouterr().out
    assert (tmp_path / "metrics.png").read_bytes()[:4] == b"\x89PNG"


@nightly
@pytest.mark.usefixtures("headless")
def test_a_finished_run(tmp_path, monkeypatch):
    """The run of an exact game is a short one, and that of a sampled game has an agent without training."""
    monkeypatch.chdir(tmp_path)
    short = ["--evolution.generations", "2", "--evolution.population-size", "8", "--evaluation-trials", "8"]
    mfos(["ipd", "--out", "runs/ipd-naive-0", *short])
    config = dataclasses.replace(configs.load(ShapingConfig, "mfos", "ipd_sampled"), meta_steps=2, episode_length=4)
    folder = Path("runs/ipd_sampled-shaper-0")
    folder.mkdir()
    (folder / "config.yaml").write_text(configs.to_text(config))
    save_agent(folder / "agent.safetensors", config, config.make_shaper().init(jax.random.key(0)))
    assert FINISHED[1].count("num_episodes=256") == 1
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in FINISHED:
            exec(code.replace("num_episodes=256", "num_episodes=8"), names)
            if code is FINISHED[1]:
                assert names["trials"].cooperation.shape == (8, 100, 2)
    shares = names["trials"].cooperation
    assert shares.shape == (16, 2, 2)
    assert 0 < float(shares.min()) <= float(shares.max()) < 1
    files = ("training", "cooperation_lola", "cooperation_ppo")
    assert all(Path(f"{file}.png").read_bytes()[:4] == b"\x89PNG" for file in files)


def test_every_figure_of_a_run_is_explained():
    """Files that commands write into `figures`, by the names in the code."""
    table = (ROOT / "docs" / "run_figures.md").read_text()
    code = [*ROOT.glob("marl/experiments/**/*.py"), *ROOT.glob("marl/distributed/*.py"), *ROOT.glob("attacks/**/*.py")]
    code = [file.read_text() for file in code if "reproduc" not in str(file)]
    written = {name for text in code for name in re.findall(r'"(\w+\.(?:png|gif))"', text)}
    written |= {f"{part}.png" for part in PARTS}
    assert len(written) > 20
    assert [name for name in sorted(written) if f"`{name}`" not in table] == []


def test_a_learner_with_a_network():
    """A fifth of a training is already far above the 22 steps of random play."""
    code = NETWORK.replace("num_updates=100", "num_updates=20")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    assert float(output.getvalue()) > 60


@nightly
def test_the_example_of_the_attacks_page_runs():
    page = (Path(__file__).parent.parent / "docs/guides/attacks.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    for long, short in (
        ('updates": 8', 'updates": 1'),
        (": 256", ": 16"),
        ("num_episodes=32", "num_episodes=4"),
        ("num_steps=200", "num_steps=8"),
        ("population_size=64", "population_size=2"),
        ("generations=20", "generations=2"),
    ):
        assert long in code
        code = code.replace(long, short)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    returns = names["evolved"].metrics["victim_return"]
    assert returns.shape == (2,)
    assert returns.tolist() == pytest.approx([8, 8])  # steps: no pole falls sooner


@nightly
def test_the_page_of_discovery():
    page = (Path(__file__).parent.parent / "docs/guides/discovery.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    for long, short in (("num_updates=100", "num_updates=20"), ("population_size=32", "population_size=16")):
        assert long in code
        code = code.replace(long, short)
    code = code.replace("generations=20", "generations=12").replace("sigma=0.1", "sigma=0.2")
    output, names = io.StringIO(), {}
    with contextlib.redirect_stdout(output):
        exec(code, names)
    fitness = names["evolved"].metrics["fitness"]
    assert fitness[0] < -3.2
    assert fitness[-1] > -2.8  # sums: random play has -3, mutual defection -4


@nightly
def test_a_shaper_of_learners_that_sample():
    code = SAMPLED.replace("population_size=32, generations=5", "population_size=4, generations=2")
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    returns = names["evolved"].metrics["shaper_return"]
    assert returns.shape == (2,)
    assert -3 < returns.min() <= returns.max() < 0


def test_the_games_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output, names = io.StringIO(), {}
    with contextlib.redirect_stdout(output):
        exec(GAMES, names)
    assert eval(output.getvalue()).keys() == {"own_coin", "other_coin", "truncated"}
    assert (tmp_path / "coins.gif").stat().st_size > 1000
    assert names["variants"].penalty.shape == (5,)


def test_the_gallery_shows_every_game():
    gallery = Path(__file__).parent.parent / "docs" / "games.md"
    shown = re.findall(r"^!\[[^\]]+: random play\]\(games/(\w+)\.gif\)", gallery.read_text(), re.M)
    assert shown == registry.ours()
    assert all((gallery.parent / "games" / f"{name}.gif").exists() for name in shown)


def test_the_three_commands_are_targets_of_the_makefile():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    commands = re.findall(r"^make (\w+)", README, re.M)
    assert commands == ["ipd", "test", "docs"]
    assert all(f"\n{command}:" in makefile for command in commands)


def test_the_readme_and_the_guides_are_short():
    words = {page.stem: len(page.read_text().split()) for page in GUIDES.glob("*.md")}
    assert len(README.splitlines()) <= 130
    assert len(README.split()) <= 1000
    code = "".join(re.findall(r"```.*?```", README, re.S)).splitlines()
    assert max(map(len, code)) <= 92  # the width of the site on a screen of 1280 pixels
    assert (ROOT / "docs" / "figures" / "episodes.gif").stat().st_size < 600_000
    assert sum(words.values()) <= 15_000
    assert max(len(page.read_text().splitlines()) for page in GUIDES.glob("*.md")) <= 150


def test_links_of_the_documents_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(((?!http)[^)\s]+)\)", page.read_text())]
    assert [str(page) for page, link in links if not (page.parent / link.split("#")[0]).exists()] == []


def test_every_picture_of_the_documents_is_described_and_named_by_its_command():
    """Words in its place, and a command within ten lines, or at the beginning of a page that a command has written."""
    faults, shown = [], set()
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        lines = page.read_text().splitlines()
        written = re.search(r"python -m \w+\.reproduce|python -m games", "\n".join(lines[:6]))
        for i, line in enumerate(lines):
            for words, file in re.findall(r"!\[([^\]]*)\]\((\S+?)\)", line):
                shown.add((page.parent / file).resolve())
                near = "\n".join(lines[max(i - 10, 0) : i + 11])
                described = len(words.split()) > 1 or words in registry.ours()
                if not described or not (written or re.search(r"python -m [a-z]|^make ipd", near, re.M)):
                    faults.append(f"{page.relative_to(ROOT)}:{i + 1}: {file}")
    assert faults == []
    assert {*(ROOT / "docs" / "figures").rglob("*.*")} == {file for file in shown if "figures" in file.parts}


def test_commands_of_the_documents_exist():
    root = Path(__file__).parent.parent
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "Makefile"]
    commands = {name for page in pages for name in re.findall(r"python -m ([a-z]\w*(?:\.\w+)*)", page.read_text())}
    assert {"marl.mfos", "benchmarks.speed.exact_game", "benchmarks.learning.returns"} <= commands
    assert [name for name in sorted(commands) if not importlib.util.find_spec(name)] == []


def test_command_lines_of_the_documents_fit():
    """All options have values that they can have; what is in capitals stands for a value, and runs are not there."""
    known = {entry.module for entry in COMMANDS.values() if not entry.main}
    checked = 0
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        text = page.read_text().replace("\\\n", " ")
        for lines in re.findall(r"^ *python -m ([a-z].*)$|`python -m ([^`]*)`", text, re.M):
            module, *words = shlex.split("".join(lines), comments=True)
            left_out = r"[A-Z]{2,}(\(.*)?|[A-Z]|runs/.*|\.\.\.|--(resume|import).*"
            if module not in known or any(re.fullmatch(left_out, word) for word in words):
                continue
            command = describe(module)
            chosen = list(itertools.takewhile(lambda word: not word.startswith("-"), words))[: command.words]
            if command.first and not chosen:  # only its name
                continue
            rest = words[len(chosen) :] if command.first else words
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):  # of --help
                config, *_ = _parse(command, command.default(" ".join(chosen)), command.output, rest, "", "")
                check_effect(config, rest)
            checked += 1
    assert checked > 140


LENGTHS = {  # command: first arguments whose fields differ
    "marl.mfos": ["ipd"],
    "marl.train": ["cartpole"],
    "marl.distributed": ["CartPole-v1"],
    "marl.discover": ["drift cartpole"],
    "attacks.act": ["cartpole"],
    "marl.bound": ["ipd"],
    "marl.mmaml": ["ipd"],
    "marl.cola": ["ipd"],
    "marl.meva": ["ipd"],
    "marl.crossplay": ["ipd", "ipd_sampled"],
    "marl.schelling": ["harvest"],
}


def test_the_guide_has_the_fields_that_may_change_in_a_run():
    found = {}
    for modules, *cells in re.findall(r"^\| (`\w+\.\w+`.*?) \|(.*?)\|(.*?)\|$", (GUIDES / "runs.md").read_text(), re.M):
        for module in re.findall(r"`(\w+\.\w+)`", modules):
            found[module] = {*re.findall(r"`--([\w.-]+)`", "".join(cells))}
    allowed = {}
    for module, names in LENGTHS.items():
        given = [describe(module).default(name) for name in names]
        given += [dataclasses.replace(config, meta_learner="ppo") for config in given if module == "marl.mfos"]
        fields = {field for config in given for field in (*config.may_rise, *config.may_change)}
        allowed[module] = {field.replace("_", "-") for field in fields}
    assert found == allowed


def test_the_numbers_of_passed_checks_are_those_of_the_reports():
    counts = re.findall(r"\(docs/results/(reproduced_\w+\.md)\)\s+(\d+ of \d+)", README)
    assert len(counts) == 3
    for report, count in counts:
        assert re.search(rf"\b{count}( claims pass)?\b", (ROOT / "docs/results" / report).read_text()), report


def test_the_guide_to_trackers():
    (code,) = blocks(GUIDES / "trackers.md")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    first, *rows, last = output.getvalue().splitlines()
    assert first.endswith(" begins")
    assert [int(row.split()[0]) for row in rows] == [1, 2, 3, 4, 5]
    assert last == "finished"


def test_the_guide_to_extending():
    (code,) = blocks(GUIDES / "extending.md")
    try:
        exec(code, {})
        assert make_learner("patient(learning_rate=0.5)", games.InfinitelyRepeated(games.prisoners_dilemma)).seat == 0
    finally:
        FORMULA.unregister("patient")  # other tests use all names


@nightly
def test_the_guide_to_systems():
    (code,) = blocks(GUIDES / "systems.md")
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    assert names["trained"].history.returns[0].shape == (20,)


def test_defaults_in_the_documents_are_those_of_the_code():
    docs = Path(__file__).parents[1] / "docs"
    pages = "results/speed", "results/exact", "guides/attacks"
    speed, exact, attacks = ((docs / f"{page}.md").read_text() for page in pages)
    shaping, attack = ExactShapingConfig(), configs.load(AttackConfig, "act", "cartpole")
    evolution = shaping.evolution
    assert f"| {evolution.population_size} x {shaping.trials} (default) |" in speed
    assert f"evaluation: {shaping.evaluation_trials:,} fresh trials" in speed
    size = evolution.population_size * shaping.trials * shaping.meta_steps * evolution.generations
    assert f"evolution: {evolution.generations} generations, {size / 1e6:.0f} M meta-steps" in speed
    units = f"{shaping.hidden_units} hidden units, {evolution.generations} generations: the default"
    assert f"sigma {evolution.sigma} that falls to a tenth, {units}" in exact
    assert evolution.sigma_end == 0.1
    assert f"--goal {attack.goal} (the default)" in attacks
    attacks = " ".join(attacks.split())
    short = f"{attack.warm_up.generations} generations of {attack.warm_up_updates} updates"
    assert f"{short}, then {attack.evolution.generations} of whole training runs" in attacks
    assert "`cartpole` has a message that turns (`turn`)" in attacks
    assert f"{attack.evaluation_trials:,} fresh victims for the result" in attacks
    assert resolve(attack).kind.name == "turn"
    preset = configs.load(ShapingConfig, "mfos", "coin_game").environment
    assert (
        f'`games.make("coin_game", {preset.removeprefix("coin_game(")}`' in (docs / "guides" / "sampled.md").read_text()
    )
