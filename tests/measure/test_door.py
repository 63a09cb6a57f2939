"""The door: all cells get noise, once; nothing of the records passes but through it."""

import json
import os
import re
import shutil
import stat
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats
from tests.conftest import TINY_PEOPLE, TINY_PLAN, parts_of, write_people

import countveil
from countveil import Ledger, Release, Secure, Seeded, measure, open_engine, pipeline
from countveil.errors import FolderError, InfeasibleError, InputError, Interrupted, LedgerError
from countveil.measure import door, draw_tasks
from countveil.measure.batch_sizes import BatchSizes
from countveil.plan.plans import Plan

INVARIANT = '[[invariants]]\nlevel = "region"\nquery = "AGE"\nreason = "known"\n'


def tabulated(path: Path):
    plan = Plan.load(path)
    return open_engine("local").tabulate(plan), plan


SMALL = BatchSizes(values_to_draw=14)


def taken(path: Path, out: str = "out", rng=None, **options):
    counts, plan = tabulated(path)
    folder = path.parent
    return measure.take(
        counts,
        plan,
        rng=rng or Secure(),
        ledger=folder / "ledger.sqlite",
        to=folder / out,
        **options,
    )


def stop_before_publishing(monkeypatch):
    def full(*arguments):
        raise OSError(5, "I/O error")

    monkeypatch.setattr(door, "_publish", full)


def test_every_cell_of_every_unit_is_measured_empty_ones_included(tiny):
    measurements = taken(tiny)
    for level, units in (("region", 2), ("area", 5)):
        for query, cells in (("TOTAL", 1), ("AGE*SEX", 6)):
            measurement = measurements.read(level, query)
            assert measurement.values.shape == (units, cells)
    assert measurements.read("area", "TOTAL").geocodes.to_pylist() == ["A1", "A2", "A3", "A4", "A5"]


def test_values_are_counts_plus_noise_of_the_stated_law(tiny):
    counts, plan = tabulated(tiny)
    residuals = []
    for seed in range(80):
        out = tiny.parent / f"o{seed}"
        measurement = measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=out).read(
            "area", "AGE*SEX"
        )
        exact = np.zeros((5, 6), int)
        for area, age, sex in TINY_PEOPLE:
            exact[
                int(area[1]) - 1, ["young", "old"].index(age) * 3 + ["f", "m", "x"].index(sex)
            ] += 1
        residuals.append(measurement.values - exact)
        shutil.rmtree(out)
        shutil.rmtree(tiny.parent / f"o{seed}-internal")
    law = measurement.mechanism
    e = np.concatenate(residuals).ravel()
    k = np.arange(-3, 4)
    observed = np.array([(e == x).sum() for x in k])
    expected = np.exp(law.log_pmf(k)) * len(e)
    assert stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(k)) > 1e-6
    spread = np.array(residuals).std(axis=0)
    assert spread == pytest.approx(np.full((5, 6), law.variance**0.5), rel=0.5)


def test_measurements_open_directly_in_pandas_polars_and_duckdb(tiny):
    taken(tiny)
    path = str(tiny.parent / "out" / "measurements" / "area.parquet")
    columns = ["geocode", "query", "values", "variance"]
    assert list(pd.read_parquet(path).columns) == columns
    assert pl.read_parquet(path).columns == columns
    rows = duckdb.sql(f"SELECT * FROM '{path}' WHERE query = 'AGE*SEX' ORDER BY geocode").fetchall()
    assert len(rows) == 5
    assert len(rows[0][2]) == 6
    assert rows[0][3] > 0


def test_streaming_yields_whole_families(tiny):
    measurements = taken(tiny, sizes=SMALL)
    batches = list(measurements.stream("area"))
    assert [batch["TOTAL"].geocodes.to_pylist() for batch in batches] == [
        ["A1", "A2"],
        ["A3", "A4", "A5"],
    ]
    whole = np.concatenate([batch["AGE*SEX"].values for batch in batches])
    assert (whole == measurements.read("area", "AGE*SEX").values).all()


def test_seeded_measurements_do_not_depend_on_batching(tiny):
    one = taken(tiny, "one", rng=Seeded(7)).read("area", "AGE*SEX").values
    counts, plan = tabulated(tiny)
    two = measure.take(
        counts, plan, rng=Seeded(7), ledger=None, to=tiny.parent / "two", sizes=SMALL
    )
    assert (one == two.read("area", "AGE*SEX").values).all()


def test_the_charge_is_the_plans_cost_and_is_made_once(tiny):
    taken(tiny)
    taken(tiny)
    plan = Plan.load(tiny)
    ledger = plan.ledger(tiny.parent / "ledger.sqlite")
    assert [line.cost for line in ledger.charges()] == [plan.cost]


def test_running_again_keeps_every_byte(tiny):
    taken(tiny)
    out = tiny.parent / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    taken(tiny)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_another_plan_other_records_or_other_randomness_are_refused(tiny):
    taken(tiny)
    write_people(tiny.parent / "people.csv", TINY_PEOPLE[1:])
    with pytest.raises(FolderError, match="was started with other records"):
        taken(tiny)
    write_people(tiny.parent / "people.csv", TINY_PEOPLE[::-1])
    taken(tiny)  # the same people in another order are the same records
    with pytest.raises(FolderError, match="was started with other randomness"):
        taken(tiny, rng=Seeded(1))
    tiny.write_text(TINY_PLAN.replace("Tiny", "Tinier"))
    with pytest.raises(FolderError, match="was started with another plan"):
        taken(tiny)
    tiny.write_text(TINY_PLAN)
    (tiny.parent / "places.csv").write_text("area,region\nA1,R1\nA2,R1\nA3,R2\nA4,R2\nA5,R2\n")
    with pytest.raises(FolderError, match="was started with another crosswalk"):
        taken(tiny)
    assert len(Plan.load(tiny).ledger(tiny.parent / "ledger.sqlite").charges()) == 1


def test_folders_that_hold_something_else_are_refused(tiny):
    out = tiny.parent / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="has other files in it; name a new or empty folder"):
        taken(tiny)
    assert not (tiny.parent / "out-internal").exists()
    assert not (tiny.parent / "ledger.sqlite").exists()


def test_what_a_run_leaves_that_was_killed_before_it_had_an_identity_is_no_hindrance(tiny):
    internal = tiny.parent / "out-internal"
    for folder in (internal, tiny.parent / "out"):
        folder.mkdir()
        (folder / ".countveil-temporary-1-run.json").write_bytes(b"torn")
    (internal / "lock").touch()
    taken(tiny)
    assert not list(tiny.parent.rglob(".countveil-temporary-*"))
    Release.read(tiny.parent / "out").verify(tiny.parent / "ledger.sqlite")
    other = tiny.parent / "other-internal"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="other-internal: has other files in it"):
        taken(tiny, "other")


def test_a_refused_charge_writes_nothing(tiny):
    taken(tiny, "first")
    tiny.write_text(TINY_PLAN.replace("Tiny", "Tiny, again") + '[ledger]\ntotal = "2"\n')
    text = tiny.read_text().replace(
        'neighbors = "change-one"', 'neighbors = "change-one"\ndataset = "Tiny"'
    )
    tiny.write_text(text)
    with pytest.raises(LedgerError, match="only rho = 0 is left"):
        taken(tiny, "second")
    assert not (tiny.parent / "second").exists()
    assert not (tiny.parent / "second-internal").exists()


def test_a_release_needs_a_ledger_and_a_simulation_does_not(tiny):
    counts, plan = tabulated(tiny)
    with pytest.raises(InputError, match="ledger: missing; a release is charged to one"):
        measure.take(counts, plan, rng=Secure(), ledger=None, to=tiny.parent / "out")
    measure.take(counts, plan, rng=Seeded(1), ledger=None, to=tiny.parent / "out")


TABLES = '[postprocess]\nmethod = "top-down"\n'
IMPOSSIBLE = (
    '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
    '[[constraints]]\nlevel = "area"\nquery = "SEX"\npath = "facts.csv"\nreason = "known"\n'
)


def test_a_plan_whose_tables_cannot_be_made_is_not_charged_by_any_door(tiny):
    """More people must be in an area than its region has, which is public."""
    tiny.write_text(TINY_PLAN + TABLES + IMPOSSIBLE)
    (tiny.parent / "facts.csv").write_text("area,SEX,at_least\nA1,f,50\n")
    counts, plan = tabulated(tiny)
    before = sorted(tiny.parent.rglob("*"))
    to, ledger = tiny.parent / "out", tiny.parent / "ledger.sqlite"
    with pytest.raises(InfeasibleError, match="needs at least 50 people"):
        countveil.release(plan, to=to, rng=Secure(), ledger=ledger)
    with pytest.raises(
        InputError, match=r"use countveil\.release, which finds out before it charges"
    ):
        measure.take(counts, plan, rng=Secure(), ledger=ledger, to=to)
    check = pipeline.refuse_unfinishable
    with pytest.raises(InfeasibleError, match="needs at least 50 people"):
        measure.take(counts, plan, rng=Secure(), ledger=ledger, to=to, check=check)
    assert sorted(tiny.parent.rglob("*")) == before, "nothing was charged or written"


def test_a_check_sees_what_will_be_public_once_and_before_the_charge(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + TABLES + INVARIANT + '[ledger]\ntotal = "4"\n')
    seen = []

    def check(plan, known):
        assert len(plan.ledger(tiny.parent / "ledger.sqlite").charges()) == len(seen)
        seen.append(known.invariant("region", "AGE").tolist())

    with monkeypatch.context() as patch:
        stop_before_publishing(patch)
        with pytest.raises(Interrupted):
            taken(tiny, check=check)
        assert seen == [[[1, 3], [2, 2]]]
        with pytest.raises(Interrupted):
            taken(tiny, check=check)
        assert len(seen) == 1, "it was charged"
    taken(tiny, check=check, restart=measure.Restart(charge_again=True))
    assert len(seen) == 2, "a restart is another charge"


def test_counts_of_another_plan_are_refused(tiny):
    counts, _ = tabulated(tiny)
    for old, new in (
        ('"x"]', '"x", "y"]'),
        ('["f", "m", "x"]', '["m", "f", "x"]'),
        ("one_row_per_person = true", 'person_id = "SEX"\nmax_rows = 2'),
    ):
        tiny.write_text(TINY_PLAN.replace(old, new))
        with pytest.raises(InputError, match="tabulated for another plan"):
            measure.take(
                counts, Plan.load(tiny), rng=Secure(), ledger="l.sqlite", to=tiny.parent / "out"
            )


def test_only_one_process_releases_into_a_folder(tiny, monkeypatch):
    from countveil.base import storage

    taken(tiny)
    with (
        storage.held(tiny.parent / "out-internal" / "lock"),
        pytest.raises(FolderError, match="another process is releasing into this folder"),
    ):
        taken(tiny)


def test_a_full_disk_after_the_charge_is_resumable(tiny, monkeypatch):
    from countveil.base import storage

    real, calls = storage.sync, []

    def full(path: Path) -> None:
        calls.append(path)
        if len(calls) > 12:
            raise OSError(28, "No space left on device")
        real(path)

    monkeypatch.setattr(storage, "sync", full)
    with pytest.raises(
        Interrupted, match="No space left on device.*run the same command again to resume"
    ):
        taken(tiny)
    kept = {p.name for p in parts_of(tiny.parent / "out").glob("*.parquet")}
    assert kept, "the disk filled after the first parts"
    monkeypatch.setattr(storage, "sync", real)
    measurements = taken(tiny)
    assert len(Plan.load(tiny).ledger(tiny.parent / "ledger.sqlite").charges()) == 1
    assert measurements.read("area", "TOTAL").values.shape == (5, 1)
    assert Release.read(tiny.parent / "out").verify(tiny.parent / "ledger.sqlite")


def test_a_part_that_changed_since_it_was_drawn_is_refused(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    part = next(parts_of(tiny.parent / "out").glob("area.*.parquet"))
    data = bytearray(part.read_bytes())
    data[40] ^= 1
    part.write_bytes(data)
    with pytest.raises(Interrupted, match="changed since it was drawn.*the charge stands"):
        taken(tiny)


def test_temporary_files_of_a_killed_run_are_never_read(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    parts = parts_of(tiny.parent / "out")
    (parts / ".countveil-temporary-1-area.000000.x.parquet").write_bytes(b"torn")
    (tiny.parent / "out" / "measurements").mkdir(parents=True, exist_ok=True)
    torn = tiny.parent / "out" / "measurements" / ".countveil-temporary-1-area.parquet"
    torn.write_bytes(b"torn")
    taken(tiny)
    assert not torn.exists()
    assert Release.read(tiny.parent / "out").verify()


def test_a_manifest_of_something_else_does_not_end_a_run(tiny, monkeypatch):
    """Else the parts would be deleted, as if a release held them."""
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    manifest = tiny.parent / "out" / "manifest.json"
    manifest.parent.mkdir(exist_ok=True)
    kept = {path.name for path in parts_of(tiny.parent / "out").iterdir()}
    for text in ('{"release": "1.2", "name": "other"}', "torn", "[]", "[" * 10_000):
        manifest.write_text(text)
        with pytest.raises(
            FolderError, match="belongs to another release than the one started here"
        ):
            taken(tiny)
    assert {path.name for path in parts_of(tiny.parent / "out").iterdir()} == kept
    manifest.unlink()
    taken(tiny)
    assert Release.read(tiny.parent / "out").verify(tiny.parent / "ledger.sqlite")


def test_a_finished_release_is_not_drawn_again_when_its_files_are_gone(tiny):
    taken(tiny)
    shutil.rmtree(tiny.parent / "out")
    with pytest.raises(
        FolderError, match="would be a second draw; restore them, or name a new folder"
    ):
        taken(tiny)
    assert not (tiny.parent / "out").exists()


def test_another_order_of_queries_is_another_plan(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    lines = 'TOTAL = "1/4"\n"AGE*SEX" = "3/4"\n'
    assert lines in TINY_PLAN
    tiny.write_text(TINY_PLAN.replace(lines, '"AGE*SEX" = "3/4"\nTOTAL = "1/4"\n'))
    with pytest.raises(FolderError, match="was started with another plan"):
        taken(tiny)


def test_files_whose_queries_are_in_another_order_are_not_read_by_position(tiny):
    measurements = taken(tiny)
    path = tiny.parent / "out" / "measurements" / "area.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take(list(range(9, -1, -1))), path)
    with pytest.raises(InputError, match="not those of the plan, in order"):
        list(measurements.stream("area"))


def test_a_variance_that_is_not_the_laws_is_refused(tiny):
    measurements = taken(tiny)
    path = tiny.parent / "out" / "measurements" / "area.parquet"
    table = pq.read_table(path)
    smaller = pa.array([v.as_py() / 2 for v in table["variance"]])
    pq.write_table(table.set_column(3, table.schema.field(3), smaller), path)
    with pytest.raises(InputError, match="queries or variances are not those of the plan"):
        list(measurements.stream("area"))


def test_a_simulation_that_stops_is_not_said_to_be_charged(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    counts, plan = tabulated(tiny)
    with pytest.raises(OSError, match="I/O error"):
        measure.take(counts, plan, rng=Seeded(1), ledger=None, to=tiny.parent / "out")


def test_parts_of_another_size_are_not_mixed(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    with pytest.raises(FolderError, match="was started with another version of countveil"):
        taken(tiny, sizes=SMALL)


def test_level_names_that_contain_each_other_keep_their_parts_apart(tiny):
    text = TINY_PLAN.replace('"region", "area"', '"x-000000", "x"')
    text = text.replace('region = "1/2"\narea = "1/2"', 'x-000000 = "1/2"\nx = "1/2"')
    tiny.write_text(
        text.replace("one_row_per_person", 'columns = { x = "area" }\none_row_per_person')
    )
    (tiny.parent / "places.csv").write_text("x-000000,x\nR1,A1\nR1,A2\nR2,A3\nR2,A4\nR2,A5\n")
    measurements = taken(tiny)
    assert measurements.read("x", "TOTAL").geocodes.to_pylist() == ["A1", "A2", "A3", "A4", "A5"]


def test_a_run_that_another_process_began_meanwhile_is_seen(tiny, monkeypatch):
    """The state is read under the lock: what was there before it may be old."""
    from countveil.base import storage

    real = storage.held
    began = []

    def late(path: Path):
        if not began:
            began.append(path)
            taken(tiny)  # another process begins, charges and finishes first
        return real(path)

    monkeypatch.setattr(storage, "held", late)
    taken(tiny)
    assert len(Plan.load(tiny).ledger(tiny.parent / "ledger.sqlite").charges()) == 1


def test_folders_are_durable_in_their_parents(tiny, monkeypatch):
    from countveil.base import storage

    synced = []
    real = storage.sync
    monkeypatch.setattr(storage, "sync", lambda path: synced.append(Path(path)) or real(path))
    taken(tiny, "deep/er/out")
    for folder in ("deep", "deep/er"):
        assert tiny.parent / folder in synced
    assert tiny.parent in synced


def test_folders_that_cannot_be_made_are_refused_before_the_charge(tiny):
    (tiny.parent / "file").write_text("x")
    for name in ("file/out", "x" * 300):
        with pytest.raises(FolderError, match="cannot be created"):
            taken(tiny, name)
    assert not (tiny.parent / "ledger.sqlite").exists()


def test_a_folder_that_takes_no_files_is_refused_before_the_charge(tiny, monkeypatch):
    (tiny.parent / "out").mkdir()

    def refused(path, *rest, **options):
        if path.parent.name == "out":
            raise OSError(30, "Read-only file system", str(path))
        return real(path, *rest, **options)

    real = Path.touch
    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(FolderError, match="cannot be created or written to .Read-only file system"):
        taken(tiny)
    assert not (tiny.parent / "ledger.sqlite").exists()


def test_a_file_system_without_hard_links_is_refused_before_the_charge(tiny, monkeypatch):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    before = sorted(tiny.parent.iterdir())
    with pytest.raises(FolderError, match="does not support hard links .Operation not"):
        taken(tiny)
    assert sorted(tiny.parent.iterdir()) == before


@pytest.mark.parametrize("aim", ["elsewhere", "nowhere"])
def test_a_release_folder_that_is_a_link_is_refused(tiny, aim):
    (tiny.parent / "elsewhere").mkdir()
    (tiny.parent / "out").symlink_to(tiny.parent / aim)
    with pytest.raises(FolderError, match="out: is a symbolic link"):
        taken(tiny)
    assert not list((tiny.parent / "elsewhere").iterdir())
    assert not (tiny.parent / "ledger.sqlite").exists()


def test_links_in_the_internal_folder_are_refused(tiny, monkeypatch):
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        taken(tiny)
    monkeypatch.undo()
    (parts_of(tiny.parent / "out") / "more").symlink_to(tiny.parent)
    with pytest.raises(FolderError, match="more: is a symbolic link"):
        taken(tiny)


def test_what_saw_records_is_private_and_what_is_public_is_not_there(tiny):
    taken(tiny)
    internal = tiny.parent / "out-internal"
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700
    names = {path.name for path in (tiny.parent / "out").rglob("*") if path.is_file()}
    assert names == {"manifest.json", "geography.parquet", "region.parquet", "area.parquet"}
    assert list((internal / "parts").iterdir()) == []
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in internal.iterdir()}
    assert {mode for name, mode in modes.items() if name != "parts"} == {0o600}


def test_public_outputs_are_a_function_of_the_measurements(tiny, monkeypatch):
    """Non-interference: the same measurements give the same bytes, whatever the records were."""
    import uuid

    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    tiny.write_text(TINY_PLAN)
    fixed = {}
    real = draw_tasks.draw_measurements

    def draw_measurements(plan, task, rng):
        return fixed.setdefault((task.level, task.number), real(plan, task, rng))

    monkeypatch.setattr(draw_tasks, "draw_measurements", draw_measurements)
    written = []
    for number, people in enumerate([TINY_PEOPLE, TINY_PEOPLE[:1], TINY_PEOPLE * 40]):
        write_people(tiny.parent / "people.csv", people)
        counts, plan = tabulated(tiny)
        out = tiny.parent / f"run{number}" / "out"
        measure.take(counts, plan, rng=Secure(), ledger=tiny.parent / f"l{number}.sqlite", to=out)
        Release.read(out).package(out.parent / "out.zip")
        written.append(
            {
                p.relative_to(out.parent): p.read_bytes()
                for p in out.parent.rglob("*")
                if p.is_file() and "internal" not in str(p)
            }
        )
    assert written[0] == written[1] == written[2]


def test_declared_invariants_are_published_exactly_and_nothing_else_is(tiny):
    tiny.write_text(TINY_PLAN + INVARIANT)
    taken(tiny)
    path = tiny.parent / "out" / "invariants" / "region.parquet"
    rows = duckdb.sql(f"SELECT geocode, query, values, variance FROM '{path}'").fetchall()
    assert rows == [("R1", "AGE", [1, 3], 0.0), ("R2", "AGE", [2, 2], 0.0)]


def test_no_true_count_is_in_logs_reprs_or_manifest(tiny, caplog):
    planted = 7_654_321
    tiny.write_text(TINY_PLAN.replace('path = "people.csv"', 'path = "t.csv"\ncounts = "n"'))
    (tiny.parent / "t.csv").write_text(f"area,AGE,SEX,n\nA1,old,f,{planted}\nA2,old,f,1\n")
    counts, plan = tabulated(tiny)
    measurements = measure.take(
        counts, plan, rng=Secure(), ledger=tiny.parent / "ledger.sqlite", to=tiny.parent / "out"
    )
    texts = [repr(counts), repr(plan), repr(measurements), caplog.text]
    for path in tiny.parent.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".jsonl", ".sqlite"):
            texts.append(path.read_bytes().decode("latin-1"))
    for text in texts:
        for number in re.findall(r"\d+", text):
            assert abs(int(number) - planted) > 1000 or len(number) > 12


def test_the_manifest_says_everything_but_the_records(tiny):
    taken(tiny)
    document = json.loads((tiny.parent / "out" / "manifest.json").read_text())
    assert document["cost"]["rho"] == "2"
    assert document["randomness"].startswith("secure: AES-256-CTR")
    assert document["publishable"] is True
    assert document["plan"]["records"] == {"one_row_per_person": True, "redacted": True}
    noise = document["measurements"][0]
    assert noise["mechanism"] == {"name": "discrete-gaussian", "sigma2": "4"}
    text = json.dumps(document)
    assert "people.csv" not in text
    assert str(tiny.parent) not in text
    assert not re.search(r'"(rows|records_hash|seconds|time|started|host)"', text)


def test_zero_total_ledgers_and_books_can_be_passed(tiny):
    counts, plan = tabulated(tiny)
    book = Ledger(tiny.parent / "own.sqlite", "d", "person", "change-one", plan.cost)
    measure.take(counts, plan, rng=Secure(), ledger=book, to=tiny.parent / "out")
    assert book.left() == type(plan.cost)(0)
