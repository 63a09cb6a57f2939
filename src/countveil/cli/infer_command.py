"""`countveil infer`: estimate rates from a table that agrees with public totals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, OutPath, Quiet
from countveil.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from countveil.base.numerics import FloatArray
    from countveil.congenial.inference.count_models import Model
    from countveil.congenial.inference.posterior_result import Posterior
    from countveil.publish.release_folder import TableRelease

_MOST_EXPOSURE = 1e15  # more than there are people, however often each is counted
_MODELS = ("gamma-poisson", "beta-binomial", "shares", "small-areas", "death-rates")


@command("infer")
def infer(
    out: OutPath,
    model: Annotated[str, typer.Option(help=f"One of {', '.join(_MODELS)}.")] = "gamma-poisson",
    method: Annotated[
        str, typer.Option(help="exact, rejection, importance or augmented.")
    ] = "augmented",
    shape: Annotated[float, typer.Option(help="Shape of the Gamma prior of rates.")] = 1.0,
    rate: Annotated[
        float | None, typer.Option(help="Rate of the Gamma prior; default: shape / overall rate.")
    ] = None,
    a: Annotated[float, typer.Option(help="First parameter of the Beta prior.")] = 1.0,
    b: Annotated[float, typer.Option(help="Second parameter of the Beta prior.")] = 1.0,
    alpha: Annotated[float, typer.Option(help="Parameter of the Dirichlet prior of shares.")] = 1.0,
    exposure: Annotated[
        Path | None,
        typer.Option(
            help="Public denominators: a CSV or Parquet file with columns geocode and exposure."
        ),
    ] = None,
    above: Annotated[
        float | None, typer.Option(help="Also give the probability that a parameter is above this.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.9,
    draws: Annotated[
        int, typer.Option(min=4, help="Number of draws, for each chain if there are several.")
    ] = 500,
    chains: Annotated[int, typer.Option(min=1, help="Number of chains of method augmented.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of the draws; it does not affect privacy.")] = 0,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the table to this .csv or .parquet file.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Estimate rates from a table that was drawn to agree with public totals.

    Reads the release folder and, with --exposure, public denominators; no records. Writes a file only
    with --to; charges nothing. The model accounts for the noise of the release, so intervals are as
    wide as they need to be.

    Example: `countveil infer may --model gamma-poisson --exposure population.csv --to rates.csv`
    """
    from countveil import congenial
    from countveil.publish.release_folder import TableRelease

    if model not in _MODELS:
        raise InputError(f"--model: unknown model {model!r}; choose from {', '.join(_MODELS)}")
    if to is not None and to.suffix not in (".csv", ".parquet"):
        raise InputError(f"--to: {to} has an unknown format; name a .csv or .parquet file")
    release = TableRelease.read(out)
    released = release.counts
    denominators = None if exposure is None else _read_exposure(exposure, release)
    count_model = _model(
        model, release, denominators, shape=shape, rate=rate, a=a, b=b, alpha=alpha
    )
    warmup = max(100, draws // 2)
    sweeps = chains * (warmup + draws) if method == "augmented" else 1
    with showing.progress_bar("fitting", sweeps, quiet) as step:
        posterior = congenial.posterior(
            model=count_model,
            released=released,
            mechanism=release.mechanism,
            method=method,  # type: ignore[arg-type]
            draws=draws,
            chains=chains,
            warmup=warmup,
            seed=seed,
            progress=lambda done, _: step(done),
        )
        step(sweeps)
    table = _table(release, posterior, confidence, above)
    notes = _notes(posterior, method)
    if to is not None:
        _write(to, table)
    if as_json:
        document = {"model": model, "method": method, "confidence": confidence, "notes": notes}
        showing.print_json({**document, "places": table.to_pylist()})
        return
    from countveil.report.terminal import infer_terminal

    level = release.manifest["table"]["level"]
    showing.console().print(
        infer_terminal.posterior_view(table, level, posterior.parameter, confidence, notes)
    )
    if to is not None:
        print(f"\nWritten: {to}")


def _read_exposure(path: Path, release: TableRelease) -> FloatArray:
    """Return public denominators in the order of the released places."""
    import numpy as np

    from countveil.plan.one_table_plan import read_numbers

    codes = release.table["geocode"].to_pylist()
    level = release.manifest["table"]["level"]
    exposure = np.asarray(read_numbers(path, level, "exposure", codes), np.float64)
    if not 0 < exposure.max(initial=0.0) <= _MOST_EXPOSURE:
        raise InputError(
            f"{path}: the largest exposure is {exposure.max(initial=0.0):g}; it must be more than 0 "
            f"and at most {_MOST_EXPOSURE:g}"
        )
    return exposure


def _model(
    name: str,
    release: TableRelease,
    exposure: FloatArray | None,
    *,
    shape: float,
    rate: float | None,
    a: float,
    b: float,
    alpha: float,
) -> Model:
    import numpy as np

    from countveil import congenial

    cases = release.counts[:, 0] if release.mechanism.deaths else release.counts
    places = len(cases)
    sizes = np.ones(places) if exposure is None else exposure
    # If the total is public, so is the overall rate; otherwise the release estimates it.
    total = release.mechanism.total
    overall = max(int(cases.sum()) if total is None else total, 1) / float(sizes.sum())
    rates = congenial.GammaPoisson(shape, shape / overall if rate is None else rate, sizes)
    if name == "beta-binomial":
        if exposure is None:
            raise InputError(
                "--exposure: missing; beta-binomial needs the number of people in each place: name "
                "a file"
            )
        single: Model = congenial.BetaBinomial(a, b, exposure.astype(np.int64))
    elif name == "shares":
        single = congenial.DirichletMultinomialShares(alpha)
    elif name == "small-areas":
        single = congenial.SmallAreaRates(sizes, mean=overall)
    else:
        single = rates
    if name == "death-rates":
        if not release.mechanism.deaths:
            raise InputError(
                "--model: death-rates needs a release with a part, such as deaths; choose another "
                "model"
            )
        return congenial.DeathRates(a, b, rates)
    if not release.mechanism.deaths:
        return single
    if not isinstance(single, congenial.GammaPoisson | congenial.DirichletMultinomialShares):
        raise InputError(
            f"--model: {name} is for one count per place, and this release has two; choose "
            f"gamma-poisson, shares or death-rates"
        )
    return congenial.CaseRates(a, b, single)


def _table(
    release: TableRelease, posterior: Posterior, confidence: float, above: float | None
) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    ends = posterior.interval(confidence)
    columns: dict[str, Any] = {
        "geocode": release.table["geocode"],
        "released": release.table["count"],
    }
    if release.mechanism.deaths:
        columns["released_part"] = release.table["part"]
    columns |= {
        "mean": posterior.mean,
        "standard_deviation": np.sqrt(posterior.variance),
        "lower": ends[:, 0],
        "upper": ends[:, 1],
    }
    if above is not None:
        columns["above"] = posterior.above(above)
    return pa.table(columns)


def _notes(posterior: Posterior, method: str) -> list[str]:
    if method == "exact":
        return ["Exact: a sum over all tables that agree with the public totals."]
    size = posterior.effective_sample_size
    notes = []
    if method == "augmented":
        worst = float(posterior.r_hat.max())
        notes.append(
            f"The chains have an R-hat of at most {worst:.3f}; in the least certain place, the "
            f"draws are worth {size:,.0f} independent ones."
        )
        if worst > 1.01:
            notes.append(
                "An R-hat above 1.01 means that the chains have not converged yet: raise --draws."
            )
    elif size is not None:
        notes.append(f"The weighted draws are worth {size:,.0f} independent ones.")
        if size < 100:
            notes.append("Fewer than 100 are not enough: raise --draws, or use --method augmented.")
    return notes


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    from countveil.base import storage
    from countveil.base.delimited import without_formulas

    with storage.replacing(path) as temporary:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(without_formulas(table), temporary)
        else:
            pyarrow.parquet.write_table(table, temporary)
