"""A power cut loses nothing: data is on the disk before its name, and a name before what follows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conftest import TINY_PLAN

from countveil import Secure, pipeline
from countveil.base import storage
from countveil.measure.batch_sizes import BatchSizes
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan


@dataclass
class Disk:
    """The calls that decide what a power cut leaves, in their order."""

    calls: list[tuple[str, Path]] = field(default_factory=list)
    synced: list[bytes] = field(default_factory=list)  # what each file held when it was synced

    def where(self, what: str, path: Path) -> list[int]:
        return [number for number, call in enumerate(self.calls) if call == (what, path)]


@pytest.fixture
def disk(monkeypatch):
    """Watch syncs, links, renames and settled parts; all of them are done as ever."""
    found = Disk()
    sync, link, rename = os.fsync, os.link, os.rename
    settle, make = Parts.settle, Path.mkdir

    def watched_sync(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        found.synced.append(path.read_bytes() if path.is_file() else b"")
        found.calls.append(("sync", path))
        sync(descriptor)

    def watched_link(source, target, **options):
        link(source, target, **options)
        found.calls.append(("link", Path(target)))

    def watched_rename(source, target, **options):
        rename(source, target, **options)
        found.calls.append(("rename", Path(target)))

    def watched_settle(parts):
        found.calls.append(("settle", parts.folder))
        settle(parts)

    def watched_make(path, *arguments, **options):
        make(path, *arguments, **options)
        found.calls.append(("make", path))

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    for name in ("rename", "replace"):  # paths go by these, too
        monkeypatch.setattr(os, name, watched_rename)
    monkeypatch.setattr(Parts, "settle", watched_settle)
    monkeypatch.setattr(Path, "mkdir", watched_make)
    return found


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_a_file_is_synced_then_renamed_then_its_folder_is_synced(tmp_path, disk, there, private):
    path = tmp_path / "file"
    if there:
        path.write_bytes(b"old")
    with (storage.replacing_private if private else storage.replacing)(path) as temporary:
        temporary.write_bytes(b"all of it")
        assert disk.calls == []
    assert disk.calls == [("sync", temporary), ("rename", path), ("sync", tmp_path)]
    assert disk.synced[0] == b"all of it"
    assert path.read_bytes() == b"all of it"
    assert list(tmp_path.iterdir()) == [path]


def test_documents_are_written_so(tmp_path, disk):
    storage.write_json(tmp_path / "document.json", {"a": 1})
    storage.write_bytes(tmp_path / "bytes", b"some")
    assert [what for what, _ in disk.calls] == ["sync", "rename", "sync"] * 2
    assert disk.synced[::2] == [(tmp_path / "document.json").read_bytes(), b"some"]


def test_a_file_whose_writing_fails_is_not_there(tmp_path, disk):
    def write_half():
        with storage.replacing(tmp_path / "file") as temporary:
            temporary.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_half()
    assert disk.calls == []
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_synced_then_linked_then_its_folder_is_synced(tmp_path, disk):
    path = tmp_path / "part"
    assert storage.write_new(path, b"first")
    (first, temporary), *rest = disk.calls
    assert first == "sync"
    assert temporary.parent == tmp_path
    assert temporary != path
    assert rest == [("link", path), ("sync", tmp_path)]
    assert disk.synced[0] == b"first"
    disk.calls.clear()
    disk.synced.clear()
    assert not storage.write_new(path, b"second"), "who comes second wrote nothing"
    # Its answer is final, so what it was beaten by must not be lost either.
    assert [what for what, _ in disk.calls] == ["sync", "sync"]
    assert disk.calls[-1] == ("sync", tmp_path)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_durable_in_their_parents(tmp_path, disk):
    storage.make_folder(tmp_path / "a" / "b", 0o700)
    assert [call for call in disk.calls if call[0] in ("make", "sync")] == [
        ("make", tmp_path / "a"),
        ("sync", tmp_path),
        ("make", tmp_path / "a" / "b"),
        ("sync", tmp_path / "a"),
    ]


def test_parts_that_others_kept_are_settled_by_a_sync_of_their_folder(tmp_path, disk):
    Parts(tmp_path).settle()
    assert disk.calls == [("settle", tmp_path), ("sync", tmp_path)]


def test_each_step_of_a_release_is_on_the_disk_before_the_next(tiny, monkeypatch, disk):
    """Draws before anything is made of them, all files before the manifest, it before the end."""
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    out, internal = tiny.parent / "out", tiny.parent / "out-internal"
    done = pipeline.release(
        Plan.load(tiny),
        to=out,
        rng=Secure(),
        ledger=tiny.parent / "l.sqlite",
        workers=1,
        sizes=BatchSizes(values_to_draw=14),
    )
    (settled,) = [n for n, (what, _) in enumerate(disk.calls) if what == "settle"]
    parts = disk.calls[settled][1]
    assert parts == internal / "parts" / done.manifest["release"]
    kept = [
        n for n, call in enumerate(disk.calls) if call[0] == "link" and call[1].suffix == ".parquet"
    ]
    assert len(kept) == 3
    for number in kept:
        assert disk.calls[number - 1][0] == "sync"
        assert disk.calls[number + 1] == ("sync", parts)
    assert max(kept) < settled
    assert disk.calls[settled + 1] == ("sync", parts)
    named = [
        n
        for n, (what, path) in enumerate(disk.calls)
        if what == "rename" and path.is_relative_to(out)
    ]
    assert settled < min(named)
    for number in named:
        assert disk.calls[number - 1][0] == "sync"
        assert disk.calls[number + 1] == ("sync", disk.calls[number][1].parent)
    measured, *_, estimated = disk.where("rename", out / "manifest.json")
    measurements = [n for n in named if "measurements" in disk.calls[n][1].parts]
    assert max(measurements) < measured < estimated == max(named)
    begun, expected, numbered, finished = disk.where("rename", internal / "run.json")
    assert begun < expected < numbered < min(kept)
    (cleared,) = disk.where("rename", parts.with_name(f"{parts.name}-done"))
    assert measured + 1 < finished < cleared


def test_folders_that_a_killed_run_left_are_swept_too(tmp_path):
    left = tmp_path / ".countveil-temporary-probe-1"
    left.mkdir()
    (left / "mark").write_text("x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".countveil-temporary-link").symlink_to(elsewhere)
    storage.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [elsewhere]
