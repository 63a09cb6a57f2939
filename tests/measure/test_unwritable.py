"""What could not be read again is refused before it is charged; what never ends is never waited for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.conftest import TINY_PLAN, run
from tests.measure.test_fence import Killed, kill

from countveil import Release, Secure, measure, open_engine, pipeline
from countveil.base import storage
from countveil.errors import FolderError, InputError, PlanError
from countveil.measure import door, manifest
from countveil.measure.run import Run
from countveil.plan.plans import Plan

NUMBERS = {
    "intruder.limit": "[intruder]\nlimit = {}\n",
    "intruder.priors": "[intruder]\npriors = [{}]\n",
    "postprocess.confidence": "[postprocess]\nconfidence = {}\n",
    "postprocess.residual": "[postprocess]\nresidual = {}\n",
}


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
@pytest.mark.parametrize("key", NUMBERS)
def test_a_plan_holds_finite_numbers(tiny, key, number):
    tiny.write_text(TINY_PLAN + NUMBERS[key].format(number))
    with pytest.raises(PlanError, match=key):
        Plan.load(tiny)
    assert run("release", tiny, "--to", tiny.parent / "out", "--quiet").status == 2
    assert not list(tiny.parent.glob("*.sqlite"))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_no_file_is_written_that_its_reader_refuses(tmp_path, number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        storage.write_json(tmp_path / "document.json", {"a": [number]})
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_that_cannot_be_written_is_not_charged(tiny, monkeypatch):
    plan, folder = Plan.load(tiny), tiny.parent
    counts = open_engine("local").tabulate(plan)
    real = manifest.describe

    def infinite(*arguments, **options):
        return {**real(*arguments, **options), "variance": float("inf")}

    monkeypatch.setattr(manifest, "describe", infinite)
    with pytest.raises(InputError, match="too large or too small for JSON"):
        measure.take(counts, plan, rng=Secure(), ledger=folder / "l.sqlite", to=folder / "out")
    assert not (folder / "l.sqlite").exists()
    assert not (folder / "out-internal").exists()


@pytest.mark.parametrize("name", ["manifest.json", "run.json", "log.jsonl"])
@pytest.mark.parametrize("words", [("release",), ("status",), ("postprocess",)])
def test_a_pipe_is_not_waited_for(tiny, name, words):
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Secure())
    path = (out if name == "manifest.json" else out.with_name("out-internal")) / name
    path.unlink()
    os.mkfifo(path)
    arguments = (tiny, "--to", out, "--quiet") if words == ("release",) else (out,)
    ran = run(*words, *arguments)
    assert ran.status in (0, 2), "whoever needs it refuses it"
    assert "fault" not in ran.err
    if words == ("release",):
        assert ran.status == 2


def test_a_part_that_is_a_pipe_is_refused(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + '[ledger]\ntotal = "8"\n')
    plan, out = Plan.load(tiny), tiny.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(door, "_publish", lambda *a: kill())
        with pytest.raises(Killed):
            pipeline.release(plan, to=out, rng=Secure())
    part = next(out.with_name("out-internal").glob("parts/*/*.parquet"))
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(Exception, match="is not a plain file"):
        pipeline.release(plan, to=out, rng=Secure())


NUL, LOOP, PIPE = '"a\\u0000b"', '"loop"', '"pipe.csv"'
RECORDS = ("records.path", PIPE)  # for the engines to judge


@pytest.mark.parametrize("method", ["none", "top-down"])
@pytest.mark.parametrize("kind", ["a pipe", "a file"])
def test_something_else_where_estimates_are_made_is_not_waited_for(tiny, monkeypatch, method, kind):
    tiny.write_text(f'{TINY_PLAN}[ledger]\ntotal = "8"\n[postprocess]\nmethod = "{method}"\n')
    out = tiny.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "close", lambda *a: kill())
        with pytest.raises(Killed):
            pipeline.release(Plan.load(tiny), to=out, rng=Secure())
    work = out.with_name("out-internal") / "estimates"
    os.mkfifo(work) if kind == "a pipe" else work.write_text("x")
    ran = run("release", tiny, "--to", out, "--quiet", "--workers", 1)
    assert ran.status == (0 if method == "none" else 3), ran.err
    assert "fault" not in ran.err


PATHS = {
    "geography.path": ('path = "places.csv"', "path = {}"),
    "records.path": ('path = "people.csv"', "path = {}"),
    "ledger.path": ("[attributes]", "[ledger]\npath = {}\n[attributes]"),
    "constraints.0.path": (
        "[attributes]",
        '[[constraints]]\nlevel = "area"\nquery = "TOTAL"\npath = {}\nreason = "x"\n[attributes]',
    ),
}


@pytest.mark.parametrize("words", [("check",), ("price",), ("release", "--to", "out", "--quiet")])
@pytest.mark.parametrize(
    ("key", "name"),
    [(key, name) for key in PATHS for name in (NUL, LOOP, PIPE) if (key, name) != RECORDS],
)
def test_paths_that_lead_nowhere_are_refused(tiny, monkeypatch, key, name, words):
    monkeypatch.chdir(tiny.parent)
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe.csv")
    old, new = PATHS[key]
    tiny.write_text(TINY_PLAN.replace(old, new.format(name)))
    ran = run(words[0], tiny, *words[1:])
    if words != ("price",) or name == NUL:
        assert ran.status == 2, "a price needs no file"
    assert ran.status in (0, 2), ran.err
    assert not Path("out").exists()


def test_a_state_that_is_a_pipe_is_set_aside_for_a_new_charge(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + '[ledger]\ntotal = "8"\n')
    plan, out = Plan.load(tiny), tiny.parent / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Run, "hold", lambda *a: kill())
        with pytest.raises(Killed):
            pipeline.release(plan, to=out, rng=Secure())
    state = out.with_name("out-internal") / "run.json"
    state.unlink()
    os.mkfifo(state)
    with pytest.raises(FolderError, match="is not a plain file"):
        pipeline.release(plan, to=out, rng=Secure())
    pipeline.release(plan, to=out, rng=Secure(), restart=True, charge_again=True)
    Release.read(out).verify(plan.ledger_path)
    assert json.loads((out / "manifest.json").read_text())["release"]
