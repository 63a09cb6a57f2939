"""`countveil choose PLAN --for …`: split a budget for the tables that matter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from countveil.cli import showing
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.assess.choose.published_check import SimulatedPeople
    from countveil.plan.plans import Plan


def choose_for_tables(
    path: Path,
    targets: Sequence[str],
    *,
    minimise: str,
    others: float,
    propose: bool,
    risk: float | None,
    write: Path | None,
    population: str | None,
    as_json: bool,
) -> None:
    """Print the best split of a plan's budget, and write the plan to a file if asked to."""
    from countveil.assess.choose.optimal_split import best_split
    from countveil.assess.choose.published_check import check_forecasts
    from countveil.assess.verdict import judge
    from countveil.base.randomness import Secure
    from countveil.plan import plan_text
    from countveil.plan.accuracy_target import Target
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
    named = [Target.parse(text) for text in targets] or list(plan.targets)
    people = None if population is None else _population(plan, population)
    with showing.busy("splitting the budget"):
        best = best_split(plan, named, minimise=kind, others=others, propose=propose, max_risk=risk)
    check = None
    if people is not None:
        with showing.busy("simulating releases"):
            check = check_forecasts(plan, best, named, people, rng=Secure())
    text, commented = plan_text.rewritten(path.read_text(encoding="utf-8"), plan, best.plan)
    verdict = judge(best.plan)
    if as_json:
        document = {**split_terminal.document(best), "verdict": verdict.sentence}
        if check is not None:
            document["published"] = split_terminal.check_document(check)
        showing.print_json(document)
    else:
        view = split_terminal.view(best, verdict, check, lines=write is None)
        showing.console().print(view, soft_wrap=True)
    if write is not None:
        with write.open("x", encoding="utf-8") as file:
            file.write(text)
        if not as_json:
            lost = "" if commented else " Its comments could not be kept."
            print(f"Written to {showing.shorter_path(write)}.{lost}")
    if verdict.status == "above":  # where exactly published counts give the answer
        raise typer.Exit(1)


def _population(plan: Plan, text: str) -> SimulatedPeople:
    """Return the people whom releases are simulated of: a release's estimates, or so many per place."""
    from countveil.assess.choose.published_check import SimulatedPeople
    from countveil.publish.release_folder import Release

    if Path(text).is_dir():
        return SimulatedPeople.of_release(Release.read(text), plan)
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        raise InputError(
            f"--population {text}: is no folder and no number; name a release folder, or a number of "
            f"people per {plan.levels[-1]}"
        ) from None
    return SimulatedPeople.even(plan, number)
