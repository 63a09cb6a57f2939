"""What a summary of risks says in plain sentences, on a terminal and on a page."""

from __future__ import annotations

import math

from countveil.assess.joint_precision import WITHOUT_LIMIT
from countveil.assess.summary import AttackRisk, Summary
from countveil.report.words import article, percent

__all__ = ["SETTLED", "added", "article", "percent", "summary_sentences", "worst_attack"]

SETTLED = "settled by what is public"


def summary_sentences(summary: Summary) -> list[str]:
    """Return what the worst attack gains, then what public counts, levels above and facts add."""
    found = [worst_attack(summary)]
    settled = {item.attack for item in summary.attacks if item.settled}
    found += [
        f"What the plan publishes as counted settles '{name}' for whoever knows everyone else "
        f"in {article(summary.level)}: no noise protects against it."
        for name in sorted(settled)
    ]
    first = summary.attacks[0]
    if first.with_invariants is not None and first.attack not in settled:
        found += _levels_above(first, summary.most_above)
    return found + _facts(summary)


def worst_attack(summary: Summary) -> str:
    """Return what the attack that gains most comes to, in one sentence."""
    worst = max(summary.attacks, key=lambda item: item.marginal_risk)
    return (
        f"Of all attacks, an intruder who knows everyone in {article(summary.level)} but his target, "
        f"and sees all its queries, gains most by '{worst.attack}': where he is right, he comes from a "
        f"probability of {percent(worst.prior)} to {percent(worst.posterior)} on average, "
        f"{worst.marginal_risk:.3f} times what he believed before."
    )


def added(item: AttackRisk) -> tuple[float | None, float | None]:
    """Return what levels above, and counts published as they are, add to the evidence of a level.

    The second is infinite where what is public settles it.
    """
    own, above, counted = item.effective_rho, item.with_levels_above, item.with_invariants
    if not own or above is None or counted is None:  # no evidence of its own to compare with
        return None, None
    more = max(0.0, above - own) / own
    if item.settled or counted > WITHOUT_LIMIT * above:
        return more, math.inf
    return more, max(0.0, counted - above) / own


def _levels_above(first: AttackRisk, most: float | None) -> list[str]:
    above, counted = added(first)
    if above is None or counted is None:
        return []
    told = (
        "what is published as counted settles it"
        if math.isinf(counted)
        else f"what is published as counted adds {100 * counted:.1f} % more"
    )
    own = first.effective_rho
    least = f", {100 * (most - own) / own:.1f} % where siblings are fewest" if most and own else ""
    return [
        f"Where counts are large, the levels above add {100 * above:.1f} % to his evidence about "
        f"presence in a unit with as many siblings as the average{least}; {told}. Near zero his belief "
        f"about the siblings decides: see the documentation."
    ]


def _facts(summary: Summary) -> list[str]:
    """Say what public facts settle, and what they add to a belief, for the smallest prior."""
    found = []
    for item in summary.facts:
        if item.prior != min(other.prior for other in summary.facts):
            continue
        kinds = [
            (item.settled, "are known exactly"),
            (item.somebody, "must hold somebody"),
            (item.bounded, "have a largest count"),
        ]
        listed = ", ".join(f"{number:,} {what}" for number, what in kinds if number)
        text = f"Public facts bound {item.counts:,} counts of {item.query}: {listed}."
        if item.with_fact is not None and item.with_release is not None:
            text += (
                f" Who is unsure of one other person beside his target, each there with probability "
                f"{percent(item.prior)}, comes to {percent(item.with_fact)} by knowing that somebody "
                f"is there, and to {percent(item.with_release)} with the most detailed noisy count as "
                f"well; by that count alone he would come to {percent(item.release_alone or 0.0)}."
            )
        found.append(text)
    return found
