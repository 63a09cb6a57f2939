"""The numbers of charts are those of the library."""

import numpy as np
import pytest
from tests.report.chart_cases import (
    INTRUDERS,
    LAWS,
    RESIDUALS,
    RHOS,
    SEEN,
    believed,
    decided,
    disclosed,
    drawn,
    homogeneity_curve,
    homogeneity_frontier,
    levels_known,
    marginal,
    plan,
    released,
    two_levels,
)

from countveil import (
    Plan,
    Release,
    Seeded,
    assess,
    open_engine,
    pipeline,
)
from countveil.assess.empirical_loss import kde
from countveil.assess.empirical_loss.residual_values import gathered
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.risk_maps import internal_map, public_map
from countveil.errors import InputError
from countveil.estimate.plan_error import expected_error
from countveil.privacy.costs import ZCDP
from countveil.report import charts
from countveil.report.charts import theme


def column(chart, name, **where):
    return [
        row[name]
        for row in chart.table.to_pylist()
        if all(row[key] == value for key, value in where.items())
    ]


def test_tables_hold_what_the_library_found():
    chart = drawn("posterior")
    for who, risk in disclosed().items():
        assert column(chart, "risk", prior=who.prior) == list(risk.value)
        assert column(chart, "posterior", prior=who.prior) == list(risk.posterior)
        after = np.array(column(chart, "posterior", prior=who.prior))
        np.testing.assert_allclose(after / who.prior, risk.value, rtol=1e-12)
    chart = drawn("risk by rho")
    for who, risks in marginal().items():
        assert column(chart, "marginal_risk", prior=who.prior) == [r.value for r in risks]
    assert column(chart, "epsilon", prior=0.5) == [ZCDP(rho).epsilon("1e-10") for rho in RHOS]
    chart = drawn("decision by rho")
    for who, risks in decided().items():
        assert column(chart, "probability", prior=who.prior) == [r.value for r in risks]
    chart = drawn("levels known")
    for who, risks in levels_known().items():
        assert column(chart, "marginal_risk", prior=who.prior) == [r.value for r in risks]
    found = drawn("risk by level").table
    assert found["marginal_risk"].to_pylist() == [r.marginal_risk for r in risk_by_level(plan())]
    found = drawn("expected error").table
    assert found["standard_error"].to_pylist() == [
        item.standard_error for item in expected_error(plan())
    ]
    found = drawn("homogeneity")
    curve = homogeneity_curve()
    assert (
        column(found, "risk", series="marginal shrinkage")
        == curve["marginal_shrinkage"].to_pylist()
    )
    found = drawn("frontier").table
    other = homogeneity_frontier().sort_by([("epsilon", "descending")])
    assert found["risk"].to_pylist() == other["local_weighted"].to_pylist()
    loss = kde(RESIDUALS)
    found = drawn("empirical loss")
    assert column(found, "size_of_loss", series="county", largest=True) == [loss.value]
    assert column(found, "residual", series="county", largest=True) == [loss.at]
    assert column(found, "loss", series="county") == loss.curve["loss"].to_pylist()
    found = drawn("risk map")
    assert sorted(column(found, "mean_risk"), reverse=True) == column(found, "mean_risk")
    assert column(found, "largest_risk", place="R2") == [2 + 2 / 3]


def test_rhos_and_errors_stay_together_in_any_order():
    errors = [law.variance**0.5 for law in LAWS]
    mixed = [3, 0, 5, 1, 4, 2]
    risks = {w: [items[i] for i in mixed] for w, items in marginal().items()}
    chart = charts.risk_and_error([RHOS[i] for i in mixed], risks, [errors[i] for i in mixed])
    assert column(chart, "rho", prior=0.5) == [float(rho) for rho in RHOS]
    assert column(chart, "error", prior=0.5) == errors
    assert column(chart, "marginal_risk", prior=0.02) == [r.value for r in marginal()[INTRUDERS[2]]]


def test_a_budget_is_shared_as_the_plan_says():
    rows = drawn("budget").table.to_pylist()
    shares = {(row["level"], row["query"]): row["share_of_all"] for row in rows}
    assert shares["area", "TOTAL"] == 1 / 8
    assert shares["area", "AGE*SEX"] == 3 / 8
    assert shares["area", "all queries"] == 1 / 2
    assert shares["all levels", "all queries"] == 1
    assert sum(row["rho"] for row in rows if row["query"] != "all queries") == 2.0


def test_the_decision_map_turns_where_the_posterior_passes_one_half():
    rows = drawn("decision map").table.to_pylist()
    for who, risk in believed().items():
        yes = [x for x, after in zip(SEEN, risk.value, strict=True) if after > 0.5]
        there = [r for r in rows if r["row"] == f"prior {who.prior:g}" and r["decision"] == "there"]
        assert [(r["first_value"], r["last_value"]) for r in there] == [
            (x, SEEN[-1]) for x in yes[:1]
        ]
        assert {r["prior"] for r in there} <= {who.prior}
    assert {r["prior"] for r in rows if r["decision"] == "there"} == {0.5, 0.2}
    rows = drawn("decision map, two levels").table.to_pylist()
    for parent, risks in two_levels().items():
        yes = [x for x, risk in zip(SEEN, risks, strict=True) if risk.value > 0.5]
        there = [r for r in rows if r["row"] == str(parent) and r["decision"] == "there"]
        assert [r["first_value"] for r in there] == yes[:1]


def test_intruders_are_counted_by_the_law_of_total_probability():
    who, rows = INTRUDERS[1], drawn("intruders").table.to_pylist()
    there = assess.correct_decision(LAWS[3], intruder=who).value
    away = assess.correct_decision(LAWS[3], intruder=who, present=False).value
    assert [row["when"] for row in rows] == ["before", "after"]
    assert rows[0]["decide_rightly"] == 160  # all say no, and four in five are right
    share = 0.2 * there + 0.8 * away
    assert rows[1]["probability_of_a_right_decision"] == pytest.approx(share, rel=1e-14)
    assert rows[1]["decide_rightly"] == round(200 * share) > 160
    alone = charts.two_hundred_intruders(who, assess.correct_decision(LAWS[3], intruder=who))
    assert alone.table["decide_rightly"].to_pylist() == [0, round(200 * there)]
    svg = alone.svg()
    assert svg.count(f'fill="{theme.COLOURS[0]}"') + svg.count(
        f"fill: {theme.COLOURS[0]}"
    ) == round(200 * there)


def test_boxes_are_quantiles():
    row = drawn("replicates").table.to_pylist()[0]
    values = np.sort(released()["projection"][0])
    assert row["median"] == (values[99] + values[100]) / 2
    inside = ((values >= row["percentile_25"]) & (values <= row["percentile_75"])).mean()
    assert inside >= 0.5
    assert row["percentile_05"] == pytest.approx(np.percentile(values, 5))
    assert row["true"] == 20


def test_residuals_are_all_counted():
    table = drawn("residuals").table
    assert sum(table["residuals"].to_pylist()) == len(RESIDUALS)
    at = {row["from"]: row["residuals"] for row in table.to_pylist()}
    assert at[0] == (RESIDUALS == 0).sum()
    assert at[-3] == (RESIDUALS == -3).sum()
    wide = charts.residuals(gathered(RESIDUALS * 1000)).table
    assert sum(wide["residuals"].to_pylist()) == len(RESIDUALS)
    assert wide.num_rows <= 101


def test_a_release_can_be_drawn_from_end_to_end(tiny):
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(4))
    release = Release.read(tiny.parent / "out")
    counts = open_engine("local").tabulate(plan)
    public = public_map(release.measurements, counts.geography, prior=0.1)
    inside = internal_map(release.measurements, counts, prior=0.1)
    for found, audience in ((public, "public"), (inside, "internal")):
        chart = charts.risk_map(found)
        assert chart.audience == audience
        groups = [row for row in found.groups.to_pylist() if row["by"] == "place"]
        assert {(row["place"], row["mean_risk"]) for row in chart.table.to_pylist()} == {
            (row["group"], row["mean_risk"]) for row in groups
        }
    with pytest.raises(InputError, match="risks: got Counts; pass RiskMap"):
        charts.risk_map(counts)
    with pytest.raises(InputError, match="exact: got Counts; pass a list of numbers"):
        charts.exact_and_released(counts, counts, audience="internal")
