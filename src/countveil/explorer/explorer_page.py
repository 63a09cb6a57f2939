"""The page: controls that hold the settings of the plan, and places for the answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Template
from markupsafe import Markup

from countveil.explorer.offered_charts import TITLES
from countveil.explorer.session import Opened
from countveil.explorer.settings import CURRENCY, Settings, opening
from countveil.report.html_parts import environment, part, policy, section_body

if TYPE_CHECKING:
    from countveil.explorer.answers import Answer
    from countveil.plan.plans import Plan
    from countveil.report.section_data import Section

_TEMPLATES = "countveil.explorer.explorer_templates"
_LEAST, _MOST = -3, 2  # powers of ten between which the budget slider moves


@cache
def _template(name: str) -> Template:
    return environment().from_string(part(name, _TEMPLATES))


def page(opened: Opened, *, folder_plans: list[str], base: str, key: str) -> tuple[str, str]:
    """Render the page of a plan; return it with its content-security policy."""
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
    return html, sealed


def lost_page(message: str, *, base: str) -> tuple[str, str]:
    """Render the page for a plan that is no longer open; return it with its policy."""
    style = part("style.css") + part("explorer.css", _TEMPLATES)
    html = _template("lost.html").render(
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        message=message,
        base=base,
    )
    return html, policy(styles=[style], scripts=[], img_src="data:", frame_ancestors="'none'")


def numbers(answer: Answer, settings: Settings) -> dict[str, Any]:
    """Return the answer for the page: sentences, tables, and the numbers themselves."""
    from countveil.explorer import answer_text

    verdict = answer.verdict
    html = _template("numbers.html").render(
        answer=answer,
        by_level=Markup(_by_level(answer)),  # noqa: S704  # its template escapes
    )
    return {
        "sentence": answer_text.sentence(answer, settings),
        "verdict": {"status": verdict.status, "text": verdict.sentence},
        "ladder": verdict.knowledge,
        "short": answer_text.verdict_line(answer),
        "cost": answer_text.cost_lines(answer, settings),
        "shares": {item.level: str(item.share) for item in answer.levels},
        "html": html,
        "numbers": answer_text.document(answer),
    }


def levels(answer: Answer) -> dict[str, Any]:
    """Return the risks of all levels for the page: a table, and the numbers themselves."""
    from countveil.explorer import answer_text

    return {"by_level": _by_level(answer), "numbers": answer_text.document(answer)}


def lens_sections(plan: Plan, settings: Settings) -> dict[str, str]:
    """Return the sections of all lenses for a plan, as HTML."""
    from countveil.report.lenses import sections_of
    from countveil.report.section_data import Subject

    sections = sections_of(Subject(plan, level=settings.level))
    return {"html": _template("lenses.html").render(sections=sections, body=section_body)}


def published_example(section: Section) -> dict[str, Any]:
    """Return what the published tables reveal in a made-up example: HTML, and the section itself."""
    html = _template("lenses.html").render(sections=[section], body=section_body)
    return {"html": html, "section": section.document}


def _by_level(answer: Answer) -> str:
    return _template("by_level.html").render(answer=answer)
