"""Checks of the built site: links, anchors, pictures and their texts, and requests to other hosts."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

MOST_BYTES = 30_000_000
_TAG = re.compile(r"<(a|img|script|link|source|iframe|video|audio|embed|object|use|h1)\b([^>]*)>", re.S)
_ATTRIBUTE = re.compile(r"([\w-]+)(?:=(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+)))?")
_ID = re.compile(r"\s(?:id|name)=(?:\"([^\"]+)\"|([^\s>\"]+))")
_STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
_LOADED = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch", "prefetch", "manifest"}


class Page(NamedTuple):
    """A page as its tags say it is."""

    tags: list[tuple[str, dict[str, str]]]
    anchors: set[str]


def read(text: str) -> Page:
    """The tags and anchors of a page."""
    tags = [(name, _attributes(rest)) for name, rest in _TAG.findall(text)]
    return Page(tags, {html.unescape(one or other) for one, other in _ID.findall(text)})


def faults(site: Path) -> list[str]:
    """One line for each fault of a built site."""
    pages = {path.relative_to(site).as_posix(): read(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = [line for name, page in sorted(pages.items()) for line in _faults_of(site, name, page, pages)]
    for path in sorted(site.rglob("*.css")):
        urls = [one or other for one, other in _STYLE_URL.findall(path.read_text(encoding="utf-8"))]
        found += [f"{path.relative_to(site)}: loads {url}, of another host" for url in urls if is_elsewhere(url)]
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        found.append(f"the site has {size:,} bytes; at most {MOST_BYTES:,} are allowed")
    return found


def loads(page: Page) -> list[str]:
    """Everything that a browser fetches for a page: scripts, styles, fonts, pictures and films."""
    urls = []
    for tag, attributes in page.tags:
        if tag == "link" and _LOADED & set(attributes.get("rel", "").split()):
            urls.append(attributes.get("href", ""))
        if tag not in ("a", "link"):
            urls += [attributes[key] for key in ("src", "href", "poster", "data") if key in attributes]
            urls += [one.split()[0] for one in attributes.get("srcset", "").split(",") if one.strip()]
    return [url for url in urls if url]


def is_elsewhere(url: str) -> bool:
    """True for a URL with a host."""
    return bool(urlsplit(url).netloc)


def _faults_of(site: Path, name: str, page: Page, pages: dict[str, Page]) -> list[str]:
    found = [f"{name}: loads {url}, of another host" for url in loads(page) if is_elsewhere(url)]
    found += [
        f"{name}: {tag['src']} has no alt text" for kind, tag in page.tags if kind == "img" and not tag.get("alt")
    ]
    if (titles := sum(kind == "h1" for kind, _ in page.tags)) != 1:
        found.append(f"{name}: has {titles} headings of the first level; one is needed")
    links = [tag["href"] for kind, tag in page.tags if kind == "a" and tag.get("href")]
    return found + [fault for url in {*links, *loads(page)} if (fault := _broken(site, name, url, pages))]


def _broken(site: Path, name: str, url: str, pages: dict[str, Page]) -> str:
    """A line for a link inside the site to what does not exist."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return ""
    path = unquote(parts.path)
    target = (
        path.lstrip("/") if path.startswith("/") else posixpath.join(posixpath.dirname(name), path) if path else name
    )
    target = posixpath.normpath(target)
    if (site / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (site / target).is_file():
        return f"{name}: {url} does not exist"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return f"{name}: {url} has no such anchor"
    return ""


def _attributes(text: str) -> dict[str, str]:
    return {name: html.unescape(one or two or three) for name, one, two, three in _ATTRIBUTE.findall(text)}
