"""Data augmentation for large tables: the counts are drawn with the parameters, two places at a time.

The rates are summed over, so a chain moves among tables of counts, and rates are drawn given the table.
Two places of a group exchange counts, so that public sums hold: the new split comes from its exact
conditional law beside everything but the mechanism's normaliser C, for which a guess G stands, and is
taken with chance min(1, C(x) G(x')/(C(x') G(x))). With a constant normaliser every draw is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from countveil.congenial.product import Group
from countveil.errors import InputError
from countveil.infer.conditional_tables import normalized
from countveil.infer.evidence import Evidence
from countveil.infer.result import Posterior
from countveil.infer.tracked_normalizer import TrackedNormalizer
from countveil.numerics import FloatArray, IntArray

_WIDEST = 4_096  # values that one draw chooses from, if need be in a window around the present one

_DISPERSED = 3.0  # times the noise's own spread: how far from the release chains start


Progress = Callable[[int, int], None]  # sweeps done, sweeps


def augmented_posterior(
    evidence: Evidence, *, draws: int, warmup: int, chains: int, seed: int, progress: Progress
) -> Posterior:
    """Run chains from dispersed tables and return their draws with diagnostics."""
    mechanism = evidence.mechanism
    if not mechanism.constant_normalizer and not evidence.separable:
        raise InputError(
            'mechanism: the normaliser of a congenial release with loss "L2" is too slow to follow '
            'along a chain; use method="exact" or "rejection", or release with loss "L1"'
        )
    tables = np.zeros((chains, draws, *evidence.released.shape), dtype=np.int64)
    points = np.zeros((chains, draws), dtype=np.int64)
    parameters = np.zeros((chains, draws, evidence.places))
    taken = moves = 0
    for number, stream in enumerate(np.random.SeedSequence(seed).spawn(chains)):
        chain = _Chain(evidence, np.random.default_rng(stream), dispersed=number > 0)
        for step in range(warmup + draws):
            chain.sweep()
            progress(number * (warmup + draws) + step + 1, chains * (warmup + draws))
            if step >= warmup:
                tables[number, step - warmup] = chain.table
                points[number, step - warmup] = chain.point
        parameters[number] = evidence.model.draw(tables[number], points[number], chain.rng)
        taken, moves = taken + chain.taken, moves + chain.moves
    flat = parameters.reshape(-1, evidence.places)
    counts = tables.mean(axis=(0, 1))
    found = Posterior(
        method="augmented",
        parameter=evidence.model.parameter,
        exact=False,
        mean=flat.mean(axis=0),
        variance=flat.var(axis=0, ddof=1),
        counts=counts if evidence.deaths else counts[:, 0],
        draws=parameters,
        acceptance=taken / max(moves, 1),
        points=np.bincount(points.reshape(-1), minlength=len(evidence.model.log_points))
        / points.size,
        tables=tables if evidence.deaths else tables[:, :, :, 0],
    )
    return found.with_size()


@dataclass(frozen=True, slots=True)
class _Move:
    """Places whose count is drawn anew: two that keep their sum, or one; and which column."""

    places: tuple[int, ...]
    column: int


class _Chain:
    """One chain: a table that agrees with what is public, and a point of the shared parameters."""

    def __init__(self, evidence: Evidence, rng: np.random.Generator, *, dispersed: bool) -> None:
        self.evidence, self.rng = evidence, rng
        self.mosts = [evidence.most(place) for place in range(evidence.places)]
        self.table = _start(evidence, self.mosts, rng if dispersed else None)
        self.log_points = evidence.model.log_points
        self.point = int(rng.choice(len(self.log_points), p=normalized(self.log_points)))
        self.taken = self.moves = 0
        self.trackers: tuple[tuple[Group, TrackedNormalizer | None], ...]
        if evidence.mechanism.constant_normalizer:
            everywhere = Group(tuple(range(evidence.places)), 0)
            self.trackers = ((everywhere, None),)
        else:
            self.trackers = tuple(
                (group, TrackedNormalizer(evidence.mechanism, group, self.table))
                for group in evidence.mechanism.groups(evidence.places)
            )

    def sweep(self) -> None:
        """Draw every place's count anew once, deaths too, and then the shared parameters."""
        for group, tracker in self.trackers:
            members = set(group.members)
            self._pass(self._exchanges(members), tracker)
            if self.evidence.deaths:
                self._pass([_Move((place,), 1) for place in sorted(members)], tracker)
        if len(self.log_points) > 1:
            self._draw_point()

    def _exchanges(self, members: set[int]) -> list[_Move]:
        moves = []
        for group in self.evidence.facts.groups:
            if set(group.members) <= members and len(group.members) > 1:
                order = self.rng.permutation(group.members)
                pairs = zip(order[::2], order[1::2], strict=False)
                moves += [_Move((int(first), int(second)), 0) for first, second in pairs]
        return moves + [
            _Move((place,), 0) for place in self.evidence.facts.free if place in members
        ]

    def _pass(self, moves: list[_Move], tracker: TrackedNormalizer | None) -> None:
        if tracker is not None:
            tracker.begin([move.places for move in moves])
        for move in moves:
            changes, log_guess = self._propose(move, tracker)
            changed = None
            self.moves += 1
            same = all(np.array_equal(self.table[place], count) for place, count in changes.items())
            accepted = True
            if tracker is not None and not same:
                log_ratio, changed = tracker.propose(changes)
                accepted = math.log(self.rng.random()) <= log_guess - log_ratio
            if accepted:
                self.taken += 1
                for place, count in changes.items():
                    self.table[place] = count
            if tracker is not None:
                tracker.settle(move.places, changed if accepted else None)

    def _propose(
        self, move: _Move, tracker: TrackedNormalizer | None
    ) -> tuple[dict[int, IntArray], float]:
        """Draw the first place's count, and so the second's; say what the normaliser was taken for.

        The law drawn from is exact but for the normaliser, for which the product of sums of places'
        weights stands; its log-ratio comes back, to be held against the normaliser's own.
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
        if not self.evidence.separable:
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
        return changes, float(guess[value - start] - guess[now - start])

    def _range(self, place: int, column: int) -> tuple[int, int | None]:
        if column == 1:
            return 0, int(self.table[place, 0])
        return (int(self.table[place, 1]) if self.evidence.deaths else 0), self.mosts[place]

    def _window(self, now: int, low: int, high: int | None) -> tuple[int, int]:
        """Return values to choose from: all, or a window placed at random over the present one.

        Every value inside had the same chance to be under this window, so the choice stays reversible.
        """
        if high is not None and high - low < _WIDEST:
            return low, high
        start = now - int(self.rng.integers(_WIDEST))
        end = start + _WIDEST - 1
        return max(low, start), end if high is None else min(high, end)

    def _log_weights(self, place: int, column: int, values: IntArray) -> FloatArray:
        cases = values if column == 0 else np.broadcast_to(self.table[place, 0], values.shape)
        if self.evidence.deaths:
            deaths = values if column == 1 else np.broadcast_to(self.table[place, 1], values.shape)
        else:
            deaths = cases
        logs = self.evidence.model.log_marginal(place, cases, deaths, self.point)
        if not self.evidence.separable:
            return logs
        return logs + self.evidence.log_noise(place, column, values)

    def _log_joint_noise(self, move: _Move, values: IntArray, together: int) -> FloatArray:
        """Return the noise's log-weight under L2, which all counts share."""
        released = self.evidence.released
        squares = (self.table - released).astype(np.float64) ** 2
        rest = float(squares.sum())
        rest -= sum(float(squares[place, move.column]) for place in move.places)
        own = rest + (values - released[move.places[0], move.column]).astype(np.float64) ** 2
        if len(move.places) == 2:
            own = own + (together - values - released[move.places[1], 0]).astype(np.float64) ** 2
        logs: FloatArray = -float(self.evidence.mechanism.rate) * np.sqrt(np.maximum(own, 0.0))
        return logs

    def _draw_point(self) -> None:
        points = np.arange(len(self.log_points))
        logs = self.log_points.copy()
        for place in range(self.evidence.places):
            cases = np.broadcast_to(self.table[place, 0], points.shape)
            deaths = np.broadcast_to(self.table[place, -1], points.shape)
            logs = logs + self.evidence.model.log_marginal(place, cases, deaths, points)
        self.point = int(self.rng.choice(len(points), p=normalized(logs)))


def _start(
    evidence: Evidence, mosts: list[int | None], rng: np.random.Generator | None
) -> IntArray:
    """Return a table with the public sums: near the release, or drawn at random."""
    table = np.maximum(evidence.released, 0)
    tops = np.array([np.iinfo(np.int64).max if most is None else most for most in mosts])
    if rng is not None:
        rate = float(evidence.mechanism.rate)
        spread = 1 / math.sqrt(rate) if evidence.mechanism.loss == "squared L2" else 1 / rate
        moved = table + np.round(rng.laplace(0.0, _DISPERSED * spread, table.shape))
        highest = max([group.total for group in evidence.facts.groups], default=table.max())
        table = np.clip(moved, 0, highest).astype(np.int64)
    table[:, 0] = np.minimum(table[:, 0], tops)
    for group in evidence.facts.groups:
        members = np.array(group.members)
        left = group.total - int(table[members, 0].sum())
        for place in members if rng is None else rng.permutation(members):
            step = min(left, int(tops[place]) - int(table[place, 0])) if left > 0 else left
            step = max(step, -int(table[place, 0]))
            table[place, 0] += step
            left -= step
    if evidence.deaths:
        table[:, 1] = np.minimum(table[:, 1], table[:, 0])
    return table
