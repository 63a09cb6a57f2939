"""Person ids that name nobody: blanks, and the usual placeholders for an unknown person.

The patterns are read alike by Python, RE2 (DuckDB) and Java (Spark): characters as they are, and
escapes that all three know. They match a whole id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# What shows nothing: controls, spaces, separators and format characters of Unicode, and letters and
# symbols that are drawn blank. Listed, so that no version of Unicode changes who is a person.
_BLANK_CHARACTERS = (
    r"\x00-\x1f\x7f-\x9f "
    "\u00a0\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2"
    "\u115f-\u1160\u1680\u17b4-\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u2064"
    "\u2066-\u206f\u2800\u3000\u3164\ufeff\uffa0\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001"
    "\U000e0020-\U000e007f"
)
_WORDS = (
    r"n\.?a\.?|n/a|#n/a|<na>|nat|null|\(null\)|<null>|nil|none|no id|unknown|unk|unspecified|"
    r"undefined|missing|blank|empty|not available|not applicable|not known|anonymous|anon|tbd|tba"
)
# Zeros (a nil UUID too), -1, -9, -99 …, nine nines or more, and marks without a letter or digit.
_NUMBERS = r"[+-]?0[0-]*(?:\.0*)?|-(?:1|9+)(?:\.0*)?|9{9,}(?:\.0*)?"
_MARKS = r"[-.?*_#/–—−]+"

_BLANK = f"[{_BLANK_CHARACTERS}]*"
NOBODY = f"{_BLANK}(?:[+-]?[nN][aA][nN]{_BLANK})?"
PLACEHOLDER = f"{_BLANK}(?:(?i:{_WORDS})|{_NUMBERS}|{_MARKS}){_BLANK}"
_NOBODY, _PLACEHOLDER = re.compile(NOBODY), re.compile(PLACEHOLDER)


def is_nobody(person: str | None) -> bool:
    """Whether an id is missing, not a number, or blank once every invisible character is taken off."""
    return _NOBODY.fullmatch(person or "") is not None


def is_placeholder(person: str | None, real_ids: Iterable[str] = ()) -> bool:
    """Whether an id is a usual placeholder, and not one that the plan lists as real."""
    return _PLACEHOLDER.fullmatch(person or "") is not None and person not in set(real_ids)
