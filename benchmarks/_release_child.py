"""Run `countveil release` in many small parts and batches, so that there is much to interrupt."""

from __future__ import annotations

import sys
import warnings
from functools import partial

from countveil import cli, pipeline
from countveil.measure.batch_sizes import BatchSizes


def main() -> None:
    small = BatchSizes(
        values_to_draw=1500, parts_to_share=1, values_to_solve=1500, units_to_share=2
    )
    pipeline.release = partial(pipeline.release, sizes=small)
    warnings.simplefilter("ignore")  # PySpark warns about pandas
    sys.argv = ["countveil", "release", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
