"""One level of a hierarchy as the intruder sees it, and what they believe about a parent's count."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import gammaln

from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.noise.law import Mechanism


class ParentRange(NamedTuple):
    """The smallest and the largest count of a range."""

    lowest: float
    highest: float


class ParentPrior(Protocol):
    """What the intruder believes about a parent's count, given one child's, before the release."""

    def likely(self, drop: float) -> ParentRange | None:
        """Return where the siblings' count has more than exp(-drop) of its largest weight.

        None if no count within the support stands out.
        """
        ...

    @property
    def smooth(self) -> bool:
        """Whether its logarithm is a polynomial, so that sums over wide ranges may be thinned."""
        ...

    @property
    def concave(self) -> bool:
        """Whether it falls off from its mode, for every count of the child."""
        ...

    def support(self, first: float, last: float) -> ParentRange | None:
        """Return the parent's possible counts if the child's is from `first` to `last`.

        None if they are unbounded.
        """
        ...

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return the log prior of `parent`, at least `child`; it need not sum to 1."""
        ...


@dataclass(frozen=True, slots=True)
class Flat:
    """Every parent's count from the child's on is equally likely: (24) of 002, improper."""

    smooth = True
    concave = True

    def likely(self, drop: float) -> None:
        """Return None: no count stands out."""

    def support(self, first: float, last: float) -> None:
        """Return None: it is unbounded."""

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return 0."""
        return np.zeros(np.broadcast(parent, child).shape)


FLAT = Flat()


@dataclass(frozen=True, slots=True)
class UpTo:
    """Every parent's count from the child's up to `most` is equally likely (S4.2).

    Normalized, each of them has 1/(most - child + 1); otherwise the weight is the same for every child.
    """

    most: int
    normalized: bool = True
    smooth = False
    concave = True

    def __post_init__(self) -> None:
        _refuse_negative(self.most, "most")

    def likely(self, drop: float) -> None:
        """Return None: no count stands out."""

    def support(self, first: float, last: float) -> ParentRange:
        """Return the range from the child's smallest count to `most`."""
        return ParentRange(first, float(self.most))

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return minus the log of the number of possible counts."""
        room = np.maximum(self.most - np.asarray(child, float) + 1, 1.0)
        weight = -np.log(room) if self.normalized else np.zeros_like(room)
        return np.where(np.asarray(parent) <= self.most, weight, -np.inf)


@dataclass(frozen=True, slots=True)
class Exactly:
    """The intruder knows the parent's count (section S4), for example because it is an invariant."""

    count: int
    smooth = False
    concave = True

    def __post_init__(self) -> None:
        _refuse_negative(self.count, "count")

    def likely(self, drop: float) -> None:
        """Return None: the support is the one count."""

    def support(self, first: float, last: float) -> ParentRange:
        """Return the range that contains only this count."""
        return ParentRange(float(self.count), float(self.count))

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return 0 at the count and minus infinity elsewhere."""
        parent, child = np.broadcast_arrays(parent, child)
        return np.where(parent == self.count, 0.0, -np.inf)


@dataclass(frozen=True, slots=True)
class SiblingsPoisson:
    """The siblings together have a Poisson number of people."""

    mean: float
    smooth = False
    concave = True

    def __post_init__(self) -> None:
        if not 0 < self.mean < math.inf:
            raise InputError(f"mean: {self.mean} is not allowed; it must be above 0 and finite")

    def likely(self, drop: float) -> ParentRange:
        """Return a range around the mean, by Bernstein's inequality."""
        reach = drop / 3 + math.sqrt(drop * drop / 9 + 2 * self.mean * drop)
        return ParentRange(max(0.0, self.mean - reach - 1), self.mean + reach + 1)

    def support(self, first: float, last: float) -> None:
        """Return None: it is unbounded."""

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return the log Poisson probability of the siblings' count."""
        y = np.asarray(parent, float) - child
        return np.asarray(y * math.log(self.mean) - self.mean - gammaln(y + 1))


@dataclass(frozen=True, eq=False, slots=True)
class Pmf:
    """Any probabilities of 0, 1, 2, … people, for the siblings together or for the parent.

    For the parent, counts below the child's are impossible and the rest is scaled up.
    """

    probabilities: Array
    of: Literal["siblings", "parent"] = "siblings"
    smooth = False
    concave = False

    def __post_init__(self) -> None:
        p = np.array(self.probabilities, float)
        if p.ndim != 1 or not len(p) or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
            raise InputError(
                "probabilities: they must be a list of finite numbers, none negative, some above 0"
            )
        if self.of not in ("siblings", "parent"):
            raise InputError(f'of: {self.of!r} is not allowed; choose "siblings" or "parent"')
        p /= p.sum()
        p.setflags(write=False)
        object.__setattr__(self, "probabilities", p)

    def likely(self, drop: float) -> None:
        """Return None: the support is finite."""

    def support(self, first: float, last: float) -> ParentRange:
        """Return the range of counts that have a probability."""
        most = float(len(self.probabilities) - 1)
        return ParentRange(first, last + most if self.of == "siblings" else most)

    def log_weight(self, parent: Array, child: Array) -> FloatArray:
        """Return the log probability."""
        p = self.probabilities
        parent, child = np.broadcast_arrays(np.asarray(parent, float), np.asarray(child, float))
        with np.errstate(divide="ignore"):
            if self.of == "siblings":
                return np.log(_looked_up(p, parent - child))
            beyond = np.append(np.cumsum(p[::-1])[::-1], 0.0)
            room = beyond[np.clip(child, 0, len(p)).astype(np.int64)]
            return np.log(_looked_up(p, parent)) - np.log(np.where(room > 0, room, 1.0))


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a hierarchy, from the unit in which the intruder's target is counted upwards.

    Parameters
    ----------
    noise : Mechanism
        The noise of the level's counts.
    siblings : int
        How many other units have the same parent as this one.
    prior : ParentPrior
        What the intruder believes about the parent's count, given this unit's. Unused at the top.
    sibling_prior : ParentPrior
        What they believe about one sibling's count, where siblings are seen one by one.
    """

    noise: Mechanism
    siblings: int = 0
    prior: ParentPrior = FLAT
    sibling_prior: ParentPrior = FLAT

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Mechanism):
            raise InputError(
                f"noise: {self.noise!r} is not allowed; a level is released with integer noise, "
                f"such as DiscreteGaussian"
            )
        if (
            isinstance(self.siblings, bool)
            or not isinstance(self.siblings, int)
            or self.siblings < 0
        ):
            raise InputError(
                f"siblings: {self.siblings} is not allowed; it must be a whole number, 0 or more"
            )


def _looked_up(p: FloatArray, at: FloatArray) -> FloatArray:
    inside = (at >= 0) & (at < len(p))
    return np.where(inside, p[np.where(inside, at, 0).astype(np.int64)], 0.0)


def _refuse_negative(count: int, name: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(f"{name}: {count} is not allowed; it must be a whole number, 0 or more")
