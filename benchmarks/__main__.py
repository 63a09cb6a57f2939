"""Run benchmarks by name, or list them."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from itertools import takewhile
from types import ModuleType

import benchmarks
from benchmarks import table


def main() -> int:
    """List the benchmarks, or run those named, in turn."""
    known = _found()
    names = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    parser = argparse.ArgumentParser(
        prog=" ".join(["python -m benchmarks", *names]),
        description="; ".join(_sentence(known[name]) for name in names if name in known),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name in names:
        if name not in known:
            parser.error(f"no benchmark {name!r}; choose from {', '.join(known)}")
    for name in dict.fromkeys(names):
        known[name].arguments(parser)
    options = parser.parse_args(sys.argv[1 + len(names) :])
    if not names:
        width = max(map(len, known))
        for name, module in known.items():
            print(f"{name:{width}}  {_sentence(module)}")
        return 0
    status = 0
    for name in names:
        print(f"{name}: {_sentence(known[name])}\n{table.machine()}", flush=True)
        try:
            known[name].run(options)
        except table.Missed as missed:
            print(f"\n{name}: MISSED: {missed}", file=sys.stderr)
            status = 1
        print()
    return status


def _found() -> dict[str, ModuleType]:
    """Import the modules of this package; those with a `run` are benchmarks."""
    names = [
        item.name
        for item in pkgutil.iter_modules(benchmarks.__path__)
        if not item.ispkg and not item.name.startswith("_")
    ]
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "run")}


def _sentence(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
