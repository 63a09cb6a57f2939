"""The protections that a plan may be compared with, by the name that the command line uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from countveil.assess.protections import cell_suppression, rounded_counts, swapped_records
from countveil.assess.protections.protection import Protection
from countveil.errors import InputError
from countveil.plan.plans import Plan

Reader = Callable[[str, Mapping[str, str], Plan], Protection]

PROTECTIONS: dict[str, Reader] = {
    "suppression": cell_suppression.read,
    "rounding": rounded_counts.read_conventional,
    "random-rounding": rounded_counts.read_random,
    "swapping": swapped_records.read_people,
    "household-swapping": swapped_records.read_households,
}


def read_protection(text: str, plan: Plan) -> Protection:
    """Return the protection that a text describes.

    Parameters
    ----------
    text : str
        A name, a colon, a number, and options: "suppression:10", "rounding:5",
        "swapping:0.05,within=county,match=AGE".
    plan : Plan
        The plan whose tables it protects.

    Returns
    -------
    Protection
        The protection with its settings.

    Raises
    ------
    InputError
        If there is no such protection, or no such setting of it.

    Examples
    --------
    >>> read_protection("rounding:5", plan).label  # doctest: +SKIP
    'rounding to base 5'

    """
    name, colon, rest = text.partition(":")
    if name not in PROTECTIONS:
        raise InputError(
            f"protection: unknown protection {name!r}; choose from {', '.join(PROTECTIONS)}"
        )
    if not colon or not rest:
        raise InputError(
            f"protection: {text!r} has no number; write for example suppression:10, rounding:5 or "
            f"swapping:0.05"
        )
    value, *words = rest.split(",")
    options: dict[str, str] = {}
    for word in words:
        key, equals, setting = word.partition("=")
        if not equals or not setting or key in options:
            raise InputError(
                f"protection: {text!r}: cannot read {word!r}; write each option once, as NAME=VALUE"
            )
        options[key] = setting
    return PROTECTIONS[name](value, options, plan)
