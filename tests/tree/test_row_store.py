"""Rows in a file: the same numbers as in memory, in less of it."""

import resource
from pathlib import Path

import numpy as np
import pytest

from countveil.tree.row_store import DiskRows, allocate_rows


def test_rows_in_a_file_are_those_in_memory():
    rng = np.random.default_rng(3)
    filed, plain = DiskRows(1_000, 3, 7), np.empty((1_000, 3, 7))
    for start in range(0, 1_000, 90):
        part = rng.normal(size=(min(90, 1_000 - start), 3, 7))
        filed[start : start + 90] = part
        plain[start : start + 90] = part
    filed[200:203] = plain[200:203] = 0.0
    assert filed.shape == plain.shape
    assert len(filed) == 1_000
    for first, last in ((0, 1_000), (1, 2), (511, 514), (999, 1_000), (40, 40)):
        np.testing.assert_array_equal(filed[first:last], plain[first:last])
    taken = filed[:5]
    filed[:5] = 0.0
    np.testing.assert_array_equal(taken, plain[:5])  # its own, not the file's


def test_they_take_no_memory_when_they_are_not_at_work():
    filed = DiskRows(200, 1 << 17)  # 200 MB
    before = _resident()
    for start in range(0, 200, 20):
        filed[start : start + 20] = np.full((20, 1 << 17), float(start))
    assert [float(filed[start : start + 1].mean()) for start in (0, 100, 180)] == [0, 100, 180]
    assert _resident() - before < 60 << 20


def test_a_disk_without_room_is_an_error_before_anything_is_written():
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            DiskRows(1_000, 1_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_few_numbers_stay_in_memory():
    assert isinstance(allocate_rows(5, 2, in_memory=True), np.ndarray)
    assert isinstance(allocate_rows(5, 2, in_memory=False), DiskRows)
    assert allocate_rows(5, 0, in_memory=False).shape == (5, 0)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
