"""Tables from files, frames and counts; what cannot be one, and what the message says."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from countveil import Laplace
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Table, classify
from countveil.errors import InputError

# Table 1 of 004, with one more attribute.
PEOPLE = {
    "race": ["black"] * 4 + ["Hispanic"] * 4 + ["white"] * 4,
    "age": ["<40"] * 4 + ["40-50"] * 4 + ["50+"] * 4,
    "condition": ["heart"] * 2 + ["cancer"] * 3 + ["diabetes"] + ["heart"] * 2 + ["diabetes"] * 4,
    "smokes": ["yes"] * 4 + ["no", "yes"] * 2 + ["no"] * 4,
    "number": list(range(12)),
}
BY = {"identifiers": ["race", "age"], "sensitive": "condition"}


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "people.csv"
    pd.DataFrame(PEOPLE).to_csv(path, index=False)
    return path


def test_records_come_from_any_source(csv, tmp_path):
    arrow = pa.table(PEOPLE)
    pq.write_table(arrow, tmp_path / "people.parquet")
    sources = [
        csv,
        str(csv),
        tmp_path / "people.parquet",
        arrow,
        pd.DataFrame(PEOPLE),
        pd.DataFrame(PEOPLE).set_index("number").astype("category"),
        pl.DataFrame(PEOPLE),
    ]
    for source in sources:
        table = Table.from_records(source, **BY)
        assert table.labels == ("cancer", "diabetes", "heart")
        assert table.counts.tolist() == [[1, 1, 2], [2, 0, 2], [0, 4, 0]]
        assert table.cells.to_pydict() == {
            "race": ["Hispanic", "black", "white"],
            "age": ["40-50", "<40", "50+"],
        }
        assert table.identifiers == ("race", "age")
        assert table.possible == 9
        assert table.sizes.tolist() == [4, 4, 4]
        assert table.homogeneous.tolist() == [False, False, True]


def test_call_site(csv):
    t = Table.from_records(csv, identifiers=["race", "age"], sensitive="condition")
    risk = homogeneity.local_risk(t, mechanism=Laplace(epsilon=1), weighted=False, method="exact")
    assert 0 < risk.value < 1
    assert risk.audience == "internal"
    assert "condition by race, age" in repr(t)
    assert "4" not in repr(t)


def test_counts_are_read_only_and_a_copy():
    given = np.array([[1, 2], [0, 3]])
    table = Table.from_counts(given)
    given[0, 0] = 9
    assert table.counts.tolist() == [[1, 2], [0, 3]]
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0, 0] = 5


def test_several_attributes_share_their_cells(csv):
    condition, smokes = Table.from_records(
        csv, identifiers=["race", "age"], sensitive=["condition", "smokes"]
    )
    assert condition.cells.equals(smokes.cells)
    assert smokes.counts.tolist() == [[2, 2], [0, 4], [4, 0]]
    assert classify(condition, smokes) == ["heterogeneous", "partial", "homogeneous"]
    assert classify(smokes) == ["heterogeneous", "homogeneous", "homogeneous"]
    (alone,) = Table.from_records(csv, identifiers=["age"], sensitive=["smokes"])
    with pytest.raises(InputError, match="different cells; make both in one call"):
        classify(condition, alone)
    with pytest.raises(InputError, match="the list is empty; give one per sensitive attribute"):
        classify()


def test_counts_come_from_arrays_and_frames():
    frame = {"place": ["a", "b", "c"], "yes": [1, 0, 3], "no": [2, 0, 0]}
    for given in (pd.DataFrame(frame), pl.DataFrame(frame), pa.table(frame)):
        table = Table.from_counts(given, identifiers=["place"], sensitive="smokes")
        assert table.labels == ("yes", "no")
        assert table.counts.tolist() == [[1, 2], [3, 0]]
        assert table.cells["place"].to_pylist() == ["a", "c"]
        assert table.possible == 3
    numbered = Table.from_counts(pd.DataFrame([[1, 2], [3, 0]], index=["a", "b"]))
    assert numbered.labels == ("0", "1")
    assert numbered.counts.tolist() == [[1, 2], [3, 0]]
    chosen = Table.from_counts(pd.DataFrame(frame), labels=["no", "yes"])
    assert chosen.counts.tolist() == [[2, 1], [0, 3]]
    array = Table.from_counts(np.array([[1.0, 0.0], [0.0, 0.0]]), labels=["x", "y"], possible=10)
    assert (array.labels, array.possible, len(array.counts)) == (("x", "y"), 10, 1)


def test_names_with_quotes_and_odd_files(tmp_path):
    odd = {'a "b"': ["x", "y"], "c'd": ["1", "2"]}
    path = tmp_path / "odd [1]*.csv"
    pd.DataFrame(odd).to_csv(path, index=False, sep=";")
    table = Table.from_records(path, identifiers=['a "b"'], sensitive="c'd")
    assert table.counts.tolist() == [[1, 0], [0, 1]]


def test_leading_zeros_and_numbers_are_kept(tmp_path):
    path = tmp_path / "zip.csv"
    path.write_text("zip,y\n01234,a\n1234,b\n")
    assert len(Table.from_records(path, identifiers=["zip"], sensitive="y").counts) == 2
    numbers = pd.DataFrame({"zip": [3, 1, 3], "y": [10, 9, 9]})
    table = Table.from_records(numbers, identifiers=["zip"], sensitive="y")
    assert table.cells["zip"].to_pylist() == [1, 3]
    assert table.labels == ("10", "9")


def frame(**columns):
    return pd.DataFrame({"A": ["x", "y"], "B": ["1", "2"], "Y": ["u", "v"], **columns})


@pytest.mark.parametrize(
    ("records", "given", "message"),
    [
        (
            frame(),
            {"identifiers": ["A", "Y"]},
            "'Y' is also an identifier, which the intruder knows",
        ),
        (frame(), {"identifiers": ["A", "A"]}, "'A' is named twice; name it once"),
        (frame(), {"identifiers": []}, "one of them is empty; name at least one column of each"),
        (frame(), {"identifiers": ["Q"]}, r"records: no column 'Q'; its columns are A, B, Y; name"),
        (frame(), {"sensitive": "Z"}, "no column 'Z'"),
        (pd.DataFrame([[1, 2]]), {}, "no column 'A'; its columns are 0, 1"),
        (pd.concat([frame(), frame()], axis=1), {}, "two columns have the same name; rename one"),
        (frame(Y=["u", "u"]), {}, "Y: got 1 label, and an attack needs two or more"),
        (frame().head(0), {}, "records: has no rows; give one row per person"),
        (frame(A=["x", None]), {}, "column 'A' has 1 missing values; fill"),
        (frame(Y=[1.0, float("nan")]), {}, "column 'Y' has 1 missing values"),
        (pl.DataFrame({"A": [1.0, float("nan")], "Y": ["u", "v"]}), {}, "'A' has 1 missing"),
        ([1, 2], {}, "got a list; give the path of a CSV or Parquet file, or a pandas"),
    ],
)
def test_bad_records_are_named(records, given, message):
    with pytest.raises(InputError, match=message):
        Table.from_records(records, **{"identifiers": ["A"], "sensitive": "Y", **given})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "no such file; name a CSV or Parquet file"),
        ("empty.csv", b"", "line 1 is empty; write the column names there"),
        ("head.csv", b"A,Y\n", "has no rows"),
        ("gap.csv", b"A,Y\nx,u\n,v\n", "column 'A' has 1 missing values"),
        ("short.csv", b"A,Y\nx,u\ny\n", "cannot be read at line 3; check the file"),
        ("other.csv", b"A,B\nx,u\n", "no column 'Y'; name one of its columns"),
        ("bad.parquet", b"PAR1 not so", "cannot be read; check the file"),
        ("latin.csv", b"A,\xe9\nx,u\n", "not UTF-8"),
    ],
)
def test_bad_files_are_named_without_their_values(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        Table.from_records(path, identifiers=["A"], sensitive="Y")
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(InputError, match="is a folder"):
        Table.from_records(tmp_path, identifiers=["A"], sensitive="Y")


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[1, -1]], "negative or not whole; give exact counts, 0 or more"),
        ([[1, 0.5]], "not whole"),
        ([[1, float("nan")]], "some are missing"),
        ([["a", "b"]], "some are not numbers"),
        ([[0, 0], [0, 0]], "all are 0; give at least one person"),
        (np.zeros((0, 2)), "all are 0"),
        ([[3], [4]], "got 1 label"),
        ([1, 2], "got an array of 1 dimensions; give a row per cell and a column per label"),
        (pd.DataFrame({"y": [1.5], "n": [1]}), "not whole"),
        (pd.DataFrame({"y": [None], "n": [1]}), "counts: "),
    ],
)
def test_bad_counts_are_named(counts, message):
    with pytest.raises(InputError, match=message):
        Table.from_counts(counts)


def test_cells_must_be_clear():
    twice = pd.DataFrame({"place": ["a", "a"], "y": [1, 2], "n": [1, 2]})
    with pytest.raises(InputError, match="a cell occurs twice; add its rows up"):
        Table.from_counts(twice, identifiers=["place"])
    missing = pd.DataFrame({"place": ["a", None], "y": [1, 2], "n": [1, 2]})
    with pytest.raises(InputError, match="'place' has missing values"):
        Table.from_counts(missing, identifiers=["place"])
    with pytest.raises(InputError, match="3 labels; give a row per cell"):
        Table.from_counts([[1, 2]], labels=["a", "b", "c"])
