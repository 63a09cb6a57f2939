"""`countveil report`: one page for a review board, written into the release folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.base import storage
from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, OutPath, Quiet, ShowValues
from countveil.cli.records_again import counts_again
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.publish.release_folder import Release


@command("report")
def write_report(
    out: OutPath,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Include confidential results; reads the records."),
    ] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Also write a PDF.")] = False,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Also show what this ledger has spent and left.")
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", help="Plan whose records --internal reads; default: plan.toml next to OUT."
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option("--shapes", help="GeoJSON of places; features have a geocode or an id."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the report here instead of into the release.")
    ] = None,
    show_values: ShowValues = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a report on a release: risk, error, guarantee and method on one HTML page.

    Reads the release folder and adds the page to it; the page needs no network. With --internal, it
    also reads the records, and writes a watermarked page with the actual error and risk to the
    internal folder.

    Example: `countveil report out --ledger ledger.sqlite`, or `countveil report out --internal --pdf`
    """
    from countveil.publish.additions import sweep, verified_but_reports
    from countveil.publish.release_folder import Release
    from countveil.report.report_page import as_pdf, public_report

    if plan is not None and not internal:
        raise InputError(
            "--plan: has no effect without --internal; add --internal or remove --plan"
        )
    kinds = [".html", ".pdf"] if pdf else [".html"]
    if to is not None:
        _refuse_target(to, kinds)
    if ledger is not None and not ledger.is_file():
        raise InputError(
            f"--ledger: {ledger} is not a file; name the ledger that this release was charged to"
        )
    places = None if shapes is None else _read_shapes(shapes)
    release = Release.read(out)
    if to is None and not internal:
        sweep(out)
    book = None if ledger is None else release.plan.ledger(ledger)
    release = verified_but_reports(release, book)
    with showing.progress_bar("writing the report", 1 + pdf, quiet) as step:
        if internal:
            html = _internal(release, plan, show_values, ledger=book, shapes=places)
        else:
            html = public_report(release, ledger=book, shapes=places)
        step(1)
        files = {".html": html.encode()}
        if pdf:
            files[".pdf"] = as_pdf(html)
            step(2)
    written = _write(release, files, internal, to)
    if as_json:
        names = [str(path) for path in written]
        showing.print_json({"report": names[0], "bytes": len(files[".html"]), "written": names})
    else:
        for path in written:
            print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _internal(release: Release, plan: Path | None, show_values: bool, **options: Any) -> str:
    from countveil.assess.realised_disclosure import realised
    from countveil.report.report_page import internal_report

    disclosure = realised(release, counts_again(release, plan, show_values))
    return internal_report(release, disclosure, **options)


def _write(
    release: Release, files: dict[str, bytes], internal: bool, to: Path | None
) -> list[Path]:
    """Write the report into the release, into the internal folder, or to the path of --to."""
    from countveil.measure.run import internal_of
    from countveil.publish.additions import attach
    from countveil.publish.verification import REPORT

    if not internal and to is None:
        attach(release, {Path(REPORT).with_suffix(kind).name: data for kind, data in files.items()})
        return [release.folder / Path(REPORT).with_suffix(kind) for kind in files]
    target = internal_of(release.folder) / "report-internal.html" if to is None else to
    if to is None:
        storage.make_folder(target.parent, 0o700)
    paths = _paths_of(target, list(files))
    for path, data in zip(paths, files.values(), strict=True):
        if internal:
            with storage.replacing_private(path) as temporary:
                temporary.write_bytes(data)
        else:
            storage.write_bytes(path, data)
    return paths


# Paths are checked before any work: where --to writes, what --shapes reads.

_LARGEST_SHAPES = 50_000_000  # bytes


def _refuse_target(to: Path, kinds: list[str]) -> None:
    """Refuse a path that is not an HTML file, or that is inside a release folder."""
    if to.is_dir():
        raise InputError(f"--to: {to} is a folder; name a file in it, such as {to / 'report.html'}")
    if is_published(to):
        raise InputError(
            f"--to: {to} is in a release folder, which may hold only the files of its manifest and "
            f"nothing internal; name another path, or leave --to out"
        )
    if to.suffix.lower() not in (".html", ".htm"):
        pdf = "; --pdf writes the PDF next to it" if ".pdf" in kinds else ""
        raise InputError(
            f"--to: {to} does not end in .html; name the page {to.with_suffix('.html')}{pdf}"
        )
    if not to.absolute().parent.is_dir():
        raise InputError(f"--to: folder {to.parent} does not exist; create it, or name another")
    for path in _paths_of(to, kinds):
        if path.is_dir():
            raise InputError(
                f"--to: {path} would be written, but it is a folder; name another file"
            )


def _paths_of(page: Path, kinds: list[str]) -> list[Path]:
    """Return the files of a report: the page, and others with the same name next to it."""
    return [page if kind == ".html" else page.with_suffix(kind) for kind in kinds]


def is_published(target: Path) -> bool:
    """Return whether a path is in a release folder, by its name or after following links."""
    path, real = target.absolute(), target.resolve()
    return any(map(_is_release, {*path.parents, *real.parents}))


def _is_release(place: Path) -> bool:
    """Return whether a folder has a manifest of countveil; an unreadable one counts as such."""
    from countveil.measure import manifest

    path = place / manifest.NAME
    if not path.exists():
        return False
    try:
        document = storage.read_json(path)
    except (OSError, ValueError):
        return True
    return isinstance(document, dict) and document.get("format") == manifest.FORMAT


def _read_shapes(path: Path) -> dict[str, Any]:
    """Read a GeoJSON file; refuse one that is too large, unreadable, or not GeoJSON."""
    try:
        if not path.is_file():
            raise InputError(f"--shapes: {path} is not a file; name a GeoJSON file")
        size = path.stat().st_size
        if size > _LARGEST_SHAPES:
            raise InputError(
                f"--shapes: {path} has {size:,} bytes; the limit is {_LARGEST_SHAPES:,}: simplify "
                f"its shapes, which the report draws small"
            )
        shapes = storage.read_json(path, _LARGEST_SHAPES)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"--shapes: {path} cannot be read as GeoJSON ({what}); name a FeatureCollection"
        ) from error
    if not isinstance(shapes, dict):
        raise InputError(
            f"--shapes: {path} cannot be read as GeoJSON (not an object); name a FeatureCollection"
        )
    return shapes
