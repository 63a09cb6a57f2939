"""`countveil assess loss`: the privacy loss of a plan, a release, or a file of counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.assess_commands.assess_group import (
    Internal,
    PlanOfRecords,
    lens_command,
    show_section,
    subject_of,
)
from countveil.cli.internal_files import write_internal
from countveil.cli.options import AsJson, EngineName, ShowValues
from countveil.errors import InputError
from countveil.report.lenses import lens_named

if TYPE_CHECKING:
    from countveil.assess.empirical_loss.residual_groups import Tallies
    from countveil.engines.counts import Counts
    from countveil.publish.release_folder import Release

_FILE = "With a file of counts"
_RESIDUALS = "With --internal, or a file of counts"


@dataclass(frozen=True, slots=True)
class _Estimation:
    """How the loss is estimated from residuals."""

    bandwidth: float
    percentile: float
    confidence: float


@lens_command("loss")
def assess_loss(
    context: typer.Context,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET",
            help="A plan file (.toml), a release folder, or a CSV or Parquet file of counts.",
        ),
    ],
    internal: Internal = False,
    plan: PlanOfRecords = None,
    of: Annotated[
        str | None,
        typer.Option(
            help="measurements or estimates; default: estimates if there are any.",
            rich_help_panel="With --internal",
        ),
    ] = None,
    strata: Annotated[
        bool,
        typer.Option(
            "--strata",
            help="Treat each cell of a query separately.",
            rich_help_panel="With --internal",
        ),
    ] = False,
    exact: Annotated[
        str, typer.Option(help="Column of exact counts.", rich_help_panel=_FILE)
    ] = "exact",
    released: Annotated[
        str, typer.Option(help="Column of released counts.", rich_help_panel=_FILE)
    ] = "released",
    by: Annotated[
        list[str] | None,
        typer.Option(help="Column to group rows by; repeat for more.", rich_help_panel=_FILE),
    ] = None,
    bandwidth: Annotated[
        float, typer.Option(help="Smoothing, in standard deviations.", rich_help_panel=_RESIDUALS)
    ] = 0.1,
    percentile: Annotated[
        float,
        typer.Option(help="Percentile of residuals to search up to.", rich_help_panel=_RESIDUALS),
    ] = 95.0,
    confidence: Annotated[
        float, typer.Option(help="Confidence of intervals and bounds.", rich_help_panel=_RESIDUALS)
    ] = 0.95,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
) -> None:
    """Run the lens `loss`, or estimate the loss from residuals.

    Reads a plan or a release, and computes the loss from its noise. With --internal, it also reads the
    records, estimates the loss from residuals (released minus exact counts) and writes it to the
    internal folder. From a file with two columns of counts, it estimates the loss in the same way.

    Example: `countveil assess loss out`, or `countveil assess loss out --internal`, or
    `countveil assess loss pairs.csv --exact true --released published --by county`
    """
    how = _Estimation(bandwidth, percentile, confidence)
    residuals = {"bandwidth", "percentile", "confidence"}
    if target.is_file() and target.suffix != ".toml":
        showing.refuse_unused(context, residuals | {"exact", "released", "by"}, "a file of counts")
        from countveil.assess import empirical_loss

        tallies = empirical_loss.of_columns(target, exact=exact, released=released, by=by or ())
        _show_loss(tallies, how, folder=None, as_json=as_json)
    elif internal:
        from countveil.cli.records_again import counts_again
        from countveil.measure.run import internal_of
        from countveil.publish.release_folder import Release

        used = residuals | {"internal", "plan", "of", "strata", "engine", "show_values"}
        showing.refuse_unused(context, used, "--internal")
        release = Release.read(target)
        counts = counts_again(release, plan, show_values, engine)
        tallies = _tallies_of_release(release, counts, of, strata=strata)
        _show_loss(tallies, how, folder=internal_of(target), as_json=as_json)
    else:
        showing.refuse_unused(context, {"plan"}, "a plan or a release without --internal")
        subject = subject_of(target, needs="plan", plan=plan)
        show_section(lens_named("loss").section(subject), "loss", as_json=as_json)


def _tallies_of_release(
    release: Release, counts: Counts, of: str | None, *, strata: bool
) -> Tallies:
    """Return the residuals of a release's measurements or estimates, by group."""
    from countveil.assess import empirical_loss

    if of not in (None, "measurements", "estimates"):
        raise InputError(f"--of: unknown value {of!r}; choose measurements or estimates")
    if of is None:
        of = "estimates" if "estimates" in release.manifest else "measurements"
    return empirical_loss.of_release(getattr(release, of), counts, strata=strata)


def _show_loss(tallies: Tallies, how: _Estimation, *, folder: Path | None, as_json: bool) -> None:
    """Print the empirical loss of residuals; with a folder, also write it there, for its owner only."""
    losses = tallies.losses(
        confidence=how.confidence, bandwidth=how.bandwidth, percentile=how.percentile
    )
    rows = losses.to_pylist()
    if all(row["empirical_loss"] is None and row["tail_ratio"] is None for row in rows):
        raise InputError(
            "residuals: no group has two different residuals, so there is no noise to estimate a "
            "loss from; check that the columns hold exact and released counts"
        )
    notes, tests = [], []
    for key in tallies.groups:
        tests.append({"group": list(key), **_exchangeable(tallies, key)})
    note = _bias_note(tallies, how.bandwidth, how.percentile)
    if note is not None:
        notes.append(note)
    doubtful = [item for item in tests if item.get("p_value", 1.0) < 0.01]
    if doubtful:
        names = "; ".join(", ".join(item["group"]) or "all residuals" for item in doubtful[:5])
        notes.append(
            f"In {len(doubtful)} of {len(tests)} groups, residuals differ between size classes (p "
            f"below 0.01), so a single loss for the group means little: {names}."
        )
    section = lens_named("realised-loss").section_of(
        rows,
        tallies.names,
        confidence=how.confidence,
        notes=notes,
        reasons=True,
        figures={
            "losses": [_finite(row) for row in rows],
            "exchangeability": tests,
            "notes": notes,
        },
    )
    if folder is not None:
        write_internal(folder, "loss", section.document, losses)
    show_section(section, "loss", as_json=as_json)
    if folder is not None and not as_json:
        console = showing.console()
        console.print(f"\nWritten: {folder}/loss.json and loss.parquet", soft_wrap=True)


def _exchangeable(tallies: Tallies, key: tuple[str, ...]) -> dict[str, Any]:
    try:
        test = tallies.exchangeability(key)
    except InputError as error:
        return {"note": str(error)}
    return {"statistic": test.statistic, "p_value": test.p_value, "size_classes": test.groups}


def _bias_note(tallies: Tallies, bandwidth: float, percentile: float) -> str | None:
    """Return a note on the estimator's bias, for the largest group where it can be simulated."""
    from countveil.assess.empirical_loss.estimator_bias import bias
    from countveil.assess.empirical_loss.smoothed_density import kde

    for residuals in sorted(map(tallies.of, tallies.groups), key=lambda item: -item.total):
        try:
            loss = kde(residuals, bandwidth=bandwidth, percentile=percentile)
            return bias(residuals, loss, replicates=40).note
        except InputError:
            continue  # too few residuals, or no spread
    return None


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Replace infinite numbers, which JSON lacks, by None."""
    return {
        name: None if isinstance(value, float) and value == float("inf") else value
        for name, value in row.items()
    }
