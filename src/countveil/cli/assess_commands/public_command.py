"""`countveil assess public`: what public totals reveal, and what is still guaranteed."""

from __future__ import annotations

from countveil.cli.assess_commands.assess_group import Target, lens_command, show_section
from countveil.cli.options import AsJson
from countveil.errors import InputError
from countveil.report.lenses import lens_named


@lens_command("public")
def assess_public(target: Target, as_json: AsJson = False) -> None:
    """Run the lens `public`, also on a plan or a release of one table.

    Reads a plan file or a release folder. Writes nothing.

    Example: `countveil assess public plan.toml`, or `countveil assess public out`
    """
    from countveil.plan.plans import Plan
    from countveil.publish.release_folder import open_release

    if not target.exists():
        raise InputError(f"{target}: not found; name a release folder or a plan file (.toml)")
    subject = open_release(target) if target.is_dir() else Plan.load(target)
    show_section(lens_named("public").section_of(subject), "public", as_json=as_json)
