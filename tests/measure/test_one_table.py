"""The door for one table beside public information: drawn once, charged once, verified, silent."""

import json
import shutil
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import parts_of, run

from countveil import Secure, Seeded, congenial, measure, open_engine, pipeline
from countveil.assess.remaining_guarantee import public_guarantee
from countveil.errors import (
    FolderError,
    InputError,
    Interrupted,
    LedgerError,
    PlanError,
    VerificationError,
)
from countveil.measure import door, manifest, one_table
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan
from countveil.publish import open_release

PLAN = """
[release]
title = "Cases of a month"
unit = "person"
neighbors = "change-one"

[records]
path = "cases.csv"
one_row_per_person = true

[geography]
path = "counties.csv"
levels = ["state", "region", "county"]

[attributes]
OUTCOME = ["alive", "died"]

[budget]
epsilon = "1"

[[invariants]]
level = "state"
query = "TOTAL"
reason = "published every week"

[postprocess]
method = "congenial"

[congenial]
part = { OUTCOME = ["died"] }
previous = "last.csv"
pseudo_count = "1/2"
"""
COUNTS = {"A": (41, 3), "B": (7, 0), "C": (0, 0), "D": (17, 17), "E": (250, 12)}
REGIONS = {"A": "N", "B": "N", "C": "N", "D": "S", "E": "S"}
TABLE = np.array(list(COUNTS.values()))


@pytest.fixture
def plan(tmp_path):
    rows = "".join(f"PA,{REGIONS[code]},{code}\n" for code in COUNTS)
    (tmp_path / "counties.csv").write_text("state,region,county\n" + rows)
    lines = [
        f"{code},{'died' if i < died else 'alive'}\n"
        for code, (cases, died) in COUNTS.items()
        for i in range(cases)
    ]
    (tmp_path / "cases.csv").write_text("county,OUTCOME\n" + "".join(lines))
    (tmp_path / "last.csv").write_text("county,count\nA,30\nB,9\nC,0\nD,20\nE,180\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def changed(path, *edits):
    text = path.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return Plan.load(path)


def drawn(path, out="out", rng=None, counts=None):
    loaded = Plan.load(path)
    exact = open_engine("local").tabulate(loaded) if counts is None else counts
    geography = loaded.geography()
    above = geography.ancestors(loaded.level, loaded.fixed) if loaded.fixed else None
    totals = None if above is None else np.bincount(above, TABLE[:, 0]).astype(np.int64)
    mechanism = measure.mechanism_of(loaded, totals, geography)
    return measure.draw(
        mechanism,
        exact,
        loaded,
        rng=rng or Secure(),
        ledger=path.parent / "ledger.sqlite" if rng is None else None,
        to=path.parent / out,
    )


def test_the_call_sites_work_as_written(plan):
    loaded = Plan.load(plan)
    previous = [30, 9, 0, 20, 180]
    prior = congenial.DirichletMultinomial(previous, alpha=1, pseudo_count="1/2")
    m = congenial.Wasserstein(loss="L1", epsilon="1", total=315, prior=prior, deaths=True)
    folder = plan.parent
    y = measure.draw(
        m, TABLE, loaded, rng=Secure(), ledger=folder / "ledger.sqlite", to=folder / "out/"
    )
    assert y.shape == (5, 2)
    assert y[:, 0].sum() == 315
    assert (y[:, 1] <= y[:, 0]).all()
    release = open_release(folder / "out")
    assert np.array_equal(release.counts, y)
    assert release.mechanism == m
    assert release.table.column_names == ["geocode", "count", "part", "previous"]
    assert release.table["geocode"].to_pylist() == list(COUNTS)


def test_a_table_and_tabulated_counts_are_the_same_release(plan):
    first = drawn(plan, "one", rng=Seeded(5))
    second = drawn(plan, "two", rng=Seeded(5), counts=TABLE)
    assert np.array_equal(first, second)


def test_a_second_call_finds_the_release_and_charges_nothing(plan):
    first, second = drawn(plan), drawn(plan)
    assert np.array_equal(first, second)
    assert len(Plan.load(plan).ledger().charges()) == 1
    with pytest.raises(LedgerError, match="only 0 is left"):
        drawn(plan, "another")
    assert not (plan.parent / "another-internal").exists()


def test_a_crash_after_the_draw_keeps_that_draw(plan, monkeypatch):
    real = door.publish_one_table

    def full(*arguments):
        raise OSError(5, "I/O error")

    monkeypatch.setattr(door, "publish_one_table", full)
    with pytest.raises(Interrupted, match="nothing is lost"):
        drawn(plan)
    part = Parts(parts_of(plan.parent / "out")).read("county", 0)
    kept = pq.read_table(pa.BufferReader(part))["count"].to_pylist()
    monkeypatch.setattr(door, "publish_one_table", real)
    assert drawn(plan)[:, 0].tolist() == kept
    assert len(Plan.load(plan).ledger().charges()) == 1


def test_a_crash_after_the_charge_is_not_charged_again(plan, monkeypatch):
    real = door.draw_exactly

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "draw_exactly", stopped)
    with pytest.raises(Interrupted):
        drawn(plan)
    monkeypatch.setattr(door, "draw_exactly", real)
    drawn(plan)
    assert len(Plan.load(plan).ledger().charges()) == 1


def test_changed_records_are_another_release(plan):
    drawn(plan)
    other = TABLE.copy()
    other[0, 0], other[1, 0] = 40, 8
    with pytest.raises(FolderError, match="other records"):
        drawn(plan, counts=other)


def test_the_release_verifies_and_a_changed_one_does_not(plan):
    drawn(plan)
    out = plan.parent / "out"
    checks = open_release(out).verify(plan.parent / "ledger.sqlite").checks
    assert any("agree with the public facts" in line for line in checks)
    assert any("given public information for these" in line for line in checks)
    document = json.loads((out / "manifest.json").read_text())
    for key, value in (("guarantee", {**document["guarantee"], "epsilon": "1/2"}),):
        (out / "manifest.json").write_text(json.dumps({**document, key: value}))
        with pytest.raises(VerificationError, match="guarantee in the manifest differs"):
            open_release(out).verify()
    stated = {**document["table"], "total": 316}
    (out / "manifest.json").write_text(json.dumps({**document, "table": stated}))
    with pytest.raises(VerificationError):
        open_release(out).verify()


def test_a_table_that_breaks_a_total_does_not_verify(plan):
    drawn(plan)
    out = plan.parent / "out"
    path = out / "counts" / "county.parquet"
    table = pq.read_table(path)
    wrong = table["count"].to_pylist()
    wrong[0] += 1
    pq.write_table(table.set_column(1, "count", [wrong]), path)
    document = json.loads((out / "manifest.json").read_text())
    document["files"]["counts/county.parquet"] = manifest.list_files(
        out, ["counts/county.parquet"]
    )["counts/county.parquet"]
    (out / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(VerificationError, match="contradicts a public total"):
        open_release(out).verify()


def test_a_seeded_release_is_a_simulation(plan):
    drawn(plan, rng=Seeded(3))
    with pytest.raises(VerificationError, match="drawn from a seed"):
        open_release(plan.parent / "out").verify()
    assert open_release(plan.parent / "out").verify(simulation=True)


def test_nothing_published_depends_on_records_but_the_table_and_the_totals(plan):
    """Move a person between counties: the same bits give other counts, and nothing else differs."""
    drawn(plan, "one", rng=Seeded(4))
    other = TABLE.copy()
    other[0, 0], other[1, 0] = 40, 8
    drawn(plan, "two", rng=Seeded(4), counts=other)
    for name in ("geography.parquet", "previous.csv"):
        one, two = (plan.parent / out / name for out in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    one, two = (
        json.loads((plan.parent / out / "manifest.json").read_text()) for out in ("one", "two")
    )
    for document in (one, two):
        del document["release"], document["files"]
    assert one == two


def test_the_internal_folder_is_private_and_its_log_silent(plan):
    drawn(plan)
    internal = plan.parent / "out-internal"
    assert stat.S_IMODE(internal.stat().st_mode) == 0o700
    for line in (internal / "log.jsonl").read_text().splitlines():
        facts = json.loads(line)
        assert set(facts) <= {"at", "process", "event", "release", "new", "cost", "number"}


def test_regions_whose_totals_are_public_keep_them(plan):
    loaded = changed(plan, ('level = "state"', 'level = "region"'))
    y = drawn(plan)
    assert y[:3, 0].sum() == 48
    assert y[3:, 0].sum() == 267
    release = open_release(plan.parent / "out")
    assert release.verify(plan.parent / "ledger.sqlite")
    assert len(release.mechanism.subtotals) == 2
    assert "which county of their region" in release.guarantee.theta.secrets
    assert loaded.fixed == "region"


def test_naive_noise_needs_no_total_and_spends_all_of_epsilon(plan):
    changed(
        plan,
        ('[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "published every week"\n', ""),
        ('previous = "last.csv"\npseudo_count = "1/2"', 'base = "naive"'),
        ('part = { OUTCOME = ["died"] }\n', ""),
    )
    y = drawn(plan)
    assert y.shape == (5,)
    release = open_release(plan.parent / "out")
    assert release.mechanism.rate * release.mechanism.sigma == 1
    assert release.verify(plan.parent / "ledger.sqlite")


def test_previous_counts_may_be_an_earlier_private_release(plan):
    changed(plan, ("[congenial]", '[ledger]\ntotal = "2"\n[congenial]'))
    drawn(plan, "april")
    released = plan.parent / "april" / "counts" / "county.parquet"
    changed(
        plan,
        ('"last.csv"', f'"{released.relative_to(plan.parent)}"'),
        ('title = "Cases of a month"', 'title = "The next"\ndataset = "Cases of a month"'),
    )
    drawn(plan, "may")
    release = open_release(plan.parent / "may")
    assert list(release.mechanism.prior.previous) == pq.read_table(released)["count"].to_pylist()
    shutil.rmtree(plan.parent / "april")
    assert release.verify(plan.parent / "ledger.sqlite")


@pytest.mark.parametrize(
    "edits",
    [
        [('previous = "last.csv"\npseudo_count = "1/2"\n', "")],
        [('part = { OUTCOME = ["died"] }\n', "")],
        [('pseudo_count = "1/2"', 'pseudo_count = "1"')],
        [
            (
                "one_row_per_person = true",
                'one_row_per_person = true\nmissing = { OUTCOME = "alive" }',
            )
        ],
        [('title = "Cases of a month"', 'title = "Again"\ndataset = "Cases of a month"')],
    ],
)
def test_no_other_plan_for_the_same_data_gets_a_limit_of_its_own(plan, edits):
    drawn(plan)
    changed(plan, *edits)
    table = TABLE if "part" in plan.read_text() else TABLE[:, 0]
    with pytest.raises(LedgerError, match="only 0 is left"):
        drawn(plan, "another", counts=table)
    (plan.parent / "last.csv").write_text("county,count\nA,31\nB,9\nC,0\nD,20\nE,180\n")
    with pytest.raises(LedgerError, match="only 0 is left"):
        drawn(plan, "yet-another", counts=table)


def test_other_public_totals_are_refused_by_the_same_ledger(plan):
    drawn(plan)
    changed(plan, ('level = "state"', 'level = "region"'))
    with pytest.raises(LedgerError, match="costs along different couplings"):
        drawn(plan, "another")


def test_only_the_columns_that_were_used_are_published(plan):
    (plan.parent / "last.csv").write_text(
        "county,count,secret\nA,30,41\nB,9,7\nC,0,0\nD,20,17\nE,180,250\n"
    )
    drawn(plan)
    published = (plan.parent / "out" / "previous.csv").read_text()
    assert "secret" not in published
    assert "250" not in published
    assert open_release(plan.parent / "out").verify(plan.parent / "ledger.sqlite")


def test_other_previous_counts_are_another_release(plan):
    drawn(plan)
    (plan.parent / "last.csv").write_text("county,count\nA,31\nB,9\nC,0\nD,20\nE,180\n")
    with pytest.raises(FolderError, match="other files named in it"):
        drawn(plan)


def test_what_cannot_be_drawn_is_refused_before_the_charge(plan, monkeypatch):
    def impossible(self, targets):
        raise InputError("counts: too large")

    monkeypatch.setattr(congenial.Wasserstein, "_sampler", impossible)
    with pytest.raises(InputError, match="too large"):
        drawn(plan)
    assert not (plan.parent / "ledger.sqlite").exists()


def test_the_manifest_says_that_a_budget_was_chosen_from_records(plan):
    changed(plan, ('epsilon = "1"', 'epsilon = "1"\nchosen_from = "records"'))
    drawn(plan)
    assert open_release(plan.parent / "out").manifest["budget_chosen_from"] == "records"
    assert open_release(plan.parent / "out").verify(plan.parent / "ledger.sqlite")


def test_the_secret_of_add_remove_is_whether_someone_is_counted(plan):
    loaded = changed(
        plan,
        ('[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "published every week"\n', ""),
        ('previous = "last.csv"\npseudo_count = "1/2"', 'base = "naive"'),
        ('neighbors = "change-one"', 'neighbors = "add-remove"'),
        ('part = { OUTCOME = ["died"] }\n', ""),
    )
    assert "whether they are counted there or nowhere" in one_table.theta_of(loaded).secrets
    drawn(plan)
    found = public_guarantee(open_release(plan.parent / "out"))
    assert any("rho = 1/2." in line for line in found.sentences)
    mechanism = open_release(plan.parent / "out").mechanism
    apart = mechanism.log_density([1, 0], [1, 0]) - mechanism.log_density([1, 0], [0, 0])
    assert apart == pytest.approx(1.0)


def test_the_public_lens_tells_totals_of_one_unit(plan):
    (plan.parent / "counties.csv").write_text(
        "state,region,county\nPA,N,A\nPA,N,B\nPA,N,C\nPA,M,D\nPA,S,E\n"
    )
    changed(plan, ('level = "state"', 'level = "region"'))
    pipeline.release(Plan.load(plan), to=plan.parent / "out", rng=Seeded(1))
    found = public_guarantee(open_release(plan.parent / "out"))
    assert "2 of 3 public totals cover a single unit and so reveal its count." in found.sentences


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (
            [("[congenial]", '[ledger]\nperiod = "year"\nperiod_limit = "1"\n[congenial]')],
            "supports no period",
        ),
        ([("[congenial]", '[ledger]\ntotal = "-1"\n[congenial]')], "ledger.total: -1"),
        (
            [("[congenial]", "[intruder]\nlimit = 1.5\n[congenial]")],
            "supports no period, currency or intruder.limit",
        ),
        (
            [
                (
                    'previous = "last.csv"\npseudo_count = "1/2"',
                    'loss = "squared L2"\nbase = "naive"',
                )
            ],
            "is unbounded with base",
        ),
        ([('epsilon = "1"', 'epsilon = "0"')], "budget.epsilon: 0 is not allowed"),
        ([('epsilon = "1"', 'rho = "1"')], "spends only epsilon"),
        ([('epsilon = "1"', 'epsilon = "1"\nlevels = { county = "1" }')], "remove levels"),
        ([('method = "congenial"', 'method = "none"')], "this section needs postprocess.method"),
        ([('level = "state"', 'level = "county"')], "which fixes every count of county"),
        ([('query = "TOTAL"', 'query = "OUTCOME"')], "supports only TOTAL"),
        ([('OUTCOME = ["died"] }', 'OUTCOME = ["lost"] }')], "unknown category 'lost'"),
        ([('OUTCOME = ["died"] }', 'RACE = ["died"] }')], "part.RACE: unknown attribute"),
        ([('["died"] }', '["died", "alive"] }')], "selects no cells or all cells"),
        ([('pseudo_count = "1/2"', 'level = "village"')], "unknown level 'village'"),
        ([('pseudo_count = "1/2"', 'base = "naive"')], "need public totals to divide"),
        ([('pseudo_count = "1/2"', 'alpha = "0"')], "alpha must be above 0"),
        ([('pseudo_count = "1/2"', 'loss = "L3"')], "loss"),
        ([('neighbors = "change-one"', 'neighbors = "add-remove"')], "guarantee would be empty"),
        (
            [
                (
                    '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "published every week"',
                    "",
                )
            ],
            "no level above county has public totals to agree with",
        ),
    ],
)
def test_bad_plans_are_refused(plan, edits, message):
    with pytest.raises(PlanError) as caught:
        changed(plan, *edits)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("previous", "message"),
    [
        ("county,count\nA,30\n", "count is missing for 4 of 5 units of county, such as 'B'"),
        ("county,cases\nA,30\n", "column 'count' is missing"),
        ("county,count\nA,30\nA,1\nB,1\nC,1\nD,1\nE,1\n", "is listed twice"),
        ("county,count\nA,x\nB,1\nC,1\nD,1\nE,1\n", "cannot be read"),
        ("", "cannot be read"),
        ("county,count,count\nA,1,1\n", "last.csv"),
        ("county,count\nA,-3\nB,1\nC,1\nD,1\nE,1\n", "1 counts are negative"),
    ],
)
def test_bad_previous_counts_draw_and_charge_nothing(plan, previous, message):
    (plan.parent / "last.csv").write_text(previous)
    ran = run("release", plan, "--to", plan.parent / "out")
    assert ran.status == 2
    assert message in ran.err
    assert not (plan.parent / "out").exists()
    assert not (plan.parent / "out-internal").exists()
    assert not (plan.parent / "ledger.sqlite").exists()


def test_zero_previous_counts_need_a_pseudo_count(plan):
    changed(plan, ('pseudo_count = "1/2"\n', ""))
    ran = run("release", plan, "--to", plan.parent / "out")
    assert ran.status == 2
    assert "1 places had a count of 0" in ran.err
    assert not (plan.parent / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (TABLE[:4], "shape (4, 2)"),
        (TABLE[:, 0], "shape (5,)"),
        (TABLE * 1.0, "float64"),
        (TABLE * -1, "have a negative count"),
        (TABLE[:, ::-1], "is not that of"),
    ],
)
def test_bad_tables_draw_and_charge_nothing(plan, counts, message):
    with pytest.raises(InputError) as caught:
        drawn(plan, counts=counts)
    assert message in str(caught.value)
    assert not (plan.parent / "ledger.sqlite").exists()


def test_another_mechanism_than_the_plans_is_refused(plan):
    mechanism = congenial.Wasserstein(loss="L2", epsilon="1", total=315, deaths=True)
    with pytest.raises(InputError, match="is not that of"):
        measure.draw(
            mechanism,
            TABLE,
            Plan.load(plan),
            rng=Secure(),
            ledger=plan.parent / "ledger.sqlite",
            to=plan.parent / "out",
        )


@pytest.mark.parametrize("counts", [TABLE[::-1] * 2, -TABLE])
def test_no_refusal_tells_the_sum_of_confidential_counts(plan, counts):
    m = congenial.Wasserstein(loss="L1", epsilon="1", total=4, deaths=True)
    with pytest.raises(InputError) as caught:
        measure.draw(m, counts, Plan.load(plan), rng=Secure(), ledger="never", to="never")
    assert str(abs(int(counts[:, 0].sum()))) not in str(caught.value)


def test_a_real_release_names_a_ledger(plan):
    loaded = Plan.load(plan)
    mechanism = measure.mechanism_of(loaded, np.array([315]), loaded.geography())
    with pytest.raises(InputError, match="ledger: missing; a release is charged to one"):
        measure.draw(mechanism, TABLE, loaded, rng=Secure(), ledger=None, to=plan.parent / "out")


def test_the_command_line_checks_releases_verifies_and_packages(plan):
    folder = plan.parent
    assert "epsilon = 1 given public information" in run("check", plan).out
    ran = run("release", plan, "--to", folder / "out", "--quiet")
    assert ran.status == 0, ran.err
    assert "released for epsilon = 1 given public information" in ran.out
    assert "has epsilon = 0 left" in ran.out
    again = run("release", plan, "--to", folder / "out", "--quiet", "--json").document()
    assert again["released_before"]
    assert again["cost"]["currency"] == "beside public information"
    assert run("verify", folder / "out", "--ledger", folder / "ledger.sqlite").status == 0
    assert run("package", folder / "out").status == 0
    for command in (
        ("price", plan),
        ("postprocess", folder / "out"),
        ("assess", "presence", folder / "out"),
    ):
        refused = run(*command)
        assert refused.status == 2, command
        assert refused.err.strip().startswith("error: ")


def test_the_public_lens_states_the_guarantee(plan):
    folder = plan.parent
    of_plan = run("assess", "public", plan, "--json").document()
    run("release", plan, "--to", folder / "out", "--quiet")
    of_release = run("assess", "public", folder / "out", "--json").document()
    assert of_plan == of_release
    assert of_release["secrets"][0]["guarantee"] == "epsilon = 1"
    assert of_release["secrets"][0]["odds"] == pytest.approx(np.e)
    assert of_release["audience"] == "public"
    words = " ".join(run("assess", "public", folder / "out").out.split())
    assert "not differential privacy, and its epsilon cannot be added to that of" in words
    # exp(-1) = 0.3679 and exp(1) = 2.718, tanh(1/4) = 0.2449, tanh(1/2) = 0.4621: rounded outwards.
    assert "by a factor of 0.36 to 2.8, and the probability of either by at most 0.25." in words
    assert "would differ by at most 0.47, in total variation." in words
    assert "the TOTAL of every state, exactly" in words


def test_the_pipeline_releases_the_same_as_the_door(plan):
    loaded = Plan.load(plan)
    release = pipeline.release(loaded, to=plan.parent / "one", rng=Seeded(9))
    assert np.array_equal(release.counts, drawn(plan, "two", rng=Seeded(9)))


@pytest.mark.parametrize(
    ("epsilon", "more", "message"),
    [
        ("1e-9", "", "standard deviation above 16,777,216, more than any count"),
        ("1e-9", 'loss = "L2"\n', "standard deviation above 16,777,216"),
        (
            "1",
            "people = 10000000\n",
            "people = 10,000,000, the noise would have a standard deviation",
        ),
        ("1e-8", f"people = 1{'0' * 12}\n", "people: .*less than or equal to 10000000"),
        ("1", f"people = 1{'0' * 400}\n", "people: .*less than or equal to 10000000"),
    ],
)
def test_naive_noise_beyond_any_count_is_refused_when_the_plan_is_read(
    plan, epsilon, more, message
):
    edits = ('epsilon = "1"', f'epsilon = "{epsilon}"'), ('previous = "last.csv"\n', more)
    with pytest.raises(PlanError, match=message):
        changed(plan, *edits, ('pseudo_count = "1/2"', 'base = "naive"'))
    ran = run("release", plan, "--to", plan.parent / "out")
    assert ran.status == 2
    assert not (plan.parent / "ledger.sqlite").exists()


def test_the_widest_naive_noise_is_drawn_and_verified(plan):
    edits = ('epsilon = "1"', 'epsilon = "4e-7"'), ('previous = "last.csv"\n', "")
    changed(plan, *edits, ('pseudo_count = "1/2"', 'base = "naive"'))
    assert run("release", plan, "--to", plan.parent / "out").status == 0
    assert run("verify", plan.parent / "out").status == 0


def test_units_of_a_public_total_are_found_without_comparing_each_with_each():
    compared = []

    class Counted(np.ndarray):
        def __eq__(self, other):
            compared.append(other)
            return super().__eq__(other)

    above = np.array([0, 0, 1, 3, 3, 3]).view(Counted)
    found = one_table._subtotals(above, np.array([5, 6, 0, 7]))
    assert [(list(units), total) for units, total in found] == [
        ([0, 1], 5),
        ([2], 6),
        ([], 0),
        ([3, 4, 5], 7),
    ]
    assert compared == []
