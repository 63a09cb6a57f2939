"""The page: controls that hold what the plan says, and places for what is answered."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Template
from markupsafe import Markup

from countveil.explorer.pictures import TITLES
from countveil.explorer.session import Opened
from countveil.explorer.settings import CURRENCY, Settings
from countveil.report.page import environment, part, policy

if TYPE_CHECKING:
    from countveil.explorer.answer import Answer

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
        pictures=TITLES,
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
    from countveil.explorer import wording

    found = wording.verdict(answer)
    html = _template("numbers.html").render(
        answer=answer,
        by_level=Markup(_by_level(answer)),  # noqa: S704  # its template escapes
    )
    return {
        "sentence": wording.sentence(answer, settings),
        "verdict": None if found is None else {"within": found[0], "text": found[1]},
        "short": wording.short(answer),
        "cost": wording.cost_lines(answer, settings),
        "shares": {item.level: str(item.share) for item in answer.levels},
        "html": html,
        "numbers": wording.document(answer),
    }


def levels(answer: Answer) -> dict[str, Any]:
    """Return the risks of all levels as the page takes them: a table, and the numbers themselves."""
    from countveil.explorer import wording

    return {"by_level": _by_level(answer), "numbers": wording.document(answer)}


def _by_level(answer: Answer) -> str:
    return _template("by_level.html").render(answer=answer)
