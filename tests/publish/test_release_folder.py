"""A release folder is read, verified and packaged; every tampering is found."""

import json
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLAN, restate

from countveil import Release, Secure, Seeded, measure, open_engine
from countveil.errors import InputError, LedgerError, VerificationError
from countveil.plan.plans import Plan


@pytest.fixture
def out(tiny: Path) -> Path:
    tiny.write_text(
        TINY_PLAN + '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
    )
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    folder = tiny.parent / "out"
    measure.take(counts, plan, rng=Secure(), ledger=tiny.parent / "ledger.sqlite", to=folder)
    return folder


def test_a_release_verifies_and_says_what_was_checked(out):
    checks = Release.read(out).verify(out.parent / "ledger.sqlite").checks
    assert checks[0] == "4 files match their hashes in the manifest, and there are no others"
    assert checks[1] == "the noise of 4 queries costs rho = 2, as stated"
    assert checks[2] == (
        "49 measurements cover the crosswalk's units in the noisy-measurement layout"
    )
    assert checks[3] == "2 invariant counts cover the units of the crosswalk and add up"
    assert checks[4].endswith("has one charge of rho = 2 for these measurements")


def test_measurements_are_read_back_with_their_law(out):
    measurement = Release.read(out).measurements.read("area", "AGE*SEX")
    assert measurement.mechanism.name == "discrete-gaussian"
    assert measurement.values.shape == (5, 6)
    assert not measurement.values.flags.writeable


def edit(out: Path, change) -> None:
    path = out / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


TAMPERING = {
    "an unlisted file": (
        lambda out: (out / "notes.txt").write_text("x"),
        "notes.txt is not listed in the manifest",
    ),
    "a hidden file": (
        lambda out: (out / "measurements" / ".hidden").write_text("x"),
        ".hidden is not listed in the manifest",
    ),
    "a link": (
        lambda out: (out / "link").symlink_to("/etc/hostname"),
        "link is a link, but a release has plain files only",
    ),
    "a missing file": (
        lambda out: (out / "measurements" / "area.parquet").unlink(),
        "measurements/area.parquet is listed in the manifest, but missing",
    ),
    "a changed file": (
        lambda out: (out / "measurements" / "area.parquet").write_bytes(b"PAR1"),
        "measurements/area.parquet changed since it was released",
    ),
    "a cheaper cost": (
        lambda out: edit(out, lambda d: d["cost"].update(rho="1")),
        "cost in the manifest differs from what the plan gives",
    ),
    "a smaller variance": (
        lambda out: edit(out, lambda d: d["measurements"][1].update(variance=0.1)),
        "measurements in the manifest differs from what the plan gives",
    ),
    "another unit": (
        lambda out: edit(out, lambda d: d.update(unit="household")),
        "unit in the manifest differs from what the plan gives",
    ),
    "no invariants": (
        lambda out: edit(out, lambda d: d.update(invariants=[])),
        "invariants in the manifest differs from what the plan gives",
    ),
    "other randomness": (
        lambda out: edit(out, lambda d: d.update(randomness="seeded: 7")),
        "randomness 'seeded: 7' is not from countveil",
    ),
    "a plan that is a list": (
        lambda out: edit(out, lambda d: d.update(plan=[])),
        "its plan is not valid",
    ),
    "deep JSON": (
        lambda out: (out / "manifest.json").write_text("[" * 100_000),
        "not readable as JSON",
    ),
    "another plan": (
        lambda out: edit(out, lambda d: d["plan"]["release"].update(title="x")),
        "the plan in the manifest changed since it was released",
    ),
    "another noise": (
        lambda out: edit(out, lambda d: d["measurements"][0]["mechanism"].update(sigma2="999")),
        "measurements in the manifest differs from what the plan gives",
    ),
    "a file outside": (
        lambda out: edit(
            out, lambda d: d["files"].update({"../plan.toml": {"sha256": "0", "bytes": 1}})
        ),
        "../plan.toml is listed in the manifest, but missing",
    ),
    "no costs": (lambda out: edit(out, lambda d: d.pop("cost")), "'cost' is missing or invalid"),
    "a broken plan": (
        lambda out: edit(out, lambda d: d["plan"].pop("budget")),
        "its plan is not valid",
    ),
    "another format": (
        lambda out: edit(out, lambda d: d.update(format="x")),
        "not a manifest of format",
    ),
    "no JSON": (lambda out: (out / "manifest.json").write_text("{"), "not readable as JSON"),
    "no manifest": (lambda out: (out / "manifest.json").unlink(), "not a finished release"),
    "other units": (
        lambda out: edit(out, lambda d: d["levels"][1].update(units=4)),
        "has 5 units of area, but the manifest has 4",
    ),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found(out, kind):
    tamper, message = TAMPERING[kind]
    tamper(out)
    with pytest.raises(VerificationError) as caught:
        Release.read(out).verify()
    assert message in str(caught.value)
    with pytest.raises(VerificationError):
        Release.read(out).package(out.parent / "out.zip")
    assert not (out.parent / "out.zip").exists()


def test_other_columns_are_found_even_with_a_matching_hash(out):
    path = out / "measurements" / "area.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["variance"]), path)
    restate(out, "measurements/area.parquet")
    with pytest.raises(VerificationError, match="are not the measurement layout"):
        Release.read(out).verify()


def test_packages_are_zip_files_by_name(out):
    with pytest.raises(InputError, match="name one that ends in .zip"):
        Release.read(out).package(out.parent / "ledger.sqlite")


def test_a_ledger_without_the_charge_is_found(out):
    with pytest.raises(VerificationError, match="does not have exactly one charge of rho = 2"):
        Release.read(out).verify(out.parent / "other.sqlite")
    (out.parent / "bad.sqlite").write_bytes(b"x" * 4096)
    with pytest.raises(LedgerError):
        Release.read(out).verify(out.parent / "bad.sqlite")


def test_packages_hold_the_allow_list_and_are_reproducible(out):
    release = Release.read(out)
    first = release.package(out.parent / "a.zip").read_bytes()
    second = release.package(out.parent / "b.zip").read_bytes()
    assert first == second
    with zipfile.ZipFile(out.parent / "a.zip") as archive:
        assert sorted(archive.namelist()) == [
            "out/geography.parquet",
            "out/invariants/region.parquet",
            "out/manifest.json",
            "out/measurements/area.parquet",
            "out/measurements/region.parquet",
        ]
        archive.extractall(out.parent / "received")
    assert Release.read(out.parent / "received" / "out").verify()


def test_a_seed_never_makes_a_publishable_release(tiny):
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    folder = tiny.parent / "simulated"
    measure.take(counts, plan, rng=Seeded(7), ledger=None, to=folder)
    release = Release.read(folder)
    assert not release.publishable
    with pytest.raises(VerificationError, match="drawn from a seed"):
        release.verify()
    with pytest.raises(VerificationError, match="drawn from a seed"):
        release.package(tiny.parent / "out.zip")
    assert release.verify(simulation=True).checks
