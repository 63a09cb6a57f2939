"""The footer of a Parquet file, read without Arrow: the same facts, and no end of the process."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil.base.parquet_size import DELTA_BYTE_ARRAY, read_footer

TABLE = pa.table(
    {
        "code": [f"A{number}" for number in range(1_000)],
        "coded": pa.array(["x", "y"] * 500).dictionary_encode(),
        "values": [[number, 2] for number in range(1_000)],
        "number": np.arange(1_000.0),
        "both": [{"a": 1, "b": None}] * 1_000,
    }
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 37, "compression": "zstd"},
        {"use_dictionary": False, "column_encoding": {"code": "DELTA_BYTE_ARRAY"}},
        {"write_page_index": True, "data_page_version": "2.0", "store_schema": False},
    ],
)
def test_row_groups_and_columns_are_as_arrow_has_them(tmp_path, options):
    path = tmp_path / "file.parquet"
    pq.write_table(TABLE, path, **options)
    facts, footer = pq.read_metadata(path), read_footer(path)
    assert len(footer) == facts.num_row_groups
    for number, group in enumerate(footer):
        theirs = facts.row_group(number)
        assert group.rows == theirs.num_rows
        for at, column in enumerate(group.columns):
            other = theirs.column(at)
            assert column.path == other.path_in_schema
            assert column.values == other.num_values
            assert column.unpacked == other.total_uncompressed_size
            named = "DELTA_BYTE_ARRAY" in other.encodings
            assert (DELTA_BYTE_ARRAY in column.encodings) == named


def test_a_damaged_footer_is_refused_by_its_value_alone(tmp_path):
    path = tmp_path / "file.parquet"
    pq.write_table(TABLE, path, row_group_size=300)
    whole, rng = path.read_bytes(), random.Random(7)
    length = int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 3])):
            data[len(data) - 1 - rng.randrange(length + 8)] = rng.randrange(256)
        path.write_bytes(data)
        try:
            read_footer(path)
        except ValueError:
            refused += 1
    assert refused > 300
    for data in (b"", b"PAR1", whole[:-4] + b"PARE", whole[:-8] + b"\xff\xff\xff\x7fPAR1"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="Parquet f"):
            read_footer(path)
