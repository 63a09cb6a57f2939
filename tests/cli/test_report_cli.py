"""`countveil report`: what it is made from, what it refuses before any work, where it is written."""

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN, write_people
from typer.testing import CliRunner

from countveil import Release, Secure, Seeded, pipeline
from countveil.base import storage
from countveil.cli.command_line import app
from countveil.cli.report_command import is_published
from countveil.errors import CountveilError, FolderError
from countveil.measure.run import internal_of
from countveil.plan.plans import Plan
from countveil.publish import additions
from countveil.publish.additions import attach, verified_but_reports

PLAN = TINY_PLAN + '[ledger]\ntotal = "5"\n[postprocess]\nmethod = "top-down"\n'


pytestmark = pytest.mark.usefixtures("few_simulations")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A release that was charged, made once; tests work on copies of its folder."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "plan.toml").write_text(PLAN)
    (folder / "places.csv").write_text("region,area\nR1,A1\nR1,A2\nR2,A3\nR2,A4\nR2,A5\n")
    write_people(folder / "people.csv")
    pipeline.release(
        Plan.load(folder / "plan.toml"),
        to=folder / "out",
        rng=Secure(),
        ledger=folder / "ledger.sqlite",
    )
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """A folder with a plan, records, a ledger and the release `out`; one is in it."""
    folder = tmp_path / "place"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


def report(*arguments):
    """Run the command here: its error as it is, or None."""
    ran = CliRunner().invoke(app, ["report", *map(str, arguments), "--quiet"])
    if ran.exception is None or isinstance(ran.exception, CountveilError):
        return ran.exception
    if isinstance(ran.exception, SystemExit):
        raise AssertionError(ran.output)
    raise ran.exception


def refused(said, *arguments):
    """Refuse with status 2 and these words, and write nothing."""
    before = listing()
    error = report(*arguments)
    assert error is not None, "it was not refused"
    assert error.exit_status == 2
    assert said in str(error)
    assert {name: data for name, data in listing().items() if "/lock" not in name} == before


def listing():
    return {
        str(path): path.read_bytes()
        for path in sorted(Path().rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def test_a_ledger_that_is_not_there_or_lacks_the_charge_is_refused(place):
    assert report("out", "--ledger", "ledger.sqlite", "--to", "with.html") is None
    assert "rho = 3" in (place / "with.html").read_text()  # of 5, 2 are spent
    refused("--ledger: absent.sqlite is not a file", "out", "--ledger", "absent.sqlite")
    refused("--ledger: . is not a file", "out", "--ledger", ".")
    assert not (place / "absent.sqlite").exists()
    pipeline.release(
        Plan.load("plan.toml"), to="second", rng=Secure(), ledger=place / "other.sqlite"
    )
    refused(
        "other.sqlite does not have exactly one charge of rho = 2",
        "out",
        "--ledger",
        "other.sqlite",
    )
    (place / "text.sqlite").write_text("no database, but long enough to be taken for one" * 9)
    refused("text.sqlite: not usable as a ledger", "out", "--ledger", "text.sqlite")
    pipeline.release(Plan.load("plan.toml"), to="seeded", rng=Seeded(1))
    refused("does not have exactly one charge", "seeded", "--ledger", "ledger.sqlite")


@pytest.mark.parametrize(
    "name",
    [
        "measurements/area.parquet",
        "measurements/region.parquet",
        "geography.parquet",
        "estimates/area.parquet",
    ],
)
def test_a_damaged_file_is_named(place, name):
    whole = (place / "out" / name).read_bytes()
    (place / "out" / name).write_bytes(whole[: len(whole) // 2])
    refused(f"out: {name} changed since it was released", "out")
    refused(name, "out", "--internal")
    (place / "out" / name).unlink()
    refused(f"{name} is listed in the manifest, but missing", "out", "--to", "x.html")


def test_a_manifest_that_lacks_a_key_is_refused_key_by_key(place):
    path = place / "out" / "manifest.json"
    whole = json.loads(path.read_text())
    optional = {
        "publishable",
        "title",
    }  # what is not stated is taken for the worst, or is the plan's
    assert len(whole) > 12
    for key in whole:
        path.write_text(json.dumps({name: value for name, value in whole.items() if name != key}))
        refused("manifest.json" if key not in {"estimates", *optional} else "out", "out")
    for key in ("files", "versions", "levels", "estimates"):
        path.write_text(json.dumps(whole | {key: 7}))
        refused("out", "out")
    path.write_text("[" * 100_000)
    refused("not readable as JSON", "out")


def test_an_internal_report_is_made_from_the_records_of_the_release_only(place):
    assert report("out", "--internal", "--to", "mine.html") is None
    assert stat.S_IMODE((place / "mine.html").stat().st_mode) == 0o600
    write_people(place / "people.csv", [*TINY_PEOPLE[:-1], ("A5", "young", "m")])  # one person
    refused("its records differ from those that out was made from", "out", "--internal")
    write_people(place / "people.csv", TINY_PEOPLE[::-1])  # another order is the same records
    assert report("out", "--internal") is None
    state = internal_of(place / "out") / "run.json"
    kept = json.loads(state.read_text())
    state.write_text(json.dumps(kept | {"release": "another"}))
    refused("belongs to another release than out", "out", "--internal")
    for text in ("{", "[]", json.dumps(kept | {"key": "zz"}), json.dumps({"key": "00"})):
        state.write_text(text)
        refused("run.json: not readable as a run", "out", "--internal")
    state.unlink()
    refused("the records cannot be compared with those of out", "out", "--internal")


def test_a_place_that_cannot_take_the_page_is_refused_before_any_work(place, monkeypatch):
    def unexpected(*_, **__):
        raise AssertionError("work was done")

    monkeypatch.setattr("countveil.report.report_page.public_report", unexpected)
    monkeypatch.setattr("countveil.cli.report_command.counts_again", unexpected)
    (place / "folder").mkdir()
    (place / "page.pdf").mkdir()
    for inner in ("out/x.html", "out/report.html", "out/tables/x.html", "out/../out/x.html"):
        for more in ((), ("--internal",)):
            refused("is in a release folder", "out", "--to", inner, *more)
    refused("--to: . is a folder; name a file in it, such as report.html", "out", "--to", ".")
    refused("--to: folder is a folder", "out", "--to", "folder")
    refused("x.pdf does not end in .html; name the page x.html", "out", "--to", "x.pdf")
    refused(
        "name the page x.html; --pdf writes the PDF next to it", "out", "--to", "x.pdf", "--pdf"
    )
    refused("name the page notes.html", "out", "--to", "notes.txt")
    refused("folder absent does not exist", "out", "--to", "absent/x.html")
    refused("page.pdf would be written, but it is a folder", "out", "--to", "page.html", "--pdf")


def test_a_link_into_a_release_does_not_carry_the_internal_report_there(place):
    (place / "elsewhere").symlink_to("out")
    (place / "page.html").symlink_to("out/report-x.html")
    (place / "deep").symlink_to("out/measurements")
    for inner in ("elsewhere/x.html", "page.html", "deep/x.html"):
        refused(
            "which may hold only the files of its manifest and nothing internal",
            "out",
            "--internal",
            "--to",
            inner,
        )
    assert is_published(place / "out" / "x.html")
    (place / "manifest.json").write_text('{"name": "an app of some other kind"}')
    assert not is_published(place / "x.html")
    (place / "manifest.json").write_text("{")  # perhaps a release that is damaged
    assert is_published(place / "x.html")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read as GeoJSON (Expecting property name"),
        ('{"type": "Feature", "bbox": [NaN]}', "NaN is not a JSON number"),
        ('{"bbox": [-Infinity]}', "-Infinity is not a JSON number"),
        ('{"bbox": [1e999]}', "1e999 is too large"),
        ("[" * 100_000, "nested too deeply"),
        ("[1, 2]", "not an object"),
        (b"\xff\xfe\x00", "cannot be read as GeoJSON"),
    ],
)
def test_shapes_that_are_no_geojson_are_refused(place, text, said):
    path = place / "shapes.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(said, "out", "--shapes", path)


def test_shapes_that_are_too_large_or_no_file_are_refused(place):
    with (place / "large.json").open("wb") as file:
        file.truncate(50_000_001)
    refused("has 50,000,001 bytes; the limit is 50,000,000", "out", "--shapes", "large.json")
    refused("absent.json is not a file", "out", "--shapes", "absent.json")
    refused(". is not a file", "out", "--shapes", ".")
    os.mkfifo(place / "pipe.json")  # would wait for a writer for good
    (place / "dangling.json").symlink_to("nowhere")
    for name in ("pipe.json", "dangling.json"):
        error = report("out", "--shapes", name)
        assert "is not a file" in str(error)


def test_a_release_under_way_is_not_written_into(place):
    release = Release.read("out")
    before = listing()
    with (
        storage.held(internal_of(place / "out") / "lock"),
        pytest.raises(FolderError, match="another process is releasing into this folder"),
    ):
        attach(release, {"report.html": b"one"})
    assert listing() == before


def test_a_report_of_what_is_not_there_any_more_is_not_listed(place):
    release = Release.read("out")
    pipeline.make_estimates("out", Plan.parse(PLAN.replace("top-down", "none"), folder=place))
    before = listing()
    with pytest.raises(
        FolderError, match="changed while the report was being made, so nothing was written"
    ):
        attach(release, {"report.html": b"one"})
    assert listing() == before
    attach(Release.read("out"), {"report.html": b"two"})
    assert Release.read("out").verify()


def test_two_reports_at_once_leave_one_that_verifies(place):
    release = Release.read("out")
    outcomes = []

    def attempt(number):
        try:
            attach(release, {"report.html": b"%d" % number * 1000})
            outcomes.append("written")
        except FolderError:
            outcomes.append("refused")

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert "written" in outcomes
    assert Release.read("out").verify()


def test_a_run_that_stopped_between_page_and_manifest_is_repaired_by_another(place, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    for _ in range(2):  # a page that is not listed; then one that is, with another hash
        with monkeypatch.context() as patched:
            patched.setattr(additions.storage, "write_json", stopped)
            with pytest.raises(KeyboardInterrupt):
                attach(Release.read("out"), {"report.html": os.urandom(9)})
        with pytest.raises(CountveilError, match=r"report\.html"):
            Release.read("out").verify()
        (place / "out" / ".countveil-temporary-1-report.html").write_text("half")
        assert report("out") is None
        assert Release.read("out").verify()
    (place / "out" / "report.html").unlink()
    (place / "out" / "report.html").symlink_to(place / "plan.toml")
    with pytest.raises(CountveilError, match=r"report\.html is a link"):
        verified_but_reports(Release.read("out"))
