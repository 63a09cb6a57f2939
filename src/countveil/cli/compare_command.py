"""`countveil compare`: two plans or releases, or a plan and other protections, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, EngineName, ShowValues
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.assess.protection_comparison import ProtectionComparison
    from countveil.plan.plans import Plan
    from countveil.publish.release_folder import Release


@command("compare")
def compare(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="A", help="A plan file or a release folder.")],
    second: Annotated[
        Path | None, typer.Argument(metavar="[B]", help="Another plan file or release folder.")
    ] = None,
    protection: Annotated[
        list[str] | None,
        typer.Option(
            "--protection",
            help="Compare A with this instead of B; repeat for more: suppression:10, rounding:5, "
            "random-rounding:3, swapping:0.05, household-swapping:0.05. Swapping takes "
            "options: ,within=LEVEL,match=A+B (match=size for households).",
        ),
    ] = None,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="With --protection: read the plan's confidential records."),
    ] = False,
    public_records: Annotated[
        bool,
        typer.Option(
            "--public-records",
            help="With --protection: you attest that the plan's records are public; the result says "
            "so.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="With --protection: seed of rounding and swapping.")
    ] = 1,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="With --protection: also write the result here, as JSON."),
    ] = None,
    engine: EngineName = "local",
    show_values: ShowValues = False,
    as_json: AsJson = False,
) -> None:
    """Show how two plans or releases differ, or how a plan compares with other protections.

    With A and B: settings, cost, risk and error of both; reads no records and writes nothing. With
    --protection: risk and error of a plan next to suppression, rounding or swapping of the same
    tables. For a plan file, these are made from its records: confidential (--internal, and the result
    is watermarked) or public (--public-records). For a release folder, they are made from its
    published estimates.

    Example: `countveil compare plan.toml larger.toml`, or `countveil compare plan.toml --protection
    suppression:10 --protection rounding:5 --internal`
    """
    if not protection:
        _two(context, first, second, as_json)
        return
    if second is not None:
        raise InputError(
            f"--protection and B cannot be combined: got {second}; leave one of them out"
        )
    from countveil.report.terminal.protection_terminal import protection_document, protection_view

    with showing.busy("comparing"):
        comparison = _protections(
            first, protection, internal, public_records, seed, engine, show_values
        )
    document = protection_document(comparison)
    if to is not None:
        _write(to, json.dumps(document, indent=2, ensure_ascii=False) + "\n", comparison)
    if as_json:
        showing.print_json(document)
    else:
        showing.console().print(protection_view(comparison))


def _two(context: typer.Context, first: Path, second: Path | None, as_json: bool) -> None:
    from countveil.assess.comparison import compare as compared
    from countveil.report.terminal.compare_terminal import comparison_document, comparison_view

    if second is None:
        raise InputError(
            "B is missing; name another plan or release, or other protections with --protection, such "
            "as --protection suppression:10"
        )
    showing.refuse_unused(context, {"first", "second"}, "a comparison of A and B")
    comparison = compared(_load(first), _load(second))
    if as_json:
        showing.print_json(comparison_document(comparison))
    else:
        showing.console().print(comparison_view(comparison))


def _load(path: Path) -> Plan | Release:
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release

    if path.is_dir():
        return Release.read(path)
    return require_counts(Plan.load(path), "a comparison")


def _protections(
    path: Path,
    protections: list[str],
    internal: bool,
    public: bool,
    seed: int,
    engine: str,
    show_values: bool,
) -> ProtectionComparison:
    """Return a plan or release next to other protections; read records only if allowed to."""
    from countveil.assess.protection_comparison import compare_protections
    from countveil.assess.protections.exact_tables import from_counts, from_release
    from countveil.assess.protections.registry import read_protection
    from countveil.engines.engine import open_engine
    from countveil.publish.release_folder import Release

    target = _load(path)
    plan = target.plan if isinstance(target, Release) else target
    for text in protections:
        read_protection(text, plan)  # refused before any record is read
    if internal and public:
        raise InputError(
            "--internal and --public-records: records are either confidential or public; give one"
        )
    if isinstance(target, Release):
        for name, flag in (("--internal", internal), ("--public-records", public)):
            if flag:
                raise InputError(
                    f"{name}: has no effect for a release folder, whose published estimates are used; "
                    f"name its plan, or remove {name}"
                )
        return compare_protections(plan, from_release(target), protections, seed=seed)
    if not internal and not public:
        raise InputError(
            f"{path}: other protections are made from its records, so the result is internal; add "
            f"--internal, or --public-records if you attest that the records are public, or name a "
            f"release folder to use its published estimates"
        )
    counts = open_engine(engine, show_values=show_values).tabulate(plan)
    tables = from_counts(plan, counts, public=public)
    return compare_protections(plan, tables, protections, seed=seed)


def _write(path: Path, text: str, comparison: ProtectionComparison) -> None:
    """Write a result; an internal one for its owner only."""
    from countveil.base import storage

    if path.is_dir():
        raise InputError(f"--to: {path} is a folder; name a file")
    if comparison.audience == "internal":
        with storage.replacing_private(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    else:
        storage.write_bytes(path, text.encode())
