"""The answer in words: each sentence is generated from its numbers."""

from __future__ import annotations

from typing import Any

from countveil.base import words
from countveil.base.words import article, upwards
from countveil.estimate.plan_error import ExpectedError
from countveil.explorer.answers import Answer
from countveil.explorer.settings import Settings

_SETTLED = (
    " This is from noisy counts alone; the counts that the plan publishes exactly reveal it anyway."
)


def sentence(answer: Answer, settings: Settings) -> str:
    """Say what the intruder of the page learns, on average."""
    risk, present = answer.selected, settings.attack == "presence"
    knowledge = _knows(answer, settings, words.prior_percent(risk.prior))
    posterior = words.brief_percent(risk.posterior, other=risk.prior)
    times = words.multiple(risk.marginal_risk, limit=answer.verdict.limit)
    most = "at most " if answer.upper_bound else ""
    return (
        f"Someone who {knowledge} would{', if you are,' if present else ''} raise that to "
        f"{most}{posterior} on average: {most}{times} times their prior. "
        f"{'If you are there, they' if present else 'They'} {_guesses(answer.decision)}."
        f"{_SETTLED if answer.settled else ''}"
    )


def _guesses(share: float) -> str:
    often = words.times_out_of(share)
    return f"{often} guess correctly" if share in (0, 1) else f"guess correctly {often}"


def _knows(answer: Answer, settings: Settings, prior: str) -> str:
    everyone = f"knows everyone else in {article(answer.level)}"
    if settings.attack == "presence":
        return f"{everyone} and gives a probability of {prior} that you are counted there"
    if settings.attack == "unknown attribute":
        known = f"everything about you except your {settings.attribute}"
        return f"{everyone} and {known}, and gives your true category a probability of {prior},"
    return (
        f"{everyone} and that you are counted there, and gives your true record a probability of "
        f"{prior},"
    )


def verdict_line(answer: Answer) -> str:
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
                    }
                    for risk in item.risks
                ],
                **_error(item.error),
            }
            for item in answer.levels
        ],
        "correct_decision": dict(zip(map(str, answer.priors), answer.decisions, strict=True)),
        "limit": answer.verdict.limit,
        "status": answer.verdict.status,
    }
