"""The epsilon of published tables: both ends, against all noise enumerated."""

import numpy as np
import pytest
from benchmarks.published import PLANS, all_releases, probability_of

from countveil import Seeded
from countveil.assess.published.tables_loss import published_loss
from countveil.assess.published.two_databases import TwoDatabases
from countveil.errors import InputError

TINY = {item.name: item for item in PLANS}


def delta_at(epsilon, p, q):
    return np.maximum(p - np.exp(epsilon) * q, 0).sum()


@pytest.mark.parametrize("delta", [0.2, 0.05, 0.01])
def test_the_enumerated_epsilon_is_inside(delta, tmp_path):
    tiny = TINY["one unit, total and cells"]
    plan, counts = tiny.plan(tmp_path), np.array(tiny.counts)
    two = TwoDatabases.of(plan, counts=counts, unit=0, cell=0)
    releases = all_releases(two)
    _, group = np.unique(releases.published(two.places, rng=Seeded(1)), axis=0, return_inverse=True)
    laws = [probability_of(two, releases, x) for x in (True, False)]
    found = published_loss(
        plan, counts=counts, unit=0, cell=0, delta=delta, draws=8_000, rng=Seeded(1)
    )
    # The measurements themselves, release by release, satisfy the upper end exactly.
    assert max(delta_at(found.upper, *laws), delta_at(found.upper, *laws[::-1])) == pytest.approx(
        delta, abs=1e-5
    )
    p, q = (np.bincount(group.ravel(), law) for law in laws)
    grid = np.linspace(0, found.upper, 400)
    exact = max(
        max([e for e in grid if delta_at(e, *pair) > delta], default=0.0)
        for pair in ((p, q), (q, p))
    )
    assert 0.75 * exact < found.lower <= exact + grid[1]
    assert exact <= found.upper


def test_what_is_published_exactly_has_no_epsilon(tmp_path):
    tiny = TINY["state total published"]
    found = published_loss(
        tiny.plan(tmp_path),
        counts=np.array(tiny.counts),
        unit=0,
        cell=0,
        delta=0.01,
        draws=800,
        rng=Seeded(1),
    )
    assert found.upper == np.inf
    assert found.lower > 3


def test_a_delta_of_zero_is_refused(tmp_path):
    plan = TINY["one unit, a pair"].plan(tmp_path)
    with pytest.raises(InputError, match="delta: 0 is not allowed"):
        published_loss(plan, counts=np.ones((1, 2), int), unit=0, cell=0, delta=0, rng=Seeded(1))
