"""`assess --lens loss` as a stranger uses it: a release, two columns of a file, bad input."""

import json

import numpy as np
import pytest
from tests.conftest import run

from countveil import Seeded, pipeline
from countveil.assess import empirical_loss
from countveil.base.words import brief
from countveil.plan.plans import Plan

COLUMNS = ("--exact", "true", "--released", "published")


@pytest.fixture
def pairs(tmp_path):
    rng = np.random.default_rng(1)
    exact = rng.integers(1, 400, 2_000)
    released = exact + rng.geometric(0.2, 2_000) - rng.geometric(0.2, 2_000)
    rows = zip(exact, released, ["north", "south"] * 1_000, strict=True)
    text = "true,published,place\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    (tmp_path / "pairs.csv").write_text(text)
    (tmp_path / "one.csv").write_text("exact,released\n5,9\n")
    (tmp_path / "same.csv").write_text("exact,released\n" + "5,9\n" * 50)
    return tmp_path / "pairs.csv", released - exact


def test_two_columns_of_a_file(pairs):
    path, residuals = pairs
    given = ("--exact", "true", "--released", "published")
    ran = run("assess", "loss", path, *given)
    assert ran.status == 0, ran.err
    words = " ".join(ran.out.split())
    assert "INTERNAL" in words
    loss = empirical_loss.kde(residuals).value
    assert f" 2,000 {brief(loss)} " in words
    assert "With 2,000 residuals of two-sided geometric noise" in words
    (everything, *_) = run("assess", "loss", path, *given, "--json").document()["losses"]
    assert everything["empirical_loss"] == pytest.approx(loss)
    document = run("assess", "loss", path, *given, "--by", "place", "--json").document()
    assert document["audience"] == "internal"
    assert {row["place"] for row in document["losses"]} == {"north", "south"}
    assert all(item["p_value"] > 0.001 for item in document["exchangeability"])


def test_a_release_is_compared_with_its_records_when_asked(tiny):
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(2))
    before = {path.name for path in out.rglob("*")}
    ran = run("assess", "loss", out)
    assert ran.status == 0
    assert "INTERNAL" not in ran.out, "what the noise says is public"
    ran = run("assess", "loss", out, "--internal", "--of", "measurements")
    assert ran.status == 0, ran.err
    internal = out.parent / "out-internal"
    for name in ("loss.json", "loss.parquet"):
        assert (internal / name).stat().st_mode & 0o077 == 0
    document = json.loads((internal / "loss.json").read_text())
    assert document["audience"] == "internal"
    assert {row["level"] for row in document["losses"]} == set(Plan.load(tiny).measured_levels)
    assert {path.name for path in out.rglob("*")} == before


def test_the_command_and_the_lens_word_the_same_losses_alike(tiny):
    """The command has further rows, by size; what a row and a column mean is said once."""
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(2))
    ran = run("assess", "realised-loss", out, "--internal", "--quiet", "--json")
    lens = json.loads(ran.out, parse_constant=pytest.fail)  # JSON has no infinite numbers
    ran = run("assess", "loss", out, "--internal", "--of", "measurements", "--json")
    command = json.loads(ran.out, parse_constant=pytest.fail)
    assert command["sentences"][0] == lens["sentences"][0]
    (by_query,), (by_size,) = lens["tables"], command["tables"]
    assert by_size["columns"][1:] == by_query["columns"][2:]
    every = [row for row in by_size["rows"] if row[0].endswith(", all")]
    assert every == [[f"{row[0]} {row[1]}, all", *row[2:]] for row in by_query["rows"]]
    text = run("assess", "loss", out, "--internal", "--of", "measurements").out
    for sentence in command["sentences"]:
        assert " ".join(sentence.split()) in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.csv",), "none.csv: not found; name a release folder or a plan file"),
        (("pairs.csv",), "no column 'exact'; name one of its columns"),
        (("pairs.csv", *COLUMNS, "--bandwidth", "nan"), "bandwidth: nan"),
        (("pairs.csv", *COLUMNS, "--by", "true"), "true: is named twice"),
        (("one.csv",), "no group has two different residuals"),
        (("same.csv",), "no group has two different residuals"),
    ],
)
def test_bad_input_has_status_2(pairs, words, message):
    ran = run("assess", "loss", *words, cwd=pairs[0].parent)
    assert ran.status == 2
    assert message in " ".join(ran.err.split())
