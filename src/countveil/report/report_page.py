"""The report of a release: one self-contained HTML file, complete without its script."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from countveil.assess.realised_disclosure import Realised
from countveil.errors import InputError, MissingExtra
from countveil.privacy.ledger import Ledger
from countveil.publish.release_folder import Release
from countveil.publish.verification import REPORTS
from countveil.report import html_parts
from countveil.report.budget_steps import OtherBudgets
from countveil.report.decision_sheets import DecisionSheet, decision_sheet
from countveil.report.lenses import sections_of
from countveil.report.section_data import Section, Subject
from countveil.report.sections.intruder_section import SETTLED

MOST_BYTES = 1_500_000


def public_report(
    release: Release, *, ledger: Ledger | None = None, shapes: Mapping[str, Any] | None = None
) -> str:
    """Render the public report of a release, from published files alone.

    Parameters
    ----------
    release
        The release, as `Release.read` opens it.
    ledger
        If given, the report states what has been spent and what is left.
    shapes
        A GeoJSON FeatureCollection of places; it adds a map.

    Returns
    -------
    str
        One self-contained HTML page.

    Examples
    --------
    >>> from countveil import Plan, Seeded, pipeline
    >>> from countveil.report.report_page import public_report
    >>> release = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
    >>> public_report(release)[:15]
    '<!doctype html>'

    """
    return _report(release, ledger, shapes, None)


def internal_report(
    release: Release,
    disclosure: Realised,
    *,
    ledger: Ledger | None = None,
    shapes: Mapping[str, Any] | None = None,
) -> str:
    """Render the internal report, which compares the release with the exact counts.

    Parameters
    ----------
    release
        The release, as `Release.read` opens it.
    disclosure
        What `assess.realised_disclosure.realised` computed from the release and its counts.
    ledger, shapes
        As in `public_report`.

    Returns
    -------
    str
        One self-contained HTML page, watermarked INTERNAL.

    """
    return _report(release, ledger, shapes, disclosure)


def as_pdf(html: str) -> bytes:
    """Convert a report to PDF, with bookmarks and with tags for screen readers.

    Parameters
    ----------
    html
        A report, as `public_report` or `internal_report` renders it.

    Returns
    -------
    bytes
        The PDF file.

    Raises
    ------
    MissingExtra
        If weasyprint is not installed.

    """
    try:
        from weasyprint import HTML
        from weasyprint.urls import URLFetcher
    except ImportError as error:
        raise MissingExtra("a PDF report needs weasyprint: pip install 'countveil[pdf]'") from error
    nothing = URLFetcher(allowed_protocols=(), fail_on_errors=True)
    pdf: bytes = HTML(string=html, url_fetcher=nothing).write_pdf(pdf_variant="pdf/ua-1")
    return pdf


def _report(
    release: Release,
    ledger: Ledger | None,
    shapes: Mapping[str, Any] | None,
    disclosure: Realised | None,
) -> str:
    subject = Subject(release.plan, release, disclosure, shapes=shapes)
    others = subject.other_budgets
    sheet = decision_sheet(release, ledger, subject.summary)
    sections = sections_of(subject)
    html = _rendered(
        release, sheet, others, with_distinct_names(sections), internal=disclosure is not None
    )
    if shapes is not None and len(html.encode()) > MOST_BYTES:
        raise InputError(
            f"shapes: the report with these shapes has {len(html.encode()):,} bytes; at most "
            f"{MOST_BYTES:,} are allowed; simplify the shapes"
        )
    return html


def with_distinct_names(sections: Sequence[Section]) -> list[Section]:
    """Return sections whose charts have distinct names, numbered where two would be the same."""
    used = {section.name for section in sections}
    renamed = []
    for section in sections:
        charts = []
        for chart in section.charts:
            names = itertools.chain(
                [chart.name], (f"{chart.name}-{number}" for number in itertools.count(2))
            )
            name = next(name for name in names if name not in used)
            used.add(name)
            charts.append(dataclasses.replace(chart, name=name))
        renamed.append(dataclasses.replace(section, draw=partial(tuple, charts)))
    return renamed


def _rendered(
    release: Release,
    sheet: DecisionSheet,
    others: OtherBudgets,
    sections: Sequence[Section],
    *,
    internal: bool,
) -> str:
    style, script = html_parts.part("style.css"), html_parts.part("slider.js")
    data = json.dumps(others.document).replace("<", "\\u003c")
    manifest = release.manifest
    return (
        html_parts.environment()
        .from_string(html_parts.part("report.html"))
        .render(
            policy=html_parts.policy(styles=[style], scripts=[script]),
            style=Markup(style),  # noqa: S704  # ours, and hashed in the policy
            script=Markup(script),  # noqa: S704
            data=Markup(data),  # noqa: S704  # figures as text, with every "<" escaped
            internal=internal,
            simulation=not release.publishable,
            sheet=sheet,
            settled=SETTLED,
            other_budgets=others,
            chosen=others.steps.index(others.chosen),
            totals=[item for item in sheet.errors if item.query == "TOTAL"],
            sections=sections,
            figure=html_parts.figure,
            body=html_parts.section_body,
            files={k: v for k, v in manifest["files"].items() if k not in REPORTS},
            plan=json.dumps(manifest["plan"], indent=2, ensure_ascii=False),
        )
    )
