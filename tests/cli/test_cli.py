"""The command line as a stranger uses it: outputs, messages, exit statuses, nothing left behind."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN, run, run_process, write_people

from countveil import Plan, pipeline
from countveil.measure.run import copied_along


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_from_init_to_package(tmp_path):
    ran = run_process("init", tmp_path / "start", "--people", "300", "--json")
    assert ran.status == 0
    assert len(ran.document()["written"]) == 4
    plan, out = tmp_path / "start" / "plan.toml", tmp_path / "start" / "out"
    ledger = tmp_path / "start-ledger.sqlite"
    assert Path(ran.document()["ledger"]).resolve() == ledger.resolve()
    ran = run("check", plan)
    assert (ran.status, ran.out) == (0, f"{plan}: valid; a release would cost rho = 1\n")
    assert run("price", plan).status == 0
    ran = run_process("release", plan, "--to", out)
    assert ran.status == 0
    said = ran.out.removeprefix(f"{out}: released for rho = 1; ").removesuffix(
        " has rho = 2 left\n"
    )
    assert Path(said).resolve() == ledger.resolve()
    assert "measuring block" in ran.err, "progress goes to stderr"
    assert "warning" not in ran.err
    ran = run("verify", out, "--ledger", ledger, "--json")
    assert ran.status == 0
    assert len(ran.document()["verified"]) == 7
    ran = run("package", out)
    assert (ran.status, ran.out) == (0, f"{out}.zip\n")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demonstration, run once: what it printed, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    return run("demo", "--to", folder, "--people", "2000", "--quiet"), folder


def test_demo_makes_a_release_and_says_what_came_out(demo):
    ran, folder = demo
    assert ran.status == 0, ran.err
    assert ran.err == ""
    for words in (
        "The plan spends rho = 2.556226",
        "epsilon = 17.15",
        "Marginal risk",
        "Verified:",
        "Written:",
    ):
        assert words in " ".join(ran.out.split())
    for line in ran.out.split("Written:")[1].split("Next:")[0].split():
        assert Path(line).exists()
    again = run("demo", "--to", folder)
    assert again.status == 2
    assert "is not empty; name a new folder" in again.err


def test_what_demo_writes_keeps_the_ledger_outside_the_folder(demo, tmp_path):
    folder = demo[1]
    ledger = folder.with_name("demo-ledger.sqlite")
    assert len(Plan.load(folder / "plan.toml").ledger(ledger).charges()) == 1
    assert not list(folder.rglob("*.sqlite"))
    assert Plan.load(folder / "plan.toml").ledger_path == ledger
    assert copied_along(ledger, folder / "out", folder) is None, "release does not warn"
    folder = tmp_path / "demo"  # a folder that is gone, whose ledger is still there
    ledger = shutil.copy(ledger, tmp_path)
    again = run("demo", "--to", folder, "--quiet")
    assert again.status == 2
    assert f"{ledger}: exists already" in again.err
    assert "name another folder" in again.err
    assert not folder.exists()


def test_price_prints_everything_as_json(tiny):
    tiny.write_text(TINY_PLAN + "[intruder]\npriors = [0.5, 0.02]\n")
    ran = run("price", tiny, "--json")
    assert ran.status == 0
    document = ran.document()
    assert document["rho"] == "2"
    assert document["delta"] == "1/10000000000"
    assert document["epsilon"] == pytest.approx(14.9, abs=0.1)
    assert document["tight_epsilon"] < document["epsilon"]
    area = document["levels"][1]
    assert (area["level"], area["rho"]) == ("area", "1")
    assert [query["query"] for query in area["queries"]] == ["TOTAL", "AGE*SEX"]
    assert area["queries"][0]["mechanism"] == {"name": "discrete-gaussian", "sigma2": "4"}
    assert area["queries"][0]["standard_deviation"] == pytest.approx(2)
    assert [risk["prior"] for risk in area["risk"]] == [0.5, 0.02]
    assert all(1 < risk["marginal_risk"] < 1 / risk["prior"] for risk in area["risk"])


def test_price_reads_no_record_and_needs_no_crosswalk(tiny):
    (tiny.parent / "people.csv").unlink()
    (tiny.parent / "places.csv").unlink()
    assert run("price", tiny).status == 0
    pure = TINY_PLAN.replace('rho = "2"', 'epsilon = "1"')
    tiny.write_text(pure)
    ran = run("price", tiny)
    assert "epsilon = 1 of pure differential privacy" in ran.out
    assert run("price", tiny, "--json").document()["epsilon"] == "1"


def test_a_risk_above_the_limit_exits_1_and_releases_nothing(tiny):
    tiny.write_text(TINY_PLAN + "[intruder]\npriors = [0.02]\nlimit = 1.2\n")
    for command in ("price", "check", "release"):
        before = files(tiny.parent)
        ran = run(command, tiny, *(("--to", tiny.parent / "out") if command == "release" else ()))
        assert ran.status == 1
        assert "limit" in ran.out + ran.err
        assert files(tiny.parent) == before
    ran = run("release", tiny, "--to", tiny.parent / "out", "--above-limit")
    assert ran.status == 0


def test_a_limit_that_what_is_public_breaks_exits_1_and_says_so(tiny):
    within = TINY_PLAN + "[intruder]\npriors = [0.5]\nlimit = 1.99\n"
    known = '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "known"\n'
    tiny.write_text(within)
    assert run("price", tiny).status == 0
    tiny.write_text(within + known)
    for command in ("price", "check", "release"):
        before = files(tiny.parent)
        ran = run(command, tiny, *(("--to", tiny.parent / "out") if command == "release" else ()))
        assert ran.status == 1
        assert "exactly published counts give the answer" in " ".join((ran.out + ran.err).split())
        assert files(tiny.parent) == before
    assert run("release", tiny, "--to", tiny.parent / "out", "--above-limit").status == 0


def test_check_prints_the_json_schema():
    ran = run("check", "--json-schema")
    assert ran.status == 0
    assert ran.document()["title"] == "PlanFile"
    assert run("check").status == 2


def bad_category(folder):
    write_people(folder / "people.csv", [("A1", "old", "secret")])


def bad_places(text):
    return lambda folder: (folder / "places.csv").write_text(text)


def bad_plan(old, new):
    def change(folder):
        text = (folder / "plan.toml").read_text()
        assert old in text
        (folder / "plan.toml").write_text(text.replace(old, new))

    return change


def spent_ledger(folder):
    first = folder / "first.toml"
    first.write_text((folder / "plan.toml").read_text())
    assert run("release", first, "--to", folder / "first", "--quiet").status == 0


def another_plan_in_the_folder(folder):
    spent_ledger(folder)
    (folder / "first").rename(folder / "out")
    (folder / "first-internal").rename(folder / "out-internal")
    bad_plan('rho = "2"', 'rho = "1"')(folder)


def other_records_in_the_folder(folder):
    spent_ledger(folder)
    (folder / "first").rename(folder / "out")
    (folder / "first-internal").rename(folder / "out-internal")
    write_people(folder / "people.csv", TINY_PEOPLE[2:])


BAD_INPUT = {
    "unknown category": (bad_category, ["people.csv: row 1: column SEX", "choose from f, m, x"]),
    "missing code": (
        bad_places("region,area\nR1,\n"),
        ["places.csv: row 1: the code in column 'area' is missing"],
    ),
    "duplicate code": (
        bad_places("region,area\nR1,A1\nR1,A1\n"),
        ["rows 1, 2: area A1 is listed twice"],
    ),
    "two parents": (
        bad_places("region,area\nR1,A1\nR2,A1\n"),
        ["area A1 is in region R1 and in region R2"],
    ),
    "level missing": (
        bad_places("area\nA1\n"),
        ["column 'region' is missing, and geography.levels names it"],
    ),
    "shares": (
        bad_plan('area = "1/2"', 'area = "1/4"'),
        ["plan.toml: budget.levels", "must sum to 1"],
    ),
    "float": (
        bad_plan('rho = "2"', "rho = 2.0"),
        ["budget.rho: 2.0 is a float", "write it as text"],
    ),
    "empty file": (lambda f: (f / "people.csv").write_text(""), ["people.csv: the file is empty"]),
    "not Parquet": (
        lambda f: (
            (f / "people.parquet").write_bytes(b"junk" * 100),
            bad_plan("people.csv", "people.parquet")(f),
        ),
        ["people.parquet: cannot be read as Parquet"],
    ),
    "negative counts": (
        lambda f: (
            (f / "t.csv").write_text("area,AGE,SEX,n\nA1,old,f,-4\n"),
            bad_plan('path = "people.csv"', 'path = "t.csv"\ncounts = "n"')(f),
        ),
        ["t.csv: row 1: column of counts: a negative count"],
    ),
    "no such file": (lambda f: (f / "people.csv").unlink(), ["people.csv: does not exist"]),
    "overspent ledger": (
        spent_ledger,
        ["ledger.sqlite: the plan costs rho = 2", "only rho = 0 is left"],
    ),
    "another plan": (another_plan_in_the_folder, ["out: was started with another plan"]),
    "other records": (other_records_in_the_folder, ["out: was started with other records"]),
    "a file in the way": (lambda f: (f / "out").write_text("x"), ["out: has other files in it"]),
    "not a ledger": (
        lambda f: (f / "ledger.sqlite").write_bytes(b"x" * 9999),
        ["not usable as a ledger"],
    ),
}


@pytest.mark.parametrize("kind", BAD_INPUT)
def test_bad_input_exits_2_with_a_message_and_leaves_everything_as_it_was(tiny, kind):
    spoil, words = BAD_INPUT[kind]
    folder = tiny.parent
    spoil(folder)
    before = files(folder)
    ran = run("release", tiny, "--to", folder / "out", "--quiet")
    assert ran.status == 2, ran.err
    assert ran.out == ""
    for word in words:
        assert word in ran.err
    assert "Traceback" not in ran.err
    assert "secret" not in ran.err
    after = files(folder)
    log = {name for name in after if name.endswith("log.jsonl")}
    assert {n: b for n, b in after.items() if n not in log} == {
        n: b for n, b in before.items() if n not in log
    }


def test_show_values_quotes_the_value(tiny):
    bad_category(tiny.parent)
    assert "'secret'" in run("check", tiny, "--show-values").err
    assert "secret" not in run("check", tiny).err


def test_errors_are_json_when_json_is_asked_for(tiny):
    ran = run("price", tiny.parent / "none.toml", "--json")
    assert ran.status == 2
    document = json.loads(ran.err)
    assert document["error"] == "PlanError"
    assert document["exit"] == 2


def test_usage_errors_exit_2():
    assert run("release").status == 2
    assert run("nonsense").status == 2
    assert run("verify", "/nonexistent-folder").status == 2


def test_a_fault_of_ours_shows_its_place_and_not_its_text(tiny, monkeypatch):
    def broken(*arguments, **options):
        raise ZeroDivisionError("count was 4711")

    monkeypatch.setattr(pipeline, "price", broken)
    ran = run("price", tiny)
    assert ran.status == 70
    assert "a bug in countveil (ZeroDivisionError at" in ran.err
    assert "4711" not in ran.err


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "init",
        "check",
        "price",
        "release",
        "postprocess",
        "verify",
        "package",
        "assess presence",
        "assess loss",
        "assess homogeneity",
        "assess map",
        "assess public",
        "assess realised-error",
        "choose",
        "status",
    ],
)
def test_every_command_has_help_with_an_example(command):
    ran = run(*command.split(), "--help", env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"})
    assert ran.status == 0
    assert f"Example: countveil {command}" in " ".join(ran.out.split())


def test_help_lists_commands_in_the_order_of_the_work():
    shown = run("--help", env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}).out
    lines = [line.split() for line in shown.partition("Commands")[2].splitlines()]
    listed = [words[1] for words in lines if words[:1] == ["│"]]
    work = ["demo", "init", "check", "price", "release", "postprocess", "verify", "package"]
    others = listed[len(work) : -1]
    assert listed == [*work, *sorted(others), "assess"]
    assert len(others) == 8


def test_what_does_not_fit_in_memory_is_a_message_and_no_fault(tiny, monkeypatch):
    def full(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(pipeline, "price", full)
    ran = run("price", tiny)
    assert ran.status == 2
    assert "error: out of memory" in ran.err
