"""`countveil package`: a zip of the files that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from countveil.cli import showing
from countveil.cli.command_line import command
from countveil.cli.options import AsJson, OutPath


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
