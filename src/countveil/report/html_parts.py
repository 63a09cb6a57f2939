"""The parts of every page: templates, number formats, charts with captions, a strict policy."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from countveil.base.words import brief_percent, prior
from countveil.base.words import figure as figure_of

if TYPE_CHECKING:
    from countveil.report.charts.chart import Chart  # a page without charts does not load Altair
    from countveil.report.section_data import Section

__all__ = [
    "cell",
    "environment",
    "figure",
    "part",
    "policy",
    "section_body",
    "shown",
    "svg_image",
]

TEMPLATES = "countveil.report.report_templates"
_ROLES = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')


def environment() -> Environment:
    """Return the environment for templates: it escapes values and refuses undefined ones."""
    templates = Environment(autoescape=True, undefined=StrictUndefined)
    templates.filters |= {
        "shown": shown,
        "brief_percent": brief_percent,
        "prior": prior,
        "cell": cell,
    }
    return templates


def part(name: str, package: str = TEMPLATES) -> str:
    """Read a template, style or script that a package ships."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def policy(*, styles: Sequence[str], scripts: Sequence[str], **others: str) -> str:
    """Return a content-security policy under which only these inline styles and scripts run.

    `others` are further directives, such as `connect_src="'self'"`; everything else is forbidden.
    """
    allowed = {
        "default-src": "'none'",
        "style-src": " ".join(map(_sealed, styles)) or "'none'",
        "script-src": " ".join(map(_sealed, scripts)) or "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        **{name.replace("_", "-"): value for name, value in others.items()},
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def svg_image(chart: Chart) -> str:
    """Return a chart as SVG that screen readers treat as one image; its parts have no roles."""
    head, end, inside = chart.svg().partition(">")
    return head + end + _ROLES.sub("", inside)


def figure(chart: Chart) -> Markup:
    """Return a chart with its caption, and its numbers in a fold-out table."""
    return Markup(  # the SVG and the table escape their contents
        "<figure>{}<figcaption>{}</figcaption><details><summary>Numbers of this chart</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="{}">{}</div></details></figure>'
    ).format(
        Markup(svg_image(chart)),  # noqa: S704
        chart.caption,
        f"Numbers: {chart.title}",
        Markup(chart.html_table()),  # noqa: S704
    )


def section_body(section: Section) -> Markup:
    """Return the title, sentences and tables of a section, without its charts."""
    return Markup(_section_template().render(section=section))  # noqa: S704  # the template escapes


@cache
def _section_template() -> Template:
    return environment().from_string(part("section.html"))


def shown(value: float | None) -> str:
    """Format a number for a table of a page: two significant digits, large ones to the unit."""
    return "none" if value is None else figure_of(value)


def cell(value: object) -> str:
    """Format a table cell: two significant digits, and all digits of whole numbers."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "no limit" if math.isinf(value) else shown(value)
    return str(value)


def _sealed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
