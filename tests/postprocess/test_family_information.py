"""What families are solved with: the measurements of a level, or of whole subtrees, and passes."""

from __future__ import annotations

import numpy as np
import pytest

from countveil import postprocess
from countveil.errors import PlanError
from countveil.postprocess import family
from countveil.postprocess.topdown import SubtreesOfRelease

LEVEL = 'information = "level"\n'
LOOK = '[postprocess.levels.{0}]\npasses = ["TOTAL"]\nlook_below = true\n'


def test_totals_of_units_and_parts_are_generalised_least_squares(measured):
    """Against the dense solution over tract and blocks, one tract at a time."""
    measurements, plan = measured()
    geography = plan.geography()
    release = SubtreesOfRelease.of(measurements, plan, geography)
    below = release.subtrees.slice(geography.index("tract"), 0, 6)
    combined = release.terms.groups(below, plan.schema.query("TOTAL"))
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
        assert combined.estimate[tract, 0] == pytest.approx(beta.sum(), rel=1e-10)
        assert combined.covariance[below.shape_of[tract], 0, 0] == pytest.approx(
            covariance.sum(), rel=1e-10
        )


def test_the_tree_lessens_the_error_of_totals(measured, people):
    """Blocks measured well say much of their tracts; over four releases the error must fall."""
    shares = ('tract = "1/4"\nblock = "1/4"', 'tract = "1/40"\nblock = "19/40"')
    variants = {"level": LEVEL, "look below": LEVEL + LOOK.format("tract"), "tree": ""}
    errors = {name: [] for name in variants}
    exact = people.groupby("tract").size().to_numpy()
    for seed in range(4):
        for name, more in variants.items():
            estimates = postprocess.top_down(*measured(shares, more=more, seed=seed))
            query = estimates.plan.schema.query("TOTAL")
            errors[name].append(np.abs(estimates.counts("tract", query)[:, 0] - exact).mean())
    level, below, tree = (np.mean(errors[name]) for name in variants)
    assert below < 0.8 * level
    assert tree < 0.8 * level


def test_the_argument_decides_over_the_plan(measured):
    measurements, plan = measured()
    tree = postprocess.top_down(measurements, plan)
    level = postprocess.top_down(measurements, plan, information="level")
    same = postprocess.top_down(*measured(more=LEVEL))
    query = plan.schema.query("KIND*AGE*RACE")
    assert (level.counts("tract", query) == same.counts("tract", query)).all()
    assert (level.counts("tract", query) != tree.counts("tract", query)).any()


def test_facts_bound_the_first_totals(measured, tmp_path, monkeypatch):
    (tmp_path / "facts.csv").write_text("tract,at_least,at_most\n100,400,\n101,,10\n")
    more = LOOK.format("tract") + (
        '[[constraints]]\nlevel = "tract"\nquery = "TOTAL"\npath = "facts.csv"\nreason = "known"\n'
    )
    calls = []
    original = family._merged
    monkeypatch.setattr(family, "_merged", lambda *given: calls.append(given) or original(*given))
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
