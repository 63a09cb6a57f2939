"""Find the numbers of a sentence, and say whether a computed one rounds to them."""

import math
import re

BOUND = re.compile(r"(fewer|more) than ([\d,]+) in ([\d,]+)")
NUMBER = re.compile(r"(?<![\w.])(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)( %)?")


def rounds_to(shown, percent, value, upwards):
    """Whether a number of the table is what the sentence shows, to the digits that it shows."""
    plain = shown.replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits)
    if not exponent and not digits and len(mantissa.lstrip("-")) > 4:
        unit = 1.0
    apart = float(plain) - value * (100 if percent else 1)
    slack = 1e-9 * abs(value)
    return -slack <= apart < unit + slack if upwards else abs(apart) <= unit / 2 + slack


def ends_of(low, high):
    """Return two ends with two significant digits each, rounded outwards."""
    units = [10.0 ** (math.floor(math.log10(end)) - 1) if end else 1.0 for end in (low, high)]
    return round(math.floor(low / units[0]) * units[0], 9), round(
        math.ceil(high / units[1]) * units[1], 9
    )


def without_true_bounds(sentence, columns):
    """Drop each "fewer than 1 in 1,000" that a number of the table is within; leave wrong ones."""

    def kept(found):
        few, many = (int(text.replace(",", "")) for text in found.groups()[1:])
        shares = [share for values in columns.values() for share in values if 0 < share < 1]
        fewer = found[1] == "fewer"
        holds = any(share < few / many if fewer else share > few / many for share in shares)
        return "" if holds else found[0]

    return BOUND.sub(kept, sentence)
