"""The main commands. Heavy imports are inside them, to keep `countveil --help` fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.errors import InputError

PlanPath = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file (TOML).")]
OutPath = Annotated[Path, typer.Argument(metavar="OUT", help="A release folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress bars.")]
ShowValues = Annotated[
    bool, typer.Option("--show-values", help="Let error messages quote values from records.")
]
Priors = Annotated[
    list[float] | None,
    typer.Option("--prior", help="Prior probability of the intruder; repeat for more."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Local processes; default: one per core. No effect on Spark.",
    ),
]
EngineName = Annotated[str, typer.Option("--engine", help="Where to compute: local or spark.")]
LedgerPath = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger to charge; default: the plan's.")
]


@command("demo")
def run_demo(
    to: Annotated[Path, typer.Option("--to", help="A new folder to write to.")] = Path(
        "countveil-demo"
    ),
    people: Annotated[int, typer.Option(min=100, help="Number of synthetic people.")] = 100_000,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Price, release and verify the counts of a synthetic population.

    Reads nothing. Writes the population, a plan and a release to a new folder, and a ledger
    next to it.

    Example: `countveil demo --to demo`
    """
    from countveil import pipeline
    from countveil.base.randomness import Secure
    from countveil.demo import starter
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release
    from countveil.report.terminal import price_tables

    with showing.progress_bar("generating people", people, quiet) as step:
        plan_path = starter.write_demo(to, people=people, seed=2020, progress=step)
    plan = require_counts(Plan.load(plan_path), "the demonstration")
    price = pipeline.price(plan)
    out = to / "out"
    with showing.levels(quiet) as progress:
        pipeline.release(plan, to=out, rng=Secure(), progress=progress)
    release = Release.read(out)
    verification = release.verify(plan.ledger_path)
    written = [
        plan_path,
        plan.ledger_path,
        out / "manifest.json",
        out / "measurements",
        out / "invariants",
        out / "estimates",
        out / "tables",
    ]
    if as_json:
        showing.print_json(
            {
                "price": price_tables.price_document(price),
                "verified": verification.checks,
                "written": [str(path) for path in written],
            }
        )
        return
    console = showing.console()
    console.print(price_tables.price_view(price))
    console.print()
    console.print(price_tables.released_totals(release, "county"))
    console.print()
    console.print(price_tables.certificate_table(release.certificate))
    console.print("\nVerified:")
    for line in verification.checks:
        console.print(f"  {line}", soft_wrap=True)
    console.print("\nWritten:")
    for path in written:
        console.print(f"  {path}", soft_wrap=True)
    console.print(f"\nNext: countveil price {plan_path} --every-query", soft_wrap=True)


@command("init")
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    people: Annotated[int, typer.Option(min=50, help="Number of synthetic people.")] = 2_000,
    as_json: AsJson = False,
) -> None:
    """Write a commented plan and a small synthetic data set to start from.

    Reads nothing. Writes plan.toml, people.csv, blocks.csv and plan.schema.json to FOLDER.

    Example: `countveil init my-release && countveil price my-release/plan.toml`
    """
    from countveil.demo import starter

    written = [str(path) for path in starter.write_start(folder, people=people, seed=1)]
    ledger = showing.near(starter.ledger_of(folder))
    if as_json:
        showing.print_json({"written": written, "ledger": ledger})
        return
    for path in written:
        print(path)
    print(f"\nThe first release will create the ledger outside this folder: {ledger}")
    print(f"Next: countveil price {written[0]}")


@command("check")
def check(
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="A plan file (TOML).")] = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    schema: Annotated[
        bool, typer.Option("--json-schema", help="Print the JSON Schema of plan files and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a plan can be released.

    Reads the plan with its crosswalk, records and ledger. Writes nothing and charges nothing. It also
    rehearses post-processing on simulated people, so that no release is charged for tables that
    cannot be made.

    Example: `countveil check plan.toml`
    """
    if schema:
        from countveil.plan.plan_file import json_schema

        showing.print_json(json_schema())
        return
    if plan is None:
        raise InputError("check: PLAN is missing; name a plan file: countveil check plan.toml")
    from countveil import pipeline
    from countveil.plan.plans import Plan

    loaded = Plan.load(plan)
    with showing.levels(as_json or not sys.stderr.isatty()) as progress:
        pipeline.check(loaded, engine=engine, show_values=show_values, progress=progress)
    if isinstance(loaded, Plan):
        pipeline.refuse_risk_above_limit(loaded)
    if as_json:
        showing.print_json({"plan": str(plan), "fine": True, "cost": loaded.price})
    else:
        print(f"{plan}: valid; a release would cost {loaded.price}")


@command("price")
def price(
    plan: PlanPath,
    every_query: Annotated[
        bool, typer.Option("--every-query", help="Show the noise of every query.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a plan costs, how noisy its counts are and what an intruder would learn.

    Reads the plan file, but no records. Writes nothing. The exit status is 1 if the risk is above the
    plan's limit.

    Example: `countveil price plan.toml --json`
    """
    from countveil import pipeline
    from countveil.plan.plans import Plan, require_counts
    from countveil.report.terminal import price_tables

    priced = pipeline.price(require_counts(Plan.load(plan), "price"))
    if as_json:
        showing.print_json(price_tables.price_document(priced))
    else:
        showing.console().print(price_tables.price_view(priced, every_query=every_query))
    if priced.verdict.status == "above":
        raise typer.Exit(1)


@command("release")
def release(
    plan: PlanPath,
    to: Annotated[Path, typer.Option("--to", help="The release folder to write.")] = Path("out"),
    ledger: LedgerPath = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    above_limit: Annotated[
        bool,
        typer.Option("--above-limit", help="Release even if the risk is above the plan's limit."),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart/--resume",
            help="Start an unfinished release over, or continue it.",
        ),
    ] = False,
    charge_again: Annotated[
        bool,
        typer.Option("--charge-again", help="With --restart: accept a second charge in full."),
    ] = False,
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Charge the ledger, draw the noise once, and publish the tables of a plan.

    Reads the plan with its crosswalk and records. Writes a charge to the ledger, the release to the
    folder OUT of --to, and what is confidential to OUT-internal.

    After an interruption, run the same command again: it resumes, and neither charges nor draws
    twice. --restart sets the unfinished run aside in a private folder and starts a new release. If
    noise was already charged, it also needs --charge-again, and the new release is charged in full.

    Example: `countveil release plan.toml --to out`

    On a Spark cluster: `countveil release plan.toml --to out --engine spark`

    Start over and pay again: `countveil release plan.toml --to out --restart --charge-again`
    """
    from countveil import pipeline
    from countveil.base import storage
    from countveil.base.randomness import Secure
    from countveil.measure.run import copied_along
    from countveil.plan.plans import Plan

    if charge_again and not restart:
        raise InputError(
            "--charge-again: needs --restart; add it, or leave out --charge-again to resume"
        )
    loaded = Plan.load(plan)
    manifest = to / "manifest.json"
    before = storage.read_file(manifest) if manifest.exists() else None
    path = loaded.ledger_path if ledger is None else ledger
    warnings = []
    together = copied_along(path, to, loaded.folder) if before is None else None
    if together is not None:
        place, what = together
        warnings.append(
            f"{showing.near(path)} is in the same folder as {what} ({showing.near(place)}), so a copy "
            f"or snapshot of that folder includes the ledger, and each copy could draw for the same "
            f"charge; move the ledger elsewhere and give its new path in the plan ([ledger] path) or "
            f"with --ledger"
        )
    if not as_json:
        for warning in warnings:
            showing.warn(warning)
    with showing.levels(quiet) as progress:
        release = pipeline.release(
            loaded,
            to=to,
            rng=Secure(),
            ledger=ledger,
            engine=engine,
            show_values=show_values,
            above_limit=above_limit,
            restart=restart,
            charge_again=charge_again,
            workers=workers,
            progress=progress,
        )
    book = loaded.ledger(ledger)
    left = loaded.left_in(book)
    if as_json:
        showing.print_json(
            {
                "folder": str(to),
                "release": release.manifest["release"],
                "cost": release.manifest.get("cost") or release.manifest["guarantee"],
                "released_before": before is not None,
                "left": left,
                "warnings": warnings,
                "files": list(release.manifest["files"]),
            }
        )
    elif before == storage.read_file(manifest):
        print(f"{to}: already released; nothing was charged or drawn")
    elif before is not None:
        print(f"{to}: already measured; its tables were made again, nothing was charged or drawn")
    else:
        near = showing.near(book.path)
        print(f"{to}: released for {loaded.price}; {near} has {left} left")


@command("postprocess")
def postprocess_release(
    out: OutPath,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="A plan with a different [postprocess] or constraints."),
    ] = None,
    engine: EngineName = "local",
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make the tables of a release again from its measurements.

    Reads the release folder, but no records. Replaces its estimates and tables; charges nothing.

    Example: `countveil postprocess out --plan plan.toml`
    """
    from countveil import pipeline
    from countveil.engines.engine import open_engine
    from countveil.plan.plans import Plan, require_counts

    other = None if plan is None else require_counts(Plan.load(plan), "post-processing")
    with (
        showing.levels(quiet, counting=False) as progress,
        open_engine(engine).workers(workers) as team,
    ):
        release = pipeline.make_estimates(
            out, other, engine=engine, workers=team, progress=progress
        )
    if as_json:
        showing.print_json({"folder": str(out), "estimates": release.manifest.get("estimates")})
    elif "estimates" not in release.manifest:
        print(
            f'{out}: its plan has method = "none"; to make estimates, name a plan with method = '
            f'"top-down"'
        )
    else:
        from countveil.report.terminal import price_tables

        showing.console().print(price_tables.certificate_table(release.certificate))


@command("verify")
def verify(
    out: OutPath,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="Also check the charge in this ledger.")
    ] = None,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Accept noise that was drawn from a seed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the files, costs, sums and tables of a release.

    Reads the release folder and, with --ledger, its charge. Writes nothing.

    Example: `countveil verify out --ledger ledger.sqlite`
    """
    from countveil.publish.release_folder import open_release

    verification = open_release(out).verify(ledger, simulation=simulation)
    if as_json:
        showing.print_json({"folder": str(out), "verified": verification.checks})
    else:
        for line in verification.checks:
            print(f"{out}: {line}")


@command("package")
def package(
    out: OutPath,
    to: Annotated[Path | None, typer.Option("--to", help="The zip file; default: OUT.zip.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a release and zip the files that may be published.

    Reads the release folder. Writes one zip file of the files on an allow-list.

    Example: `countveil package out --to release.zip`
    """
    from countveil.publish.release_folder import open_release

    folder = out.absolute()
    target = open_release(out).package(to or folder.with_name(f"{folder.name}.zip"))
    if as_json:
        showing.print_json({"package": str(target)})
    else:
        print(target)
