"""Checks of what charts accept: results of the library, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.base import words
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.report.audience import Audience
from countveil.report.charts import theme

_Kind = TypeVar("_Kind")


def of_kind(value: Any, kind: type[_Kind], what: str) -> _Kind:
    """Return a result of the kind a chart draws; refuse any other without showing its content."""
    if not isinstance(value, kind):
        raise InputError(f"{what}: got {type(value).__name__}; pass {kind.__name__}")
    return value


def mapping(value: Any, what: str) -> dict[Any, Any]:
    """Return results by name; refuse an empty mapping."""
    if not isinstance(value, Mapping):
        raise InputError(f"{what}: got {type(value).__name__}; pass a mapping of names to results")
    if not value:
        raise InputError(f"{what}: got none; pass at least one")
    return dict(value)


def nonempty(value: Any, what: str) -> list[Any]:
    """Return a list of results; refuse an empty one."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{what}: got {type(value).__name__}; pass a list of results")
    items = list(value)
    if not items:
        raise InputError(f"{what}: got none; pass at least one")
    return items


def numbers(value: Any, what: str, *, above_zero: bool = False) -> FloatArray:
    """Return a list of finite numbers; refuse an empty one."""
    try:
        array = np.asarray(
            [float(item) for item in value] if isinstance(value, Sequence) else value, np.float64
        )
    except (TypeError, ValueError):
        array = np.empty((0, 0))
    if array.ndim != 1:
        raise InputError(f"{what}: got {type(value).__name__}; pass a list of numbers")
    if not len(array):
        raise InputError(f"{what}: got none; pass at least one")
    if not np.isfinite(array).all():
        raise InputError(f"{what}: some are missing or infinite; leave them out")
    if above_zero and not (array > 0).all():
        raise InputError(f"{what}: {array.min():g} is not allowed; all must be above 0")
    return array


def by_intruder(value: Any, what: str) -> dict[Intruder, Any]:
    """Return results by intruder; refuse an empty mapping and any other keys."""
    entries = mapping(value, what)
    for who in entries:
        of_kind(who, Intruder, f"{what}, its keys")
    theme.refuse_too_many([str(who) for who in entries], what)
    return entries


def names_of(intruders: Iterable[Intruder]) -> dict[Intruder, str]:
    """Name the line of each intruder: by prior, with more detail where priors are equal."""
    people = list(intruders)
    priors = [who.prior for who in people]
    names: dict[Intruder, str] = {}
    for number, who in enumerate(people):
        name = f"prior {words.prior(who.prior)}"
        if priors.count(who.prior) > 1:
            name += f", knows {who.known}" if who.certain else f", unsure ({number + 1})"
        if name in names.values():
            name += f" ({number + 1})"
        names[who] = name
    return names


def risks(value: Any, length: int, what: str, measure: str | None = None) -> list[Risk]:
    """Return one risk per point; refuse another number or measure."""
    items = [of_kind(item, Risk, what) for item in nonempty(value, what)]
    if len(items) != length:
        raise InputError(f"{what}: got {len(items)} for {length} points; pass one per point")
    for item in items:
        if measure is not None and item.measure != measure:
            raise InputError(f"{what}: got the measure {item.measure!r}; pass {measure!r}")
    return items


def audience_of(items: Iterable[Risk]) -> Audience:
    """Return internal if any risk is."""
    return "internal" if any(item.audience == "internal" for item in items) else "public"
