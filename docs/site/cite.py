"""The page on how to cite, from CITATION.cff."""

from __future__ import annotations

from typing import Any

import yaml

from docs.site.links import ROOT


def pages() -> dict[str, str]:
    """One page: the software and each paper, as text and as BibTeX."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    software = _bibtex("marl_shaping", cff["title"], "The authors of marl-shaping", note=f"{cff['abstract'].strip()}")
    parts = ["# How to cite", cff["message"], "## The software", _fenced(software), "## The papers"]
    for paper in cff["references"]:
        authors = [f"{one['given-names']} {one['family-names']}" for one in paper["authors"]]
        (identifier,) = (one["value"] for one in paper["identifiers"])
        parts.append(f"{_listed(authors)} ({paper['year']}). *{paper['title']}*. {identifier}.")
        key = f"{paper['authors'][0]['family-names'].lower()}{paper['year']}{paper['title'].split()[0].lower()}"
        entry = _bibtex(
            key.replace("-", ""), paper["title"], " and ".join(authors), year=paper["year"], eprint=identifier[6:]
        )
        parts.append(_fenced(entry))
    return {"cite.md": "\n\n".join(parts) + "\n"}


def _bibtex(key: str, title: str, authors: str, **fields: Any) -> str:
    lines = [f"  title = {{{title}}},", f"  author = {{{authors}}},"]
    lines += [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _fenced(text: str) -> str:
    return f"```bibtex\n{text}\n```"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
