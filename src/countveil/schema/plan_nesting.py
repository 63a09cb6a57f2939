"""How deep and how large a plan is: checked before a parser that grows with it reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from countveil.errors import PlanError

MOST_PARTS = 16  # of a dotted key
MOST_BRACKETS = 16  # open at once
LONGEST_WORD = 1000  # characters of a number or a key without quotes
_TOKEN = re.compile(
    r"""
      (?P<text> \"{3} (?: [^"\\]++ | \\. | "(?!"") )*+ "{3,5}
              | '{3} (?: [^']++ | '(?!'') )*+ '{3,5}
              | "(?!"") (?: [^"\\\n]++ | \\[^\n] )*+ "
              | '(?!'') [^'\n]*+ ' )
    | (?P<unclosed> ["'] )
    | (?P<comment> \# [^\n]*+ )
    | (?P<word> [A-Za-z0-9_+:\-]++ )
    | (?P<dot> \. )
    | (?P<opening> [\[{] )
    | (?P<closing> [\]}] )
    | (?P<end> [\n,=] )
    """,
    re.VERBOSE | re.DOTALL,
)


def refuse_deep_nesting(text: str, name: str) -> None:
    """Refuse a TOML text whose keys or brackets nest deeper than any plan; strings may hold both."""
    dots = depth = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "unclosed":
            # The parser stops here too. Trying each later quote would scan the rest as often.
            return
        if kind == "dot":
            dots += 1
        elif kind in ("opening", "closing", "end"):
            dots = 0
            depth = max(0, depth + (kind == "opening") - (kind == "closing"))
        if dots >= MOST_PARTS:
            fault = f"a key of more than {MOST_PARTS} parts; a plan has tables three deep"
        elif depth > MOST_BRACKETS:
            fault = f"more than {MOST_BRACKETS} brackets nested; a plan has tables three deep"
        elif kind == "word" and token.end() - token.start() > LONGEST_WORD:
            fault = f"a number or key of more than {LONGEST_WORD:,} characters; write it shorter"
        else:
            continue
        line = text.count("\n", 0, token.start()) + 1
        raise PlanError(f"{name}: line {line}: {fault}")


def values_by_depth(document: Any) -> Iterator[int]:
    """Yield, layer by layer, how many values a document of tables and lists has down to there.

    A caller that stops at its limit takes no memory for what lies deeper.
    """
    layer: list[Any] = [document]
    values = 0
    while layer:
        tables = [item for item in layer if isinstance(item, dict | list)]
        values += sum(map(len, tables))
        yield values
        layer = [part for t in tables for part in (t.values() if isinstance(t, dict) else t)]
