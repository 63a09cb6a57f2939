"""Run the examples of a page in order; `python -m tests.documentation_blocks [PAGE …]` refreshes.

A `text` block that directly follows an example is its output. A line of it that ends in "…" shows the
beginning only: what follows differs from run to run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from countveil.demo.starter import write_start
from tests.conftest import run

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """An output block of a page, and what the example before it printed when it ran."""

    start: int
    stop: int
    shown: str
    printed: str


def run_page(page: Path, folder: Path) -> tuple[int, list[Shown]]:
    """Run a page in a fresh folder like `countveil init` makes; return how much ran, and outputs."""
    write_start(folder, people=2000, seed=1)
    text = page.read_text()
    names: dict[str, object] = {"__name__": "__main__"}
    ran, shown, last, end = 0, [], None, 0
    with contextlib.chdir(folder):
        for block in FENCE.finditer(text):
            language, body = block.groups()
            if language == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(
                        compile(body, f"{page.name}: a python block", "exec", dont_inherit=True),
                        names,
                    )
                last, end, ran = out.getvalue(), block.end(), ran + 1
            elif language == "console":
                lines = [line for line in body.splitlines() if line.startswith("$ countveil")]
                last, end, ran = "".join(map(run_line, lines)), block.end(), ran + len(lines)
            elif language == "text" and last is not None and not text[end : block.start()].strip():
                printed = open_ended(body, tidy(last))
                shown.append(Shown(block.start(2), block.end(2), body, printed))
                last = None
    return ran, shown


def run_line(line: str) -> str:
    """Run one `$ countveil …` line; `# exit 2` at its end expects that status."""
    command, _, comment = line.removeprefix("$ ").partition("#")
    expected = re.search(r"exit (\d+)", comment)
    ran = run(*shlex.split(command)[1:], env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"})
    assert ran.status == (int(expected.group(1)) if expected else 0), f"{line}\n{ran.err}"
    return ran.out + (ran.err if expected else "")


def tidy(text: str) -> str:
    """Drop blanks at line ends and blank lines around."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
    return lines + "\n"


def open_ended(shown: str, printed: str) -> str:
    """Keep shown lines that end in "…" where what was printed begins alike."""
    lines = printed.splitlines()
    for number, (old, new) in enumerate(zip(shown.splitlines(), lines, strict=False)):
        if old.endswith("…") and new.startswith(old[:-1]):
            lines[number] = old
    return "\n".join(lines) + "\n"


def main() -> None:
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            _, outputs = run_page(page, Path(folder) / "small-place")
        text = page.read_text()
        for item in reversed(outputs):
            text = text[: item.start] + item.printed + text[item.stop :]
        if text != page.read_text():
            page.write_text(text)
            print(f"refreshed {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
