"""Loss and homogeneity of a plan, and what suppression tells, against laws summed by hand."""

import math
from itertools import product

import numpy as np
import pytest
from tests.conftest import TINY_PLAN

from countveil import Plan
from countveil.assess.empirical_loss.planned_loss import SHARE, loss_by_level
from countveil.assess.homogeneity.group_risk import GROUPS, homogeneity_by_size
from countveil.assess.protections.cell_suppression import (
    SMALL,
    kept_secret,
    posterior_under_suppression,
)


def pmf(variance):
    """The law of discrete Gaussian noise of a parameter sigma², by its definition."""
    k = np.arange(-400, 401)
    weights = np.exp(-(k**2) / (2 * variance))
    return dict(zip(k.tolist(), (weights / weights.sum()).tolist(), strict=True))


def test_loss_is_that_of_the_law_at_the_edge_of_its_share():
    found = {(item.level, item.query): item for item in loss_by_level(Plan.parse(TINY_PLAN))}
    assert set(found) == {(lv, q) for lv in ("region", "area") for q in ("TOTAL", "AGE*SEX")}
    # rho 2, half for each level, a quarter of it for TOTAL: sigma² = 1/rho beside a changed person.
    for query, rho in (("TOTAL", 1 / 4), ("AGE*SEX", 3 / 4)):
        law, item = pmf(1 / rho), found["area", query]
        inside = [sum(law[k] for k in range(-h, h + 1)) for h in range(40)]
        edge = next(h for h, share in enumerate(inside) if share >= SHARE)
        assert item.half_width == edge
        assert item.loss == pytest.approx(math.log(law[edge] / law[edge + 1]))
        assert item.standard_deviation == pytest.approx(
            math.sqrt(sum(p * k**2 for k, p in law.items()))
        )


def test_groups_that_are_alike_by_enumerating_what_shows():
    found = {(g.attribute, g.people): g for g in homogeneity_by_size(Plan.parse(TINY_PLAN))}
    assert set(found) == {(name, n) for name in ("AGE", "SEX") for n in GROUPS}
    law = pmf(1 / 0.75)
    at_least = {n: sum(p for k, p in law.items() if n + k >= 0.5) for n in (0, *GROUPS)}
    for name, values in (("AGE", 2), ("SEX", 3)):
        for people in GROUPS:
            shown = 0.0
            for seen in product((True, False), repeat=values):
                chances = [
                    at_least[people if at == 0 else 0]
                    if one
                    else 1 - at_least[people if at == 0 else 0]
                    for at, one in enumerate(seen)
                ]
                if seen == (True, *[False] * (values - 1)):
                    shown += math.prod(chances)
            assert found[name, people].disclosed == pytest.approx(shown)
            assert found[name, people].values == values


def test_suppression_hides_only_cells_with_a_few_others():
    def seen(count):
        return None if count in range(1, SMALL) else count

    for others in range(12):
        told = seen(others + 1) != seen(others)
        assert posterior_under_suppression(others, 0.1) == (1.0 if told else 0.1)
        assert posterior_under_suppression(others, 0.1, total=True) == 1.0
    assert kept_secret() == [1, 2, 3]
    assert kept_secret(below=11) == list(range(1, 10))
