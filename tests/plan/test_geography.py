from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countveil.errors import GeographyError
from countveil.plan import geography
from countveil.plan.geography import read_crosswalk

LEVELS = ("state", "county", "block")


def crosswalk(folder: Path, text: str, name: str = "blocks.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_units_are_numbered_by_path_and_know_their_parents(tmp_path):
    path = crosswalk(tmp_path, "block,county,state\n201,20,2\n101,10,1\n202,20,2\n111,11,1\n")
    geography = read_crosswalk(path, LEVELS)
    assert [codes.to_pylist() for codes in geography.codes] == [
        ["1", "2"],
        ["10", "11", "20"],
        ["101", "111", "201", "202"],
    ]
    assert [parents.tolist() for parents in geography.parents] == [[0, 0], [0, 0, 1], [0, 1, 2, 2]]
    assert geography.geocodes("block", 1, 3).to_pylist() == ["111", "201"]


def test_codes_stay_text(tmp_path):
    path = crosswalk(tmp_path, "state,county,block\n01,01001,010010001\nNA,null,007\n")
    geography = read_crosswalk(path, LEVELS)
    assert geography.codes[0].to_pylist() == ["01", "NA"]
    assert geography.codes[2].to_pylist() == ["010010001", "007"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_other_delimiters_are_read(tmp_path, delimiter):
    text = "state,county,block\n1,1,a\n1,2,b\n".replace(",", delimiter)
    assert read_crosswalk(crosswalk(tmp_path, text), LEVELS).units("county") == 2


def test_parquet_with_dictionaries_is_read(tmp_path):
    table = pa.table({"state": ["1", "1"], "county": ["1", "2"], "block": ["x", "y"]})
    encoded = pa.table({name: table[name].dictionary_encode() for name in table.column_names})
    pq.write_table(encoded, tmp_path / "b.parquet")
    assert read_crosswalk(tmp_path / "b.parquet", LEVELS).units("county") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "state,county\n1,2\n",
            "column 'block' is missing, and geography.levels names it; the file has the "
            "columns state, county",
        ),
        ("state,county,block\n", "has no rows; list one row per lowest unit"),
        (
            "state,county,block\n1,1,a\n1,,b\n1,1,\n",
            "row 2: the code in column 'county' is missing",
        ),
        ("state,county,block\n1,1,a\n1,2,b\n1,1,a\n", "rows 1, 3: block a is listed twice"),
        (
            "state,county,block\n1,1,a\n1,2,a\n",
            "rows 1, 2: block a is in county 1 and in county 2; a unit has one parent",
        ),
        (
            "state,county,block\n1,7,a\n2,7,b\n",
            "rows 1, 2: county 7 is in state 1 and in state 2",
        ),
        ("state,county,block\n1,1,a\n1,1\n", "cannot be read as a CSV file"),
        ("", "cannot be read as a CSV file"),
    ],
)
def test_broken_hierarchies_are_named_with_rows_and_rule(tmp_path, text, message):
    path = crosswalk(tmp_path, text)
    with pytest.raises(GeographyError) as caught:
        read_crosswalk(path, LEVELS)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(GeographyError, match="no such file"):
        read_crosswalk(tmp_path / "none.csv", LEVELS)
    path = crosswalk(tmp_path, "not parquet", "b.parquet")
    with pytest.raises(GeographyError, match="cannot be read as a Parquet file"):
        read_crosswalk(path, LEVELS)
    pq.write_table(pa.table({"state": [1], "county": [1], "block": [1]}), path)
    with pytest.raises(
        GeographyError, match="has type int64; store codes as text, to keep leading zeros"
    ):
        read_crosswalk(path, LEVELS)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_batches_are_whole_families_in_order(sizes, most):
    from countveil.plan.geography import Geography

    parents = np.repeat(np.arange(len(sizes)), sizes)
    geography = Geography(
        ("top", "low"),
        (
            pa.array([str(i) for i in range(len(sizes))]),
            pa.array([str(i) for i in range(len(parents))]),
        ),
        (np.zeros(len(sizes), np.int64), parents),
    )
    cuts = geography.batches("low", most)
    assert cuts[0][0] == 0
    assert cuts[-1][1] == len(parents)
    for (start, stop), (following, _) in zip(cuts, [*cuts[1:], (len(parents), 0)], strict=True):
        assert stop == following
        assert start == 0 or parents[start] != parents[start - 1], "a family is cut"
        families = len(set(parents[start:stop].tolist()))
        assert stop - start <= most or families == 1


def test_unknown_levels_list_the_known_ones(tmp_path):
    geography = read_crosswalk(crosswalk(tmp_path, "state,county,block\n1,1,a\n"), LEVELS)
    with pytest.raises(
        GeographyError, match="unknown level 'blok'; choose from state, county, block"
    ):
        geography.units("blok")


def test_rows_are_counted_in_the_footer_before_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "blocks.parquet"
    table = {"state": ["1"] * 4, "county": ["1"] * 4, "block": ["a", "b", "c", "d"]}
    pq.write_table(pa.table(table), path)
    assert read_crosswalk(path, LEVELS, 4).units("block") == 4

    def never(*arguments, **options):
        raise AssertionError("a column was read")

    monkeypatch.setattr(geography, "_ranked", never)
    with pytest.raises(GeographyError, match="has 4 units of block, but the manifest has 5"):
        read_crosswalk(path, LEVELS, 5)
    monkeypatch.setattr(geography, "MOST_CODES", 11)
    with pytest.raises(
        GeographyError, match="4 rows and 3 levels, 12 codes in total; the limit is 11"
    ):
        read_crosswalk(path, LEVELS)


def test_a_damaged_file_with_columns_of_unequal_length_is_named(tmp_path, monkeypatch):
    """Found by the fuzzer: each column is read by itself, and one ended early."""
    path = tmp_path / "blocks.parquet"
    columns = {"state": ["1", "1", "2"], "county": ["10", "11", "20"], "block": ["a", "b", "c"]}
    pq.write_table(pa.table(columns), path)
    real = geography._read_column

    def read(path, level, *, as_text):
        column = real(path, level, as_text=as_text)
        return column.slice(0, 2) if level == "county" else column

    monkeypatch.setattr(geography, "_read_column", read)
    message = "column 'state' has 3 rows and 'county' 2, so the file is damaged; restore it"
    with pytest.raises(GeographyError, match=message):
        read_crosswalk(path, LEVELS)


def test_a_crosswalk_beyond_memory_is_a_message(tmp_path, monkeypatch):
    def full(*arguments):
        raise MemoryError

    monkeypatch.setattr(geography.np, "lexsort", full)
    path = crosswalk(tmp_path, "state,county,block\n1,1,a\n")
    with pytest.raises(GeographyError, match="blocks.csv: does not fit in memory"):
        read_crosswalk(path, LEVELS)


def test_it_prints_how_many_units_it_has_and_no_geocode(tmp_path):
    rows = "".join(f"9{n:05},8{n // 10:04},{n // 1000}\n" for n in range(2000))
    geography = read_crosswalk(crosswalk(tmp_path, "block,county,state\n" + rows), LEVELS)
    assert repr(geography) == "<Geography: 2 × state, 200 × county, 2,000 × block>"
