"""The first page of a report: what a review board needs to decide on a release."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from countveil.assess.intruder.ladder import LevelRisk, judged, risk_by_level
from countveil.assess.intruder.summary import Summary, summarise
from countveil.assess.protections.cell_suppression import (
    SMALL,
    kept_secret,
    posterior_under_suppression,
)
from countveil.assess.verdict import judge
from countveil.base import words
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.plans import Plan
from countveil.postprocess.unmeasured import unmeasured_in_words
from countveil.privacy.ledger import Ledger
from countveil.publish.release_folder import Release

NOT_COVERED = (
    "Conclusions about groups: what is typical of a place affects everyone there, counted or not.",
    "What invariants reveal, alone or combined with other knowledge.",
    "Other data about the same people, and releases that are not in the ledger.",
    "Anyone with access to the machine, the internal folder or the ledger.",
)


@dataclass(frozen=True, slots=True)
class BeforeAndAfter:
    """What an intruder at the judged level learns with one prior, from the release and from others.

    Attributes
    ----------
    released, noisy
        What they learn from noisy counts together with everything published exactly, and from noisy
        counts alone.
    suppressed
        The probability they would reach, in the worst cell, from a table with small counts suppressed.
    exact
        The probability they would reach from the exact table.

    """

    released: LevelRisk
    noisy: LevelRisk
    suppressed: float
    exact: float = 1.0


@dataclass(frozen=True, slots=True)
class DecisionSheet:
    """The decision sheet: purpose, parameters, risk, error, budget, and what is not covered."""

    title: str
    purpose: str
    parameters: tuple[tuple[str, str], ...]
    judged_level: str
    rows: int
    limit: float | None
    verdict: str
    risks: tuple[BeforeAndAfter, ...]
    levels: tuple[LevelRisk, ...]
    ladder: str
    errors: tuple[ExpectedError, ...]
    public: tuple[tuple[str, str], ...]
    budget: tuple[tuple[str, str], ...]
    not_covered: tuple[str, ...]
    identity: tuple[tuple[str, str], ...]

    @property
    def worst(self) -> BeforeAndAfter:
        """The intruder who gains most."""
        return max(self.risks, key=lambda row: row.released.marginal_risk)

    @property
    def guesses_bounded(self) -> bool:
        """Whether the shares of correct guesses are upper bounds."""
        return any(row.released.decision_upper_bound for row in self.risks)

    @property
    def sentence(self) -> str:
        """The answer in words, for the intruder who gains most."""
        finding = self.worst.released.finding(limit=self.limit)
        if not self.worst.released.settled:
            return f"{finding}. The exact table would have made them certain."
        return (
            f"{finding}, just as the exact table would. From noisy counts alone they "
            f"{self.worst.noisy.gain(limit=self.limit)}."
        )

    @property
    def suppression(self) -> str:
        """What suppressing small counts would have protected, in one sentence."""
        sizes = kept_secret(rows=self.rows)
        if not sizes:
            return (
                f"With counts of 1 to {SMALL - 1} suppressed, they would be certain everywhere: "
                f"the {self.rows} rows of a person move any count into or out of that range."
            )
        few = f"exactly {sizes[0]} others share" if sizes[0] > 1 else "exactly 1 other shares"
        many = f"{sizes[0]} to {sizes[-1]} others share" if len(sizes) > 1 else few
        return (
            f"With counts of 1 to {SMALL - 1} suppressed, they would learn nothing only where {many} "
            f"the cell and no total reveals the rest. Elsewhere they would be certain."
        )


def decision_sheet(
    release: Release, ledger: Ledger | None = None, summary: Summary | None = None
) -> DecisionSheet:
    """Make the decision sheet of a release from its plan and manifest.

    Parameters
    ----------
    release
        The release, as `Release.read` opens it.
    ledger
        If given, the sheet states what has been spent and what is left.
    summary
        The intruder summary of the plan, if it has been computed already.

    Returns
    -------
    DecisionSheet
        The first page of the report, as data.

    Examples
    --------
    >>> print(decision_sheet(Release.read("out")).sentence)  # doctest: +SKIP

    """
    plan = release.plan
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    levels = tuple(risk_by_level(plan, priors, invariants=True))
    overview = summarise(plan) if summary is None else summary
    noisy = {item.prior: item for item in judged(plan, list(overview.levels))}
    verdict = judge(plan)
    return DecisionSheet(
        plan.title,
        plan.document["release"].get("purpose") or "not stated in the plan (release.purpose)",
        tuple(_parameters(plan)),
        plan.judged_level,
        plan.rows_per_person,
        verdict.limit,
        verdict.sentence,
        tuple(
            BeforeAndAfter(item, noisy[item.prior], _suppressed(item.prior, plan.rows_per_person))
            for item in judged(plan, list(levels))
        ),
        levels,
        verdict.knowledge,
        expected_error(plan, geography=release.geography),
        tuple(
            (f"{item.query.name} of every {item.level}", item.reason) for item in plan.invariants
        ),
        tuple(_budget(ledger)),
        (*unmeasured_in_words(plan), *NOT_COVERED),
        tuple(_identity(release)),
    )


def _parameters(plan: Plan) -> list[tuple[str, str]]:
    cost = plan.cost
    parameters = [("Unit of protection", plan.unit), ("Neighbours", plan.neighbors)]
    parameters.append(("Budget", str(cost)))
    if cost.pure_epsilon is None:
        epsilon = words.upwards(plan.epsilon)
        alone = ", certified for this release alone" if plan.certified else ""
        parameters.append(("Epsilon", f"{epsilon} at delta {float(plan.delta):g}{alone}"))
    parameters.append(("Rows per person, at most", str(plan.rows_per_person)))
    parameters += _attested(plan)
    parameters.append(("Intruder knows", f"everyone else in {words.article(plan.judged_level)}"))
    if plan.intruder.limit is not None:
        parameters.append(("Risk limit", f"{plan.intruder.limit:g} times the prior"))
    by = plan.document["budget"].get("chosen_by")
    parameters.append(("Chosen by", by or "not stated in the plan (budget.chosen_by)"))
    if plan.chosen_from_records:
        parameters.append(("Chosen from", "the records; the guarantee does not cover this choice"))
    return parameters


def _attested(plan: Plan) -> list[tuple[str, str]]:
    """Return what the curator attests about the query that reads the records."""
    records = plan.document.get("records", {})
    attestations = []
    if plan.attests_each_person_alone:
        attested = (
            "that no person's rows depend on other people's records: the curator vouches for the "
            "query, and countveil did not check it"
        )
        attestations.append(("Attested", attested))
    if records.get("public_tables"):
        attestations.append(("Treated as public", ", ".join(records["public_tables"])))
    if records.get("real_ids"):
        attestations.append(("Treated as real person ids", ", ".join(records["real_ids"])))
    return attestations


def _suppressed(prior: float, rows: int) -> float:
    """Return the posterior in the worst cell of a table whose small counts are suppressed."""
    return max(posterior_under_suppression(others, prior, rows=rows) for others in range(SMALL + 1))


def _budget(ledger: Ledger | None) -> list[tuple[str, str]]:
    if ledger is None:
        return []
    return [
        ("Releases so far", f"{len(ledger.charges()):,}"),
        ("Spent", str(ledger.spent())),
        ("Left", str(ledger.left())),
        *_period(ledger),
    ]


def _period(ledger: Ledger) -> list[tuple[str, str]]:
    """Return what is left in the current period, if the ledger has periods."""
    if ledger.period is None:
        return []
    today = datetime.now(UTC).date()
    return [(f"Left in {ledger.period.of(today)}", str(ledger.left(on=today)))]


def _identity(release: Release) -> list[tuple[str, str]]:
    stated = release.manifest
    identity = [("Release", stated["release"]), ("Randomness", stated["randomness"])]
    identity += [("SHA-256 of the plan", stated["plan_sha256"])]
    identity += [(f"Version of {name}", version) for name, version in stated["versions"].items()]
    return identity
