"""Estimates inside a release: made with it, made again, checked, and never charged for."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from tests.conftest import TINY_PLAN, restate, run, standing_still

from countveil import Ledger, Release, Secure, pipeline, published_estimates
from countveil.errors import InfeasibleError, InputError, Interrupted, VerificationError
from countveil.plan.plans import Plan
from countveil.postprocess import topdown
from countveil.publish import status_of

MORE = """
[[invariants]]
level = "region"
query = "TOTAL"
reason = "known"
[postprocess]
method = "top-down"
tables = ["AGE", "TOTAL"]
microdata = true
"""

pytestmark = pytest.mark.usefixtures("short_rehearsal")


@pytest.fixture
def plan(tiny: Path) -> Path:
    tiny.write_text(TINY_PLAN + MORE)
    return tiny


@pytest.fixture
def out(plan: Path) -> Path:
    folder = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=folder, rng=Secure())
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_release_holds_its_estimates_and_verifies(out, plan):
    assert sorted(tree(out)) == [
        "estimates/area.parquet",
        "estimates/region.parquet",
        "geography.parquet",
        "invariants/region.parquet",
        "manifest.json",
        "measurements/area.parquet",
        "measurements/region.parquet",
        "microdata.parquet",
        "tables/AGE.csv",
        "tables/AGE.parquet",
        "tables/TOTAL.csv",
        "tables/TOTAL.parquet",
        "tables/codebook.csv",
        "tables/codebook.md",
    ]
    checks = Release.read(out).verify(plan.parent / "ledger.sqlite").checks
    assert checks[4].startswith(
        "the estimates of 2 levels are whole numbers, add up and agree with the public facts"
    )
    assert checks[5] == "7 files of tables and microdata match the estimates"


def test_the_manifest_holds_the_certificate(out):
    stated = json.loads((out / "manifest.json").read_text())["estimates"]
    assert stated["method"] == "top-down"
    assert [item["level"] for item in stated["certificate"]] == ["region", "area"]
    for item in stated["certificate"]:
        assert set(item) >= {
            "kkt_residual",
            "consistency_gap",
            "objective",
            "iterations",
            "fallbacks",
        }
        assert 0 <= item["kkt_residual"] <= 1e-9


def test_published_estimates_read_back_as_tables(out):
    table = Release.read(out).estimates.table("region", "TOTAL").to_pandas()
    assert table.set_index("geocode")["estimate"].to_dict() == {"R1": 4, "R2": 4}  # invariant


def test_the_error_report_is_internal(out):
    report = (out.parent / "out-internal" / "error-report.md").read_text()
    assert "INTERNAL" in report.splitlines()[0]
    assert not list(out.rglob("error*"))


def test_releasing_again_changes_nothing(out, plan):
    before = tree(out)
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    assert tree(out) == before


def test_other_post_processing_uses_the_same_measurements_and_charges_nothing(out, plan):
    before = tree(out)
    plan.write_text(plan.read_text() + '[postprocess.levels."*"]\nrounding = "cells"\n')
    loaded = Plan.load(plan)
    pipeline.release(loaded, to=out, rng=Secure())
    after = tree(out)
    assert {k: v for k, v in before.items() if k.startswith("measure")} == {
        k: v for k, v in after.items() if k.startswith("measure")
    }
    release = Release.read(out)
    release.verify(plan.parent / "ledger.sqlite")
    assert release.plan.passes["area"].rounding == "cells"
    assert len(loaded.ledger().charges()) == 1


def test_a_plan_without_tables_takes_the_old_ones_away(out, plan):
    plan.write_text(plan.read_text().replace('tables = ["AGE", "TOTAL"]\nmicrodata = true\n', ""))
    pipeline.make_estimates(out, Plan.load(plan))
    names = tree(out)
    assert "microdata.parquet" not in names
    assert not [name for name in names if name.startswith("tables/AGE")]
    Release.read(out).verify()


def test_a_plan_that_measures_something_else_is_refused(out, plan):
    plan.write_text(plan.read_text().replace('rho = "2"', 'rho = "3"'))
    with pytest.raises(InputError, match="may differ only in \\[postprocess\\]"):
        pipeline.make_estimates(out, Plan.load(plan))


def test_estimates_are_a_function_of_the_published_folder(out, tmp_path):
    """Whoever has the folder makes the same tables from it, without the internal one."""
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(out, copy)
    release = json.loads((copy / "manifest.json").read_text())
    for name in [name for name in release["files"] if name.startswith(("estimates", "tables"))]:
        (copy / name).unlink()
        del release["files"][name]
    (copy / "microdata.parquet").unlink()
    del release["files"]["microdata.parquet"]
    del release["estimates"]
    (copy / "manifest.json").write_text(json.dumps(release))
    with pytest.raises(VerificationError, match="the estimates are missing; finish with"):
        Release.read(copy).verify()
    pipeline.make_estimates(copy)
    before, after = tree(out), tree(copy)
    assert before.keys() == after.keys()
    assert {k for k in before if before[k] != after[k]} <= {"manifest.json"}
    assert json.loads(before["manifest.json"]) == json.loads(after["manifest.json"])


def test_estimates_that_do_not_add_up_fail_verification(out):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = out / "estimates" / "area.parquet"
    table = pq.read_table(path)
    more = pc.add(table["estimate"], 1).cast("int32")
    position = table.schema.get_field_index("estimate")
    table = table.set_column(position, table.schema.field("estimate"), more)
    pq.write_table(table, path)
    restate(out, "estimates/area.parquet")
    with pytest.raises(VerificationError, match="are not the sum of its parts"):
        Release.read(out).verify()


def test_a_certificate_that_does_not_hold_fails_verification(out):
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["estimates"]["certificate"][0]["kkt_residual"] = 1e-3
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(VerificationError, match="certificate of the estimates is incomplete"):
        Release.read(out).verify()


def test_a_stated_gap_beyond_the_limit_fails_verification(out):
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["estimates"]["certificate"][0]["consistency_gap"] = 5.0
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(VerificationError, match="certificate of the estimates is incomplete"):
        Release.read(out).verify()


def test_a_stop_while_estimating_keeps_the_measurements(plan, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    out = plan.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(topdown.DescentJob, "run", stopped)
        with pytest.raises(Interrupted, match="the measurements are safe"):
            pipeline.release(Plan.load(plan), to=out, rng=Secure())
    measured = {k: v for k, v in tree(out).items() if k.startswith("measure")}
    with pytest.raises(VerificationError, match="the estimates are missing"):
        Release.read(out).verify()
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    assert measured == {k: v for k, v in tree(out).items() if k.startswith("measure")}
    Release.read(out).verify(plan.parent / "ledger.sqlite")
    assert len(Plan.load(plan).ledger().charges()) == 1


CONSTRAINT = (
    '[[constraints]]\nlevel = "area"\nquery = "AGE"\npath = "facts.csv"\nreason = "known"\n'
)


def test_a_stop_after_the_last_file_leaves_nothing_and_counts_as_released(plan, monkeypatch):
    def killed(path):
        raise KeyboardInterrupt

    to = plan.parent / "out"
    monkeypatch.setattr(published_estimates, "_tidy", killed)
    with pytest.raises(Interrupted):
        pipeline.release(Plan.load(plan), to=to, rng=Secure())
    monkeypatch.undo()
    before = tree(to)
    assert (plan.parent / "out-internal" / "estimates").is_dir()
    pipeline.release(Plan.load(plan), to=to, rng=Secure())
    assert tree(to) == before
    assert not (plan.parent / "out-internal" / "estimates").exists()
    assert status_of(to).state == "released"


def test_constraints_travel_with_the_release(plan, tmp_path):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,2\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    out = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    (plan.parent / "facts.csv").unlink()
    release = Release.read(out)
    release.verify()
    assert (out / "constraints" / "00-path.csv").exists()
    table = release.estimates.table("area", "AGE").to_pandas().set_index(["geocode", "AGE"])
    assert table.loc[("A3", "young"), "estimate"] == 2
    (out / "tables" / "AGE.csv").unlink()
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["estimates"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    pipeline.make_estimates(out)  # from the folder alone
    Release.read(out).verify()


def full(*arguments, **options):
    raise OSError(28, "No space left on device")


def test_a_stop_while_publishing_leaves_the_facts(plan, monkeypatch):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,2\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    out = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    (plan.parent / "facts.csv").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("countveil.publish.additions.write_estimate_files", full)
        with pytest.raises(Interrupted, match="continue with `countveil postprocess .*`"):
            pipeline.make_estimates(out)
    pipeline.make_estimates(out)  # it does
    Release.read(out).verify(plan.parent / "ledger.sqlite")


def test_facts_of_a_plan_that_was_given_up_leave_nothing(plan, monkeypatch):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,2\n")
    (plan.parent / "more.csv").write_text("area,AGE,at_most\nA1,old,100\n")
    before = plan.read_text() + CONSTRAINT
    plan.write_text(before)
    out = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    plan.write_text(before + CONSTRAINT.replace("facts", "more"))
    with monkeypatch.context() as patch:
        patch.setattr("countveil.publish.additions.manifest.list_files", full)
        with pytest.raises(Interrupted):
            pipeline.make_estimates(out, Plan.load(plan))
    plan.write_text(before)
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    Release.read(out).verify(plan.parent / "ledger.sqlite")
    assert [path.name for path in (out / "constraints").iterdir()] == ["00-path.csv"]


def test_changed_facts_make_the_estimates_again(plan):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,2\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    out = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,1\n")
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    table = Release.read(out).estimates.table("area", "AGE").to_pandas()
    assert table.set_index(["geocode", "AGE"]).loc[("A3", "young"), "estimate"] == 1


@pytest.mark.parametrize("name", ["measurements/area.parquet", "constraints/00-path.csv"])
@pytest.mark.parametrize("how", ["gone", "cut short"])
def test_nothing_is_estimated_from_what_is_not_as_released(plan, name, how):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,2\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    out = plan.parent / "out"
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    content = (out / name).read_bytes()
    (out / name).unlink()
    if how == "cut short":
        (out / name).write_bytes(content[:-3])
    ran = run("postprocess", out, "--quiet")
    assert ran.status == 2
    assert f"{name} {'is listed in' if how == 'gone' else 'changed since'}" in ran.err


@pytest.mark.parametrize("key", ["release", "measurements", "levels", "files"])
def test_a_manifest_without_its_parts_is_refused(out, key):
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest[key]
    (out / "manifest.json").write_text(json.dumps(manifest))
    ran = run("postprocess", out, "--quiet")
    assert ran.status == 2, ran.err
    assert f"'{key}' is missing or invalid in manifest.json" in ran.err


def test_estimates_that_cannot_be_replaced_keep_their_error_report(out, plan):
    (plan.parent / "facts.csv").write_text("area,AGE,at_least\nA3,young,50\n")
    other = plan.with_name("other.toml")
    other.write_text(plan.read_text() + CONSTRAINT)
    with pytest.raises(Interrupted):
        pipeline.make_estimates(out, Plan.load(other))
    assert (out.parent / "out-internal" / "error-report.md").exists()
    Release.read(out).verify()


def test_a_number_of_thousands_of_digits_is_refused(plan):
    (plan.parent / "facts.csv").write_text(f"area,AGE,at_least\nA3,young,{'9' * 5000}\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    ran = run("check", plan)
    assert ran.status == 2
    assert "at_least = '99999999999999999999'; it must be a whole number of 0 or more" in ran.err


def test_a_fact_beside_a_structural_zero_is_refused_before_anything_is_spent(plan):
    (plan.parent / "facts.csv").write_text("area,AGE,exactly\nA3,young,5\n")
    zero = '[[structural_zeros]]\ncells = { AGE = ["young"] }\nreason = "nobody"\n'
    plan.write_text(plan.read_text() + zero + CONSTRAINT)
    with pytest.raises(InfeasibleError, match="no cell is open to them"):
        pipeline.release(Plan.load(plan), to=plan.parent / "out", rng=Secure())
    assert not (plan.parent / "ledger.sqlite").exists()


def test_contradictions_are_refused_before_anything_is_spent(plan):
    (plan.parent / "facts.csv").write_text("area,AGE,at_least,at_most\nA3,young,2,1\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    with pytest.raises(InfeasibleError, match="area A3: AGE = young must be at least 2"):
        pipeline.release(Plan.load(plan), to=plan.parent / "out", rng=Secure())
    assert not (plan.parent / "out").exists()
    assert not (plan.parent / "ledger.sqlite").exists()
    assert run("check", plan).status == 2


def test_facts_that_declared_counts_break_are_refused_before_the_charge(plan):
    (plan.parent / "facts.csv").write_text("area,AGE,at_least\nA3,young,50\n")
    before = plan.read_text()
    plan.write_text(before + CONSTRAINT)
    ran = run("release", plan, "--to", "out", "--quiet", cwd=plan.parent)
    assert ran.status == 2
    assert "needs at least 50 people in AGE = young" in ran.err
    assert not (plan.parent / "ledger.sqlite").exists()


def test_wrong_facts_are_named_after_the_charge_and_can_be_corrected(plan):
    before = plan.read_text()
    assert run("release", plan, "--to", "out", "--quiet", cwd=plan.parent).status == 0
    (plan.parent / "facts.csv").write_text("area,AGE,at_least\nA3,young,50\n")
    plan.write_text(before + CONSTRAINT)
    ran = run("postprocess", "out", "--plan", plan, "--quiet", cwd=plan.parent)
    assert ran.status == 3  # charged, and nothing is lost
    assert "needs at least 50 people in AGE = young" in ran.err
    assert "the measurements are safe; continue with `countveil postprocess out`" in ran.err
    plan.write_text(before)
    ran = run("postprocess", "out", "--plan", plan, "--quiet", cwd=plan.parent)
    assert ran.status == 0, ran.err
    Release.read(plan.parent / "out").verify(plan.parent / "ledger.sqlite")


def test_a_release_that_cannot_be_estimated_is_finished_without_estimates(plan):
    from countveil import measure, open_engine

    (plan.parent / "facts.csv").write_text("area,AGE,at_least\nA3,young,50\n")
    plan.write_text(plan.read_text() + CONSTRAINT)
    loaded, out = Plan.load(plan), plan.parent / "out"
    counts = open_engine("local").tabulate(loaded)
    ledger = loaded.ledger_path
    measure.take(counts, loaded, rng=Secure(), ledger=ledger, to=out, check=lambda *_: None)
    with pytest.raises(
        Interrupted, match='and a --plan with other constraints, or with method = "none"'
    ):
        pipeline.release(loaded, to=out, rng=Secure())
    with pytest.raises(Interrupted, match="needs at least 50 people"):
        pipeline.make_estimates(out)  # from the folder alone: the files of facts are there
    plan.write_text(plan.read_text().replace('"top-down"', '"none"'))
    assert run("release", plan, "--to", out, "--quiet").status == 0
    Release.read(out).verify(plan.parent / "ledger.sqlite")
    assert not (out / "estimates").exists() or not list((out / "estimates").iterdir())


def test_facts_of_several_queries_are_held_against_each_other_before_anything_is_spent(plan):
    (plan.parent / "facts.csv").write_text("area,AGE,at_least\nA3,young,3\nA3,old,4\n")
    (plan.parent / "totals.csv").write_text("area,exactly\nA3,5\n")
    more = CONSTRAINT + CONSTRAINT.replace('"AGE"', '"TOTAL"').replace("facts", "totals")
    plan.write_text(plan.read_text() + more)
    with pytest.raises(InfeasibleError, match="A3"):
        pipeline.release(Plan.load(plan), to=plan.parent / "out", rng=Secure())
    assert not (plan.parent / "ledger.sqlite").exists()


def test_a_missing_file_of_facts_stops_before_the_charge(plan):
    from countveil import measure, open_engine

    plan.write_text(plan.read_text() + CONSTRAINT)
    loaded = Plan.load(plan)
    counts = open_engine("local").tabulate(loaded)
    with pytest.raises(InputError, match="facts.csv: no such file, but a constraint of the plan"):
        measure.take(
            counts,
            loaded,
            rng=Secure(),
            ledger=loaded.ledger_path,
            to=plan.parent / "out",
            check=lambda *_: None,
        )
    assert not loaded.ledger_path.exists()


def test_the_error_report_is_of_the_estimates_that_are_there(out, plan):
    report = out.parent / "out-internal" / "error-report.md"
    pipeline.make_estimates(out)  # no counts at hand
    assert not report.exists()
    pipeline.release(Plan.load(plan), to=out, rng=Secure())
    assert report.exists()


def test_releasing_says_that_tables_were_made_again(out, plan):
    assert "already released; nothing" in run("release", plan, "--to", out, "--quiet").out
    plan.write_text(plan.read_text() + '[postprocess.levels."*"]\nrounding = "cells"\n')
    ran = run("release", plan, "--to", out, "--quiet")
    assert "already measured; its tables were made again, nothing was charged" in ran.out


def test_the_command_shows_how_well_it_was_solved(out):
    ran = run("postprocess", out, "--quiet")
    assert ran.status == 0
    assert "worst residual" in ran.out
    ran = run("postprocess", out, "--json")
    assert [item["level"] for item in ran.document()["estimates"]["certificate"]] == [
        "region",
        "area",
    ]


def test_a_plan_without_estimates_says_how_to_ask_for_them(tiny):
    run("release", tiny, "--to", tiny.parent / "out", "--quiet")
    ran = run("postprocess", tiny.parent / "out")
    assert ran.status == 0
    assert 'method = "top-down"' in ran.out


def test_post_processing_reads_no_record(out, plan):
    (plan.parent / "people.csv").unlink()
    plan.write_text(plan.read_text() + '[postprocess.levels."*"]\nrounding = "unbiased"\n')
    ran = run("postprocess", out, "--plan", plan, "--quiet")
    assert ran.status == 0, ran.err
    Release.read(out).verify(plan.parent / "ledger.sqlite")


def test_a_killed_estimation_is_finished_by_the_same_command(tmp_path):
    """SIGKILL while estimating: whatever it had written, the same command ends in a good release."""
    assert run("init", tmp_path / "start", "--people", "3000").status == 0
    plan = tmp_path / "start" / "plan.toml"
    out = tmp_path / "start" / "out"
    command = ["release", plan, "--to", out, "--quiet"]
    with standing_still("estimating", "countveil", *command) as process:
        process.send_signal(signal.SIGKILL)
    assert status_of(out).state == "estimating"
    ran = run("release", plan, "--to", out, "--quiet")
    assert ran.status == 0, ran.err
    Release.read(out).verify(tmp_path / "start-ledger.sqlite")
    assert isinstance(Plan.load(plan).ledger(), Ledger)
    assert len(Plan.load(plan).ledger().charges()) == 1
