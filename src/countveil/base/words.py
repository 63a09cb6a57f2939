"""Numbers and names as sentences hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def number(value: float) -> str:
    """Return a number with four digits that count, or all of a whole one."""
    if isinstance(value, int) or (abs(value) >= 1000 and math.isfinite(value)):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def percent(share: float) -> str:
    """Return a stated share, such as a confidence, in percent with every digit it was written with."""
    return f"{100 * share:.13g} %"


def prior(value: float) -> str:
    """Return a prior with all the digits that were written, so that two of them read differently."""
    return f"{value:.15g}"


def upwards(guarantee: float) -> str:
    """Return a guarantee with two decimals, rounded against us."""
    return f"{math.ceil(guarantee * 100) / 100:.2f}"


def rounded_down(bound: float, digits: int = 2) -> str:
    """Return a lower bound with a few significant digits, rounded down so that it still holds."""
    return f"{Context(prec=digits, rounding=ROUND_FLOOR).create_decimal_from_float(bound):,f}"


def rounded_up(bound: float, digits: int = 2) -> str:
    """Return an upper bound with a few significant digits, rounded up so that it still holds."""
    return f"{Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(bound):,f}"


def article(word: str) -> str:
    """Return a word with "a" or "an" before it."""
    return f"an {word}" if word[:1].lower() in tuple("aeio") else f"a {word}"


def listed(items: Sequence[str]) -> str:
    """Return "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def first_few(items: Sequence[str], most: int = 6) -> str:
    """Return a list, cut where it would be too long to read aloud."""
    return listed(items) if len(items) <= most else f"{', '.join(items[:most])} and others"


def sentences(*parts: str) -> str:
    """Join sentences; empty ones are left out."""
    return " ".join(part for part in parts if part)


def brief(value: float) -> str:
    """Round a number for a sentence: two significant digits, and to the unit from 10 on."""
    if not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 9.95 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:#.2g}".rstrip(".")


def figure(value: float) -> str:
    """Round a number for a table of a page: as `brief`, without the zeros of 0.20."""
    short = f"{value:.2g}"
    exact = abs(value) < 10 and math.isclose(float(short), value, rel_tol=1e-9)
    return short if exact else brief(value)


def at_most(text: str, bound: bool) -> str:
    """Return a figure as people read it: an upper bound says that it is one."""
    return f"at most {text}" if bound else text


def multiple(ratio: float, *, limit: float | None = None) -> str:
    """Round a ratio for a sentence: two significant digits, or enough to differ from 1.

    With a limit, show as many digits as keep it on its side of the limit.
    """
    text = _multiple(ratio)
    if limit is None or (float(text.replace(",", "")) > limit) == (ratio > limit):
        return text
    texts = (f"{ratio:.{digits}g}" for digits in range(max(2, len(str(int(ratio)))), 18))
    return next((t for t in texts if (float(t) > limit) == (ratio > limit)), repr(ratio))


def _multiple(ratio: float) -> str:
    if abs(ratio - 1) >= 0.05:
        return brief(ratio)
    texts = (f"{ratio:.{digits}g}" for digits in range(2, 7))
    return next((text for text in texts if float(text) != 1), "1")


def brief_percent(share: float, *, other: float | None = None) -> str:
    """Round a share for a sentence: "2.2 %", "62 %", "fewer than 1 in 1,000".

    Show enough digits, up to six, to read differently from `other`.
    """
    if other is not None and brief_percent(share) == brief_percent(other):
        texts = [[f"{100 * value:.{n}g} %" for value in (share, other)] for n in range(3, 7)]
        return next((pair[0] for pair in texts if pair[0] != pair[1]), texts[-1][0])
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    if share < 0.001:
        return f"fewer than 1 in {_scale_of(share):,}"
    if share > 0.999:
        return f"more than {_scale_of(1 - share) - 1:,} in {_scale_of(1 - share):,}"
    return f"{100 * share:.3g} %" if share > 0.99 else f"{brief(100 * share)} %"


def times_out_of(share: float) -> str:
    """Say how often something happens: "62 times out of 100", "fewer than 1 time in 1,000"."""
    if share in (0, 1):
        return "always" if share else "never"
    if share < 0.001:
        return f"fewer than 1 time in {_scale_of(share):,}"
    if share > 0.999:
        return f"more than {_scale_of(1 - share) - 1:,} times in {_scale_of(1 - share):,}"
    scale = next(scale for scale in (100, 1_000, 10_000) if 10 <= round(share * scale) < scale)
    return f"{round(share * scale):,} times out of {scale:,}"


def prior_percent(value: float) -> str:
    """Return a prior in percent with every digit it was written with."""
    return percent(value)


def _scale_of(share: float) -> int:
    """Return the largest power of ten, up to a million, that a share is below one in."""
    return next((scale for scale in (1_000_000, 100_000, 10_000) if share < 1 / scale), 1_000)
