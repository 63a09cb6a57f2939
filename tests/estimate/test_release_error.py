"""The internal error report against pandas, on a small release and on errors put there by hand."""

import itertools
import json
import math
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.conftest import run

from countveil import Plan, Release, Seeded, measure, open_engine, postprocess
from countveil.base.histograms import Histograms
from countveil.errors import FolderError, InputError
from countveil.estimate import release_error as module
from countveil.estimate.release_error import SIZE_CLASSES, WATERMARK, accuracy
from countveil.estimate.unbiased import least_squares

PLAN = """
[release]
title = "Four attributes"
unit = "person"
neighbors = "change-one"

[records]
path = "people.csv"
one_row_per_person = true

[geography]
path = "places.csv"
levels = ["country", "region", "town", "street"]

[attributes]
AGE = ["young", "middle", "old"]
SEX = ["f", "m"]
WORK = ["yes", "no"]
HOME = ["own", "rent", "none", "other|new"]
[recodes.HOUSED]
of = "HOME"
groups = { housed = ["own", "rent"], not = ["none"] }
omit = ["other|new"]

[budget]
rho = "1"
levels = { country = "1/4", region = "0", town = "1/4", street = "1/2" }
[budget.queries.country]
"AGE*SEX*WORK*HOME" = "1"
[budget.queries.town]
TOTAL = "1/4"
"AGE*HOUSED" = "1/4"
"AGE*SEX*WORK*HOME" = "1/2"
[budget.queries.street]
TOTAL = "1/4"
HOUSED = "1/4"
"SEX*HOME" = "1/4"
"AGE*SEX*WORK*HOME" = "1/4"

[postprocess]
method = "top-down"
"""
ATTRIBUTES = {
    "AGE": ["young", "middle", "old"],
    "SEX": ["f", "m"],
    "WORK": ["yes", "no"],
    "HOME": ["own", "rent", "none", "other|new"],
}
HOUSED = {"own": "housed", "rent": "housed", "none": "not"}
MEASURED = {
    "country": ["TOTAL", "AGE*SEX*WORK*HOME"],
    "region": ["TOTAL"],
    "town": ["TOTAL", "AGE*HOUSED", "AGE*SEX*WORK*HOME"],
    "street": ["TOTAL", "HOUSED", "SEX*HOME", "AGE*SEX*WORK*HOME"],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Estimates and counts of 40 streets, and the same as one long frame a level."""
    folder = tmp_path_factory.mktemp("accuracy")
    (folder / "plan.toml").write_text(PLAN)
    rng = np.random.default_rng(5)
    street = np.arange(40)
    places = pd.DataFrame({"street": [f"s{i:02d}" for i in street]})
    places["town"] = [f"t{i // 5}" for i in street]
    places["region"] = [f"r{i // 20}" for i in street]
    places["country"] = "C"
    places.to_csv(folder / "places.csv", index=False)
    sizes = rng.choice([0, 0, 1, 4, 30, 200], len(street))
    sizes[7] = 1200
    people = pd.DataFrame({"street": np.repeat(places["street"], sizes)})
    for name, categories in ATTRIBUTES.items():
        shares = rng.dirichlet(np.ones(len(categories)))
        people[name] = rng.choice(categories, len(people), p=shares)
    people.to_csv(folder / "people.csv", index=False)
    plan = Plan.load(folder / "plan.toml")
    counts = open_engine("local").tabulate(plan)
    measurements = measure.take(counts, plan, rng=Seeded(1), ledger=None, to=folder / "out")
    estimates = postprocess.top_down(measurements, plan)
    frames = {
        level: long_frame(estimates, people.merge(places, on="street"), places, level)
        for level in MEASURED
    }
    return estimates, counts, frames, folder


def long_frame(estimates, people, places, level):
    """Every unit and cell of a level: the estimate, and the count made from the records by pandas."""
    index = pd.MultiIndex.from_product(
        [sorted(places[level].unique()), *ATTRIBUTES.values()], names=[level, *ATTRIBUTES]
    )
    frame = people.groupby([level, *ATTRIBUTES]).size().reindex(index, fill_value=0)
    frame = frame.rename("count").reset_index().rename(columns={level: "unit"})
    frame["estimate"] = estimates.table(level, "*".join(ATTRIBUTES))["estimate"].to_numpy()
    frame["HOUSED"] = frame["HOME"].map(HOUSED)
    return frame


def size_class(total):
    return SIZE_CLASSES[0 if total == 0 else min(len(str(total)), len(SIZE_CLASSES) - 1)]


def brute_errors(frames):
    for level, frame in frames.items():
        totals = frame.groupby("unit")["count"].sum()
        for query in MEASURED[level]:
            by = [] if query == "TOTAL" else query.split("*")
            cells = frame.dropna(subset=by).groupby(["unit", *by])[["estimate", "count"]].sum()
            cells = cells.reset_index()
            cells["error"] = cells["estimate"] - cells["count"]
            cells["class"] = cells["unit"].map(totals).map(size_class)
            for label in (*SIZE_CLASSES, "all"):
                part = cells if label == "all" else cells[cells["class"] == label]
                if part.empty:
                    continue
                error = np.sort(part["error"].to_numpy())
                peopled = part[part["count"] > 0]
                percentage = None
                if query == "TOTAL" and len(peopled):
                    percentage = 100 * (peopled["error"].abs() / peopled["count"]).mean()
                yield {
                    "level": level,
                    "query": query,
                    "size_class": label,
                    "cells": len(error),
                    "mean_absolute_error": np.abs(error).mean(),
                    "bias": error.mean(),
                    "root_mean_squared_error": math.sqrt((error.astype(float) ** 2).mean()),
                    **{
                        f"error_{p:02d}": error[math.ceil(p * len(error) / 100) - 1]
                        for p in (5, 25, 50, 75, 95)
                    },
                    "mean_absolute_percentage_error": percentage,
                }


def brute_marginals(frames):
    for level, frame in frames.items():
        totals = frame.groupby("unit")[["estimate", "count"]].sum()
        both = totals[(totals["estimate"] > 0) & (totals["count"] > 0)].index
        neither = totals[(totals["estimate"] == 0) & (totals["count"] == 0)].index
        kept = frame[frame["unit"].isin(both)]
        for ways in (1, 2, 3, 4):
            for chosen in itertools.combinations(ATTRIBUTES, ways):
                cells = kept.groupby(["unit", *chosen])[["estimate", "count"]].sum()
                shares = cells / totals.loc[cells.index.get_level_values("unit")].to_numpy()
                apart = (shares["estimate"] - shares["count"]).abs()
                yield {
                    "level": level,
                    "ways": ways,
                    "attributes": "*".join(chosen),
                    "units": len(both),
                    "units_empty_in_one": len(totals) - len(both) - len(neither),
                    "units_empty_in_both": len(neither),
                    "total_variation_distance": (apart.groupby("unit").sum() / 2).mean(),
                }


def brute_groups(frames):
    for level, frame in frames.items():
        for attribute, categories in ATTRIBUTES.items():
            cells = frame.groupby(["unit", attribute])[["estimate", "count"]].sum().reset_index()
            for category in categories:
                part = cells[cells[attribute] == category]
                error = part["estimate"] - part["count"]
                yield {
                    "level": level,
                    "attribute": attribute,
                    "category": category,
                    "units": len(part),
                    "people": part["count"].sum(),
                    "mean_absolute_error": error.abs().mean(),
                    "bias": error.mean(),
                    "relative_bias": error.sum() / part["count"].sum(),
                }


def same(table, rows):
    rows = list(rows)
    found = table.to_pylist()
    assert len(found) == len(rows)
    for mine, expected in zip(found, rows, strict=True):
        assert list(mine) == list(expected)
        numbers = {key: value for key, value in expected.items() if isinstance(value, float)}
        assert {k: v for k, v in mine.items() if k not in numbers} == {
            k: v for k, v in expected.items() if k not in numbers
        }
        for key, value in numbers.items():
            assert mine[key] == pytest.approx(value, rel=1e-12, abs=1e-12), (mine, key)


def test_errors_by_level_query_and_size_are_those_of_pandas(small):
    estimates, counts, frames, _ = small
    found = accuracy(estimates, counts)
    same(found.errors, brute_errors(frames))
    rows = found.errors.to_pylist()
    # The example has something to find: errors, empty units, five sizes of street, a bias.
    assert {r["size_class"] for r in rows if r["level"] == "street"} == {*SIZE_CLASSES[:5], "all"}
    assert any(r["root_mean_squared_error"] > r["mean_absolute_error"] > 0 for r in rows)
    assert any(r["bias"] > 0.1 for r in rows)


def test_distances_of_marginals_are_those_of_pandas(small):
    estimates, counts, frames, _ = small
    found = accuracy(estimates, counts)
    same(found.marginals, brute_marginals(frames))
    streets = [row for row in found.marginals.to_pylist() if row["level"] == "street"]
    assert len(streets) == 4 + 6 + 4 + 1
    assert streets[0]["units_empty_in_one"] > 0
    assert streets[-1]["total_variation_distance"] > streets[0]["total_variation_distance"] > 0


def test_errors_of_groups_are_those_of_pandas(small):
    estimates, counts, frames, _ = small
    same(accuracy(estimates, counts).groups, brute_groups(frames))


def test_streaming_does_not_change_the_result(small, monkeypatch):
    estimates, counts, _, _ = small
    whole = accuracy(estimates, counts)
    for most in (1, 7, 60):
        monkeypatch.setattr(module, "_ENTRIES", most)
        parts = accuracy(estimates, counts)
        assert parts.errors.drop_columns("mean_absolute_percentage_error").equals(
            whole.errors.drop_columns("mean_absolute_percentage_error")
        )
        assert parts.groups.equals(whole.groups)
        for mine, expected in zip(
            parts.marginals.to_pylist(), whole.marginals.to_pylist(), strict=True
        ):
            assert mine == pytest.approx(expected)


def test_a_perfect_release_has_no_error(small):
    estimates, counts, _, _ = small
    found = accuracy(replace(estimates, levels=counts.levels), counts)
    for row in found.errors.to_pylist():
        assert {value for key, value in row.items() if "error" in key or key == "bias"} <= {0, None}
    assert set(found.marginals["total_variation_distance"].to_pylist()) == {0.0}
    assert set(found.groups["mean_absolute_error"].to_pylist()) == {0.0}


def test_errors_put_there_by_hand_are_found(small):
    estimates, counts, _, _ = small
    exact = counts.levels["country"]
    people = int(exact.counts.sum())
    wrong = exact.counts.copy()
    wrong[0] += 6
    wrong[-1] -= 2
    levels = {"country": Histograms(exact.offsets, exact.cells, wrong)}
    found = accuracy(replace(estimates, levels=levels), counts)
    total, _, detail, _ = found.errors.to_pylist()
    assert (total["query"], total["size_class"]) == ("TOTAL", "1,000-9,999")
    assert (total["cells"], total["bias"], total["error_05"], total["error_95"]) == (1, 4, 4, 4)
    assert total["mean_absolute_percentage_error"] == pytest.approx(400 / people)
    assert detail["cells"] == 48
    assert detail["mean_absolute_error"] == pytest.approx(8 / 48)
    assert detail["bias"] == pytest.approx(4 / 48)
    assert detail["root_mean_squared_error"] == pytest.approx(math.sqrt(40 / 48))
    assert (detail["error_05"], detail["error_50"], detail["error_95"]) == (0, 0, 0)


def test_it_is_internal_and_says_nothing_by_itself(small):
    estimates, counts, _, _ = small
    found = accuracy(estimates, counts)
    assert found.audience == "internal"
    assert not any(character.isdigit() for character in f"{found!r}{found}")
    for table in (found.errors, found.marginals, found.groups, found.forecasts, found.dropped):
        assert table.schema.metadata == {b"audience": b"internal"}


def test_forecasts_stand_next_to_what_was_realised(small):
    estimates, counts, _, folder = small
    found = accuracy(estimates, counts)
    rows = {(row["level"], row["query"]): row for row in found.forecasts.to_pylist()}
    plan = estimates.plan
    asked = {(level, "TOTAL") for level in plan.measured_levels}
    assert set(rows) == asked | {(item.level, item.query.name) for item in plan.allocations}
    measurements = Release.read(folder / "out").measurements
    solution = least_squares(measurements, plan, geography=estimates.geography)
    certified = {item.level: item.largest_departure for item in estimates.certificate}
    for (level, query), row in rows.items():
        errors = [part.standard_error for part in solution.batches(level, query)]
        overall = math.sqrt(float((np.concatenate(errors) ** 2).mean()))
        assert row["expected"] == pytest.approx(overall, rel=1e-9)
        assert row["ratio"] == pytest.approx(row["realised"] / row["expected"])
        assert row["largest_departure"] == certified[level].get(query)
    assert found.dropped.num_rows == 0, "rows per person are not limited here"


def test_the_owner_reads_how_many_rows_were_dropped(tmp_path):
    people = [("p1", "a", "young"), ("p1", "a", "old"), ("p1", "b", "old"), ("p2", "b", "old")]
    (tmp_path / "people.csv").write_text(
        "id,street,AGE\n" + "".join(",".join(row) + "\n" for row in people)
    )
    (tmp_path / "places.csv").write_text("town,street\nt,a\nt,b\nu,c\n")
    (tmp_path / "plan.toml").write_text("""
release = { title = "Visits", unit = "person", neighbors = "add-remove" }
records = { path = "people.csv", person_id = "id", max_rows = 1 }
geography = { path = "places.csv", levels = ["town", "street"] }
attributes = { AGE = ["young", "old"] }
postprocess = { method = "top-down" }
[budget]
rho = "1"
levels = { town = "1/2", street = "1/2" }
queries = { "*" = { AGE = "1" } }
""")
    assert run("release", tmp_path / "plan.toml", "--to", tmp_path / "out").status == 0
    rows = pq.read_table(tmp_path / "out-internal/error-dropped-rows.parquet").to_pylist()
    assert [list(row.values()) for row in rows] == [
        ["town", 2, 1, 2, 1.0, 2],
        ["street", 3, 2, 2, 2 / 3, 1],
    ]
    text = (tmp_path / "out-internal/error-report.md").read_text()
    assert "| town | 2 | 1 | 2 | 1.000 | 2 |" in text
    for path in (tmp_path / "out").rglob("*"):
        assert "dropped" not in path.name


def test_it_is_written_whole_private_and_marked(small, tmp_path):
    estimates, counts, _, _ = small
    found = accuracy(estimates, counts)
    folder = tmp_path / "out-internal"
    for _ in range(2):  # the second time over the first
        found.write(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
        "error.parquet": 0o600,
        "error-marginals.parquet": 0o600,
        "error-groups.parquet": 0o600,
        "error-forecasts.parquet": 0o600,
        "error-dropped-rows.parquet": 0o600,
        "error.json": 0o600,
        "error-report.md": 0o600,
    }
    assert pq.read_table(folder / "error.parquet").equals(found.errors)
    document = json.loads((folder / "error.json").read_text())
    assert document["audience"] == "internal"
    assert document["groups"] == found.groups.to_pylist()
    report = (folder / "error-report.md").read_text()
    assert report.startswith(f"# {WATERMARK}\n")
    street = next(
        row
        for row in found.errors.to_pylist()
        if (row["level"], row["query"], row["size_class"]) == ("street", "TOTAL", "all")
    )
    assert f"| street | 40 | {street['mean_absolute_error']:.3f} |" in report
    assert "HOME = other\\|new" in report


def test_what_may_be_published_is_no_place_for_it(small):
    estimates, counts, _, folder = small
    for place in (folder / "out", folder / "out" / "new"):
        with pytest.raises(
            FolderError, match=r"may not be; name the internal folder, out-internal"
        ):
            accuracy(estimates, counts).write(place)
    assert not (folder / "out" / "new").exists()


def test_other_counts_are_refused(small, tmp_path):
    estimates, _, _, folder = small
    for name in ("people.csv", "places.csv"):
        (tmp_path / name).write_text((folder / name).read_text())
    (tmp_path / "plan.toml").write_text(PLAN.replace('"old"]', '"old", "oldest"]'))
    other = open_engine("local").tabulate(Plan.load(tmp_path / "plan.toml"))
    with pytest.raises(InputError, match="tabulated for another plan; tabulate this one"):
        accuracy(estimates, other)
    with (tmp_path / "places.csv").open("a") as file:
        file.write("s99,t7,r1,C\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    more = open_engine("local").tabulate(Plan.load(tmp_path / "plan.toml"))
    with pytest.raises(InputError, match="different units of level street"):
        accuracy(estimates, more)


def test_a_plan_without_attributes_has_totals_only(tmp_path):
    lines = [line for line in PLAN.splitlines() if not line.startswith(tuple(ATTRIBUTES))]
    text = "\n".join(lines)
    head, rest = text.split("[recodes.HOUSED]")
    budget = (
        '[budget]\nrho = "1"\nlevels = { country = "0", region = "0", town = "0", street = "1" }\n'
    )
    text = head + budget + '[budget.queries.street]\nTOTAL = "1"\n' + rest[rest.index("[postp") :]
    (tmp_path / "plan.toml").write_text(text)
    (tmp_path / "places.csv").write_text("street,town,region,country\na,t,r,C\nb,t,r,C\n")
    (tmp_path / "people.csv").write_text("street\na\na\nb\n")
    plan = Plan.load(tmp_path / "plan.toml")
    counts = open_engine("local").tabulate(plan)
    measurements = measure.take(counts, plan, rng=Seeded(1), ledger=None, to=tmp_path / "out")
    found = accuracy(postprocess.top_down(measurements, plan), counts)
    assert set(found.errors["query"].to_pylist()) == {"TOTAL"}
    assert found.marginals.num_rows == found.groups.num_rows == 0
    found.write(tmp_path / "out-internal")
