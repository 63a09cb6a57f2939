"""The page: controls that hold the settings of the plan, and the answers in words and numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Template
from markupsafe import Markup

from countveil.assess.intruder.ladder import LevelRisk
from countveil.base import words
from countveil.explorer.offered_charts import TITLES
from countveil.explorer.session import Opened
from countveil.explorer.settings import CURRENCY, Settings, opening
from countveil.report.html_parts import environment, part, policy, section_body

if TYPE_CHECKING:
    from countveil.estimate.plan_error import ExpectedError
    from countveil.explorer.answers import Answer
    from countveil.plan.plans import Plan
    from countveil.report.section_data import Section

_TEMPLATES = "countveil.explorer.explorer_templates"
_LEAST, _MOST = -3, 2  # powers of ten between which the budget slider moves
_SETTLED = (
    " This is from noisy counts alone; the counts that the plan publishes exactly reveal it anyway."
)
_KNOWN = {
    "presence": "",
    "unknown attribute": "They already know everything about you except your {}. ",
    "whole record": "They already know that you are counted there. ",
}


class Page(NamedTuple):
    """An HTML page and the content-security policy to send with it."""

    html: str
    policy: str


@cache
def _template(name: str) -> Template:
    return environment().from_string(part(name, _TEMPLATES))


def page(opened: Opened, *, folder_plans: list[str], base: str, key: str) -> Page:
    """Render the page of a plan."""
    plan, settings = opened.plan, opening(opened.plan)
    style = part("style.css") + part("explorer.css", _TEMPLATES)
    script = part("explorer.js", _TEMPLATES)
    data = {
        "base": base,
        "plan": opened.identity,
        "key": key,
        "settings": asdict(settings),
        "currency": CURRENCY,
    }
    html = _template("explorer.html").render(
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        script=Markup(script),  # noqa: S704
        data=Markup(json.dumps(data).replace("<", "\\u003c")),  # noqa: S704
        plan=plan,
        opened=opened,
        settings=settings,
        weights=[(level, float(share)) for level, share in settings.shares.items()],
        attributes=[item.name for item in plan.schema.attributes if len(item.categories) > 1],
        currency=CURRENCY,
        charts=TITLES,
        plans=folder_plans,
        least=_LEAST,
        most=_MOST,
    )
    sealed = policy(
        styles=[style],
        scripts=[script],
        connect_src="'self'",
        img_src="data:",  # an empty icon, so that the browser requests none
        frame_ancestors="'none'",
    )
    return Page(html, sealed)


def lost_page(message: str, *, base: str) -> Page:
    """Render the page for a plan that is no longer open."""
    style = part("style.css") + part("explorer.css", _TEMPLATES)
    html = _template("lost.html").render(
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        message=message,
        base=base,
    )
    sealed = policy(styles=[style], scripts=[], img_src="data:", frame_ancestors="'none'")
    return Page(html, sealed)


def numbers(answer: Answer, settings: Settings) -> dict[str, Any]:
    """Return the answer for the page: sentences, tables, and the numbers themselves."""
    verdict = answer.verdict
    html = _template("numbers.html").render(
        answer=answer,
        by_level=Markup(_by_level(answer)),  # noqa: S704  # its template escapes
    )
    return {
        "sentence": answer_sentence(answer, settings),
        "verdict": {"status": verdict.status, "text": verdict.sentence},
        "ladder": verdict.knowledge,
        "short": verdict_line(answer),
        "cost": cost_lines(answer, settings),
        "shares": {item.level: str(item.share) for item in answer.levels},
        "html": html,
        "numbers": answer_document(answer),
    }


def levels(answer: Answer) -> dict[str, Any]:
    """Return the risks of all levels for the page: a table, and the numbers themselves."""
    return {"by_level": _by_level(answer), "numbers": answer_document(answer)}


def lens_sections(plan: Plan, settings: Settings) -> dict[str, str]:
    """Return the sections of all lenses for a plan, as HTML."""
    from countveil.report.lenses import sections_of
    from countveil.report.section_data import Subject

    sections = sections_of(Subject(plan, level=settings.level))
    return {"html": _template("lenses.html").render(sections=sections, body=section_body)}


def published_example(sections: Sequence[Section]) -> dict[str, Any]:
    """Return what the published tables reveal in a made-up example: HTML, and the sections."""
    html = _template("lenses.html").render(sections=sections, body=section_body)
    return {"html": html, "sections": [section.document for section in sections]}


def _by_level(answer: Answer) -> str:
    return _template("by_level.html").render(answer=answer)


# The answer in words: each sentence is generated from its numbers.


def answer_sentence(answer: Answer, settings: Settings) -> str:
    """Say what the intruder of the page learns, on average."""
    risk, known = answer.selected, _KNOWN[settings.attack]
    who = "If you are there, they" if settings.attack == "presence" else "They"
    return (
        f"{risk.finding(limit=answer.verdict.limit)}. {known.format(settings.attribute)}"
        f"{who} {_guesses(risk)}.{_SETTLED if answer.settled else ''}"
    )


def _guesses(risk: LevelRisk) -> str:
    if risk.correct_decision in (0, 1):
        return f"{risk.guesses} guess correctly"
    return f"guess correctly {risk.guesses}"


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
        lines.append(
            ("Epsilon", f"{words.upwards(answer.epsilon)} at delta {float(answer.delta):g}")
        )
    return [*lines, ("Noise", settings.mechanism), ("Neighbours", settings.neighbors)]


def _error(error: ExpectedError | None) -> dict[str, Any]:
    names = ("standard_deviation", "standard_error", "as_counted")
    return {name: getattr(error, name) for name in names} if error is not None else {}


def answer_document(answer: Answer) -> dict[str, Any]:
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
