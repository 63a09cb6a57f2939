"""What a summary of risks says in plain sentences, on a terminal and on a page."""

from __future__ import annotations

from countveil.assess.summary import AttackRisk, Summary


def summary_sentences(summary: Summary) -> list[str]:
    """Return what the worst attack gains, then what public counts, levels above and facts add."""
    worst = max(summary.attacks, key=lambda item: item.marginal_risk)
    found = [
        f"An intruder who knows everyone in {article(summary.level)} but his target, and sees "
        f"all its queries, gains most by the attack '{worst.attack}': from a probability of "
        f"{percent(worst.prior)} he comes to {percent(worst.posterior)} on average, "
        f"{worst.marginal_risk:.3f} times what he believed before."
    ]
    settled = {item.attack for item in summary.attacks if item.posterior == 1.0}
    found += [
        f"What the plan publishes as counted settles '{name}' for whoever knows everyone else "
        f"in {article(summary.level)}: no noise protects against it."
        for name in sorted(settled)
    ]
    informed = [item for item in summary.attacks if item.with_invariants is not None]
    if informed and informed[0].attack not in settled:
        found.append(_levels_above(informed[0]))
    return found + _facts(summary)


def added(item: AttackRisk) -> tuple[float | None, float | None]:
    """Return what levels above, and counts published as they are, add to the evidence of a level."""
    own, above, counted = item.effective_rho, item.with_levels_above, item.with_invariants
    if not own or above is None or counted is None:  # no evidence of its own to compare with
        return None, None
    return max(0.0, above - own) / own, max(0.0, counted - above) / own


def _levels_above(first: AttackRisk) -> str:
    above, counted = added(first)
    assert above is not None
    assert counted is not None
    return (
        f"Where counts are large, the levels above add {100 * above:.1f} % to his evidence about "
        f"presence, and what is published as counted adds {100 * counted:.1f} % more. Near zero his "
        f"belief about the siblings decides: see the documentation."
    )


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


def article(word: str) -> str:
    """Return a word with "a" or "an" before it."""
    return f"an {word}" if word[:1].lower() in "aeio" else f"a {word}"


def percent(value: float) -> str:
    """Return a probability in percent, with four digits that count."""
    return f"{100 * value:.4g} %"
