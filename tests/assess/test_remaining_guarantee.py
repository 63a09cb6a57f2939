"""The guarantee given what is public: one way in, for plans and releases of both kinds."""

from __future__ import annotations

import pytest
from tests.conftest import TINY_PLAN

from countveil import Seeded, open_release, pipeline
from countveil.assess.remaining_guarantee import public_guarantee
from countveil.errors import InputError
from countveil.plan.plans import Plan

EXACT = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
ONE_TABLE = (
    TINY_PLAN.partition("[budget]")[0]
    .replace('AGE = ["young", "old"]\nSEX = ["f", "m", "x"]', 'AGE = ["young", "old"]')
    .replace("one_row_per_person", 'counts = "n"\none_row_per_person')
    + '[budget]\nepsilon = "1"\n[postprocess]\nmethod = "congenial"\n'
    + EXACT
)


@pytest.mark.parametrize("text", [TINY_PLAN + EXACT, ONE_TABLE], ids=["counts", "one table"])
def test_a_release_guarantees_what_its_plan_does_and_says_what_its_totals_show(text, tiny):
    tiny.write_text(text)
    if text is ONE_TABLE:
        rows = "A1,young,3\nA2,old,1\n"
        (tiny.parent / "people.csv").write_text(f"area,AGE,n\n{rows}")
    else:
        (tiny.parent / "people.csv").write_text("area,AGE,SEX\nA1,young,f\n")
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(1))
    planned = public_guarantee(plan)
    of_release = public_guarantee(open_release(tiny.parent / "out"))
    assert of_release.secrets == planned.secrets
    assert of_release.public == planned.public
    revealed = [line for line in of_release.sentences if line not in planned.sentences]
    assert len(of_release.sentences) == len(planned.sentences) + len(revealed)
    assert any("1 of 2 public totals" in line and "are empty" in line for line in revealed)


@pytest.mark.parametrize("of", [None, "plan.toml", {"plan": None}], ids=repr)
def test_anything_else_is_refused_by_its_kind(of):
    with pytest.raises(InputError, match=f"got {type(of).__name__}; pass a plan or a release"):
        public_guarantee(of)
