"""A plan next to tables protected otherwise: risk for the same intruder, and error, of each.

The plan's risk and the forecast of its error come from the plan alone. What the others disclose, and
the errors of one run, come from people, by seeded simulations: from records they are internal, from the
estimates of a release or from public records they may be shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import default_rng

from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.protections.exact_tables import Basis, ExactTables, TableKey
from countveil.assess.protections.known_others import Flags, targets_in
from countveil.assess.protections.protection import Between, Disclosure, Protection
from countveil.assess.protections.registry import read_protection
from countveil.base.numerics import FloatArray
from countveil.base.randomness import Seeded
from countveil.base.spill_folder import private_folder
from countveil.engines.counts import build
from countveil.errors import InputError
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.measure.door import take
from countveil.plan.plans import Plan
from countveil.postprocess.topdown import top_down

_SEVERAL_ROWS = (
    "People may have several rows in this plan. Its own risk is for someone with all of them; that of "
    "the other protections is for one row."
)
_SAMPLE = (
    "There are too many people to examine all of them: for the other protections, a seeded sample was "
    "examined."
)
_ESTIMATES = (
    "The other protections were applied to the estimates of the release, as if these were the true "
    "counts: no record was read."
)


@dataclass(frozen=True, slots=True)
class ProtectionRisk:
    """What one attack learns, over everyone counted.

    Attributes
    ----------
    attack : str
        What the intruder wants to know.
    prior : float
        Their probability of the truth beforehand.
    worst : Between
        The largest expected posterior over prior.
    mean : Between
        The mean over people of the expected posterior over prior.
    certain : Between
        The share of people about whom they become certain.

    """

    attack: str
    prior: float
    worst: Between
    mean: Between
    certain: Between


@dataclass(frozen=True, slots=True)
class ProtectionError:
    """The mean absolute error of a table, and the share of its counts that are suppressed."""

    level: str
    query: str
    absolute_error: float
    suppressed: float | None


@dataclass(frozen=True, slots=True)
class ProtectedSide:
    """One other protection: its risks and its errors."""

    protection: str
    label: str
    risks: tuple[ProtectionRisk, ...]
    errors: tuple[ProtectionError, ...]

    def worst(self, prior: float) -> Between:
        """Return the largest expected posterior over prior, over all attacks."""
        values = [item.worst for item in self.risks if item.prior == prior]
        return Between(max(item.lower for item in values), max(item.upper for item in values))

    def mean(self, prior: float) -> Between:
        """Return the mean over people of the same, for the attack from which most is learned."""
        values = [item.mean for item in self.risks if item.prior == prior]
        return Between(max(item.lower for item in values), max(item.upper for item in values))

    def certain(self, *, presence: bool) -> Between | None:
        """Return the share of people about whom an attack gives certainty, on presence or otherwise.

        It is that of the attack with the largest share; None without such an attack.
        """
        values = [item.certain for item in self.risks if (item.attack == "presence") == presence]
        if not values:
            return None
        return Between(max(item.lower for item in values), max(item.upper for item in values))


@dataclass(frozen=True, slots=True)
class ProtectionComparison:
    """A plan and other protections of the same tables.

    `errors` is the forecast of the plan's errors, and `run_errors` those of one seeded run on the same
    people; none if the plan publishes measurements only. `basis` says what the other protections were
    made from. If that is confidential, everything about them is internal.
    """

    name: str
    title: str
    cost: str
    level: str
    limit: float | None
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]
    run_errors: tuple[ProtectionError, ...]
    sides: tuple[ProtectedSide, ...]
    basis: Basis
    confidential: bool
    seed: int
    limits: tuple[str, ...]

    @property
    def audience(self) -> Literal["public", "internal"]:
        """Whom the comparison may be shown to."""
        return "internal" if self.confidential else "public"


def compare_protections(
    plan: Plan, tables: ExactTables, protections: Sequence[str], *, seed: int = 1
) -> ProtectionComparison:
    """Compare a plan with other protections of its tables.

    The intruder knows everyone else in a unit of the plan's judged level. For the plan, the risk is
    that of the whole release; for the others, that of the protected tables, for each person counted.

    Parameters
    ----------
    plan : Plan
        The plan.
    tables : ExactTables
        Its tables: from `exact_tables.from_counts` or `exact_tables.from_release`.
    protections : sequence of str
        Such as "suppression:10", "rounding:5", "random-rounding:3", "swapping:0.05".
    seed : int
        The seed of rounding and swapping. Nothing made with it protects anyone.

    Returns
    -------
    ProtectionComparison
        Risks and errors of the plan and of each protection, and what the figures leave out.

    Examples
    --------
    >>> tables = from_counts(plan, open_engine().tabulate(plan))  # doctest: +SKIP
    >>> compare_protections(plan, tables, ["suppression:10", "rounding:5"])  # doctest: +SKIP

    """
    if not protections:
        raise InputError("protections: none is named; name at least one, such as suppression:10")
    by_text = {text: read_protection(text, plan) for text in protections}
    if not len(tables.people):
        raise InputError(f"{plan.name}: its tables count no one, so there is no one to protect")
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    sides = [_side(text, item, tables, priors, seed) for text, item in by_text.items()]
    limits = [sentence for item in by_text.values() for sentence in item.limits]
    if tables.basis in ("published estimates", "simulated release"):
        limits.append(_ESTIMATES)
    if plan.rows_per_person > 1:
        limits.append(_SEVERAL_ROWS)
    if any(sampled for _, sampled in sides):
        limits.append(_SAMPLE)
    return ProtectionComparison(
        plan.name,
        plan.title,
        str(plan.cost),
        plan.judged_level,
        plan.intruder.limit,
        tuple(
            risk_by_level(
                plan,
                priors,
                invariants=True,
                levels=[plan.judged_level],
                geography=tables.geography,
            )
        ),
        expected_error(plan, geography=tables.geography),
        _run_errors(tables, seed),
        tuple(side for side, _ in sides),
        tables.basis,
        tables.internal,
        seed,
        tuple(dict.fromkeys(limits)),
    )


def _run_errors(tables: ExactTables, seed: int) -> tuple[ProtectionError, ...]:
    simulation = simulated_tables(tables, seed)
    return () if simulation is None else tuple(_errors(tables, simulation, {}))


def _errors(
    tables: ExactTables, values: Mapping[TableKey, FloatArray], hidden: Mapping[TableKey, Flags]
) -> Iterator[ProtectionError]:
    for key, counts in tables.counts.items():
        error = float(np.abs(values[key] - counts).mean())
        share = float(hidden[key].mean()) if key in hidden else None
        yield ProtectionError(key.level, key.query, error, share)


def _side(
    text: str, protection: Protection, tables: ExactTables, priors: Sequence[float], seed: int
) -> tuple[ProtectedSide, bool]:
    """Return one protection's figures, and whether they rest on a sample of people."""
    rng = default_rng(seed)
    published = protection.protect(tables, rng)
    protection_risks = [
        protection.disclosure(tables, published, targets, priors, rng)
        for targets in targets_in(tables, rng)
        if len(targets.unit)
    ]
    values = {key: table.values for key, table in published.items()}
    hidden = {key: table.hidden for key, table in published.items() if table.hidden is not None}
    risks = [risk for item in protection_risks for risk in _risks(item, priors)]
    return (
        ProtectedSide(text, protection.label, tuple(risks), tuple(_errors(tables, values, hidden))),
        any(item.sampled for item in protection_risks),
    )


def _risks(item: Disclosure, priors: Sequence[float]) -> list[ProtectionRisk]:
    return [
        ProtectionRisk(item.attack, prior, _over(worst, prior), _over(mean, prior), item.certain)
        for prior, worst, mean in zip(priors, item.worst, item.mean, strict=True)
    ]


def _over(posterior: Between, prior: float) -> Between:
    return Between(posterior.lower / prior, posterior.upper / prior)


def simulated_tables(tables: ExactTables, seed: int) -> dict[TableKey, FloatArray] | None:
    """Return the tables that a seeded run of the plan would publish.

    The forecast of a plan's error is that of unbiased estimates. Published counts are whole and never
    negative, which makes tables of small counts far better; only a run shows by how much. Nothing of it
    may be published, and its files are deleted.

    Parameters
    ----------
    tables : ExactTables
        The people, and the tables of the plan.
    seed : int
        The seed of the noise.

    Returns
    -------
    dict of TableKey to array, or None
        Estimates, units × cells; None if the plan publishes measurements only.

    """
    plan = tables.plan
    if plan.method != "top-down" or tables.lowest != plan.levels[-1]:
        return None
    entries = (tables.unit, tables.cell, tables.people)
    counts = build(tables.geography, plan.schema.cells, [entries], plan.counting_digest)
    with private_folder() as folder:
        measured = take(counts, plan, rng=Seeded(seed), ledger=None, to=folder / "run")
        estimates = top_down(measured, plan)
        return {
            key: estimates.counts(key.level, tables.query(key)).astype(float)
            for key in tables.counts
        }
