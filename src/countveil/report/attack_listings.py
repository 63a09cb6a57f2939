"""The listings of attacks: where they end, how often single people are told much, what facts bound."""

from __future__ import annotations

import math

from countveil.assess.summary import AttackRisk, Summary
from countveil.report import words
from countveil.report.section import Cell, Listing
from countveil.report.summary_words import SETTLED, added


def attack_listings(summary: Summary) -> tuple[Listing, ...]:
    """Return what a summary lists: attacks, how often R' passes a threshold, and public facts."""
    return (_attacks(summary), _exceedances(summary), *_facts(summary))


def _attacks(summary: Summary) -> Listing:
    priors = list(dict.fromkeys(item.prior for item in summary.attacks))
    columns = ("Attack", *(f"Prior {words.prior(prior)}" for prior in priors))
    rows: dict[str, tuple[Cell, ...]] = {}
    for item in summary.attacks:
        rows[item.attack] = (*rows.get(item.attack, (item.attack,)), _ends_at(item))
    if summary.attacks[0].effective_rho is not None:
        columns = (*columns, "Evidence (rho)", "Levels above add", "Public counts add")
        for item in {each.attack: each for each in summary.attacks}.values():
            rows[item.attack] = (*rows[item.attack], item.effective_rho, *map(_more, added(item)))
    return Listing(
        f"Where someone who knows everyone else in {words.article(summary.level)} ends on average if "
        f"he is right, and how many times his prior that is",
        columns,
        tuple(rows.values()),
    )


def _ends_at(item: AttackRisk) -> str:
    """Return where he ends, and how many times his prior that is."""
    if item.settled:
        return f"1, ×\u00a0{item.marginal_risk:.3f}, {SETTLED}"
    return f"{item.posterior:.4g}, ×\u00a0{item.marginal_risk:.3f}"


def _more(share: float | None) -> str | None:
    if share is None:
        return None
    return SETTLED if math.isinf(share) else f"{100 * share:.1f} %"


def _exceedances(summary: Summary) -> Listing:
    """Return how often single people are told more than so much."""
    above = list(dict.fromkeys(item.above for item in summary.exceedances))
    rows: dict[float, tuple[Cell, ...]] = {}
    for item in summary.exceedances:
        first = (words.prior(item.prior),)
        rows[item.prior] = (*rows.get(item.prior, first), words.percent(item.share))
    return Listing(
        "Share of the people counted whom the most detailed count alone takes beyond so many times "
        "the prior",
        ("Prior", *(f"Above × {each:g}" for each in above)),
        tuple(rows.values()),
    )


def _facts(summary: Summary) -> list[Listing]:
    """Return what files of public facts bound, if the plan has some."""
    columns = ("settled", "somebody", "bounded", "prior", "with_fact", "with_release")
    rows = [
        (item.query, item.counts, *(getattr(item, name) for name in columns), item.release_alone)
        for item in summary.facts
    ]
    if not rows:
        return []
    names = (
        *("Query", "Counts bounded", "Known exactly", "Hold somebody", "Have a largest count"),
        *("Prior", "With the fact", "With the release, too", "Release alone"),
    )
    return [Listing("Public facts, and what they add to a belief", names, tuple(rows))]
