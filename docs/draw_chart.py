"""Draw the chart of the README and the front page, from the plan that `countveil init` writes.

Run `python docs/draw_chart.py`; it prints the description that both pages need as alt text.
"""

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from countveil import Plan
from countveil.demo.starter import write_start
from countveil.report import charts
from countveil.report.budget_steps import other_budgets

FILE = Path(__file__).parent / "_static" / "risk-by-rho.svg"


def chart() -> charts.Chart:
    """Return marginal risk against rho, for the starter plan, up to four times its budget."""
    with tempfile.TemporaryDirectory() as folder:
        write_start(Path(folder) / "start", people=2_000, seed=1)
        plan = Plan.load(Path(folder) / "start" / "plan.toml")
        every = other_budgets(plan, geography=plan.geography())
    near = replace(every, steps=tuple(step for step in every.steps if Fraction(step.amount) <= 4))
    return charts.risk_by_rho(
        [step.amount for step in near.steps],
        near.by_intruder("marginal risk", plan.rows_per_person),
        chosen=near.chosen.amount,
        delta=plan.delta,
        limit=plan.intruder.limit,
    )


if __name__ == "__main__":
    front = chart()
    FILE.write_text(front.svg() + "\n", "utf-8")
    print(front.alt)
