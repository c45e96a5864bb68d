"""Writes the site's Markdown, builds it with Zensical and checks every page of it; `make docs`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.site import api, check, cite, documents, gallery, game_pages, notebooks, trained, types
from docs.site.links import ROOT, repository

KINDS = (documents, game_pages, notebooks, api, types, gallery, trained, cite)
BUILD = ROOT / "build"


def write(folder: Path) -> None:
    """Writes all pages and files into a folder, which is emptied before.

    Raises:
      ValueError: for a page of two kinds, or a link that leads nowhere.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in documents.files().items():
        _made(folder / name)
        shutil.copyfile(source, folder / name)
    for name, content in notebooks.files().items():
        _made(folder / name).write_bytes(content)
    for kind in KINDS:
        for name, text in kind.pages().items():
            if (folder / name).exists():
                raise ValueError(f"{name}: two kinds of pages make it, {kind.__name__} is the second")
            _made(folder / name).write_text(text, encoding="utf-8")


def unlisted(folder: Path) -> list[str]:
    """One line for each page that the navigation of mkdocs.yml lacks; files of code are reached by links alone."""
    listed = set(re.findall(r"^ +- (?:[^#\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M))
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    return [f"mkdocs.yml: nav lacks {page}" for page in pages if page not in listed and not page.startswith("code/")]


def build(config: Path) -> list[str]:
    """Builds the site of an mkdocs.yml; one line for each fault."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(config)]
    link = f'Apache-2.0, <a href="{repository()}">repository</a>' if repository() else "Apache-2.0"
    settings = os.environ | {"NO_COLOR": "1", "SITE_FOOTER": link}
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    faults = [f"{place}: {fault}" for fault, place in re.findall(r"^Warning: (.*)\n\s*╭─\[ (\S+) \]", output, re.M)]
    faults += re.findall(r"^Warning: (.* in \S+)$", output, re.M)
    faults += re.findall(r"^(?:mkdocstrings|griffe|autorefs|WARNING)\b.*|^RuntimeError: Python error: .*", output, re.M)
    ended = [f"zensical ended with status {done.returncode}"] if done.returncode else []
    return faults or (ended and output.strip().splitlines()[-1:]) or ended


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> int:
    """Builds the site; 1 after any fault."""
    try:
        write(BUILD / "docs")
    except ValueError as error:
        faults = [str(error)]
    else:
        faults = unlisted(BUILD / "docs") or build(ROOT / "mkdocs.yml") or check.faults(BUILD / "site")
    for fault in faults:
        print(f"docs.site: {fault}", file=sys.stderr)
    if not faults:
        print("docs.site: the site is in build/site; python -m http.server -d build/site shows it.")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
