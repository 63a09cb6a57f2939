"""`countveil choose PLAN --for …`: split a budget for the tables that matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from countveil.cli import showing
from countveil.errors import InputError


def choose_for_tables(
    path: Path,
    targets: Sequence[str],
    *,
    minimise: str,
    others: float,
    propose: bool,
    risk: float | None,
    write: Path | None,
    as_json: bool,
) -> None:
    """Print the best split of a plan's budget, and write the plan to a file if asked to."""
    from countveil.assess.choose.optimal_split import best_split
    from countveil.assess.verdict import judge
    from countveil.plan import plan_text
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.terminal import split_terminal

    kind: Any = minimise  # checked where it is used
    if write is not None and write.exists():
        raise InputError(f"--write {write}: the file exists; name a new one")
    plan = require_counts(Plan.load(path), "choose")
    if not targets and not plan.targets:
        raise InputError(
            "choose: with a plan, name tables that matter with --for or in budget.targets, or give one "
            "of --risk, --posterior and --correct"
        )
    with showing.busy("splitting the budget"):
        best = best_split(
            plan,
            targets or plan.targets,
            minimise=kind,
            others=others,
            propose=propose,
            max_risk=risk,
        )
    text, commented = plan_text.rewritten(path.read_text(encoding="utf-8"), plan, best.plan)
    verdict = judge(best.plan)
    if as_json:
        showing.print_json({**split_terminal.document(best), "verdict": verdict.sentence})
    else:
        view = split_terminal.view(best, verdict, lines=write is None)
        showing.console().print(view, soft_wrap=True)
    if write is not None:
        with write.open("x", encoding="utf-8") as file:
            file.write(text)
        if not as_json:
            lost = "" if commented else " Its comments could not be kept."
            print(f"Written to {showing.shorter_path(write)}.{lost}")
    if verdict.status == "above":  # where exactly published counts give the answer
        raise typer.Exit(1)
