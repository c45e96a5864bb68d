"""The gallery: every figure and film of the documents, with one sentence and its command."""

from __future__ import annotations

import itertools
import posixpath
import re
from typing import NamedTuple

from markdown.extensions.toc import slugify

from docs.site.documents import sources
from docs.site.links import ROOT, site_path

FOLDERS = ("docs/results/", "docs/guides/", "docs/notes/", "docs/games.md", "README.md")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"(?:marl-shaping|python -m (?:marl|meta|attacks|games|benchmarks)) ?[^`\n#]*|make [a-z]+$", re.M)
_CODE = re.compile(r"```\w*\n(.*?)```|`((?:[^`\n]|\n(?!\n))+)`", re.S)
_CONTINUED = re.compile("--resume|marl.export")  # commands that go on with a run, or make something of it


class Figure(NamedTuple):
    """A picture of a document."""

    path: str  # below the site
    alt: str
    sentence: str
    command: str  # of its caption; or the nearest above it, or below; empty if the document has none
    page: str  # below the site
    title: str  # of the page
    heading: str
    anchor: str  # of the heading


def figures() -> list[Figure]:
    """Every figure once, in the order of the documents."""
    order = [source for folder in FOLDERS for source in sources() if source.startswith(folder)]
    found: dict[str, Figure] = {}
    for source in order:
        for figure in figures_of((ROOT / source).read_text(encoding="utf-8"), source):
            found.setdefault(figure.path, figure)
    return list(found.values())


def figures_of(text: str, source: str) -> list[Figure]:
    """The figures of one document of the repository."""
    found, title = [], _plain(text.split("\n", 1)[0].lstrip("# "))
    commands = [
        (at.start(), command) for at in _CODE.finditer(text) for command in _commands(at[1] or at[2].replace("\n", " "))
    ]
    for picture in _PICTURE.finditer(text):
        above, below = text[: picture.start()], text[picture.end() :]
        headings = [
            _plain(line) for line in re.findall(r"^##+ (.*)$", re.sub(r"```.*?```", "", above, flags=re.S), re.M)
        ]
        heading = headings[-1] if headings else title
        caption = _caption(above, below)
        figure = Figure(
            path=posixpath.normpath(posixpath.join(posixpath.dirname(site_path(source)), picture[2]))
            if source.startswith("docs/")
            else picture[2].removeprefix("docs/"),
            alt=picture[1],
            sentence=_sentence(picture[1], caption, above, heading, title),
            command=_named(caption) or _nearest(commands, picture.start(), picture[1]),
            page=site_path(source),
            title=title,
            heading=heading,
            anchor=slugify(heading, "-"),
        )
        found.append(figure)
    return found


def pages() -> dict[str, str]:
    """One page, films first."""
    found = figures()
    films = [figure for figure in found if figure.path.endswith(".gif")]
    groups: dict[str, list[Figure]] = {"Films": films}
    for figure in found:
        if figure not in films:
            groups.setdefault(figure.title, []).append(figure)
    parts = ["# Gallery", "Every figure and film, with the command that it comes from; a picture leads to its page."]
    for title, members in groups.items():
        cards = "\n\n".join(_card(figure) for figure in members)
        parts.append(f'## {title}\n\n<div class="gallery" markdown>\n\n{cards}\n\n</div>')
    return {"gallery.md": "\n\n".join(parts) + "\n"}


def _card(figure: Figure) -> str:
    picture = f"[![{figure.alt}]({figure.path}){{ loading=lazy }}]({figure.page}#{figure.anchor})"
    command = f" `{figure.command}`" if figure.command and figure.command not in figure.sentence else ""
    caption = f"<figcaption markdown>\n{figure.sentence}{command}\n</figcaption>"
    return f"<figure markdown>\n\n{picture}\n\n{caption}\n\n</figure>"


def _caption(above: str, below: str) -> str:
    """The text in italics below a picture, or the cell below it in a table of pictures; empty without either."""
    if found := re.match(r"\s*\n\n\*([^*].*?)\*(?:\n\n|\s*$)", below, re.S):
        return found[1]
    before, (rest, *rows) = above.rsplit("\n", 1)[-1], below.split("\n")
    if not before.startswith("|") or "|" not in rest:
        return ""
    table = itertools.takewhile(lambda row: row.startswith("|"), rows)
    captions = [row.split("|") for row in table if not re.fullmatch(r"[|\s:-]+", row) and "![" not in row]
    return captions[0][before.count("|")].strip() if captions else ""


def _named(caption: str) -> str:
    """The first command that a caption names; empty if it names none."""
    return next(
        (command for code in re.findall(r"`([^`]+)`", caption) for command in _commands(code.replace("\n", " "))), ""
    )


def _sentence(alt: str, caption: str, above: str, heading: str, title: str) -> str:
    """The caption of a picture, or its alt text if that only names a file; the text above, if both say the heading."""
    if caption and not caption.startswith("`"):
        text = caption
    elif alt == heading:
        text = above.rstrip().rsplit("\n\n", 1)[-1]
    else:
        context = title if alt.lower() in heading.lower() else heading
        text = alt if len(alt.split()) > 4 else f"{alt} ({context})"
    text = " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())
    sentence = re.split(r"(?<=[.!?]) ", text)[0].rstrip(".:")
    return f"{sentence[0].upper()}{sentence[1:]}."


def _nearest(commands: list[tuple[int, str]], place: int, alt: str) -> str:
    """The last command above a picture with a subject of its text; else the last above; else the first below."""
    above = [command for at, command in commands if at < place]
    words = set(re.findall(r"\w{4,}", alt.lower()))
    alike = [command for command in above if words & set(re.findall(r"\w{4,}", " ".join(command.lower().split()[3:4])))]
    below = [command for at, command in commands if at > place]
    return (alike[-1:] or above[-1:] or below[:1] or [""])[0]


def _commands(code: str) -> list[str]:
    found = (" ".join(command.split()) for command in _COMMAND.findall(code))
    return [command for command in found if not _CONTINUED.search(command)]


def _plain(heading: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip()
