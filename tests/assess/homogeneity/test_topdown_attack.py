"""The homogeneity attack on TopDown output: by hand, and on average over releases."""

import numpy as np
import pytest

from countveil import Seeded, open_engine, pipeline
from countveil.assess.homogeneity import topdown_attack
from countveil.errors import InputError
from countveil.plan.plans import Plan


@pytest.fixture
def made(tiny):
    tiny.write_text(tiny.read_text() + '\n[postprocess]\nmethod = "top-down"\n')
    plan = Plan.load(tiny)
    return plan, open_engine("local").tabulate(plan), tiny.parent


def test_cells_are_counted_as_the_attack_sees_them():
    exact = np.array([[3, 0, 0], [2, 1, 0], [0, 0, 4], [0, 0, 0], [1, 1, 0], [5, 0, 0]])
    shown = np.array([[2, 0, 0], [4, 0, 0], [1, 0, 0], [9, 0, 0], [1, 2, 0], [0, 0, 0]])
    sums = topdown_attack._Sums()
    sums.add(exact[:2], shown[:2], 3)
    sums.add(exact[2:], shown[2:], 3)
    found = sums.result("area", "SEX", ("AGE",))
    # Of 17 people five are told rightly, one and four wrongly; the empty cell is nobody's.
    assert (found.disclosed, found.misled) == (5 / 17, 5 / 17)
    assert (found.cells_right, found.cells_wrong, found.cells) == (2 / 5, 1 / 5, 5)
    assert found.before == 12 / 17


def test_a_release_and_its_average(made):
    plan, counts, folder = made
    given = {"level": "area", "sensitive": "SEX", "identifiers": ["AGE"]}
    averaged = topdown_attack.simulated(plan, counts, releases=6, seed=3, **given)
    each = []
    for number in range(6):
        done = pipeline.release(plan, to=folder / f"out{number}", rng=Seeded(3 + number))
        each.append(topdown_attack.attack(done.estimates, counts, **given))
    for name in ("disclosed", "misled", "cells_right", "cells_wrong"):
        values = [getattr(item, name) for item in each]
        assert getattr(averaged, name) == pytest.approx(np.mean(values))
        place = ("disclosed", "misled", "cells_right", "cells_wrong").index(name)
        assert averaged.errors[place] == pytest.approx(np.std(values, ddof=1) / np.sqrt(6))
    assert averaged.audience == "internal"


def test_with_hardly_any_noise_the_attack_is_that_on_the_exact_table(made, tiny):
    tiny.write_text(tiny.read_text().replace('rho = "', 'rho = "100', 1))
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    found = topdown_attack.simulated(plan, counts, level="area", sensitive="SEX", releases=2)
    assert found.disclosed == found.before
    assert found.misled == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"level": "block", "sensitive": "SEX"}, "level: 'block' has no published tables"),
        ({"level": "area", "sensitive": "SEX", "identifiers": ["SEX"]}, "also an identifier"),
        ({"level": "area", "sensitive": "SEX", "releases": 1}, "releases: 1 is not allowed"),
        ({"level": "area", "sensitive": "TOTAL"}, "no attribute or recode 'TOTAL'"),
        ({"level": "area", "sensitive": "AGE*SEX"}, "no attribute or recode"),
    ],
)
def test_bad_attacks_are_named(made, given, message):
    with pytest.raises(InputError, match=message):
        topdown_attack.simulated(*made[:2], **given)
