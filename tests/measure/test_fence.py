"""One charge, one draw: a run that is copied, restored or continued on two hosts is published once."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from benchmarks.fault_trial import refused
from tests.conftest import HANG, TINY_PLAN, Ran, run
from tests.measure.test_one_estimate import DATA, MEAN, THETA
from tests.measure.test_one_table import plan as cases  # noqa: F401
from tests.privacy.test_ledger import crash_inside_a_commit

from countveil import Ledger, Secure, Seeded, measure, open_engine, open_release, pipeline
from countveil.base import storage
from countveil.engines.counts import Counts
from countveil.engines.workers import Workers
from countveil.errors import FolderError, Interrupted, LedgerError, Overtaken, VerificationError
from countveil.measure import door, draw_tasks
from countveil.measure.batch_sizes import USUAL_SIZES, BatchSizes
from countveil.measure.digest import parts_digest, rows_digest
from countveil.measure.parts import Parts
from countveil.measure.run import Run, copied_along
from countveil.plan.plans import Plan

ROOM = '[ledger]\ntotal = "8"\n'
WAY_OUT = "draw a new one here with --restart --charge-again"


class Killed(BaseException):
    """Ends a run on the spot: nothing catches it."""


class CountedOnce:
    """The local engine, which counts the same records once: nothing here is about counting."""

    name = "local"

    def __init__(self) -> None:
        self.found: dict[tuple[str, bytes], Counts] = {}

    def tabulate(self, plan: Plan) -> Counts:
        files = b"\0".join(path.read_bytes() for path in sorted(plan.folder.glob("*.csv")))
        key = (plan.counting_digest, files)
        if key not in self.found:
            self.found[key] = open_engine("local").tabulate(plan)
        return self.found[key]

    def workers(self, number: int | None = None) -> AbstractContextManager[Workers]:
        return open_engine("local").workers(number)


ENGINE = CountedOnce()
SMALL = BatchSizes(values_to_draw=14)  # three parts


@pytest.fixture(params=["measurements", "one table"])
def plan(request) -> Path:
    """A plan of each kind, in a folder of its own, so that the ledger is outside what is copied."""
    if request.param == "one table":
        path = request.getfixturevalue("cases")
        path.write_text(path.read_text() + '[ledger]\ntotal = "8"\n')
    else:
        path = request.getfixturevalue("tiny")
        path.write_text(TINY_PLAN + ROOM)
    (path.parent / "here").mkdir()
    return path


def released(plan: Path, where: str = "here", **options):
    folder = plan.parent
    return pipeline.release(
        Plan.load(plan),
        to=folder / where / "out",
        rng=Secure(),
        ledger=folder / "l.sqlite",
        engine=ENGINE,
        **{"sizes": SMALL} | options,
    )


def ledger_of(plan: Path) -> Ledger:
    return Plan.load(plan).ledger(plan.parent / "l.sqlite")


def copied(plan: Path, to: str, of: str = "here") -> None:
    shutil.copytree(plan.parent / of, plan.parent / to)


def verifies(plan: Path, where: str) -> bool:
    try:
        open_release(plan.parent / where / "out").verify(plan.parent / "l.sqlite")
    except VerificationError:
        return False
    return True


def parts_in(plan: Path, where: str = "here") -> dict[str, bytes]:
    internal = plan.parent / where / "out-internal"
    return {
        path.name: path.read_bytes()
        for path in internal.glob("parts/*/*.parquet")
        if not storage.is_temporary(path)
    }


def drawn_in(plan: Path, where: str = "here") -> dict[str, bytes]:
    out = plan.parent / where / "out"
    return {
        path.name: path.read_bytes()
        for folder in ("measurements", "counts")
        for path in (out / folder).glob("*.parquet")
    }


STEPS = {
    "token kept": (Run, "expect"),
    "ledger charged": (Ledger, "take_attempt"),
    "attempt noted": (Run, "hold"),
    "part drawn": (Parts, "keep"),
    "sealed": (Ledger, "seal"),
    "published": (storage, "write_json"),
    "closed": (Run, "close"),
}


def at(monkeypatch, step: str, act, *, before: bool = False) -> None:
    """Do something once, right before or right after a step."""
    owner, name = STEPS[step]
    real, calls = getattr(owner, name), []

    def once(*arguments, **options):
        calls.append(name)
        if len(calls) > 1:
            return real(*arguments, **options)
        if before:
            act()
        result = real(*arguments, **options)
        if not before:
            act()
        return result

    monkeypatch.setattr(owner, name, once)


def kill() -> None:
    raise Killed


def killed(plan, monkeypatch, step: str, *, before: bool = False, **options) -> None:
    with monkeypatch.context() as patch:
        at(patch, step, kill, before=before)
        with pytest.raises(Killed):
            released(plan, **options)


every_moment = pytest.mark.parametrize(
    ("step", "before"), [(step, before) for step in STEPS for before in (True, False)]
)


@every_moment
def test_killed_at_any_moment_the_same_folder_goes_on(plan, monkeypatch, step, before):
    killed(plan, monkeypatch, step, before=before)
    kept = parts_in(plan)
    killed_again = step != "closed" and not (step == "published" and not before)
    if killed_again:
        killed(plan, monkeypatch, "ledger charged")  # and once more, in the worst place
    with monkeypatch.context() as patch:
        # What was drawn before stays: look just before the parts are deleted.
        at(patch, "closed", lambda: seen.update(parts_in(plan)), before=True)
        seen: dict[str, bytes] = {}
        released(plan)
    assert kept.items() <= seen.items()
    assert len(ledger_of(plan).charges()) == 1
    assert verifies(plan, "here")


@every_moment
@pytest.mark.parametrize("first", ["here", "copy"])
def test_of_two_copies_made_at_any_moment_one_is_published(plan, monkeypatch, step, before, first):
    killed(plan, monkeypatch, step, before=before)
    copied(plan, "copy")
    second = "copy" if first == "here" else "here"
    finished = (plan.parent / second / "out" / "manifest.json").exists()
    released(plan, first)
    if finished:
        released(plan, second)
        assert drawn_in(plan, first) == drawn_in(plan, second), "copies of a finished release"
    else:
        before_it = drawn_in(plan, second)
        for _ in range(2):
            with pytest.raises(Overtaken, match=WAY_OUT):
                released(plan, second)
        assert drawn_in(plan, second) == before_it, "nothing is published"
        assert not verifies(plan, second)
    assert verifies(plan, first)
    assert len(ledger_of(plan).charges()) == 1


@pytest.mark.parametrize("step", ["ledger charged", "attempt noted", "part drawn"])
def test_a_run_that_a_copy_overtakes_while_it_draws_publishes_nothing(plan, monkeypatch, step):
    """The copy holds the very token of the run, which is alive: what is sealed first decides."""

    def overtake() -> None:
        copied(plan, "copy")
        released(plan, "copy")

    with monkeypatch.context() as patch:
        at(patch, step, overtake)
        with pytest.raises(
            Interrupted,
            match="measurements other than those of this run|another copy of this run beg",
        ):
            released(plan)
    assert drawn_in(plan) == {}
    with pytest.raises(Overtaken, match=WAY_OUT):
        released(plan)
    assert verifies(plan, "copy")
    assert not verifies(plan, "here")
    assert len(ledger_of(plan).charges()) == 1


def test_a_copy_that_draws_on_while_the_run_is_sealed_publishes_nothing(plan, monkeypatch):
    """Both have all their draws, different ones; the run is sealed while the copy asks to go on."""
    with monkeypatch.context() as patch:
        at(patch, "attempt noted", lambda: copied(plan, "copy"))
        released(plan)
    with pytest.raises(Overtaken, match="is sealed with measurements other"):
        released(plan, "copy")
    # Even with draws of its own, as if it had drawn them in time.
    publish = "_publish" if (plan.parent / "people.csv").exists() else "publish_one_table"
    with monkeypatch.context() as patch:
        patch.setattr(door, publish, kill)
        patch.setattr(Ledger, "seal", lambda *arguments: None)
        patch.setattr(
            Ledger, "take_attempt", lambda *arguments, **options: mock.Mock(number=9, charged=False)
        )
        with pytest.raises(TypeError):  # published is called with more than kill takes
            released(plan, "copy")
    assert parts_in(plan, "copy")
    (line,) = ledger_of(plan).charges()
    state = json.loads((plan.parent / "copy" / "out-internal" / "run.json").read_text())
    with pytest.raises(Overtaken, match="is sealed with measurements other"):
        ledger_of(plan).seal(line.release, state["tokens"], "0" * 64)
    assert verifies(plan, "here")


def test_a_backup_of_the_internal_folder_cannot_draw_again(plan, monkeypatch):
    killed(plan, monkeypatch, "attempt noted")
    backup = plan.parent / "backup"
    internal = plan.parent / "here" / "out-internal"
    shutil.copytree(internal, backup)
    killed(plan, monkeypatch, "sealed", before=True)
    lost = parts_in(plan)
    shutil.rmtree(internal)
    shutil.copytree(backup, internal)
    with pytest.raises(Overtaken, match="at attempt 1, was copied or restored") as caught:
        released(plan)
    assert refused(2, str(caught.value)), "the benchmark of faults knows the message"
    assert lost
    assert parts_in(plan) == {}
    done = released(plan, restart=True, charge_again=True)
    assert len(ledger_of(plan).charges()) == 2
    done.verify(plan.parent / "l.sqlite")


def test_an_older_backup_does_not_lock_out_the_draws_that_were_sealed(plan, monkeypatch):
    """A backup made in the same attempt holds its token, but not all of the draws."""
    internal = plan.parent / "here" / "out-internal"
    with monkeypatch.context() as patch:
        at(patch, "attempt noted", lambda: shutil.copytree(internal, plan.parent / "backup"))
        killed(plan, patch, "sealed")
    sealed = parts_in(plan)
    internal.rename(plan.parent / "sealed")
    shutil.copytree(plan.parent / "backup", internal)
    with pytest.raises(Overtaken, match="is sealed with measurements other") as caught:
        released(plan)
    assert refused(2, str(caught.value)), "the benchmark of faults knows the message"
    assert parts_in(plan) == {}, "refused before anything is drawn"
    shutil.rmtree(internal)
    (plan.parent / "sealed").rename(internal)
    assert parts_in(plan) == sealed
    released(plan)
    assert verifies(plan, "here")


def test_two_hosts_with_one_ledger_finish_one_release(plan, monkeypatch):
    publish = "_publish" if (plan.parent / "people.csv").exists() else "publish_one_table"
    with monkeypatch.context() as patch:
        patch.setattr(door, publish, lambda *a, **o: kill())
        patch.setattr(Ledger, "seal", lambda *a: None)
        with pytest.raises(Killed):
            released(plan, sizes=USUAL_SIZES)  # processes of their own cut parts as usual
    for path in plan.parent.glob("here/out-internal/parts/*/*"):
        path.unlink()  # charged, and nothing drawn yet
    copied(plan, "copy")
    command = [sys.executable, "-m", "countveil", "release", plan, "--quiet"]
    command += ["--ledger", plan.parent / "l.sqlite", "--to"]
    hosts = [
        subprocess.Popen(
            [*command, plan.parent / where / "out"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for where in ("here", "copy")
    ]
    messages = [host.communicate(timeout=HANG)[1].decode() for host in hosts]
    statuses = sorted(host.returncode for host in hosts)
    assert statuses in ([0, 2], [0, 3]), messages
    assert any("--restart --charge-again" in message for message in messages)
    assert sorted([verifies(plan, "here"), verifies(plan, "copy")]) == [False, True]
    assert len(ledger_of(plan).charges()) == 1


def test_a_copy_can_be_paid_for_as_a_release_of_its_own(plan, monkeypatch):
    killed(plan, monkeypatch, "part drawn")
    copied(plan, "copy")
    released(plan)
    done = released(plan, "copy", restart=True, charge_again=True)
    assert len({line.release for line in ledger_of(plan).charges()}) == 2
    assert verifies(plan, "here")
    assert verifies(plan, "copy")
    assert done.manifest["release"] == ledger_of(plan).charges()[1].release


def test_a_copy_of_a_restarted_run_has_a_way_out_too(plan, monkeypatch):
    """The same command again goes on with what a restart began, unless a copy was continued."""
    again = {"restart": True, "charge_again": True}
    killed(plan, monkeypatch, "part drawn")
    killed(plan, monkeypatch, "part drawn", **again)
    copied(plan, "copy")
    killed(plan, monkeypatch, "sealed", **again)
    released(plan, **again)
    assert len(ledger_of(plan).charges()) == 2, "it went on, sealed or not"
    with pytest.raises(Overtaken):
        released(plan, "copy")
    released(plan, "copy", **again)
    released(plan, "copy", **again)
    assert len(ledger_of(plan).charges()) == 3
    assert verifies(plan, "here")
    assert verifies(plan, "copy")


def test_a_charged_run_cannot_change_to_a_ledger_that_does_not_know_it(plan, monkeypatch):
    killed(plan, monkeypatch, "part drawn")
    loaded = Plan.load(plan)
    for name in ("new.sqlite", "used.sqlite"):
        other = loaded.ledger(plan.parent / name)
        if name == "used.sqlite":
            charge = ledger_of(plan).charges()[0]
            other.charge("another release", charge.cost)
        before = other.path.read_bytes() if other.path.exists() else None
        with pytest.raises(
            Overtaken, match="has no charge for release .*, which was charged to ano"
        ):
            pipeline.release(
                loaded,
                to=plan.parent / "here" / "out",
                rng=Secure(),
                ledger=other.path,
                sizes=SMALL,
            )
        assert (other.path.read_bytes() if other.path.exists() else None) == before
    released(plan)


def test_a_ledger_that_was_set_back_is_recognised(plan, monkeypatch):
    killed(plan, monkeypatch, "part drawn")
    ledger = plan.parent / "l.sqlite"
    older = ledger.read_bytes()
    killed(plan, monkeypatch, "sealed", before=True)
    latest = ledger.read_bytes()
    ledger.write_bytes(older)
    with pytest.raises(
        Overtaken, match="is at attempt 1 .* this run is at attempt 2, so the ledger"
    ):
        released(plan)
    ledger.write_bytes(latest)
    released(plan)
    assert verifies(plan, "here")


def as_before_attempts(path: Path) -> None:
    """Set a ledger back to what an earlier version wrote."""
    with sqlite3.connect(path) as new:
        identity = new.execute("SELECT name, value FROM identity").fetchall()
        rows = new.execute(
            "SELECT number, release, currency, amount, charged_on, description FROM charges"
        ).fetchall()
    new.close()
    path.unlink()
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        old.execute(
            "CREATE TABLE charges (number INTEGER PRIMARY KEY AUTOINCREMENT,"
            " release TEXT NOT NULL UNIQUE, currency TEXT NOT NULL, amount TEXT NOT NULL,"
            " charged_on TEXT NOT NULL, description TEXT NOT NULL)"
        )
        old.executemany("INSERT INTO identity VALUES (?, ?)", identity)
        old.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?)", rows)
    old.close()
    path.chmod(0o600)


def without_attempts(internal: Path) -> None:
    state = json.loads((internal / "run.json").read_text())
    del state["attempt"], state["tokens"]
    (internal / "run.json").write_text(json.dumps(state))


def test_a_release_from_before_attempts_still_verifies(plan):
    released(plan)
    ledger, out = plan.parent / "l.sqlite", plan.parent / "here" / "out"
    as_before_attempts(ledger)
    without_attempts(out.with_name("out-internal"))
    before = ledger.read_bytes()
    checks = open_release(out).verify(ledger).checks
    assert "for this release, from before ledgers stored the SHA-256 of measurements" in checks[-1]
    released(plan)
    assert ledger.read_bytes() == before, "nothing is charged, so nothing is written"
    released(plan, "next")
    assert [line.attempt for line in ledger_of(plan).charges()] == [0, 1]
    for where in ("here", "next"):
        assert verifies(plan, where)


@pytest.mark.parametrize("step", ["part drawn", "sealed"])
def test_a_run_that_an_earlier_version_charged_draws_nothing_more(plan, monkeypatch, step):
    """The earlier version may have finished a copy of it, and left no trace of that in the ledger."""
    killed(plan, monkeypatch, step)
    as_before_attempts(plan.parent / "l.sqlite")
    without_attempts(plan.parent / "here" / "out-internal")
    kept = parts_in(plan)
    for restart in (False, True):
        with pytest.raises(FolderError if restart else Overtaken, match="--charge-again"):
            released(plan, restart=restart)
    assert parts_in(plan) == kept
    assert drawn_in(plan) == {}
    assert [line.attempt for line in ledger_of(plan).charges()] == [0]
    released(plan, restart=True, charge_again=True)
    assert verifies(plan, "here")
    assert [line.attempt for line in ledger_of(plan).charges()] == [0, 1]


def test_a_run_is_kept_whose_charge_may_be_in_the_ledger(plan, monkeypatch):
    """The commit became durable, and yet SQLite says that it failed."""
    real = sqlite3.connect

    class Failing(sqlite3.Connection):
        def execute(self, statement, *arguments):
            result = super().execute(statement, *arguments)
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return result

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *a, **o: real(*a, factory=Failing, **o))
        with pytest.raises(Interrupted, match="may or may not be in it"):
            released(plan)
    (line,) = ledger_of(plan).charges()
    assert released(plan).manifest["release"] == line.release
    assert len(ledger_of(plan).charges()) == 1
    assert verifies(plan, "here")


def test_a_release_rolls_back_what_a_crash_left_in_the_ledger(plan, monkeypatch):
    killed(plan, monkeypatch, "part drawn")
    crash_inside_a_commit(plan.parent / "l.sqlite")
    with pytest.raises(LedgerError, match="a crash interrupted a change"):
        ledger_of(plan).charges()
    released(plan)
    assert verifies(plan, "here")
    assert len(ledger_of(plan).charges()) == 1


def test_seals_of_measurements_alone_stay_valid(plan, monkeypatch):
    """As an earlier version wrote them, before a crash and after."""
    killed(plan, monkeypatch, "sealed")
    with sqlite3.connect(plan.parent / "l.sqlite") as ledger:
        ledger.execute("UPDATE charges SET measurements = substr(measurements, 1, 64)")
    ledger.close()
    released(plan)
    (line,) = ledger_of(plan).charges()
    assert len(line.measurements) == 64
    checks = open_release(plan.parent / "here" / "out").verify(plan.parent / "l.sqlite").checks
    assert "it was sealed before seals covered places and invariants" in checks[-1]


def test_a_file_where_parts_are_deleted_stops_nothing(plan, monkeypatch):
    killed(plan, monkeypatch, "part drawn")
    (parts,) = (plan.parent / "here" / "out-internal" / "parts").iterdir()
    parts.with_name(f"{parts.name}-done").write_text("x")
    released(plan)
    assert verifies(plan, "here")
    assert list(parts.parent.iterdir()) == []


def test_a_ledger_in_the_folders_of_the_run_is_refused(plan):
    loaded = Plan.load(plan)
    out = plan.parent / "here" / "out"
    for ledger in (out.with_name("out-internal") / "l.sqlite", out / "l.sqlite"):
        with pytest.raises(LedgerError, match="name a ledger elsewhere"):
            pipeline.release(loaded, to=out, rng=Secure(), ledger=ledger)
        assert list((plan.parent / "here").iterdir()) == []


def test_verify_compares_what_was_drawn_with_the_ledger(tiny):
    """A simulation with the release's name and fresh hashes passes for it, but not by the ledger."""
    tiny.write_text(TINY_PLAN)
    plan, folder = Plan.load(tiny), tiny.parent
    counts = open_engine("local").tabulate(plan)
    ledger = folder / "l.sqlite"
    measure.take(counts, plan, rng=Secure(), ledger=ledger, to=folder / "out")
    open_release(folder / "out").verify(ledger)
    measure.take(counts, plan, rng=Seeded(1), ledger=None, to=folder / "forged")
    honest = json.loads((folder / "out" / "manifest.json").read_text())
    forged = json.loads((folder / "forged" / "manifest.json").read_text())
    for name in ("release", "randomness", "publishable"):
        forged[name] = honest[name]
    (folder / "forged" / "manifest.json").write_text(json.dumps(forged))
    open_release(folder / "forged").verify()
    with pytest.raises(VerificationError, match="was charged rho = 2 for different measurements"):
        open_release(folder / "forged").verify(ledger)


def test_verify_wants_measurements_of_a_charge_that_was_made_since(tiny):
    """A charge by hand, or of a run that never came to its end, vouches for nothing."""
    plan, folder = Plan.load(tiny), tiny.parent
    counts = open_engine("local").tabulate(plan)
    measure.take(counts, plan, rng=Seeded(1), ledger=None, to=folder / "out")
    done = open_release(folder / "out")
    plan.ledger(folder / "l.sqlite").charge(done.manifest["release"], plan.cost)
    with pytest.raises(VerificationError, match="but not the SHA-256 of its measurements"):
        done.verify(folder / "l.sqlite", simulation=True)


def test_an_estimate_is_fenced_as_well(tmp_path, monkeypatch):
    book = Ledger(
        tmp_path / "l.sqlite", "d", "person", "change-one", None, beside_public=Fraction(1)
    )

    def drawn(where: str):
        return measure.draw_estimate(
            MEAN,
            DATA,
            title="A mean",
            theta=THETA,
            coupling="one record replaced",
            rng=Secure(),
            ledger=book,
            to=tmp_path / where / "out",
        )

    with monkeypatch.context() as patch:
        at(patch, "attempt noted", kill)
        with pytest.raises(Killed):
            drawn("here")
    shutil.copytree(tmp_path / "here", tmp_path / "copy")
    drawn("here")
    with pytest.raises(Overtaken):
        drawn("copy")
    (line,) = book.charges()
    assert line.measurements == storage.sha256(tmp_path / "here" / "out" / "estimate.json")


def test_a_part_that_is_gone_is_not_published(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    with monkeypatch.context() as patch:
        patch.setattr(door, "_draw", lambda *arguments: None)
        with pytest.raises(
            Interrupted, match="a part that was drawn is missing.*the charge stands"
        ):
            released(tiny, "here")
    released(tiny, "here")


def test_a_run_whose_attempt_cannot_be_read_is_refused(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    killed(tiny, monkeypatch, "part drawn")
    path = tiny.parent / "here" / "out-internal" / "run.json"
    for text in (json.dumps({**json.loads(path.read_text()), "attempt": "first"}), "[]"):
        path.write_text(text)
        with pytest.raises(FolderError, match="not readable as a run"):
            released(tiny)


# The command line.


def test_a_folder_that_init_wrote_and_cp_copied_is_released_once(tmp_path, monkeypatch):
    """The attack: killed after the charge, copied with `cp -r`, finished in both places."""
    place, copy = tmp_path / "place", tmp_path / "elsewhere" / "place"
    assert run("init", place, "--people", 100).status == 0
    with monkeypatch.context() as patch:
        at(patch, "attempt noted", kill)
        with pytest.raises(Killed):
            run("release", place / "plan.toml", "--to", place / "out", "--quiet")
    shutil.copytree(place, copy)
    ledger = tmp_path / "place-ledger.sqlite"
    first, second = (
        run("release", at / "plan.toml", "--to", at / "out", "--quiet") for at in (copy, place)
    )
    assert (first.status, second.status) == (0, 2)
    assert first.err == "", "no warning: the ledger is not in what was copied"
    assert WAY_OUT in second.err
    assert run("verify", copy / "out", "--ledger", ledger).status == 0
    assert run("verify", place / "out", "--ledger", ledger).status == 2
    assert len(Plan.load(place / "plan.toml").ledger().charges()) == 1
    again = ("--restart", "--charge-again")
    ran = run("release", place / "plan.toml", "--to", place / "out", "--quiet", *again)
    assert ran.status == 0
    assert run("verify", place / "out", "--ledger", ledger).status == 0
    assert len(Plan.load(place / "plan.toml").ledger().charges()) == 2


def test_a_copied_project_with_its_ledger_inside_warns_in_both_places(tmp_path, monkeypatch):
    """The attack that no fence can stop: each copy has a ledger that does not know the other."""
    project, copy = tmp_path / "project", tmp_path / "elsewhere" / "project"
    assert run("init", project, "--people", 100).status == 0
    plan = project / "plan.toml"
    path = json.dumps(str(tmp_path / "project-ledger.sqlite"))
    assert path in plan.read_text()
    plan.write_text(plan.read_text().replace(path, '"ledger.sqlite"'))

    def release(folder: Path) -> Ran:
        out = folder / "runs" / "out"
        return run("release", folder / "plan.toml", "--to", out, "--quiet")

    with monkeypatch.context() as patch:
        at(patch, "attempt noted", kill)
        with pytest.raises(Killed):
            release(project)
    shutil.copytree(project, copy)
    for folder in (project, copy):
        ran = release(folder)
        assert ran.status == 0
        assert "is in the same folder as the release and its plan" in ran.err
        assert "each copy could draw for the same charge" in ran.err


def test_release_warns_of_a_ledger_that_a_copy_of_its_project_includes(tiny):
    folder = tiny.parent
    outside = folder.parent / f"{folder.name}.sqlite"
    tiny.write_text(TINY_PLAN + ROOM)
    release = ("release", tiny, "--quiet", "--to")

    def warning(*arguments: object) -> str:
        ran = run(*release, *arguments)
        assert ran.status == 0
        return ran.err

    assert warning(folder / "a", "--ledger", outside) == ""
    assert warning(folder / "runs" / "a", "--ledger", outside) == ""
    found = warning(folder / "b")
    assert found.startswith("warning: ")
    assert "is in the same folder as the release and its plan" in found
    assert "move the ledger elsewhere and give its new path" in found
    assert warning(folder / "b") == "", "it is released already"
    assert warning(folder / "runs" / "b") != "", "the plan's, one folder up"
    (folder / "ledgers").mkdir()
    assert warning(folder / "c", "--ledger", folder / "ledgers" / "l.sqlite") != "", "in another"
    (folder / "linked").symlink_to(folder)
    found = warning(folder / "d", "--ledger", folder / "linked" / "l.sqlite")
    assert found.startswith("warning: "), "wherever its name leads"
    outside.unlink()


A, B = Path("/a"), Path("/b")


@pytest.mark.parametrize(
    ("ledger", "out", "plan", "together"),
    [
        # As `init` and `demo` write it: next to the project, which has everything else in it.
        (A / "p-ledger.sqlite", A / "p" / "out", A / "p", None),
        (A / "p-ledger.sqlite", A / "p" / "runs" / "out", A / "p", None),
        (B / "l.sqlite", A / "p" / "out", A / "p", None),
        # In the project, however deep.
        (A / "p" / "l.sqlite", A / "p" / "out", A / "p", (A / "p", "the release and its plan")),
        (
            A / "p" / "l.sqlite",
            A / "p" / "r" / "out",
            A / "p",
            (A / "p", "the release and its plan"),
        ),
        (
            A / "p" / "l" / "l.sqlite",
            A / "p" / "out",
            A / "p",
            (A / "p", "the release and its plan"),
        ),
        # Plan and run in two folders: the project is what contains both.
        (A / "l.sqlite", A / "runs" / "out", A / "plans", (A, "the release and its plan")),
        (
            A / "plans" / "l.sqlite",
            A / "runs" / "out",
            A / "plans",
            (A, "the release and its plan"),
        ),
        # Nothing but the root contains both: each is copied alone.
        (Path("/l.sqlite"), A / "out", B, None),
        (A / "l.sqlite", A / "out", B, (A, "the release")),
        (B / "l.sqlite", A / "out", B, (B, "the plan")),
        (A / "l.sqlite", A / "runs" / "out", B, None),
        # The root is not copied, but the folders of the run are.
        (Path("/l.sqlite"), Path("/out"), Path("/"), None),
        (Path("/out/l.sqlite"), Path("/out"), Path("/"), (Path("/out"), "the release")),
    ],
)
def test_what_a_copy_of_a_run_includes(ledger, out, plan, together):
    assert copied_along(ledger, out, plan) == together


def test_with_json_the_warning_is_in_the_document(tiny):
    ran = run("release", tiny, "--to", tiny.parent / "out", "--json")
    assert ran.status == 0
    (warning,) = ran.document()["warnings"]
    assert "is in the same folder as the release" in warning


# The digest.


def rows(values: list[list[int]], geocodes: list[str]) -> pa.Table:
    return pa.table({"geocode": geocodes, "values": pa.array(values, pa.list_(pa.int32()))})


def test_a_digest_is_of_the_rows_however_a_file_packs_them():
    whole = rows([[1, 2], [3], [], [4, 5, 6]], ["a", "bc", "", "ü"])
    names = ("geocode", "values")
    expected = rows_digest(whole, names)
    for cut in range(5):
        assert rows_digest(pa.concat_tables([whole[:cut], whole[cut:]]), names) == expected
    longer = pa.concat_tables([rows([[9]], ["before"]), whole, rows([[9]], ["after"])])
    assert rows_digest(longer.combine_chunks()[1:5], names) == expected
    for other in (
        rows([[1, 2], [3], [], [4, 5, 7]], ["a", "bc", "", "ü"]),
        rows([[1], [2, 3], [], [4, 5, 6]], ["a", "bc", "", "ü"]),
        rows([[1, 2], [3], [], [4, 5, 6]], ["ab", "c", "", "ü"]),
        rows([[3], [1, 2], [], [4, 5, 6]], ["a", "bc", "", "ü"]),
        whole[:3],
    ):
        assert rows_digest(other, names) != expected
    assert rows_digest(whole, names[:1]) != expected
    parts = [("area", "1"), ("block", "2"), ("block", "3")]
    wholes = {parts_digest(some) for some in (parts, parts[:2], parts[::-1], [("area", "2")])}
    assert len(wholes) == 4


def test_a_part_without_a_digest_is_unpacked(plan, monkeypatch):
    """A run that an earlier version began has such parts."""
    with monkeypatch.context() as patch:
        patch.setattr(draw_tasks, "_DIGEST", b"something else")
        killed(plan, monkeypatch, "sealed", before=True)
    released(plan)
    assert verifies(plan, "here")
