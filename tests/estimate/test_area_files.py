"""Files of areas as people write them: delimiters, marks, blanks, names that look like nothing."""

import pytest

from countveil.errors import GeographyError, InputError
from countveil.estimate.area_files import read_areas
from countveil.plan.geography import read_crosswalk

PLACES = "state,county,block\n01,01001,0001\n01,01001,0002\n01,01002,0003\n02,02001,0004\n"


@pytest.fixture
def geography(tmp_path):
    (tmp_path / "places.csv").write_text(PLACES)
    return read_crosswalk(tmp_path / "places.csv", ("state", "county", "block"))


@pytest.fixture
def read(geography, tmp_path):
    def reading(text, **options):
        path = tmp_path / "areas.csv"
        path.write_bytes(text.encode())
        found = read_areas(path, geography, **options)
        assert len(found) == len(found.units)
        return found.level, {name: codes.to_pylist() for name, codes in found.units.items()}

    return reading


def test_areas_come_in_the_order_of_the_file_and_may_overlap(read):
    assert read("area,block\nsouth,0003\nnorth,0001\nsouth,0001\nnorth,0002\n") == (
        "block",
        {"south": ["0003", "0001"], "north": ["0001", "0002"]},
    )


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffarea,block\r\nn,0001\r\n\r\nn,0002\r\n",
        "block;area\n0001;n\n0002;n\n",
        "area\tname\tblock\nn\tNorth\t0001\nn\tNorth\t0002\n",
        '"area"|"block"\n"n"|"0001"\n"n"|"0002"',
        "area,geocode\nn,0001\nn,0002\n",
    ],
    ids=["windows", "semicolons", "tabs and another column", "bars and quotes", "geocode"],
)
def test_files_of_other_programs_are_read(read, text):
    assert read(text) == ("block", {"n": ["0001", "0002"]})


def test_names_that_look_like_nothing_are_names(read):
    found = read("area,block\nNA,0001\nnull,0002\n1,0003\nnan,0004\n")[1]
    assert list(found) == ["NA", "null", "1", "nan"]


def test_the_level_is_that_of_the_column_or_the_one_named(read):
    assert read("area,county\nn,01001\n") == ("county", {"n": ["01001"]})
    both = "area,county,block\nn,01001,0001\n"
    assert read(both, level="block") == ("block", {"n": ["0001"]})
    assert read(both, level="county") == ("county", {"n": ["01001"]})
    with pytest.raises(InputError, match="the units could be in column county or block"):
        read(both)
    coded = "area,county,geocode\nn,01001,0001\n"
    assert read(coded, level="block") == ("block", {"n": ["0001"]})
    with pytest.raises(InputError, match="the units could be in column county or geocode"):
        read(coded)
    with pytest.raises(InputError, match="it needs 'block' or 'geocode'"):
        read("area,county\nn,01001\n", level="block")
    with pytest.raises(
        GeographyError, match="unknown level 'blok'; choose from state, county, block"
    ):
        read(both, level="blok")


def test_the_first_repeated_unit_that_a_reader_meets_is_named(read):
    text = "area,block\nz,0003\na,0001\nz,0003\na,0002\na,0001\nz,0003\n"
    with pytest.raises(InputError, match="rows 1, 3: block 0003 is listed twice in area 'z'"):
        read(text)


def test_rows_in_error_are_named_and_counted(read):
    with pytest.raises(InputError, match="rows 1, 2, 3, 4, 5 and 2 more: no block '9'"):
        read("area,block\n" + "n,9\n" * 7)
    with pytest.raises(InputError, match="rows 2, 4: 3 fields, and the header has 2"):
        read("area,block\nn,0001\nn,0002,x\nn,0003\nn,0004,x\n")
    with pytest.raises(InputError, match="row 2: 1 fields, and the header has 2"):
        read("area,block\nn,0001\nn\n")
