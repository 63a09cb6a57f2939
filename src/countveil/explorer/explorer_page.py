"""The page: controls that hold what the plan says, and places for what is answered."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Template
from markupsafe import Markup

from countveil.explorer.offered_charts import TITLES
from countveil.explorer.session import Opened
from countveil.explorer.settings import CURRENCY, Settings
from countveil.report.html_parts import environment, part, policy, section_body

if TYPE_CHECKING:
    from countveil.explorer.answers import Answer
    from countveil.plan.plans import Plan

_TEMPLATES = "countveil.explorer.templates"
_LEAST, _MOST = -3, 2  # powers of ten that the slider of the budget reaches


@cache
def _template(name: str) -> Template:
    return environment().from_string(part(name, _TEMPLATES))


def page(opened: Opened, *, folder_plans: list[str], base: str, key: str) -> tuple[str, str]:
    """Return the page of a plan, and the policy it is to be served under."""
    plan, settings = opened.plan, Settings.of(opened.plan)
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
        img_src="data:",  # an empty icon, so that none is asked for
        frame_ancestors="'none'",
    )
    return html, sealed


def lost_page(said: str, *, base: str) -> tuple[str, str]:
    """Return a page in place of that of a plan that is not there, and its policy."""
    style = part("style.css") + part("explorer.css", _TEMPLATES)
    html = _template("lost.html").render(
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        said=said,
        base=base,
    )
    return html, policy(styles=[style], scripts=[], img_src="data:", frame_ancestors="'none'")


def numbers(answer: Answer, settings: Settings) -> dict[str, Any]:
    """Return the answer as the page takes it: sentences, tables, and the numbers themselves."""
    from countveil.explorer import answer_text

    found = answer.verdict
    html = _template("numbers.html").render(
        answer=answer,
        by_level=Markup(_by_level(answer)),  # noqa: S704  # its template escapes
    )
    return {
        "sentence": answer_text.sentence(answer, settings),
        "verdict": {"status": found.status, "text": found.sentence},
        "short": answer_text.short(answer),
        "cost": answer_text.cost_lines(answer, settings),
        "shares": {item.level: str(item.share) for item in answer.levels},
        "html": html,
        "numbers": answer_text.document(answer),
    }


def levels(answer: Answer) -> dict[str, Any]:
    """Return the risks of all levels as the page takes them: a table, and the numbers themselves."""
    from countveil.explorer import answer_text

    return {"by_level": _by_level(answer), "numbers": answer_text.document(answer)}


def lens_sections(plan: Plan, settings: Settings) -> dict[str, str]:
    """Return what every lens says of a plan, as HTML."""
    from countveil.report.lenses import sections_of
    from countveil.report.section_data import Subject

    found = sections_of(Subject(plan, level=settings.level))
    return {"html": _template("lenses.html").render(sections=found, body=section_body)}


def _by_level(answer: Answer) -> str:
    return _template("by_level.html").render(answer=answer)
