"""Words that no text of the package uses: what it prints, its templates, its docstrings, its pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import countveil

SOURCE = Path(countveil.__file__).parent
ROOT = SOURCE.parent.parent

# CONTRIBUTING.md says probability; the others make sentences sound translated.
RETIRED = re.compile(
    r"\b(chances?|whoever|whatever law|nobody|somebody|everybody|anew|mend(s|ed)?|hangs on|takes away|"
    r"if not said|he|him|his)\b",
    re.IGNORECASE,
)

# Texts that ledgers and manifests of earlier releases have digests of, and ids that mean no one.
FIXED = {"measure/one_table.py", "publish/earlier_wording.py", "plan/person_ids.py"}

TEMPLATES = [p for kind in ("html", "js", "toml") for p in sorted(SOURCE.rglob(f"*.{kind}"))]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def texts_of(source: str) -> list[tuple[int, str]]:
    """Return every literal text of a module, docstrings and parts of f-strings included."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def retired_in(text: str) -> list[str]:
    """Return the retired words of a text, except for names of code in backticks."""
    return [match[0] for match in RETIRED.finditer(re.sub(r"`[^`\n]+`", "", text))]


def test_no_text_of_the_package_uses_a_retired_word():
    places = {
        f"{name}:{line}": words
        for path in sorted(SOURCE.rglob("*.py"))
        if (name := str(path.relative_to(SOURCE))) not in FIXED
        for line, text in texts_of(path.read_text())
        if (words := retired_in(text))
    }
    assert not places, f"choose another word: {places}"


@pytest.mark.parametrize("path", [*TEMPLATES, *PAGES], ids=lambda path: path.name)
def test_no_template_and_no_page_uses_a_retired_word(path):
    words = retired_in(path.read_text())
    assert not words, f"choose another word: {words}"


def test_the_test_finds_what_it_looks_for():
    source = 'def f(x):\n    """Ask whoever knows."""\n    return f"a {x} % chance"\n'
    assert [(line, retired_in(text)) for line, text in texts_of(source) if retired_in(text)] == [
        (2, ["whoever"]),
        (3, ["chance"]),
    ]
