"""Check the paths of `countveil report` before any work: where --to writes, what --shapes reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from countveil.base import storage
from countveil.errors import InputError

_LARGEST_SHAPES = 50_000_000  # bytes


def refuse_target(to: Path, kinds: list[str]) -> None:
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
    for path in paths_of(to, kinds):
        if path.is_dir():
            raise InputError(
                f"--to: {path} would be written, but it is a folder; name another file"
            )


def paths_of(page: Path, kinds: list[str]) -> list[Path]:
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


def read_shapes(path: Path) -> dict[str, Any]:
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
