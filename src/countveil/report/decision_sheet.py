"""Page one of a report: what a review board must know to say yes or no."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.assess.plan_error import ExpectedError, expected_error
from countveil.assess.plan_risk import LevelRisk, judged, risk_by_level
from countveil.assess.suppression import SMALL, kept_secret, posterior_beside_suppression
from countveil.privacy.costs import ZCDP, PureDP
from countveil.privacy.ledger import Ledger
from countveil.release import Release
from countveil.report.charts import words
from countveil.report.summary_words import article
from countveil.schema.plan import Plan

NOT_COVERED = (
    "Conclusions about groups: what is common in a place touches everyone there, counted or not.",
    "What declared invariants tell, alone or beside other knowledge.",
    "Other data about the same people, and releases that the ledger does not know.",
    "Whoever can read the machine, the internal folder or the ledger.",
)


@dataclass(frozen=True, slots=True)
class BeforeAndAfter:
    """One intruder at the judged level: what he believes of a person who is counted, on average."""

    prior: float
    exact: float
    suppressed: float
    released: float
    marginal_risk: float
    correct_decision: float


@dataclass(frozen=True, slots=True)
class DecisionSheet:
    """Purpose, parameters, risk before and after, error, budget, and what is not covered."""

    title: str
    purpose: str
    parameters: tuple[tuple[str, str], ...]
    judged_level: str
    risks: tuple[BeforeAndAfter, ...]
    levels: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]
    public: tuple[tuple[str, str], ...]
    budget: tuple[tuple[str, str], ...]
    not_covered: tuple[str, ...]
    identity: tuple[tuple[str, str], ...]

    @property
    def sentence(self) -> str:
        """The answer in one sentence, for the intruder who gains most."""
        worst = max(self.risks, key=lambda row: row.marginal_risk)
        return (
            f"An intruder who knows everyone else in {article(self.judged_level)}, and believes that a "
            f"person is counted there with probability {worst.prior:g}, ends at {worst.released:.3g} "
            f"on average: {worst.marginal_risk:.3g} times his prior. The exact table would have taken "
            f"him to certainty."
        )

    @property
    def suppression(self) -> str:
        """What suppressing small cells would have protected, in one sentence."""
        kept = kept_secret()
        return (
            f"With counts of 1 to {SMALL - 1} suppressed he stays at his prior only in cells that "
            f"hold {kept[0]} to {kept[-1]} others, and only while no total tells the rest; anywhere "
            f"else he is certain."
        )


def decision_sheet(release: Release, ledger: Ledger | None = None) -> DecisionSheet:
    """Return the sheet of a release, from its plan and manifest; with a ledger, also what is spent."""
    plan, levels = release.plan, tuple(risk_by_level(release.plan))
    return DecisionSheet(
        plan.title,
        plan.document["release"].get("purpose") or "not stated in the plan (release.purpose)",
        tuple(_parameters(plan)),
        plan.judged_level,
        tuple(
            BeforeAndAfter(
                *(item.prior, 1.0, _suppressed(item.prior)),
                *(item.posterior, item.marginal_risk, item.correct_decision),
            )
            for item in judged(plan, list(levels))
        ),
        levels,
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
    if plan.intruder.limit is not None:
        found.append(("Limit of risk", f"{plan.intruder.limit:g} times the prior"))
    by = plan.document["budget"].get("chosen_by")
    found.append(("Chosen by", by or "not stated in the plan (budget.chosen_by)"))
    if plan.chosen_from_records:
        found.append(("Chosen from", "records, by looking at them: no guarantee covers the choice"))
    return found


def _suppressed(prior: float) -> float:
    """Return where he ends in the worst cell of a table whose small counts are suppressed."""
    return max(posterior_beside_suppression(others, prior) for others in range(SMALL + 1))


def _budget(ledger: Ledger | None) -> list[tuple[str, str]]:
    if ledger is None:
        return []
    return [
        ("Releases so far", f"{len(ledger.charges()):,}"),
        ("Spent", str(ledger.spent())),
        ("Left", str(ledger.left())),
    ]


def _identity(release: Release) -> list[tuple[str, str]]:
    stated = release.manifest
    found = [("Release", stated["release"]), ("Randomness", stated["randomness"])]
    found += [("SHA-256 of the plan", stated["plan_sha256"])]
    found += [(f"Version of {name}", version) for name, version in stated["versions"].items()]
    return found
