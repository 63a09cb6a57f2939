"""Residuals of releases and files, tallied: by hand, by level and query, by size class."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from countveil import Seeded, open_engine, pipeline
from countveil.assess import empirical_loss
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.publish import Release


@pytest.fixture
def pairs(tmp_path):
    rng = np.random.default_rng(3)
    exact = rng.poisson(20, 3_000)
    released = exact + rng.geometric(0.3, 3_000) - rng.geometric(0.3, 3_000)
    place = np.array(["north", "south"])[rng.integers(0, 2, 3_000)]
    table = pa.table({"exact": exact, "released": released, "place": place})
    pq.write_table(table, tmp_path / "pairs.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "pairs.csv")
    return table, tmp_path


def test_two_columns_of_a_file_are_the_same_in_every_form(pairs):
    table, folder = pairs
    difference = table["released"].to_numpy() - table["exact"].to_numpy()
    for source in (table, folder / "pairs.parquet", str(folder / "pairs.csv")):
        found = empirical_loss.of_columns(source)
        everything = found.of(())
        assert np.repeat(everything.values, everything.counts).tolist() == sorted(difference)
        assert empirical_loss.kde(everything).value == empirical_loss.kde(difference).value
        rows = found.losses().to_pylist()
        assert rows[0]["size_class"] == "all"
        assert sum(row["residuals"] for row in rows[1:]) == rows[0]["residuals"] == 3_000
        assert rows[0]["empirical_loss"] == empirical_loss.kde(difference).value
        ratio = empirical_loss.tail_ratio(difference)
        assert (rows[0]["lower"], rows[0]["upper"]) == ratio.interval
        assert rows[0]["audit_lower_bound"] == ratio.lower_bound
        assert rows[0]["geometric_fit"] == empirical_loss.geometric(difference).value


def test_other_columns_are_strata(pairs):
    table, folder = pairs
    found = empirical_loss.of_columns(folder / "pairs.csv", by=["place"])
    assert sorted(found.groups) == [("north",), ("south",)]
    north = table.filter(pa.compute.equal(table["place"], "north"))
    difference = north["released"].to_numpy() - north["exact"].to_numpy()
    assert found.of(("north",)).total == len(difference)
    assert found.losses(by_size=False).column_names[0] == "place"
    assert found.exchangeability(("north",)).p_value > 0.001
    assert "internal" in repr(found)


@pytest.fixture
def release(tiny):
    tiny.write_text(tiny.read_text() + '\n[postprocess]\nmethod = "top-down"\n')
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(2))
    return Release.read(tiny.parent / "out"), open_engine("local").tabulate(plan)


@pytest.mark.parametrize("what", ["measurements", "estimates"])
def test_residuals_of_a_release_are_noise(release, what):
    done, counts = release
    found = empirical_loss.of_release(getattr(done, what), counts)
    plan = done.plan
    expected = {
        (level, item.query.name) for level in plan.measured_levels for item in plan.at(level)
    }
    assert set(found.groups) == expected
    for level in plan.measured_levels:
        for item in plan.at(level):
            residuals = found.of((level, item.query.name))
            assert residuals.total == done.geography.units(level) * item.query.cells
            if what == "measurements":
                spread = 8 * item.mechanism.variance**0.5 + 8
                assert np.abs(residuals.values).max() < spread
    table = found.losses()
    assert table.schema.metadata == {b"audience": b"internal"}
    assert {"level", "query", "size_class", "note"} <= set(table.column_names)


def test_releases_are_put_together_and_strata_apart(release):
    done, counts = release
    one = empirical_loss.of_release(done.measurements, counts)
    two = empirical_loss.of_release([done.measurements, done.estimates], counts)
    other = empirical_loss.of_release(done.estimates, counts)
    for key in one.groups:
        assert two.of(key).total == 2 * one.of(key).total
        together = two.of(key)
        assert together.mean == pytest.approx((one.of(key).mean + other.of(key).mean) / 2)
    apart = empirical_loss.of_release(done.measurements, counts, strata=True)
    assert apart.names == ("level", "query", "stratum")
    for key in one.groups:
        parts = [apart.of(item) for item in apart.groups if item[:2] == key]
        assert len(parts) == done.plan.schema.query(key[1]).cells
        assert sum(item.total for item in parts) == one.of(key).total
    with pytest.raises(InputError, match="released: the list is empty"):
        empirical_loss.of_release([], counts)


def test_counts_of_another_plan_are_refused(release):
    done, _ = release
    counts = SimpleNamespace(counted_as="something else")
    with pytest.raises(InputError, match="tabulated for another plan"):
        empirical_loss.of_release(done.measurements, counts)


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ({"exact": [1, 2]}, {}, "no column 'released'"),
        ({"exact": [1, None], "released": [1, 2]}, {}, "has 1 missing values"),
        ({"exact": [1.5, 2.0], "released": [1, 2]}, {}, "has 1 values that are not counts"),
        ({"exact": [-1, 2], "released": [1, 2]}, {}, "has 1 values that are not counts"),
        ({"exact": [], "released": []}, {}, "has no rows"),
        ({"exact": [1], "released": [1]}, {"by": ["where"]}, "no column 'where'"),
        ({"exact": [1], "released": [1]}, {"by": ["exact"]}, "exact: is named twice"),
        (
            {"exact": [1], "released": [1], "note": [1]},
            {"by": ["note"]},
            "'note' is the name of a column of the result",
        ),
        ({"exact": ["SECRET", "2"], "released": [1, 2]}, {}, "has 1 values that are not counts"),
    ],
)
def test_bad_tables_are_named(columns, given, message):
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    with pytest.raises(InputError, match=message):
        empirical_loss.of_columns(table, **given)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        empirical_loss.of_columns(tmp_path / "none.csv")
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="cannot be read"):
        empirical_loss.of_columns(tmp_path / "broken.parquet")


def test_fractions_have_a_density_and_no_tails():
    rng = np.random.default_rng(1)
    table = pa.table({"exact": rng.integers(0, 90, 500)})
    table = table.append_column(
        "released", pa.array(table["exact"].to_numpy() + rng.normal(0, 3, 500))
    )
    rows = empirical_loss.of_columns(table).losses(by_size=False).to_pylist()
    assert rows[0]["empirical_loss"] > 0
    assert rows[0]["tail_ratio"] is None


def test_choices_are_refused_before_anything_is_estimated():
    table = pa.table({"exact": [1, 2, 3], "released": [2, 2, 5]})
    for given in (
        {"bandwidth": float("nan")},
        {"percentile": 10},
        {"confidence": 1},
        {"rule": "x"},
    ):
        with pytest.raises(InputError, match=next(iter(given))):
            empirical_loss.of_columns(table).losses(**given)


@pytest.mark.parametrize("sign", [1, -1])
def test_residuals_of_one_sign_have_one_tail(sign):
    found = empirical_loss.tail_ratio(sign * np.array([1, 2, 3, 4]))
    sides = set(found.curve["side"].to_pylist())
    assert sides == {"upper" if sign > 0 else "lower", "both"}


def test_a_group_without_noise_says_so():
    table = pa.table({"exact": [0, 0, 5, 6, 7, 8], "released": [0, 0, 6, 5, 9, 3]})
    rows = {row["size_class"]: row for row in empirical_loss.of_columns(table).losses().to_pylist()}
    assert rows["0"]["note"].startswith("residuals: all 2 are 0")
    assert rows["0"]["empirical_loss"] is None
    assert rows["1-9"]["tail_ratio"] is not None
