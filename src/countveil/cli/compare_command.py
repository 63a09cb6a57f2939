"""`countveil compare`: two plans, or two releases, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.commands import AsJson

if TYPE_CHECKING:
    from countveil.plan.plans import Plan
    from countveil.publish.release_folder import Release


@command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A plan file or a release folder.")],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Another plan file or release folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show how two plans or releases differ in settings, cost, risk and error.

    Reads both, but no records. Writes nothing.

    Example: `countveil compare plan.toml larger.toml`, or `countveil compare out-may out-june`
    """
    from countveil.assess.comparison import compare as compared
    from countveil.report.terminal.compare_terminal import comparison_document, comparison_view

    comparison = compared(_opened(first), _opened(second))
    if as_json:
        showing.print_json(comparison_document(comparison))
    else:
        showing.console().print(comparison_view(comparison))


def _opened(path: Path) -> Plan | Release:
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release

    if path.is_dir():
        return Release.read(path)
    return require_counts(Plan.load(path), "a comparison")
