"""Pages that are files of the repository: all of docs, README, changelog, and the code that they link to."""

from __future__ import annotations

import ast
import posixpath
from pathlib import Path

from docs.site.links import PAGES, ROOT, links, repository, rewritten, site_path

PLAY = "docs/play/index.html"  # a page of its own, which is no Markdown
TITLE = "Opponent shaping in JAX"  # of the first page, whose heading is the name of the site
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash", ".toml": "toml"}


def sources() -> list[str]:
    """The Markdown files of the repository that are pages."""
    docs = sorted(path for path in (ROOT / "docs").rglob("*.md") if "site" not in path.relative_to(ROOT).parts)
    return [path.relative_to(ROOT).as_posix() for path in docs] + [name for name in PAGES if name.endswith(".md")]


def pages() -> dict[str, str]:
    """Every document, the examples, the code of the games, and each file of code that a document links to."""
    documents = {source: (ROOT / source).read_text(encoding="utf-8") for source in sources()}
    found = {site_path(source): rewritten(text, source, site_path(source)) for source, text in documents.items()}
    examples = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py"))
    suite = (path.relative_to(ROOT).as_posix() for path in (ROOT / "games" / "suite").glob("[a-z]*.py"))
    code = {*examples, *suite, *(file for source, text in documents.items() for file in _code(source, text))}
    found["index.md"] = f"---\ntitle: {TITLE}\n---\n\n{found['index.md']}"
    if repository():
        heading = "## Install and run\n"
        found["index.md"] = found["index.md"].replace(heading, f"{heading}\n```\ngit clone {repository()}\n```\n")
    found["play/index.html"] = _with_way_back((ROOT / PLAY).read_text(encoding="utf-8"))
    return found | {site_path(file): _shown(file) for file in sorted(code)} | {"examples.md": _examples(examples)}


def files() -> dict[str, Path]:
    """Pictures, films and whatever else docs has beside Markdown."""
    docs = ROOT / "docs"
    paths = (path for path in docs.rglob("*") if path.is_file() and path.suffix not in (".md", ".py", ".pyc", ".html"))
    return {path.relative_to(docs).as_posix(): path for path in sorted(paths)}


def _with_way_back(text: str) -> str:
    """The page on which one plays, with links to the site."""
    links = '<a href="../index.html">marl-shaping</a> <a href="../extortioner/index.html">About this page</a>'
    return text.replace("<header>", f"<header>\n  <nav>{links}</nav>", 1)


def _code(source: str, text: str) -> list[str]:
    """The files of code that a document links to."""
    targets = (posixpath.normpath(posixpath.join(posixpath.dirname(source), link)) for link in links(text))
    return [file for file in targets if (ROOT / file).is_file() and site_path(file).startswith("code/")]


def _shown(file: str) -> str:
    """A page with the text of a file."""
    text = (ROOT / file).read_text(encoding="utf-8").rstrip()
    language = LANGUAGES.get(Path(file).suffix, "text")
    return f"# `{file}`\n\n````{language}\n{text}\n````\n"


def _examples(files: list[str]) -> str:
    """The list of the example scripts, each with the first paragraph of its docstring."""
    lines = ["# Examples", "", "Scripts of a page each, which run as they stand.", ""]
    for file in files:
        about = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
        first = " ".join(about.split("\n\n")[0].split())
        lines.append(f"- [{Path(file).name}]({site_path(file)}): {first} `python {file}`")
    return "\n".join(lines) + "\n"
