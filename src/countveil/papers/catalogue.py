"""What can be reproduced: one line per item, in the order of the papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from countveil.errors import InputError
from countveil.papers.item import Entry, Item, Setting
from countveil.papers.kazan_reiter import (
    budget_items,
    noise_items,
    one_level_items,
    supplement_items,
    two_level_items,
)
from countveil.papers.liu_zhao import attack_items, epsilon_items
from countveil.papers.liu_zhao.example_tables import NEEDS_ADULT, NEEDS_BANKRUPTCY
from countveil.papers.petti_flaxman import loss_items
from countveil.papers.petti_flaxman.loss_items import NEEDS_1940
from countveil.papers.seeman import public_items
from countveil.papers.seeman.public_items import NEEDS_COUNTIES

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

# fmt: off
_ENTRIES = (
    Entry("002", "Table 1", "How rho is allocated in 2020", budget_items.table_1),
    Entry("002", "Table 2", "Enumeration district 28-21", budget_items.table_2),
    Entry("002", "Table 3", "What a released count reveals", one_level_items.table_3),
    Entry("002", "Table 4", "Average risk", one_level_items.table_4),
    Entry("002", "Table 5", "One draw of released counts", two_level_items.table_5),
    Entry("002", "Table 6", "Posterior of the count below", two_level_items.table_6),
    Entry("002", "Table 7", "Posterior of the count above", two_level_items.table_7),
    Entry("002", "Figure 1", "Posterior and risk against the released count", one_level_items.figure_1),
    Entry("002", "Figure 2", "Marginal posterior and risk against rho", one_level_items.figure_2),
    Entry("002", "Figure 3", "Correct decisions against rho", one_level_items.figure_3),
    Entry("002", "Figure 4", "Decisions with the level above", two_level_items.figure_4),
    Entry("002", "Figure 5", "Correct decisions against the count above", two_level_items.figure_5),
    Entry("002", "Figure 6", "Correct decisions against rho above", two_level_items.figure_6),
    Entry("002", "Figure 7", "Variance of the noise against its scale", noise_items.figure_7),
    Entry("002", "Figure 8", "Sums of noise", noise_items.figure_8),
    Entry("002", "Text", "Numbers in the text", budget_items.text),
    Entry("000", "Figure 1", "Risk by levels at which the target is unique", supplement_items.figure_1),
    Entry("000", "Figure 2", "Variance of the noise against its scale", noise_items.figure_s2),
    Entry("000", "Figure 3", "Sums of noise", noise_items.figure_s3),
    Entry("000", "Figure 4", "Decisions under two priors", supplement_items.figure_4),
    Entry("000", "Figure 5", "Decisions with a known count above", supplement_items.figure_5),
    Entry("000", "Figure 6", "Risk after post-processing", supplement_items.figure_6),
    Entry("000", "Text", "Other attacks, and consecutive releases", supplement_items.text),
    Entry("001", "Table SA1", "The estimate against its parameters", loss_items.table_sa1),
    Entry("001", "Figure SA1", "Released against exact totals", loss_items.figure_sa1, NEEDS_1940),
    Entry("001", "Figure SA2", "Density and loss of geometric noise", loss_items.figure_sa2),
    Entry("001", "Figure SA3", "Totals and strata made consistent", loss_items.figure_sa3, NEEDS_1940),
    Entry("001", "Figure SA4", "County totals kept", loss_items.figure_sa4, NEEDS_1940),
    Entry("003", "Figure 1", "Case rates of three counties", public_items.figure_1, NEEDS_COUNTIES),
    Entry("003", "Figure 2", "Relative errors of cases", public_items.figure_2, NEEDS_COUNTIES),
    Entry("003", "Figure 3", "What projection contracts", public_items.figure_3, NEEDS_COUNTIES),
    Entry("003", "Figure 4", "Delta_z against dependence", public_items.figure_4),
    Entry("003", "Example 1", "A normal mean given a public number", public_items.example_1),
    Entry("003", "Example 2", "A count given anonymity measures", public_items.example_2),
    Entry("003", "Text", "Lemmas 6 and 7, and equation (5)", public_items.text),
    Entry("004", "Table 1", "An example subject to the attack", attack_items.table_1),
    Entry("004", "Table 2", "The theorems, evaluated", attack_items.table_2),
    Entry("004", "Figure 1", "Five measures of the risk", attack_items.figure_1),
    Entry("004", "Figure 2", "Cell sizes", attack_items.figure_2, NEEDS_ADULT),
    Entry("004", "Figure 3", "Risk against epsilon", epsilon_items.figure_3, NEEDS_ADULT),
    Entry("004", "Figure 4", "Error of marginals", epsilon_items.figure_4, NEEDS_BANKRUPTCY),
    Entry("004", "Figure S1", "Hard and soft thresholding", epsilon_items.figure_s1, NEEDS_ADULT),
)
# fmt: on


def items(paper: str | None = None) -> tuple[Entry, ...]:
    """Return what can be reproduced: tables, figures, examples and numbers in the text.

    Parameters
    ----------
    paper
        The number of one paper, such as "002"; all papers if None.

    Returns
    -------
    tuple of Entry
        The items, in the order of the papers.

    Examples
    --------
    >>> [entry.slug for entry in items("001")]
    ['table-sa1', 'figure-sa1', 'figure-sa2', 'figure-sa3', 'figure-sa4']
    """
    if paper is not None and paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}; choose from {', '.join(PAPERS)}")
    return tuple(entry for entry in _ENTRIES if paper in (None, entry.paper))


def reproduce(
    paper: str,
    item: str,
    *,
    data: str | Path | None = None,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Item:
    """Return one computed item.

    Parameters
    ----------
    paper
        The number of the paper, such as "002".
    item
        The name of the item, such as "Table 3" or "figure-4".
    data
        A folder with files that cannot be shipped.
    quick
        Whether to make fewer draws where an item is simulated.
    progress
        Called with the name of the item before it is computed.

    Returns
    -------
    Item
        Its values, printed and computed, and its charts.

    Examples
    --------
    >>> risk = reproduce("002", "Table 4").values[1]
    >>> risk.label, risk.printed, round(risk.ours, 4)
    ('risk, p = 1/2', 1.05, 1.0473)
    """
    entry = _entry(paper, item)
    folder = None if data is None else Path(data)
    if folder is not None and not folder.is_dir():
        raise InputError(f"data: {folder} is not a folder; name the one that holds the files")
    if progress is not None:
        progress(f"{entry.paper} {entry.name}")
    content = entry.compute(Setting(folder, quick))
    return Item(
        entry.paper,
        entry.name,
        entry.title,
        content.values,
        content.charts,
        content.note,
        content.missing,
    )


def _entry(paper: str, item: str) -> Entry:
    of_paper = items(paper)
    slug = item.strip().lower().replace(" ", "-")
    for entry in of_paper:
        if entry.slug == slug:
            return entry
    names = ", ".join(entry.slug for entry in of_paper)
    raise InputError(f"unknown item {item!r} in paper {paper}; choose from {names}")
