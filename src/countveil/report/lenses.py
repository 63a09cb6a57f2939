"""The lenses: each looks at a plan or a release and produces one section.

To add one, write a module with a function `section(subject)` and list it here. It then has a command
under `countveil assess` and a section in the report and, if it needs only a plan, in the explorer. The
order here is the order there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from countveil.report.section_data import Section, Subject

Needs = Literal["plan", "release", "records"]
_SECTIONS = "countveil.report.sections"


@dataclass(frozen=True, slots=True)
class Lens:
    """A way to look at a plan, a release, or a release and the records it was made from.

    `help` is one imperative sentence. `made_by` is a function of a subject, or its name,
    "module:function", which is loaded when needed. It returns None if the lens does not apply.
    `worded_by` names the function that makes the section from results, for a command whose options
    change what is computed.
    """

    name: str
    help: str
    needs: Needs
    made_by: str | Callable[[Subject], Section | None]
    worded_by: str = ""

    def section(self, subject: Subject) -> Section | None:
        """Return the section of a subject, or None if the lens does not apply."""
        function = _loaded(self.made_by) if isinstance(self.made_by, str) else self.made_by
        section: Section | None = function(subject)
        return section

    def section_of(self, *results: object, **more: object) -> Section:
        """Return the section of results that a command has computed itself."""
        section: Section = _loaded(self.worded_by)(*results, **more)
        return section


def _loaded(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    function: Callable[..., Any] = getattr(import_module(f"{_SECTIONS}.{module}"), name)
    return function


LENSES: list[Lens] = [
    Lens(
        "presence",
        "Show what someone who knows everyone else in a place would learn.",
        "plan",
        "intruder_section:section",
    ),
    Lens(
        "published",
        "Show the range of what the published tables reveal about one person.",
        "release",
        "published_section:section",
        "published_section:section_of",
    ),
    Lens(
        "published-homogeneity",
        "Show how many people are exposed because everyone in their group has one value.",
        "release",
        "published_homogeneity_section:section",
        "published_homogeneity_section:section_of",
    ),
    Lens("error", "Show how far off counts are expected to be.", "plan", "error_section:section"),
    Lens(
        "split",
        "Show how much the split of the budget wastes, for the tables that the plan names.",
        "plan",
        "split_section:section",
    ),
    Lens("margin", "Show the margin of error of each count.", "release", "margin_section:section"),
    Lens("loss", "Show the privacy loss of single counts.", "plan", "loss_section:section"),
    Lens(
        "homogeneity",
        "Show how often noise fails to hide a value that a whole group shares.",
        "plan",
        "homogeneity_section:section",
    ),
    Lens(
        "reconstruction",
        "Show what the tables would give away if they were published exactly.",
        "release",
        "reconstruction_section:section",
        "reconstruction_section:section_of",
    ),
    Lens(
        "public",
        "Show what public totals reveal, and what is still guaranteed.",
        "plan",
        "public_section:section",
        "public_section:section_of",
    ),
    Lens(
        "realised-error",
        "Compare the published counts with those of the records.",
        "records",
        "realised_sections:error",
    ),
    Lens("everyone", "Show the risk of everyone counted.", "records", "realised_sections:everyone"),
    Lens(
        "realised-loss",
        "Estimate the privacy loss from released minus exact counts.",
        "records",
        "realised_sections:loss",
        "realised_sections:loss_of",
    ),
    Lens(
        "realised-attack",
        "Try the homogeneity attack on the release.",
        "records",
        "realised_sections:attack",
        "realised_sections:attack_of",
    ),
    Lens(
        "realised-reconstruction",
        "Show what exact tables of the records would have given away.",
        "records",
        "reconstruction_section:realised",
    ),
]


def lens_named(name: str) -> Lens:
    """Return the lens with a name."""
    return next(lens for lens in LENSES if lens.name == name)


def sections_of(subject: Subject) -> list[Section]:
    """Return the sections of all lenses that apply to a subject, in the order of the report."""
    available: set[Needs] = {"plan"}
    if subject.release is not None:
        available.add("release")
    if subject.realised is not None:
        available.add("records")
    sections = (lens.section(subject) for lens in LENSES if lens.needs in available)
    return [section for section in sections if section is not None]
