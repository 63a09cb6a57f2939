"""One seeded run of the plan itself on the same people: how wrong its published tables would be.

The forecast of a plan's error is that of unbiased estimates. Published counts are whole and never
negative, which makes tables of small counts far better; only a run shows by how much. Its noise is
seeded, so that nothing of it may be published, and its files are deleted.
"""

from __future__ import annotations

from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.base.numerics import FloatArray
from countveil.base.randomness import Seeded
from countveil.base.spill_folder import private_folder
from countveil.engines.counts import build
from countveil.measure.door import take
from countveil.postprocess.topdown import top_down


def simulated_tables(tables: ExactTables, seed: int) -> dict[TableKey, FloatArray] | None:
    """Return the tables that a seeded run of the plan would publish.

    Parameters
    ----------
    tables : ExactTables
        The people, and the tables of the plan.
    seed : int
        The seed of the noise.

    Returns
    -------
    dict of TableKey to array, or None
        Estimates, units × cells; None if the plan publishes measurements only.

    """
    plan = tables.plan
    if plan.method != "top-down" or tables.lowest != plan.levels[-1]:
        return None
    entries = (tables.unit, tables.cell, tables.people)
    counts = build(tables.geography, plan.schema.cells, [entries], plan.counting_digest)
    with private_folder() as folder:
        measured = take(counts, plan, rng=Seeded(seed), ledger=None, to=folder / "run")
        estimates = top_down(measured, plan)
        return {
            key: estimates.counts(key.level, tables.query(key)).astype(float)
            for key in tables.counts
        }
