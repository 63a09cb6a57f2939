"""Page one of a report: what a review board must know to say yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from countveil.assess.intruder.plan_risk import LevelRisk, judged, risk_by_level
from countveil.assess.intruder.summary import Summary, summarise
from countveil.assess.suppression import SMALL, kept_secret, posterior_under_suppression
from countveil.assess.verdict import verdict
from countveil.base import words
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP, PureDP
from countveil.privacy.ledger import Ledger
from countveil.publish.release_folder import Release
from countveil.report.sections.intruder_section import worst_attack

NOT_COVERED = (
    "Conclusions about groups: what is common in a place touches everyone there, counted or not.",
    "What declared invariants tell, alone or beside other knowledge.",
    "Other data about the same people, and releases that the ledger does not know.",
    "Whoever can read the machine, the internal folder or the ledger.",
)


@dataclass(frozen=True, slots=True)
class BeforeAndAfter:
    """One intruder at the judged level: what he believes of a person who is counted, on average.

    `released` is from noisy counts and all that is published as counted, `noisy` from noisy counts
    alone. `settled`: what is published as counted tells him all.
    """

    prior: float
    exact: float
    suppressed: float
    released: float
    marginal_risk: float
    correct_decision: float
    noisy: float
    settled: bool


@dataclass(frozen=True, slots=True)
class DecisionSheet:
    """Purpose, parameters, risk before and after, error, budget, and what is not covered."""

    title: str
    purpose: str
    parameters: tuple[tuple[str, str], ...]
    judged_level: str
    rows: int
    verdict: str
    risks: tuple[BeforeAndAfter, ...]
    levels: tuple[LevelRisk, ...]
    worst_attack: str
    errors: tuple[ExpectedError, ...]
    public: tuple[tuple[str, str], ...]
    budget: tuple[tuple[str, str], ...]
    not_covered: tuple[str, ...]
    identity: tuple[tuple[str, str], ...]

    @property
    def worst(self) -> BeforeAndAfter:
        """The intruder who gains most."""
        return max(self.risks, key=lambda row: row.marginal_risk)

    @property
    def sentence(self) -> str:
        """The answer in one sentence, for the intruder who gains most."""
        worst, level = self.worst, words.article(self.judged_level)
        if worst.settled:
            return (
                f"What is published as counted settles whether a person is in {level}: an intruder who "
                f"knows everyone else there ends at certainty, as with the exact table. By noisy "
                f"counts alone he would go, where he is right, from {words.prior(worst.prior)} to "
                f"{worst.noisy:.3g} on average: {worst.noisy / worst.prior:.3g} times his prior."
            )
        return (
            f"An intruder who knows everyone else in {level}, and believes that a person is counted "
            f"there with probability {words.prior(worst.prior)}, ends at {worst.released:.3g} on "
            f"average if that is so: {worst.marginal_risk:.3g} times his prior. The exact table would "
            f"have taken him to certainty."
        )

    @property
    def suppression(self) -> str:
        """What suppressing small cells would have protected, in one sentence."""
        kept = kept_secret(rows=self.rows)
        if not kept:
            return (
                f"With counts of 1 to {SMALL - 1} suppressed he would be certain everywhere: a person "
                f"of {self.rows} rows takes any cell out of that range, or into it."
            )
        many = f"{kept[0]} to {kept[-1]} others" if len(kept) > 1 else f"just {kept[0]} other"
        return (
            f"With counts of 1 to {SMALL - 1} suppressed he stays at his prior only in cells that "
            f"hold {many}, and only while no total tells the rest; anywhere else he is certain."
        )


def decision_sheet(
    release: Release, ledger: Ledger | None = None, summary: Summary | None = None
) -> DecisionSheet:
    """Return the sheet of a release, from its plan and manifest; with a ledger, also what is spent.

    `summary` is what `assess.summary.summarise` says of the plan, made here if it is not given.
    """
    plan = release.plan
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    levels = tuple(risk_by_level(plan, priors, invariants=True))
    found = summarise(plan) if summary is None else summary
    noisy = {item.prior: item.posterior for item in judged(plan, list(found.levels))}
    return DecisionSheet(
        plan.title,
        plan.document["release"].get("purpose") or "not stated in the plan (release.purpose)",
        tuple(_parameters(plan)),
        plan.judged_level,
        plan.rows_per_person,
        verdict(plan).sentence,
        tuple(
            BeforeAndAfter(
                *(item.prior, 1.0, _suppressed(item.prior, plan.rows_per_person)),
                *(item.posterior, item.marginal_risk, item.correct_decision),
                *(noisy[item.prior], item.settled),
            )
            for item in judged(plan, list(levels))
        ),
        levels,
        worst_attack(found),
        expected_error(plan),
        tuple(
            (f"{item.query.name} of every {item.level}", item.reason) for item in plan.invariants
        ),
        tuple(_budget(ledger)),
        NOT_COVERED,
        tuple(_identity(release)),
    )


def _parameters(plan: Plan) -> list[tuple[str, str]]:
    cost = plan.cost
    found = [("Unit of protection", plan.unit), ("Neighbours", plan.neighbors)]
    if isinstance(cost, ZCDP):
        found.append(("Budget", str(cost)))
        found.append(
            ("Epsilon", f"{words.upwards(cost.epsilon(plan.delta))} at delta {float(plan.delta):g}")
        )
    elif isinstance(cost, PureDP):
        found.append(("Budget", str(cost)))
    found.append(("Rows a person may have", str(plan.rows_per_person)))
    found += _attested(plan)
    if plan.intruder.limit is not None:
        found.append(("Limit of risk", f"{plan.intruder.limit:g} times the prior"))
    by = plan.document["budget"].get("chosen_by")
    found.append(("Chosen by", by or "not stated in the plan (budget.chosen_by)"))
    if plan.chosen_from_records:
        found.append(("Chosen from", "records, by looking at them: no guarantee covers the choice"))
    return found


def _attested(plan: Plan) -> list[tuple[str, str]]:
    """Return what the curator attests of the query that reads the records."""
    records = plan.document.get("records", {})
    found = []
    if plan.attests_each_person_alone:
        attested = (
            "that no person's rows depend on other people's records: the curator answers for the "
            "query, and countveil did not check it"
        )
        found.append(("Attested", attested))
    if records.get("public_tables"):
        found.append(("Taken as public", ", ".join(records["public_tables"])))
    if records.get("real_ids"):
        found.append(("Taken as real person ids", ", ".join(records["real_ids"])))
    return found


def _suppressed(prior: float, rows: int) -> float:
    """Return where he ends in the worst cell of a table whose small counts are suppressed."""
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
    """Return what the current period has left, where the ledger has a calendar."""
    if ledger.period is None:
        return []
    today = datetime.now(UTC).date()
    return [(f"Left in {ledger.period.of(today)}", str(ledger.left(on=today)))]


def _identity(release: Release) -> list[tuple[str, str]]:
    stated = release.manifest
    found = [("Release", stated["release"]), ("Randomness", stated["randomness"])]
    found += [("SHA-256 of the plan", stated["plan_sha256"])]
    found += [(f"Version of {name}", version) for name, version in stated["versions"].items()]
    return found
