"""`countveil intervals`: counts with margins of error, for all places of a level or any areas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, EngineName, OutPath, Quiet, Workers
from countveil.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from countveil.engines.workers import Workers as Team
    from countveil.estimate.interval_tables import UnitsOrAreas
    from countveil.estimate.replication.replicate_errors import Replicates
    from countveil.estimate.unbiased import LeastSquares
    from countveil.plan.geography import Geography
    from countveil.publish.release_folder import Release

_LEAST_SQUARES, _REPLICATES = _METHODS = ("least-squares", "replicates")
_CONFIDENCE, _COUNT, _SEED = 0.9, 200, 1
_MOST_PRINTED = 1_000_000  # rows of one JSON document
_ROWS = 2**18  # rows formatted at a time


@command("intervals")
def estimate_counts(
    out: OutPath,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", help="What to count; repeat for more. Default: TOTAL."),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Level to list; with --areas, the level of its geocodes.")
    ] = None,
    areas: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file of areas: a column area, and one of geocodes."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence of the intervals; default: the plan's, or 0.9.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="least-squares (unbiased) or replicates (of the published estimates)."),
    ] = _LEAST_SQUARES,
    count: Annotated[
        int | None, typer.Option(help=f"Number of replicates; default: {_COUNT}.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the replicates; it does not affect privacy.")
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder to keep replicates in, to resume or extend a run."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write all rows to this .csv or .parquet file.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show counts with their margins of error, for all places of a level or for any areas.

    Reads the release folder, but no records. Writes a file only with --to; charges nothing. With
    least squares, estimates are unbiased and their errors exact. Replicates show the error and the
    bias of the published estimates.

    Example: `countveil intervals out --areas districts.csv --query RACE --to districts-race.csv`
    """
    from countveil.estimate.result_tables import refuse_reserved_names
    from countveil.publish.release_folder import Release
    from countveil.publish.verification import refuse_damaged
    from countveil.report.terminal import interval_output

    if method not in _METHODS:
        raise InputError(f"--method: unknown method {method!r}; choose from {', '.join(_METHODS)}")
    if method == _LEAST_SQUARES:
        _refuse_of_replicates(count=count, seed=seed, workers=workers, work=work)
    if to is not None:
        interval_output.refuse_target(to)
        if areas is not None and to.resolve() == areas.resolve():
            raise InputError(f"--to: {to} is the file of areas; name another file to write")
    if work is not None:
        interval_output.refuse_within_release(work)
    release = Release.read(out)
    refuse_damaged(release, facts=False, estimates=method == _REPLICATES)
    queries = list(dict.fromkeys(query or ["TOTAL"]))
    for name in queries:
        refuse_reserved_names(release.plan.schema.query(name))
    geography = release.geography
    places = _places(geography, level, areas)
    confidence_level = (
        confidence if confidence is not None else (release.plan.confidence or _CONFIDENCE)
    )
    with _hired(engine, workers) as team:
        if method == _LEAST_SQUARES:
            source: LeastSquares | Replicates = _least_squares(
                release, geography, confidence_level, team
            )
        else:
            source = _replicates(release, confidence_level, count, seed, team, work, quiet)
        request = _Request(source, places, tuple(queries), confidence_level)
        _give(request, release, method, to, as_json, quiet)


def _hired(engine: str, workers: int | None) -> AbstractContextManager[int | Team | None]:
    """Return the workers of an engine; local processes are started only when needed."""
    from countveil.engines.engine import open_engine

    opened = open_engine(engine)
    return nullcontext(workers) if engine == "local" else opened.workers(workers)


def _give(
    request: _Request, release: Release, method: str, to: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write all rows to a file, or print all of them as JSON or the first as text."""
    from countveil.report.terminal import interval_output

    document = request.about(release, method)
    if to is not None:
        with showing.progress_bar("estimating", request.rows, quiet) as step:
            written = interval_output.write_tables(to, request.all_tables(step), document)
        if as_json:
            showing.print_json({**document, "rows": written, "written": str(to)})
        else:
            print(f"{to}: {written:,} rows")
    elif as_json:
        if request.rows > _MOST_PRINTED:
            raise InputError(
                f"{request.rows:,} rows are too many for one JSON document; write them to a file "
                f"with --to"
            )
        with showing.progress_bar("estimating", request.rows, quiet) as step:
            rows = [row for table in request.all_tables(step) for row in table.to_pylist()]
        showing.print_json({**document, "rows": len(rows), "intervals": rows})
    else:
        _show(request, method, quiet)


@dataclass(frozen=True, eq=False, slots=True)
class _Request:
    """The queries to answer: for which places, from which estimates, at which confidence."""

    source: LeastSquares | Replicates
    places: UnitsOrAreas
    queries: tuple[str, ...]
    confidence: float

    @property
    def level(self) -> str:
        return self.places if isinstance(self.places, str) else self.places.level

    @property
    def rows(self) -> int:
        return sum(map(self.rows_of, self.queries))

    def rows_of(self, query: str) -> int:
        from countveil.estimate.interval_tables import rows_of
        from countveil.estimate.unbiased import LeastSquares

        source = self.source
        geography = (
            source.geography if isinstance(source, LeastSquares) else source.estimates.geography
        )
        return rows_of(self.places, geography, source.plan.schema.query(query))

    def tables(self, query: str) -> Iterator[pa.Table]:
        from countveil.estimate.interval_tables import intervals_of

        return intervals_of(self.source, self.places, query, confidence=self.confidence)

    def all_tables(self, step: Callable[[int], None]) -> Iterator[pa.Table]:
        """Yield tables with the same columns, query after query."""
        from countveil.estimate.interval_tables import attributes_of, with_query_column

        attributes = attributes_of(self.source.plan, self.queries)
        rows = 0
        for query in self.queries:
            for table in self.tables(query):
                for start in range(0, table.num_rows, _ROWS):
                    yield with_query_column(table.slice(start, _ROWS), query, attributes)
                rows += table.num_rows
                step(rows)

    def about(self, release: Release, method: str) -> dict[str, Any]:
        places = "units" if isinstance(self.places, str) else "areas"
        document = {"release": release.manifest["release"], "level": self.level, "of": places}
        return {
            **document,
            "method": method,
            "confidence": self.confidence,
            "queries": list(self.queries),
        }


def _refuse_of_replicates(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"--{name}: only for --method replicates; use that method, or leave --{name} out"
            )


def _places(geography: Geography, level: str | None, areas: Path | None) -> UnitsOrAreas:
    from countveil.estimate.area_files import read_areas

    if areas is not None:
        return read_areas(areas, geography, level=level)
    if level is None:
        raise InputError(
            f"intervals: --level and --areas are missing; add --level, one of "
            f"{', '.join(geography.levels)}, or --areas with a file of areas"
        )
    geography.index(level)  # refuses an unknown level
    return level


def _least_squares(
    release: Release, geography: Geography, confidence: float, team: int | Team | None
) -> LeastSquares:
    from countveil.estimate.unbiased import least_squares

    return least_squares(
        release.measurements,
        release.plan,
        geography=geography,
        confidence=confidence,
        workers=None if isinstance(team, int) else team,
    )


def _replicates(
    release: Release,
    confidence: float,
    count: int | None,
    seed: int | None,
    team: int | Team | None,
    work: Path | None,
    quiet: bool,
) -> Replicates:
    from countveil.base.intervals import checked
    from countveil.estimate.replication.replicate_release import replicates

    checked(confidence)  # before replicating, which may take an hour
    count = _COUNT if count is None else count
    with showing.progress_bar("replicating the release", count, quiet) as step:
        return replicates(
            release,
            count=count,
            seed=_SEED if seed is None else seed,
            workers=team,
            work=work,
            progress=lambda done, _: step(done),
        )


def _show(request: _Request, method: str, quiet: bool) -> None:
    """Print the first rows of each query; the others are not computed."""
    import pyarrow as pa

    from countveil.report.terminal.interval_output import SHOWN, Head, intervals_view

    heads = []
    with showing.progress_bar("estimating", len(request.queries), quiet) as step:
        for number, query in enumerate(request.queries):
            first: list[pa.Table] = []
            for table in request.tables(query):
                first.append(table)
                if sum(part.num_rows for part in first) >= SHOWN:
                    break
            head = pa.concat_tables(first).unify_dictionaries().slice(0, SHOWN)
            heads.append(Head(query, head, request.rows_of(query)))
            step(number + 1)
    view = intervals_view(heads, request.level, request.confidence, _notes(request, method))
    showing.console().print(view)


def _notes(request: _Request, method: str) -> Sequence[str]:
    if method == _LEAST_SQUARES:
        return ("Least squares from all measurements: unbiased, so not always whole or above 0.",)
    from countveil.estimate.replication.replicate_errors import Replicates

    assert isinstance(request.source, Replicates)
    return (
        f"Published estimates, with errors from {request.source.count:,} replicates of the "
        f"release. Intervals are corrected for bias, measured against unbiased estimates where "
        f"there are any.",
        "In simulations, 90 % intervals contained the exact count for 91 % of the totals of blocks "
        "in a place of 10,000 people (85 % in a larger one, with an earlier version), and for 87 % "
        "of their cells with 1 to 9 people. Where a single small place matters, use least squares, "
        "whose coverage matches the stated confidence.",
    )
