"""The privacy loss of a tiny algorithm, exactly: every database, every neighbour, every event.

Estimators of the loss are judged by it. The worst event at delta = 0 is a single output; at delta > 0
it is all outputs that are likelier by more than e^epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from countveil.errors import InputError
from countveil.plan.workload import Neighbors

Histogram = tuple[int, ...]
Probabilities = Mapping[Hashable, float]
Algorithm = Callable[[Histogram], Probabilities]
"""Returns the probability of each output on a database, which is a histogram."""

_MOST = 2_000_000
_HALVINGS = 200
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ExactLoss:
    """The exact privacy loss of an algorithm, and where it is reached.

    Attributes
    ----------
    epsilon, delta : float
        The smallest epsilon at this delta.
    database, neighbour : tuple of int
        Two neighbouring histograms that reach it.
    event : tuple
        The outputs that reach it; they are likelier on `database`.
    """

    epsilon: float
    delta: float
    database: Histogram
    neighbour: Histogram
    event: tuple[Hashable, ...]


def brute_force(
    algorithm: Algorithm,
    *,
    cells: int,
    most: int,
    neighbors: Neighbors = "add-remove",
    delta: float = 0.0,
) -> ExactLoss:
    """Return the exact epsilon of an algorithm, over all small histograms and their neighbours.

    Parameters
    ----------
    algorithm : callable
        `algorithm(histogram)` returns the probability of each of its outputs; they must sum to 1.
    cells : int
        The number of cells of a histogram.
    most : int
        The largest number of people in it.
    neighbors : {"add-remove", "change-one"}
        Which databases are neighbours.
    delta : float
        The delta at which epsilon is computed.

    Returns
    -------
    ExactLoss
        The epsilon, and the databases and outputs that reach it.

    Examples
    --------
    >>> def randomized(histogram):
    ...     there = histogram[0] > 0
    ...     return {True: 0.75 if there else 0.25, False: 0.25 if there else 0.75}
    >>> round(brute_force(randomized, cells=1, most=2).epsilon, 4)
    1.0986
    """
    if not 0 <= delta < 1:
        raise InputError(f"delta: {delta} is not allowed; it must be from 0 to below 1")
    if neighbors not in ("add-remove", "change-one"):
        raise InputError(
            f'neighbors: unknown relation {neighbors!r}; choose "add-remove" or "change-one"'
        )
    if cells < 1 or most < 1 or math.comb(most + cells, cells) * cells * cells > _MOST:
        raise InputError(
            f"cells, most: {cells} cells with up to {most} people make more databases than can be "
            f"searched; use fewer"
        )
    laws: dict[Histogram, Probabilities] = {}
    for database in _histograms(cells, most):
        laws[database] = algorithm(database)
        probabilities = list(laws[database].values())
        if not all(math.isfinite(p) and p >= 0 for p in probabilities):
            raise InputError(f"algorithm: a probability on {database} is negative or not finite")
        if abs(math.fsum(probabilities) - 1) > _ROUNDING:
            raise InputError(
                f"algorithm: probabilities on {database} sum to {math.fsum(probabilities)}, not to 1"
            )
    worst: ExactLoss | None = None
    for database, law in laws.items():
        for neighbour in _neighbours(database, neighbors):
            if neighbour not in laws:
                continue
            epsilon, event = _epsilon(law, laws[neighbour], delta)
            if worst is None or epsilon > worst.epsilon:
                worst = ExactLoss(epsilon, delta, database, neighbour, event)
    if worst is None:
        raise InputError(
            f"cells: no two databases of {cells} cells are neighbours by {neighbors}; use more cells"
        )
    return worst


def _epsilon(
    law: Probabilities, other: Probabilities, delta: float
) -> tuple[float, tuple[Hashable, ...]]:
    """Return the least epsilon with P(E) <= e^epsilon P'(E) + delta for all E, and the worst E."""
    losses = {
        output: _log_ratio(p, float(other.get(output, 0.0))) for output, p in law.items() if p > 0
    }
    if delta == 0:
        worst = max(losses, key=lambda output: losses[output])
        return max(0.0, losses[worst]), (worst,)
    certain = math.fsum(law[output] for output, loss in losses.items() if math.isinf(loss))
    if certain > delta:
        return math.inf, tuple(output for output, loss in losses.items() if math.isinf(loss))

    def excess(epsilon: float) -> float:
        # p - e^epsilon q = p (1 - e^(epsilon - loss)): nothing overflows.
        return math.fsum(
            -law[output] * math.expm1(epsilon - loss)
            for output, loss in losses.items()
            if loss > epsilon
        )

    low, high = 0.0, max([0.0, *(loss for loss in losses.values() if math.isfinite(loss))])
    if excess(0.0) <= delta:
        return 0.0, _above(losses, 0.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high, _above(losses, low)


def _above(losses: Mapping[Hashable, float], epsilon: float) -> tuple[Hashable, ...]:
    return tuple(output for output, loss in losses.items() if loss > epsilon)


def _log_ratio(p: float, q: float) -> float:
    return math.inf if q == 0 else math.log(p) - math.log(q)


def _histograms(cells: int, most: int) -> Iterator[Histogram]:
    if cells == 0:
        yield ()
        return
    for count in range(most + 1):
        for rest in _histograms(cells - 1, most - count):
            yield (count, *rest)


def _neighbours(database: Histogram, neighbors: Neighbors) -> Iterator[Histogram]:
    for cell, count in enumerate(database):
        fewer = _with(database, cell, count - 1)
        if neighbors == "add-remove":
            yield _with(database, cell, count + 1)
            if count:
                yield fewer
        elif count:
            for other, people in enumerate(fewer):
                if other != cell:
                    yield _with(fewer, other, people + 1)


def _with(database: Sequence[int], cell: int, count: int) -> Histogram:
    return (*database[:cell], count, *database[cell + 1 :])
