"""What does not change is read once: crosswalks, manifests and plans, by the main commands."""

from __future__ import annotations

from collections import Counter

import pytest

from countveil.measure import manifest
from countveil.plan import geography, plan_basis, plans
from countveil.publish import release_folder
from tests.conftest import TINY_PLAN, run


@pytest.fixture
def reads(monkeypatch) -> Counter:
    """Count crosswalks and manifests that are parsed, and plans that are built from a document."""
    seen: Counter = Counter()

    def counted(name, real):
        def call(*given, **named):
            seen[name] += 1
            return real(*given, **named)

        return call

    crosswalk = counted("crosswalk", geography.read_crosswalk)
    for module in (plan_basis, release_folder):
        monkeypatch.setattr(module, "read_crosswalk", crosswalk)
    monkeypatch.setattr(manifest, "read", counted("manifest", manifest.read))
    monkeypatch.setattr(plans, "_build", counted("plan", plans._build))
    return seen


def test_a_release_parses_its_crosswalk_once(tiny, tmp_path, reads):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    out, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    assert run("release", tiny, "--to", out, "--ledger", ledger, "--quiet").status == 0
    assert reads["crosswalk"] == 1
    assert reads["manifest"] <= 3  # to begin estimating, to tell its work apart, and when it ends
    assert reads["plan"] <= 3  # the plan file, and the published plan before and after
    reads.clear()
    assert run("report", out, "--ledger", ledger, "--quiet").status == 0
    assert reads["crosswalk"] == 1
    assert reads["manifest"] <= 3  # and once more under the lock, and when the page is in
    assert reads["plan"] <= 3  # its slider shows other budgets of the plan, not other plans
    reads.clear()
    assert run("verify", out, "--ledger", ledger).status == 0
    assert (reads["crosswalk"], reads["manifest"], reads["plan"]) == (1, 1, 1)


def test_comparing_plans_of_the_same_places_parses_their_crosswalk_once(tiny, reads):
    other = tiny.with_name("other.toml")
    other.write_text(TINY_PLAN.replace('rho = "2"', 'rho = "4"'))
    assert other.read_text() != TINY_PLAN
    assert run("compare", tiny, other).status == 0
    assert (reads["crosswalk"], reads["plan"]) == (1, 2)


def test_a_plan_and_a_release_fit_a_line(tiny, tmp_path):
    from countveil import Plan, Release, Seeded, pipeline

    plan = Plan.load(tiny)
    pipeline.release(plan, to=tmp_path / "out", rng=Seeded(1))
    assert len(repr(plan)) < 200
    assert len(repr(Release.read(tmp_path / "out"))) < 250
