"""Links of a file of the repository, rewritten to the pages of the site that show the same."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Files outside docs that have a page of their own; any other file has one below `code/`, as text.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CITATION.cff": "cite.md",
    "examples": "examples.md",
    "examples/notebooks": "notebooks/index.md",
}
_CODE = re.compile(r"(```.*?^ *```|`[^`\n]*`)", re.S | re.M)
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def repository() -> str:
    """The address of the repository on GitHub by its name OWNER/NAME in `GITHUB_REPOSITORY`; empty without it."""
    name = os.environ.get("GITHUB_REPOSITORY", "")
    return f"https://github.com/{name}" if name else ""


def site_path(path: str) -> str:
    """The path below the site of a file of the repository: `docs/games.md` is `games.md`.

    Raises:
      ValueError: if there is no such file.
    """
    if not (ROOT / path).exists():
        raise ValueError("no such file")
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"code/{path}.md"


def links(text: str) -> list[str]:
    """The relative links of Markdown, without their anchors and without those in code."""
    return [link for part in _CODE.split(text)[::2] for link in _LINK.findall(part)]


def rewritten(text: str, source: str, target: str) -> str:
    """Markdown of the file `source` of the repository, with links that are right at `target` of the site.

    Raises:
      ValueError: for a link to a file that does not exist, with the page and the link.
    """

    def replace(found: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        try:
            return posixpath.relpath(site_path(file), posixpath.dirname(target) or ".")
        except ValueError as error:
            raise ValueError(f"{source}: the link {found[1]} leads nowhere ({error})") from None

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(replace, part) for part in parts[::2]]
    return "".join(parts)
