"""How many databases agree with the tables of one unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from countveil.assess.reconstruction.independent_parts import split
from countveil.assess.reconstruction.part_solutions import MOST_STEPS, solutions_of
from countveil.assess.reconstruction.published_lines import PublishedLines, bits_of
from countveil.errors import InputError

LIMIT = 1_000_000
_LARGEST = 2**30


@dataclass(frozen=True, slots=True)
class Solutions:
    """The databases that agree with the exact tables of a unit.

    Attributes
    ----------
    count : int
        How many there are; at least how many if not `exact`. One means that the tables give away
        everyone's record.
    exact : bool
        Whether the count is exact.
    widest : int
        The largest difference between two of them in one cell; an upper bound if not `exact`.
    certain : int
        The people whose record is the same in all of them; a lower bound if not `exact`.
    differing : float or None
        The largest number of people whose record differs from the known database in one of them; an
        upper bound if not `exact`. None if no database was given. Divided by the number of people, it
        is the solution variability of arXiv 2312.11283.

    """

    count: int
    exact: bool
    widest: int
    certain: int
    differing: float | None


def solution_count(
    lines: PublishedLines,
    answers: Sequence[int] | None = None,
    *,
    known: Mapping[int, int] | None = None,
    limit: int = LIMIT,
    most_steps: int = MOST_STEPS,
) -> Solutions:
    """Count the databases that agree with the exact tables of a unit.

    A database is a histogram: how many people of the unit are in each cell. The intruder sees the exact
    tables of the unit and knows nothing else.

    Parameters
    ----------
    lines : PublishedLines
        What is published about each unit.
    answers : sequence of int, optional
        The published count of each line. Give these, or `known`.
    known : mapping of int to int, optional
        A database by the people in each cell: its tables are what is published, and the distance from
        it is computed, too.
    limit : int
        A count above it need not be exact.
    most_steps : int
        The effort per independent part of the tables after which a count is bounded instead.

    Returns
    -------
    Solutions
        The count, the range of a cell, and what is certain. The count is 0 if the tables contradict
        each other.

    Examples
    --------
    >>> from countveil.plan.attributes import Attribute
    >>> from countveil.plan.workload import Schema
    >>> people = Schema((Attribute("AGE", ("young", "old")), Attribute("SEX", ("f", "m"))))
    >>> lines = PublishedLines.of_queries(people, ["AGE", "SEX"])
    >>> solution_count(lines, [2, 3, 1, 4]).count  # the one woman is young or old
    2
    >>> solution_count(lines, [0, 3, 1, 2]).count
    1

    """
    if limit < 1 or most_steps < 1:
        raise InputError(
            f"limit: {min(limit, most_steps)} is not allowed; give a whole number of at least 1"
        )
    if (answers is None) == (known is None):
        raise InputError("give either the counts of the lines or a known database, not both")
    if known is not None:
        _check_cells(lines, known)
        answers = lines.answers(known)
    assert answers is not None
    _check_counts(lines, answers)
    parts = split(lines, answers, known)
    if parts is None:
        return Solutions(0, True, 0, 0, None)
    count, exact, widest, certain = 1, True, 0, parts.certain
    differing = None if known is None else 0.0
    for part in parts.parts:
        solutions = solutions_of(part, limit, most_steps)
        if not solutions.count:
            return Solutions(0, True, 0, 0, None)
        count *= solutions.count
        exact &= solutions.exact
        widest = max(widest, solutions.widest)
        certain += solutions.certain
        if differing is not None and solutions.differing is not None:
            differing += solutions.differing
    return Solutions(count, exact, widest, certain, differing)


def _check_counts(lines: PublishedLines, answers: Sequence[int]) -> None:
    if len(answers) != len(lines.masks):
        raise InputError(
            f"answers: {len(answers):,} counts came for {len(lines.masks):,} lines; give one per line"
        )
    if any(not 0 <= n <= _LARGEST for n in answers):
        raise InputError(
            f"answers: a count is not allowed; give whole numbers from 0 to {_LARGEST:,}"
        )


def _check_cells(lines: PublishedLines, known: Mapping[int, int]) -> None:
    for cell, people in known.items():
        if people and not (0 <= cell < lines.cells and lines.possible >> cell & 1):
            raise InputError(
                f"known: cell {cell} is not allowed; choose from the "
                f"{len(bits_of(lines.possible)):,} possible ones of {lines.cells:,} cells"
            )
        if people < 0:
            raise InputError(f"known: cell {cell} has {people} people; give 0 or more")
