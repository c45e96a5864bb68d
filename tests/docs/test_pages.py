"""The pages of the site as they are written: links, gallery, citation, and the API's list of names."""

import re

import pytest

from docs.site import api, check, cite, documents, gallery, links, types
from docs.site.__main__ import KINDS, unlisted
from docs.site.names import defined_names, find, public_names


def test_links_of_a_document_lead_to_the_pages_of_the_site():
    text = "[a](../../README.md#first) [b](exact.md) [c](../../examples/game_of_your_own.py) `[d](../x.md)` [e](#f)"
    assert links.rewritten(text, "docs/guides/python.md", "guides/python.md") == (
        "[a](../index.md#first) [b](exact.md) [c](../code/examples/game_of_your_own.py.md) `[d](../x.md)` [e](#f)"
    )
    assert links.rewritten("[games](docs/games.md) [web](https://jax.dev)", "README.md", "index.md") == (
        "[games](games.md) [web](https://jax.dev)"
    )
    with pytest.raises(ValueError, match=r"docs/games\.md: the link poker\.md leads nowhere \(no such file\)"):
        links.rewritten("[poker](poker.md)", "docs/games.md", "games.md")


def test_code_that_a_document_links_to_has_a_page_with_its_text():
    pages = documents.pages()
    page = pages["code/examples/game_of_your_own.py.md"]
    assert (links.ROOT / "examples" / "game_of_your_own.py").read_text().rstrip() in page
    assert "code/examples/cluster/ray.yaml.md" in pages
    assert pages["examples.md"].count("code/examples/") == len([*(links.ROOT / "examples").glob("*.py")])


def test_the_page_on_which_one_plays_leads_back_to_the_site():
    page = documents.pages()["play/index.html"]
    assert '<a href="../index.html">' in page
    assert '<a href="../extortioner/index.html">' in page
    assert "play/index.html" not in documents.files()


def test_no_two_kinds_of_pages_make_the_same_one():
    names = [name for kind in KINDS for name in kind.pages()]
    assert len(names) == len(set(names))


def test_a_page_that_the_navigation_lacks_is_named(tmp_path):
    for name in ("index.md", "poker.md", "code/x.py.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert unlisted(tmp_path) == ["mkdocs.yml: nav lacks poker.md"]


def test_every_public_name_is_on_one_page_of_the_api():
    public = public_names()
    shown = [name for page in api.pages().values() for name in re.findall(r"^::: (\S+)", page, re.M)]
    assert sorted(shown) == sorted(public)
    paths = {path for name, others in public.items() for path in (name, *others)}
    for package in ("games", "marl", "meta", "attacks", "marl.shapers", "marl.distributed", "attacks.messages"):
        assert {f"{package}.{name}" for name in find(package).__all__} <= paths
    assert {"games.zd.fit", "marl.objectives.dpo", "configs.ConfigError"} <= paths
    assert public["attacks.Message"] == ["attacks.messages.Message"]


def test_settings_of_learners_are_listed_by_their_keys():
    page = types.pages()["api/types.md"]
    assert "Keys: `buffer_size`, `batch_size`, `learning_starts`, `gradient_steps`." in page  # with those of the base


def test_a_name_on_no_page_or_on_two_is_an_error(monkeypatch):
    about, guide, sections = api.PAGES["run"]
    runs = sections["Runs"]
    for names, times in ((runs.replace("marl.load_run ", ""), 0), (f"{runs} meta.evolve", 2)):
        monkeypatch.setitem(api.PAGES, "run", (about, guide, sections | {"Runs": names}))
        name = "marl.load_run" if times == 0 else "meta.evolve"
        with pytest.raises(ValueError, match=f"{name} is placed {times} times; once is needed"):
            api.pages()


def test_names_that_a_module_imports_are_not_its_own():
    names = defined_names(find("games.zd"))
    assert {"Fit", "fit", "IN_A_ROW"} <= set(names)
    assert not {"np", "MatrixGame", "NamedTuple", "annotations"} & set(names)


def test_the_gallery_takes_captions_and_the_nearest_command():
    text = (
        "# Games\n\n`python -m games --gallery docs`\n\n## Pong\n\n`python -m marl.distributed pong` and\n"
        "`python -m marl.mfos --resume DIR`.\n\n![curve](figures/pong.png)\n\n*Return of a player. It grows.*\n\n"
        "## `chess`\n\nA game of two. It is old.\n\n![chess](figures/chess.gif)\n"
    )
    pong, chess = gallery.figures_of(text, "docs/games.md")
    assert (pong.sentence, pong.command) == ("Return of a player.", "python -m marl.distributed pong")
    assert (pong.path, pong.page, pong.anchor) == ("figures/pong.png", "games.md", "pong")
    assert (chess.sentence, chess.heading) == ("A game of two.", "chess")


def test_the_gallery_takes_the_command_that_a_caption_names():
    text = (
        "# Results\n\n`python -m marl.bound ipd`\n\n![the bound of two games](figures/a.png)\n\n"
        "*`a.png` of `python -m marl.reproduce\nmfos`.*\n\n| ![left](b.gif) | ![right](c.gif) |\n|---|---|\n"
        "| the left one | an arm, `python -m attacks.act reacher` |\n"
    )
    bound, left, right = gallery.figures_of(text, "docs/results/exact.md")
    assert (bound.sentence, bound.command) == ("The bound of two games.", "python -m marl.reproduce mfos")
    assert (left.sentence, left.command) == ("The left one.", "python -m marl.reproduce mfos")  # the nearest above
    assert right.command == "python -m attacks.act reacher"


def test_the_gallery_has_every_picture_of_the_results():
    (page,) = gallery.pages().values()
    results = [path.read_text() for path in (links.ROOT / "docs" / "results").glob("*.md")]
    pictures = {name for text in results for name in re.findall(r"!\[[^\]]*\]\(\.\./([^)]+)\)", text)}
    assert len(pictures) > 30
    assert [name for name in pictures if page.count(f"]({name}){{ loading=lazy }}") != 1] == []


def test_a_citation_has_every_author():
    (page,) = cite.pages().values()
    assert "author = {Chris Lu and Timon Willi and Christian Schroeder de Witt and Jakob Foerster}" in page
    assert "eprint = {2205.01447}" in page


def test_faults_of_a_built_site_are_one_line_each(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h1 id="top">A</h1> <img src="../x.png" alt="x">')
    (tmp_path / "x.png").touch()
    (tmp_path / "s.css").write_text("@font-face { src: url(https://fonts.example/f.woff) }")
    assert check.faults(tmp_path) == ["s.css: loads https://fonts.example/f.woff, of another host"]
    (tmp_path / "s.css").unlink()
    (tmp_path / "index.html").write_text(
        '<h1>Home</h1> <a href="a/#top">a</a> <a href="a/#none">b</a> <a href="b/">c</a> <a href="https://jax.dev">d</a>'
        '<img src="x.png"> <script src="https://cdn.example/s.js"></script> <link rel="canonical" href="https://x.org/">'
    )
    assert sorted(check.faults(tmp_path)) == [
        "index.html: a/#none has no such anchor",
        "index.html: b/ does not exist",
        "index.html: loads https://cdn.example/s.js, of another host",
        "index.html: x.png has no alt text",
    ]
