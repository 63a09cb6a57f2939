"""No test depends on how busy the machine is: every wait is given up after HANG seconds, no sooner."""

import ast
from pathlib import Path

import pytest
from benchmarks import fault_trial

from tests.conftest import HANG

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_wait_has_a_number_of_seconds_of_its_own(path):
    waits = [
        f"line {part.value.lineno}"
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.keyword) and part.arg == "timeout"
        if "HANG" not in {name.id for name in ast.walk(part.value) if isinstance(name, ast.Name)}
    ]
    assert waits == [], "write timeout=HANG"


def test_benchmarks_that_tests_run_wait_as_long_as_tests():
    assert fault_trial.HANG == HANG
