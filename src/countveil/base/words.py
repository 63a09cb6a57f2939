"""Numbers and names as sentences hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence

_HARDLY = 5e-6


def number(value: float) -> str:
    """Return a number with four digits that count, or all of a whole one."""
    if isinstance(value, int) or (abs(value) >= 1000 and math.isfinite(value)):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share in percent; one that only rounds to none or all is said to be almost that."""
    if 0 < share < _HARDLY:
        return "almost 0 %"
    shown = f"{100 * share:.4g} %"
    return "almost 100 %" if share < 1 and shown == "100 %" else shown


def prior(value: float) -> str:
    """Return a prior with all the digits that were written, so that two of them read differently."""
    return f"{value:.15g}"


def upwards(guarantee: float) -> str:
    """Return a guarantee with two decimals, rounded against us."""
    return f"{math.ceil(guarantee * 100) / 100:.2f}"


def article(word: str) -> str:
    """Return a word with "a" or "an" before it."""
    return f"an {word}" if word[:1].lower() in tuple("aeio") else f"a {word}"


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def first_few(items: Sequence[str], most: int = 6) -> str:
    """Return a list, cut where it would be too long to be heard."""
    return listed(items) if len(items) <= most else f"{', '.join(items[:most])} and others"


def sentences(*parts: str) -> str:
    """Join sentences; empty ones are left out."""
    return " ".join(part for part in parts if part)
