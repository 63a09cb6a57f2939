"""The group `countveil assess`: one command per lens, in the order of the report."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from countveil.cli import showing
from countveil.cli.command_line import app, ending_well
from countveil.cli.options import AsJson, EngineName, Priors, Quiet, ShowValues
from countveil.errors import InputError

if TYPE_CHECKING:
    from countveil.report.lenses import Lens
    from countveil.report.section_data import Section, Subject

Target = Annotated[
    Path, typer.Argument(metavar="TARGET", help="A release folder, or a plan file (.toml).")
]
Internal = Annotated[
    bool,
    typer.Option("--internal", help="Read the records again; do not publish the result."),
]
PlanOfRecords = Annotated[
    Path | None,
    typer.Option(
        "--plan",
        help="Plan whose records --internal reads; default: plan.toml next to the release.",
    ),
]
KnownLevel = Annotated[
    str | None,
    typer.Option(
        "--level", help="Level at which the intruder knows everyone else; default: the plan's."
    ),
]


_READS = {
    "plan": "Reads a plan file or a release folder.",
    "release": "Reads a release folder, but no records.",
    "records": "Reads a release folder and, again, its records; do not publish the result.",
}


_EARLIER_NAMES = {"intruder": "presence"}  # of lenses
_FLAGS = {"--json", "--quiet", "-q", "--internal", "--show-values", "--strata"}  # without a value


class _LensGroup(TyperGroup):
    """The commands with their own options, and one command for every other lens.

    Typer carries its own copy of click, whose types are not public.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        from countveil.report.lenses import LENSES

        names = [lens.name for lens in LENSES]
        return names + [name for name in super().list_commands(ctx) if name not in names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        from countveil.report.lenses import LENSES

        lens = next((item for item in LENSES if item.name == cmd_name), None)
        return None if lens is None else _command_of(lens)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        command = _current_command(args, known)
        if command is not None:
            raise InputError(
                f"assess: each lens is a command, and options go after it: run `{command}`; the "
                f"lenses are {', '.join(known)}"
            )
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if self.get_command(ctx, name) is None:
            known = ", ".join(self.list_commands(ctx))
            raise InputError(f"assess: unknown lens {name!r}; choose from {known}")
        return super().resolve_command(ctx, args)


def _current_command(args: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the command that arguments of an earlier version mean, or None if they are of this one.

    Earlier versions named the target first, and the lens by an option: `TARGET --lens map`, `--map`.
    """
    lens: str | None = None
    options: list[str] = []
    plain: list[str] = []
    words = iter(args)
    for word in words:
        option, _, value = word.partition("=")
        if option == "--lens":
            lens = value or next(words, "presence")
        elif option.startswith("--") and option[2:] in known:
            lens = option[2:]
        elif word.startswith("-"):
            options += [word] if value or word in _FLAGS else [word, *islice(words, 1)]
        else:
            plain.append(word)
    first = plain[0] if plain else ""
    if lens is None and (not args or args[0] in known or args[0] == "--help"):
        return None
    if lens is None and args[0] == first not in _EARLIER_NAMES and not Path(first).exists():
        return None  # an unknown lens
    if first in known or first in _EARLIER_NAMES:
        lens, plain = lens or first, plain[1:]
    lens = _EARLIER_NAMES.get(lens or "presence", lens or "presence")
    return shlex.join(["countveil", "assess", lens, *plain, *options])


assess_app = typer.Typer(
    cls=_LensGroup,
    help="Show what a plan or a release discloses, one lens at a time.\n\n"
    "Example: `countveil assess presence plan.toml`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(assess_app, name="assess")

_Function = TypeVar("_Function", bound=Callable[..., None])


def lens_command(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that registers a lens's own command; its help begins with the lens's."""
    from countveil.report.lenses import lens_named

    lens = lens_named(name)

    def register(function: _Function) -> _Function:
        details = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[2]
        assess_app.command(name, help=f"{lens.help}\n\n{details}")(ending_well(function))
        return function

    return register


def _command_of(lens: Lens) -> Any:
    """Return the command of a lens that has no options of its own."""

    def run(
        target: Target,
        prior: Priors = None,
        level: KnownLevel = None,
        internal: Internal = False,
        plan: PlanOfRecords = None,
        engine: EngineName = "local",
        show_values: ShowValues = False,
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        show_lens(
            lens,
            target,
            priors=prior,
            level=level,
            internal=internal,
            plan=plan,
            engine=engine,
            show_values=show_values,
            as_json=as_json,
            quiet=quiet,
        )

    run.__doc__ = (
        f"{lens.help}\n\n    {_READS[lens.needs]} Writes nothing.\n\n    Example: `countveil "
        f"assess {lens.name} {'out --internal' if lens.needs == 'records' else 'out'}`"
    )
    holder = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    holder.command(name=lens.name)(ending_well(run))
    return typer.main.get_command(holder)


def show_lens(
    lens: Lens,
    target: Path,
    *,
    priors: Sequence[float] | None,
    level: str | None,
    internal: bool,
    plan: Path | None,
    engine: str,
    show_values: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what a lens finds."""
    subject = subject_of(
        target,
        needs=lens.needs,
        priors=priors,
        level=level,
        internal=internal,
        plan=plan,
        engine=engine,
        show_values=show_values,
        quiet=quiet,
    )
    show_section(lens.section(subject), lens.name, as_json=as_json)


def subject_of(
    target: Path,
    *,
    needs: str,
    priors: Sequence[float] | None = None,
    level: str | None = None,
    internal: bool = False,
    plan: Path | None = None,
    engine: str = "local",
    show_values: bool = False,
    quiet: bool = False,
) -> Subject:
    """Return the subject of a lens: a plan, a release, or a release and its records."""
    from countveil.cli.records_again import counts_again
    from countveil.plan.plans import Plan, require_counts
    from countveil.publish.release_folder import Release
    from countveil.report.section_data import Subject

    if plan is not None and not internal:
        raise InputError(
            "--plan: has no effect without --internal; add --internal or remove --plan"
        )
    known = None if priors is None else tuple(priors)
    if not target.is_dir():
        if target.suffix != ".toml" or not target.is_file():
            raise InputError(f"{target}: not found; name a release folder or a plan file (.toml)")
        if needs != "plan" or internal:
            raise InputError(f"{target}: a plan file is not enough here; name a release folder")
        loaded = require_counts(Plan.load(target), "this lens")
        _refuse_unknown_level(loaded.measured_levels, level)
        return Subject(loaded, priors=known, level=level)
    release = Release.read(target)
    _refuse_unknown_level(release.plan.measured_levels, level)
    if needs == "records" and not internal:
        raise InputError(
            f"assess: this compares {target} with its records, so the result is internal; add "
            f"--internal"
        )
    realised = None
    if internal:
        from countveil.assess.realised_disclosure import realised as compare

        counts = counts_again(release, plan, show_values, engine)
        units = release.geography.units(release.plan.judged_level)
        with showing.progress_bar("assessing everyone", units, quiet) as step:
            realised = compare(release, counts, progress=lambda done, _: step(done))
    return Subject(release.plan, release, realised, priors=known, level=level)


def show_section(section: Section | None, name: str, *, as_json: bool) -> None:
    """Print a section, as text or as JSON."""
    if section is None:
        raise InputError(f"assess: lens {name} does not apply to this target; choose another lens")
    if as_json:
        showing.print_json(section.document)
        return
    from countveil.report.terminal.terminal_tables import render_section

    showing.console().print(render_section(section))


def _refuse_unknown_level(known: tuple[str, ...], level: str | None) -> None:
    if level is not None and level not in known:
        raise InputError(f"unknown level {level!r}; choose from {', '.join(known)}")
