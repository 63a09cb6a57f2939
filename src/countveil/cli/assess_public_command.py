"""`countveil assess public`: what public totals reveal, and what is still guaranteed."""

from __future__ import annotations

from countveil.cli.assess_command import Target, assess_app, show_section
from countveil.cli.command_line import ending_well
from countveil.cli.commands import AsJson
from countveil.errors import InputError


@assess_app.command("public")
@ending_well
def assess_public(target: Target, as_json: AsJson = False) -> None:
    """Show what public totals reveal, and what is still guaranteed.

    Reads a plan file or a release folder. Writes nothing.

    Example: `countveil assess public plan.toml`, or `countveil assess public out`
    """
    from countveil.plan.plans import Plan
    from countveil.publish.release_folder import open_release
    from countveil.report.sections.public_section import section_of

    if not target.exists():
        raise InputError(f"{target}: not found; name a release folder or a plan file (.toml)")
    subject = open_release(target) if target.is_dir() else Plan.load(target)
    show_section(section_of(subject), "public", as_json=as_json)
