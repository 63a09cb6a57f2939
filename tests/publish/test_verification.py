"""verify proves what it says: whoever edits a release and its hashes as well is found out."""

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLACES as PLACES
from tests.conftest import TINY_PLAN, restate, write_people
from typer.testing import CliRunner

from countveil import Plan, Release, Secure, Seeded, pipeline
from countveil.cli.command_line import app
from countveil.errors import VerificationError
from countveil.measure.run import SIMULATION
from countveil.plan.passes import coarsens
from countveil.publish import recomputed

FACTS = """
[[invariants]]
level = "region"
query = "TOTAL"
reason = "known"
[[invariants]]
level = "area"
query = "TOTAL"
reason = "known"
[[invariants]]
level = "region"
query = "SEX"
reason = "known"
"""
TABLES = '[postprocess]\nmethod = "top-down"\ntables = ["SEX", "AGE*SEX"]\nmicrodata = true\n'


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    (folder / "plan.toml").write_text(TINY_PLAN + FACTS + TABLES)
    (folder / "places.csv").write_text(PLACES)
    write_people(folder / "people.csv")
    pipeline.release(Plan.load(folder / "plan.toml"), to=folder / "out", rng=Secure(), workers=1)
    return folder


@pytest.fixture
def out(original, tmp_path) -> Path:
    """A copy of a release to edit."""
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy" / "out"


def verify(out: Path, *words: str) -> tuple[int, str]:
    """Run `countveil verify` in this process; return its status and its message."""
    ran = CliRunner().invoke(app, ["verify", str(out), *words])
    error = ran.exception
    if error is None or isinstance(error, SystemExit):
        return ran.exit_code, ran.output
    assert isinstance(error, VerificationError), error
    return error.exit_status, str(error)


def edit_parquet(out: Path, name: str, change) -> None:
    """Change a table and state its new hash in the manifest."""
    path = out / name
    table = pq.read_table(path)
    pq.write_table(change(table).cast(table.schema), path)
    restate(out, name)


def plus_one(column: str, row: int = 0):
    """Return a change that adds 1 to a number of a column."""

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row] = (
            [values[row][0] + 1, *values[row][1:]]
            if isinstance(values[row], list)
            else values[row] + 1
        )
        at = table.schema.get_field_index(column)
        return table.set_column(
            at, table.schema.field(at), pa.array(values, table.schema.field(at).type)
        )

    return change


def emptied(table: pa.Table) -> pa.Table:
    return table.slice(0, 0)


def reversed_rows(table: pa.Table) -> pa.Table:
    return table.take(list(range(table.num_rows))[::-1])


def test_a_release_as_it_was_made_verifies(out):
    status, said = verify(out, "--ledger", str(out.parent / "ledger.sqlite"))
    assert status == 0
    assert "13 invariant counts cover the units of the crosswalk and add up" in said
    assert "7 files of tables and microdata match the estimates" in said
    assert "their certificate states that they were solved to within 1e-09" in said
    assert "limit:" not in said


PARQUET = {
    "a count of a table": (
        "tables/SEX.parquet",
        plus_one("SEX_0002", 3),
        "SEX.parquet does not match the estimates",
    ),
    "a table without rows": (
        "tables/SEX.parquet",
        emptied,
        "SEX.parquet does not match the estimates",
    ),
    "a table that ends early": (
        "tables/AGE-SEX.parquet",
        lambda table: table.slice(0, table.num_rows - 1),
        "AGE-SEX.parquet does not match the estimates",
    ),
    "a table with a row more": (
        "tables/SEX.parquet",
        lambda table: pa.concat_tables([table, table.slice(0, 1)]),
        "SEX.parquet does not match the estimates",
    ),
    "another order of units": (
        "tables/SEX.parquet",
        reversed_rows,
        "SEX.parquet does not match the estimates",
    ),
    "microdata without people": (
        "microdata.parquet",
        emptied,
        "microdata.parquet does not match the estimates",
    ),
    "microdata with a person more": (
        "microdata.parquet",
        lambda table: pa.concat_tables([table, table.slice(0, 1)]),
        "microdata.parquet does not match the estimates",
    ),
    "an invariant of an area": (
        "invariants/area.parquet",
        plus_one("values"),
        "region.parquet: TOTAL is not the sum of TOTAL of area",
    ),
    "an invariant of its level": (
        "invariants/region.parquet",
        plus_one("values", 2),
        "TOTAL is not the sum of SEX of region",
    ),
    "a negative invariant": (
        "invariants/area.parquet",
        lambda table: table.set_column(
            2,
            table.schema.field(2),
            pa.array(
                [[-value for value in row] for row in table["values"].to_pylist()],
                table["values"].type,
            ),
        ),
        "has a negative count",
    ),
    "invariants without rows": (
        "invariants/region.parquet",
        emptied,
        "number of rows is not units times queries",
    ),
    "invariants with noise": ("invariants/region.parquet", plus_one("variance"), "has a variance"),
    "invariants of other places": (
        "invariants/area.parquet",
        reversed_rows,
        "units are not those of the crosswalk",
    ),
    "measurements of other places": (
        "measurements/area.parquet",
        lambda table: table.set_column(
            0, table.schema.field(0), pc.replace_substring(table["geocode"], "A", "B")
        ),
        "the units of measurements/area.parquet are not those of the crosswalk",
    ),
    "measurements in another order": (
        "measurements/area.parquet",
        lambda table: pa.concat_tables(
            [reversed_rows(table.slice(0, 5)), reversed_rows(table.slice(5))]
        ),
        "the units of measurements/area.parquet are not those of the crosswalk",
    ),
    "places": (
        "geography.parquet",
        lambda table: pa.concat_tables(
            [table, pa.table([["R2"], ["A9"]], table.column_names).cast(table.schema)]
        ),
        "has 6 units of area, but the manifest has 5",
    ),
    "an interval": (
        "estimates/area.parquet",
        lambda table: table.set_column(
            table.schema.get_field_index("lower"),
            table.schema.field("lower"),
            pc.add(table["upper"], pa.scalar(1, pa.int32())),
        ),
        "has an impossible standard error or interval",
    ),
}


@pytest.mark.parametrize("what", PARQUET)
def test_edited_files_with_edited_hashes_are_found(out, what):
    name, change, message = PARQUET[what]
    edit_parquet(out, name, change)
    status, said = verify(out)
    assert status == 2
    assert message in said


def annotated(path: Path, **more) -> None:
    """Write a Parquet file again, with texts beside its columns."""
    with pq.ParquetFile(path) as file:
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
        layout = groups[0].schema
    if "column" in more:
        first = layout.field(0).with_metadata({"note": "exact 37"})
        layout = layout.set(0, first)
    if "file" in more:
        layout = layout.with_metadata({"note": "exact 37"})
    with pq.ParquetWriter(path, layout) as writer:
        if "later" in more:
            writer.add_key_value_metadata({"note": "exact 37"})
        for group in groups:
            writer.write_table(group.cast(layout), row_group_size=max(1, group.num_rows))


@pytest.mark.parametrize("where", ["file", "column", "later"])
@pytest.mark.parametrize(
    "name",
    [
        "geography.parquet",
        "measurements/area.parquet",
        "invariants/area.parquet",
        "estimates/area.parquet",
        "tables/SEX.parquet",
        "microdata.parquet",
    ],
)
def test_texts_beside_the_columns_of_a_file_are_found(out, name, where):
    annotated(out / name)
    restate(out, name)
    assert verify(out)[0] == 0
    annotated(out / name, **{where: True})
    restate(out, name)
    status, said = verify(out)
    assert status == 2
    assert f"{name} has metadata in addition to its columns, which ours never have" in said
    ran = CliRunner().invoke(app, ["package", str(out), "--to", str(out.parent / "out.zip")])
    assert ran.exception is not None
    assert not (out.parent / "out.zip").exists()


def test_another_column_of_the_places_is_found(out):
    table = pq.read_table(out / "geography.parquet")
    for other in (
        table.append_column("people", pa.array(["exact 37"] * table.num_rows)),
        table.append_column("people", pa.array([37] * table.num_rows)),
        table.select(table.column_names[::-1]),
    ):
        pq.write_table(other, out / "geography.parquet")
        restate(out, "geography.parquet")
        status, said = verify(out)
        assert status == 2
        assert "the columns of geography.parquet are not the levels of the plan, as text" in said


def test_another_column_of_previous_counts_is_found(tiny):
    text = "area,count\n" + "".join(f"{area},1\n" for area in ("A1", "A2", "A3", "A4", "A5"))
    (tiny.parent / "before.csv").write_text(text)
    tiny.write_text(TABLE_PLAN + '[congenial]\nprevious = "before.csv"\n')
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=tiny.parent / "l.sqlite")
    assert verify(out)[0] == 0
    lines = (out / "previous.csv").read_text().splitlines()
    (out / "previous.csv").write_text("\n".join(f"{line},37" for line in lines) + "\n")
    restate(out, "previous.csv")
    status, said = verify(out)
    assert status == 2
    assert "previous.csv has columns other than area and count" in said


@pytest.mark.parametrize("key", ["publishable", "title", "cost", "units", "sha256"])
def test_a_key_that_is_repeated_in_a_manifest_is_refused(out, key):
    """Other readers of JSON may use the first value, or the last."""
    text = (out / "manifest.json").read_text()
    assert f'"{key}":' in text
    (out / "manifest.json").write_text(text.replace(f'"{key}":', f'"{key}": false, "{key}":', 1))
    status, said = verify(out)
    assert status == 2
    assert f"the key '{key}' is repeated" in said


TEXTS = {
    "a count": ("tables/SEX.csv", lambda text: text.replace('"R1",', '"R1",1', 1)),
    "no rows": ("tables/SEX.csv", lambda text: text.splitlines()[0] + "\n"),
    "nothing": ("tables/SEX.csv", lambda text: ""),
    "a number with zeros": ("tables/SEX.csv", lambda text: text.replace('"R1",', '"R1",00', 1)),
    "a number with a sign": ("tables/SEX.csv", lambda text: text.replace('"R1",', '"R1",+', 1)),
    "a number with blanks": ("tables/SEX.csv", lambda text: text.replace('"R1",', '"R1",  ', 1)),
    "empty lines": ("tables/SEX.csv", lambda text: text + "\n\n"),
    "an empty line inside": ("tables/SEX.csv", lambda text: text.replace("\n", "\n\n", 1)),
    "a gap": ("tables/SEX.csv", lambda text: text.rstrip("\n").rpartition(",")[0] + ",\n"),
    "a label": ("tables/codebook.csv", lambda text: text.replace('"f"', '"m"', 1)),
    "no labels": ("tables/codebook.csv", lambda text: text.splitlines()[0] + "\n"),
    "a label's apostrophe": ("tables/codebook.csv", lambda text: text.replace('"f"', '"\'f"', 1)),
    "a variable": ("tables/codebook.md", lambda text: text.replace("| f |", "| m |", 1)),
    "a heading": ("tables/codebook.md", lambda text: text.replace("# Codebook: Tiny", "# False")),
    "prose": ("tables/codebook.md", lambda text: text.replace("estimates", "exact counts", 1)),
    "a universe": ("tables/codebook.md", lambda text: text.replace("Universe: ", "Universe: no ")),
}


@pytest.mark.parametrize("what", TEXTS)
def test_edited_texts_with_edited_hashes_are_found(out, what):
    name, change = TEXTS[what]
    before = (out / name).read_text()
    (out / name).write_text(change(before))
    assert (out / name).read_text() != before
    restate(out, name)
    status, said = verify(out)
    assert status == 2
    assert f"{Path(name).name} does not match the estimates" in said


@pytest.mark.parametrize("name", ["tables/SEX.csv", "microdata.parquet", "invariants/area.parquet"])
def test_a_file_taken_out_of_folder_and_manifest_is_missed(out, name):
    (out / name).unlink()
    document = json.loads((out / "manifest.json").read_text())
    del document["files"][name]
    (out / "manifest.json").write_text(json.dumps(document))
    status, said = verify(out)
    assert status == 2
    assert f"{name} is not listed in the manifest, but belongs to the release" in said


def test_a_listed_file_that_is_none_of_a_release_is_found(out):
    (out / "people.csv").write_text("area\nA1\n")
    restate(out, "people.csv")
    status, said = verify(out)
    assert status == 2
    assert "people.csv is listed in the manifest, but is not a file of a release" in said


def test_a_stated_size_is_checked(out):
    document = json.loads((out / "manifest.json").read_text())
    document["files"]["geography.parquet"]["bytes"] += 1
    (out / "manifest.json").write_text(json.dumps(document))
    assert verify(out)[0] == 2


def test_estimates_stated_otherwise_are_found(out):
    for key, value in (("method", "none"), ("tables", []), ("microdata", False)):
        document = json.loads((out / "manifest.json").read_text())
        before = document["estimates"][key]
        document["estimates"][key] = value
        (out / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(VerificationError, match=f"estimates.{key} in the manifest differs"):
            Release.read(out).verify()
        document["estimates"][key] = before
        (out / "manifest.json").write_text(json.dumps(document))


STATED = {
    "an unknown key": lambda stated: stated.update(secret=[1, 2, 3]),
    "a key of another plan": lambda stated: stated.update(budget_chosen_from="records"),
    "the table of another plan": lambda stated: stated.update(guarantee={"epsilon": "1"}),
    "an unknown key of estimates": lambda stated: stated["estimates"].update(note="x"),
    "an unknown key of a file": lambda stated: stated["files"]["geography.parquet"].update(note=1),
    "an unknown key of a level": lambda stated: stated["levels"][0].update(note="x"),
    "errors of another confidence": lambda stated: stated["estimates"].update(
        errors={"confidence": 0.5}
    ),
    "no errors, as if none were planned": lambda stated: stated["estimates"].update(
        errors={"none": "the plan asks for none"}
    ),
    "errors that are null": lambda stated: stated["estimates"].update(errors=None),
    "errors that are a list": lambda stated: stated["estimates"].update(errors=[1]),
    "errors without a reason": lambda stated: stated["estimates"].update(errors={"none": 5}),
    "errors that are missing": lambda stated: stated["estimates"].pop("errors"),
    "a hash that is none": lambda stated: stated.update(crosswalk_sha256="lies"),
    "versions of something else": lambda stated: stated.update(versions={"countveil": "9"}),
    "versions of prose": lambda stated: stated["versions"].update(python="the best"),
    "versions that are no text": lambda stated: stated["versions"].update(python=3),
    "a coin": lambda stated: stated.update(randomness="secure: a coin"),
    "a long identifier": lambda stated: stated.update(release="x" * 500),
    "a file of an impossible name": lambda stated: stated["files"].update(
        {"a\0b": {"sha256": "0" * 64, "bytes": 1}}
    ),
    **{
        f"a certificate of {key} {value}": lambda stated, key=key, value=value: stated["estimates"][
            "certificate"
        ][0].update({key: value})
        for key, value in (
            ("kkt_residual", -1.0),
            ("consistency_gap", -1e300),
            ("families", 0),
            ("iterations", -1),
            ("families", 99),
            ("moved_parents", 99),
            ("largest_departure", {"<script>alert(1)</script>": 0.5}),
            ("largest_departure", {"AGE": 0.5}),
        )
    },
    "moved parents of the highest level": lambda stated: stated["estimates"]["certificate"][
        0
    ].update(moved_parents=1),
    "fewer families of the lowest level": lambda stated: stated["estimates"]["certificate"][
        1
    ].update(families=1),
}


@pytest.mark.parametrize("what", STATED)
def test_a_manifest_that_states_what_ours_never_do_fails(out, what):
    document = json.loads((out / "manifest.json").read_text())
    STATED[what](document)
    (out / "manifest.json").write_text(json.dumps(document))
    assert verify(out)[0] == 2


@pytest.mark.parametrize("where", ["", "tables", "new"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "an empty folder"])
def test_nothing_else_is_in_the_folder(out, monkeypatch, kind, where):
    (out / where).mkdir(exist_ok=True)
    monkeypatch.chdir(out / where)  # a socket has a short name
    if kind == "a pipe":
        os.mkfifo("odd")
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("odd")
    else:
        Path("odd").mkdir()
    status, said = verify(out)
    assert status == 2
    assert f"{'new' if where == 'new' else Path(where, 'odd')} is not listed" in said


@pytest.mark.parametrize(
    "name", ["manifest.json", "estimates/area.parquet", "geography.parquet", "tables/SEX.csv"]
)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    "command", ["verify", "assess presence", "postprocess", "intervals", "report"]
)
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(out, name, listed, command):
    (out / name).unlink()
    if not listed and name != "manifest.json":
        document = json.loads((out / "manifest.json").read_text())
        del document["files"][name]
        (out / "manifest.json").write_text(json.dumps(document))
    os.mkfifo(out / name)
    ran = CliRunner().invoke(app, [*command.split(), str(out)])
    assert isinstance(ran.exception, VerificationError), ran.exception
    assert "is not a plain file" in str(ran.exception)


def test_edited_invariants_and_what_is_made_from_them_fail_by_the_ledger(tmp_path):
    """Whoever edits a public count makes the estimates again, so that all of it agrees."""
    facts = FACTS.split("[[invariants]]")[1]
    (tmp_path / "plan.toml").write_text(f"{TINY_PLAN}[[invariants]]{facts}{TABLES}")
    (tmp_path / "places.csv").write_text(PLACES)
    write_people(tmp_path / "people.csv")
    out, ledger = tmp_path / "out", tmp_path / "ledger.sqlite"
    pipeline.release(Plan.load(tmp_path / "plan.toml"), to=out, rng=Secure(), workers=1)
    assert verify(out, "--ledger", str(ledger))[0] == 0
    edit_parquet(out, "invariants/region.parquet", plus_one("values"))
    pipeline.make_estimates(out, workers=1)
    assert verify(out)[0] == 0, "the folder agrees with itself"
    status, said = verify(out, "--ledger", str(ledger))
    assert status == 2
    assert "for these measurements, but with different invariants, places or public totals" in said


def test_another_crosswalk_fails_by_the_ledger(out):
    document = json.loads((out / "manifest.json").read_text())
    document["crosswalk_sha256"] = "0" * 64
    (out / "manifest.json").write_text(json.dumps(document))
    assert verify(out)[0] == 0, "the crosswalk that it was released with is not in the folder"
    status, said = verify(out, "--ledger", str(out.parent / "ledger.sqlite"))
    assert status == 2
    assert "with different invariants, places or public totals" in said


def test_a_release_whose_tables_are_taken_out_again_verifies(out):
    for section in ('[postprocess]\nmethod = "top-down"\n', '[postprocess]\nmethod = "none"\n'):
        (out.parent / "plan.toml").write_text(TINY_PLAN + FACTS + section)
        pipeline.make_estimates(out, Plan.load(out.parent / "plan.toml"), workers=1)
        assert verify(out)[0] == 0
    assert not (out / "estimates").exists()


def test_tables_written_by_another_program_verify_if_they_say_the_same(out):
    table = pq.read_table(out / "tables" / "SEX.parquet")
    pq.write_table(table, out / "tables" / "SEX.parquet", compression="none", row_group_size=2)
    plain = pa_csv.WriteOptions(quoting_style="needed")
    pa_csv.write_csv(table, out / "tables" / "SEX.csv", plain)
    people = pq.read_table(out / "microdata.parquet")
    pq.write_table(people, out / "microdata.parquet", row_group_size=3)
    restate(out, "tables/SEX.parquet", "tables/SEX.csv", "microdata.parquet")
    assert verify(out)[0] == 0


def test_a_codebook_from_before_formulas_behind_a_blank_were_guarded_verifies(tmp_path):
    folder = tmp_path
    plan = (
        TINY_PLAN.replace('"x"]', '"=1+1"]')
        + '[postprocess]\nmethod = "top-down"\ntables = ["AGE*SEX"]\n'
    )
    (folder / "plan.toml").write_text(plan)
    (folder / "places.csv").write_text(PLACES)
    write_people(folder / "people.csv", [("A1", "young", "f"), ("A2", "old", "=1+1")])
    out = folder / "out"
    pipeline.release(Plan.load(folder / "plan.toml"), to=out, rng=Secure(), workers=1)
    path = out / "tables" / "codebook.csv"
    assert '"young; \'=1+1"' in path.read_text()
    for line in path.read_text().splitlines():
        for cell in line.split(";"):
            assert cell.strip()[:1] not in tuple("=+-@"), "a reader that skips blanks runs nothing"
    path.write_text(path.read_text().replace("; '=1+1", "; =1+1"))
    restate(out, "tables/codebook.csv")
    assert verify(out)[0] == 0


def relabelled(out: Path, **more: str) -> None:
    """State of a simulation that its noise was secure."""
    document = json.loads((out / "manifest.json").read_text())
    document |= {"publishable": True, "randomness": Secure.description, **more}
    (out / "manifest.json").write_text(json.dumps(document))


@pytest.mark.parametrize("charged", [False, True])
def test_a_relabelled_simulation_fails(tiny, charged):
    out, ledger = tiny.parent / "out", tiny.parent / "ledger.sqlite"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(7), ledger=ledger if charged else None)
    document = json.loads((out / "manifest.json").read_text())
    assert document["release"].startswith(SIMULATION)
    status, said = verify(out, "--simulation")
    assert status == 0
    assert "limit: this is a simulation: its noise was drawn from a seed" in said
    relabelled(out)
    status, said = verify(out)
    assert status == 2
    assert "its identifier is that of a simulation" in said
    relabelled(out, release=document["release"].removeprefix(SIMULATION))
    status, said = verify(out)  # nothing in the folder shows it, and verify does not claim to know
    assert status == 0
    assert "limit: no ledger was named, so nothing shows that these numbers were drawn once" in said
    status, said = verify(out, "--ledger", str(ledger))
    assert status == 2
    assert "does not have exactly one charge of rho = 2" in said


TABLE_PLAN = (
    TINY_PLAN.split("[budget]")[0]
    + '[budget]\nepsilon = "1"\n[[invariants]]\nlevel = "region"\nquery = "TOTAL"\n'
    'reason = "known"\n[postprocess]\nmethod = "congenial"\n'
)


@pytest.mark.parametrize(
    "total", ["1180591620717411303424", "Infinity", "NaN", "1e999", '"3"', "-1", "null"]
)
def test_totals_that_cannot_be_are_refused_with_a_message(tiny, total):
    tiny.write_text(TABLE_PLAN)
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=tiny.parent / "l.sqlite")
    assert verify(out)[0] == 0
    document = json.loads((out / "manifest.json").read_text())
    document["table"]["subtotals"][0]["total"] = "TOTAL HERE"
    text = json.dumps(document).replace('"TOTAL HERE"', total)
    (out / "manifest.json").write_text(text)
    status, said = verify(out)
    assert status == 2
    assert "is missing or invalid in manifest.json" in said or "not readable as JSON" in said


def test_the_table_beside_public_totals_has_its_columns(tiny):
    tiny.write_text(TABLE_PLAN)
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=tiny.parent / "l.sqlite")
    path = out / "counts" / "area.parquet"
    table = pq.read_table(path)
    counts = table["count"].to_pylist()
    for column in (
        pa.array([*counts[:-1], None], pa.int64()),
        pa.array(np.array(counts, float)),
        pa.array([2**62, *counts[1:]], pa.int64()),
    ):
        pq.write_table(table.set_column(1, "count", column), path)
        restate(out, "counts/area.parquet")
        assert verify(out)[0] == 2


@pytest.mark.parametrize(
    "text", ['{"format": "\\ud800"}', "\ufeff{}", "[" * 5_000, "{}", "[]", "1"]
)
def test_other_json_is_no_manifest(out, text):
    (out / "manifest.json").write_text(text)
    assert verify(out)[0] == 2


GARBLED = [
    ("release", None),
    ("title", 3),
    ("publishable", "yes"),
    ("levels", [{"level": "area", "units": 5}]),
    ("levels", [{"level": "region", "units": 2**70}, {"level": "area", "units": 5}]),
    ("measurements", [{}]),
    ("measurements", []),
    ("files", {"geography.parquet": {"sha256": 1, "bytes": 1}}),
    ("files", []),
    ("invariants", [1]),
    ("versions", {"countveil": 1}),
    ("estimates", {"certificate": [{"level": "area"}]}),
    ("estimates", []),
    ("estimates", None),
    ("cost", None),
    ("rows_per_person", "1"),
]


@pytest.mark.parametrize(("key", "value"), GARBLED)
@pytest.mark.parametrize(
    "command", [("verify",), ("assess presence", "-q"), ("postprocess", "-q"), ("report", "-q")]
)
def test_a_garbled_manifest_is_refused_by_every_command(out, key, value, command):
    document = json.loads((out / "manifest.json").read_text())
    document[key] = value
    (out / "manifest.json").write_text(json.dumps(document))
    ran = CliRunner().invoke(app, [*command[0].split(), str(out), *command[1:]])
    assert isinstance(ran.exception, VerificationError), ran.exception
    said = str(ran.exception)
    assert any(
        words in said
        for words in (
            "manifest.json",
            "from what the plan gives",
            "is not that of the plan",
            "those of the plan",
        )
    )


@pytest.mark.parametrize("what", ["a file", "a folder without its lock", "a folder for a lock"])
def test_something_else_at_the_name_of_a_private_folder_stops_nothing(
    tiny, monkeypatch, tmp_path, what
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "countveil-private-x"
    if what == "a file":
        other.write_text("mine")
    else:
        other.mkdir()
    if what == "a folder for a lock":
        (other / "in-use").mkdir()
    ran = CliRunner().invoke(app, ["check", str(tiny)])
    assert ran.exit_code == 0, ran.exception
    assert other.exists()


def test_invariants_of_many_levels_are_compared_once_a_query(monkeypatch):
    compared = []

    def counted(coarse, fine):
        compared.append((coarse.name, fine.name))
        return coarsens(coarse, fine)

    monkeypatch.setattr(recomputed, "coarsens", counted)
    queries, levels = ("TOTAL", "AGE", "SEX", "AGE*SEX"), ("region", "area")
    line = '[[invariants]]\nlevel = "{}"\nquery = "{}"\nreason = "known"\n'
    plan = Plan.parse(TINY_PLAN + "".join(line.format(x, y) for x in levels for y in queries))
    pairs = list(recomputed._pairs(plan))
    assert len(compared) == len(queries) ** 2
    named = {(a.level, a.query.name, b.level, b.query.name) for a, b in pairs}
    assert ("region", "TOTAL", "region", "AGE") in named
    assert ("region", "AGE*SEX", "area", "AGE*SEX") in named
    assert ("area", "SEX", "area", "AGE*SEX") in named
    assert len(named) == 3 + 4 + 3
