"""How large the package is: what CONTRIBUTING.md says of it."""

import re
from pathlib import Path

import countveil

SOURCE = Path(countveil.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [path for path in FILES if path.name != "__init__.py"]
TEXT = " ".join((SOURCE.parent.parent / "CONTRIBUTING.md").read_text().split())


def stated(pattern):
    (number,) = re.findall(pattern, TEXT)
    return int(number.replace(",", ""))


def lines(path):
    return len(path.read_text().splitlines())


def test_the_stated_size_is_about_right():
    assert abs(len(MODULES) - stated(r"about (\d+) modules")) <= 25
    assert abs(sum(map(lines, FILES)) - stated(r"modules and ([\d,]+) lines")) <= 5_000


def test_no_module_and_no_folder_is_larger_than_stated():
    most = stated(r"none longer than (\d+) lines")
    assert {path.name: lines(path) for path in MODULES if lines(path) > most} == {}
    folders = {path.parent for path in MODULES}
    inside = {folder.name: sum(path.parent == folder for path in MODULES) for folder in folders}
    most = stated(r"at most (\d+) modules")
    assert {name: number for name, number in inside.items() if number > most} == {}


def test_a_quarter_of_the_modules_are_one_concept_per_file():
    assert "A quarter of all modules are commands, sections, charts and items of papers" in TEXT
    kinds = [
        path
        for path in MODULES
        if path.stem.endswith("_command")
        or path.parent.name in ("sections", "charts")
        or "papers" in path.parts
    ]
    assert 0.2 < len(kinds) / len(MODULES) < 0.3
