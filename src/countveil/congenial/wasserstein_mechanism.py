"""The Wasserstein exponential mechanism (003, Theorem 9): counts that agree with what is public.

A release y of counts x has a weight exp(-rate·loss(y - x)) times a base measure that public information
alone decides; rate = epsilon/(2 sigma), where sigma bounds how far the loss moves between databases
within the distance Delta_z of each other. Draws are exact; no Markov chain is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np

from countveil.congenial import normalizer
from countveil.congenial.base_measure import BaseMeasure, DirichletMultinomial, Flat
from countveil.congenial.euclidean import Euclidean, log_mixture
from countveil.congenial.independent import Independent, log_weight_of_noise
from countveil.congenial.loss_sensitivity import Loss, Neighbors, sensitivity
from countveil.congenial.product import Group, Product, Shape, prepare
from countveil.errors import InputError
from countveil.numerics import Array, Exact, FloatArray, IntArray, positive
from countveil.randomness import BitSource

Base = Literal["naive", "congenial", "prior"]

_LARGEST_TOTAL = 10_000_000
_MOST_PLACES = 2**18  # so that running sums of all tables fit 63 bits
_LARGEST_COUNT = 2**30  # so that a count and its noise fit 32 bits
_LARGEST_DEVIATION = 2**24
_SMALLEST_EPSILON = Fraction(1, 10**9)
_FEW_PROPOSALS, _MOST_PROPOSALS = 8, 1024


class _Sampler(Protocol):
    def taken(self, size: int, rng: BitSource) -> IntArray: ...


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Wasserstein:
    """Counts of places, or cases and deaths of places, released beside public information.

    `total` is the public sum of all counts (of cases, where there are deaths); `subtotals` are public
    sums of some of them, as (places, sum). With a total the release has it too, and no negative count,
    unless `base="naive"`. A `prior` says what public information lets one expect. `people` is Delta_z:
    how many persons' rows may differ between the databases compared.
    """

    loss: Loss
    epsilon: Fraction
    total: int | None
    subtotals: tuple[Group, ...]
    base: Base
    prior: DirichletMultinomial | None
    deaths: bool
    people: int
    neighbors: Neighbors
    halved: bool
    sigma: Fraction

    def __init__(
        self,
        *,
        loss: Loss,
        epsilon: Exact,
        total: int | None = None,
        subtotals: Sequence[tuple[Sequence[int], int]] = (),
        base: Literal["naive", "congenial"] | None = None,
        prior: DirichletMultinomial | None = None,
        deaths: bool = False,
        people: int = 1,
        neighbors: Neighbors = "change-one",
        halved: bool = True,
        sigma: Exact | None = None,
    ) -> None:
        def keep(**fields: Any) -> None:
            for name, value in fields.items():
                object.__setattr__(self, name, value)

        found = _base(base, prior, total)
        keep(loss=loss, epsilon=positive(epsilon, "epsilon"), total=_whole(total, "total"))
        keep(subtotals=_groups(subtotals, total), base=found, prior=prior, deaths=deaths)
        keep(people=people, neighbors=neighbors, halved=halved)
        if not halved and found != "naive":
            raise InputError(
                "halved: False is only right where the normaliser is the same for all counts, which "
                'base="naive" gives; leave it out'
            )
        bounded = total is not None and found != "naive"
        least = sensitivity(
            loss,
            people,
            fixed_total=total is not None,
            deaths=deaths,
            neighbors=neighbors,
            largest=max(total, 1) if bounded and total is not None else None,
        )
        keep(sigma=least if sigma is None else positive(sigma, "sigma"))
        if self.sigma < least:
            raise InputError(
                f"sigma: {sigma} is below {least}, by which {people} people can move the loss; the "
                f"guarantee would not hold: leave it out, or give more"
            )
        if self.epsilon < _SMALLEST_EPSILON:
            raise InputError(
                f"epsilon: below {float(_SMALLEST_EPSILON):g} a release says nothing of its counts; "
                f"give more"
            )

    def __repr__(self) -> str:
        return (
            f"Wasserstein(loss={self.loss!r}, epsilon={str(self.epsilon)!r}, total={self.total}, "
            f"base={self.base!r}, deaths={self.deaths})"
        )

    @property
    def rate(self) -> Fraction:
        """What the loss is multiplied by: epsilon/(2 sigma), without the 2 if not halved."""
        return self.epsilon / (2 * self.sigma if self.halved else self.sigma)

    @property
    def constant_normalizer(self) -> bool:
        """Whether the sum of all weights is the same whatever the counts."""
        return self.base == "naive"

    @property
    def base_measure(self) -> BaseMeasure:
        """The base measure, where a total is kept."""
        return Flat() if self.prior is None else self.prior

    def log_base(self, place: int | IntArray, counts: IntArray) -> FloatArray:
        """Return the log-weights of the base measure, count by count."""
        return self.base_measure.log_weights(place, counts)

    def sample(
        self, counts: Array | Sequence[int], *, rng: BitSource, size: int | None = None
    ) -> IntArray:
        """Draw a release of these counts for a simulation, or `size` of them.

        A real release is drawn by `measure.draw`.
        """
        return self.prepared(counts).sample(rng=rng, size=size)

    def prepared(self, counts: Array | Sequence[int]) -> Prepared:
        """Prepare to draw many simulated releases of the same counts."""
        targets = self.checked(counts)
        self._refuse_wide_noise(targets)
        return Prepared(self, self._sampler(targets))

    def checked(self, counts: Array | Sequence[int]) -> IntArray:
        """Return confidential counts as (places, 1 or 2); refuse what the public facts exclude."""
        found = self._table(counts, "counts")
        if (found < 0).any():
            raise InputError(
                f"counts: {int((found < 0).any(axis=1).sum())} places have a negative count "
                f"(corrections?); counts of people are 0 or more: mend them before they are released"
            )
        if self.deaths and (found[:, 1] > found[:, 0]).any():
            raise InputError(
                f"counts: deaths are above cases in {int((found[:, 1] > found[:, 0]).sum())} places; "
                f"it is public that they are not: mend the counts, or release cases alone"
            )
        for group in self.groups(len(found)):
            if int(found[list(group.members), 0].sum()) != group.total:
                raise InputError(
                    f"counts: those of {len(group.members)} places do not sum to their public total "
                    f"{group.total:,}; the total is wrong, or the counts are"
                )
        return found

    def _refuse_wide_noise(self, targets: IntArray) -> None:
        """Refuse counts or noise beyond 32 bits, where no total bounds a release.

        One of d counts has a variance of about 2/rate² under the L1 loss, and (d + 1)/rate² under L2,
        whose distance from the counts follows a Gamma law of shape d.
        """
        if self.base != "naive":
            return
        if int(targets.max()) > _LARGEST_COUNT:
            raise InputError(
                f"counts: one is {int(targets.max()):,}; up to {_LARGEST_COUNT:,} is supported"
            )
        shape = 1 if self.loss == "L1" else targets.size
        if shape + 1 > (_LARGEST_DEVIATION * self.rate) ** 2:
            raise InputError(
                f"epsilon: with {targets.size:,} counts and {self.people:,} people the noise would "
                f"have a standard deviation above {_LARGEST_DEVIATION:,} and drown any count; "
                f"give more epsilon, or fewer people"
            )

    def groups(self, places: int) -> tuple[Group, ...]:
        """Return the places by their public sums, those in no subtotal last; none without a total."""
        if self.total is None:
            return ()
        listed = [place for group in self.subtotals for place in group.members]
        if any(place >= places for place in listed):
            raise InputError(
                f"subtotals: a place is {max(listed)}, and there are {places} from 0 on"
            )
        rest = tuple(sorted(set(range(places)) - set(listed)))
        left = self.total - sum(group.total for group in self.subtotals)
        if left < 0 or (left > 0 and not rest):
            raise InputError(
                f"subtotals: they sum to {self.total - left:,} and the total is {self.total:,}; no "
                f"table has both"
            )
        return (*self.subtotals, *((Group(rest, left),) if rest else ()))

    def log_weight(self, released: Array | Sequence[int], counts: Array | Sequence[int]) -> float:
        """Return the log-weight of a release, its normaliser left out."""
        found = self._table(counts, "counts")
        return float(self.log_weights(released, found[None])[0])

    def log_weights(self, released: Array | Sequence[int], tables: Array) -> FloatArray:
        """Return the log-weights of one release of many tables of counts."""
        y = self._table(released, "released")
        x = np.asarray(tables).reshape(len(tables), *y.shape)
        apart = np.abs(x - y).astype(np.float64)
        if self.loss == "L1":
            losses = apart.sum(axis=(1, 2))
        else:
            losses = (apart**2).sum(axis=(1, 2))
            losses = np.sqrt(losses) if self.loss == "L2" else losses
        logs: FloatArray = -float(self.rate) * losses + self._log_base_of(y)
        return logs

    def log_density(self, released: Array | Sequence[int], counts: Array | Sequence[int]) -> float:
        """Return the log-probability of a release of these counts."""
        targets = self.checked(counts)
        return float(self.log_densities(released, targets[None])[0])

    def log_densities(self, released: Array | Sequence[int], tables: Array) -> FloatArray:
        """Return the log-probabilities of one release, for many tables of counts."""
        weights = self.log_weights(released, tables)
        y = self._table(released, "released")
        x = np.asarray(tables).reshape(len(tables), *y.shape)
        if not np.isfinite(weights).any():
            return weights
        if self.constant_normalizer:
            whole = np.array(self.log_normalizer(x[0]))
        else:
            whole = np.array([self.log_normalizer(table) for table in x])
        logs: FloatArray = weights - whole
        return logs

    def log_normalizer(self, counts: Array | Sequence[int]) -> float:
        """Return log of the sum of all weights."""
        targets = self._table(counts, "counts")
        if self.loss == "L2":
            return log_mixture(
                float(self.rate),
                targets.size,
                self._farthest(),
                lambda rate: self._log_sum(Shape(Fraction(rate), 2), targets),
                self._log_base_of(targets),
            )
        return self._log_sum(self._shape, targets)

    @property
    def _shape(self) -> Shape:
        return Shape(self.rate, 1 if self.loss == "L1" else 2)

    def _log_sum(self, shape: Shape, targets: IntArray) -> float:
        if self.base == "naive":
            return targets.size * log_weight_of_noise(shape)
        found = 0.0
        for group in self.groups(len(targets)):
            at = np.arange(group.total + 1)
            logs = []
            for place in group.members:
                row = self.log_base(place, at) - shape.cost(at - targets[place, 0])
                if self.deaths:
                    row = row + np.logaddexp.accumulate(-shape.cost(at - targets[place, 1]))
                logs.append(row)
            found += normalizer.log_sum(logs, group.total)
        return found

    def _log_base_of(self, released: IntArray) -> float:
        """Return the base measure's log-weight of a table: minus infinity where none may lie."""
        if self.base == "naive":
            return 0.0
        cases = released[:, 0]
        if (released < 0).any() or (self.deaths and (released[:, 1] > cases).any()):
            return -math.inf
        for group in self.groups(len(released)):
            if int(cases[list(group.members)].sum()) != group.total:
                return -math.inf
        return float(self.log_base(np.arange(len(cases)), cases).sum())

    def _farthest(self) -> float:
        """Return a distance that no release is away from its counts."""
        return math.inf if self.base == "naive" or self.total is None else 2.0 * self.total + 1

    def _sampler(self, targets: IntArray) -> _Sampler:
        groups = self.groups(len(targets))

        last: list[Product] = []

        def part(shape: Shape) -> Independent | Product:
            if self.base == "naive":
                return Independent(shape, targets)
            near = last[-1].tilts if last else None
            last[:] = [prepare(self.base_measure, shape, targets, groups, near=near)]
            return last[0]

        if self.loss == "L2":
            return Euclidean(self.rate, targets, self._farthest(), part)
        return part(self._shape)

    def _table(self, given: Array | Sequence[int], name: str) -> IntArray:
        found = np.asarray(given)
        columns = 2 if self.deaths else 1
        shape = "(places, 2): cases and deaths" if self.deaths else "(places,): one count a place"
        if found.ndim == 1 and columns == 1:
            found = found[:, None]
        if found.ndim != 2 or found.shape[1] != columns or len(found) == 0:
            raise InputError(f"{name}: the shape {found.shape} came; it must be {shape}")
        if not np.issubdtype(found.dtype, np.integer):
            raise InputError(f"{name}: {found.dtype} came; counts are whole numbers")
        if len(found) > _MOST_PLACES:
            raise InputError(
                f"{name}: {len(found):,} places came; up to {_MOST_PLACES:,} are drawn"
            )
        if self.prior is not None and self.prior.places != len(found):
            raise InputError(
                f"{name}: {len(found)} places came, and the prior has {self.prior.places} previous "
                f"counts; they must be of the same places in the same order"
            )
        return found.astype(np.int64)


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """Tables made for one set of confidential counts: simulated releases are drawn from them."""

    mechanism: Wasserstein
    sampler: _Sampler

    def __repr__(self) -> str:
        return f"<{self.mechanism!r}, prepared for confidential counts>"

    def sample(self, *, rng: BitSource, size: int | None = None) -> IntArray:
        """Draw a simulated release, or `size` independent ones."""
        if not rng.reproducible:
            raise InputError(
                "rng: a release is charged to a ledger and drawn once, by measure.draw(mechanism, "
                "counts, plan, rng=Secure(), ledger=…, to=…); sample(…, rng=Seeded(7)) is for "
                "simulations"
            )
        drawn = draw_exactly(self, 1 if size is None else size, rng)
        return drawn[0] if size is None else drawn


def draw_exactly(prepared: Prepared, size: int, rng: BitSource) -> IntArray:
    """Draw releases; for real ones, only the door calls this."""
    parts: list[IntArray] = []
    found, batch = 0, max(_FEW_PROPOSALS, min(size, _MOST_PROPOSALS))
    while found < size:
        parts.append(prepared.sampler.taken(batch, rng))
        found += len(parts[-1])
        batch = min(2 * batch, _MOST_PROPOSALS)
    tables = np.concatenate(parts)[:size]
    return tables if prepared.mechanism.deaths else tables[:, :, 0]


def _base(base: str | None, prior: DirichletMultinomial | None, total: int | None) -> Base:
    if base not in (None, "naive", "congenial"):
        raise InputError(
            f'base: {base!r} is not known; choose "naive" or "congenial", or give a prior'
        )
    if prior is not None:
        if base is not None:
            raise InputError("base: a prior is a base measure of its own; give either")
        if total is None:
            raise InputError("prior: it shares out a public total; give total=…")
        return "prior"
    if base == "congenial" and total is None:
        raise InputError("total: a congenial release has the public total; give total=…")
    if base == "naive":
        return "naive"
    return "naive" if total is None else "congenial"


def _whole(value: int | None, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"{name}: {value!r} is not allowed; it is a whole number, 0 or more")
    if value > _LARGEST_TOTAL:
        raise InputError(f"{name}: {value:,} is above {_LARGEST_TOTAL:,}, the largest supported")
    return int(value)


def _groups(subtotals: Sequence[tuple[Sequence[int], int]], total: int | None) -> tuple[Group, ...]:
    groups = [
        Group(tuple(int(place) for place in members), _whole(value, "subtotals") or 0)
        for members, value in subtotals
    ]
    if groups and total is None:
        raise InputError("subtotals: they are parts of a public total; give total=… too")
    listed = [place for group in groups for place in group.members]
    if len(set(listed)) != len(listed) or any(place < 0 for place in listed):
        raise InputError("subtotals: each place, a number from 0 on, may be in one of them only")
    if any(not group.members for group in groups):
        raise InputError("subtotals: one of them names no place")
    return tuple(groups)
