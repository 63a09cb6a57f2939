"""`countveil intervals`: an estimate and its interval for every unit of a level, or for any area."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.commands import AsJson, EngineName, OutPath, Quiet, Workers
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
_ROWS = 2**18  # whose texts are held at a time


@command("intervals")
def estimate_counts(
    out: OutPath,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", help="What is counted; may be given again. TOTAL if not given."),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Every unit of this level; with --areas, that of geocode.")
    ] = None,
    areas: Annotated[
        Path | None,
        typer.Option(help="Areas: a CSV or Parquet file with the columns area and a level."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Of the intervals; the plan's, or 0.9, if not given.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="least-squares, unbiased; or replicates, of the published estimates."),
    ] = _LEAST_SQUARES,
    count: Annotated[
        int | None, typer.Option(help=f"How many replicates; {_COUNT} if not given.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the replicates; no privacy hangs on it.")
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    work: Annotated[
        Path | None,
        typer.Option(
            help="A folder that keeps replicates: a stopped run goes on, others add to it."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write all rows: a .csv or .parquet file.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Give counts with their error: of every unit of a level, or of areas made of any units.

    It uses what is published alone, and spends nothing. By least squares, estimates are unbiased and
    their errors exact; replicates tell the error and the bias of the published estimates.

    Example: `countveil intervals out --areas districts.csv --query RACE --to districts-race.csv`
    """
    from countveil.estimate.result_tables import refuse_reserved_names
    from countveil.publish.release_folder import Release
    from countveil.publish.verification import refuse_damaged
    from countveil.report import interval_output

    if method not in _METHODS:
        raise InputError(f"method: {method!r} is not known; choose from {', '.join(_METHODS)}")
    if method == _LEAST_SQUARES:
        _refuse_of_replicates(count=count, seed=seed, workers=workers, work=work)
    if to is not None:
        interval_output.refuse_target(to)
        if areas is not None and to.resolve() == areas.resolve():
            raise InputError(f"{to}: is the file of areas; name another to write to")
    if work is not None:
        interval_output.refuse_within_release(work)
    release = Release.read(out)
    refuse_damaged(release, facts=False, estimates=method == _REPLICATES)
    queries = list(dict.fromkeys(query or ["TOTAL"]))
    for name in queries:
        refuse_reserved_names(release.plan.schema.query(name))
    geography = release.geography
    places = _places(geography, level, areas)
    chosen = confidence if confidence is not None else (release.plan.confidence or _CONFIDENCE)
    with _hired(engine, workers) as team:
        if method == _LEAST_SQUARES:
            found: LeastSquares | Replicates = _least_squares(release, geography, chosen, team)
        else:
            found = _replicates(release, chosen, count, seed, team, work, quiet)
        asked = _Asked(found, places, tuple(queries), chosen)
        _give(asked, release, method, to, as_json, quiet)


def _hired(engine: str, workers: int | None) -> AbstractContextManager[int | Team | None]:
    """Return the workers of an engine; processes of this machine are started by who needs them."""
    from countveil.engines.engine import open_engine

    opened = open_engine(engine)
    return nullcontext(workers) if engine == "local" else opened.workers(workers)


def _give(
    asked: _Asked, release: Release, method: str, to: Path | None, as_json: bool, quiet: bool
) -> None:
    """Write all rows, or print them or the first of them."""
    from countveil.report import interval_output

    document = asked.about(release, method)
    if to is not None:
        with showing.progress_bar("estimating", asked.rows, quiet) as step:
            written = interval_output.write_tables(to, asked.all_tables(step), document)
        if as_json:
            showing.print_json({**document, "rows": written, "written": str(to)})
        else:
            print(f"{to}: {written:,} rows")
    elif as_json:
        if asked.rows > _MOST_PRINTED:
            raise InputError(
                f"{asked.rows:,} rows are more than one JSON document should hold; name a file by --to"
            )
        with showing.progress_bar("estimating", asked.rows, quiet) as step:
            rows = [row for table in asked.all_tables(step) for row in table.to_pylist()]
        showing.print_json({**document, "rows": len(rows), "intervals": rows})
    else:
        _show(asked, method, quiet)


@dataclass(frozen=True, eq=False, slots=True)
class _Asked:
    """Queries of places, by one method, with a confidence."""

    found: LeastSquares | Replicates
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

        found = self.found
        geography = (
            found.geography if isinstance(found, LeastSquares) else found.estimates.geography
        )
        return rows_of(self.places, geography, found.plan.schema.query(query))

    def tables(self, query: str) -> Iterator[pa.Table]:
        from countveil.estimate.interval_tables import intervals_of

        return intervals_of(self.found, self.places, query, confidence=self.confidence)

    def all_tables(self, step: Callable[[int], None]) -> Iterator[pa.Table]:
        """Yield tables of one layout, all queries after each other."""
        from countveil.estimate.interval_tables import attributes_of, with_query_column

        attributes = attributes_of(self.found.plan, self.queries)
        done = 0
        for query in self.queries:
            for table in self.tables(query):
                for start in range(0, table.num_rows, _ROWS):
                    yield with_query_column(table.slice(start, _ROWS), query, attributes)
                done += table.num_rows
                step(done)

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
                f"{name}: is for --method replicates alone; name that method, or leave --{name} out"
            )


def _places(geography: Geography, level: str | None, areas: Path | None) -> UnitsOrAreas:
    from countveil.estimate.area_files import read_areas

    if areas is not None:
        return read_areas(areas, geography, level=level)
    if level is None:
        raise InputError(
            f"intervals: of what? name --level, one of {', '.join(geography.levels)}, or --areas with "
            f"a file of areas"
        )
    geography.index(level)  # refuses one that is not there
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

    checked(confidence)  # before an hour of replicating
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


def _show(asked: _Asked, method: str, quiet: bool) -> None:
    """Print the first rows of each query; those after them are not computed."""
    import pyarrow as pa

    from countveil.report.interval_output import SHOWN, Head, intervals_view

    heads = []
    with showing.progress_bar("estimating", len(asked.queries), quiet) as step:
        for number, query in enumerate(asked.queries):
            first: list[pa.Table] = []
            for table in asked.tables(query):
                first.append(table)
                if sum(part.num_rows for part in first) >= SHOWN:
                    break
            head = pa.concat_tables(first).unify_dictionaries().slice(0, SHOWN)
            heads.append(Head(query, head, asked.rows_of(query)))
            step(number + 1)
    view = intervals_view(heads, asked.level, asked.confidence, _notes(asked, method))
    showing.console().print(view)


def _notes(asked: _Asked, method: str) -> Sequence[str]:
    if method == _LEAST_SQUARES:
        return (
            "By least squares from all measurements: right on average, so neither whole nor always "
            "above 0.",
        )
    from countveil.estimate.replication.replicate_errors import Replicates

    assert isinstance(asked.found, Replicates)
    return (
        f"Of the published estimates, from {asked.found.count:,} replicates of the release; the bias, "
        f"against unbiased estimates where there are any, is taken off.",
    )
