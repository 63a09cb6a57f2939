"""The lenses: each looks at a plan or a release and produces one section.

To add one, write a module with a function `section(subject)` and list it here. It then has a command
under `countveil assess` and a section in the report and, if it needs only a plan, in the explorer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from countveil.report.section_data import Section, Subject

Needs = Literal["plan", "release", "records"]
_SECTIONS = "countveil.report.sections"


@dataclass(frozen=True, slots=True)
class Lens:
    """A way to look at a plan, a release, or a release and the records it was made from.

    `made_by` is a function of a subject, or its name, "module:function", which is loaded when needed.
    It returns None if the lens does not apply.
    """

    name: str
    help: str
    needs: Needs
    made_by: str | Callable[[Subject], Section | None]

    def section(self, subject: Subject) -> Section | None:
        """Return the section of a subject, or None if the lens does not apply."""
        function = self.made_by
        if isinstance(function, str):
            module, _, name = function.partition(":")
            function = getattr(import_module(f"{_SECTIONS}.{module}"), name)
        section: Section | None = function(subject)
        return section


LENSES: list[Lens] = [
    Lens(
        "presence",
        "What someone learns who knows everyone else in a place.",
        "plan",
        "intruder_section:section",
    ),
    Lens(
        "published",
        "What the published tables reveal about one person.",
        "release",
        "published_section:section",
    ),
    Lens(
        "published-homogeneity",
        "Groups that the published tables show with one value.",
        "release",
        "published_homogeneity_section:section",
    ),
    Lens("error", "How far off a count is expected to be.", "plan", "error_section:section"),
    Lens("margin", "The margin of error of each count.", "release", "margin_section:section"),
    Lens("loss", "The privacy loss of single counts.", "plan", "loss_section:section"),
    Lens(
        "homogeneity",
        "Groups in which everyone has the same value.",
        "plan",
        "homogeneity_section:section",
    ),
    Lens(
        "reconstruction",
        "What exact tables would give away.",
        "release",
        "reconstruction_section:section",
    ),
    Lens("public", "What public totals reveal.", "plan", "public_section:section"),
    Lens(
        "realised-error",
        "The error of the release, measured against the records.",
        "records",
        "realised_sections:error",
    ),
    Lens("everyone", "The risk of everyone counted.", "records", "realised_sections:everyone"),
    Lens(
        "realised-loss",
        "The privacy loss estimated from residuals.",
        "records",
        "realised_sections:loss",
    ),
    Lens(
        "realised-attack",
        "The homogeneity attack on the release.",
        "records",
        "realised_sections:attack",
    ),
    Lens(
        "realised-reconstruction",
        "What exact tables of the records would have given away.",
        "records",
        "reconstruction_section:realised",
    ),
]


def sections_of(subject: Subject) -> list[Section]:
    """Return the sections of all lenses that apply to a subject, in the order of the report."""
    available: set[Needs] = {"plan"}
    if subject.release is not None:
        available.add("release")
    if subject.realised is not None:
        available.add("records")
    sections = (lens.section(subject) for lens in LENSES if lens.needs in available)
    return [section for section in sections if section is not None]
