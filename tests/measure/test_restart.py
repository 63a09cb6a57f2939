"""--restart: free before the charge, paid again after it, refused once a release is finished."""

from __future__ import annotations

import stat
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.conftest import TINY_PLAN, parts_of, run
from tests.measure.test_door import stop_before_publishing

from countveil import Release, Secure, Seeded, pipeline
from countveil.errors import FolderError, Interrupted, LedgerError
from countveil.measure import door, once
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan
from countveil.privacy.ledger import Ledger

ROOM = '[ledger]\ntotal = "4"\n'


def released(plan, **options):
    folder = plan.parent
    return pipeline.release(
        Plan.load(plan), to=folder / "out", rng=Secure(), ledger=folder / "l.sqlite", **options
    )


def interrupted(plan, monkeypatch, **options):
    """Release, and stop after the draws."""
    stop_before_publishing(monkeypatch)
    with pytest.raises(Interrupted):
        released(plan, **options)
    monkeypatch.undo()


def charges(plan):
    return Plan.load(plan).ledger(plan.parent / "l.sqlite").charges()


def test_once_charged_a_restart_is_refused_and_resuming_keeps_the_draws(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    interrupted(tiny, monkeypatch)
    kept = Parts(parts_of(tiny.parent / "out")).read("area", 0)
    with pytest.raises(FolderError, match="leave out --restart.*or add --charge-again"):
        released(tiny, restart=True)
    assert Parts(parts_of(tiny.parent / "out")).read("area", 0) == kept
    released(tiny)
    assert len(charges(tiny)) == 1


def test_charged_again_it_is_a_release_of_its_own(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    interrupted(tiny, monkeypatch)
    parts = parts_of(tiny.parent / "out")
    first = {path.name: path.read_bytes() for path in parts.iterdir()}
    done = released(tiny, restart=True, charge_again=True)
    done.verify(tiny.parent / "l.sqlite")
    assert len(charges(tiny)) == 2
    (aside,) = tiny.parent.glob("out-internal-set-aside-*")
    assert stat.S_IMODE(aside.stat().st_mode) == 0o700
    assert {path.name: path.read_bytes() for path in aside.glob("parts/*/*")} == first
    assert {line.release for line in charges(tiny)} >= {done.manifest["release"]}
    assert done.manifest["release"][:8] not in aside.name


def test_a_restart_that_the_ledger_cannot_pay_moves_nothing(tiny, monkeypatch):
    interrupted(tiny, monkeypatch)
    with pytest.raises(LedgerError, match="only rho = 0 is left"):
        released(tiny, restart=True, charge_again=True)
    assert not list(tiny.parent.glob("*set-aside*"))
    released(tiny)


def test_nor_does_one_that_was_not_charged_yet(tiny, monkeypatch):
    """Another release took what was left meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "take_attempt", Mock(side_effect=RuntimeError("killed")))
        with pytest.raises(RuntimeError, match="killed"):
            released(tiny)
    pipeline.release(
        Plan.load(tiny), to=tiny.parent / "other", rng=Secure(), ledger=tiny.parent / "l.sqlite"
    )
    with pytest.raises(LedgerError, match="only rho = 0 is left; nothing more can be released"):
        released(tiny, restart=True)
    assert not list(tiny.parent.glob("*set-aside*"))


def test_the_same_command_goes_on_with_what_it_began_anew(tiny, monkeypatch):
    """Whoever gives the command again after a crash, as a scheduler does, pays no third time."""
    tiny.write_text(TINY_PLAN + ROOM.replace("4", "8"))
    for most in (1, 2, 2, 2):
        interrupted(tiny, monkeypatch, restart=most > 1, charge_again=most > 1)
        assert len(charges(tiny)) == most
    with pytest.raises(FolderError, match="leave out --restart"):
        released(tiny, restart=True)
    kept = Parts(parts_of(tiny.parent / "out")).read("area", 0)
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text() + "A1,young,f\n")
    interrupted(tiny, monkeypatch, restart=True, charge_again=True)
    assert len(charges(tiny)) == 3, "other records are another release"
    assert Parts(parts_of(tiny.parent / "out")).read("area", 0) != kept
    done = released(tiny, restart=True, charge_again=True)
    done.verify(tiny.parent / "l.sqlite")
    assert len(charges(tiny)) == 3
    assert len(list(tiny.parent.glob("out-internal-set-aside-*"))) == 2


def test_a_restart_that_is_refused_sets_nothing_aside(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    interrupted(tiny, monkeypatch)
    monkeypatch.setattr(door, "_refuse_large_families", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        released(tiny, restart=True, charge_again=True)
    monkeypatch.undo()
    assert not list(tiny.parent.glob("*set-aside*"))
    released(tiny)
    assert len(charges(tiny)) == 1


def test_a_run_that_cannot_be_read_any_more_can_be_begun_anew(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    interrupted(tiny, monkeypatch)
    (tiny.parent / "out-internal" / "run.json").write_text("torn")
    for options in ({}, {"restart": True}):
        with pytest.raises(FolderError, match="not readable as a run"):
            released(tiny, **options)
    released(tiny, restart=True, charge_again=True).verify(tiny.parent / "l.sqlite")
    assert len(charges(tiny)) == 2


def test_a_crash_while_setting_aside_is_no_hindrance(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    real = door.manifest.list_files
    monkeypatch.setattr(door.manifest, "list_files", lambda *a, **o: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        released(tiny)
    monkeypatch.setattr(once.storage, "sync", lambda path: 1 / 0)
    rename = Path.rename

    def crash(path, target):
        rename(path, target)
        if "unpublished" in str(target):
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        released(tiny, restart=True, charge_again=True)
    monkeypatch.undo()
    monkeypatch.setattr(door.manifest, "list_files", lambda *a, **o: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        released(tiny)
    monkeypatch.setattr(door.manifest, "list_files", real)
    released(tiny, restart=True, charge_again=True).verify(tiny.parent / "l.sqlite")
    assert len(charges(tiny)) == 2


def test_before_the_charge_a_restart_costs_nothing(tiny, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(once, "_begin", stopped)
    with pytest.raises(KeyboardInterrupt):
        released(tiny)
    monkeypatch.undo()
    assert charges(tiny) == []
    released(tiny, restart=True)
    assert len(charges(tiny)) == 1


def test_another_ledger_does_not_make_a_charged_run_free(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    interrupted(tiny, monkeypatch)
    with pytest.raises(FolderError, match="its noise was already charged"):
        pipeline.release(
            Plan.load(tiny),
            to=tiny.parent / "out",
            rng=Secure(),
            ledger=tiny.parent / "other.sqlite",
            restart=True,
        )


def test_files_that_were_half_published_go_aside_too(tiny, monkeypatch):
    tiny.write_text(TINY_PLAN + ROOM)
    real = door.manifest.list_files
    monkeypatch.setattr(door.manifest, "list_files", lambda *a, **o: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        released(tiny)
    monkeypatch.setattr(door.manifest, "list_files", real)
    assert (tiny.parent / "out" / "measurements" / "area.parquet").exists()
    released(tiny, restart=True, charge_again=True)
    (aside,) = tiny.parent.glob("out-internal-set-aside-*")
    assert len(list(aside.glob("unpublished-*/measurements/area.parquet"))) == 1
    Release.read(tiny.parent / "out").verify(tiny.parent / "l.sqlite")


def test_a_finished_release_is_not_begun_anew(tiny):
    tiny.write_text(TINY_PLAN + ROOM)
    released(tiny)
    before = (tiny.parent / "out" / "manifest.json").read_bytes()
    with pytest.raises(FolderError, match="is a finished release, which cannot be restarted"):
        released(tiny, restart=True, charge_again=True)
    assert (tiny.parent / "out" / "manifest.json").read_bytes() == before
    assert len(charges(tiny)) == 1


def test_where_nothing_was_begun_and_in_simulations_a_restart_is_a_start(tiny, monkeypatch):
    plan, out = Plan.load(tiny), tiny.parent / "out"
    stop_before_publishing(monkeypatch)
    with pytest.raises(OSError, match="I/O error"):
        pipeline.release(plan, to=out, rng=Seeded(1), restart=True)
    monkeypatch.undo()
    pipeline.release(plan, to=out, rng=Seeded(2), restart=True)
    Release.read(out).verify(simulation=True)


def test_the_command_line_says_what_goes_with_what(tiny):
    ran = run("release", tiny, "--to", tiny.parent / "out", "--charge-again")
    assert ran.status == 2
    assert "--charge-again: needs --restart" in ran.err
    assert run("release", tiny, "--to", tiny.parent / "out", "--resume", "--quiet").status == 0
    ran = run("release", tiny, "--to", tiny.parent / "out", "--restart", "--quiet")
    assert ran.status == 2
    assert "is a finished release, which cannot be restarted" in ran.err
