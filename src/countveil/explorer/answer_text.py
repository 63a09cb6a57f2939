"""The answer in words: each sentence is made from the number it tells."""

from __future__ import annotations

from typing import Any

from countveil.base.words import article, percent, upwards
from countveil.explorer.answers import Answer, LevelsAbove
from countveil.explorer.settings import Settings
from countveil.privacy.costs import PureDP

_SETTLED = " That is from noisy values alone; what the plan publishes as counted settles it anyway."


def sentence(answer: Answer, settings: Settings) -> str:
    """Return what the intruder of the page ends at, in one sentence."""
    his = answer.his
    so = " if that is so" if settings.attack == "presence" else ""
    return (
        f"An intruder who {_knows(answer, settings)} with probability {his.prior:g}, ends at "
        f"{his.posterior:.3g} on average{so}: {his.marginal_risk:.3g} times his prior. Where it "
        f"is true, he says so {percent(answer.decision)} of the "
        f"time.{_SETTLED if answer.settled else ''}"
    )


def _knows(answer: Answer, settings: Settings) -> str:
    everyone = f"knows everyone else in {article(answer.level)}"
    if settings.attack == "presence":
        return f"{everyone}, and believes that a person is counted there"
    if settings.attack == "unknown attribute":
        known = f"all of a person but {settings.attribute}"
        return f"{everyone} and {known}, and believes in the true category"
    return (
        f"{everyone} and that a person is counted there, and believes in the person's true record"
    )


def short(answer: Answer) -> str:
    """Return the answer in a line that stays in sight."""
    status = answer.verdict.status
    limit = "" if status == "no limit" else f" · {status} the limit"
    risk = f"{answer.his.marginal_risk:.3g} × prior {answer.his.prior:g} at {answer.level}"
    return f"{risk}{limit} · {answer.cost}"


def above_sentence(found: LevelsAbove, settings: Settings) -> str:
    """Return what the levels above add."""
    seen = f"If he also sees the levels above, with {settings.siblings:,} units beside each of his"
    if found.as_one_count:
        how = f"as from one count with rho {found.effective_rho:.3g}"
    else:
        how = "as from his level alone"
    return f"{seen}: {found.marginal_risk:.3g} times his prior, {how}."


def cost_lines(answer: Answer, settings: Settings) -> list[tuple[str, str]]:
    """Return what is spent, exactly, and what it stands for."""
    lines = [("Cost", str(answer.cost))]
    if isinstance(answer.cost, PureDP):
        lines.append(("As rho", f"{float(answer.cost.rho):.4g}"))
    else:
        lines.append(("Epsilon", f"{upwards(answer.epsilon)} at delta {float(answer.delta):g}"))
    return [*lines, ("Noise", settings.mechanism), ("Neighbours", settings.neighbors)]


def document(answer: Answer) -> dict[str, Any]:
    """Return the numbers as JSON holds them."""
    return {
        "cost": str(answer.cost),
        "epsilon": answer.epsilon,
        "delta": str(answer.delta),
        "level": answer.level,
        "prior": answer.prior,
        "levels": [
            {
                "level": item.level,
                "share": str(item.share),
                "risks": [
                    {
                        "prior": risk.prior,
                        "posterior": risk.posterior,
                        "marginal_risk": risk.marginal_risk,
                    }
                    for risk in item.risks
                ],
                "standard_deviation": item.error.standard_deviation,
                "standard_error": item.error.standard_error,
                "as_counted": item.error.as_counted,
            }
            for item in answer.levels
        ],
        "correct_decision": dict(zip(map(str, answer.priors), answer.decisions, strict=True)),
        "limit": answer.verdict.limit,
        "status": answer.verdict.status,
    }
