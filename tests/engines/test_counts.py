import fcntl
import os
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pytest

from countveil.base.spill_folder import private_folder, sweep
from countveil.engines import counts as counting
from countveil.errors import InputError
from countveil.plan.geography import Geography


def small(entries):
    geography = Geography(
        ("top", "low"),
        (pa.array(["a", "b"]), pa.array(["1", "2", "3"])),
        (np.zeros(2, np.int64), np.array([0, 0, 1])),
    )
    arrays = tuple(np.array(column, np.int64) for column in zip(*entries, strict=True))
    return counting.build(geography, 4, [arrays], "test")


def test_upper_levels_are_sums_of_lower_ones():
    counts = small([(0, 1, 5), (0, 3, 1), (1, 1, 2), (2, 0, 9)])
    unit, cell, count = counts.entries("top", 0, 2)
    assert list(zip(unit.tolist(), cell.tolist(), count.tolist(), strict=True)) == [
        (0, 1, 7),
        (0, 3, 1),
        (1, 0, 9),
    ]


def test_rolling_up_in_small_chunks_gives_the_same(monkeypatch):
    rng = np.random.default_rng(3)
    table = rng.integers(0, 3, (60, 4))
    parents = np.repeat(np.arange(20), 3)
    unit, cell = np.nonzero(table)
    geography = Geography(
        ("top", "low"),
        (pa.array([str(i) for i in range(20)]), pa.array([str(i) for i in range(60)])),
        (np.zeros(20, np.int64), parents),
    )
    entries = (unit, cell, table[unit, cell])
    for chunk in (1, 7, 10**6):
        monkeypatch.setattr(counting, "_CHUNK", chunk)
        counts = counting.build(geography, 4, [entries], "test")
        out = np.zeros((20, 4), np.int64)
        u, c, n = counts.entries("top", 0, 20)
        np.add.at(out, (u, c), n)
        assert (out == table.reshape(20, 3, 4).sum(1)).all()


def test_counts_are_silent_about_themselves():
    counts = small([(0, 1, 987654)])
    for text in (repr(counts), str(counts), f"{counts}", repr(counts.levels["low"])):
        assert "987654" not in text
    with pytest.raises(InputError, match="cannot be pickled"):
        pickle.dumps(counts)


def test_the_keyed_hash_tells_changes_and_needs_the_key():
    one, same, other = small([(0, 1, 5)]), small([(0, 1, 5)]), small([(0, 1, 6)])
    moved = small([(1, 1, 5)])
    key = bytes(32)
    assert one.keyed_hash(key) == same.keyed_hash(key)
    assert len({c.keyed_hash(key) for c in (one, other, moved)}) == 3
    assert one.keyed_hash(key) != one.keyed_hash(b"k" * 32)


@pytest.fixture
def own_temporary_folder(tmp_path, monkeypatch):
    """A temporary folder that no other test uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # found again from the environment
    return tmp_path


def test_counts_leave_no_file_behind(own_temporary_folder):
    counts = small([(0, 1, 5)])
    assert list(own_temporary_folder.iterdir()) == []
    assert counts.entries("low", 0, 1)[2].tolist() == [5]


def test_totals_too_large_for_the_layout_are_refused():
    with pytest.raises(InputError, match="the largest count supported; split the data"):
        small([(0, 0, 2**30), (0, 1, 2**30), (1, 0, 5)])


def test_private_folders_are_private_and_swept_after_a_kill_but_never_while_in_use(
    own_temporary_folder,
):
    program = (
        "import os, signal, sys\n"
        "from countveil.base.spill_folder import private_folder, sweep\n"
        "with private_folder() as folder:\n"
        "    print(folder, oct(folder.stat().st_mode & 0o777), flush=True)\n"
        "    sys.stdin.read()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        name, mode = process.stdout.readline().split()
        assert os.path.dirname(name) == str(own_temporary_folder)
        assert mode == "0o700"
        with private_folder():
            assert os.path.isdir(name), "a folder in use was swept"
        process.stdin.close()
        process.wait()
    assert os.path.isdir(name), "a kill leaves it behind"
    with private_folder():
        assert not os.path.exists(name)


def test_a_folder_swept_before_it_was_locked_is_made_again(own_temporary_folder, monkeypatch):
    """Another process may sweep between the making of the lock file and the lock."""
    real, swept = fcntl.flock, []

    def late(file, operation):
        if operation == fcntl.LOCK_EX and not swept:
            swept.append(file.name)
            sweep()
        return real(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with private_folder() as folder:
        assert not os.path.exists(swept[0]), "the first folder was swept"
        assert (folder / "in-use").exists()
        sweep()
        assert (folder / "in-use").exists(), "a folder in use was swept"
    assert list(own_temporary_folder.iterdir()) == []
