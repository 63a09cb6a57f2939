"""TopDown: whatever the noise, what comes out is whole, non-negative, and adds up."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from countveil import Seeded, postprocess
from countveil.errors import CertificateError, InputError
from countveil.measure.batch_sizes import BatchSizes
from countveil.postprocess import family

BLOCK_CELLS = "KIND*AGE*RACE"


def arrays(estimates, query=BLOCK_CELLS):
    asked = estimates.plan.schema.query(query)
    return {level: estimates.counts(level, asked) for level in estimates.levels}


def assert_adds_up(estimates):
    values = arrays(estimates)
    levels = list(values)
    for above, level in pairwise(levels):
        sums = np.zeros_like(values[above])
        np.add.at(sums, estimates.geography.ancestors(level, above), values[level])
        assert (sums == values[above]).all()
    assert all((array >= 0).all() for array in values.values())
    assert estimates.consistency_gap() == 0
    assert all(item.kkt_residual <= 1e-9 for item in estimates.certificate)


def test_estimates_print_their_plan_and_levels_and_no_number(measured):
    estimates = postprocess.top_down(*measured())
    plan = estimates.plan
    assert repr(estimates) == f"<Estimates of {plan.title!r}: {', '.join(plan.levels)}>"


def test_estimates_are_whole_non_negative_and_add_up(measured):
    estimates = postprocess.top_down(*measured())
    assert_adds_up(estimates)
    assert [item.level for item in estimates.certificate] == list(estimates.plan.levels)
    assert [item.families for item in estimates.certificate] == [1, 1, 2, 6]


def test_a_table_is_arrow_with_labels_and_zeros(measured):
    estimates = postprocess.top_down(*measured())
    table = estimates.table("county", "AGE*RACE")
    assert isinstance(table, pa.Table)
    assert table.column_names == ["geocode", "AGE", "RACE", "estimate"]
    assert table.num_rows == 2 * 6
    frame = table.to_pandas()
    whole = estimates.counts("county", estimates.plan.schema.query("TOTAL"))[:, 0]
    assert frame.groupby("geocode")["estimate"].sum().tolist() == whole.tolist()
    with pytest.raises(InputError, match="no estimates of 'nation'; choose from state, county"):
        estimates.table("nation", "AGE")


def test_the_gap_finds_a_sum_that_is_off(measured):
    estimates = postprocess.top_down(*measured())
    tract = estimates.levels["tract"]
    counts = np.array(tract.counts)
    counts[3] += 2
    wrong = type(tract)(tract.offsets, tract.cells, counts)
    broken = type(estimates)(
        estimates.plan,
        estimates.geography,
        {**estimates.levels, "tract": wrong},
        estimates.certificate,
    )
    assert broken.consistency_gap() == 2


def test_estimates_do_not_depend_on_workers_or_batches(measured):
    measurements, plan = measured()
    first = arrays(postprocess.top_down(measurements, plan))
    small = BatchSizes(values_to_solve=1, units_to_share=2)
    second = arrays(postprocess.top_down(measurements, plan, workers=2, sizes=small))
    assert all((first[level] == second[level]).all() for level in first)


def test_with_little_noise_the_truth_comes_back(measured, people):
    estimates = postprocess.top_down(*measured(('rho = "1"', 'rho = "4000"')))
    for level in estimates.plan.levels:
        exact = people.groupby([level, "KIND", "AGE", "RACE"]).size()
        frame = estimates.table(level, BLOCK_CELLS).to_pandas()
        frame = frame[frame["estimate"] > 0].set_index(["geocode", "KIND", "AGE", "RACE"])
        assert frame["estimate"].to_dict() == exact.to_dict()


@pytest.mark.parametrize("rounding", ["cells", "totals", "unbiased"])
@pytest.mark.parametrize("passes", [[], ["TOTAL"], ["TOTAL", "SHARED", "KIND"]])
def test_every_way_of_estimating_adds_up(measured, rounding, passes):
    more = f'[postprocess.levels."*"]\nrounding = "{rounding}"\npasses = {json.dumps(passes)}\n'
    measurements, plan = measured(
        ('RACE = "1/4"\n"KIND', 'RACE = "1/8"\nSHARED = "1/16"\nKIND = "1/16"\n"KIND'), more=more
    )
    assert_adds_up(postprocess.top_down(measurements, plan, rng=Seeded(1)))


def test_a_pass_holds_what_it_estimated(measured, monkeypatch):
    """With TOTAL first, totals come from the TOTAL query alone; its rounding is then kept."""
    held = []
    original = family._hold

    def spy(limits, counts, group):
        held.append(counts[:, 0].copy())
        return original(limits, counts, group)

    monkeypatch.setattr(family, "_hold", spy)
    more = '[postprocess.levels.county]\npasses = ["TOTAL"]\n'
    estimates = postprocess.top_down(*measured(more=more))
    totals = estimates.counts("county", estimates.plan.schema.query("TOTAL"))[:, 0]
    assert len(held) == 1
    assert held[0].tolist() == totals.tolist()


def test_totals_first_rounding_moves_totals_less_than_cell_rounding(measured):
    """Rounding cells lets their changes add up in a total; the total-aware one does not."""
    moved = {}
    for rounding in ("cells", "totals"):
        more = f'[postprocess.levels."*"]\nrounding = "{rounding}"\n'
        measurements, plan = measured(more=more)
        solutions = []
        original = family.round_family

        def spy(h, *arguments, original=original, solutions=solutions, **options):
            counts = original(h, *arguments, **options)
            solutions.append(np.abs(counts.sum(axis=1) - h.sum(axis=1)).sum())
            return counts

        family.round_family = spy
        try:
            postprocess.top_down(measurements, plan)
        finally:
            family.round_family = original
        moved[rounding] = sum(solutions)
    assert moved["totals"] < moved["cells"]


def test_a_level_without_a_budget_is_the_sum_of_the_next(measured):
    shares = ('county = "1/4"\ntract = "1/4"', 'county = "0"\ntract = "1/2"')
    estimates = postprocess.top_down(*measured(shares))
    assert_adds_up(estimates)
    assert list(estimates.levels) == ["state", "county", "tract", "block"]
    assert [item.level for item in estimates.certificate] == ["state", "tract", "block"]


def test_the_top_level_need_not_be_measured_nor_the_lowest(measured):
    shares = (
        'state = "1/4"\ncounty = "1/4"\ntract = "1/4"\nblock = "1/4"',
        'state = "0"\ncounty = "1/2"\ntract = "1/2"\nblock = "0"',
    )
    estimates = postprocess.top_down(*measured(shares))
    assert_adds_up(estimates)
    assert list(estimates.levels) == ["state", "county", "tract"]


def test_queries_that_leave_cells_undecided_are_completed_from_the_parent(measured):
    shares = ('[budget.queries."*"]', '[budget.queries.block]\nTOTAL = "1"\n[budget.queries."*"]')
    estimates = postprocess.top_down(*measured(shares))
    assert_adds_up(estimates)
    race = arrays(estimates, "RACE")
    block = race["block"].sum(axis=0) / race["block"].sum()
    assert np.abs(block - race["tract"].sum(axis=0) / race["tract"].sum()).max() < 1e-12
    shares_of_a = race["block"][:, 0] / np.maximum(race["block"].sum(axis=1), 1)
    large = race["block"].sum(axis=1) > 40
    assert large.sum() >= 5  # a block is like its tract where nothing tells it apart
    tract = race["tract"][estimates.geography.ancestors("block", "tract")]
    assert np.abs(shares_of_a - tract[:, 0] / tract.sum(axis=1))[large].max() < 0.1


def test_a_stopped_descent_goes_on_where_it_was(measured, tmp_path):
    measurements, plan = measured()
    whole = arrays(postprocess.top_down(measurements, plan))
    small = BatchSizes(values_to_solve=1)
    seen = []

    def stop(stage, level, done, units):
        seen.append((level, done))
        if len(seen) == 4:
            raise KeyboardInterrupt

    work = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        postprocess.top_down(measurements, plan, work=work, progress=stop, sizes=small)
    with (work / "tract.cells").open("ab") as file:  # a batch torn by the stop
        file.write(b"torn")
    with (work / "tract.journal").open("ab") as file:
        file.write(b'{"units": 99')
    again = []
    estimates = postprocess.top_down(
        measurements,
        plan,
        work=work,
        progress=lambda *step: again.append(step[1:3]),
        sizes=small,
    )
    assert seen[:4] + again == list(dict.fromkeys(seen[:4] + again))
    assert all((whole[level] == values).all() for level, values in arrays(estimates).items())


def test_a_plan_that_measures_something_else_is_refused(measured):
    measurements, _ = measured()
    _, other = measured(('rho = "1"', 'rho = "2"'))
    with pytest.raises(InputError, match="may differ only in \\[postprocess"):
        postprocess.top_down(measurements, other)


def test_work_of_another_plan_is_cleared_away(measured, tmp_path):
    measurements, plan = measured()
    work = tmp_path / "work"
    postprocess.top_down(measurements, plan, work=work)
    (work / ".countveil-temporary-probe-1").mkdir()  # of a driver that was killed
    changed, other = measured(more='[postprocess.levels."*"]\nrounding = "cells"\n')
    seen = []
    postprocess.top_down(changed, other, work=work, progress=lambda *step: seen.append(step))
    assert list(dict.fromkeys(step[1] for step in seen)) == ["state", "county", "tract", "block"]


@pytest.mark.parametrize("end", ["units", "entries"])
def test_a_journal_that_lists_more_than_a_file_can_hold_is_not_believed(measured, tmp_path, end):
    measurements, plan = measured()
    work = tmp_path / "work"
    whole = postprocess.top_down(measurements, plan, work=work)
    journal = work / "county.journal"
    step = json.loads(journal.read_text().splitlines()[0])
    journal.write_text(json.dumps({**step, end: 2**70}) + "\n")
    again = postprocess.top_down(measurements, plan, work=work)
    assert again.table("block", "TOTAL") == whole.table("block", "TOTAL")


@pytest.mark.parametrize("kind", ["lengths", "cells", "counts", "journal", "identity.json"])
@pytest.mark.parametrize("damage", ["flipped", "shortened", "longer", "gone"])
def test_damaged_work_is_made_again(measured, tmp_path, kind, damage):
    """And so is all below it, though that is whole: it was made from what is gone."""
    measurements, plan = measured()
    work, seen = tmp_path / "work", []
    whole = postprocess.top_down(measurements, plan, work=work)
    expected = {level: whole.table(level, "TOTAL") for level in plan.levels}
    path = work / (kind if "." in kind else f"county.{kind}")
    data = bytearray(path.read_bytes())
    middle = data.index(b"objective") + 13 if kind == "journal" else len(data) // 2
    data[middle] ^= damage == "flipped"
    end = {"shortened": -2, "gone": 0}.get(damage)
    path.write_bytes(data[:end] + b"torn" * (damage == "longer"))
    again = postprocess.top_down(
        measurements, plan, work=work, progress=lambda *step: seen.append(step[1])
    )
    for level in plan.levels:
        assert again.table(level, "TOTAL") == expected[level]
    lower = ["county", "tract", "block"]
    made = {"longer": []}.get(damage, lower) if "." not in kind else ["state", *lower]
    assert list(dict.fromkeys(seen)) == made


def test_a_solution_without_proof_stops_the_descent(measured, monkeypatch):
    original = family.solve_family

    def spoiled(*arguments, **options):
        h, certificate = original(*arguments, **options)
        return h, type(certificate)(float("nan"), 0.0, 0.0, 1, 0)

    monkeypatch.setattr(family, "solve_family", spoiled)
    with pytest.raises(
        CertificateError,
        match="state 1: the solver did not reach full precision",
    ):
        postprocess.top_down(*measured())


def test_rounding_that_breaks_a_sum_stops_the_descent(measured, monkeypatch):
    original = family.round_family
    monkeypatch.setattr(family, "round_family", lambda *a, **o: original(*a, **o) + 1)
    with pytest.raises(CertificateError, match="its rounded children break a sum or a bound"):
        postprocess.top_down(*measured())


def test_histograms_beyond_the_limit_are_refused_when_the_plan_is_read(measured):
    races = ", ".join(f'"r{number}"' for number in range(700))
    with pytest.raises(InputError, match="5,600 cells at once; the limit is 5,000"):
        measured(('RACE = ["a", "b", "c"]', f"RACE = [{races}]"))
