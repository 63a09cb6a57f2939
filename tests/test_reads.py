"""What does not change is read once: crosswalks, manifests, plans and estimates, by each command."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from countveil.engines.local.local_engine import LocalEngine
from countveil.measure import manifest
from countveil.plan import geography, plan_basis, plans
from countveil.publish import release_folder
from tests.conftest import TINY_PLAN, run


@dataclass(frozen=True)
class Reads:
    """How often a command parses each kind of file, or builds a plan from a document."""

    crosswalk: int = 0
    manifest: int = 0
    plan: int = 0
    estimates: int = 0
    records: int = 0


@pytest.fixture
def read_by(monkeypatch):
    """Run a command and return what it reads."""
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
    estimates = counted("estimates", release_folder.read_estimates)
    monkeypatch.setattr(release_folder, "read_estimates", estimates)
    monkeypatch.setattr(LocalEngine, "tabulate", counted("records", LocalEngine.tabulate))

    def reads(*command):
        seen.clear()
        ran = run(*command)
        assert ran.status == 0, ran.err
        return Reads(**seen)

    return reads


@pytest.fixture
def released(tiny, tmp_path):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    out, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    assert run("release", tiny, "--to", out, "--ledger", ledger, "--quiet").status == 0
    return out, ledger


def test_a_release_reads_its_plan_and_its_crosswalk_once(tiny, tmp_path, read_by):
    """The manifest is written in two steps, and read after each and at the end."""
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    out, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    read = read_by("release", tiny, "--to", out, "--ledger", ledger, "--quiet")
    assert read == Reads(crosswalk=1, manifest=3, plan=3, records=1)


@pytest.mark.usefixtures("few_simulations")
def test_a_report_reads_its_release_once(released, read_by):
    """The manifest again under the lock, which shows whether the release changed meanwhile."""
    out, ledger = released
    read = read_by("report", out, "--ledger", ledger, "--quiet")
    assert read == Reads(crosswalk=1, manifest=2, plan=1, estimates=1)


@pytest.mark.usefixtures("few_simulations")
def test_an_internal_report_reads_its_release_its_plan_and_its_records_once(released, read_by):
    """The plan of the release, and the plan file that says where the records are."""
    read = read_by("report", released[0], "--internal", "--quiet")
    assert read == Reads(crosswalk=1, manifest=1, plan=2, estimates=1, records=1)


def test_verifying_reads_a_release_once(released, read_by):
    out, ledger = released
    read = read_by("verify", out, "--ledger", ledger)
    assert read == Reads(crosswalk=1, manifest=1, plan=1, estimates=1)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("presence",), Reads(crosswalk=1, manifest=1, plan=1)),
        (("reconstruction",), Reads(crosswalk=1, manifest=1, plan=1, estimates=1)),
        (("published", "--draws", "400"), Reads(1, 1, 1, estimates=1)),
        (("everyone", "--internal"), Reads(1, 1, 2, estimates=1, records=1)),
        (("loss", "--internal"), Reads(1, 1, 2, estimates=1, records=1)),
        (("homogeneity", "--internal", "--sensitive", "AGE"), Reads(1, 1, 2, 1, 1)),
        (("reconstruction", "--internal"), Reads(1, 1, 2, estimates=0, records=1)),
        (("published", "--internal", "--draws", "400"), Reads(1, 1, 2, records=1)),
        (("map", "--internal"), Reads(1, 1, 2, records=1)),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_lens_reads_what_it_needs_once(command, expected, released, read_by):
    name, *options = command
    assert read_by("assess", name, released[0], *options) == expected


def test_comparing_plans_of_the_same_places_reads_their_crosswalk_once(tiny, read_by):
    other = tiny.with_name("other.toml")
    other.write_text(TINY_PLAN.replace('rho = "2"', 'rho = "4"'))
    assert other.read_text() != TINY_PLAN
    assert read_by("compare", tiny, other) == Reads(crosswalk=1, plan=2)


def test_a_plan_and_a_release_fit_a_line(tiny, tmp_path):
    from countveil import Plan, Release, Seeded, pipeline

    plan = Plan.load(tiny)
    pipeline.release(plan, to=tmp_path / "out", rng=Seeded(1))
    assert len(repr(plan)) < 200
    assert len(repr(Release.read(tmp_path / "out"))) < 250
