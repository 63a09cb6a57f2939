"""Official tables line by line, against lists typed from the 2020 technical documentation."""

import tomllib
from hashlib import sha256
from importlib import resources
from itertools import product

import numpy as np
import pytest
from tests.conftest import TINY_PLAN

from countveil.errors import PlanError
from countveil.plan.attributes import Attribute, Recode
from countveil.plan.plans import Plan
from countveil.plan.presets import PRESETS, read_preset
from countveil.plan.table_layouts import MOST_LINES, TableLayout, layouts_of, table_named
from countveil.plan.workload import Schema
from countveil.publish.table_files import codebook_csv

NAMES = {
    "W": ("white", "White"),
    "B": ("black", "Black or African American"),
    "I": ("aian", "American Indian and Alaska Native"),
    "A": ("asian", "Asian"),
    "N": ("nhpi", "Native Hawaiian and Other Pacific Islander"),
    "O": ("other", "Some Other Race"),
}
# The lines below the total of P1, by the letters of their races; a number stands for a subtotal.
DOCUMENTED = """
1 W B I A N O
2+
2 WB WI WA WN WO BI BA BN BO IA IN IO AN AO NO
3 WBI WBA WBN WBO WIA WIN WIO WAN WAO WNO BIA BIN BIO BAN BAO BNO IAN IAO INO ANO
4 WBIA WBIN WBIO WBAN WBAO WBNO WIAN WIAO WINO WANO BIAN BIAO BINO BANO IANO
5 WBIAN WBIAO WBINO WBANO WIANO BIANO
6 WBIANO
"""
BY_RACE = DOCUMENTED.split()
SUBTOTALS = {
    "1": "Population of one race:",
    "2+": "Population of two or more races:",
    "2": "Population of two races:",
    "3": "Population of three races:",
    "4": "Population of four races:",
    "5": "Population of five races:",
    "6": "Population of six races:",
}


def race_label(line: str) -> str:
    if line in SUBTOTALS:
        return SUBTOTALS[line]
    label = "; ".join(NAMES[letter][1] for letter in line)
    return f"{label} alone" if len(line) == 1 else label


def of_race(line: str, race: str) -> bool:
    """Whether a category of CENRACE belongs to a line of BY_RACE."""
    races = set(race.split("+"))
    if line == "2+":
        return len(races) >= 2
    if line in SUBTOTALS:
        return len(races) == int(line)
    return races == {NAMES[letter][0] for letter in line}


# Every official table as (label, who is counted), a person being (HHGQ, VOTINGAGE, HISPANIC, CENRACE).
def by_race(among):
    return [
        (race_label(line), lambda p, line=line: among(p) and of_race(line, p[3]))
        for line in BY_RACE
    ]


def by_origin(among):
    return [
        ("Total:", among),
        ("Hispanic or Latino", lambda p: among(p) and p[2] == "Hispanic"),
        ("Not Hispanic or Latino:", lambda p: among(p) and p[2] == "not Hispanic"),
        *by_race(lambda p: among(p) and p[2] == "not Hispanic"),
    ]


def everyone(person):
    return True


def adult(person):
    return person[1] == "18 and over"


QUARTERS = read_preset("pl94-2020")["attributes"]["HHGQ"]
INSTITUTIONS, OTHERS = QUARTERS[1:5], QUARTERS[5:]
EXPECTED = {
    "P1": [("Total:", everyone), *by_race(everyone)],
    "P2": by_origin(everyone),
    "P3": [("Total:", adult), *by_race(adult)],
    "P4": by_origin(adult),
    "P5": [
        ("Total:", lambda p: p[0] != "household"),
        ("Institutionalized population:", lambda p: p[0] in INSTITUTIONS),
        ("Correctional facilities for adults", lambda p: p[0] == INSTITUTIONS[0]),
        ("Juvenile facilities", lambda p: p[0] == "juvenile facilities"),
        ("Nursing facilities/Skilled-nursing facilities", lambda p: p[0] == "nursing facilities"),
        ("Other institutional facilities", lambda p: p[0] == "other institutional"),
        ("Noninstitutionalized population:", lambda p: p[0] in OTHERS),
        ("College/University student housing", lambda p: p[0] == "college housing"),
        ("Military quarters", lambda p: p[0] == "military quarters"),
        ("Other noninstitutional facilities", lambda p: p[0] == "other noninstitutional"),
    ],
}
SIZES = {"P1": 71, "P2": 73, "P3": 71, "P4": 73, "P5": 10}


def preset(name: str, more: str = "") -> Plan:
    return Plan.parse(f'[release]\ntitle = "t"\npreset = "{name}"\n{more}')


def full_cells(table: TableLayout, number: int) -> set[int]:
    """Return the cells of the full histogram that a line sums."""
    return set(np.flatnonzero(np.isin(table.query.cell_of, table.variables[number].cells)).tolist())


def tiny(tables: str, more: str = "") -> Plan:
    return Plan.parse(f'{TINY_PLAN}{more}[postprocess]\nmethod = "top-down"\ntables = {tables}\n')


@pytest.mark.parametrize("name", SIZES)
def test_official_tables_have_the_official_lines(name):
    schema = preset("pl94-2020").schema
    table = table_named(schema, name)
    expected = EXPECTED[name]
    assert len(table.variables) == len(expected) == SIZES[name]
    assert [item.name for item in table.variables] == [
        f"P00{name[1]}{number:04d}" for number in range(1, SIZES[name] + 1)
    ]
    assert [item.label for item in table.variables] == [label for label, _ in expected]
    people = list(product(*(item.categories for item in schema.attributes)))
    for number, (_, counted) in enumerate(expected):
        cells = {cell for cell, person in enumerate(people) if counted(person)}
        assert full_cells(table, number) == cells, table.variables[number]


@pytest.mark.parametrize("name", [*SIZES, "H1"])
def test_every_line_is_the_sum_of_those_indented_below_it(name):
    table = table_named(preset("pl94-2020-housing" if name == "H1" else "pl94-2020").schema, name)
    lines = table.variables
    assert [item.indent for item in lines].count(0) == 1
    leaves = []
    for number, line in enumerate(lines):
        parts = []
        for below in lines[number + 1 :]:
            if below.indent <= line.indent:
                break
            if below.indent == line.indent + 1:
                parts += below.cells
        if parts:
            assert sorted(parts) == sorted(line.cells), line
        else:
            assert not line.label.endswith(":")
            leaves += line.cells
    assert sorted(leaves) == sorted(lines[0].cells), "each cell in one leaf"


def test_the_lines_of_one_race_in_any_combination_are_those_others_use():
    """The variables that include Black, as redistricting code in R lists them."""
    any_part = [4, 11, 16, 17, 18, 19, *range(27, 31), *range(37, 43), *range(48, 54)]
    any_part += [*range(58, 62), *range(64, 68), 69, 71]
    schema = preset("pl94-2020").schema
    for name, shift in (("P1", 0), ("P2", 2), ("P3", 0), ("P4", 2)):
        variables = table_named(schema, name).variables
        found = [n for n, item in enumerate(variables, 1) if "Black or African" in item.label]
        assert found == [number + shift for number in any_part]


def test_housing_units_are_occupied_or_vacant():
    plan = preset("pl94-2020-housing")
    (table,) = plan.tables
    assert (table.title, table.universe) == ("Occupancy Status", "Housing units")
    assert [(item.name, item.label, item.indent, item.cells) for item in table.variables] == [
        ("H0010001", "Total:", 0, (0, 1)),
        ("H0010002", "Occupied", 1, (0,)),
        ("H0010003", "Vacant", 1, (1,)),
    ]


def test_official_tables_need_the_categories_of_the_presets():
    plan = preset("pl94-2020")
    assert [table.name for table in plan.tables] == ["P1", "P2", "P3", "P4", "P5"]
    with pytest.raises(
        PlanError, match="needs OCCUPANCY .* of preset pl94-2020-housing, but .* is missing"
    ):
        table_named(plan.schema, "H1")
    with pytest.raises(
        PlanError, match="'P3' needs VOTINGAGE and CENRACE .* VOTINGAGE has different"
    ):
        table_named(preset("census-1940").schema, "P3")


def test_the_order_of_categories_is_the_plans_own_affair():
    races = read_preset("pl94-2020")["attributes"]["CENRACE"]
    backwards = Schema((Attribute("CENRACE", tuple(races[::-1])),))
    white = table_named(backwards, "P1").variables[2]
    assert (white.name, white.cells) == ("P0010003", (62,))


# Of the codebooks that countveil published before the layouts were data of the presets.
CODEBOOKS = {
    "pl94-2020": "1eb293f343f02754cfc185008c302002446e30276a7f4bd6938c5d118fa2bc6b",
    "pl94-2020-housing": "2d64dc9d7fa089bd7bed675115418e4c927452b534601b36766de56617cbd0fe",
}


@pytest.mark.parametrize("name", CODEBOOKS)
def test_codebooks_are_the_same_byte_for_byte(name):
    text = codebook_csv(preset(name).tables)
    assert sha256(text.encode()).hexdigest() == CODEBOOKS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_plan_whose_tables_it_can_fill(name):
    plan = preset(name)
    for layout in layouts_of(name, read_preset(name)):
        table = layout.resolve(plan.schema)
        assert all(line.cells for line in table.variables)
    assert "tables" not in plan.document


def test_every_file_in_the_folder_of_presets_is_one():
    folder = resources.files("countveil.plan.presets")
    files = {item.name for item in folder.iterdir() if item.name.endswith(".toml")}
    assert files == {f"{name}.toml" for name in PRESETS}


LABOUR = """
[attributes]
STATUS = ["employed", "seeking", "retired", "at school"]
SEX = ["f", "m"]
[tables.L1]
title = "Labour force"
universe = "Residents"
query = "STATUS"
stem = "L001"
lines = [
    [0, "Total:"],
    [1, "In the labour force:"],
    [2, "Employed", { STATUS = "employed" }],
    [2, "Seeking work", { STATUS = "seeking" }],
    [1, "Not in the labour force", { STATUS = ["retired", "at school"] }],
]
[tables.L2]
title = "Labour force by sex"
universe = "Residents who are not at school"
query = "SEX*STATUS"
stem = "L002"
only = { STATUS = ["employed", "seeking", "retired"] }
lines = [
    [0, "Total"],
    [1, "Women:", { SEX = "f" }, "L1"],
    [1, "Men:", { SEX = "m" }, "L1"],
]
"""


def test_a_preset_lays_out_its_tables_in_its_file():
    document = tomllib.loads(LABOUR)
    schema = Schema(tuple(Attribute(k, tuple(v)) for k, v in document["attributes"].items()))
    one, two = (layout.resolve(schema) for layout in layouts_of("labour", document))
    assert [(item.name, item.cells) for item in one.variables] == [
        ("L0010001", (0, 1, 2, 3)),
        ("L0010002", (0, 1)),
        ("L0010003", (0,)),
        ("L0010004", (1,)),
        ("L0010005", (2, 3)),
    ]
    assert [(item.indent, item.label, item.cells) for item in two.variables] == [
        (0, "Total", (0, 1, 2, 4, 5, 6)),
        (1, "Women:", (0, 1, 2)),
        (2, "In the labour force:", (0, 1)),
        (3, "Employed", (0,)),
        (3, "Seeking work", (1,)),
        (2, "Not in the labour force", (2,)),
        (1, "Men:", (4, 5, 6)),
        (2, "In the labour force:", (4, 5)),
        (3, "Employed", (4,)),
        (3, "Seeking work", (5,)),
        (2, "Not in the labour force", (6,)),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('query = "STATUS"', 'query = "AGE"'),
            "tables.L1.query: unknown attribute 'AGE'; choose from",
        ),
        (
            ('"seeking" }', '"idle" }'),
            "tables.L1: line 4: unknown category 'idle' of STATUS; choose",
        ),
        (
            ('{ SEX = "f" }', '{ AGE = "f" }'),
            "L2: line 2: attribute 'AGE' is not in its query; choose",
        ),
        (
            ('[1, "Women', '[2, "Women'),
            "tables.L2: line 2: indent 2 is not allowed; it must be from 0 to 1",
        ),
        (
            ('"m" }, "L1"', '"m" }, "L2"'),
            "tables.L2: line 3: unknown table 'L2' before L2; choose from L1",
        ),
        (
            ('[0, "Total"]', '["Total"]'),
            "tables.L2: line 1: .* is not allowed; write .indent, label",
        ),
        (
            ('stem = "L001"', "stem = 1"),
            "preset labour: tables.L1.stem: Input should be a valid str",
        ),
        (('title = "Labour force"\n', ""), "preset labour: tables.L1.title: Field required"),
    ],
)
def test_a_wrong_layout_is_named(change, message):
    assert change[0] in LABOUR
    with pytest.raises(PlanError, match=message):
        layouts_of("labour", tomllib.loads(LABOUR.replace(*change)))


def test_a_plan_cannot_have_layouts_of_its_own():
    with pytest.raises(PlanError, match="unknown key 'tables'"):
        Plan.parse(TINY_PLAN + LABOUR[LABOUR.index("[tables.L1]") :])


def test_a_query_is_a_table_with_a_line_per_cell():
    schema = preset("pl94-2020").schema
    table = table_named(schema, " VOTINGAGE *HISPANIC")
    assert (table.name, table.title) == ("VOTINGAGE*HISPANIC", "VOTINGAGE by HISPANIC")
    assert [(item.name, item.label) for item in table.variables] == [
        ("VOTINGAGE_HISPANIC_0001", "under 18; not Hispanic"),
        ("VOTINGAGE_HISPANIC_0002", "under 18; Hispanic"),
        ("VOTINGAGE_HISPANIC_0003", "18 and over; not Hispanic"),
        ("VOTINGAGE_HISPANIC_0004", "18 and over; Hispanic"),
    ]
    (total,) = table_named(schema, "TOTAL").variables
    assert (total.name, total.label, total.cells) == ("TOTAL_0001", "Total", (0,))


def test_a_query_that_leaves_people_out_says_so():
    age = Attribute("AGE", ("young", "old", "unknown"))
    schema = Schema((age,), (Recode("KNOWN", "AGE", (("known", ("young", "old")),), ("unknown",)),))
    assert table_named(schema, "KNOWN").universe == "Those in a category of KNOWN"
    assert full_cells(table_named(schema, "KNOWN"), 0) == {0, 1}
    assert table_named(schema, "AGE").universe == "All that is counted"


def test_an_attribute_may_have_the_name_of_an_official_table():
    schema = Schema((Attribute("P1", ("a", "b")),))
    assert [item.name for item in table_named(schema, "P1").variables] == ["P1_0001", "P1_0002"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (
            '["P9"]',
            "postprocess.tables: unknown table 'P9'; choose from P1, .*H1, or .* TOTAL, AGE, SEX",
        ),
        (
            '["P1"]',
            "postprocess.tables: table 'P1' needs CENRACE .*pl94-2020, but CENRACE is mis",
        ),
        (
            '["AGE*RACE"]',
            r"postprocess.tables: query 'AGE\*RACE': unknown attribute or recode 'RACE'",
        ),
        ('[""]', "postprocess.tables: unknown table ''"),
        ('["AGE*SEX", "AGE * SEX"]', r"postprocess.tables: 'AGE\*SEX' is listed 2 times; list it"),
    ],
)
def test_a_plan_with_a_wrong_table_is_refused_when_read(tables, message):
    with pytest.raises(PlanError, match=f"^plan: {message}"):
        tiny(tables)


def test_tables_are_resolved_when_the_plan_is_read():
    assert [table.name for table in tiny('["AGE", "AGE*SEX"]').tables] == ["AGE", "AGE*SEX"]
    assert Plan.parse(TINY_PLAN).tables == ()


def test_a_table_too_wide_for_a_file_is_refused():
    many = tuple(f"c{number}" for number in range(MOST_LINES + 1))
    with pytest.raises(
        PlanError, match="has 10,001 cells; the limit for tables is 10,000 columns: name"
    ):
        table_named(Schema((Attribute("MANY", many),)), "MANY")


@pytest.mark.parametrize("name", ["geocode", "Estimate"])
def test_an_attribute_cannot_take_the_name_of_a_published_column(name):
    text = TINY_PLAN.replace("AGE", name)
    Plan.parse(text)
    with pytest.raises(
        PlanError, match=f"attributes.{name}: a column of the estimates has the same name"
    ):
        Plan.parse(text + '[postprocess]\nmethod = "top-down"\n')
