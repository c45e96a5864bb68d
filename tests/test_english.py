"""Code, messages and pages are in the plain English that CONTRIBUTING.md asks for."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("games", "marl", "meta", "attacks", "configs", "benchmarks", "examples", "tests", "docs")
# Pronouns of persons are no names of programs, arrays and learners.
PERSONS = "whoever|nobody|somebody|everybody|anybody|no one|someone|everyone"
# Private words: a training run has no life, a message is large and not loud, and a file says or depends on something.
PRIVATE = "anew|life|lives|lived|loud|louder|loudest|loudness|knows|tells|told|wakes"
PLAYERS = "players|player|player,|people|person|researchers|readers|users"  # may be followed by "who"
BANNED = re.compile(
    rf"\b({PERSONS}|{PRIVATE})\b|" + "".join(f"(?<!{one} )" for one in PLAYERS.split("|")) + r"\b(who|whom)\b",
    re.IGNORECASE,
)
# A docstring begins with a noun or a verb, and neither with a question nor with a preposition.
OPENING = re.compile(
    "(who|whom|whose|what|whatever|how|whether|where|when|why|of|by|for|in which|with which|from which|that)\\b",
    re.IGNORECASE,
)
# Faults that stay, each with the reason.
ALLOWED = {"tests/test_english.py:": "the lists of banned words are here"}


def texts_of_code(path):
    """(line, text, whether it is a docstring) of every comment and every string of a file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstrings = {
        node.body[0].value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, node.lineno in docstrings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False


def faults_of_code(path):
    for line, text, is_docstring in texts_of_code(path):
        for found in BANNED.finditer(text):
            yield f"{path.relative_to(ROOT)}:{line}: {found[0]!r} in {' '.join(text.split())[:80]!r}"
        if is_docstring and OPENING.match(text.strip()):
            yield f"{path.relative_to(ROOT)}:{line}: a docstring begins {' '.join(text.split())[:60]!r}"


def faults_of_page(path):
    text = re.sub(r"```.*?```", lambda found: "\n" * found[0].count("\n"), path.read_text(encoding="utf-8"), flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        for found in BANNED.finditer(re.sub("`[^`]*`", "", line)):
            yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r} in {line.strip()[:80]!r}"


def faults_of_preset(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in BANNED.finditer(line.partition("#")[2]):
            yield f"{path.relative_to(ROOT)}:{number}: {found[0]!r} in {line.strip()[:80]!r}"


def tracked(*patterns):
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines()]


@pytest.mark.parametrize("package", PACKAGES)
def test_code_and_messages_are_plain(package):
    faults = [fault for path in sorted((ROOT / package).rglob("*.py")) for fault in faults_of_code(path)]
    assert not [fault for fault in faults if not any(allowed in fault for allowed in ALLOWED)]


def test_pages_and_presets_are_plain():
    faults = [fault for path in tracked("*.md") for fault in faults_of_page(path)]
    faults += [fault for path in tracked("*.yaml") for fault in faults_of_preset(path)]
    assert not [fault for fault in faults if not any(allowed in fault for allowed in ALLOWED)]
