"""Attributes with declared categories, and recodes that group them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from countveil.errors import PlanError

LONGEST_LABEL = 500


@dataclass(frozen=True, slots=True)
class Attribute:
    """A property of each person, with declared categories that are never learned from data."""

    name: str
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_name(self.name, f"attributes.{self.name}")
        _check_labels(self.categories, f"attributes.{self.name}", "categories")


@dataclass(frozen=True, slots=True)
class Recode:
    """A coarser view of an attribute: groups of its categories, which may omit some."""

    name: str
    of: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    omit: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name, f"recodes.{self.name}")
        _check_labels([label for label, _ in self.groups], f"recodes.{self.name}.groups", "groups")

    def group_of(self, attribute: Attribute) -> tuple[int, ...]:
        """Return the group number of each category, -1 where it is omitted."""
        where = f"recodes.{self.name}"
        numbers: dict[str, int] = dict.fromkeys(self.omit, -1)
        for number, (label, members) in enumerate(self.groups):
            for member in members:
                if member in numbers:
                    raise PlanError(
                        f"{where}.groups.{label}: category {member!r} is listed twice; put it into "
                        f"one group or into omit"
                    )
                numbers[member] = number
        known = frozenset(attribute.categories)
        unknown = [member for member in numbers if member not in known]
        if unknown:
            raise PlanError(
                f"{where}: unknown category {unknown[0]!r} of {attribute.name}; choose from "
                f"{choices(attribute.categories)}"
            )
        missing = [category for category in attribute.categories if category not in numbers]
        if missing:
            raise PlanError(
                f"{where}: category {missing[0]!r} of {attribute.name} is in no group; add it to "
                f"one, or list it under omit"
            )
        return tuple(numbers[category] for category in attribute.categories)


def read_attributes(table: Mapping[str, Iterable[str]]) -> tuple[Attribute, ...]:
    """Build the attributes of a plan."""
    return tuple(Attribute(name, tuple(categories)) for name, categories in table.items())


def choices(names: Iterable[str], most: int = 12) -> str:
    """Join names for a message; cut a long list."""
    every = list(names)
    cut = f", … ({len(every)} in all)" if len(every) > most else ""
    return ", ".join(every[:most]) + cut


def _check_name(name: str, where: str) -> None:
    if len(name) > LONGEST_LABEL:
        raise PlanError(
            f"{where[:60]}…: has {len(name):,} characters; the limit for names is {LONGEST_LABEL}"
        )
    if not name.isidentifier() or name == "TOTAL":
        raise PlanError(
            f"{where}: {name!r} is not allowed as a name; use letters, digits and underscores, and not "
            f"TOTAL, which is the query that counts everyone"
        )


def _check_labels(labels: Iterable[str], where: str, what: str) -> None:
    counted = Counter(labels)
    long = next((label for label in counted if len(label) > LONGEST_LABEL), None)
    if long is not None:
        raise PlanError(
            f"{where}: {long[:40]!r}… has {len(long):,} characters; the limit for labels is "
            f"{LONGEST_LABEL}"
        )
    if not counted:
        raise PlanError(f"{where}: {what} are missing; list at least one")
    label, times = counted.most_common(1)[0]
    if times > 1:
        raise PlanError(f"{where}: {label!r} is listed {times} times; list each once")
    if "" in counted:
        raise PlanError(
            f"{where}: a label is empty; declare missing values under records.missing instead"
        )
