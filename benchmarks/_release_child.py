"""Run `countveil release` in many small parts and batches, so that there is much to interrupt."""

from __future__ import annotations

import sys
import warnings

from countveil import cli
from countveil.measure import door
from countveil.postprocess import topdown


def main() -> None:
    door._VALUES = 1500
    door._MANY = 1
    topdown._VALUES = 1500
    topdown._MANY = 2
    warnings.simplefilter("ignore")  # PySpark warns about pandas
    sys.argv = ["countveil", "release", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
