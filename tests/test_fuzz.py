"""Damaged files of every kind end well or with a message: a short series of the fuzzer."""

import pytest
from benchmarks.fuzz import KINDS, Tally, fuzz, prepare

_FILES = 8  # of each kind

pytestmark = pytest.mark.usefixtures("short_rehearsal")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    prepare(place)
    return place


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_ends_in_a_message(folder, kind):
    tally = Tally()
    for number in range(_FILES):
        fuzz(kind, folder, number, 19, tally)
    assert not tally.faults, "\n".join(tally.faults.values())
    assert tally.refused + tally.fine == tally.runs >= _FILES
