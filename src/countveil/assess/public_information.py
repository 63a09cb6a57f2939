"""What guarantee remains beside the public facts of a plan: for which secrets, and at what cost.

Exact totals, published as counted, are known to everyone, so a guarantee can only compare databases
that agree on them. A change of one record that leaves every invariant as it is, is protected as the
plan says. Another change needs a second person who makes up for it: two records differ, and twice the
epsilon, or four times the rho, is what the plan's noise guarantees (group privacy), if people are alike
and independent given what is public. What an invariant settles alone, such as that nobody is in an
empty place, is protected by nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from countveil.congenial.loss_sensitivity import compare_sensitivity
from countveil.congenial.semantics import largest_shift, odds_bounds, posterior_to_posterior
from countveil.measure.one_table import theta_of
from countveil.privacy.costs import ZCDP, Cost, PureDP
from countveil.release import Release
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class Secret:
    """A kind of secret, how many records must differ for it to be otherwise, and what then holds."""

    what: str
    records: int
    why: str
    guarantee: str
    odds: float | None  # the largest factor on the odds of the two possibilities, if there is one


@dataclass(frozen=True, slots=True)
class PublicGuarantee:
    """The guarantee of a plan or a release beside what is public."""

    title: str
    public: tuple[str, ...]
    currency: str
    secrets: tuple[Secret, ...]
    sentences: tuple[str, ...]
    audience: str = "public"

    @property
    def document(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "audience": self.audience,
            "title": self.title,
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
            "sentences": list(self.sentences),
        }


def beside_public(of: Plan | Release) -> PublicGuarantee:
    """State what a plan, or a release with its published totals, guarantees beside what is public."""
    plan = of if isinstance(of, Plan) else of.plan
    if plan.one_table is not None:
        return _of_table(plan, None if isinstance(of, Plan) else of)
    public = [
        f"{item.query.name} of every {item.level}, exactly ({item.reason})"
        for item in plan.invariants
    ]
    public += [
        f"bounds on {item.query.name} of {item.level} ({item.reason})" for item in plan.constraints
    ]
    if not plan.possible.all():
        public.append(f"{int((~plan.possible).sum()):,} cells of the histogram are impossible")
    secrets = tuple(_secrets(plan, {} if isinstance(of, Plan) else _units(of)))
    sentences = []
    if isinstance(of, Release):
        sentences += _settled(of)
    if any(item.records > 1 for item in secrets):
        sentences.append(
            "Where others must make up for a change, the guarantee is for an intruder to whom people "
            "are alike and independent, given what is public: then two of them may change places. One "
            "who knows all other records learns such a secret from the fixed counts alone."
        )
    return PublicGuarantee(
        plan.title,
        tuple(public),
        "differential privacy, for databases that agree on what is public",
        secrets,
        tuple(sentences),
    )


def _units(release: Release) -> dict[str, int]:
    return {item["level"]: item["units"] for item in release.manifest["levels"]}


def _secrets(plan: Plan, units: dict[str, int]) -> list[Secret]:
    """Return the kinds of secrets, from what the invariants tie down; `units` of levels if known."""
    if plan.neighbors == "add-remove":
        return [
            _secret(plan, f"whether any one {plan.unit} is counted at all", 1, "nothing is fixed")
        ]
    found = []
    more = 1 + plan.rows_per_person  # each of his rows may need another's to make up for it
    lowest, fixed = plan.levels[-1], [item.level for item in plan.invariants]
    deepest = max((plan.levels.index(level) for level in fixed), default=-1)
    finest = plan.levels[deepest] if deepest >= 0 else None
    if finest is None:
        found.append(_secret(plan, f"in which {lowest} he is counted", 1, "no total is fixed"))
    elif finest != lowest:
        inside = f"in which {lowest} of his {finest} he is counted"
        found.append(_secret(plan, inside, 1, "every fixed count stays as it is"))
    if finest is not None and units.get(finest) != 1:
        across = f"in which {finest} he is counted"
        why = f"the fixed counts of {finest} need another {plan.unit} to move the other way"
        found.append(_secret(plan, across, more, why))
    for number, attribute in enumerate(plan.schema.attributes):
        ties = [item for item in plan.invariants if item.query.tells(number)]
        if not ties:
            why = "no fixed count tells it"
            found.append(_secret(plan, f"his {attribute.name}", 1, why))
        else:
            named = ", ".join(f"{item.query.name} of {item.level}" for item in ties)
            why = f"{named} is fixed, so that another must make up for it"
            found.append(_secret(plan, f"his {attribute.name}, where it tells", more, why))
    return found


def _secret(plan: Plan, what: str, records: int, why: str) -> Secret:
    cost = _for_records(plan.cost, records)
    if isinstance(cost, PureDP):
        odds = odds_bounds(cost.epsilon)[1]
        return Secret(what, records, why, str(cost), odds)
    epsilon = cost.epsilon(plan.delta)
    return Secret(
        what,
        records,
        why,
        f"{cost} (epsilon {math.ceil(100 * epsilon) / 100:.2f} at delta {float(plan.delta):g})",
        None,
    )


def _for_records(cost: Cost, records: int) -> Cost:
    """Return what holds where some records differ: group privacy."""
    if isinstance(cost, PureDP):
        return PureDP(cost.epsilon * records)
    return ZCDP(cost.rho * records**2)


def _settled(release: Release) -> list[str]:
    """Say how many places the published totals show to be empty."""
    found = []
    for item in release.plan.invariants:
        if item.query.name == "TOTAL":
            totals = release.measurements.invariant(item.level, "TOTAL")[:, 0]
            if (totals == 0).any():
                found.append(
                    f"{int((totals == 0).sum()):,} of {len(totals):,} units of {item.level} are known "
                    f"to be empty: that nobody is there is no secret."
                )
    return found


def _of_table(plan: Plan, release: Release | None) -> PublicGuarantee:
    """State the guarantee of one table drawn beside public information."""
    table = plan.one_table
    assert table is not None  # the caller asked for it
    epsilon = table.epsilon
    low, high = odds_bounds(epsilon)
    # A constant normaliser spares the factor 2, and lets log-ratios span twice as much.
    rho = epsilon**2 / (2 if table.base == "naive" else 8)
    sentences = [
        f"Whoever sees the release changes the odds of two secrets of a pair by a factor from "
        f"{low:.4g} to {high:.4g}, and the probability of one by {largest_shift(epsilon):.3f} at most.",
        f"What he would believe after a release from a database with {table.people} other record"
        f"{'' if table.people == 1 else 's'} differs by {posterior_to_posterior(epsilon):.3f} at most, "
        f"in total variation.",
        f"It also is rho = {rho} in the sense of zCDP between the two secrets.",
        "It is no differential privacy, and is added to none. Releases beside public information add "
        "up along one coupling, and the ledger takes no others.",
    ]
    if table.loss != "squared L2":
        compared = compare_sensitivity(
            table.loss,
            table.people,
            fixed_total=table.fixed is not None,
            deaths=table.part is not None,
            neighbors=plan.neighbors,
        )
        sentences.append(f"By Lemma 12's comparison, {compared.sentence}.")
    theta = theta_of(plan)
    if release is not None and table.fixed is not None:
        groups = release.mechanism.groups(len(release.counts))
        for number, what in (
            (sum(group.total == 0 for group in groups), "are 0: that nobody is there is no secret"),
            (
                sum(len(group.members) == 1 for group in groups),
                "are of one unit, and tell its count",
            ),
        ):
            if number:
                sentences.append(f"{number:,} of {len(groups):,} public totals {what}.")
    return PublicGuarantee(
        plan.title,
        theta.public,
        "epsilon beside public information",
        (Secret(theta.secrets, table.people, theta.dependence, f"epsilon = {epsilon}", high),),
        tuple(sentences),
    )
