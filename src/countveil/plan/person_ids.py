"""Person ids that identify no one: blanks, and the usual placeholders for an unknown person.

The patterns work in Python, RE2 (DuckDB) and Java (Spark): they use only plain characters and escapes
that all three share. They match a whole id after invisible characters are removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Invisible characters: controls, spaces, separators, format characters, variation selectors, and blank
# letters and symbols. They are listed so that a new version of Unicode does not change who is counted.
INVISIBLE = (
    r"[\x00-\x1f\x7f-\x9f "
    "\u00a0\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2"
    "\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    "\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_WORDS = (
    r"n\.?a\.?|n/a|#n/a|<na>|nat|null|\(null\)|<null>|nil|none|noid|unknown|unk|unspecified|"
    r"undefined|missing|blank|empty|notavailable|notapplicable|notknown|anonymous|anon|tbd|tba"
)
# Zeros (also a nil UUID), -1, -9, -99 …, nine or more nines, all of these also as floats; and marks
# that are neither letters nor digits.
_NUMBERS = (
    r"[+-]?0[0-]*(?:\.0*)?|-(?:1|9+)(?:\.0*)?|9{9,}(?:\.0*)?|"
    r"-9(?:\.9+)?[eE]\+?[0-9]+|9\.9{8,}[eE]\+?[0-9]+|1(?:\.0)?[eE]\+?(?:0?9|[1-9][0-9])"
)
_MARKS = r"[-.?*_#/–—−]+"

NOBODY = r"(?:[+-]?[nN][aA][nN])?"
PLACEHOLDER = f"(?:(?i:{_WORDS})|{_NUMBERS}|{_MARKS})"
_INVISIBLE, _NOBODY, _PLACEHOLDER = map(re.compile, (INVISIBLE, NOBODY, PLACEHOLDER))


def is_nobody(person: str | None) -> bool:
    """Return whether an id is missing, NaN, or invisible."""
    return _NOBODY.fullmatch(_visible(person)) is not None


def is_placeholder(person: str | None, real_ids: Iterable[str] = ()) -> bool:
    """Return whether an id is a usual placeholder that the plan does not list as real."""
    return _PLACEHOLDER.fullmatch(_visible(person)) is not None and person not in set(real_ids)


def _visible(person: str | None) -> str:
    return _INVISIBLE.sub("", person or "")
