"""A saved plan: it says what was set, keeps its comments, and is read back as the same plan."""

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import TINY_PLAN
from tests.explorer.test_explorer_settings import PLANS, PRESET, STARTER

from countveil.errors import InputError
from countveil.explorer.settings import Settings, changed
from countveil.plan.plan_text import rewritten, toml_of
from countveil.plan.plans import Plan

INLINE = TINY_PLAN.replace(
    '[budget.levels]\nregion = "1/2"\narea = "1/2"\n',
    "",
).replace('rho = "2"', 'rho = "2"  # said\nlevels = { region = "1/2", area = "1/2" }  # split')
DOTTED = """
release = { title = "Tiny", unit = "person", neighbors = "change-one" }  # gone
geography.levels = ["region", "area"]
attributes.AGE = ["young", "old"]
budget.rho = "2"
budget.levels.region = "1/2"
budget.levels.area = "1/2"
budget.queries."*".TOTAL = "1"
"""
MANY_LINES = TINY_PLAN.replace(
    "[budget]", "[intruder]  # whom\npriors = [\n  0.5,  # even\n  0.1,\n]\n\n[budget]"
)


def saved(text, **changes):
    plan = Plan.parse(text)
    other = changed(plan, replace(Settings.of(plan), **changes))
    found, commented = rewritten(text, plan, other)
    assert Plan.parse(found).document == other.document
    return found, commented


@pytest.mark.parametrize("text", [*PLANS.values(), INLINE, DOTTED, MANY_LINES])
def test_what_was_not_changed_is_saved_byte_for_byte(text):
    assert saved(text) == (text, True)


def test_values_change_and_comments_stay_where_they_are():
    text, commented = saved(
        STARTER,
        amount="104/41",
        prior="0.25",
        level="tract",
        weights=(("state", "1"), ("county", "2"), ("tract", "3"), ("block", "4")),
    )
    assert commented
    old, new = STARTER.splitlines(), text.splitlines()
    differ = {line for line in new if line not in old}
    assert differ == {
        f'rho = "104/41"{" " * 19}# write numbers as text, so that they stay exact; '
        "or epsilon and delta",
        'state = "1/10"',
        'tract = "3/10"',
        "priors = [0.5, 0.1, 0.02, 0.25]",
        f'knows = "tract"{" " * 18}# the largest place in which they know everyone else',
    }
    comments = [[line.partition("#")[2] for line in lines if "#" in line] for lines in (old, new)]
    assert comments[0] == comments[1]
    assert tomllib.loads(text)["records"] == tomllib.loads(STARTER)["records"]


def test_the_earlier_name_of_what_they_know_is_replaced():
    text, commented = saved(TINY_PLAN + '[intruder]\nlevel = "area"  # said\n', level="region")
    assert commented
    assert tomllib.loads(text)["intruder"] == {"knows": "region"}


def test_a_currency_takes_the_place_of_the_other():
    text, commented = saved(STARTER, mechanism="discrete Laplace", amount="1.5")
    assert commented
    assert 'epsilon = "1.5"' in text
    assert "rho =" not in text
    assert "\ndelta" not in text
    back, commented = saved(text, mechanism="discrete Gaussian", amount="1")
    assert commented
    assert 'rho = "1"' in back


def test_a_preset_stays_one():
    text, commented = saved(PRESET, amount="1", weights=_even(PRESET), prior="0.3")
    assert commented
    assert text.startswith(PRESET)
    assert tomllib.loads(text)["budget"]["rho"] == "1"
    assert "attributes" not in tomllib.loads(text)
    pure, _ = saved(PRESET, mechanism="discrete Laplace", amount="1")
    assert "delta" not in pure


def test_a_table_on_one_line_is_changed_there():
    text, commented = saved(INLINE, weights=(("region", "1"), ("area", "3")), amount="3")
    assert commented
    assert 'levels = { region = "1/4", area = "3/4" }  # split' in text
    assert 'rho = "3"  # said' in text


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (DOTTED, {"amount": "3", "weights": (("region", "1"), ("area", "3")), "prior": "0.3"}),
        (DOTTED, {"neighbors": "add-remove"}),
        (MANY_LINES, {"prior": "0.3"}),
    ],
)
def test_a_layout_that_is_not_understood_is_written_anew_and_says_so(text, changes):
    found, commented = saved(text, **changes)
    assert not commented
    assert "#" not in found


def test_a_line_that_only_looks_like_a_value_is_not_touched():
    text = TINY_PLAN.replace('title = "Tiny"', 'title = """\n[budget]\nrho = "2"\n"""')
    found, _ = saved(text, amount="3")
    assert Plan.parse(found).title == Plan.parse(text).title


def _even(text):
    return tuple((level, "1") for level in Plan.parse(text).levels)


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
_SCALARS = st.one_of(
    _TEXTS, st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(_TEXTS, _VALUES, max_size=5))
def test_any_document_is_read_back_as_it_was(document):
    assert tomllib.loads(toml_of(document)) == document


def test_what_toml_has_and_a_plan_has_not_is_refused():
    with pytest.raises(InputError, match="a plan cannot hold date values"):
        toml_of(tomllib.loads("on = 2020-04-01"))
