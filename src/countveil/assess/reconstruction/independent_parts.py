"""Split the tables of a unit into parts that can be solved one at a time.

A line that counts no one empties its cells. Where the cells of one line are among those of another, the
difference of the two is a line, too. Both rules are repeated; what is left falls into parts without
common cells, so that the number of databases is the product over the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from countveil.assess.reconstruction.published_lines import PublishedLines


@dataclass(frozen=True, slots=True)
class Part:
    """Lines with common cells, and the groups of cells that they do not tell apart.

    Attributes
    ----------
    lines : tuple of (int, tuple of int)
        The people of each line, and its groups.
    sizes : tuple of int
        The cells in each group.
    known : tuple of (int, int)
        In a known database, the people of each group, and those in its smallest cell. Empty if none
        is known.

    """

    lines: tuple[tuple[int, tuple[int, ...]], ...]
    sizes: tuple[int, ...]
    known: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenParts:
    """What the tables say for certain, and the parts that they leave open.

    Attributes
    ----------
    certain : int
        The people in cells whose count the lines give directly.
    parts : tuple of Part
        The rest.

    """

    certain: int
    parts: tuple[Part, ...]


def split(
    lines: PublishedLines, answers: Sequence[int], known: Mapping[int, int] | None
) -> OpenParts | None:
    """Return the independent parts of the tables of a unit; None if no database agrees with them.

    Parameters
    ----------
    lines : PublishedLines
        What is published.
    answers : sequence of int
        The count of each line.
    known : mapping of int to int, optional
        A database that agrees: the people in each cell.

    Returns
    -------
    OpenParts or None
        The parts, in a form that is the same for many units.

    """
    rows = _without_empty_cells(lines, answers)
    while rows is not None:
        rows, empty = _differences(rows)
        if rows is None or not empty:
            break
        rows = _merged((mask & ~empty, people) for mask, people in rows.items())
    return None if rows is None else _parts(rows, known)


def _without_empty_cells(lines: PublishedLines, answers: Sequence[int]) -> dict[int, int] | None:
    """Return the people of each set of cells, without the cells of lines that count no one."""
    empty = 0
    for mask, people in zip(lines.masks, answers, strict=True):
        if not people:
            empty |= mask
    alive = lines.possible & ~empty
    pairs = zip(lines.masks, answers, strict=True)
    return _merged((mask & alive, people) for mask, people in pairs if people)


def _merged(pairs: Iterable[tuple[int, int]]) -> dict[int, int] | None:
    """Return the people of each set of cells; None if two lines contradict each other."""
    rows: dict[int, int] = {}
    for mask, people in pairs:
        if not mask:
            if people:
                return None
        elif rows.setdefault(mask, people) != people:
            return None
    return rows


def _differences(rows: dict[int, int]) -> tuple[dict[int, int] | None, int]:
    """Subtract lines from those that include them; also return the cells found to be empty.

    The result is None if a difference is negative, or if people have no cell.
    """
    waiting = [(mask.bit_count(), mask, people) for mask, people in rows.items()]
    heapify(waiting)
    final: dict[int, int] = {}
    empty = 0
    while waiting:
        _, mask, people = heappop(waiting)
        before = mask
        for inner, some in final.items():
            if not inner & ~mask:
                mask ^= inner
                people -= some
        if people < 0 or (people and not mask):
            return None, 0
        if not mask:
            continue
        if not people:
            empty |= mask
            continue
        if mask != before:
            heappush(waiting, (mask.bit_count(), mask, people))
            continue
        for outer in [item for item in final if not mask & ~item]:
            heappush(waiting, (outer.bit_count(), outer, final.pop(outer)))
        final[mask] = people
    return final, empty


def _parts(rows: dict[int, int], known: Mapping[int, int] | None) -> OpenParts:
    masks, people = list(rows), list(rows.values())
    groups = _groups(masks)
    inside = [[n for n, mask in enumerate(groups) if mask & row] for row in masks]
    before = [] if known is None else [_of_group(mask, known) for mask in groups]
    certain, parts = 0, []
    for numbers in _connected(masks):
        if len(numbers) == 1 and masks[numbers[0]].bit_count() == 1:
            certain += people[numbers[0]]
        else:
            parts.append(_canonical([(people[n], inside[n]) for n in numbers], groups, before))
    return OpenParts(certain, tuple(parts))


def _groups(masks: Sequence[int]) -> list[int]:
    """Return the largest sets of cells that no line divides."""
    everywhere = 0
    for mask in masks:
        everywhere |= mask
    groups = [everywhere] if everywhere else []
    for mask in masks:
        halves = ((group & mask, group & ~mask) for group in groups)
        groups = [half for pair in halves for half in pair if half]
    return groups


def _of_group(mask: int, known: Mapping[int, int]) -> tuple[int, int]:
    """Return the people of a group in the known database, and those in its smallest cell."""
    counts = [people for cell, people in known.items() if people and mask >> cell & 1]
    smallest = min(counts, default=0) if len(counts) == mask.bit_count() else 0
    return sum(counts), smallest


def _connected(masks: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the lines of each connected part."""
    parts: list[tuple[int, list[int]]] = []
    for number, mask in enumerate(masks):
        cells, joined, apart = mask, [number], []
        for part in parts:
            if part[0] & mask:
                cells |= part[0]
                joined += part[1]
            else:
                apart.append(part)
        parts = [*apart, (cells, joined)]
    return [numbers for _, numbers in parts]


def _canonical(
    lines: Sequence[tuple[int, Sequence[int]]],
    masks: Sequence[int],
    before: Sequence[tuple[int, int]],
) -> Part:
    """Return a part whose groups are in an order that does not depend on which cells they are."""
    lines_of: dict[int, list[int]] = {}
    for people, groups in lines:
        for group in groups:
            lines_of.setdefault(group, []).append(people)

    def key(group: int) -> tuple[list[int], int, tuple[int, int]]:
        known = before[group] if before else (0, 0)
        return sorted(lines_of[group]), masks[group].bit_count(), known

    order = sorted(lines_of, key=key)
    place = {group: number for number, group in enumerate(order)}
    relabelled = ((people, tuple(sorted(place[g] for g in groups))) for people, groups in lines)
    return Part(
        tuple(sorted(relabelled)),
        tuple(masks[group].bit_count() for group in order),
        tuple(before[group] for group in order) if before else (),
    )
