"""Totals first: the best unbiased estimate of each, fitted exactly to the parent's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

from countveil import postprocess
from countveil.errors import PlanError
from countveil.postprocess import family
from countveil.postprocess.totals import MeasuredTotals, fit_totals, measured_totals

LOOK = '[postprocess.levels.{0}]\npasses = ["TOTAL"]\nlook_below = true\n'


def test_the_fit_is_the_constrained_least_squares_solution():
    """Against a root finder on the one multiplier, over bounds of every kind."""
    rng = np.random.default_rng(4)
    for _ in range(2000):
        count = int(rng.integers(1, 9))
        x = rng.normal(20, 30, count)
        v = 10.0 ** rng.uniform(-3, 3, count)
        lower = rng.integers(0, 10, count) * (rng.random(count) < 0.4).astype(float)
        upper = np.where(rng.random(count) < 0.4, lower + rng.integers(0, 40, count), np.inf)
        most = min(float(upper.sum()), float(lower.sum()) + 300)
        total = float(rng.integers(int(lower.sum()), int(most) + 1))
        t, certificate = fit_totals(MeasuredTotals(x, v), total, lower, upper)
        assert certificate.holds, certificate
        assert t.sum() == pytest.approx(total, abs=1e-7)
        assert (t >= lower - 1e-9).all()
        assert (t <= upper + 1e-9).all()

        def excess(theta, x=x, v=v, lower=lower, upper=upper, total=total):
            return np.clip(x - v * theta, lower, upper).sum() - total

        if excess(-1e9) * excess(1e9) < 0:  # else a corner: all at one bound
            truth = np.clip(x - v * brentq(excess, -1e9, 1e9, xtol=1e-13), lower, upper)
            assert np.abs(t - truth).max() < 1e-5 * max(1.0, np.abs(x).max())
            cost = ((t - x) ** 2 / v).sum()
            assert cost <= ((truth - x) ** 2 / v).sum() * (1 + 1e-9) + 1e-9


def test_a_fit_that_is_off_does_not_certify():
    measured = MeasuredTotals(np.array([5.0, 9.0]), np.array([1.0, 4.0]))
    t, certificate = fit_totals(measured, 10.0, np.zeros(2), np.full(2, np.inf))
    assert t == pytest.approx([4.2, 5.8])
    assert certificate.kkt_residual < 1e-14
    from countveil.postprocess.totals import _certify

    wrong = _certify(
        measured, t + np.array([0.1, -0.1]), 0.8, 10.0, np.zeros(2), np.full(2, np.inf)
    )
    assert not wrong.holds


def test_totals_of_units_and_parts_are_generalised_least_squares(measured):
    """Against the dense solution over tract and blocks, one tract at a time."""
    more = "".join(LOOK.format(level) for level in ("county", "tract", "block"))
    measurements, plan = measured(more=more)
    geography = plan.geography()
    combined = measured_totals(measurements, plan, geography, list(plan.levels), "tract")
    parents = geography.ancestors("block", "tract")
    own, noise = {}, {}
    for level in ("tract", "block"):
        sums, variances = [], []
        for item in plan.at(level):
            found = measurements.read(level, item.query.name)
            sums.append(found.values.sum(axis=1))
            variances.append(item.query.cells * found.mechanism.variance)
        own[level], noise[level] = np.array(sums), np.array(variances)
    for tract in range(6):
        blocks = np.flatnonzero(parents == tract)
        rows, values, weights = [], [], []
        for number, variance in enumerate(noise["tract"]):
            rows.append(np.ones(len(blocks)))
            values.append(own["tract"][number, tract])
            weights.append(1 / variance)
        for number, variance in enumerate(noise["block"]):
            for at, block in enumerate(blocks):
                rows.append(np.eye(len(blocks))[at])
                values.append(own["block"][number, block])
                weights.append(1 / variance)
        X, w = np.array(rows), np.array(weights)
        covariance = np.linalg.inv(X.T @ (w[:, None] * X))
        beta = covariance @ X.T @ (w * np.array(values))
        assert combined.estimate[tract] == pytest.approx(beta.sum(), rel=1e-10)
        assert combined.variance[tract] == pytest.approx(covariance.sum(), rel=1e-10)


def test_looking_below_lessens_the_error_of_totals(measured, people):
    """Blocks measured well say much of their tracts; over ten releases the error must fall."""
    shares = ('tract = "1/4"\nblock = "1/4"', 'tract = "1/40"\nblock = "19/40"')
    errors = {"": [], LOOK.format("tract"): []}
    exact = people.groupby("tract").size().to_numpy()
    for seed in range(10):
        for more, found in errors.items():
            estimates = postprocess.top_down(*measured(shares, more=more, seed=seed))
            query = estimates.plan.schema.query("TOTAL")
            found.append(np.abs(estimates.counts("tract", query)[:, 0] - exact).mean())
    plain, looked = (np.mean(found) for found in errors.values())
    assert looked < 0.8 * plain


def test_facts_bound_the_first_totals(measured, tmp_path, monkeypatch):
    (tmp_path / "facts.csv").write_text("tract,at_least,at_most\n100,400,\n101,,10\n")
    more = LOOK.format("tract") + (
        '[[constraints]]\nlevel = "tract"\nquery = "TOTAL"\npath = "facts.csv"\nreason = "known"\n'
    )
    calls = []
    original = family._totals_pass
    monkeypatch.setattr(
        family, "_totals_pass", lambda *given: calls.append(given) or original(*given)
    )
    estimates = postprocess.top_down(*measured(more=more))
    totals = estimates.counts("tract", estimates.plan.schema.query("TOTAL"))[:, 0]
    assert totals[0] >= 400
    assert totals[1] <= 10
    assert len(calls) == 2
    assert estimates.consistency_gap() == 0


def test_totals_that_leave_no_table_are_given_up(measured, tmp_path, people):
    """Closed cells that the pass over totals does not see: the family is solved without the pass."""
    lines = ["block,RACE,exactly"]
    for block in sorted(people["block"].unique())[:12]:
        lines += [f"{block},{race},0" for race in ("a", "b")]
    (tmp_path / "facts.csv").write_text("\n".join(lines) + "\n")
    more = '[postprocess.levels.block]\npasses = ["TOTAL"]\n' + (
        '[[constraints]]\nlevel = "block"\nquery = "RACE"\npath = "facts.csv"\nreason = "known"\n'
    )
    measurements, plan = measured(more=more)
    estimates = postprocess.top_down(measurements, plan)
    assert estimates.consistency_gap() == 0
    assert estimates.certificate[-1].fallbacks > 0


def test_looking_below_needs_a_pass_over_totals(measured):
    with pytest.raises(PlanError, match="postprocess.levels.tract.look_below: needs a pass over"):
        measured(more="[postprocess.levels.tract]\nlook_below = true\n")
