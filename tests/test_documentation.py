"""README and documentation: built without a warning, and every example runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from countveil.starter import write_start

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_documentation_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, ROOT / "docs", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_run(page, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    write_start(folder, people=2000, seed=1)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "documentation"}
    ran = 0
    for language, body in BLOCK.findall(page.read_text()):
        if language == "python":
            exec(compile(body, f"{page.name}: a python block", "exec"), names)
            ran += 1
        elif language == "console":
            for line in body.splitlines():
                if line.startswith("$ countveil"):
                    ran += 1
                    run_line(line.removeprefix("$ "), folder)
    assert ran or page.name not in ("README.md", "tutorial.md")


def run_line(line: str, folder: Path) -> None:
    command, _, comment = line.partition("#")
    expected = re.search(r"exit (\d)", comment)
    arguments = shlex.split(command)
    assert arguments[0] == "countveil"
    if ">" in arguments or "|" in arguments or "&&" in arguments:
        done = subprocess.run(
            command.replace("countveil", f"{sys.executable} -m countveil"),
            shell=True,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    else:
        done = subprocess.run(
            [sys.executable, "-m", "countveil", *arguments[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == (int(expected.group(1)) if expected else 0), f"{line}\n{done.stderr}"


def test_every_public_name_is_in_the_reference():
    import countveil

    text = (ROOT / "docs" / "reference.md").read_text()
    for name in countveil.__all__:
        assert name in text, f"{name} is not in docs/reference.md"


def test_no_file_names_a_machine_path():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    pattern = re.compile(r"/(?:root|home/\w+|work)/\w")
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.suffix not in (".parquet", ".png"):
            assert not pattern.search(path.read_text(errors="replace")), name
