"""A plan is bounded before memory is taken for it: its limits are stated, and plans at them load."""

import itertools
import json
import subprocess
import sys
import tomllib
import tracemalloc

import numpy as np
import pytest
from tests.conftest import TINY_PLAN

from countveil import Release, Secure, pipeline
from countveil.base import storage
from countveil.errors import PlanError, VerificationError
from countveil.measure import manifest
from countveil.plan import one_table_plan, passes, plan_file, public_facts, workload
from countveil.plan.attributes import Attribute, Recode
from countveil.plan.passes import cells_within, coarsens
from countveil.plan.plans import Plan
from countveil.plan.workload import Schema

_MEGABYTE = 1 << 20


def quoted(names) -> str:
    return json.dumps(list(names))


def large_plan(queries: int, zeros: int = 0, size: int = 368) -> str:
    """Return a plan of size³ cells, with so many recodes that each are part of a query."""
    categories = [f"c{number}" for number in range(size)]
    lines = [
        '[release]\ntitle = "Large"\nunit = "person"\nneighbors = "change-one"',
        '[geography]\nlevels = ["area"]\n[attributes]',
        *(f"{name} = {quoted(categories)}" for name in "ABC"),
    ]
    for number in range(queries):
        lines.append(f'[recodes.R{number}]\nof = "A"\ngroups = {{ all = {quoted(categories)} }}')
    lines.append('[budget]\nrho = "1"\n[budget.levels]\narea = "1"\n[budget.queries.area]')
    lines += [f'"R{number}*B*C" = "1/{queries}"' for number in range(queries)]
    for number in range(zeros):
        cells = f'{{ A = ["c{number}"] }}'
        lines.append(f'[[structural_zeros]]\nreason = "none"\ncells = {cells}')
    return "\n".join(lines)


def run_with_little_memory(folder, *words: str) -> subprocess.CompletedProcess:
    """Run the command line where no more than 3 GB of addresses may be taken."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
        "from countveil.cli import main; main()"
    )
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_small_file_that_asks_for_gigabytes_is_refused_with_the_limit(tmp_path):
    (tmp_path / "plan.toml").write_text(large_plan(60))
    ran = run_with_little_memory(tmp_path, "price", "plan.toml")
    assert ran.returncode == 2, ran.stderr
    assert "names 60 queries of a histogram with 49,836,032 cells" in ran.stderr
    assert "the limit is 2,000,000,000: remove queries, or merge categories" in ran.stderr


def test_so_is_one_in_the_manifest_of_a_stranger(tiny):
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Secure())
    path = tiny.parent / "out" / "manifest.json"
    document = json.loads(path.read_text())
    document["plan"] = tomllib.loads(large_plan(60))
    path.write_text(json.dumps(document))
    ran = run_with_little_memory(tiny.parent, "verify", "out")
    assert ran.returncode == 2, ran.stderr
    assert "its plan is not valid" in ran.stderr
    assert "the limit is 2,000,000,000" in ran.stderr


@pytest.mark.parametrize(("zeros", "megabytes"), [(0, 10), (300, 80)])
def test_a_plan_at_the_limit_loads_in_megabytes(zeros, megabytes):
    text = large_plan(40, zeros)
    tracemalloc.start()
    plan = Plan.parse(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.schema.cells == 368**3
    assert peak < megabytes * _MEGABYTE
    query = plan.at("area")[7].query
    assert query.cells == 368**2
    assert query.cells_at(np.array([0, 368**2 + 5, 368**3 - 1])).tolist() == [0, 5, 368**2 - 1]
    assert plan.structural_zeros.cells_left == (368 - zeros) * 368**2


def of_pairs(size: int, count: int) -> str:
    """Return a plan of attributes of one size, with a query of each two neighbours and of all."""
    names = [f"A{number}" for number in range(count)]
    queries = [*(f"{one}*{other}" for one, other in itertools.pairwise(names)), "*".join(names)]
    lines = [
        '[release]\ntitle = "Pairs"\nunit = "person"\nneighbors = "change-one"',
        '[geography]\nlevels = ["area"]\n[attributes]',
        *(f"{name} = {quoted(f'c{number}' for number in range(size))}" for name in names),
        '[budget]\nrho = "1"\n[budget.levels]\narea = "1"\n[budget.queries.area]',
        *(f'"{name}" = "1/{len(queries)}"' for name in queries),
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [large_plan(40), of_pairs(2, 25), of_pairs(368, 3)],
    ids=["recodes", "25 attributes", "large attributes"],
)
def test_a_plan_at_the_limit_is_priced_and_compared_in_little_memory(tmp_path, text):
    (tmp_path / "plan.toml").write_text(text)
    (tmp_path / "other.toml").write_text(text.replace('rho = "1"', 'rho = "1/2"'))
    for words in (["price", "plan.toml"], ["compare", "plan.toml", "other.toml"]):
        ran = run_with_little_memory(tmp_path, *words)
        assert ran.returncode == 0, ran.stderr
        assert not ran.stderr


def test_recodes_that_tell_everyone_apart_are_refused_with_the_limit(tmp_path):
    """Each recode isolates one category: every pair of cells is a kind of its own."""
    recodes = "".join(
        f'[recodes.{name}{number}]\nof = "{name}"\n'
        f'groups = {{ one = ["c{number}"] }}\n'
        f"omit = {quoted(f'c{other}' for other in range(200) if other != number)}\n"
        for name in "ABC"
        for number in range(200)
    )
    text = large_plan(1, size=200).replace("[budget]\n", recodes + "[budget]\n", 1)
    (tmp_path / "plan.toml").write_text(text)
    ran = run_with_little_memory(tmp_path, "price", "plan.toml")
    assert ran.returncode == 2, ran.stderr
    assert "kinds of people that an intruder could look for; the limit is 1,000,000" in ran.stderr


SECTION = {
    "values": (
        f"[attributes]\nLONG = {quoted(map(str, range(500_001)))}\n",
        "has more than 500,000 values, the limit; merge categories",
    ),
    "recodes": (
        "".join(f'[recodes.R{n}]\nof = "AGE"\ngroups = {{}}\n' for n in range(10_001)),
        "recodes: has 10,001 entries; the limit is 10,000",
    ),
    "tables": (
        f"[postprocess]\ntables = {quoted(f'T{n}' for n in range(1001))}\n",
        "at most 1000 items",
    ),
    "a label": (
        f'[recodes.R]\nof = "AGE"\ngroups = {{ {"x" * 501} = ["young", "old"] }}\n',
        "the limit for labels is 500",
    ),
    "mistakes": (
        "".join(f'[recodes.R{n}]\nof = "AGE"\n' for n in range(50)),
        "there are more mistakes; fix these first",
    ),
    "zeros": (
        '[[structural_zeros]]\nreason = "x"\ncells = { AGE = ["young", "young", "old"] }\n',
        "they exclude every cell",
    ),
}


@pytest.mark.parametrize("what", SECTION)
def test_parts_of_a_plan_have_limits(what):
    text, message = SECTION[what]
    with pytest.raises(PlanError, match=message):
        Plan.parse(
            TINY_PLAN.replace("[attributes]\n", text) if "[attri" in text else text + TINY_PLAN
        )


def test_structural_zeros_are_marked_in_a_moment_or_refused():
    cells = f"{{ B = {quoted(f'c{number}' for number in range(367))} }}"
    zeros = f'\n[[structural_zeros]]\nreason = "x"\ncells = {cells}' * 5
    with pytest.raises(PlanError, match="name more than 200,000,000 cells in total"):
        Plan.parse(large_plan(2) + zeros)


def test_tables_have_a_limit_together():
    shape = TINY_PLAN.replace('SEX = ["f", "m", "x"]', f"SEX = {quoted(map(str, range(4000)))}")
    names = [f"R{number}" for number in range(26)]
    groups = f"{{ {', '.join(f'g{n} = [{json.dumps(str(n))}]' for n in range(4000))} }}"
    recodes = "".join(f'[recodes.{name}]\nof = "SEX"\ngroups = {groups}\n' for name in names)
    with pytest.raises(PlanError, match="the tables have more than 100,000 columns"):
        Plan.parse(shape + recodes + f"[postprocess]\ntables = {quoted(names)}\n")


def test_shares_whose_sum_cannot_be_added_up_are_refused():
    shares = "".join(f'"AGE*SEX{" " * n}" = "1/{10**390 + n}"\n' for n in range(1, 9))
    text = TINY_PLAN.split('TOTAL = "1/4"')[0] + shares
    with pytest.raises(
        PlanError, match="the common denominator of the shares has more than 1,000 digits"
    ):
        Plan.parse(text)


@pytest.mark.parametrize("budget", ['rho = "2"', 'epsilon = "2"'])
def test_a_delta_below_any_probability_is_refused_as_it_was_written(budget):
    text = TINY_PLAN.replace('rho = "2"', f'{budget}\ndelta = "1e-999"')
    with pytest.raises(PlanError, match=r"budget\.delta: below 1e-300"):
        Plan.parse(text)


@pytest.mark.parametrize(
    "edit",
    [
        ('rho = "2"', 'rho = "2"\ndelta = "1e400"'),
        ('rho = "2"', 'rho = "2"\ndelta = "-1e400"'),
        ('rho = "2"', 'rho = "-1e400"'),
        ('rho = "2"', 'epsilon = "-1/3e398"'),
        ('region = "1/2"', 'region = "-1e400"'),
        ("[budget]", '[ledger]\npath = "l.sqlite"\ntotal = "-1e400"\n[budget]'),
    ],
)
def test_a_number_of_many_digits_is_shortened_in_a_message(edit):
    with pytest.raises(PlanError) as caught:
        Plan.parse(TINY_PLAN.replace(*edit))
    assert len(str(caught.value)) < 200


SCHEMA = Schema(
    (Attribute("A", ("a", "b")), Attribute("B", ("x", "y", "z")), Attribute("C", ("p", "q"))),
    (
        Recode("D", "B", (("xy", ("x", "y")), ("z", ("z",)))),
        Recode("E", "B", (("all", ("x", "y", "z")),)),
        Recode("F", "B", (("x", ("x",)), ("none", ())), ("y", "z")),
        Recode("G", "C", (("none", ()),), ("p", "q")),
    ),
)
NAMES = ["TOTAL", "A", "B", "D", "E", "F", "G", "A*B", "C*D", "B*A*C", "F*A", "E*C", "G*A"]


def by_hand(name: str) -> np.ndarray:
    """Return the cell of a query for each cell of the histogram, from its definition."""
    recodes = {recode.name: recode for recode in SCHEMA.recodes}
    found = []
    for labels in itertools.product(*(item.categories for item in SCHEMA.attributes)):
        person = dict(zip("ABC", labels, strict=True))
        cell = 0
        for factor in [] if name == "TOTAL" else name.split("*"):
            if factor in recodes:
                groups = recodes[factor].groups
                value = person[recodes[factor].of]
                at = next((n for n, (_, members) in enumerate(groups) if value in members), None)
                size = len(groups)
            else:
                attribute = next(item for item in SCHEMA.attributes if item.name == factor)
                at, size = attribute.categories.index(person[factor]), len(attribute.categories)
            cell = -1 if at is None or cell < 0 else cell * size + at
        found.append(cell)
    return np.array(found)


@pytest.mark.parametrize("small", [0, 5_000])
@pytest.mark.parametrize("name", NAMES)
def test_cells_from_strides_are_those_of_the_definition(monkeypatch, name, small):
    monkeypatch.setattr(workload, "_SMALL", small)
    query, cells = SCHEMA.query(name), by_hand(name)
    assert query.cell_of.tolist() == cells.tolist()
    assert query.cells_at(np.arange(12)[::-1]).tolist() == cells[::-1].tolist()
    assert int(query.cells_at(7)) == cells[7]
    assert query.complete == bool((cells >= 0).all())
    assert query.largest_cell == np.bincount(cells + 1)[1:].max(initial=1)
    assert [query.labels_of(cell) for cell in range(query.cells)] == query.cell_labels()
    for axis in range(3):
        along = np.moveaxis(cells.reshape(2, 3, 2), axis, 0)
        assert query.distinguishes(axis) == bool((along != along[:1]).any())


@pytest.mark.parametrize(
    ("coarse", "fine"),
    list(itertools.product([name for name in NAMES if name[0] not in "FG"], repeat=2)),
)
def test_a_coarser_query_is_found_without_going_through_cells(coarse, fine):
    one, other = by_hand(coarse), by_hand(fine)
    holders = [set(one[other == cell].tolist()) for cell in np.unique(other)]
    nested = all(len(cells) == 1 for cells in holders)
    queries = SCHEMA.query(coarse), SCHEMA.query(fine)
    assert coarsens(*queries) == nested
    if nested:
        assert cells_within(*queries)[other].tolist() == one.tolist()


def test_a_manifest_of_too_many_bytes_is_refused(tiny, monkeypatch):
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Secure())
    monkeypatch.setattr(storage.read_json, "__defaults__", (1_000,))
    with pytest.raises(VerificationError, match=r"not readable as JSON \(more than 1,000 bytes\)"):
        Release.read(tiny.parent / "out")


@pytest.mark.parametrize("other", ["AGE * SEX", " AGE*SEX", "AGE*SEX\\t"])
def test_a_query_with_other_blanks_is_the_same_query(other):
    one, two = '"AGE*SEX" = "1/2"\n', f'"{other}" = "1/2"\n'
    start = TINY_PLAN.split('TOTAL = "1/4"')[0]
    with pytest.raises(PlanError, match=r"budget\.queries\.region: AGE\*SEX is listed 2 times"):
        Plan.parse(start + one + two)
    plan = Plan.parse(start + f'"{other}" = "1"\n')
    assert {item.query.name for item in plan.allocations} == {"AGE*SEX"}
    invariant = '[[invariants]]\nlevel = "area"\nreason = "known"\nquery = "{}"\n'
    with pytest.raises(PlanError, match=r"invariants\.1: .* of area is listed twice"):
        Plan.parse(TINY_PLAN + invariant.format("AGE*SEX") + invariant.format(other))
    passes = f'[postprocess.levels.area]\npasses = ["AGE*SEX", "{other}"]\n'
    with pytest.raises(PlanError, match=r"levels\.area\.passes: AGE\*SEX is listed 2 times"):
        Plan.parse(TINY_PLAN + passes)


def test_passes_of_all_levels_are_checked_once(monkeypatch):
    compared = []

    def counted(coarse, fine):
        compared.append((coarse.name, fine.name))
        return coarsens(coarse, fine)

    monkeypatch.setattr(passes, "coarsens", counted)
    plan = Plan.parse(TINY_PLAN + '[postprocess.levels."*"]\npasses = ["TOTAL", "AGE"]\n')
    assert [len(item.first) for item in plan.passes.values()] == [2, 2]
    assert compared == [("TOTAL", "AGE")]
    many = f'[postprocess.levels."*"]\npasses = {quoted(["AGE"] * 33)}\n'
    with pytest.raises(PlanError, match="at most 32 items"):
        Plan.parse(TINY_PLAN + many)


def test_different_invariant_queries_have_a_limit(monkeypatch):
    monkeypatch.setattr(public_facts, "MOST_INVARIANT_QUERIES", 2)
    line = '[[invariants]]\nlevel = "{}"\nquery = "{}"\nreason = "known"\n'
    levels, queries = ("region", "area"), ("TOTAL", "AGE")
    text = TINY_PLAN + "".join(line.format(x, y) for x in levels for y in queries)
    assert len(Plan.parse(text).invariants) == 4
    with pytest.raises(PlanError, match="3 different queries are public; the limit is 2"):
        Plan.parse(text + line.format("area", "SEX"))


MANY = 5_000
MISTAKES = {
    "categories": {"attributes": {"A": [1] * MANY}},
    "attributes": {"attributes": {f"a{n}": [1] for n in range(MANY)}},
    "keys": {f"a{n}": 1 for n in range(MANY)},
    "keys of a section": {"release": {f"a{n}": 1 for n in range(MANY)}},
    "levels": {"budget": {"queries": {f"a{n}": 1 for n in range(MANY)}}},
    "columns": {"records": {"columns": {f"a{n}": 1 for n in range(MANY)}}},
    "groups": {"recodes": {"R": {"of": "A", "groups": {f"a{n}": 1 for n in range(MANY)}}}},
}


@pytest.mark.parametrize("what", MISTAKES)
def test_no_more_mistakes_are_looked_for_than_are_shown(what):
    with pytest.raises(PlanError) as caught:
        plan_file.check(MISTAKES[what])
    assert caught.value.__cause__.error_count() < 40
    assert str(caught.value).count("\n") <= 20


def test_a_manifest_of_too_many_entries_is_refused_unchecked(tiny, monkeypatch):
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Secure())
    path = tiny.parent / "out" / "manifest.json"
    document = json.loads(path.read_text())
    many = {
        "estimates": {"certificate": [{}] * 33},
        "measurements": [{}] * 10_001,
        "levels": [{}] * 33,
        "versions": dict.fromkeys(map(str, range(101)), 1),
    }
    for key, value in many.items():
        path.write_text(json.dumps(document | {key: value}))
        with pytest.raises(VerificationError, match="at most|the limit is") as caught:
            Release.read(tiny.parent / "out")
        assert caught.value.__cause__.error_count() == 1
    path.write_text(json.dumps(document))
    monkeypatch.setattr(manifest, "MOST_NODES", 50)
    with pytest.raises(VerificationError, match="has more than 50 values, the limit; restore"):
        Release.read(tiny.parent / "out")


def test_categories_of_a_part_are_looked_up_not_searched_for():
    compared = []

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    size = 200
    schema = Schema((Attribute("A", tuple(map(str, range(size)))),))
    part = one_table_plan._part({"A": [Counted(number) for number in range(size - 1)]}, schema)
    assert part.sum() == size - 1
    assert len(compared) < 5 * size


def test_names_and_queries_that_no_plan_needs_are_shown_in_short():
    for old, new, message in (
        ("TOTAL", f'"{"*".join(["AGE"] * 9999)}"', "has 9,999 parts; the limit is 32"),
        ("AGE = [", f"{'A' * 600} = [", "has 600 characters; the limit for names is 500"),
    ):
        with pytest.raises(PlanError, match=message) as caught:
            Plan.parse(TINY_PLAN.replace(old, new, 1))
        assert len(str(caught.value)) < 300
