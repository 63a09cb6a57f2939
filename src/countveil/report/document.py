"""The report of a release: one HTML file that needs nothing else, complete without its script."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.public_information import beside_public
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.privacy.ledger import Ledger
from countveil.release import Release
from countveil.release.attachment import REPORT
from countveil.report import charts
from countveil.report.charts import Picture
from countveil.report.decision_sheet import DecisionSheet, decision_sheet
from countveil.report.what_if import WhatIf, what_if
from countveil.schema.plan import Plan


def public_report(release: Release, *, ledger: Ledger | None = None) -> str:
    """Return the public report of a release, as HTML: from what is published, and a ledger if given."""
    plan = release.plan
    if plan.one_table is not None:
        raise InputError(
            f"{release.folder}: is a table drawn beside public information; its guarantee is shown by "
            f"`countveil assess OUT --lens public`"
        )
    sheet, others = decision_sheet(release, ledger), what_if(plan)
    return _rendered(
        sheet,
        others,
        intruder=[charts.risk_by_level(sheet.levels), charts.two_hundred_intruders(*_worst(plan))],
        error=[charts.expected_error(sheet.errors), charts.budget_allocation(plan)],
        remains=beside_public(release),
        files={k: v for k, v in release.manifest["files"].items() if k != REPORT},
        plan=json.dumps(release.manifest["plan"], indent=2, ensure_ascii=False),
    )


def _worst(plan: Plan) -> tuple[Intruder, Risk, Risk]:
    """Return the intruder of the plan who gains most, for a target who is counted and for one not."""
    found = []
    for prior in plan.intruder.priors:
        # Noise is symmetric: a target who is not counted is as one who is, with the prior turned round.
        there, away = (
            attacks.correct_decision(
                plan, attack="presence", level=plan.judged_level, prior=p, invariants=False
            )
            for p in (prior, 1 - prior)
        )
        right = prior * float(there.value) + (1 - prior) * float(away.value)
        who = Intruder(prior=prior, rows=plan.rows_per_person)
        found.append((right - max(prior, 1 - prior), who, there, away))
    return max(found, key=lambda item: item[0])[1:]


def _rendered(sheet: DecisionSheet, others: WhatIf, **parts: Any) -> str:
    style, script = _part("style.css"), _part("slider.js")
    data = json.dumps(dataclasses.asdict(others)).replace("<", "\\u003c")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"shown": _shown, "percent": _percent}
    template = environment.from_string(_part("report.html"))
    return template.render(
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
        script=Markup(script),  # noqa: S704
        data=Markup(data),  # noqa: S704  # numbers, with every "<" escaped
        sheet=sheet,
        what_if=others,
        chosen=next(number for number, step in enumerate(others.steps) if step.chosen),
        totals=[item for item in sheet.errors if item.query == "TOTAL"],
        figure=_figure,
        **parts,
    )


def _figure(picture: Picture) -> Markup:
    """Return a picture with its caption, and its numbers behind a button."""
    return Markup(  # the SVG and the table escape what they hold
        "<figure>{}<figcaption>{}</figcaption><details><summary>Numbers of this picture</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="{}">{}</div></details></figure>'
    ).format(
        Markup(picture.svg()),  # noqa: S704
        picture.caption,
        f"Numbers: {picture.title}",
        Markup(picture.html_table()),  # noqa: S704
    )


def _policy(style: str, script: str) -> str:
    """Return a content-security policy under which nothing but our own style and script runs."""

    def sealed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {sealed(style)}; script-src {sealed(script)}; base-uri 'none'; "
        f"form-action 'none'"
    )


def _part(name: str) -> str:
    return resources.files("countveil.report.templates").joinpath(name).read_text("utf-8")


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:,.4g}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
