"""Parquet files of a few kilobytes that stand for gigabytes are refused before memory is taken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.base import parquet_size
from countveil.base.parquet_size import refuse_bomb
from countveil.errors import InputError
from countveil.plan import one_table_plan
from countveil.plan.geography import read_crosswalk

MEASURE = """
import json, sys
from pathlib import Path
from countveil.errors import GeographyError
from countveil.plan.geography import read_crosswalk
from countveil.engines.workers import peak_of

path = Path(sys.argv[1])
for area in ("warm-up", *sys.argv[2:]):  # the first reading brings libraries in
    before = peak_of()
    try:
        read_crosswalk(path / f"{area}.parquet", ["area"])
        message = ""
    except GeographyError as error:
        message = str(error)
    print(json.dumps([area, message, peak_of() - before]))
"""


def same(rows, text):
    indices = pa.array(np.zeros(rows, np.int8))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text]))


def a_list():
    ends = pa.array([0, 150_000_000], pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(np.zeros(150_000_000, np.int8)))


ATTACKS = {
    "list": (a_list, {}, "has type list<element: int8>; store a single text"),
    "struct": (
        lambda: pa.StructArray.from_arrays([same(200, "x" * 2_000_000)], ["area"]),
        {},
        "has type struct<",
    ),
    "dictionary": (lambda: same(500, "x" * 2_000_000), {}, "unpacks to a text of 2,000,000 bytes"),
    "dictionary of an unknown schema": (
        lambda: same(500, "x" * 2_000_000),
        {"store_schema": False},
        "unpacks to a text of 2,000,000 bytes",
    ),
    "many texts": (
        lambda: same(300_000, "x" * 4_000),
        {"store_schema": False},
        "unpacks to over 1,0.*bytes of text",
    ),
    "shared beginnings": (
        lambda: pa.array(["x" * 2_000_000 + str(number) for number in range(100)]),
        {"use_dictionary": False, "column_encoding": {"area": "DELTA_BYTE_ARRAY"}},
        "encoded as DELTA_BYTE_ARRAY, which does not state how much",
    ),
    "wide": (
        lambda: pa.array([b"x" * 2_000_000] * 100, pa.binary(2_000_000)),
        {},
        "has type fixed_size_binary",
    ),
    "one long text": (
        lambda: pa.array(["x" * 150_000_000]),
        {"use_dictionary": False},
        "unpacks to 150,000,0.. bytes in 1 rows at once",
    ),
}


def test_attacks_are_refused_without_the_memory_they_ask_for(tmp_path):
    pq.write_table(pa.table({"area": ["A1", "A2"]}), tmp_path / "warm-up.parquet")
    for name, (make, options, _) in ATTACKS.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"area": make()}), path, compression="zstd", **options)
        assert path.stat().st_size < 150_000, name
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), *ATTACKS],
        capture_output=True,
        text=True,
        check=True,
    )
    first, *told = (json.loads(line) for line in ran.stdout.splitlines())
    assert first[1] == ""
    assert len(told) == len(ATTACKS)
    for name, message, grown in told:
        assert grown < 80_000_000, f"{name} took {grown:,} bytes"
        assert re.search(ATTACKS[name][2], message), message


def test_every_reader_of_columns_refuses_them(tmp_path):
    path = tmp_path / "counts.parquet"
    pq.write_table(pa.table({"area": ["A1", "A2"], "count": [[1], [2, 3]]}), path)
    with pytest.raises(InputError, match="column 'count' has type list<"):
        one_table_plan._columns(path, "area", "count")
    pq.write_table(pa.table([["A1"], ["A2"]], names=["area", "area"]), path)
    with pytest.raises(InputError, match="column 'area' occurs more than once; keep one"):
        refuse_bomb(path, ["area"], "one row a unit")


@pytest.mark.parametrize("limit", ["MOST_BYTES", "_MOST_TOGETHER"])
def test_what_is_within_the_limits_is_read(tmp_path, monkeypatch, limit):
    """To the byte: texts of 60,000 bytes in all, in two row groups of half of that."""
    codes = [f"A{number:05d}" for number in range(10_000)]
    path = tmp_path / "places.parquet"
    pq.write_table(pa.table({"area": codes}), path, row_group_size=5_000, use_dictionary=False)
    facts = pq.read_metadata(path)
    sizes = [facts.row_group(n).column(0).total_uncompressed_size for n in (0, 1)]
    exact = sum(sizes) if limit == "MOST_BYTES" else max(sizes)
    monkeypatch.setattr(parquet_size, limit, exact)
    assert read_crosswalk(path, ["area"]).units("area") == 10_000
    monkeypatch.setattr(parquet_size, limit, exact - 1)
    with pytest.raises(InputError, match="unpacks to"):
        read_crosswalk(path, ["area"])


def test_texts_count_by_their_own_bytes_and_once_a_row(tmp_path, monkeypatch):
    path = tmp_path / "places.parquet"
    table = pa.table({"area": same(1_000, "ä" * 50)})  # 100,000 bytes of text in a small column
    for options in ({}, {"store_schema": False}):
        pq.write_table(table, path, row_group_size=400, **options)
        monkeypatch.setattr(parquet_size, "MOST_BYTES", 100_000)
        refuse_bomb(path, ["area"], "one row a unit")
        monkeypatch.setattr(parquet_size, "MOST_BYTES", 99_999)
        with pytest.raises(InputError, match="unpacks to over 100,000 bytes of text"):
            refuse_bomb(path, ["area"], "one row a unit")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["A1", None]),
        pa.array(["A1", "A2"], pa.large_string()),
        pa.array(["A1", "A2"]).dictionary_encode(),
        pa.array([b"A1", b"A2"]),
        pa.array([1, 2]),
        pa.array([1.5, None]),
        pa.array([Decimal(1), Decimal(2)]),
        pa.array([True, False]),
        pa.array(["x" * 4096, ""]),
    ],
    ids=lambda column: str(column.type),
)
def test_single_texts_and_numbers_are_let_through(tmp_path, column):
    path = tmp_path / "columns.parquet"
    pq.write_table(pa.table({"area": column, "other": [[1], [2]]}), path)
    refuse_bomb(path, ["area"], "one row a unit")
    pq.write_table(pa.table({"area": column[:0]}), path)
    refuse_bomb(path, ["area"], "one row a unit")
