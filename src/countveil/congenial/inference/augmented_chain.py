"""Data augmentation for large tables: counts are drawn along with the parameters, two places at a time.

The rates are integrated out, so a chain moves among tables of counts, and rates are drawn given the
table. Two places of a group exchange counts, so that public sums hold: the new split comes from its
exact conditional law, except for the mechanism's normalizer C, for which a guess G is used, and is
accepted with probability min(1, C(x) G(x')/(C(x') G(x))). With a constant normalizer every draw is
accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.inference.posterior_result import Posterior
from countveil.congenial.inference.tables_given_sums import weights_from_logs
from countveil.congenial.mechanism.normalizer import levelling_tilt, log_sum
from countveil.congenial.mechanism.product_law import Group
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError

_WIDEST = 4_096  # values that one draw chooses from; a wider range is reduced to a window
_DISPERSED = 3.0  # how far from the release chains start, in units of the noise's own spread

SweepProgress: TypeAlias = Callable[[int, int], None]  # sweeps so far, sweeps in all


def augmented_posterior(
    problem: PosteriorProblem,
    *,
    draws: int,
    warmup: int,
    chains: int,
    seed: int,
    progress: SweepProgress,
) -> Posterior:
    """Run chains from dispersed tables; return their draws with diagnostics."""
    mechanism = problem.mechanism
    if not mechanism.constant_normalizer and not problem.separable:
        raise InputError(
            'mechanism: the normalizer of a congenial release with loss "L2" is too slow to update '
            'along a chain; use method="exact" or "rejection", or release with loss "L1"'
        )
    tables = np.zeros((chains, draws, *problem.released.shape), dtype=np.int64)
    points = np.zeros((chains, draws), dtype=np.int64)
    parameters = np.zeros((chains, draws, problem.places))
    accepted = moves = 0
    for number, stream in enumerate(np.random.SeedSequence(seed).spawn(chains)):
        chain = _TableChain(problem, np.random.default_rng(stream), dispersed=number > 0)
        for step in range(warmup + draws):
            chain.sweep()
            progress(number * (warmup + draws) + step + 1, chains * (warmup + draws))
            if step >= warmup:
                tables[number, step - warmup] = chain.table
                points[number, step - warmup] = chain.point
        parameters[number] = problem.model.draw(tables[number], points[number], chain.rng)
        accepted, moves = accepted + chain.accepted, moves + chain.moves
    flat = parameters.reshape(-1, problem.places)
    counts = tables.mean(axis=(0, 1))
    result = Posterior(
        method="augmented",
        parameter=problem.model.parameter,
        exact=False,
        mean=flat.mean(axis=0),
        variance=flat.var(axis=0, ddof=1),
        counts=counts if problem.deaths else counts[:, 0],
        draws=parameters,
        acceptance=accepted / max(moves, 1),
        points=np.bincount(points.reshape(-1), minlength=len(problem.model.log_points))
        / points.size,
        tables=tables if problem.deaths else tables[:, :, :, 0],
    )
    return result.with_size()


@dataclass(frozen=True, slots=True)
class _Move:
    """The places whose count is redrawn, two that keep their sum or one alone, and the column."""

    places: tuple[int, ...]
    column: int


class _ProposedMove(NamedTuple):
    changes: dict[int, IntArray]  # the new counts of the places that move
    log_guess: float  # log of the guessed ratio of normalizers


class _TableChain:
    """One chain: a table that agrees with the public facts, and a point of the shared parameters."""

    def __init__(
        self, problem: PosteriorProblem, rng: np.random.Generator, *, dispersed: bool
    ) -> None:
        self.problem, self.rng = problem, rng
        self.mosts = [problem.most(place) for place in range(problem.places)]
        self.table = _start(problem, self.mosts, rng if dispersed else None)
        self.log_points = problem.model.log_points
        self.point = int(rng.choice(len(self.log_points), p=weights_from_logs(self.log_points)))
        self.accepted = self.moves = 0
        self.trackers: tuple[tuple[Group, TrackedNormalizer | None], ...]
        if problem.mechanism.constant_normalizer:
            everywhere = Group(tuple(range(problem.places)), 0)
            self.trackers = ((everywhere, None),)
        else:
            self.trackers = tuple(
                (group, TrackedNormalizer(problem.mechanism, group, self.table))
                for group in problem.mechanism.groups(problem.places)
            )

    def sweep(self) -> None:
        """Redraw every place's count once, its deaths too, and then the shared parameters."""
        for group, tracker in self.trackers:
            members = set(group.members)
            self._pass(self._exchanges(members), tracker)
            if self.problem.deaths:
                self._pass([_Move((place,), 1) for place in sorted(members)], tracker)
        if len(self.log_points) > 1:
            self._draw_point()

    def _exchanges(self, members: set[int]) -> list[_Move]:
        moves = []
        for group in self.problem.facts.groups:
            if set(group.members) <= members and len(group.members) > 1:
                order = self.rng.permutation(group.members)
                pairs = zip(order[::2], order[1::2], strict=False)
                moves += [_Move((int(first), int(second)), 0) for first, second in pairs]
        return moves + [_Move((place,), 0) for place in self.problem.facts.free if place in members]

    def _pass(self, moves: list[_Move], tracker: TrackedNormalizer | None) -> None:
        if tracker is not None:
            tracker.begin([move.places for move in moves])
        for move in moves:
            proposal = self._propose(move, tracker)
            changed = None
            self.moves += 1
            same = all(
                np.array_equal(self.table[place], count)
                for place, count in proposal.changes.items()
            )
            accepted = True
            if tracker is not None and not same:
                log_ratio, changed = tracker.propose(proposal.changes)
                accepted = math.log(self.rng.random()) <= proposal.log_guess - log_ratio
            if accepted:
                self.accepted += 1
                for place, count in proposal.changes.items():
                    self.table[place] = count
            if tracker is not None:
                tracker.settle(move.places, changed if accepted else None)

    def _propose(self, move: _Move, tracker: TrackedNormalizer | None) -> _ProposedMove:
        """Draw the first place's count, which determines the second's.

        The law is exact except for the normalizer, which the product of the places' sums of weights
        replaces; the log-ratio of this guess is returned, to be compared with that of the normalizer.
        """
        place, column = move.places[0], move.column
        now = int(self.table[place, column])
        low, high = self._range(place, column)
        together = 0
        if len(move.places) == 2:
            other = move.places[1]
            together = now + int(self.table[other, 0])
            least, most = self._range(other, 0)
            low = max(low, 0 if most is None else together - most)
            high = together - least if high is None else min(high, together - least)
        start, stop = self._window(now, low, high)
        values = np.arange(start, stop + 1)
        logs = self._log_weights(place, column, values)
        if len(move.places) == 2:
            logs = logs + self._log_weights(move.places[1], 0, together - values)
        if not self.problem.separable:
            logs = logs + self._log_joint_noise(move, values, together)
        guess = np.zeros(len(values))
        if tracker is not None and column == 0:
            guess = tracker.log_masses(place, values)
            if len(move.places) == 2:
                guess = guess + tracker.log_masses(move.places[1], together - values)
            logs = logs - guess
        sums = np.cumsum(np.exp(logs - logs.max()))
        value = start + int(np.searchsorted(sums, self.rng.random() * sums[-1], side="right"))
        changes = {place: self.table[place].copy()}
        changes[place][column] = value
        if len(move.places) == 2:
            changes[move.places[1]] = self.table[move.places[1]].copy()
            changes[move.places[1]][0] = together - value
        return _ProposedMove(changes, float(guess[value - start] - guess[now - start]))

    def _range(self, place: int, column: int) -> tuple[int, int | None]:
        if column == 1:
            return 0, int(self.table[place, 0])
        return (int(self.table[place, 1]) if self.problem.deaths else 0), self.mosts[place]

    def _window(self, now: int, low: int, high: int | None) -> tuple[int, int]:
        """Return the values to choose from: all, or a window placed at random around the current one.

        Every value inside was equally likely to get this window, so the choice stays reversible.
        """
        if high is not None and high - low < _WIDEST:
            return low, high
        start = now - int(self.rng.integers(_WIDEST))
        end = start + _WIDEST - 1
        return max(low, start), end if high is None else min(high, end)

    def _log_weights(self, place: int, column: int, values: IntArray) -> FloatArray:
        cases = values if column == 0 else np.broadcast_to(self.table[place, 0], values.shape)
        if self.problem.deaths:
            deaths = values if column == 1 else np.broadcast_to(self.table[place, 1], values.shape)
        else:
            deaths = cases
        logs = self.problem.model.log_marginal(place, cases, deaths, self.point)
        if not self.problem.separable:
            return logs
        return logs + self.problem.log_noise(place, column, values)

    def _log_joint_noise(self, move: _Move, values: IntArray, together: int) -> FloatArray:
        """Return the log-weight of the noise under L2, which is joint over all counts."""
        released = self.problem.released
        squares = (self.table - released).astype(np.float64) ** 2
        rest = float(squares.sum())
        rest -= sum(float(squares[place, move.column]) for place in move.places)
        own = rest + (values - released[move.places[0], move.column]).astype(np.float64) ** 2
        if len(move.places) == 2:
            own = own + (together - values - released[move.places[1], 0]).astype(np.float64) ** 2
        logs: FloatArray = -float(self.problem.mechanism.rate) * np.sqrt(np.maximum(own, 0.0))
        return logs

    def _draw_point(self) -> None:
        points = np.arange(len(self.log_points))
        logs = self.log_points.copy()
        for place in range(self.problem.places):
            cases = np.broadcast_to(self.table[place, 0], points.shape)
            deaths = np.broadcast_to(self.table[place, -1], points.shape)
            logs = logs + self.problem.model.log_marginal(place, cases, deaths, points)
        self.point = int(self.rng.choice(len(points), p=weights_from_logs(logs)))


def _start(
    problem: PosteriorProblem, mosts: list[int | None], rng: np.random.Generator | None
) -> IntArray:
    """Return a table with the public sums: near the release, or at random around it."""
    table = np.maximum(problem.released, 0)
    tops = np.array([np.iinfo(np.int64).max if most is None else most for most in mosts])
    if rng is not None:
        rate = float(problem.mechanism.rate)
        scale = 1 / math.sqrt(rate) if problem.mechanism.loss == "squared L2" else 1 / rate
        moved = table + np.round(rng.laplace(0.0, _DISPERSED * scale, table.shape))
        highest = max([group.total for group in problem.facts.groups], default=table.max())
        table = np.clip(moved, 0, highest).astype(np.int64)
    table[:, 0] = np.minimum(table[:, 0], tops)
    for group in problem.facts.groups:
        members = np.array(group.members)
        left = group.total - int(table[members, 0].sum())
        for place in members if rng is None else rng.permutation(members):
            step = min(left, int(tops[place]) - int(table[place, 0])) if left > 0 else left
            step = max(step, -int(table[place, 0]))
            table[place, 0] += step
            left -= step
    if problem.deaths:
        table[:, 1] = np.minimum(table[:, 1], table[:, 0])
    return table


# The mechanism's normalizer along a chain of tables, updated only for the places that change.
#
# C(x) is the sum over all releases of the product of places' weights under a fixed sum: one coefficient
# of a product of transforms (mechanism/normalizer.py). The transform of each place is kept. Chernoff
# bounds the error from folding at every table visited; where the bound is too weak, C is recomputed.

_LOG_NEGLIGIBLE = 80.0
_LOG_FOLDED = math.log(1e-11)  # the allowed error from folding, relative to the sum
_LEAST_PROBABILITY = 1e-8  # of the sum under the tilt; below it rounding errors would show
_DEVIATIONS = 16.0  # the length of the transforms, in standard deviations of the sum
_EXPONENT = 8.0  # of Chernoff's bound, in units of one over the standard deviation
_GUESSES = 129  # counts at which a place's sum of weights is computed for squared L2
_TOO_OFTEN = 0.05  # share of recomputed moves from which tilt and length are fitted again


@dataclass(frozen=True, eq=False, slots=True)
class PlaceFactor:
    """The weights of one place: their transform, log of their sum, and log-moments on both sides."""

    count: IntArray
    transform: NDArray[np.complex128]
    log_mass: float
    log_above: float  # log E exp(u (k - count)): u > 0
    log_below: float


class NormalizerChange(NamedTuple):
    """log C(x')/C(x) of a move, and the factors it would bring."""

    log_ratio: float
    changed: dict[int, PlaceFactor]


class TrackedNormalizer:
    """log C of the tables of one group of places, along a chain."""

    def __init__(self, mechanism: Wasserstein, group: Group, table: IntArray) -> None:
        self._mechanism, self._group = mechanism, group
        self._counts = np.arange(group.total + 1)
        self._bases = {
            place: np.asarray(mechanism.log_base(place, self._counts), dtype=np.float64)
            for place in group.members
        }
        self._longer, self._moves, self._recomputed, self._short = 1.0, 0, 0, 0
        self._guesses: dict[int, FloatArray] | None = None
        self._fit({place: table[place].copy() for place in group.members})

    def begin(self, moves: list[tuple[int, ...]]) -> None:
        """Prepare for a pass of moves of disjoint places, in this order."""
        if self._recomputed > _TOO_OFTEN * max(self._moves, 200):
            if self._short > self._recomputed / 2:
                self._longer *= 2
            self._fit({place: factor.count for place, factor in self._factors.items()})
        moved = {place for move in moves for place in move}
        product = np.ones(self._length // 2 + 1, dtype=np.complex128)
        for place, factor in self._factors.items():
            if place not in moved:
                product = product * factor.transform
        self._after = [product]
        for move in reversed(moves):
            for place in move:
                product = product * self._factors[place].transform
            self._after.append(product)
        self._after.pop()  # the next move's own factors are not part of it
        self._before = np.ones(self._length // 2 + 1, dtype=np.complex128)

    def propose(self, changes: dict[int, IntArray]) -> NormalizerChange:
        """Return how the next move of the pass would change the normalizer."""
        changed = {place: self._factor(place, count) for place, count in changes.items()}
        product = self._before * self._after[-1]
        for factor in changed.values():
            product = product * factor.transform
        self._moves += 1
        log_normalizer = self._read(product, {**self._factors, **changed})
        self._proposed = log_normalizer
        return NormalizerChange(log_normalizer - self._log_normalizer, changed)

    def log_masses(self, place: int, counts: IntArray) -> FloatArray:
        """Return roughly how log C depends on the count of a place; proposals are divided by it.

        C is the product of the places' sums of weights, times the probability of the public sum under
        the tilt, which hardly changes. The guess is exact for L1 with cases alone; the chain is right
        for any guess.
        """
        if self._guesses is None:
            return np.zeros(len(counts))
        return self._guesses[place][counts]

    def settle(self, move: tuple[int, ...], changed: dict[int, PlaceFactor] | None) -> None:
        """End the move: with these factors if it was accepted, with the old ones otherwise."""
        if changed is not None:
            self._factors.update(changed)
            self._log_normalizer = self._proposed
        self._after.pop()
        for place in move:
            self._before = self._before * self._factors[place].transform

    def _fit(self, counts: dict[int, IntArray]) -> None:
        """Choose the tilt and the length of transforms for tables like this one."""
        rows = [self._log_weights(place, count, 0, None) for place, count in counts.items()]
        self._tilt = levelling_tilt(rows, self._group.total)
        grid, variance = self._counts.astype(np.float64), 0.0
        for row in rows:
            exponents = row + self._tilt * grid
            law = np.exp(exponents - exponents.max())
            law /= law.sum()
            variance += float((law * (grid - float((law * grid).sum())) ** 2).sum())
        deviation = max(math.sqrt(variance), 1.0)
        self._length = 1 << max(6, math.ceil(math.log2(self._longer * _DEVIATIONS * deviation)))
        self._exponent = _EXPONENT / deviation
        # Reducing the angle of total · i in whole numbers keeps it exact to rounding.
        turns = (self._group.total % self._length) * np.arange(self._length // 2 + 1)
        weights = np.full(self._length // 2 + 1, 2.0 / self._length)
        weights[0] = weights[-1] = 1.0 / self._length
        self._reader = weights * np.exp(2j * math.pi / self._length * (turns % self._length))
        self._tops = {
            place: float((base + self._tilt * grid).max()) for place, base in self._bases.items()
        }
        self._guesses = None
        if self._mechanism.prior is not None:
            self._guesses = {place: self._guess(place) for place in counts}
        self._factors = {place: self._factor(place, count) for place, count in counts.items()}
        self._moves = self._recomputed = self._short = 0
        product = np.ones(self._length // 2 + 1, dtype=np.complex128)
        for factor in self._factors.values():
            product = product * factor.transform
        self._log_normalizer = self._read(product, self._factors)

    def _factor(self, place: int, count: IntArray) -> PlaceFactor:
        start, stop = self._window(place, int(count[0]))
        at = self._counts[start:stop]
        exponents = self._log_weights(place, count, start, stop) + self._tilt * at
        peak = int(exponents.argmax())
        top = float(exponents[peak])
        weights = np.exp(exponents - top)
        mass = float(weights.sum())
        law = weights / mass
        shift = self._exponent * (start + peak - int(count[0]))
        matters = law > 0
        with np.errstate(over="ignore"):  # an infinite moment bounds nothing; _read checks for it
            moved = np.exp(self._exponent * (at[matters] - (start + peak)))
            above, below = (law[matters] * moved).sum(), (law[matters] / moved).sum()
        first = start // self._length * self._length
        folded = np.zeros(-(-(stop - first) // self._length) * self._length)
        folded[start - first : stop - first] = law
        return PlaceFactor(
            count,
            np.fft.rfft(folded.reshape(-1, self._length).sum(axis=0)),
            top + math.log(mass),
            math.log(float(above)) + shift,
            math.log(float(below)) - shift,
        )

    def _guess(self, place: int) -> FloatArray:
        """Return log of the sum of a place's tilted weights, for each count."""
        base = self._bases[place] + self._tilt * self._counts
        rate = float(self._mechanism.rate)
        if self._mechanism.loss == "L1":
            # Running sums to the left and to the right of each count.
            left = np.logaddexp.accumulate(base + rate * self._counts) - rate * self._counts
            back = np.logaddexp.accumulate((base - rate * self._counts)[::-1])[::-1]
            right = np.full(len(base), -math.inf)
            right[:-1] = back[1:] + rate * self._counts[:-1]
            sums: FloatArray = np.logaddexp(left, right)
            return sums
        at = np.unique(np.linspace(0, self._group.total, _GUESSES).astype(np.int64))
        few = [float(np.logaddexp.reduce(base - self._cost(self._counts - count))) for count in at]
        return np.interp(self._counts, at, few)

    def _window(self, place: int, count: int) -> tuple[int, int]:
        """Return the counts outside which weights are below exp(-80) of the current one."""
        here = float(self._bases[place][count]) + self._tilt * count
        fall = _LOG_NEGLIGIBLE + self._tops[place] - here
        rate = float(self._mechanism.rate)
        if self._mechanism.deaths:
            # The deaths' sum of weights is at least 1 here and at most this.
            fall += math.log(self._group.total + 1)
        reach = math.ceil(fall / rate if self._mechanism.loss == "L1" else math.sqrt(fall / rate))
        return max(0, count - reach), min(self._group.total, count + reach) + 1

    def _read(self, product: NDArray[np.complex128], factors: dict[int, PlaceFactor]) -> float:
        """Return log C, up to a constant of the group, from the product of all transforms."""
        probability = float((product * self._reader).real.sum())
        if probability >= _LEAST_PROBABILITY:
            # The places' own counts sum to the total, so folded sums are a whole length away from it.
            limit = self._exponent * self._length + _LOG_FOLDED + math.log(probability / 2)
            above = math.fsum(factor.log_above for factor in factors.values())
            below = math.fsum(factor.log_below for factor in factors.values())
            if max(above, below) <= limit:
                log_masses = math.fsum(factor.log_mass for factor in factors.values())
                return math.log(probability) + log_masses - self._tilt * self._group.total
            self._short += 1
        self._recomputed += 1
        rows = [self._log_weights(place, item.count, 0, None) for place, item in factors.items()]
        return log_sum(rows, self._group.total)

    def _log_weights(self, place: int, count: IntArray, start: int, stop: int | None) -> FloatArray:
        """Return log of the base measure times exp(-rate·loss) of these counts, summed over deaths."""
        row = self._bases[place][start:stop] - self._cost(self._counts[start:stop] - int(count[0]))
        if self._mechanism.deaths:
            sums = np.cumsum(np.exp(-self._cost(self._counts[:stop] - int(count[1]))))
            with np.errstate(divide="ignore"):
                row = row + np.log(sums[start:])
        return row

    def _cost(self, apart: IntArray) -> FloatArray:
        distance = np.abs(apart).astype(np.float64)
        rate = float(self._mechanism.rate)
        return rate * (distance if self._mechanism.loss == "L1" else distance**2)
