"""The HTML of a page that is one file: elements, tables, pictures, curves, and the style and scripts in it."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

# The tree escapes every text and every attribute, so that nothing that a file holds becomes an element or a script.

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?( ± [\d.e-]+.*)?( to .*)?|not finite|not known|-")
GENERATOR = "marl-shaping"
LONGEST_NUMBER = 24  # characters of a cell that is not broken into lines
_LOWERED = {"html": False, "xhtmlOut": True}  # HTML in Markdown is shown as text


def element(tag: str, *children: Element | str | None, **attributes: str) -> Element:
    """An element of HTML.

    Args:
      tag: its name.
      *children: elements and texts in their order; None stands for nothing.
      **attributes: by name; an underscore at the end of `class_` is dropped.

    Returns:
      The element, whose texts are escaped when the page is written.
    """
    found = Element(tag, {name.rstrip("_").replace("_", "-"): printable(x) for name, x in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            found.append(child)
            last = child
        elif child and last is None:
            found.text = (found.text or "") + printable(child)
        elif child and last is not None:
            last.tail = (last.tail or "") + printable(child)
    return found


def printable(text: str) -> str:
    """A text without characters that no page may hold.

    Args:
      text: any.
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def section(title: str, *children: Element | str | None) -> Element:
    """A section with a heading, which a link can name.

    Args:
      title: the heading.
      *children: the content.
    """
    return element("section", element("h2", title), *children, id=title.lower().replace(" ", "-"))


def folded(title: str, *children: Element | str | None) -> Element:
    """A part of a page that is shown when its title is chosen.

    Args:
      title: the words that stay visible.
      *children: the content.
    """
    return element("details", element("summary", title), *children)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> Element:
    """A table; its first column names the rows, and cells of numbers stand at the right.

    Args:
      columns: the headings; no head is made where all are empty.
      rows: texts, as many as there are columns.
      title: above it.
    """
    parts = []
    if any(columns):
        parts.append(element("thead", element("tr", *(element("th", one, scope="col") for one in columns))))
    body = []
    for first, *others in rows:
        if others and not any(others):
            span = element("th", first, scope="colgroup", colspan=str(len(columns)))
            body.append(element("tr", span))
            continue
        cells = [element("td", x, **({"class_": "number"} if _NUMBER.fullmatch(x) else {})) for x in others]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    label = {"aria_label": title} if title else {}
    head = element("p", title, class_="title") if title else None  # a caption would be as narrow as its table
    return element("div", head, element("table", *parts, element("tbody", *body), **label), class_="wide")


def names(pairs: Iterable[tuple[str, Element | str]]) -> Element:
    """A list of names with their values.

    Args:
      pairs: (name, value).
    """
    return element("dl", *(one for name, x in pairs for one in (element("dt", name), element("dd", x))))


def picture(contents: bytes, title: str, note: str = "") -> Element:
    """A picture or a film with its title and its note.

    Args:
      contents: of a PNG or GIF file.
      title: the words that stand for it where it cannot be seen.
      note: below the title.
    """
    kind = "gif" if contents[:3] == b"GIF" else "png"
    data = f"data:image/{kind};base64,{base64.b64encode(contents).decode()}"
    ends = itertools.pairwise((6, 8, 10) if kind == "gif" else (16, 20, 24))
    width, height = (str(int.from_bytes(contents[a:b], "little" if kind == "gif" else "big")) for a, b in ends)
    # With its size, a picture that is decoded late moves nothing below it.
    image = element("img", src=data, alt=title, width=width, height=height)
    caption = element("figcaption", element("b", title), f" {note}" if note else None)
    return element("figure", image, caption)


def curves(chart: dict[str, Any]) -> Element:
    """Curves that a script draws: they zoom, and show their values at the cursor.

    Args:
      chart: `title`, `x` (its label), `values` of x, `lines` (each with `label`, `mean`, and `low` and `high`, the
        edges of its band, or None), and `note`, all of numbers or None.
    """
    # No text in it can end the element.
    data = json.dumps(chart, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = Element("script", {"type": "application/json"})
    script.text = data
    caption = element("figcaption", element("b", str(chart["title"])), f" {chart['note']}")
    return element("figure", element("div", script, class_="chart"), caption, class_="curves")


def markdown(text: str) -> Element:
    """Markdown without HTML in it, as elements; pictures keep the path that the text names.

    Args:
      text: CommonMark with tables.
    """
    from markdown_it import MarkdownIt  # here, because most pages have none

    reader = MarkdownIt("commonmark", _LOWERED).enable("table")
    found = ElementTree.fromstring(f"<div>{reader.render(printable(text))}</div>")
    for one in found.iter():
        right = "right" in one.attrib.pop("style", "")  # a page allows no style but its own
        if right and len("".join(one.itertext())) <= LONGEST_NUMBER:
            one.set("class", "number")
    for parent in list(found.iter()):
        for i, child in enumerate(list(parent)):
            if child.tag == "table":
                parent.remove(child)
                child.tail = None
                parent.insert(i, element("div", child, class_="wide"))
    return found


def document(title: str, *body: Element) -> str:
    """A whole page, which loads nothing and runs no script but its own.

    Args:
      title: of the window.
      *body: its elements.

    Returns:
      The text of the file.
    """
    style, scripts = _style(), _scripts()
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(scripts)}; "
    policy += "base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=GENERATOR),
        element("title", title),
    )
    for tag, text in (("style", style), ("script", scripts)):
        own = Element(tag, {"type": "module"} if tag == "script" else {})
        own.text = text
        head.append(own)
    page = element("html", head, element("body", element("main", *body)), lang="en")
    return "<!doctype html>\n" + ElementTree.tostring(page, encoding="unicode", method="html") + "\n"


@functools.cache
def _style() -> str:
    return _asset("uPlot.min.css") + _asset("report.css")


@functools.cache
def _scripts() -> str:
    """The scripts of all pages; uPlot draws curves in 50 kB, a fiftieth of what Plotly or Vega-Lite needs."""
    return f"/*\n{_asset('uPlot-LICENSE.txt')}*/\n{_asset('uPlot.iife.min.js')}\n{_asset('report.js')}"


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
