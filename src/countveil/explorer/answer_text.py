"""The answer in words: each sentence is generated from its numbers."""

from __future__ import annotations

from typing import Any

from countveil.base import words
from countveil.base.words import upwards
from countveil.estimate.plan_error import ExpectedError
from countveil.explorer.answers import Answer
from countveil.explorer.settings import Settings

_SETTLED = (
    " This is from noisy counts alone; the counts that the plan publishes exactly reveal it anyway."
)
_KNOWN = {
    "presence": "",
    "unknown attribute": "They already know everything about you except your {}. ",
    "whole record": "They already know that you are counted there. ",
}


def sentence(answer: Answer, settings: Settings) -> str:
    """Say what the intruder of the page learns, on average."""
    risk, known = answer.selected, _KNOWN[settings.attack]
    who = "If you are there, they" if settings.attack == "presence" else "They"
    return (
        f"{risk.finding(limit=answer.verdict.limit)}. {known.format(settings.attribute)}"
        f"{who} {_guesses(risk.correct_decision)}.{_SETTLED if answer.settled else ''}"
    )


def _guesses(share: float) -> str:
    often = words.times_out_of(share)
    return f"{often} guess correctly" if share in (0, 1) else f"guess correctly {often}"


def short(answer: Answer) -> str:
    """Return the verdict as one line, which stays in view while the page scrolls."""
    verdict = answer.verdict
    limit = "" if verdict.status == "no limit" else f" · {verdict.status} the limit"
    return (
        f"{verdict.shown} × prior {verdict.worst.prior:g} at {answer.level}{limit} · {answer.cost}"
    )


def cost_lines(answer: Answer, settings: Settings) -> list[tuple[str, str]]:
    """Return the exact cost, and what it amounts to in the other currency."""
    lines = [("Cost", str(answer.cost))]
    if answer.cost.pure_epsilon is not None:
        lines.append(("In rho", f"{float(answer.cost.rho):.4g}"))
    else:
        lines.append(("Epsilon", f"{upwards(answer.epsilon)} at delta {float(answer.delta):g}"))
    return [*lines, ("Noise", settings.mechanism), ("Neighbours", settings.neighbors)]


def _error(error: ExpectedError | None) -> dict[str, Any]:
    names = ("standard_deviation", "standard_error", "as_counted")
    return {name: getattr(error, name) for name in names} if error is not None else {}


def document(answer: Answer) -> dict[str, Any]:
    """Return the numbers as a JSON document."""
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
                        "upper_bound": risk.upper_bound,
                    }
                    for risk in item.risks
                ],
                **_error(item.error),
            }
            for item in answer.levels
        ],
        "correct_decision": {
            str(risk.prior): risk.correct_decision for risk in answer.judged.risks
        },
        "limit": answer.verdict.limit,
        "status": answer.verdict.status,
    }
