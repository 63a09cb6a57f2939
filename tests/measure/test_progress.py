"""The run log: how far, how fast, how long still; told from steps and a clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from countveil.measure.progress import Watch, silent
from countveil.measure.run import RunLog

WORKERS = SimpleNamespace(retries=3, peak_memory=5_000)


def watch(folder, clock, values, progress=silent):
    return Watch(
        RunLog(folder), progress, values=values, engine="local", workers=WORKERS, clock=clock
    )


def test_speed_and_time_left_follow_from_steps(tmp_path):
    now, passed = [100.0], []
    step = watch(tmp_path, lambda: now[0], {"top": 100, "low": 1000}, lambda *s: passed.append(s))
    step("measuring", "top", 1, 1)
    for time, done in ((110.0, 20), (111.0, 25), (130.0, 60), (150.0, 100)):
        now[0] = time
        step("measuring", "low", done, 100)
    lines = RunLog(tmp_path).read()
    assert [(line["level"], line["done"]) for line in lines] == [
        ("top", 1),
        ("low", 20),
        ("low", 60),
        ("low", 100),
    ], "one within two seconds of another is not written"
    assert len(passed) == 5, "all of them are shown"
    top, first, second, last = lines
    assert "per_second" not in top
    assert "seconds_left" not in top
    # 200 numbers in the ten seconds since the first step; 800 are left.
    assert first["seconds_left"] == 40.0
    assert "per_second" not in first
    assert second["per_second"] == (60 - 20) / 20
    assert second["seconds_left"] == pytest.approx(400 * 30 / 600)
    assert last["event"] == "level finished"
    assert last["per_second"] == (100 - 20) / 40
    assert last["seconds_left"] == 0
    assert last["retries"] == 3
    assert last["worker_memory"] == 5_000
    assert last["memory"] > 1_000_000


def test_a_new_stage_is_timed_on_its_own(tmp_path):
    now = [0.0]
    step = watch(tmp_path, lambda: now[0], {"low": 10})
    step("measuring", "low", 10, 10)
    now[0] = 1000.0
    step("estimating", "low", 2, 10)
    now[0] = 1004.0
    step("estimating", "low", 6, 10)
    assert RunLog(tmp_path).read()[-1]["seconds_left"] == 4.0
    assert RunLog(tmp_path).read()[-1]["per_second"] == 1.0


def test_torn_and_foreign_lines_are_no_events(tmp_path):
    log = RunLog(tmp_path)
    assert log.read() == []
    log.write("attempt", new=True)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('7\n{"event": 3}\n{"event": "progr')
    assert [line["event"] for line in log.read()] == ["attempt"]


def test_a_stop_is_recorded_unless_the_disk_is_full(tmp_path, monkeypatch):
    log = RunLog(tmp_path)
    log.write_stop(MemoryError("a secret"))
    assert log.read()[-1]["reason"] == "MemoryError"
    assert "secret" not in (tmp_path / "log.jsonl").read_text()

    def full(*arguments, **facts):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunLog, "write", full)
    log.write_stop(MemoryError())
