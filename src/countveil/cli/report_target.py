"""Where a report may be written by `--to`, and shapes as they are read: refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from countveil.base import storage
from countveil.errors import InputError

_LARGEST_SHAPES = 50_000_000  # bytes


def refuse_target(to: Path, kinds: list[str]) -> None:
    """Refuse a name that is no new page, or lies where a release's own files are."""
    if to.is_dir():
        raise InputError(f"--to: {to} is a folder; name a file in it, such as {to / 'report.html'}")
    if is_published(to):
        raise InputError(
            f"--to: {to} is in a release folder, whose files are those of its manifest and where "
            f"nothing internal may be; name another, or leave --to out"
        )
    if to.suffix.lower() not in (".html", ".htm"):
        beside = "; --pdf writes the PDF beside it" if ".pdf" in kinds else ""
        raise InputError(
            f"--to: {to} is the name of the page, which ends in .html{beside}: name "
            f"{to.with_suffix('.html')}"
        )
    if not to.absolute().parent.is_dir():
        raise InputError(f"--to: there is no folder {to.parent}; make it, or name another")
    for path in paths_of(to, kinds):
        if path.is_dir():
            raise InputError(f"--to: {path} would be written, and is a folder; name another file")


def paths_of(page: Path, kinds: list[str]) -> list[Path]:
    """Return the files of a report: the page, and others of its name beside it."""
    return [page if kind == ".html" else page.with_suffix(kind) for kind in kinds]


def is_published(target: Path) -> bool:
    """Whether a path is in a release folder, by its name or by where its links lead."""
    named, real = target.absolute(), target.resolve()
    return any(map(_is_release, {*named.parents, *real.parents}))


def _is_release(place: Path) -> bool:
    """Whether a folder has a manifest of ours; one that cannot be read is taken for one."""
    from countveil.measure import manifest

    path = place / manifest.NAME
    if not path.exists():
        return False
    try:
        stated = storage.read_json(path)
    except (OSError, ValueError):
        return True
    return isinstance(stated, dict) and stated.get("format") == manifest.FORMAT


def read_shapes(path: Path) -> dict[str, Any]:
    """Read a GeoJSON file; refuse what is too large, cannot be read, or is no GeoJSON."""
    try:
        if not path.is_file():
            raise InputError(f"--shapes: {path} is no file; name a GeoJSON file")
        size = path.stat().st_size
        if size > _LARGEST_SHAPES:
            raise InputError(
                f"--shapes: {path} has {size:,} bytes, and {_LARGEST_SHAPES:,} is the limit; simplify "
                f"its shapes, for the report draws them small"
            )
        found = storage.read_json(path, _LARGEST_SHAPES)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"--shapes: {path} cannot be read as GeoJSON ({what})") from error
    if not isinstance(found, dict):
        raise InputError(
            f"--shapes: {path} cannot be read as GeoJSON (it holds no object); give a FeatureCollection"
        )
    return found
