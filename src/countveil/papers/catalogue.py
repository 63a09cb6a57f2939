"""What can be reproduced, and one item of it computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from countveil.errors import InputError
from countveil.papers import (
    census_budget,
    empirical_loss,
    homogeneity,
    homogeneity_curves,
    intruder_one_level,
    intruder_supplement,
    intruder_two_levels,
    noise_sums,
    public_information,
)
from countveil.papers.item import Entry, Item, Setting

PAPERS = {
    "002": "Kazan and Reiter, Assessing Statistical Disclosure Risk for Differentially Private, "
    "Hierarchical Count Data (2022)",
    "000": "Kazan and Reiter, the same, supplement",
    "001": "Petti and Flaxman, Differential Privacy in the 2020 US Census, appendix on empirical "
    "privacy loss",
    "003": "Seeman, Reimherr and Slavkovic, Formal Privacy for Partially Private Data",
    "004": "Liu and Zhao, Disclosure Risk from Homogeneity Attack in Differentially Privately "
    "Sanitized Frequency Distribution",
}
_ORDER = {"table": 0, "figure": 1, "example": 2, "text": 3}
_ENTRIES = (
    *census_budget.ENTRIES,
    *empirical_loss.ENTRIES,
    *homogeneity.ENTRIES,
    *homogeneity_curves.ENTRIES,
    *intruder_one_level.ENTRIES,
    *intruder_two_levels.ENTRIES,
    *intruder_supplement.ENTRIES,
    *noise_sums.ENTRIES,
    *public_information.ENTRIES,
)


def items(paper: str | None = None) -> tuple[Entry, ...]:
    """Return what can be reproduced, of one paper or of all: tables, figures, examples, text."""
    if paper is not None and paper not in PAPERS:
        raise InputError(f"no paper {paper!r}; choose from {', '.join(PAPERS)}")
    chosen = [entry for entry in _ENTRIES if paper in (None, entry.paper)]
    return tuple(sorted(chosen, key=_place))


def _place(entry: Entry) -> tuple[int, int, str]:
    kind = entry.slug.partition("-")[0]
    return list(PAPERS).index(entry.paper), _ORDER[kind], entry.slug


def reproduce(
    paper: str,
    item: str,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Item:
    """Compute one item, such as "Table 3" or "figure-4".

    `data` is a folder with files that cannot be shipped; `quick` makes fewer draws where an item is
    simulated; `progress` is told what is computed.
    """
    entry = _found(paper, item)
    folder = None if data is None else Path(data)
    if folder is not None and not folder.is_dir():
        raise InputError(f"data: {folder} is no folder; name the one that holds the files")
    if progress is not None:
        progress(f"{entry.paper} {entry.name}")
    content = entry.compute(Setting(folder, quick))
    return Item(
        entry.paper,
        entry.name,
        entry.title,
        content.values,
        content.pictures,
        content.note,
        content.missing,
    )


def _found(paper: str, item: str) -> Entry:
    of_paper = items(paper)
    slug = item.strip().lower().replace(" ", "-")
    for entry in of_paper:
        if entry.slug == slug:
            return entry
    names = ", ".join(entry.slug for entry in of_paper)
    raise InputError(f"no item {item!r} in paper {paper}; choose from {names}")
