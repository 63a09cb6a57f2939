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
    from countveil.mechanisms.law import Law
    from countveil.release import Release

LENSES: tuple[str, ...] = ("intruder", "loss", "homogeneity", "public")


def show_public(path: Path, *, as_json: bool) -> None:
    """Print what guarantee remains beside the public facts of a plan file or a release folder."""
    from countveil.assess.public_information import beside_public
    from countveil.release import Release
    from countveil.report import public_terminal
    from countveil.schema.plan import Plan

    found = beside_public(Release.read(path) if path.is_dir() else Plan.load(path))
    if as_json:
        showing.print_json(found.document)
    else:
        showing.console().print(public_terminal.public_view(found))


def show_loss_of_release(
    out: Path, release: Release, counts: Any, *, of: str | None, strata: bool, **given: Any
) -> None:
    """Print the loss of a release, of its estimates if it has some; write it to its internal folder."""
    from countveil.assess import empirical_loss
    from countveil.measure.run import internal_of

    if of not in (None, "measurements", "estimates"):
        raise InputError(f"of: {of!r} is not known; choose measurements or estimates")
    if of is None:
        of = "estimates" if "estimates" in release.manifest else "measurements"
    tallies = empirical_loss.of_release(getattr(release, of), counts, strata=strata)
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
    if all(row["empirical_loss"] is None and row["tail_ratio"] is None for row in rows):
        raise InputError(
            "residuals: no group has two different residuals, so there is no noise to estimate a loss "
            "from; check that the columns are exact and released counts"
        )
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


def show_homogeneity_of_file(
    path: Path,
    *,
    identifiers: Sequence[str],
    sensitive: str,
    noises: Sequence[Law],
    names: Sequence[str],
    prior: str,
    sizes: str,
    as_json: bool,
) -> None:
    """Print the homogeneity risk of records under some noises."""
    from countveil.assess import homogeneity
    from countveil.report import homogeneity_terminal

    table = homogeneity.Table.from_records(path, identifiers=identifiers, sensitive=sensitive)
    found = homogeneity.curve(table, mechanisms=noises, prior=prior, sizes=sizes).to_pylist()
    for row, noise, name in zip(found, noises, names, strict=True):
        row["noise"] = name
        row["nobodys"] = float(homogeneity.scenarios(table, mechanism=noise).wrong.mean())
    about = {
        "people": int(table.sizes.sum()),
        "cells": len(table.sizes),
        "possible": table.possible,
        "homogeneous": int(table.homogeneous.sum()),
        "before": table.given_away(weighted=True),
        "identifiers": list(identifiers),
        "sensitive": sensitive,
    }
    if as_json:
        showing.print_json({"audience": "internal", **about, "risks": found})
        return
    showing.console().print(homogeneity_terminal.homogeneity_view(about, found))


def show_homogeneity_of_release(
    out: Path,
    release: Release,
    counts: Any,
    *,
    level: str | None,
    identifiers: Sequence[str],
    sensitive: str,
    releases: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what the attack on a release tells, or on average over simulated ones."""
    from dataclasses import asdict

    import pyarrow as pa

    from countveil.assess.homogeneity.released import attack, simulated
    from countveil.measure.run import internal_of
    from countveil.report import homogeneity_terminal

    given: dict[str, Any] = {"level": level or release.plan.judged_level, "sensitive": sensitive}
    given["identifiers"] = identifiers
    if releases == 1:
        found = attack(release.estimates, counts, **given)
    else:
        with showing.progress("simulating releases", releases, quiet) as step:
            found = simulated(
                release.plan,
                counts,
                releases=releases,
                progress=lambda done, _: step(done),
                **given,
            )
    document = {"audience": found.audience, **given, **asdict(found)}
    document["errors"] = None if found.errors is None else list(found.errors)
    _write(internal_of(out), "homogeneity", document, pa.Table.from_pylist([document]))
    if as_json:
        showing.print_json(document)
        return
    showing.console().print(homogeneity_terminal.released_view(document))


def noises_named(
    name: str, epsilons: Sequence[float], rhos: Sequence[str], delta: float | None
) -> list[Law]:
    """Return the noises that the command line names."""
    from fractions import Fraction

    from countveil.mechanisms.continuous import Gaussian, Laplace
    from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
    from countveil.mechanisms.discrete_laplace import DiscreteLaplace

    known = ("laplace", "geometric", "gaussian", "gaussian-pdp", "discrete-gaussian")
    if name not in known:
        raise InputError(f"mechanism: {name!r} is not known; choose from {', '.join(known)}")
    for epsilon in epsilons:
        if not 1e-12 <= epsilon <= 1e12:
            raise InputError(f"epsilon: {epsilon} is not allowed; it is a number above 0")
    if name == "discrete-gaussian":
        if not rhos:
            raise InputError("mechanism: discrete-gaussian is scaled by rho; give --rho")
        return [DiscreteGaussian.from_rho(rho) for rho in rhos]
    if rhos:
        raise InputError(f"rho: {name} is scaled by epsilon; give --epsilon")
    if not epsilons:
        raise InputError(f"epsilon: {name} is scaled by it; give one or more")
    kinds = {"gaussian": "DP", "gaussian-pdp": "pDP"}
    if name in kinds:
        if delta is None:
            raise InputError(f"delta: {name} needs one, such as --delta 0.001")
        kind = kinds[name]
        return [Gaussian.calibrated(epsilon=e, delta=delta, kind=kind) for e in epsilons]
    if name == "laplace":
        return [Laplace(epsilon=e) for e in epsilons]
    return [DiscreteLaplace(epsilon=Fraction(str(e))) for e in epsilons]


def choose_by_homogeneity(
    path: Path,
    *,
    limit: float,
    identifiers: Sequence[str],
    sensitive: str,
    weighted: bool,
    as_json: bool,
) -> None:
    """Print the largest epsilon of geometric noise that keeps a local homogeneity risk."""
    from countveil.assess import homogeneity
    from countveil.mechanisms.discrete_laplace import DiscreteLaplace
    from countveil.report.risk_terminal import INTERNAL

    table = homogeneity.Table.from_records(path, identifiers=identifiers, sensitive=sensitive)
    measure = homogeneity.Measure("local", weighted)
    before = table.given_away(weighted=weighted)
    if before <= limit:
        raise InputError(
            f"homogeneity: the exact table itself has a risk of {before:.4g}, within {limit:g}, so "
            f"that every epsilon keeps it; choose by another risk"
        )
    chosen = homogeneity.largest_epsilon(
        table, risk=limit, measure=measure, mechanism=DiscreteLaplace
    )
    noise = DiscreteLaplace(epsilon=chosen)
    risk = float(homogeneity.local(table, mechanism=noise, weighted=weighted).value)
    if as_json:
        document = {"audience": "internal", "epsilon": str(chosen), "risk": risk, "limit": limit}
        showing.print_json({**document, "budget": {"chosen_from": "records"}})
        return
    print(INTERNAL)
    print(
        f"epsilon = {float(chosen):.10g}, exactly {chosen}: with geometric noise on every cell of "
        f"{', '.join((*identifiers, sensitive))} the local homogeneity risk is {risk:.4f}, within "
        f"{limit:g}.\nThe choice looked at the records, and no guarantee covers it. Say so in the plan:"
    )
    print(f'[budget]\nepsilon = "{chosen}"\nchosen_from = "records"')
