"""What pages share: numbers as they are shown, sealed policies, charts that are one image."""

import base64
import hashlib
import re

import pytest

from countveil.assess.intruder.ladder import LevelRisk
from countveil.report import charts
from countveil.report.html_parts import environment, figure, part, policy, shown, svg_image


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (1.23456, "1.2"),
        (0.2, "0.2"),
        (49.31, "49"),
        (1234.56, "1,235"),
        (14470.4, "14,470"),
        (9999.7, "10,000"),
    ],
)
def test_numbers_are_shown_with_two_digits_and_never_in_powers_of_ten(value, text):
    assert shown(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (1e-9, "fewer than 1 in 1,000,000"), (0.6239, "62 %"), (1.0, "100 %")],
)
def test_a_share_that_would_round_to_nothing_is_said_to_be_small(value, text):
    assert environment().filters["brief_percent"](value) == text


def test_a_policy_allows_what_is_sealed_and_what_is_named():
    seal = base64.b64encode(hashlib.sha256(b"p { color: red }").digest()).decode()
    found = policy(styles=["p { color: red }"], scripts=[], connect_src="'self'")
    assert dict(part.split(" ", 1) for part in found.split("; ")) == {
        "default-src": "'none'",
        "style-src": f"'sha256-{seal}'",
        "script-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "connect-src": "'self'",
    }


def test_a_chart_is_one_image_to_who_cannot_see_it():
    chart = charts.risk_by_level([LevelRisk("area", 0.1, 1.5, 0.15, 0.2)])
    found = svg_image(chart)
    assert found.startswith('<svg role="img" aria-labelledby="')
    assert re.findall(r'\b(?:role|aria-[a-z]+)="', found) == ['role="', 'aria-labelledby="']
    assert chart.alt in found.replace("&#x27;", "'")
    assert found in figure(chart)


def test_templates_escape_and_refuse_what_they_lack():
    templates = environment()
    assert templates.from_string("{{ name }}").render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(Exception, match="'name' is undefined"):
        templates.from_string("{{ name }}").render()


def test_long_words_of_a_plan_are_broken_and_not_cut():
    (rule,) = re.findall(r"([^{}]+)\{ overflow-wrap: anywhere; \}", part("style.css"))
    assert {"h1", "p", "dt", "caption", "figcaption"} <= {item.strip() for item in rule.split(",")}
