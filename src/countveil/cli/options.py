"""Arguments and options that several commands share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
