"""The best split of a budget, against closed forms, a generic solver and dense errors."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.estimate import dense_least_squares, released_trees

from countveil import Plan
from countveil.assess.choose import optimal_split
from countveil.assess.choose.optimal_split import best_split, worst_rung
from countveil.assess.choose.risk_rows import RiskRows
from countveil.assess.choose.share_digits import short_shares
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.verdict import judge
from countveil.errors import InputError
from countveil.plan.accuracy_target import Target
from countveil.tree.tree_shape import tree_of

AGE = {"AGE": ["a", "b", "c", "d"], "SEX": ["f", "m"]}
RECODED = {"OLD": ("AGE", {"no": ["a"], "yes": ["b", "c", "d"]})}
LEVELS = {
    "l0": {"AGE": 1, "SEX": 1},
    "l1": {"TOTAL": 1, "AGE*SEX": 2},
    "l2": {"TOTAL": 3, "OLD": 1, "AGE*SEX": 1},
}
PLACES = released_trees.places([1], [3], [1, 2, 4])


def largest_risk(plan, level=None):
    return worst_rung(plan, level).marginal_risk


def plan_in(folder, text=None, places=PLACES):
    """Return a plan with its places."""
    text = released_trees.plan_text(AGE, LEVELS, recodes=RECODED) if text is None else text
    (folder / "plan.toml").write_text(text)
    (folder / "places.csv").write_text(places)
    return Plan.load(folder / "plan.toml")


def one_unit(folder, queries, attributes=AGE):
    """Return a plan of one unit with equal shares of some queries."""
    text = released_trees.plan_text(attributes, {"l0": dict.fromkeys(queries, 1)}, rho="1")
    return plan_in(folder, text, "l0\nu1\n")


class Dense:
    """Mean variances of targets by dense matrices: nothing in common with the tree's algebra."""

    def __init__(self, plan, targets):
        geography = plan.geography()
        lowest = plan.levels[-1]
        units = geography.units(lowest)
        self.squares, self.wanted = [], []
        for item in plan.allocations:
            above = geography.ancestors(lowest, item.level)
            rows = dense_least_squares.matrix(plan, item.query.name)
            whole = [
                np.kron((above == unit).astype(float), rows)
                for unit in range(geography.units(item.level))
            ]
            self.squares.append(sum(row.T @ row for row in whole))
        for target in targets:
            above = geography.ancestors(lowest, target.level)
            rows = dense_least_squares.matrix(plan, target.query)
            number = geography.units(target.level)
            self.wanted.append(
                sum(
                    np.kron(np.outer(above == unit, above == unit), rows.T @ rows)
                    for unit in range(number)
                )
                / (number * len(rows))
            )
        assert units * plan.schema.cells == len(self.squares[0])

    def variances(self, rho):
        precision = sum(amount * square for amount, square in zip(rho, self.squares, strict=True))
        covariance = np.linalg.pinv(precision, rcond=1e-12)
        return np.array([np.sum(wanted * covariance) for wanted in self.wanted])


def spent(best, column="rho_after"):
    return np.array(best.shares[column].to_pylist())


TARGETS = [
    Target("TOTAL", level="l2", margin=5),
    Target("AGE", level="l1", weight=2, margin=8),
    Target("SEX", level="l0", margin=4),
]


def test_no_split_is_better_by_a_generic_solver_or_at_random(tmp_path):
    plan = plan_in(tmp_path)
    best = best_split(plan, TARGETS, others=math.inf)
    assert best.gap < 1e-6
    dense = Dense(plan, TARGETS)
    importance = np.array([item.weight / item.standard_error**2 for item in TARGETS])
    amounts = np.array([float(item.cost.amount) for item in plan.allocations])

    def figure(rho):
        return float(importance @ dense.variances(rho))

    assert best.before == pytest.approx(figure(amounts), rel=1e-9)
    assert best.after == pytest.approx(figure(np.maximum(spent(best), 1e-9)), rel=1e-4)
    assert best.rounding_loss < 0.005
    least = best.after / (1 + best.rounding_loss)
    solution = minimize(
        lambda log: figure(np.exp(log) / np.exp(log).sum() * amounts.sum()),
        np.log(amounts),
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 2_000},
    )
    assert least <= solution.fun * (1 + 1e-6)
    rng = np.random.default_rng(1)
    for concentration in (3.0, 30.0, 3_000.0):
        centre = np.maximum(spent(best), 1e-4) / spent(best).sum()
        for split in rng.dirichlet(concentration * centre + 1e-3, 350):
            assert figure(np.maximum(split, 1e-9) * amounts.sum()) >= least * (1 - 1e-6)


def test_one_table_and_its_total_have_a_closed_form(tmp_path):
    plan = one_unit(tmp_path, ["TOTAL", "AGE*SEX"])
    a, b, cells = 3.0, 1.0, 8
    targets = [Target("TOTAL", "l0", 1.96, a), Target("AGE*SEX", "l0", 1.96, b)]
    best = best_split(plan, targets, others=math.inf)
    # V(TOTAL) = n / u and V(cell) = (1/u + (n - 1)/r) / n, with r for the cells and u = n - (n - 1) r.
    ratio = math.sqrt((a * cells + b / cells) / (b / cells))
    detail = cells / (ratio + cells - 1)
    assert spent(best)[1] == pytest.approx(detail, abs=0.02)
    unit = targets[0].standard_error ** 2
    whole = cells - (cells - 1) * detail
    least = (a * cells / whole + b * (1 / whole + (cells - 1) / detail) / cells) / unit
    assert best.after / (1 + best.rounding_loss) == pytest.approx(least, rel=1e-6)


def residual_optimum(sizes, wanted):
    """Return the least weighted sum of variances with noise on residuals (Xiao et al. 2023), rho = 1.

    Subsets of attributes have residuals of their own; noise of variance v on those of a subset costs
    the product of (n - 1)/n over it, divided by v, and adds to each cell of a table that contains it.
    """
    subsets = [
        s for n in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), n)
    ]
    root = 0.0
    for subset in subsets:
        cost = math.prod((sizes[i] - 1) / sizes[i] for i in subset)
        value = 0.0
        for table, importance in wanted.items():
            if set(subset) <= set(table):
                within = math.prod((sizes[i] - 1) / sizes[i] for i in subset)
                outside = math.prod(1 / sizes[i] ** 2 for i in table if i not in subset)
                value += importance * within * outside
        root += math.sqrt(cost * value)
    return root**2


def test_it_reaches_the_optimum_over_residuals_where_tables_can(tmp_path):
    sizes = (4, 2)
    names = {(): "TOTAL", (0,): "AGE", (1,): "SEX", (0, 1): "AGE*SEX"}
    wanted = {(): 1.0, (0,): 2.0, (1,): 1.0, (0, 1): 4.0}
    plan = one_unit(tmp_path, list(names.values()))
    unit = 1 / Target("TOTAL", "l0", 1.0).standard_error ** 2
    targets = [Target(names[table], "l0", 1.0, weight) for table, weight in wanted.items()]
    best = best_split(plan, targets, others=math.inf)
    least = best.after / (1 + best.rounding_loss) / unit
    assert least == pytest.approx(residual_optimum(sizes, wanted), rel=1e-6)
    assert (spent(best) > 0).all()


def test_the_largest_error_is_as_small_as_can_be(tmp_path):
    plan = plan_in(tmp_path)
    best = best_split(plan, TARGETS[:2], minimise="worst", others=math.inf)
    assert best.gap < 1e-6
    dense = Dense(plan, TARGETS[:2])
    units = np.array([item.standard_error / math.sqrt(item.weight) for item in TARGETS[:2]])
    ratios = np.sqrt(dense.variances(np.maximum(spent(best), 1e-9))) / units
    assert ratios == pytest.approx([best.after, best.after], rel=0.01)
    rng = np.random.default_rng(2)
    least = best.after / (1 + best.rounding_loss)
    for split in rng.dirichlet(40 * np.maximum(spent(best), 0.01) / 2, 500):
        others = np.sqrt(dense.variances(np.maximum(split, 1e-9) * 2)) / units
        assert others.max() >= least * (1 - 1e-6)
    assert {f"the error of {item.name}" for item in TARGETS[:2]} <= set(best.binding)


def test_the_least_budget_reaches_every_margin_and_no_smaller_one_does(tmp_path):
    plan = plan_in(tmp_path)
    best = best_split(plan, TARGETS, minimise="rho", others=math.inf)
    assert best.table["reached"].to_pylist() == [True, True, True]
    assert best.plan.cost.amount == Fraction(best.plan.document["budget"]["rho"])
    assert best.after == float(best.plan.cost.amount) < best.before
    tighter = best.plan.with_budget(best.plan.cost.amount * Fraction(99, 100))
    again = best_split(tighter, TARGETS, minimise="worst", others=math.inf)
    assert again.after > 1.0
    assert any(text.startswith("the margin of") for text in best.binding)


def test_other_tables_lose_no_more_than_they_may(tmp_path):
    text = released_trees.plan_text(AGE, LEVELS, recodes=RECODED)
    text = text.replace('method = "none"', 'method = "top-down"\ntables = ["AGE", "SEX"]')
    plan = plan_in(tmp_path, text)
    free = best_split(plan, [Target("TOTAL", "l2")], others=math.inf)
    kept = best_split(plan, [Target("TOTAL", "l2")], others=2)
    assert free.after < kept.after < kept.before
    rest = [Target(query, level) for level in plan.levels for query in ("AGE", "SEX")]
    rest += [Target("TOTAL", "l0"), Target("TOTAL", "l1")]
    dense = Dense(plan, rest)
    today = dense.variances([float(item.cost.amount) for item in plan.allocations])
    after = dense.variances(np.maximum(spent(kept), 1e-9))
    for level in plan.levels:
        losses = [
            a / b for a, b, item in zip(after, today, rest, strict=True) if item.level == level
        ]
        assert np.mean(losses) <= 4 * 1.002
    assert any("other tables" in text for text in kept.binding)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("county TOTAL", Target("TOTAL", "county")),
        ("zip Diagnosis within 5", Target("Diagnosis", "zip", 5.0)),
        ("zip Diagnosis within 5 people", Target("Diagnosis", "zip", 5.0)),
        ("county RACE within 2 % of 20,000", Target("RACE", "county", 400.0)),
        ("county RACE ±2% of 20,000 at 90 %", Target("RACE", "county", 400.0, 1.0, 0.9)),
        ("block TOTAL weight 3", Target("TOTAL", "block", None, 3.0)),
        ("block A*B within 1.5 weight 0.5", Target("A*B", "block", 1.5, 0.5)),
    ],
)
def test_targets_are_read_from_text(text, target):
    assert Target.parse(text) == target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("county", "is not understood"),
        ("county TOTAL within", "is not understood"),
        ("county TOTAL within 2 %", "says percent, but not of how many people"),
        ("county TOTAL within 0", "a margin of 0 is not possible"),
        ("county TOTAL within 5 at 100 %", "a confidence of 1 is not possible"),
        ("county TOTAL weight 0", "a weight of 0 is not possible"),
    ],
)
def test_targets_that_make_no_sense_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        Target.parse(text)


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        ([], {}, "none was given"),
        (["nowhere TOTAL"], {}, "unknown level 'nowhere'; choose from l0, l1, l2"),
        (["l2 HEIGHT"], {}, "HEIGHT"),
        (["l2 TOTAL"], {"minimise": "time"}, "choose error, worst, rho or risk"),
        (["l2 TOTAL"], {"others": 1}, "give a number above 1"),
    ],
)
def test_what_cannot_be_optimised_is_refused(targets, options, message, tmp_path):
    with pytest.raises(InputError, match=message):
        best_split(plan_in(tmp_path), targets, **options)


def test_exact_and_undetermined_targets_are_refused(tmp_path):
    text = released_trees.plan_text(AGE, {"l0": {"AGE": 1}}, invariants=[("l0", "TOTAL")])
    plan = plan_in(tmp_path, text, "l0\nu1\n")
    with pytest.raises(InputError, match="is published exactly, so no budget changes it"):
        best_split(plan, ["l0 TOTAL"])
    with pytest.raises(InputError, match="does not measure enough to determine it; add SEX"):
        best_split(plan, ["l0 SEX"])


def test_shares_have_few_digits_and_sum_to_one():
    split = np.array([0.31234, 0.11, 0.0004, 0.37726, 0.2])
    groups = [0, 0, 1, 1, 2]
    shares = short_shares(
        split, groups, lambda other: float(np.abs(other / split - 1).max()), most=0.05
    )
    whole = {group: share for group, (share, _) in zip(groups, shares, strict=True)}
    assert sum(whole.values()) == 1
    for group in whole:
        assert sum(own for at, (_, own) in zip(groups, shares, strict=True) if at == group) == 1
    assert all(share.denominator <= 10_000 for pair in shares for share in pair)
    easy = short_shares(np.array([0.5, 0.25, 0.25]), [0, 1, 1], lambda other: 0.0)
    assert easy == [
        (Fraction(1, 2), 1),
        (Fraction(1, 2), Fraction(1, 2)),
        (Fraction(1, 2), Fraction(1, 2)),
    ]


def test_proposed_queries_reach_what_the_plan_cannot(tmp_path):
    plan = plan_in(tmp_path)
    targets = [Target("AGE", "l2"), Target("TOTAL", "l1")]
    own = best_split(plan, targets, others=math.inf)
    more = best_split(plan, targets, others=math.inf, propose=True)
    assert more.gap < 1e-6
    assert more.after < 0.8 * own.after
    added = {
        row["query"]
        for row in more.shares.to_pylist()
        if row["rho_before"] == 0 and row["rho_after"] > 0
    }
    assert "AGE" in added
    measured = {item.query.name for item in more.plan.allocations}
    assert measured >= added
    # A table that nothing determines today can be proposed.
    text = released_trees.plan_text(AGE, {"l0": {"AGE": 1}})
    alone = plan_in(tmp_path, text, "l0\nu1\n")
    found = best_split(alone, ["l0 SEX within 5", "l0 AGE within 5"], minimise="rho", propose=True)
    assert found.table["reached"].to_pylist() == [True, True]
    assert found.before == math.inf


LIMITED = [Target("TOTAL", "l2", 5), Target("AGE", "l1", 8)]


@pytest.mark.parametrize(("minimise", "limit"), [("error", 1.3), ("worst", 1.8)])
def test_a_limit_on_risk_is_kept_and_used(minimise, limit, tmp_path):
    plan = plan_in(tmp_path)
    free = best_split(plan, LIMITED, minimise=minimise, others=math.inf)
    assert free.proof == "proved"
    assert largest_risk(free.plan) > limit
    best = best_split(plan, LIMITED, minimise=minimise, others=math.inf, max_risk=limit)
    assert best.proof == "local"
    assert 0.97 * limit < largest_risk(best.plan) <= limit
    assert best.after > free.after
    # The same shares, scaled down until the limit is kept, are no better.
    low, high = Fraction(1, 1000), Fraction(1)
    for _ in range(20):
        middle = (low + high) / 2
        scaled = free.plan.with_budget(plan.cost.amount * middle)
        low, high = (middle, high) if largest_risk(scaled) <= limit else (low, middle)
    by_scale = free.after / float(low) if minimise == "error" else free.after / math.sqrt(low)
    assert best.after <= by_scale * 1.01


def test_a_limit_that_the_best_split_keeps_changes_nothing(tmp_path):
    plan = plan_in(tmp_path)
    free = best_split(plan, LIMITED, others=math.inf)
    same = best_split(plan, LIMITED, others=math.inf, max_risk=largest_risk(free.plan) * 1.001)
    assert (same.proof, same.after) == ("proved", free.after)


def test_margins_under_a_limit_on_risk(tmp_path):
    plan = plan_in(tmp_path)
    wide = [Target("TOTAL", "l2", 9), Target("AGE", "l1", 14)]
    free = best_split(plan, wide, minimise="rho", others=math.inf)
    with pytest.raises(InputError, match="no split was found that keeps the limit on risk"):
        best_split(plan, wide, minimise="rho", others=math.inf, max_risk=1.01)
    kept = largest_risk(free.plan) * 1.001
    same = best_split(plan, wide, minimise="rho", others=math.inf, max_risk=kept)
    assert (same.proof, same.after) == ("proved", free.after)


def test_a_level_that_gets_nothing_is_still_judged(tmp_path):
    """The intruder knows everyone in a unit of l2, whether or not l2 is measured."""
    plan = plan_in(tmp_path)
    assert plan.judged_level == "l2"
    free = best_split(plan, ["l1 AGE"], others=math.inf)
    assert "l2" not in free.plan.measured_levels
    limit = 1 + 0.5 * (largest_risk(free.plan, "l2") - 1)
    best = best_split(plan, ["l1 AGE"], others=math.inf, max_risk=limit)
    assert best.proof == "local"
    assert largest_risk(best.plan, "l2") <= limit


@pytest.mark.parametrize("others", [math.inf, 3.0])
def test_the_least_risk_that_reaches_every_margin(others, tmp_path):
    """Within the budget, below the risk of the least budget, and no random split is better."""
    plan = plan_in(tmp_path)
    wide = [Target("TOTAL", "l2", 9), Target("AGE", "l1", 14)]
    cheap = best_split(plan, wide, minimise="rho", others=others)
    best = best_split(plan, wide, minimise="risk", others=others)
    assert best.proof == "local"
    assert best.table["reached"].to_pylist() == [True, True]
    assert best.plan.cost.rho <= plan.cost.rho
    assert best.after == largest_risk(best.plan) <= largest_risk(cheap.plan)
    assert best.after < best.before
    # Random splits, each with just the budget that reaches the margins and spares the other tables.
    tree = tree_of(plan.places())
    problem = optimal_split._Problem.of(plan, wide, "rho", others, False, tree)
    risk = RiskRows.of(plan, tree, problem.model.weights)
    chosen = np.array(best.shares["rho_after"].to_pylist())
    least = risk.largest(problem.rate * chosen)
    draw, tried = np.random.default_rng(1), 0
    for size in np.geomspace(0.005, 1, 400):
        moved = (chosen + 1e-3 * chosen.max()) * np.exp(size * draw.standard_normal(len(chosen)))
        moved *= problem.figure(moved)
        if moved.sum() <= float(plan.cost.rho):
            tried += 1
            assert risk.largest(problem.rate * moved) >= (1 - 5e-3) * least
    assert tried >= 20


def test_a_limit_counts_what_is_published_exactly(tmp_path):
    """Exact tables of l1 tell more about its units than their noisy counts alone."""
    text = released_trees.plan_text(AGE, LEVELS, recodes=RECODED)
    known = '[[invariants]]\nlevel = "l1"\nquery = "AGE*SEX"\nreason = "known"\n'
    plan = plan_in(
        tmp_path,
        text.replace("add-remove", "change-one") + known,
        released_trees.places([1], [2], [3, 4]),
    )
    plan = plan.with_budget(Fraction(1, 5))
    free = best_split(plan, ["l2 AGE"], others=math.inf)
    noisy = risk_by_level(free.plan, levels=("l2",), decisions=False)
    whole = worst_rung(free.plan)
    assert not whole.settled
    alone = max(rung.marginal_risk for rung in noisy)
    assert alone < whole.marginal_risk
    limit = (alone + whole.marginal_risk) / 2
    kept = best_split(plan, ["l2 AGE"], others=math.inf, max_risk=limit)
    assert max(risk.marginal_risk for risk in judge(kept.plan).risks) <= limit


def test_margins_beyond_the_budget_have_no_least_risk(tmp_path):
    plan = plan_in(tmp_path)
    with pytest.raises(
        InputError, match=r"the margins need rho = \S+, and the plan has \S+; raise"
    ):
        best_split(plan, [Target("TOTAL", "l2", 0.01)], minimise="risk")
