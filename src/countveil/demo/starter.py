"""What `countveil init` and `countveil demo` write: a plan, and a population to try it on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from countveil.demo.synthetic import PopulationShape, write_population
from countveil.errors import FolderError
from countveil.plan.plan_file import json_schema

_DEMO = """\
# The demo: the 2020 redistricting schema and allocation on a synthetic population.
[release]
title = "Demo: 2020 redistricting tables of a synthetic population"
preset = "pl94-2020"
dataset = "demo population"

[records]
path = "people.parquet"
one_row_per_person = true

[geography]
path = "blocks.csv"

[ledger]
path = "../demo-ledger.sqlite"
"""


_DEMO_LEDGER = '"../demo-ledger.sqlite"'
_LEDGER = '"../small-place-ledger.sqlite"'  # the path in starter.toml


def ledger_of(folder: Path) -> Path:
    """Return the ledger of a new folder: next to it, so that a copy does not include it."""
    path = Path(os.path.abspath(folder))
    return path.with_name(f"{path.name}-ledger.sqlite")


def write_start(folder: Path, *, people: int, seed: int) -> list[Path]:
    """Write a commented plan, a small synthetic data set and a JSON Schema; return the files.

    The plan has the full path of its ledger, so that a copy of the folder spends from the same one.
    """
    template = resources.files("countveil.demo").joinpath("starter.toml").read_text("utf-8")
    text = _with_ledger(template, _LEDGER, folder)
    _need_new(folder)
    population = write_population(folder, people=people, seed=seed)
    table = pq.read_table(population.records)
    races = ["two or more" if "+" in race else race for race in table["CENRACE"].to_pylist()]
    simple = pa.table(
        {
            "block": table["block"].cast(pa.string()),
            "AGE": table["VOTINGAGE"].cast(pa.string()),
            "HISPANIC": table["HISPANIC"].cast(pa.string()),
            "RACE": pa.array(races),
        }
    )
    records = folder / "people.csv"
    pyarrow.csv.write_csv(simple, records)
    population.records.unlink()
    plan = folder / "plan.toml"
    plan.write_bytes(text)
    schema = folder / "plan.schema.json"
    schema.write_text(json.dumps(json_schema(), indent=2) + "\n")
    return [plan, records, population.crosswalk, schema]


def write_demo(
    folder: Path,
    *,
    people: int,
    seed: int,
    shape: PopulationShape | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Write the population and the plan of the demo; return the plan.

    Its ledger is outside the folder, as that of `write_start`. It has room for one release, so the name
    of an earlier demo is refused while its ledger exists.
    """
    text = _with_ledger(_DEMO, _DEMO_LEDGER, folder)
    _refuse_used(folder)
    if os.path.lexists(ledger_of(folder)):
        raise FolderError(
            f"{ledger_of(folder)}: exists already, and is where the ledger of a demo in {folder} would "
            f"be; name another folder"
        )
    _need_new(folder)
    write_population(folder, people=people, seed=seed, shape=shape, progress=progress)
    plan = folder / "plan.toml"
    plan.write_bytes(text)
    return plan


def _with_ledger(template: str, path: str, folder: Path) -> bytes:
    """Return a plan with the full path of its ledger, which is outside its folder."""
    ledger = json.dumps(str(ledger_of(folder)), ensure_ascii=False)
    try:
        return template.replace(path, ledger).encode()
    except UnicodeEncodeError as error:
        raise FolderError(f"{folder}: the name is not valid text; name another folder") from error


def _refuse_used(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderError(f"{folder}: is not empty; name a new folder")


def _need_new(folder: Path) -> None:
    _refuse_used(folder)
    folder.mkdir(parents=True, exist_ok=True)
