"""Claims and whether a figure meets them; and reports of them, for readers (Markdown) and for programs (JSON)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from meta import RunDirectory
from meta.runs import provenance
from meta.statistics import or_nan

SMOKE = "**A smoke run, much too small to mean anything: no verdict below is to be trusted.** It shows that all runs."
STANDARD_ERRORS = 3.0  # how far from its reference a figure may lie


class Claim(NamedTuple):
    """One figure of ours, and what it has to be: near a reference, or at least or at most a target.

    With a target the verdict is about the figure itself, however large its error; a reference is then for comparison.
    """

    name: str
    ours: float | None
    standard_error: float | None
    reference: float | None = None
    reference_error: float = 0.0
    least: float | None = None
    most: float | None = None
    comment: str = ""


class Section(NamedTuple):
    """A part of a report: answer, text, claims, further tables and pictures, in this order, without empty parts."""

    title: str
    text: str = ""
    claims: Sequence[Claim] = ()
    tables: Sequence[str] = ()  # as `table` makes them
    pictures: Sequence[tuple[str, str]] = ()  # (what is seen, path from the report)
    answer: str = ""  # what came out, in one sentence with the numbers of the section


def difference(claim: Claim) -> float | None:
    """Our difference from the reference, or from the target without one, in combined standard errors.

        (ours - reference) / sqrt(standard_error^2 + reference_error^2)

    None where a number is missing, or where both are exact and differ.
    """
    other = next((x for x in (claim.reference, claim.least, claim.most) if x is not None), None)
    own_error = or_nan(claim.standard_error)
    if claim.ours is None or other is None or not math.isfinite(own_error):
        return None
    error = math.hypot(own_error, claim.reference_error if claim.reference is not None else 0.0)
    if error:
        return (claim.ours - other) / error
    return 0.0 if claim.ours == other else None


def passes(claim: Claim) -> bool | None:
    """True if ours reaches its target, or lies within three combined standard errors of its reference.

    None where nothing is claimed, and where a figure of one training, which has no error, has a reference alone. What
    is no number passes nothing.
    """
    if claim.least is None and claim.most is None and claim.reference is None:
        return None
    if claim.ours is None or not math.isfinite(claim.ours):
        return False
    if claim.least is not None or claim.most is not None:
        above = claim.least is None or claim.ours >= claim.least
        return above and (claim.most is None or claim.ours <= claim.most)
    if not math.isfinite(or_nan(claim.standard_error)):
        return None
    distance = difference(claim)
    return distance is not None and abs(distance) <= STANDARD_ERRORS


def summary(claims: Sequence[Claim]) -> tuple[int, int]:
    """(how many pass, how many claim something)."""
    verdicts = [verdict for verdict in map(passes, claims) if verdict is not None]
    return sum(verdicts), len(verdicts)


def number(x: float | None, digits: int = 3) -> str:
    """A cell: fixed digits, or a power of ten where they would show none; empty for what is not there."""
    if x is None or not math.isfinite(x):
        return ""
    return f"{x:.1e}" if x and abs(x) < 0.5 * 10**-digits else f"{x:.{digits}f}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first column is text, all others are numbers or single words."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def claims_table(claims: Sequence[Claim]) -> str:
    """Ours and the reference with standard errors, the target, the difference and the verdict of each claim."""
    columns = ["", "ours", "reference", "target", "difference in s.e.", "verdict"]
    with_comments = any(claim.comment for claim in claims)
    rows = []
    for claim in claims:
        verdict = {True: "pass", False: "**fail**", None: ""}[passes(claim)]
        cells = [_with_error(claim.ours, claim.standard_error)]
        cells += [_with_error(claim.reference, claim.reference_error or None)]
        cells += [_target(claim), number(difference(claim), 1), verdict]
        rows.append([claim.name, *cells, *([claim.comment] if with_comments else [])])
    return table([*columns, *(["comment"] if with_comments else [])], rows)


def _with_error(value: float | None, error: float | None) -> str:
    shown, spread = number(value), number(error)
    return f"{shown} ± {spread}" if shown and spread else shown


def _target(claim: Claim) -> str:
    bounds = [f"{sign} {x:.3g}" for sign, x in (("≥", claim.least), ("≤", claim.most)) if x is not None]
    return ", ".join(bounds) or ("" if claim.reference is None else f"within {STANDARD_ERRORS:.0f} s.e.")


def write_claims(
    run: RunDirectory, title: str, note: str, sections: Sequence[Section], data: dict[str, Any], *, fast: bool
) -> str:
    """Writes report.md and report.json, each whole or not at all.

    Args:
      run: where to.
      title: of the report.
      note: the paragraph before the first section.
      sections: what was found.
      data: further numbers for report.json.
      fast: whether it was a smoke run, which is said.

    Returns:
      The answers of the sections, and the number of claims that pass, a line each.
    """
    claims = [claim for section in sections for claim in section.claims]
    passed, total = summary(claims)
    line = f"{passed} of {total} claims pass"
    parts = [f"# {title}", *([f"**{line}.**"] if total else []), SMOKE if fast else "", note if total else ""]
    parts.append(_environment())
    for section in sections:
        parts += [f"## {section.title}", f"**{section.answer}**" if section.answer else "", section.text]
        parts += [claims_table(section.claims)] if section.claims else []
        parts += [*section.tables, *(f"![{seen}]({path})" for seen, path in section.pictures)]
    run.write("report.md", "\n\n".join(part for part in parts if part) + "\n")
    found = [
        {"section": section.title}
        | claim._asdict()
        | {"difference_in_standard_errors": difference(claim), "passes": passes(claim)}
        for section in sections
        for claim in section.claims
    ]
    answers = [f"{section.title}: {section.answer}" for section in sections if section.answer]
    counted = [f"{line} (a smoke run: no verdict to be trusted)" if fast else line] if total else []
    said = "\n".join([*answers, *counted])
    everything = {
        "conclusion": said,
        "title": title,
        "passed": passed,
        "claimed": total,
        "claims": found,
        "fast": fast,
        **data,
    }
    everything |= provenance.environment()
    run.write_summary(everything, "report.json")
    return said


def _environment() -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance.versions().items())
    return f"Environment: {', '.join(provenance.devices())}; {versions}."
