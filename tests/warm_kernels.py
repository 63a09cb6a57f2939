"""Compile the kernels that most tests call, once; `scripts/test` runs this next to the static checks.

Without it every process of the tests compiles them when it first needs them.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests import conftest  # names the folder that keeps machine code, before Numba loads


def warm() -> None:
    """Release a small place with every way of rounding, map its risk and its loss."""
    from countveil import Plan, Seeded, open_engine, pipeline
    from countveil.assess import empirical_loss
    from countveil.assess.risk_maps import internal_map, public_map
    from countveil.demo.starter import write_start

    with tempfile.TemporaryDirectory(prefix="countveil-") as work:
        folder = Path(work)
        write_start(folder / "place", people=300, seed=1)
        plan = Plan.load(folder / "place" / "plan.toml")
        text = (folder / "place" / "plan.toml").read_text()
        for rounding in ("totals", "queries", "unbiased"):
            more = f'\n[postprocess.levels."*"]\nrounding = "{rounding}"\npasses = ["TOTAL"]\n'
            (folder / "place" / f"{rounding}.toml").write_text(text + more)
            plan = Plan.load(folder / "place" / f"{rounding}.toml")
            release = pipeline.release(plan, to=folder / rounding, rng=Seeded(1), workers=1)
        public_map(release.measurements, release.geography, prior=0.1)
        counts = open_engine("local").tabulate(plan)
        internal_map(release.measurements, counts, prior=0.1)
        empirical_loss.of_release(release.measurements, counts).losses()


if __name__ == "__main__":
    assert conftest.SOURCE.is_dir()
    warm()
    assert any(Path(os.environ["NUMBA_CACHE_DIR"]).iterdir()), (
        "Numba loaded before its folder's name"
    )
