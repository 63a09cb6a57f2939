"""What only the internal report shows, recomputed from the records and the published values."""

import math
import re

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import Page, chart_rows, table_rows

from countveil import Plan, Release, Seeded, open_engine, pipeline
from countveil.assess.empirical_loss import kde, tail_ratio
from countveil.assess.realised_disclosure import realised
from countveil.base import words
from countveil.errors import InputError
from countveil.report.report_page import internal_report

PRIOR = 0.02  # the smallest, for whom most is at stake
SIZES = {"1": (1, 1), "2": (2, 2), "3-4": (3, 4), "5-9": (5, 9), "10+": (10, 10**9)}


@pytest.fixture(scope="module")
def sections(hand, hand_found):
    return {section.name: section for section in made.internal(hand.plan, hand_found)}


def exact(level):
    """Return exact counts of every unit and cell, in the order of the places."""
    counts = hand_plan.counted()
    areas = np.array([[counts[area, cell] for cell in range(6)] for area in hand_plan.AREAS])
    return areas if level == "area" else areas.reshape(2, 3, 6).sum(axis=1)


def estimated(release, level):
    rows = release.estimates.table(level, "AGE*SEX").to_pydict()["estimate"]
    return np.array(rows).reshape(-1, 6)


def measured(release, level, query):
    return np.concatenate([b[query].values for b in release.measurements.stream(level)])


def test_the_counts_of_the_records_are_as_the_test_takes_them(hand):
    counts = open_engine("local").tabulate(Plan.load(hand.folder.parent / "plan.toml"))
    unit, cell, count = counts.entries("area", 0, 6)
    assert {(u, c): n for u, c, n in zip(unit, cell, count, strict=True)} == {
        (u, c): n for (u, c), n in np.ndenumerate(exact("area")) if n
    }


def test_error_as_it_came_out(hand, sections):
    section = sections["realised-error"]
    rows = {row["Level"]: row for row in table_rows(section, "Estimated minus exact totals")}
    for number, level in enumerate(("region", "area")):
        off = estimated(hand, level).sum(axis=1) - exact(level).sum(axis=1)
        row = rows[level]
        assert row["Places"] == len(off)
        assert row["Mean absolute"] == pytest.approx(np.abs(off).mean())
        assert row["Bias"] == pytest.approx(off.mean())
        assert row["Root mean square"] == pytest.approx(math.sqrt((off**2).mean()))
        ordered = sorted(off)
        for share, name in ((0.05, "5th percentile"), (0.95, "95th percentile")):
            assert row[name] == ordered[math.ceil(share * len(off)) - 1]
        assert section.sentences[number] == (
            f"The totals of the {len(off)} places at level {level} are off by "
            f"{words.brief(np.abs(off).mean())} on average; their mean error, the bias, is "
            f"{words.brief(off.mean())}."
        )


def test_its_charts_show_exact_and_released_totals_of_the_lowest_level(hand, sections):
    off = chart_rows(sections["realised-error"], "exact-and-released")
    pairs = sorted(zip(exact("area").sum(axis=1), estimated(hand, "area").sum(axis=1), strict=True))
    drawn = [(row["exact"], row["released"]) for row in off for _ in range(row["times"])]
    assert drawn == [(float(a), float(b)) for a, b in pairs]
    sizes = chart_rows(sections["realised-error"], "error-by-size")
    assert {row["level"] for row in sizes} == {"region", "area"}


def risks(release):
    """Return the size of every cell with people, and R' of one of them as the noise came out."""
    found = []
    true = exact("area")
    for unit in range(6):
        for cell in range(6):
            if not true[unit, cell]:
                continue
            shift = min(hand_plan.ROWS, int(true[unit, cell]))
            loss = 0.0
            for query, matrix in hand_plan.QUERIES.items():
                at = int(np.flatnonzero(matrix[:, cell])[0])
                noise = int(measured(release, "area", query)[unit, at]) - matrix[at] @ true[unit]
                loss += shift * (2 * noise + shift) / (2 * hand_plan.variance("area", query))
            risk = 1 / (PRIOR + (1 - PRIOR) * math.exp(-loss))
            found.append((int(true[unit, cell]), risk))
    return found


def test_the_risk_of_everyone_counted(hand, sections):
    rows = {
        row["People in the cell"]: row for row in table_rows(sections["everyone"], "Realised risk")
    }
    found = risks(hand)
    sizes = {name for name, (low, high) in SIZES.items() if any(low <= n <= high for n, _ in found)}
    assert set(rows) == sizes
    assert len(sizes) > 2
    for name in sizes:
        low, high = SIZES[name]
        own = [(n, risk) for n, risk in found if low <= n <= high]
        people = sum(n for n, _ in own)
        assert (rows[name]["Cells"], rows[name]["People"]) == (len(own), people)
        assert rows[name]["Mean risk"] == pytest.approx(sum(n * r for n, r in own) / people)
        assert rows[name]["Largest risk"] == pytest.approx(max(r for _, r in own))
    n, largest = max(found, key=lambda item: item[1])
    (size,) = [name for name, (low, high) in SIZES.items() if low <= n <= high]
    told = "1 person" if size == "1" else f"{size} people"
    assert sections["everyone"].sentences[1] == (
        f"The largest is {words.multiple(largest)}, in a cell with {told}."
    )
    assert sections["everyone"].sentences[0] == (
        "Someone who knows everyone else in an area thinks it 2 % likely that a person is counted "
        "there, and then sees all noisy counts. The person's realised risk is the probability they "
        "reach, divided by that prior."
    )


def test_the_map_of_everyone_is_by_region(hand, sections):
    rows = {row["place"]: row for row in chart_rows(sections["everyone"], "risk-map")}
    found = risks(hand)
    assert set(rows) == {"R1", "R2"}
    assert max(row["largest_risk"] for row in rows.values()) == pytest.approx(
        max(risk for _, risk in found)
    )
    assert sum(row["cells"] for row in rows.values()) == len(found)


def test_losses_are_of_what_the_estimates_miss(hand, sections):
    rows = table_rows(sections["realised-loss"], "Privacy loss from residuals")
    assert [(row["Level"], row["Query"]) for row in rows] == [
        *(("region", query) for query in ("TOTAL", "AGE*SEX")),
        *(("area", query) for query in ("TOTAL", "AGE", "AGE*SEX")),
    ]
    for row in rows:
        matrix = hand_plan.QUERIES[row["Query"]]
        off = (estimated(hand, row["Level"]) - exact(row["Level"])) @ matrix.T
        size = np.abs(off.ravel())
        assert row["Residuals"] == size.size
        alone = tail_ratio(off.ravel())
        assert (row["Lower"], row["Upper"]) == alone.interval
        assert row["At least"] == alone.lower_bound
        if row["Empirical loss"] is not None:
            assert row["Empirical loss"] == kde(off.ravel()).value
        if (size >= 2).any():
            ratio = math.log((size >= 1).sum() / (size >= 2).sum())
            assert row["Tail ratio"] == pytest.approx(ratio)
    assert any(row["Empirical loss"] is not None for row in rows)


def test_the_homogeneity_attack_on_what_was_released(hand, sections):
    section = sections["realised-attack"]
    rows = {row["Attribute"]: row for row in table_rows(section, "The homogeneity attack")}
    true = exact("area").reshape(6, 2, 3)
    shown = estimated(hand, "area").reshape(6, 2, 3)
    shares = {}
    for name, axis in (("AGE", 1), ("SEX", 2)):
        mine, theirs = (
            np.moveaxis(item, axis, 2).reshape(-1, item.shape[axis]) for item in (true, shown)
        )
        people = told = misled = before = cells = 0
        for own, seen in zip(mine, theirs, strict=True):
            if not own.sum():
                continue
            cells += 1
            people += own.sum()
            before += own.sum() if (own > 0).sum() == 1 else 0
            if (seen > 0).sum() == 1:
                value = int(np.flatnonzero(seen)[0])
                told += own[value]
                misled += own.sum() - own[value]
        shares[name] = (told / people, misled / people, before / people)
        row = rows[name]
        assert row["Inferred correctly"] == pytest.approx(told / people)
        assert row["Wrongly"] == pytest.approx(misled / people)
        assert row["Revealed by the exact table"] == pytest.approx(before / people)
        assert row["Cells"] == cells
    assert len({share for triple in shares.values() for share in triple}) > 3, "columns differ"
    worst = max(shares, key=lambda name: shares[name][0])
    other = {"AGE": "SEX", "SEX": "AGE"}[worst]
    told = f"knows a person's area and {other} and believes a cell that shows a single value infers"
    assert f"{told} their {worst} correctly for" in section.sentences[0]


def test_counts_of_another_plan_are_refused(hand, tmp_path):
    other = hand_plan.PLAN.replace('"f", "m", "x"', '"f", "m", "y", "x"')
    counts = open_engine("local").tabulate(Plan.load(hand_plan.write(tmp_path, other)))
    with pytest.raises(InputError, match="tabulated for another plan"):
        realised(hand, counts)


def test_every_identifier_of_both_pages_is_used_once(hand_page, hand_internal_page):
    for text in (hand_page, hand_internal_page):
        ids = Page(text).ids
        assert len(ids) == len(set(ids))
        named = re.findall(r'aria-labelledby="([^"]+)"', text)
        assert {name for names in named for name in names.split()} <= set(ids)
    assert {"risk-map-title", "risk-map-2-title"} <= set(Page(hand_internal_page).ids)


def reported(folder, text, **changes):
    path = hand_plan.write(folder, text)
    for name, content in changes.items():
        (folder / f"{name}.csv").write_text(content)
    pipeline.release(Plan.load(path), to=folder / "out", rng=Seeded(3))
    release = Release.read(folder / "out")
    counts = open_engine("local").tabulate(Plan.load(path))
    return release, realised(release, counts)


def test_totals_are_drawn_only_where_there_are_estimates(tmp_path):
    """Nothing is measured, so nothing estimated, below regions."""
    text = hand_plan.PLAN.replace('region = "1/5"\narea = "4/5"', 'region = "1"\narea = "0"')
    i, j = text.index("[budget.queries.area]"), text.index("[intruder]")
    release, found = reported(tmp_path, text[:i] + text[j:] + hand_plan.ESTIMATED)
    assert found.totals.level == "region"
    assert list(found.totals.exact) == list(exact("region").sum(axis=1))
    assert "INTERNAL" in internal_report(release, found)


def test_totals_that_are_public_are_not_drawn(tmp_path):
    text = hand_plan.PLAN.replace("limit = 4.0\n", "") + hand_plan.SETTLING
    release, found = reported(tmp_path, text + hand_plan.ESTIMATED)
    assert found.totals is None
    sections = {section.name: section for section in made.internal(release.plan, found)}
    assert sections["everyone"].sentences[-1].startswith("Exactly published counts reveal presence")


def test_more_levels_than_a_chart_can_show_are_all_listed(tmp_path):
    levels = [f"l{n}" for n in range(10)]
    shares = "\n".join(f'{level} = "1/10"' for level in levels)
    text = TINY_PLAN.replace('["region", "area"]', str(levels).replace("'", '"'))
    text = text.replace('region = "1/2"\narea = "1/2"', shares) + hand_plan.ESTIMATED
    places = "".join(",".join(["u"] * 9 + [f"A{n}"]) + "\n" for n in range(1, 6))
    people = "".join(f"A{1 + n % 5},young,f\n" for n in range(20))
    release, found = reported(
        tmp_path, text, places=",".join(levels) + "\n" + places, people="l9,AGE,SEX\n" + people
    )
    (error, *_) = made.internal(release.plan, found)
    assert [row["Level"] for row in table_rows(error, "Estimated minus exact totals")] == levels
    assert list(dict.fromkeys(r["level"] for r in chart_rows(error, "error-by-size"))) == levels[2:]
    assert "lowest 8 of 10 levels" in error.sentences[-1]


def test_a_release_that_is_almost_all_noise_is_reported_in_bounded_work(tmp_path):
    """Residuals that reach over millions are listed, and their density is not smoothed."""
    text = hand_plan.PLAN.replace('rho = "9/10"', 'rho = "1/1000000000000"')
    release, found = reported(tmp_path, text)
    sections = {section.name: section for section in made.internal(release.plan, found)}
    rows = table_rows(sections["realised-loss"], "Privacy loss from residuals")
    assert {row["Empirical loss"] for row in rows} == {None}
    assert all(row["Residuals"] > 0 for row in rows)
    assert sections["realised-loss"].sentences[-1].startswith("It is not estimated where")
    assert [chart.name for chart in sections["realised-loss"].charts] == ["residuals"]
