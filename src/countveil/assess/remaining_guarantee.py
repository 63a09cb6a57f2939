"""What guarantee remains given public facts: for which secrets, and at what cost.

Everyone knows the totals that a plan publishes exactly, so a guarantee can only compare databases that
agree on them. A change of one record that leaves every invariant the same is protected as the plan
says. For any other change, other people must compensate, one for each row that the person may have. If
k records differ, the plan's noise guarantees k times the epsilon, or k² times the rho (group privacy),
if people are exchangeable and independent given what is public. Nothing protects what an invariant
reveals by itself, such as that a place is empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from countveil.base import words
from countveil.congenial.guarantee.semantics import (
    largest_shift,
    odds_bounds,
    posterior_to_posterior,
)
from countveil.congenial.mechanism.loss_sensitivity import compare_sensitivity
from countveil.errors import InputError
from countveil.measure.one_table import theta_of
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plans import AnyPlan, Plan
from countveil.publish.release_folder import AnyRelease, Release, TableRelease


@dataclass(frozen=True, slots=True)
class ProtectedSecret:
    """A kind of secret and its guarantee.

    `records` must differ between two databases for the secret to differ, for the reason `why`. `odds`
    is the largest factor by which a release changes the odds of two possibilities, None if unbounded.
    """

    what: str
    records: int
    why: str
    guarantee: str
    odds: float | None


@dataclass(frozen=True, slots=True)
class PublicGuarantee:
    """The guarantee of a plan or a release, given what is public.

    Attributes
    ----------
    title : str
        The title of the plan.
    public : tuple of str
        What is public, one sentence per fact.
    currency : str
        What the guarantee is stated in.
    secrets : tuple of ProtectedSecret
        The kinds of secrets, each with its guarantee.
    sentences : tuple of str
        What the guarantee means, for readers.
    """

    title: str
    public: tuple[str, ...]
    currency: str
    secrets: tuple[ProtectedSecret, ...]
    sentences: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The numbers behind the sentences, as JSON."""
        return {
            "plan": self.title,
            "public": list(self.public),
            "currency": self.currency,
            "secrets": [
                {
                    "what": item.what,
                    "records": item.records,
                    "why": item.why,
                    "guarantee": item.guarantee,
                    "odds": item.odds,
                }
                for item in self.secrets
            ],
        }


@singledispatch
def public_guarantee(of: AnyPlan | AnyRelease) -> PublicGuarantee:
    """Return what a plan or a release guarantees, given what is public.

    Parameters
    ----------
    of : plan or release, of either kind
        A release also says what its published totals reveal.

    Returns
    -------
    PublicGuarantee
        What is public, each kind of secret with its guarantee, and sentences for readers.
    """
    raise InputError(f"public_guarantee: got {type(of).__name__}; pass a plan or a release")


@public_guarantee.register(Plan)
def _of_plan(plan: Plan) -> PublicGuarantee:
    return _of_counts(plan, units={}, revealed=[])


@public_guarantee.register(Release)
def _of_release(release: Release) -> PublicGuarantee:
    return _of_counts(release.plan, units=release.units, revealed=_empty_places(release))


@public_guarantee.register(OneTablePlan)
def _of_table_plan(plan: OneTablePlan) -> PublicGuarantee:
    return _of_table(plan, revealed=[])


@public_guarantee.register(TableRelease)
def _of_table_release(release: TableRelease) -> PublicGuarantee:
    return _of_table(release.plan, revealed=_revealing_totals(release))


def _of_counts(plan: Plan, *, units: dict[str, int], revealed: list[str]) -> PublicGuarantee:
    """State the guarantee of noisy counts; `units` has those of levels that are known."""
    public = [
        f"{item.query.name} of every {item.level}, exactly ({item.reason})"
        for item in plan.invariants
    ]
    public += [
        f"bounds on {item.query.name} of {item.level} ({item.reason})" for item in plan.constraints
    ]
    if not plan.possible.all():
        public.append(f"{int((~plan.possible).sum()):,} cells of the histogram are impossible")
    secrets = tuple(_secrets(plan, units))
    sentences = [*revealed]
    if any(item.records > 1 for item in secrets):
        sentences.append(
            "Some secrets can change only if another person changes too. For these, the guarantee "
            "assumes an intruder who considers people exchangeable and independent, given what is "
            "public, so that two of them can trade places. Someone who knows all other records "
            "learns such a secret from the exact counts alone."
        )
    return PublicGuarantee(
        plan.title,
        tuple(public),
        "differential privacy, for databases that agree on what is public",
        secrets,
        tuple(sentences),
    )


def _secrets(plan: Plan, units: dict[str, int]) -> list[ProtectedSecret]:
    """Return the kinds of secrets, by what the invariants fix; `units` has those of known levels."""
    someone = words.article(plan.unit)
    if plan.neighbors == "add-remove":
        return [_secret(plan, f"whether {someone} is counted at all", 1, "no count is exact")]
    secrets = []
    more = 1 + plan.rows_per_person  # another person may have to compensate for each row
    lowest, fixed = plan.levels[-1], [item.level for item in plan.invariants]
    deepest = max((plan.levels.index(level) for level in fixed), default=-1)
    finest = plan.levels[deepest] if deepest >= 0 else None
    if finest is None:
        where = f"in which {lowest} {someone} is counted"
        secrets.append(_secret(plan, where, 1, "no count is exact"))
    elif finest != lowest:
        inside = f"in which {lowest} of a known {finest} {someone} is counted"
        secrets.append(_secret(plan, inside, 1, "every exact count stays the same"))
    if finest is not None and units.get(finest) != 1:
        across = f"in which {finest} {someone} is counted"
        why = (
            f"another {plan.unit} must move in the opposite direction to keep the exact counts of "
            f"{finest}"
        )
        secrets.append(_secret(plan, across, more, why))
    for number, attribute in enumerate(plan.schema.attributes):
        ties = [item for item in plan.invariants if item.query.distinguishes(number)]
        what = f"{attribute.name} of {someone}"
        if not ties:
            secrets.append(_secret(plan, what, 1, "no exact count depends on it"))
        else:
            names = words.listed([f"{item.query.name} of {item.level}" for item in ties])
            why = f"another {plan.unit} must change in the opposite direction to keep {names}"
            secrets.append(_secret(plan, f"{what}, where an exact count depends on it", more, why))
    return secrets


def _secret(plan: Plan, what: str, records: int, why: str) -> ProtectedSecret:
    cost = plan.cost.of_group(records)
    if cost.pure_epsilon is not None:
        odds = odds_bounds(cost.pure_epsilon)[1]
        return ProtectedSecret(what, records, why, str(cost), odds)
    epsilon = cost.epsilon_at(plan.delta)
    return ProtectedSecret(
        what,
        records,
        why,
        f"{cost} (epsilon {math.ceil(100 * epsilon) / 100:.2f} at delta {float(plan.delta):g})",
        None,
    )


def _empty_places(release: Release) -> list[str]:
    """Say how many places the published totals show to be empty."""
    sentences = []
    for item in release.plan.invariants:
        if item.query.name == "TOTAL":
            totals = release.measurements.invariant(item.level, "TOTAL")[:, 0]
            if (totals == 0).any():
                sentences.append(
                    f"{int((totals == 0).sum()):,} of {len(totals):,} public totals of "
                    f"{item.level} are 0: everyone knows that these places are empty."
                )
    return sentences


def _of_table(table: OneTablePlan, *, revealed: list[str]) -> PublicGuarantee:
    """State the guarantee of one table that agrees with public totals."""
    epsilon, moved = table.epsilon, table.records_moved
    low, high = odds_bounds(epsilon)
    # A constant normalizer saves the factor 2, and lets log-ratios span twice as much.
    rho = epsilon**2 / (2 if table.base == "naive" else 8)
    sentences = [
        f"Seeing the release changes the odds between the two secrets of a pair by a factor of "
        f"{words.rounded_down(low)} to {words.rounded_up(high)}, and the probability of either by at "
        f"most {words.rounded_up(largest_shift(epsilon))}.",
        f"If {moved} record{'' if moved == 1 else 's'} of the database were "
        f"different, what people believe after the release would differ by at most "
        f"{words.rounded_up(posterior_to_posterior(epsilon))}, in total variation.",
        f"Between the two secrets, the release is also zCDP with rho = {rho}.",
        "This is not differential privacy, and its epsilon cannot be added to that of a "
        "differentially private release. Releases that agree with public information add up along "
        "one coupling, and the ledger accepts no others.",
    ]
    if table.loss != "squared L2":
        compared = compare_sensitivity(
            table.loss,
            table.records_moved,
            fixed_total=table.fixed is not None,
            deaths=table.part is not None,
            neighbors=table.neighbors,
        )
        sentences.append(f"By Lemma 12's comparison, {compared.sentence}.")
    theta = theta_of(table)
    secret = ProtectedSecret(
        theta.secrets, table.records_moved, theta.dependence, f"epsilon = {epsilon}", high
    )
    return PublicGuarantee(
        table.title,
        theta.public,
        "epsilon given public information",
        (secret,),
        (*sentences, *revealed),
    )


def _revealing_totals(release: TableRelease) -> list[str]:
    """Say how many public totals of a table are 0, or cover a single unit."""
    if release.plan.fixed is None:
        return []
    groups = release.mechanism.groups(len(release.counts))
    empty = sum(group.total == 0 for group in groups)
    single = sum(len(group.members) == 1 for group in groups)
    kinds = (
        (empty, "are 0: everyone knows that these places are empty"),
        (single, "cover a single unit and so reveal its count"),
    )
    return [
        f"{number:,} of {len(groups):,} public totals {what}." for number, what in kinds if number
    ]
