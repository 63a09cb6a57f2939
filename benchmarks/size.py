"""How large the package is: modules, lines, importers, names, and what one release loads.

Compares the working tree with earlier commits. Everything is read from the source but what a release
loads, which `--release` finds by running one.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import table

ROOT = Path(__file__).parent.parent
RELEASE = """
import sys
from countveil import cli
def run(*words):
    sys.argv = ["countveil", *words]
    try:
        cli.main()
    except SystemExit as ended:
        assert not ended.code, words
run("init", "place")
run("release", "place/plan.toml", "--to", "place/out", "--quiet")
loaded = [name for name, module in sys.modules.items() if name.split(".")[0] == "countveil"
          and not (getattr(module, "__file__", "") or "").endswith("__init__.py")]
print(len(loaded), len({name.rpartition(".")[0] for name in loaded}))
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--before", nargs="*", default=[], help="commits to compare with")
    parser.add_argument("--release", action="store_true", help="count what one release loads")


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    text: str
    tree: ast.Module
    package: bool


def run(options: argparse.Namespace) -> None:
    """Print one column per commit, and one for the working tree."""
    columns = {}
    for commit in options.before:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "archive", commit, "src"],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            columns[commit] = _sizes(Path(folder) / "src", options.release)
    columns["now"] = _sizes(ROOT / "src", options.release)
    rows = [
        [name, *(f"{column[name]:,}" for column in columns.values())] for name in columns["now"]
    ]
    table.show("The package", ["", *columns], rows)


def _sizes(source: Path, release: bool) -> dict[str, int]:
    modules = list(_modules(source))
    files = [module for module in modules if not module.package]
    importers = _importers(modules)
    names = Counter(module.name.rpartition(".")[2] for module in files)
    classes = Counter(
        node.name
        for module in files
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    functions = {
        node.name
        for module in files
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }
    lines = Counter[str]()
    for module in modules:
        lines += _lines(module)
    sizes = {
        "modules": len(files),
        "folders": len(modules) - len(files),
        **{f"lines: {kind}": lines[kind] for kind in ("code", "docstrings", "comments", "blank")},
        "modules with one importer": sum(len(importers[m.name]) == 1 for m in files),
        "module names used twice": sum(number > 1 for number in names.values()),
        "public class names used twice": sum(number > 1 for number in classes.values()),
        "names both module and function": len(names.keys() & functions),
        "public classes and functions": _public(files),
        "names in the package's __all__": _exported(modules),
        "mentions of Any": _mentions(modules, "Any"),
        "mentions of dict[str, Any]": sum(m.text.count("dict[str, Any]") for m in modules),
        "functions with **options": sum(
            isinstance(node, ast.FunctionDef) and node.args.kwarg is not None
            for module in modules
            for node in ast.walk(module.tree)
        ),
    }
    if release:
        loaded, folders = _loaded(source)
        sizes |= {"modules that one release loads": loaded, "folders of these": folders}
    return sizes


def _modules(source: Path) -> Iterator[Module]:
    for path in sorted((source / "countveil").rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        package = parts[-1] == "__init__"
        text = path.read_text()
        yield Module(".".join(parts[: -1 if package else None]), text, ast.parse(text), package)


def _importers(modules: list[Module]) -> dict[str, set[str]]:
    """Return, for each module, the modules that import it or a name of it."""
    known = {module.name: set[str]() for module in modules}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = _base(module, node)
                targets = [f"{base}.{alias.name}" for alias in node.names]
                targets = [name if name in known else base for name in targets]
            else:
                continue
            for target in targets:
                if target in known and target != module.name:
                    known[target].add(module.name)
    return known


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + module.package]
    return ".".join([*parts, node.module] if node.module else parts)


def _lines(module: Module) -> Counter[str]:
    docstrings = set[int]()
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            first = node.body[0]
            docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    kinds = Counter[str]()
    for number, line in enumerate(module.text.splitlines(), 1):
        blank, comment = not line.strip(), line.lstrip().startswith("#")
        kinds[
            "docstrings"
            if number in docstrings
            else "blank"
            if blank
            else "comments"
            if comment
            else "code"
        ] += 1
    return kinds


def _public(files: list[Module]) -> int:
    return sum(
        isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        for module in files
        for node in module.tree.body
    )


def _exported(modules: list[Module]) -> int:
    (package,) = (module for module in modules if module.name == "countveil")
    for node in package.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    return 0


def _mentions(modules: list[Module], name: str) -> int:
    return sum(
        isinstance(node, ast.Name) and node.id == name
        for module in modules
        for node in ast.walk(module.tree)
    )


def _loaded(source: Path) -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        printed = subprocess.run(
            [sys.executable, "-c", RELEASE],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    loaded, folders = printed.split()[-2:]
    return int(loaded), int(folders)
