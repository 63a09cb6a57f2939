"""What charts refuse, and how: results of the wrong kind, too many of them, confidential counts."""

import inspect

import pytest
from tests.report.chart_cases import (
    INTRUDERS,
    RESIDUALS,
    RHOS,
    SEEN,
    SHAPES,
    accuracy,
    believed,
    decided,
    disclosed,
    homogeneity_curve,
    homogeneity_frontier,
    levels_known,
    marginal,
    places,
)

from countveil import (
    Intruder,
)
from countveil.assess.empirical_loss import kde
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.report import charts


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: charts.posterior([], {}), "observed: got none"),
        (lambda: charts.posterior(SEEN, {}), "risks: got none"),
        (lambda: charts.posterior(SEEN[:3], disclosed()), "got 11 values for 3"),
        (lambda: charts.posterior(SEEN, believed()), "assess.disclosure_risk"),
        (lambda: charts.posterior(SEEN, {0.5: 1}), "got float; pass Intruder"),
        (lambda: charts.risk_by_rho([], marginal()), "rhos: got none"),
        (lambda: charts.risk_by_rho(["0"], {}), "above 0"),
        (lambda: charts.risk_by_rho(RHOS, {}), "risks: got none"),
        (lambda: charts.risk_by_rho(RHOS[:2], marginal()), "got 6 for 2 points"),
        (lambda: charts.risk_by_rho(RHOS, decided()), "pass 'marginal risk'"),
        (lambda: charts.risk_by_rho(RHOS, marginal(), chosen=3), "add it to `rhos`"),
        (lambda: charts.risk_and_error(RHOS, marginal(), [1.0]), "got 1 for 6 rhos"),
        (lambda: charts.decision_map(SEEN, {}), "posteriors: got none"),
        (lambda: charts.decision_map_two_levels(SEEN, {}), "posteriors: got none"),
        (lambda: charts.risk_by_levels_known([], {}), "levels: got none"),
        (lambda: charts.risk_by_levels_known(["a", "a"], levels_known()), "pass each once"),
        (lambda: charts.risk_by_level([]), "risks: got none"),
        (lambda: charts.expected_error([]), "errors: got none"),
        (lambda: charts.budget_allocation("plan.toml"), "got str; pass Plan"),
        (lambda: charts.error_by_size(accuracy([])), "no errors of 'TOTAL'"),
        (lambda: charts.error_by_size(accuracy(), query="AGE"), "choose from TOTAL"),
        (lambda: charts.exact_and_released([], [], audience="internal"), "exact: got none"),
        (lambda: charts.exact_and_released([1], [1], audience="public"), "drawn for 'internal'"),
        (lambda: charts.residuals([1, 2]), "got list; pass Residuals"),
        (lambda: charts.loss_of_residuals({}), "losses: got none"),
        (lambda: charts.homogeneity_by_epsilon([], homogeneity_curve()), "epsilons: got none"),
        (lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve().slice(0, 0)), "no rows"),
        (lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve()), "got 3 rows for 1"),
        (lambda: charts.frontier(homogeneity_frontier().slice(0, 0)), "no rows"),
        (lambda: charts.frontier(homogeneity_frontier(), risk="x"), "column 'x' is missing"),
        (lambda: charts.replicates([], {}, audience="public"), "places: got none"),
        (lambda: charts.replicates(["a"], {}, audience="public"), "released: got none"),
        (lambda: charts.replicates(["a"], {"x": [[1]]}, audience="all"), "choose 'public'"),
        (lambda: charts.risk_map(places(), by="AGE"), "choose from all, place"),
        (lambda: charts.risk_map(places(number=0)), "choose from all"),
        (lambda: charts.risk_map(places(), shapes={"type": "Point"}), "FeatureCollection"),
        (lambda: charts.risk_map(places(), shapes=SHAPES, key="x"), "name another property"),
        (lambda: charts.two_hundred_intruders(INTRUDERS[0], Risk("posterior", 0.5)), "_decision"),
        (lambda: charts.loss_of_residuals({"a": kde(RESIDUALS)}, audience="all"), "choose 'public'"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_with_a_reason(draw, message):
    with pytest.raises(InputError, match=message):
        draw()


def test_more_series_than_readers_can_distinguish_are_refused():
    many = {Intruder(prior=(i + 1) / 20): [Risk("marginal risk", 1.5)] for i in range(9)}
    with pytest.raises(InputError, match="got 9, and readers can tell at most 8 apart"):
        charts.risk_by_rho(["1"], many)


class Counts:
    """Stands for confidential counts: silent, and no result."""

    def __repr__(self):
        raise AssertionError("a message showed confidential counts")


DRAW = sorted(name for name in charts.__all__ if inspect.isfunction(getattr(charts, name)))


@pytest.mark.parametrize("name", DRAW)
def test_no_chart_accepts_confidential_counts(name):
    draw = getattr(charts, name)
    confidential = Counts()
    arguments = {
        "posterior": (SEEN, {INTRUDERS[0]: confidential}),
        "risk_by_rho": (RHOS, {INTRUDERS[0]: [confidential] * 6}),
        "decision_by_rho": (RHOS, {INTRUDERS[0]: [confidential] * 6}),
        "risk_and_error": (RHOS, {INTRUDERS[0]: [confidential] * 6}, [1.0] * 6),
        "decision_map": (SEEN, {INTRUDERS[0]: confidential}),
        "decision_map_two_levels": (SEEN, {1: [confidential] * 11}),
        "risk_by_levels_known": (["a"], {INTRUDERS[0]: [confidential]}),
        "risk_by_level": ([confidential],),
        "expected_error": ([confidential],),
        "exact_and_released": (confidential, confidential),
        "empirical_loss": ({"a": confidential},),
        "homogeneity_by_epsilon": ([1.0], confidential),
        "replicates": (["a"], {"x": confidential}),
        "two_hundred_intruders": (INTRUDERS[0], confidential),
    }.get(name, (confidential,))
    options = {"audience": "internal"} if name in ("exact_and_released", "replicates") else {}
    if name == "coverage":
        options = {"audience": "internal", "confidence": 0.9}
    with pytest.raises(InputError, match=": got "):
        draw(*arguments, **options)


def test_an_internal_risk_makes_an_internal_chart():
    risk = Risk("marginal risk", 1.5, audience="internal")
    chart = charts.risk_by_rho(["1"], {INTRUDERS[0]: [risk]})
    assert chart.audience == "internal"
    assert chart.caption.startswith("INTERNAL")
    assert "INTERNAL" in chart.svg()
