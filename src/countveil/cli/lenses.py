"""What `assess --lens` shows beside the intruder: privacy loss and the homogeneity attack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from countveil.cli import showing
from countveil.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from countveil.assess.empirical_loss import Tallies
    from countveil.release import Release

LENSES: tuple[str, ...] = ("intruder", "loss", "homogeneity")


def show_loss_of_release(
    out: Path, release: Release, counts: Any, *, of: str | None, **given: Any
) -> None:
    """Print the loss of a release, of its estimates if it has some; write it to its internal folder."""
    from countveil.assess import empirical_loss
    from countveil.measure.run import internal_of

    if of not in (None, "measurements", "estimates"):
        raise InputError(f"of: {of!r} is not known; choose measurements or estimates")
    if of is None:
        of = "estimates" if "estimates" in release.manifest else "measurements"
    tallies = empirical_loss.of_release(getattr(release, of), counts)
    _show_loss(tallies, folder=internal_of(out), **given)


def show_loss_of_file(
    path: Path, *, exact: str, released: str, by: Sequence[str], **given: Any
) -> None:
    """Print the loss of two columns of a file, exact and released."""
    from countveil.assess import empirical_loss

    tallies = empirical_loss.of_columns(path, exact=exact, released=released, by=by)
    _show_loss(tallies, folder=None, **given)


def _show_loss(
    tallies: Tallies,
    *,
    folder: Path | None,
    confidence: float,
    bandwidth: float,
    percentile: float,
    as_json: bool,
) -> None:
    """Print the empirical privacy loss of residuals; with a folder, write it there, private."""
    from countveil.report import loss_terminal

    found = tallies.losses(confidence=confidence, bandwidth=bandwidth, percentile=percentile)
    rows = found.to_pylist()
    notes, tests = [], []
    for key in tallies.groups:
        tests.append({"group": list(key), **_exchangeable(tallies, key)})
    note = _bias_note(tallies, bandwidth, percentile)
    if note is not None:
        notes.append(note)
    doubtful = [item for item in tests if item.get("p_value", 1.0) < 0.01]
    if doubtful:
        names = "; ".join(", ".join(item["group"]) or "all residuals" for item in doubtful[:5])
        notes.append(
            f"In {len(doubtful)} of {len(tests)} groups residuals differ between size classes (p below "
            f"0.01), so that one loss for all of them means little: {names}."
        )
    document = {
        "audience": "internal",
        "losses": [_finite(row) for row in rows],
        "exchangeability": tests,
        "notes": notes,
    }
    if folder is not None:
        _write(folder, "loss", document, found)
    if as_json:
        showing.print_json(document)
        return
    console = showing.console()
    console.print(loss_terminal.loss_view(rows, tallies.names, confidence, notes))
    if folder is not None:
        console.print(f"\nWritten: {folder}/loss.json and loss.parquet", soft_wrap=True)


def _write(folder: Path, name: str, document: dict[str, Any], table: pa.Table) -> None:
    """Write an internal result as JSON and Parquet, for its owner alone."""
    import json

    import pyarrow.parquet as pq

    from countveil import storage
    from countveil.assess.error_text import WATERMARK

    storage.make_folder(folder, 0o700)
    with storage.replacing_private(folder / f"{name}.parquet") as path:
        pq.write_table(table, path)
    with storage.replacing_private(folder / f"{name}.json") as path:
        path.write_text(json.dumps({"notice": WATERMARK, **document}, indent=2) + "\n")


def _exchangeable(tallies: Tallies, key: tuple[str, ...]) -> dict[str, Any]:
    try:
        found = tallies.exchangeability(key)
    except InputError as error:
        return {"note": str(error)}
    return {"statistic": found.statistic, "p_value": found.p_value, "size_classes": found.groups}


def _bias_note(tallies: Tallies, bandwidth: float, percentile: float) -> str | None:
    """Return what the estimator is off by, for the largest group that it can be simulated for."""
    from countveil.assess.empirical_loss import bias, kde

    for residuals in sorted(map(tallies.of, tallies.groups), key=lambda item: -item.total):
        try:
            loss = kde(residuals, bandwidth=bandwidth, percentile=percentile)
            return bias(residuals, loss, replicates=40).note
        except InputError:
            continue  # too few residuals, or no spread
    return None


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out numbers that are infinite: JSON has none."""
    return {
        name: None if isinstance(value, float) and value == float("inf") else value
        for name, value in row.items()
    }
