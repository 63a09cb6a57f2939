"""`assess` and `choose` as a stranger uses them."""

import json
from fractions import Fraction

import pytest
from tests.conftest import TINY_PLAN, run

from countveil import Seeded, pipeline
from countveil.base import words
from countveil.cli.command_line import ending_well
from countveil.errors import CountveilError
from countveil.plan.plans import Plan


@pytest.fixture
def out(tiny):
    folder = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=folder, rng=Seeded(2))
    return folder


def test_assess_says_what_a_release_discloses(out, tiny):
    ran = run("assess", "presence", out, "--prior", "0.1", "--prior", "0.5", "--quiet")
    assert ran.status == 0, ran.err
    worst = Plan.load(tiny).risk(prior=0.1)
    text = " ".join(ran.out.split())
    assert worst.upper_bound
    assert f"on average, at most {words.multiple(worst.value)} times their prior." in text
    assert "presence" in text
    assert not any((out.parent / "out-internal").glob("risk*"))


def test_assess_as_json_and_its_levels(out):
    ran = run("assess", "presence", out, "--prior", "0.1", "--level", "region", "--json", "--quiet")
    document = ran.document()
    assert document["audience"] == "public"
    assert document["level"] == "region"
    assert {item["attack"] for item in document["attacks"]} == {
        "presence",
        "unknown attribute: AGE",
        "unknown attribute: SEX",
        "whole record",
    }
    assert document["tables"][0]["rows"][0][0] == "presence"
    maps = run("assess", "map", out, "--prior", "0.1", "--json", "--quiet").document()["maps"]
    assert [item["audience"] for item in maps] == ["public"]
    for item in document["attacks"]:
        assert 1 <= item["marginal_risk"] <= 10
        assert 0 <= item["correct_decision"] <= 1


def test_the_internal_map_is_written_to_the_internal_folder_alone(out, tiny):
    before = {path.name for path in out.rglob("*")}
    ran = run("assess", "map", out, "--internal", "--plan", tiny, "--prior", "0.1", "--quiet")
    assert ran.status == 0, ran.err
    assert "INTERNAL" in ran.out
    assert {path.name for path in out.rglob("*")} == before
    internal = out.parent / "out-internal"
    written = sorted(path.name for path in internal.glob("risk*"))
    assert written == ["risk-worst.parquet", "risk.json", "risk.parquet"]
    assert all((internal / name).stat().st_mode & 0o077 == 0 for name in written)
    assert json.loads((internal / "risk.json").read_text())["audience"] == "internal"


def test_the_plan_beside_a_release_is_found(out, tiny, tmp_path_factory):
    assert run("assess", "map", out, "--internal", "--prior", "0.1", "--quiet").status == 0
    tiny.rename(tiny.with_name("other.toml"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    ran = run("assess", "map", out, "--internal", "--quiet", cwd=elsewhere)
    assert ran.status == 2
    assert "of this release next to it or here; name its plan with --plan" in " ".join(
        ran.err.split()
    )


def test_the_public_summary_is_the_same_for_any_records(tiny):
    """The same measurements, other records: not a byte differs."""
    plan, folder = Plan.load(tiny), tiny.parent / "out"
    pipeline.release(plan, to=folder, rng=Seeded(2))
    first = run("assess", "presence", folder, "--quiet", "--json").out
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().splitlines()[0] + "\n")
    assert run("assess", "presence", folder, "--quiet", "--json").out == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plan", "plan.toml"], "--plan: has no effect without --internal"),
        (["--level", "town"], "unknown level 'town'; choose from region, area"),
        (["--places", "town"], "unknown level 'town'; choose from region, area"),
        (["--prior", "2"], "prior: 2.0 is not allowed; it must be between 0 and 1"),
        (["--places", "area", "--level", "region"], "places: area is below region"),
    ],
)
def test_assess_refuses_what_it_cannot_do(out, words, message):
    ran = run("assess", "map", out, *words, "--quiet")
    assert ran.status == 2
    assert message in ran.err


def test_assess_refuses_records_of_another_plan(out, tiny):
    other = tiny.with_name("other.toml")
    other.write_text(tiny.read_text().replace('rho = "2"', 'rho = "1"'))
    ran = run("assess", "map", out, "--internal", "--plan", other, "--quiet")
    assert ran.status == 2
    assert "measures something other than" in ran.err


def test_choose_for_one_count():
    ran = run("choose", "--risk", "1.25", "--prior", "0.2")
    assert ran.status == 0
    assert ran.out.startswith("rho = 0.195926197")
    document = run(
        "choose", "--risk", "1.25", "--prior", "0.2", "--prior", "0.5", "--json"
    ).document()
    assert Fraction(document["rho"]) == Fraction("0.195926197859")
    assert document["outcomes"][0]["marginal_risk"] == pytest.approx(1.25)
    assert document["outcomes"][1]["marginal_risk"] < 1.25
    ran = run("choose", "--correct", "0.6", "--epsilon")
    assert ran.out.startswith("epsilon = ")


def test_choose_for_a_plan_gives_lines_that_keep_the_limit(tiny):
    ran = run("choose", tiny, "--risk", "1.4", "--prior", "0.1", "--json")
    document = ran.document()
    (worst,) = document["risks"]
    assert worst["marginal_risk"] == pytest.approx(1.4, rel=1e-3)
    assert document["settled"] is False
    assert sum(Fraction(spent) for spent in document["levels"].values()) == Fraction(
        document["rho"]
    )
    text = run("choose", tiny, "--risk", "1.4", "--prior", "0.1").out
    line = text[text.index("[budget]") :].splitlines()[1]
    assert line == f'rho = "{float(Fraction(document["rho"])):.4g}"', "a short decimal"
    risks = []
    for factor in ("1", "1.01"):
        rho = Fraction(line.split('"')[1]) * Fraction(factor)
        changed = tiny.read_text().replace('rho = "2"', f'rho = "{rho}"')
        risks.append(Plan.parse(changed, folder=tiny.parent).risk(prior=0.1).value)
    assert risks[0] <= 1.4 < risks[1], "the limit is kept, and used up"


PUBLIC_TOTALS = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "published already"\n'


def test_choose_is_above_a_limit_that_public_totals_break_at_any_budget(tiny):
    """The limit it keeps is on noisy counts; the plan's own is on everything that is published."""
    knows = '[intruder]\nknows = "region"\npriors = [0.02]\nlimit = 4.0\n'
    tiny.write_text(TINY_PLAN + PUBLIC_TOTALS + knows)
    ran = run("choose", tiny, "--risk", "4", "--json")
    document = ran.document()
    assert document["risks"][0]["marginal_risk"] <= 4
    assert document["settled"] is True
    assert document["above_limit"] is True
    assert ran.status == 1
    ran = run("choose", tiny, "--risk", "4")
    assert "the largest risk is 50 times the prior" in " ".join(ran.out.split())
    assert ran.status == 1


def test_choose_for_one_attack_is_not_settled_by_counts_that_settle_another(tiny):
    tiny.write_text(TINY_PLAN + PUBLIC_TOTALS + '[intruder]\nknows = "region"\npriors = [0.02]\n')
    ran = run("choose", tiny, "--risk", "4", "--attribute", "AGE", "--json")
    assert ran.document()["settled"] is False
    text = run("choose", tiny, "--risk", "4", "--attribute", "AGE").out
    assert "at any budget" not in text


def test_choose_by_accuracy(tiny):
    ran = run("choose", "--accuracy", "area TOTAL ±1% at 95%", cwd=tiny.parent)
    assert ran.status == 0, ran.err
    words = " ".join(ran.out.split())
    assert "is within ±100 (1 % of 10,000 people, the default size)" in words
    ran = run("choose", tiny, "--accuracy", "area TOTAL ±5 at 90%", "--json")
    assert Fraction(ran.document()["rho"]) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prior", "0.1"], "give a limit: risk, posterior or correct"),
        (["--risk", "20", "--prior", "0.1"], "risk: 20 is not allowed with prior 0.1"),
        (
            ["--accuracy", "area TOTAL ±1 at 95%", "--risk", "1.5"],
            "--accuracy and a limit on risk were given; give exactly one",
        ),
        (["--accuracy", "nonsense"], "is not understood; write it like"),
        (
            ["--accuracy", "area TOTAL ±1 at 95%"],
            "--accuracy needs a plan, and there is no plan.toml here; name a plan file",
        ),
    ],
)
def test_choose_refuses_what_it_cannot_do(words, message, tmp_path):
    ran = run("choose", *words, cwd=tmp_path)
    assert ran.status == 2
    assert message in ran.err


def test_choose_for_a_plan_takes_one_limit(tiny):
    ran = run("choose", tiny, "--correct", "0.6", "--prior", "0.5", "--json")
    (risk,) = ran.document()["risks"]
    assert 0.595 < risk["correct_decision"] <= 0.6
    for given in (["--correct", "0.6", "--risk", "1.5"], [], ["--risk", "1.5", "--epsilon"]):
        ran = run("choose", tiny, *given)
        assert ran.status == 2
        assert "give one of --risk, --posterior and --correct" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("lens", "given", "of"),
    [
        ("loss", ["--internal", "--by", "area"], "release"),
        ("loss", ["--strata"], "release"),
        ("homogeneity", ["--internal", "--mechanism", "laplace"], "release"),
        ("homogeneity", ["--sensitive", "SEX", "--engine", "local"], "file"),
        ("loss", ["--strata"], "file"),
    ],
)
def test_options_that_would_do_nothing_are_refused(out, lens, given, of):
    """A reader would take the answer for that of the option."""
    what = out if of == "release" else out.parent / "people.csv"
    ran = run("assess", lens, what, *given)
    assert ran.status == 2
    name = [word for word in given if word.startswith("--")][-1]
    assert f"{name}: has no effect with " in ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["OUT"], "countveil assess presence OUT"),
        (["OUT", "--lens", "loss"], "countveil assess loss OUT"),
        (["OUT", "--lens", "intruder"], "countveil assess presence OUT"),
        (["--lens", "loss", "OUT"], "countveil assess loss OUT"),
        (["--lens=loss", "OUT", "--json"], "countveil assess loss OUT --json"),
        (["presence", "OUT", "--lens", "loss"], "countveil assess loss OUT"),
        (["--json", "OUT"], "countveil assess presence OUT --json"),
        (["--json", "margin", "OUT"], "countveil assess margin OUT --json"),
        (["--prior", "0.1", "OUT"], "countveil assess presence OUT --prior 0.1"),
        (["--level", "area", "-q", "map", "OUT"], "countveil assess map OUT --level area -q"),
        (["intruder", "OUT"], "countveil assess presence OUT"),
        (["OUT", "--map"], "countveil assess map OUT"),
        (["presence", "OUT", "--map", "--json"], "countveil assess map OUT --json"),
    ],
)
def test_the_old_words_give_a_hint(out, words, hint):
    ran = run("assess", *(str(out) if word == "OUT" else word for word in words))
    assert ran.status == 2
    assert f"`{hint.replace('OUT', str(out))}`" in ran.err


@pytest.mark.parametrize("lens", ["loss", "published", "margin", "map"])
def test_what_is_not_a_release_says_what_it_is(out, tmp_path, lens):
    (tmp_path / "notes.txt").write_text("nothing")
    plan = tmp_path / "plan.toml"
    plan.write_text("")
    (tmp_path / "empty").mkdir()
    for command in (("assess", lens), ("report",), ("verify",), ("intervals",)):
        for name, what in (("nowhere", "not found"), ("empty", "it has no manifest.json")):
            more = ("--level", "area") if command == ("intervals",) else ()
            ran = run(*command, tmp_path / name, *more)
            assert ran.status == 2
            assert what in ran.err, (command, name)
            assert "name a release folder" in ran.err
    for command in ("report", "verify"):
        assert "is a file; name a release folder" in run(command, plan).err


def test_an_unknown_lens_names_those_there_are(out):
    ran = run("assess", "losses", out)
    assert ran.status == 2
    assert "unknown lens 'losses'; choose from " in ran.err
    assert "presence" in ran.err


def test_a_price_names_the_levels_that_what_is_public_settles(tiny):
    text = tiny.read_text()
    assert "certain" not in run("price", tiny).out
    tiny.write_text(text + '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "law"\n')
    rows = [line.split() for line in run("price", tiny).out.splitlines() if "certain" in line]
    assert rows == [["region", *["certain"] * 4, "presence"]]
    found = {item["level"]: item for item in run("price", tiny, "--json").document()["levels"]}
    assert {risk["settled"] for risk in found["region"]["risk"]} == {True}
    assert {risk["settled"] for risk in found["area"]["risk"]} == {False}
    total = next(error for error in found["region"]["expected_error"] if error["query"] == "TOTAL")
    assert (total["standard_error"], total["combined_absolute_error"]) == (0, 0)
    assert total["standard_deviation"] > 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("release", "stopped; to resume a release, run the same command again"),
        ("assess_published", "stopped"),
    ],
)
def test_only_what_can_be_resumed_says_how(name, message):
    def interrupted():
        raise KeyboardInterrupt

    interrupted.__name__ = name
    with pytest.raises(CountveilError) as stopped:
        ending_well(interrupted)()
    assert str(stopped.value) == message
    assert stopped.value.exit_status == 130
