"""`countveil status`: where a run stands, at every moment of it."""

from __future__ import annotations

import json
import os

import pytest

from countveil import Secure, pipeline, storage
from countveil.errors import InputError, Interrupted
from countveil.measure import boundary
from countveil.postprocess import descent
from countveil.release import standing_of
from countveil.schema.plan import Plan
from tests.conftest import TINY_PLAN, run

TOP_DOWN = TINY_PLAN + '[postprocess]\nmethod = "top-down"\n'


def released(plan, **options):
    folder = plan.parent
    return pipeline.release(
        Plan.load(plan), to=folder / "out", rng=Secure(), ledger=folder / "l.sqlite", **options
    )


def test_a_run_is_seen_from_its_begin_to_its_end(tiny, monkeypatch):
    tiny.write_text(TOP_DOWN)
    out = tiny.parent / "out"
    monkeypatch.setattr(boundary, "_VALUES", 14)
    seen = []

    def look(stage, level, done, units):
        seen.append((stage, level, done, standing_of(out)))

    with pytest.raises(InputError, match="no release was begun there; while records are counted"):
        standing_of(out)
    released(tiny, progress=look)
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
    end = standing_of(out)
    assert (end.state, end.process, end.level, end.attempts) == ("released", None, None, 1)
    assert end.engine == "local"
    assert end.memory > 1_000_000


def test_a_stopped_run_says_why_and_that_it_resumes(tiny, monkeypatch):
    tiny.write_text(TOP_DOWN)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(boundary, "_publish", full)
    with pytest.raises(Interrupted):
        released(tiny)
    monkeypatch.undo()
    found = standing_of(tiny.parent / "out")
    assert (found.state, found.stopped_by, found.charged) == ("publishing", "OSError", True)
    ran = run("status", tiny.parent / "out")
    assert ran.status == 0
    assert "out: measured; the measurements are being published\n" in ran.out
    assert "(the last attempt was stopped by OSError)" in ran.out
    assert "the same command resumes, without charging again" in ran.out

    def killed(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(descent, "_with_sums", killed)
    with pytest.raises(Interrupted):
        released(tiny)
    monkeypatch.undo()
    found = standing_of(tiny.parent / "out")
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
        assert standing_of(out).process == os.getpid()
        assert f"process {os.getpid()} is at it" in run("status", out).out
    assert standing_of(out).process is None
    before = {path: path.read_bytes() for path in tiny.parent.rglob("*") if path.is_file()}
    run("status", out)
    assert before == {path: path.read_bytes() for path in tiny.parent.rglob("*") if path.is_file()}


def test_a_published_folder_without_its_internal_one_is_released(tiny):
    released(tiny)
    (tiny.parent / "out-internal").rename(tiny.parent / "elsewhere")
    found = standing_of(tiny.parent / "out")
    assert (found.state, found.attempts, found.charged) == ("released", 0, False)


def test_tables_made_anew_are_seen(tiny):
    tiny.write_text(TOP_DOWN)
    released(tiny)
    seen = []
    pipeline.estimate(
        tiny.parent / "out", progress=lambda *step: seen.append(standing_of(tiny.parent / "out"))
    )
    assert seen[0].state == "released"
    assert seen[-1].state == "estimating"
    assert standing_of(tiny.parent / "out").state == "released"


def test_the_log_holds_no_count(tiny):
    planted = 7_654_321
    tiny.write_text(TOP_DOWN.replace('path = "people.csv"', 'path = "t.csv"\ncounts = "n"'))
    (tiny.parent / "t.csv").write_text(f"area,AGE,SEX,n\nA1,old,f,{planted}\nA2,old,f,1\n")
    released(tiny)
    allowed = {"at", "process", "event", "release", "new", "cost", "stage", "level", "done"}
    allowed |= {
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
