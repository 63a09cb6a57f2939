"""`countveil status`: where a run stands, at every moment of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.conftest import TINY_PLAN, run

from countveil import Secure, Seeded, pipeline
from countveil.base import storage
from countveil.cli import status_command
from countveil.congenial.guarantee.partial_privacy import Theta
from countveil.congenial.mechanism.k_norm import KNormGradient
from countveil.errors import FolderError, InputError, Interrupted
from countveil.measure import door, draw_estimate
from countveil.measure.batch_sizes import BatchSizes
from countveil.plan.plans import Plan
from countveil.postprocess import topdown
from countveil.publish import run_status, status_of

TOP_DOWN = TINY_PLAN + '[postprocess]\nmethod = "top-down"\n'


def released(plan, **options):
    folder = plan.parent
    return pipeline.release(
        Plan.load(plan), to=folder / "out", rng=Secure(), ledger=folder / "l.sqlite", **options
    )


def test_a_run_is_seen_from_its_begin_to_its_end(tiny):
    tiny.write_text(TOP_DOWN)
    out = tiny.parent / "out"
    seen = []

    def look(stage, level, done, units):
        if stage == "rehearsing":
            assert not out.exists(), "the rehearsal comes before anything is written"
        else:
            seen.append((stage, level, done, status_of(out)))

    with pytest.raises(
        InputError, match="no release was started there; if one is counting its records"
    ):
        status_of(out)
    released(tiny, progress=look, sizes=BatchSizes(values_to_draw=14))
    assert [(stage, level, done) for stage, level, done, _ in seen][:3] == [
        ("measuring", "region", 2),
        ("measuring", "area", 2),
        ("measuring", "area", 5),
    ]
    first = seen[0][3]
    assert (first.state, first.charged, first.process) == ("begun", True, os.getpid())
    later = seen[2][3]
    assert (later.state, later.level, later.done, later.units) == ("measuring", "area", 2, 5)
    # What is shown comes before what is logged, so the first step of a stage sees the last one's end.
    last = seen[-1][3]
    assert (last.state, last.units) == ("estimating", 5)
    end = status_of(out)
    assert (end.state, end.process, end.level, end.attempts) == ("released", None, None, 1)
    assert end.engine == "local"
    assert end.memory > 1_000_000


def test_a_stopped_run_says_why_and_that_it_resumes(tiny, monkeypatch):
    tiny.write_text(TOP_DOWN)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(door, "_publish", full)
    with pytest.raises(Interrupted):
        released(tiny)
    monkeypatch.undo()
    found = status_of(tiny.parent / "out")
    assert (found.state, found.stopped_by, found.charged) == ("publishing", "OSError", True)
    ran = run("status", tiny.parent / "out")
    assert ran.status == 0
    assert "out: measured; publishing the measurements\n" in ran.out
    assert "(the last attempt was stopped by OSError)" in ran.out
    assert "run the same command again to resume, without charging again" in ran.out

    def killed(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(topdown, "_with_sums", killed)
    with pytest.raises(Interrupted):
        released(tiny)
    monkeypatch.undo()
    found = status_of(tiny.parent / "out")
    assert (found.state, found.attempts, found.stopped_by) == ("estimating", 2, "MemoryError")
    released(tiny)
    document = run("status", tiny.parent / "out", "--json").document()
    assert (document["state"], document["attempts"], document["stopped_by"]) == (
        "released",
        3,
        None,
    )
    assert run("status", tiny.parent / "out").out.startswith(f"{tiny.parent / 'out'}: released\n")


def test_looking_does_not_disturb_and_sees_who_is_at_it(tiny):
    released(tiny)
    out = tiny.parent / "out"
    with storage.held(tiny.parent / "out-internal" / "lock"):
        assert status_of(out).process == os.getpid()
        assert f"running as process {os.getpid()}" in run("status", out).out
    assert status_of(out).process is None
    before = {path: path.read_bytes() for path in tiny.parent.rglob("*") if path.is_file()}
    run("status", out)
    assert before == {path: path.read_bytes() for path in tiny.parent.rglob("*") if path.is_file()}


def test_a_published_folder_without_its_internal_one_is_released(tiny):
    released(tiny)
    (tiny.parent / "out-internal").rename(tiny.parent / "elsewhere")
    found = status_of(tiny.parent / "out")
    assert (found.state, found.attempts, found.charged) == ("released", 0, False)


def test_tables_made_again_are_seen(tiny):
    tiny.write_text(TOP_DOWN)
    released(tiny)
    seen = []
    pipeline.make_estimates(
        tiny.parent / "out", progress=lambda *step: seen.append(status_of(tiny.parent / "out"))
    )
    assert seen[0].state == "released"
    assert seen[-1].state == "estimating"
    assert status_of(tiny.parent / "out").state == "released"


def test_the_log_holds_no_count(tiny):
    planted = 7_654_321
    tiny.write_text(TOP_DOWN.replace('path = "people.csv"', 'path = "t.csv"\ncounts = "n"'))
    (tiny.parent / "t.csv").write_text(f"area,AGE,SEX,n\nA1,old,f,{planted}\nA2,old,f,1\n")
    released(tiny)
    allowed = {"at", "process", "event", "release", "new", "cost", "stage", "level", "done"}
    allowed |= {
        "number",
        "units",
        "per_second",
        "seconds_left",
        "engine",
        "memory",
        "worker_memory",
        "retries",
    }
    for line in (tiny.parent / "out-internal" / "log.jsonl").read_text().splitlines():
        assert set(json.loads(line)) <= allowed
        assert str(planted)[:5] not in line.split('"event"')[1]


NESTED = "[" * 100_000 + "]" * 100_000


def stopped(plan):
    """Leave a run that stopped after its draws, before its manifest."""

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "_publish", full)
        with pytest.raises(Interrupted):
            released(plan)
    return plan.parent / "out"


def shown(out, capsys):
    """Return what the command prints, without a process of its own."""
    capsys.readouterr()
    status_command.status(out)
    return capsys.readouterr().out


def log_line(out, **facts):
    with (out.parent / "out-internal" / "log.jsonl").open("a") as file:
        file.write(json.dumps(facts) + "\n")


def test_a_release_whose_manifest_is_gone_is_not_said_to_resume(tiny, capsys):
    out = released(tiny).folder
    (out / "manifest.json").unlink()
    assert status_of(out).state == "manifest gone"
    text = shown(out, capsys)
    assert "out: finished, but its manifest.json is missing\n" in text
    assert "the same command cannot resume; restore the folder from a backup" in text
    assert "to resume" not in text
    with pytest.raises(FolderError, match="was finished, but its files are missing"):  # as it says
        released(tiny)


@pytest.mark.parametrize(
    "text",
    [
        '{"release": "1.2", "name": "npm"}',
        '{"format": "countveil release 1"',
        "[1]",
        NESTED,
        "\xff",
    ],
    ids=["foreign", "torn", "list", "nested", "not UTF-8"],
)
def test_a_manifest_that_is_none_of_ours_is_not_taken_for_one(tiny, text, capsys):
    out = released(tiny).folder
    (out / "manifest.json").write_bytes(text.encode("latin-1"))
    assert status_of(out).state == "manifest unreadable"
    told = shown(out, capsys)
    assert "out: its manifest.json is not a readable countveil manifest\n" in told
    assert "cannot resume; restore" in told
    assert "to resume" not in told
    (tiny.parent / "out-internal").rename(tiny.parent / "elsewhere")
    with pytest.raises(InputError, match="its manifest.json is not from countveil, and no release"):
        status_of(out)


def test_a_run_whose_state_is_damaged_is_refused_with_a_message(tiny):
    out = stopped(tiny)
    for text in (NESTED, "{", "[]", "\0"):
        (tiny.parent / "out-internal" / "run.json").write_text(text)
        with pytest.raises(FolderError, match="run.json: not readable as a run; restore it"):
            status_of(out)
    ran = run("status", out)
    assert (ran.status, "not readable as a run" in ran.err) == (2, True)
    with pytest.raises(InputError, match="/: not a release folder"):
        status_of("/")


@pytest.mark.parametrize(
    "plan", [[], {"postprocess": []}, {"postprocess": {"method": ["top-down"]}}]
)
def test_a_manifest_with_another_plan_is_a_release_all_the_same(tiny, plan):
    out = released(tiny).folder
    document = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**document, "plan": plan}))
    assert status_of(out).state == "released"


def test_lines_of_the_log_that_no_run_wrote_are_left_out(tiny, capsys):
    out = stopped(tiny)
    before = status_of(out)
    with (tiny.parent / "out-internal" / "log.jsonl").open("ab") as file:
        file.write(b"\xff\xfe{}\n" + NESTED.encode() + b"\n[1]\n7\n{\n")
    log_line(out, event=["progress"], stage="measuring")
    log_line(out, event="\x1b[2Jprogress")
    assert status_of(out) == before
    log_line(out, event="attempt")
    log_line(out, event="progress", stage=["measuring"], level="area")
    assert status_of(out).state == "publishing"
    log_line(
        out,
        event="progress",
        stage="measuring",
        level=["area"],
        done="2",
        units=10**30,
        per_second=float("nan"),
        seconds_left=float("inf"),
        engine={},
        memory=-5,
        worker_memory=True,
        retries=1.5,
    )
    found = status_of(out)
    assert found.state == "measuring"
    assert (found.level, found.done, found.units, found.per_second) == (None, None, None, None)
    assert (found.seconds_left, found.engine, found.memory) == (None, None, None)
    assert (found.worker_memory, found.retries) == (None, None)
    assert "out: measuring\n  attempt 2\n  not running on this machine; run the same" in shown(
        out, capsys
    )


def test_an_estimate_beside_public_information_is_a_release(tmp_path):
    unit = [(0, 1)]
    mechanism = KNormGradient("mean", epsilon="2", bounds=unit, box=unit, points=41, step="1/2")
    theta = Theta(("the number of people",), "they are independent", "each one's value")
    draw_estimate(
        mechanism,
        np.array([0.25, 0.5]),
        title="mean",
        theta=theta,
        coupling="one changes",
        rng=Seeded(1),
        ledger=None,
        to=tmp_path / "out",
    )
    found = status_of(tmp_path / "out")
    assert (found.state, found.attempts) == ("released", 1)


def test_speed_time_left_memory_and_retries_are_shown(tiny, capsys):
    out = stopped(tiny)
    log_line(out, event="attempt")
    facts = {
        "event": "progress",
        "stage": "measuring",
        "level": "area",
        "done": 1250,
        "units": 5000,
    }
    facts |= {"engine": "spark", "memory": 1_300_000_000, "worker_memory": 250_000_000}
    log_line(out, **facts, retries=3, per_second=41.7, seconds_left=89.4)
    assert shown(out, capsys).splitlines() == [
        f"{out}: measuring area: 1,250 of 5,000 units (25%)",
        "  42 units per second, about 89 s left in this stage, memory 1,300 MB, largest worker 250 MB",
        "  attempt 2 on the spark engine, 3 tasks retried",
        "  not running on this machine; run the same command again to resume, without charging again",
    ]
    document = run("status", out, "--json").document()
    assert (document["retries"], document["per_second"], document["seconds_left"]) == (
        3,
        41.7,
        89.4,
    )
    log_line(out, **facts, retries=0, per_second=41.7, seconds_left=600)
    assert "about 10 min left in this stage" in shown(out, capsys)
    assert "retried" not in shown(out, capsys)
    log_line(out, **facts, seconds_left=9000.0)
    assert "  about 2.5 h left in this stage, memory" in shown(out, capsys)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89.9, "90 s"),
        (90, "2 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (86400, "24.0 h"),
    ],
)
def test_durations_have_the_unit_that_suits_them(seconds, text):
    assert status_command._duration(seconds) == text


def test_a_run_under_way_is_shown_as_one(tiny):
    tiny.write_text(TOP_DOWN)
    seen = []

    def look(stage, level, done, units):
        if (stage, level, done) == ("measuring", "area", 5):
            seen.append(run("status", tiny.parent / "out"))

    released(tiny, progress=look, sizes=BatchSizes(values_to_draw=14))
    (ran,) = seen
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0] == f"{tiny.parent / 'out'}: measuring area: 2 of 5 units (40%)"
    assert "units per second" not in lines[0]
    assert " left in this stage, memory " in lines[1]
    assert lines[2:] == ["  attempt 1 on the local engine", f"  running as process {os.getpid()}"]


def test_a_run_that_needs_mending_is_not_said_to_resume(tiny, capsys):
    out = stopped(tiny)
    part = next((tiny.parent / "out-internal" / "parts").rglob("*.parquet"))
    part.write_bytes(b"damaged" + part.read_bytes())
    with pytest.raises(Interrupted, match="changed since it was drawn"):
        released(tiny)
    text = shown(out, capsys)
    assert "stopped by FolderError); run the same command again to see what to fix" in text
    assert "to resume" not in text


def test_the_holder_of_a_lock_is_recognised_among_equal_inodes(tiny, monkeypatch):
    released(tiny)
    lock = tiny.parent / "out-internal" / "lock"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with sleeper:
        sleeper.stdout.readline()
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        inode = lock.stat().st_ino
        locks = tiny.parent / "locks"

        def lock_lines(*processes):
            locks.write_text(
                "1: POSIX  ADVISORY  WRITE 1 00:1:77 0 EOF\n"
                f"2: -> FLOCK  ADVISORY  WRITE {os.getpid()} 00:1:{inode} 0 EOF\n"
                + "".join(f"3: FLOCK  ADVISORY  WRITE {n} 00:1:{inode} 0 EOF\n" for n in processes)
            )

        monkeypatch.setattr(run_status, "_LOCKS", locks)
        with storage.held(lock):
            lock_lines(sleeper.pid, gone.pid, os.getpid())
            assert status_of(tiny.parent / "out").process == os.getpid()
            lock_lines(sleeper.pid, gone.pid)
            assert status_of(tiny.parent / "out").process is None
            lock_lines(sleeper.pid)

            def forbidden(*arguments):
                raise PermissionError

            monkeypatch.setattr(run_status, "_descriptors", forbidden)
            assert status_of(tiny.parent / "out").process == sleeper.pid
        sleeper.communicate(b"\n")


def test_help_has_examples_of_what_is_asked_for():
    def help_of(command):
        ran = run(command, "--help", env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"})
        return " ".join(ran.out.split())

    assert "Example: countveil status out" in help_of("status")
    release = help_of("release")
    assert "countveil release plan.toml --to out --engine spark" in release
    assert "countveil release plan.toml --to out --restart --charge-again" in release
    assert "Local processes; default: one per core." in release
