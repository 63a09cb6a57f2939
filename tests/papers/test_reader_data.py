"""Items with the reader's own files: made-up ones in the right layout."""

import os

import numpy as np
import pytest
from typer.testing import CliRunner

from countveil.cli.command_line import app
from countveil.errors import InputError
from countveil.papers import catalogue
from countveil.papers.liu_zhao import example_tables
from countveil.papers.petti_flaxman.loss_items import synthetic_state
from countveil.papers.seeman.public_items import read_counties

ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, {hours}, {country}, {income}\n"
)


def adult_rows(*rows):
    return "".join(ADULT.format(hours=h, country=c, income=i) for h, c, i in rows) + "\n"


@pytest.fixture
def adult(tmp_path):
    us = "United-States"
    rows = [
        (40, us, "<=50K"),
        (31, us, ">50K"),
        (40, us, "<=50K"),
        (41, us, "<=50K"),
        (30, us, ">50K"),
    ]
    rows += [(40, "Cuba", ">50K"), (40, "?", ">50K")]
    (tmp_path / "adult.data").write_text(adult_rows(*rows))
    return tmp_path


def test_adult_is_grouped_with_the_upper_end(adult):
    """31 to 40 hours are one cell, of both incomes; 41 and 30 are cells of their own."""
    table = example_tables.adult(adult)
    assert sorted(map(sorted, table.counts.tolist())) == [[0, 1], [0, 1], [1, 2]]
    assert table.homogeneous.sum() == 2


def test_adult_is_shown_where_it_is(adult):
    without = catalogue.reproduce("004", "figure-2")
    result = catalogue.reproduce("004", "figure-2", data=adult, quick=True)
    assert without.needs is not None
    assert result.needs is None
    assert len(result.charts) == len(without.charts) + 1
    values = {value.id: value for value in result.values}
    assert values["004.adult.people"].ours == 5
    assert values["004.adult.cells"].ours == 3
    assert "identifiers" in values["004.adult.homogeneous"].erratum
    for name in ("figure-3", "figure-s1"):
        result = catalogue.reproduce("004", name, data=adult, quick=True)
        assert result.needs is None
        assert any("Adult" in chart.title for chart in result.charts)


def test_adult_of_another_layout_is_refused(tmp_path):
    (tmp_path / "adult.data").write_text("a,b\n")
    with pytest.raises(InputError, match="row 1 has 2 fields instead of 15"):
        catalogue.reproduce("004", "figure-2", data=tmp_path)
    (tmp_path / "adult.data").write_text(adult_rows((40, "Cuba", ">50K")))
    with pytest.raises(InputError, match="no complete row of the United States"):
        catalogue.reproduce("004", "figure-2", data=tmp_path)


def test_bankruptcy_records_give_marginals(tmp_path):
    rng = np.random.default_rng(3)
    rows = [",".join([*rng.choice(list("PAN"), 6), "NB"]) for _ in range(60)]
    (tmp_path / "Qualitative_Bankruptcy.data.txt").write_text("\n".join(rows) + "\n")
    assert catalogue.reproduce("004", "figure-4").charts == ()
    result = catalogue.reproduce("004", "figure-4", data=tmp_path, quick=True)
    assert result.needs is None
    distance = {value.id: value.ours for value in result.values}
    for ways in (1, 2, 3):  # less noise, smaller distances
        assert distance[f"004.figure4.10.{ways}"] < distance[f"004.figure4.0.1.{ways}"]


def test_shipped_cells_are_those_of_the_experiments():
    bank, subset = example_tables.bankruptcy(), example_tables.subset()
    assert (bank.counts.shape, bank.sizes.sum(), bank.homogeneous.all()) == ((103, 2), 250, True)
    assert (subset.counts.shape, subset.sizes.sum(), subset.homogeneous.sum()) == ((78, 3), 250, 54)
    assert subset.sizes[subset.homogeneous].sum() == 142


def test_counties_of_a_folder(tmp_path):
    (tmp_path / "pa_county_population_jhu.csv").write_text(
        "fips,county,population\n2,B,5000\n1,A,90000\n"
    )
    rows = ["1,2021-01,9,9,A", "2,2021-01,7,7,B", "1,2021-02,30,2,A", "2,2021-02,5,0,B"]
    rows += ["1,2021-03,40,3,A", "2,2021-03,-1,1,B"]
    (tmp_path / "pa_county_monthly_jhu.csv").write_text(
        "fips,month,new_cases,new_deaths,county\n" + "\n".join(rows) + "\n"
    )
    result = read_counties(tmp_path)
    assert result.names == ("A", "B")
    assert result.before.tolist() == [30, 5]
    assert result.counts.tolist() == [
        [40, 3],
        [0, 0],
    ]  # a correction is 0, and deaths at most cases
    assert result.total == 40
    item = catalogue.reproduce("003", "figure-3", data=tmp_path, quick=True)
    assert item.needs is None
    assert "2 counties, 2021-03" in item.note


def test_without_a_file_counties_are_made_up_and_said_to_be(tmp_path):
    item = catalogue.reproduce("003", "figure-3", data=tmp_path, quick=True)
    assert "synthetic" in item.note
    assert "Department of Health" in item.needs


def test_small_counties_are_contracted_most():
    result = {v.id: v.ours for v in catalogue.reproduce("003", "figure-3").values}
    for epsilon in ("0.01", "1"):
        for effect in ("case zeros", "death zeros"):
            small, every, large = (
                result[f"003.figure3.{epsilon}.{size}.{effect}"]
                for size in ("smallest", "all", "largest")
            )
            assert small >= every >= large


def test_a_prior_steadies_small_counties():
    """The claim of Figures 1 and 2: at a small epsilon, what is public beats projection."""
    result = {v.id: v.ours for v in catalogue.reproduce("003", "figure-2", quick=True).values}
    assert result["003.figure2.0.01.prior.95 %"] < result["003.figure2.0.01.projection.95 %"] / 5
    for method in ("projection", "prior"):
        assert result[f"003.figure2.1.{method}.median"] < 0.05


def test_the_synthetic_state_is_like_washington():
    state = synthetic_state()
    assert state.strata.sum() == 1_736_191
    assert state.strata.shape[1] == 108
    assert len(set(state.county)) == 39
    assert len(state.totals) == len(state.county)


GOOD = {
    "adult.data": adult_rows(*[(40, "United-States", "<=50K"), (31, "United-States", ">50K")] * 9),
    "Qualitative_Bankruptcy.data.txt": "P,A,N,P,A,N,NB\nA,A,P,P,P,N,B\nN,N,A,N,P,N,B\n" * 9,
    "pa_county_population_jhu.csv": "fips,county,population\n2,B,5000\n1,A,90000\n",
    "pa_county_monthly_jhu.csv": "fips,month,new_cases,new_deaths,county\n"
    "1,2021-01,30,2,A\n2,2021-01,5,0,B\n1,2021-02,40,3,A\n2,2021-02,9,1,B\n",
}
ITEM_OF = {
    "adult.data": ("004", "figure-2"),
    "Qualitative_Bankruptcy.data.txt": ("004", "figure-4"),
    "pa_county_population_jhu.csv": ("003", "figure-3"),
    "pa_county_monthly_jhu.csv": ("003", "figure-3"),
}
ZEROS = ("a NUL", "words for numbers", "huge numbers", "fractions", "negative numbers")
DAMAGE = {
    "empty": lambda text: b"",
    "blank lines": lambda text: b"\n\n",
    "the first line": lambda text: text.split("\n")[0].encode(),
    "cut": lambda text: text.encode()[: len(text) // 3 + 2],
    "other text": lambda text: b"\xff\xfe\x00\x81 not this file",
    "a NUL": lambda text: text.replace("0", "\0").encode(),
    "a Parquet file": lambda text: b"PAR1\x15\x04\x15\xf0\x00PAR1",
    "words for numbers": lambda text: text.replace("0", "x").encode(),
    "huge numbers": lambda text: text.replace("0", "0" * 400 + "9" * 400).encode(),
    "fractions": lambda text: text.replace("0", "0.5").encode(),
    "negative numbers": lambda text: text.replace("9", "-9").encode(),
    "an open quote": lambda text: ('"' + text).encode(),
    "a huge field": lambda text: (text + "x" * 200_000).encode(),
    "other columns": lambda text: text.replace("fips", "code").replace(",", ";").encode(),
}


STILL_READ = {
    *(("Qualitative_Bankruptcy.data.txt", damage) for damage in ZEROS),  # it has no numbers
    ("pa_county_monthly_jhu.csv", "negative numbers"),  # corrections
}


def reproduce_with(folder, name) -> Exception | None:
    """Run `countveil reproduce --data` in this process; return its error."""
    ran = CliRunner().invoke(
        app, ["reproduce", *ITEM_OF[name], "--data", str(folder), "--quick", "--quiet"]
    )
    return ran.exception


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", GOOD)
def test_a_damaged_or_foreign_file_gets_a_message(tmp_path, name, damage):
    for other, text in GOOD.items():
        (tmp_path / other).write_text(text)
    (tmp_path / name).write_bytes(DAMAGE[damage](GOOD[name]))
    error = reproduce_with(tmp_path, name)
    if (name, damage) in STILL_READ:
        assert error is None
        return
    assert isinstance(error, InputError), error
    assert name in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("name", GOOD)
def test_something_else_than_a_file_gets_a_message(tmp_path, name):
    for other, text in GOOD.items():
        (tmp_path / other).write_text(text)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)  # reading it would wait forever
    error = reproduce_with(tmp_path, name)
    assert isinstance(error, InputError)
    assert "not a plain file" in str(error)


def test_months_that_lack_a_county_are_refused(tmp_path):
    for other, text in GOOD.items():
        (tmp_path / other).write_text(text)
    monthly = tmp_path / "pa_county_monthly_jhu.csv"
    monthly.write_text(GOOD[monthly.name].replace("2,2021-01,5,0,B\n", ""))
    with pytest.raises(InputError, match="no row of 2021-01 for county 2"):
        read_counties(tmp_path)
