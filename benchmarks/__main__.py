"""Run benchmarks by name, or list them."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from itertools import takewhile
from pathlib import Path
from types import ModuleType

from benchmarks import table


def main() -> int:
    """List the benchmarks, or run the named ones in turn."""
    known = _benchmarks()
    names = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    for name in names:
        if name not in known:
            parser.error(f"no benchmark {name!r}; choose from {', '.join(known)}")
    if not names:
        parser.parse_args()
        width = max(map(len, known))
        for name, sentence in known.items():
            print(f"{name:{width}}  {sentence}")
        return 0
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    options = _options(modules, known, sys.argv[1 + len(names) :])
    status = 0
    for name, module in modules.items():
        print(f"{name}: {known[name]}\n{table.machine()}", flush=True)
        try:
            module.run(options[name])
        except table.Missed as missed:
            print(f"\n{name}: MISSED: {missed}", file=sys.stderr)
            status = 1
        print()
    return status


def _options(
    modules: dict[str, ModuleType], known: dict[str, str], words: list[str]
) -> dict[str, argparse.Namespace]:
    """Read the options; each goes to all benchmarks that declare it, and at least one must."""
    options, strange = {}, set(words)
    for name, module in modules.items():
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks {name}",
            description=known[name],
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            allow_abbrev=False,  # an abbreviation for one may be another's full name
        )
        module.arguments(parser)
        options[name], left = parser.parse_known_args(words)
        strange &= set(left)
    if strange:
        parser.error(
            f"unrecognized arguments: {' '.join(word for word in words if word in strange)}"
        )
    return options


def _benchmarks() -> dict[str, str]:
    """Return the modules of this package that have a `run`, and the first line of their docstrings."""
    # Read, not imported: what one benchmark loads would count towards the memory of another.
    sentences = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
        if "run" in functions:
            sentences[path.stem] = (ast.get_docstring(module) or "").partition("\n")[0]
    return sentences


if __name__ == "__main__":
    sys.exit(main())
