"""The Wasserstein exponential mechanism (003, Theorem 9): counts that agree with what is public.

A release y of counts x has the weight exp(-rate·loss(y - x)) times a base measure that only public
information decides. The rate is epsilon/(2 sigma), where sigma bounds how far the loss moves between
databases within the distance Delta_z of each other. Draws are exact; no Markov chain is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol, TypeAlias

import numpy as np

from countveil.base.numerics import Array, Exact, FloatArray, IntArray, positive
from countveil.base.randomness import BitSource
from countveil.congenial.mechanism import normalizer
from countveil.congenial.mechanism.base_measure import (
    BaseMeasure,
    DirichletMultinomial,
    FlatMeasure,
)
from countveil.congenial.mechanism.euclidean import EuclideanLaw, log_mixture
from countveil.congenial.mechanism.loss_sensitivity import LossKind, sensitivity
from countveil.congenial.mechanism.product_law import (
    Decay,
    Group,
    IndependentNoise,
    ProductLaw,
    log_noise_sum,
)
from countveil.errors import InputError
from countveil.plan.workload import Neighbors

Base: TypeAlias = Literal["naive", "congenial", "prior"]

_LARGEST_TOTAL = 10_000_000
_MOST_PLACES = 2**18  # so that running sums of all tables fit 63 bits
_LARGEST_COUNT = 2**30  # so that a count and its noise fit 32 bits
_LARGEST_DEVIATION = 2**24
_SMALLEST_EPSILON = Fraction(1, 10**9)
_FEW_PROPOSALS, _MOST_PROPOSALS = 8, 1024


class _Sampler(Protocol):
    def accepted_draws(self, size: int, rng: BitSource) -> IntArray: ...


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Wasserstein:
    """Counts of places, or cases and deaths of places, released given public information.

    Parameters
    ----------
    loss
        "L1", "L2" or "squared L2": how the distance from the true counts is measured.
    epsilon
        The epsilon-TP of a release.
    total
        The public sum of all counts (of cases, if there are deaths). With a total the release has the
        same total and no negative count, unless ``base="naive"``.
    subtotals
        Public sums of some places, as (places, sum); no place may be in two of them.
    base
        "congenial" keeps the public sums; "naive" adds independent noise and does not.
    prior
        What public information leads one to expect; it needs a total, and replaces `base`.
    deaths
        Whether every place has two counts, the second a part of the first.
    delta_z
        Delta_z: the largest number of records that differ between the databases compared.
    neighbors
        "change-one", or "add-remove" where no total is public.
    halved
        Whether the rate is epsilon/(2 sigma); without the 2 only for ``base="naive"``, whose
        normalizer is constant.
    sigma
        A bound on how far the loss moves, if larger than the computed one.

    Examples
    --------
    >>> from countveil import Seeded
    >>> mechanism = Wasserstein(loss="L1", epsilon="1", total=20)
    >>> int(mechanism.sample([12, 5, 3], rng=Seeded(7)).sum())
    20
    """

    loss: LossKind
    epsilon: Fraction
    total: int | None
    subtotals: tuple[Group, ...]
    base: Base
    prior: DirichletMultinomial | None
    deaths: bool
    delta_z: int
    neighbors: Neighbors
    halved: bool
    sigma: Fraction

    def __init__(
        self,
        *,
        loss: LossKind,
        epsilon: Exact,
        total: int | None = None,
        subtotals: Sequence[tuple[Sequence[int], int]] = (),
        base: Literal["naive", "congenial"] | None = None,
        prior: DirichletMultinomial | None = None,
        deaths: bool = False,
        delta_z: int = 1,
        neighbors: Neighbors = "change-one",
        halved: bool = True,
        sigma: Exact | None = None,
    ) -> None:
        chosen = _base(base, prior, total)
        object.__setattr__(self, "loss", loss)
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "total", _whole(total, "total"))
        object.__setattr__(self, "subtotals", _groups(subtotals, total))
        object.__setattr__(self, "base", chosen)
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "deaths", deaths)
        object.__setattr__(self, "delta_z", delta_z)
        object.__setattr__(self, "neighbors", neighbors)
        object.__setattr__(self, "halved", halved)
        if not halved and chosen != "naive":
            raise InputError(
                "halved: False is only allowed where the normalizer is the same for all counts, as "
                'with base="naive"; leave it out'
            )
        bounded = total is not None and chosen != "naive"
        least = sensitivity(
            loss,
            delta_z,
            fixed_total=total is not None,
            deaths=deaths,
            neighbors=neighbors,
            largest=max(total, 1) if bounded and total is not None else None,
        )
        object.__setattr__(self, "sigma", least if sigma is None else positive(sigma, "sigma"))
        if self.sigma < least:
            raise InputError(
                f"sigma: {sigma} is below {least}, how far {delta_z} records can move the loss, so the "
                f"guarantee would not hold: leave it out, or give a larger one"
            )
        if self.epsilon < _SMALLEST_EPSILON:
            raise InputError(
                f"epsilon: below {float(_SMALLEST_EPSILON):g} a release says nothing about its counts; "
                f"give more"
            )

    def __repr__(self) -> str:
        return (
            f"Wasserstein(loss={self.loss!r}, epsilon={str(self.epsilon)!r}, total={self.total}, "
            f"base={self.base!r}, deaths={self.deaths})"
        )

    @property
    def rate(self) -> Fraction:
        """The factor of the loss in the exponent: epsilon/(2 sigma), without the 2 if not halved."""
        return self.epsilon / (2 * self.sigma if self.halved else self.sigma)

    @property
    def constant_normalizer(self) -> bool:
        """Whether the sum of all weights is the same for all counts."""
        return self.base == "naive"

    @property
    def base_measure(self) -> BaseMeasure:
        """The base measure of a release with a total."""
        return FlatMeasure() if self.prior is None else self.prior

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

    def prepared(self, counts: Array | Sequence[int]) -> PreparedWasserstein:
        """Return the mechanism, prepared to draw many simulated releases of the same counts."""
        targets = self.checked(counts)
        self._refuse_wide_noise(targets)
        return PreparedWasserstein(self, self._sampler(targets))

    def checked(self, counts: Array | Sequence[int]) -> IntArray:
        """Return confidential counts as (places, 1 or 2); refuse those the public facts exclude."""
        table = self._table(counts, "counts")
        if (table < 0).any():
            raise InputError(
                f"counts: {int((table < 0).any(axis=1).sum())} places have a negative count "
                f"(corrections?); counts of people are 0 or more: fix them before the release"
            )
        if self.deaths and (table[:, 1] > table[:, 0]).any():
            raise InputError(
                f"counts: deaths exceed cases in {int((table[:, 1] > table[:, 0]).sum())} places, "
                f"although it is public that they do not: fix the counts, or release cases alone"
            )
        for group in self.groups(len(table)):
            if int(table[list(group.members), 0].sum()) != group.total:
                raise InputError(
                    f"counts: those of {len(group.members)} places do not sum to their public total "
                    f"{group.total:,}; fix the total or the counts"
                )
        return table

    def _refuse_wide_noise(self, targets: IntArray) -> None:
        """Refuse counts or noise beyond 32 bits, where no total bounds a release.

        One of d counts has a variance of about 2/rate² under the L1 loss, and (d + 1)/rate² under L2,
        whose distance from the counts follows a Gamma law of shape d.
        """
        if self.base != "naive":
            return
        if int(targets.max()) > _LARGEST_COUNT:
            raise InputError(
                f"counts: one is {int(targets.max()):,}; the largest supported is {_LARGEST_COUNT:,}"
            )
        shape = 1 if self.loss == "L1" else targets.size
        if shape + 1 > (_LARGEST_DEVIATION * self.rate) ** 2:
            raise InputError(
                f"epsilon: with {targets.size:,} counts and delta_z = {self.delta_z:,} the noise would "
                f"have a standard deviation above {_LARGEST_DEVIATION:,} and drown any count; raise "
                f"epsilon, or lower delta_z"
            )

    def groups(self, places: int) -> tuple[Group, ...]:
        """Return the places by public sum, those in no subtotal last; nothing without a total."""
        if self.total is None:
            return ()
        listed = [place for group in self.subtotals for place in group.members]
        if any(place >= places for place in listed):
            raise InputError(
                f"subtotals: there is no place {max(listed)}; the {places} places are numbered from 0"
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
        """Return the log-weight of a release, without the normalizer."""
        table = self._table(counts, "counts")
        return float(self.log_weights(released, table[None])[0])

    def log_weights(self, released: Array | Sequence[int], tables: Array) -> FloatArray:
        """Return the log-weights of one release, for many tables of counts."""
        y = self._table(released, "released")
        x = np.asarray(tables).reshape(len(tables), *y.shape)
        distances = np.abs(x - y).astype(np.float64)
        if self.loss == "L1":
            losses = distances.sum(axis=(1, 2))
        else:
            losses = (distances**2).sum(axis=(1, 2))
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
            normalizers = np.array(self.log_normalizer(x[0]))
        else:
            normalizers = np.array([self.log_normalizer(table) for table in x])
        logs: FloatArray = weights - normalizers
        return logs

    def log_normalizer(self, counts: Array | Sequence[int]) -> float:
        """Return log of the sum of all weights."""
        targets = self._table(counts, "counts")
        if self.loss == "L2":
            return log_mixture(
                float(self.rate),
                targets.size,
                self._farthest(),
                lambda rate: self._log_sum(Decay(Fraction(rate), 2), targets),
                self._log_base_of(targets),
            )
        return self._log_sum(self._decay, targets)

    @property
    def _decay(self) -> Decay:
        return Decay(self.rate, 1 if self.loss == "L1" else 2)

    def _log_sum(self, decay: Decay, targets: IntArray) -> float:
        if self.base == "naive":
            return targets.size * log_noise_sum(decay)
        total = 0.0
        for group in self.groups(len(targets)):
            at = np.arange(group.total + 1)
            logs = []
            for place in group.members:
                row = self.log_base(place, at) - decay.cost(at - targets[place, 0])
                if self.deaths:
                    row = row + np.logaddexp.accumulate(-decay.cost(at - targets[place, 1]))
                logs.append(row)
            total += normalizer.log_sum(logs, group.total)
        return total

    def _log_base_of(self, released: IntArray) -> float:
        """Return the base measure's log-weight of a table: minus infinity if it is not possible."""
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
        """Return a distance that no release reaches from its counts."""
        return math.inf if self.base == "naive" or self.total is None else 2.0 * self.total + 1

    def _sampler(self, targets: IntArray) -> _Sampler:
        groups = self.groups(len(targets))

        last: list[ProductLaw] = []

        def part(decay: Decay) -> IndependentNoise | ProductLaw:
            if self.base == "naive":
                return IndependentNoise(decay, targets)
            near = last[-1].tilts if last else None
            last[:] = [ProductLaw.prepare(self.base_measure, decay, targets, groups, near=near)]
            return last[0]

        if self.loss == "L2":
            return EuclideanLaw(self.rate, targets, self._farthest(), part)
        return part(self._decay)

    def _table(self, values: Array | Sequence[int], name: str) -> IntArray:
        table = np.asarray(values)
        columns = 2 if self.deaths else 1
        shape = "(places, 2): cases and deaths" if self.deaths else "(places,): one count per place"
        if table.ndim == 1 and columns == 1:
            table = table[:, None]
        if table.ndim != 2 or table.shape[1] != columns or len(table) == 0:
            raise InputError(f"{name}: the shape is {table.shape}; it must be {shape}")
        if not np.issubdtype(table.dtype, np.integer):
            raise InputError(f"{name}: the type is {table.dtype}; counts are whole numbers")
        if len(table) > _MOST_PLACES:
            raise InputError(
                f"{name}: {len(table):,} places are too many; at most {_MOST_PLACES:,} are supported"
            )
        if self.prior is not None and self.prior.places != len(table):
            raise InputError(
                f"{name}: {len(table)} places, but the prior has {self.prior.places} previous counts; "
                f"they must be of the same places in the same order"
            )
        return table.astype(np.int64)


@dataclass(frozen=True, slots=True, repr=False)
class PreparedWasserstein:
    """A mechanism, prepared to draw simulated releases of one set of confidential counts."""

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
        releases = draw_exactly(self, 1 if size is None else size, rng)
        return releases[0] if size is None else releases


def draw_exactly(prepared: PreparedWasserstein, size: int, rng: BitSource) -> IntArray:
    """Draw releases; only the door calls this for real ones."""
    parts: list[IntArray] = []
    accepted, batch = 0, max(_FEW_PROPOSALS, min(size, _MOST_PROPOSALS))
    while accepted < size:
        parts.append(prepared.sampler.accepted_draws(batch, rng))
        accepted += len(parts[-1])
        batch = min(2 * batch, _MOST_PROPOSALS)
    tables = np.concatenate(parts)[:size]
    return tables if prepared.mechanism.deaths else tables[:, :, 0]


def _base(base: str | None, prior: DirichletMultinomial | None, total: int | None) -> Base:
    if base not in (None, "naive", "congenial"):
        raise InputError(
            f'base: unknown base {base!r}; choose "naive" or "congenial", or give a prior'
        )
    if prior is not None:
        if base is not None:
            raise InputError("base: a prior is itself a base measure; give base or prior, not both")
        if total is None:
            raise InputError("prior: a prior distributes a public total; give total=…")
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
        raise InputError(f"{name}: {value!r} is not allowed; give a whole number, 0 or more")
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
        raise InputError("subtotals: each place, numbered from 0, may be in only one of them")
    if any(not group.members for group in groups):
        raise InputError("subtotals: one of them contains no place")
    return tuple(groups)
