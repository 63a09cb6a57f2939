"""Standard errors by level, from the shape of the tree: those of all estimates, no value read."""

import numpy as np
import pytest
from tests.estimate import released_trees
from tests.estimate.released_trees import plan_text

from countveil import estimate
from countveil.errors import InputError
from countveil.estimate.errors_by_level import level_errors
from countveil.tree import query_errors

AGE = {"AGE": ["young", "old"], "RACE": ["a", "b", "c"]}
GROUPED = {"GROUP": ("RACE", {"a": ["a"], "others": ["b", "c"]})}
EVERYTHING = {"TOTAL": 3, "GROUP": 1, "AGE*RACE": 5}
PLACES = released_trees.places([3], [3, 1, 2], [2, 1, 4, 3, 3, 1])


def estimates(folder, plan, crosswalk=PLACES):
    tree = released_trees.release(folder, plan, crosswalk)
    return estimate.least_squares(tree.measurements, tree.plan)


def every_error(found, level, query):
    return np.concatenate([part.standard_error.ravel() for part in found.batches(level, query)])


CASES = {
    "plain": plan_text(AGE, dict.fromkeys(("l0", "l1", "l2"), EVERYTHING), recodes=GROUPED),
    "public": plan_text(
        *(AGE, dict.fromkeys(("l0", "l1", "l2"), EVERYTHING)),
        recodes=GROUPED,
        invariants=[("l0", "TOTAL")],
        zeros=[{"AGE": ["young"], "RACE": ["c"]}],
    ),
    "little": plan_text(AGE, {"l0": {"AGE*RACE": 1}, "l1": {"AGE": 1}, "l2": {"TOTAL": 1}}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("query", ["TOTAL", "AGE", "AGE*RACE"])
def test_they_are_those_of_every_unit_and_cell(tmp_path, case, query):
    found = estimates(tmp_path, CASES[case])
    for item in level_errors(found, query):
        if item.undetermined == item.counts:
            assert not found.determines(item.level, query)
            continue
        errors = every_error(found, item.level, query)
        assert (item.query, item.counts) == (query, len(errors))
        assert item.units == found.geography.units(item.level)
        assert item.exact == (errors == 0).sum()
        assert item.undetermined == np.isinf(errors).sum()
        noisy = errors[np.isfinite(errors) & (errors > 0)]
        expected = [None] * 3
        if len(noisy):
            middle = np.quantile(noisy, 0.5, method="inverted_cdf")
            expected = [noisy.min(), middle, noisy.max()]
        for told, value in zip((item.smallest, item.median, item.largest), expected, strict=True):
            assert told == (value if value is None else pytest.approx(value, rel=1e-12))


def test_exact_and_undetermined_counts_are_set_apart(tmp_path):
    top, middle, lowest = level_errors(estimates(tmp_path / "public", CASES["public"]))
    assert (top.exact, top.median) == (3, None)
    assert (middle.exact, middle.units) == (1, 6)  # the only child of a place with a public total
    assert lowest.exact == 0  # no only child all the way down
    cells = level_errors(estimates(tmp_path / "little", CASES["little"]), "AGE*RACE")
    # The only child of a place is known as that place.
    assert [(item.counts, item.undetermined) for item in cells] == [(18, 0), (36, 30), (84, 84)]
    assert cells[2].median is None


def test_it_is_the_textbook_error_of_a_mean_and_its_parts(tmp_path):
    """One parent of n parts, totals alone: the parent is weighed with the sum of its parts."""
    plan = plan_text({"AGE": ["young", "old"]}, {"l0": {"TOTAL": 1}, "l1": {"TOTAL": 1}})
    places = released_trees.places([2], [5, 5])
    found = estimates(tmp_path, plan, places)
    own, part = (found.measurements.mechanisms[level, "TOTAL"].variance for level in ("l0", "l1"))
    above = 1 / (1 / own + 1 / (5 * part))
    below = part * (1 - 1 / 5) + above / 25
    top, lowest = level_errors(found)
    for item, variance, noise in ((top, above, own), (lowest, below, part)):
        assert item.smallest == pytest.approx(variance**0.5, rel=1e-12)
        assert item.largest == pytest.approx(variance**0.5, rel=1e-12)
        assert item.noise == pytest.approx(noise**0.5, rel=1e-12)


def test_no_measurement_is_read(tmp_path):
    found = estimates(tmp_path, CASES["plain"])
    before = level_errors(found, "AGE*RACE")
    for path in (tmp_path / "out" / "measurements").iterdir():
        path.unlink()
    assert level_errors(found, "AGE*RACE") == before
    with pytest.raises(FileNotFoundError):
        found.estimate("l1", "AGE*RACE")


def test_what_is_not_measured_has_no_noise_of_its_own(tmp_path):
    found = estimates(tmp_path, CASES["plain"])
    assert {item.noise for item in level_errors(found, "AGE")} == {None}
    law = found.measurements.mechanisms["l1", "AGE*RACE"]
    assert level_errors(found, "AGE*RACE")[1].noise == law.variance**0.5


def test_more_than_can_be_held_is_refused(tmp_path, monkeypatch):
    found = estimates(tmp_path, CASES["plain"])
    monkeypatch.setattr(query_errors, "_MOST_COVARIANCES", 3)
    with pytest.raises(InputError, match="ask for a query of fewer attributes"):
        level_errors(found)
