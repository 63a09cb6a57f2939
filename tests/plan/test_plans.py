import json
import tomllib
from fractions import Fraction
from importlib import resources

import pytest
from tests.conftest import TINY_PLAN

from countveil.errors import PlanError
from countveil.plan.plan_file import json_schema
from countveil.plan.plans import Plan
from countveil.plan.presets import PRESETS
from countveil.privacy.costs import ZCDP, PureDP


def preset(name: str, more: str = "", top: str = "") -> Plan:
    return Plan.parse(f'{top}\n[release]\ntitle = "t"\npreset = "{name}"\n{more}')


def test_the_2020_preset():
    plan = preset("pl94-2020")
    assert plan.cost == ZCDP(Fraction(542, 339) ** 2) == ZCDP("293764/114921")  # published as 2.56
    assert len({item.query.name for item in plan.allocations}) == 11
    assert plan.neighbors == "change-one"
    assert [(item.level, item.query.name) for item in plan.invariants] == [("state", "TOTAL")]


def test_the_other_presets(truth):
    housing = preset("pl94-2020-housing")
    assert housing.cost == ZCDP(Fraction(3379, 12343) ** 2)  # published as 0.07
    shares = {a.level: a.cost.rho / housing.cost.rho for a in housing.allocations}
    assert list(shares.values()) == [
        Fraction(share) for share in ("1/205", "1/205", "7/82", "364/1025", "1759/4100", "99/820")
    ]
    assert list(shares) == list(housing.levels)
    assert {a.query.name for a in housing.allocations} == {"OCCUPANCY"}  # detail only
    assert housing.unit == "housing unit"
    assert [(i.level, i.query.name) for i in housing.invariants] == [("block", "TOTAL")]
    old = preset("census-1940")
    rho = {a.level: a.cost.rho for a in old.allocations if a.query.cells == 864}
    assert rho["district"] == Fraction(truth["rho1"]["fraction"])
    assert rho["county"] == Fraction(truth["rho2_a"]["fraction"])


@pytest.mark.parametrize("name", PRESETS)
def test_presets_say_where_their_shares_come_from(name):
    text = resources.files("countveil.plan.presets").joinpath(f"{name}.toml").read_text()
    assert text.startswith("#")
    tomllib.loads(text)


def test_a_plan_overrides_its_preset_key_by_key():
    plan = preset("pl94-2020", '[budget]\nrho = "1"\n[budget.queries.block]\nTOTAL = "1"')
    assert plan.cost == ZCDP(1)
    assert [a.query.name for a in plan.at("block")] == ["TOTAL"]
    assert len(plan.at("tract")) == 11
    pure = preset("pl94-2020", '[budget]\nepsilon = "4"')
    assert pure.cost == PureDP(4)
    assert plan.at("block")[0].sensitivity.l2_squared == 2
    loose = preset("pl94-2020", 'neighbors = "add-remove"', top="invariants = []")
    assert loose.at("block")[0].sensitivity.l2_squared == 1


def test_a_preset_can_be_cut_to_fewer_levels():
    plan = preset(
        "pl94-2020",
        '[geography]\nlevels = ["county", "block"]\n[budget.levels]\ncounty = "1/2"\nblock = "1/2"\n',
    )
    assert plan.levels == ("county", "block")
    assert plan.invariants == ()
    assert len(plan.allocations) == 22


def test_the_judged_level_is_measured():
    text = TINY_PLAN.replace('region = "1/2"\narea = "1/2"', 'region = "1"\narea = "0"')
    assert Plan.parse(text).judged_level == "region"
    with pytest.raises(PlanError, match="intruder.level: area is not measured"):
        Plan.parse(text + '[intruder]\nlevel = "area"\n')


def test_epsilon_with_delta_calibrates_rho():
    plan = Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "3"\ndelta = "1e-6"'))
    assert isinstance(plan.cost, ZCDP)
    assert plan.cost.epsilon("1e-6") == pytest.approx(3, rel=1e-9)
    assert plan.cost.epsilon("1e-6") <= 3


def test_max_rows_scales_the_sensitivity():
    text = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 3')
    plan = Plan.parse(text)
    item = plan.at("area")[1]
    assert (item.sensitivity.l1, item.sensitivity.l2_squared) == (6, 18)


def test_a_level_without_budget_is_not_measured():
    text = TINY_PLAN.replace('region = "1/2"\narea = "1/2"', 'region = "0"\narea = "1"')
    plan = Plan.parse(text)
    assert plan.at("region") == ()
    assert plan.cost == ZCDP(2)


def test_the_public_plan_hides_where_the_records_are():
    plan = Plan.parse(TINY_PLAN)
    shown = json.dumps(plan.public_document)
    assert "people.csv" not in shown
    assert "one_row_per_person" in shown
    again = Plan.of(plan.public_document)
    assert again.digest == plan.digest
    assert again.cost == plan.cost
    assert [(a.level, a.query.name, a.cost) for a in again.allocations] == [
        (a.level, a.query.name, a.cost) for a in plan.allocations
    ]
    bounded = Plan.parse(
        TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 3')
    )
    assert Plan.of(bounded.public_document).rows_per_person == 3


def test_any_change_of_the_plan_changes_its_digest():
    base = Plan.parse(TINY_PLAN).digest
    for old, new in (('rho = "2"', 'rho = "3"'), ("Tiny", "Tinier"), ('"x"]', '"z"]')):
        assert Plan.parse(TINY_PLAN.replace(old, new)).digest != base


BAD = [
    (
        ('rho = "2"', 'rho = "1e-16"'),
        "budget.queries.region.TOTAL: the noise would have a standard deviation",
    ),
    (
        ('rho = "2"', 'epsilon = "1e-8"'),
        "budget.queries.region.TOTAL: the noise would have a standard deviation",
    ),
    (
        ("one_row_per_person = true", "redacted = true"),
        "records.redacted: this key is for published plans",
    ),
    (('rho = "2"', 'rho = "1e300"'), "above 10,000, which protects no one"),
    (
        ('rho = "2"', 'rho = "1e-200"'),
        "the noise would have a standard deviation above 16,777,216, more than any count",
    ),
    ("", "plan.toml: [release] is missing. Add this section to the plan."),
    ("x = [", "not valid TOML"),
    ("rho = 1", "unknown key 'rho'; choose from release, records, geography, attributes"),
    (("Tiny", ""), "release.title"),
    (
        ('unit = "person"', "unit = 3"),
        "release.unit: 3 is not allowed; it should be a valid string",
    ),
    (
        ('"change-one"', '"both"'),
        "release.neighbors: 'both' is not allowed; choose from 'change-one' or 'add-remove'",
    ),
    (
        ('neighbors = "change-one"', ""),
        'release.neighbors is missing. Add it to [release], for example neighbors = "change-one".',
    ),
    (
        ('neighbors = "change-one"', 'neighbors = "change-one"\npreset = "pl94"'),
        "unknown preset 'pl94'; choose from census-1940, pl94-2020, pl94-2020-housing",
    ),
    (
        ('rho = "2"', "rho = 2.0"),
        "budget.rho: 2.0 is a float, but privacy costs are exact; write it as text",
    ),
    (('rho = "2"', 'rho = "two"'), "budget.rho: 'two' is not a number"),
    (('rho = "2"', 'rho = "-2"'), "budget: -2 is not allowed; it must be above 0"),
    (('rho = "2"', ""), "budget: give exactly one of rho and epsilon"),
    (('rho = "2"', 'rho = "2"\nepsilon = "1"'), "budget: give exactly one of rho and epsilon"),
    (('rho = "2"', 'rho = "2"\ndelta = "1"'), "budget.delta: 1 is not allowed"),
    (('area = "1/2"', 'area = "1/3"'), "budget.levels: the shares sum to 5/6; they must sum to 1"),
    (
        ('area = "1/2"', 'aera = "1/2"'),
        "budget.levels.aera: unknown level 'aera'; choose from region, area",
    ),
    (('region = "1/2"\narea = "1/2"', 'area = "1"'), "no share for level 'region'"),
    (('region = "1/2"\narea = "1/2"', 'region = "-1"\narea = "2"'), "a share must be 0 or more"),
    (('TOTAL = "1/4"', 'TOTAL = "1/5"'), "budget.queries.region: the shares sum to 19/20"),
    (
        ('"AGE*SEX"', '"AGE*SEKS"'),
        "unknown attribute or recode 'SEKS'; choose from TOTAL, AGE, SEX",
    ),
    (
        ('[budget.queries."*"]', "[budget.queries.blok]"),
        "unknown level 'blok'; choose from region, area",
    ),
    (
        ('[budget.queries."*"]', "[budget.queries.area]"),
        'budget.queries.region is missing. Add it, or [budget.queries."*"] for all levels',
    ),
    (('"region", "area"]', '"region", "region"]'), "'region' is listed 2 times"),
    (('"region", "area"]', '"region", "../x"]'), "geography.levels.1"),
    (('"region", "area"]', '"region", "AGE"]'), "attributes.AGE: a level has the same name"),
    (
        ("one_row_per_person = true", ""),
        "attest one_row_per_person = true, or give person_id and max_rows",
    ),
    (
        ("one_row_per_person = true", "one_row_per_person = false"),
        "attest one_row_per_person = true",
    ),
    (
        ("one_row_per_person = true", "one_row_per_person = true\nmax_rows = 2"),
        "excludes person_id and max_rows",
    ),
    (
        ("one_row_per_person = true", 'person_id = "id"\nmax_rows = 0'),
        "records.max_rows: 0 is not allowed",
    ),
    (('path = "people.csv"\n', ""), "records: give exactly one of path and query"),
    (
        ('path = "people.csv"\n', 'path = "a"\nquery = "SELECT 1"\n'),
        "records: give exactly one of path and query",
    ),
    (
        ('path = "people.csv"\n', 'path = "a"\ndatabase = "b"\n'),
        "records.database: needs records.query",
    ),
    (
        ("one_row_per_person = true", 'one_row_per_person = true\nmissing = "drop"'),
        "records.missing",
    ),
    (
        ("one_row_per_person = true", 'one_row_per_person = true\nmissing = { SEX = "q" }'),
        "records.missing.SEX: unknown category 'q'; choose from f, m, x",
    ),
    (
        ("one_row_per_person = true", 'one_row_per_person = true\nmissing = { S = "q" }'),
        "records.missing.S: unknown attribute; choose from AGE, SEX",
    ),
    ('+[intruder]\nlevel = "x"', "intruder.level: unknown level 'x'; choose from region, area"),
    ("+[intruder]\npriors = [1.5]", "intruder.priors.0: 1.5 is not allowed"),
    ('+[ledger]\nperiod = "year"', "only one of period and period_limit is given"),
    (
        '+[postprocess]\nmethod = "magic"',
        "postprocess.method: 'magic' is not allowed; choose from 'none'",
    ),
    (
        '+[[invariants]]\nlevel = "x"\nquery = "TOTAL"\nreason = "r"',
        "invariants.0.level: unknown level 'x'",
    ),
    ('+[[invariants]]\nlevel = "area"\nquery = "Q"\nreason = "r"', "invariants.0: query 'Q'"),
    (
        '+[[invariants]]\nlevel = "area"\nquery = "TOTAL"',
        "invariants.0.reason is missing. Add it to [[invariants]]",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_plans_get_a_message_with_file_key_and_remedy(change, message):
    if isinstance(change, tuple):
        assert change[0] in TINY_PLAN, "the change changes nothing"
        text = TINY_PLAN.replace(*change)
    elif change.startswith("+"):
        text = TINY_PLAN + change[1:]
    else:
        text = change
    with pytest.raises(PlanError) as caught:
        Plan.parse(text, name="plan.toml")
    assert message in str(caught.value)
    assert all(line.startswith("plan.toml: ") for line in str(caught.value).splitlines())


def test_a_fixed_total_beside_add_remove_is_refused_with_the_reason():
    text = TINY_PLAN.replace("change-one", "add-remove")
    text += '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"'
    with pytest.raises(
        PlanError, match="a person who joins or leaves changes it, so no two neighbouring"
    ):
        Plan.parse(text)


def test_files_that_are_no_plans(tmp_path):
    for content, message in ((b"\xff\xfe", "not UTF-8"), (b"[" * 5000, "plan.toml")):
        path = tmp_path / "plan.toml"
        path.write_bytes(content)
        with pytest.raises(PlanError, match=message):
            Plan.load(path)
    with pytest.raises(PlanError, match="No such file or directory; name a plan file"):
        Plan.load(tmp_path / "none.toml")
    with pytest.raises(PlanError, match="Is a directory"):
        Plan.load(tmp_path)


def test_the_json_schema_describes_plans():
    schema = json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"release", "geography", "attributes", "budget"}
    assert "BudgetSection" in schema["$defs"]
    json.dumps(schema)


def test_a_plan_saved_with_a_byte_order_mark_is_read(tiny):
    tiny.write_bytes(b"\xef\xbb\xbf" + TINY_PLAN.encode())
    assert Plan.load(tiny).title == "Tiny"


@pytest.mark.parametrize("key", ["total", "period_limit"])
@pytest.mark.parametrize("amount", ["0", "-3"])
def test_limits_of_a_ledger_are_above_zero(key, amount):
    limits = {"total": "4", "period_limit": "2", key: amount}
    lines = "".join(f'{name} = "{value}"\n' for name, value in limits.items())
    with pytest.raises(PlanError, match=rf"ledger\.{key}: {amount} is not allowed; .* above 0"):
        Plan.parse(TINY_PLAN + '[ledger]\nperiod = "year"\n' + lines)


def priced(item):
    return item.level, item.query.name, item.cost, item.sensitivity, item.mechanism


@pytest.mark.parametrize(
    "budget", ['rho = "2"', 'epsilon = "3/7"', 'epsilon = "1"\ndelta = "1e-6"']
)
def test_another_budget_gives_the_plan_that_a_changed_file_gives(budget):
    plan = Plan.parse(TINY_PLAN.replace('rho = "2"', budget))
    for times in (Fraction(1, 16), Fraction(1), Fraction(22, 7)):
        other = plan.with_budget(plan.cost.amount * times)
        read = plan.with_document(other.document)
        assert [priced(item) for item in other.allocations] == [
            priced(item) for item in read.allocations
        ]
        assert other.cost == read.cost
        assert other.cost.amount == plan.cost.amount * times
        assert other.digest == read.digest
    with pytest.raises(PlanError, match="protects no one"):
        plan.with_budget(Fraction(10**30))
    with pytest.raises(PlanError, match="more than any count"):
        plan.with_budget(Fraction(1, 10**60))
