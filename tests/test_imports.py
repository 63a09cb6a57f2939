"""What loads when: small scripts and `--help` must not pay for what they do not use."""

import ast
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import countveil


def loaded(program: str) -> set[str]:
    code = f"{program}\nimport sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_countveil_loads_nothing_heavy():
    modules = loaded("import countveil")
    for name in ("numpy", "pyarrow", "duckdb", "pandas", "pyspark", "altair", "scipy", "pydantic"):
        assert name not in modules


def test_using_plans_mechanisms_and_the_intruder_loads_no_extras():
    program = (
        "from countveil import *\n"
        "from countveil import Plan, DiscreteGaussian, assess, Intruder, measure\n"
        "assess.marginal_risk(DiscreteGaussian('5'), intruder=Intruder(prior=0.1))"
    )
    modules = loaded(program)
    for name in ("pandas", "polars", "pyspark", "altair", "scipy.stats"):
        assert name not in modules


def test_help_loads_no_heavy_library():
    program = "import sys; sys.argv = ['countveil', '--help']\nimport countveil.cli"
    modules = loaded(program)
    for name in ("numpy", "pyarrow", "duckdb", "pydantic", "scipy", "cryptography"):
        assert name not in modules


def test_the_public_names_are_there():
    for name in countveil.__all__:
        assert getattr(countveil, name) is not None
    assert set(dir(countveil)) == set(countveil.__all__)
    assert countveil.release is countveil.pipeline.release
    try:
        countveil.nonsense  # noqa: B018
    except AttributeError as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError


def test_every_public_name_is_an_attribute_and_known_to_type_checkers():
    """What loads late is imported under TYPE_CHECKING, for editors and mypy."""
    for package in (countveil, countveil.assess):
        tree = ast.parse(Path(package.__file__).read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert set(package.__all__) <= imported
        for name in package.__all__:
            assert getattr(package, name) is not None


def test_the_extra_for_spark_brings_what_arrow_needs_there():
    """Spark hands no Arrow batch to Python without pandas, which it names in an extra of its own."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    (wanted,) = project["optional-dependencies"]["spark"]
    assert wanted.startswith("pyspark[sql]")
    assert any("pandas" in line and "sql" in line for line in metadata.requires("pyspark") or [])


def test_commands_hand_confidential_counts_on_by_their_type():
    """As `Any`, they would pass through the command line unseen by mypy and by the contract."""
    from countveil import cli

    folder = Path(cli.__file__).parent
    contract = tomllib.loads((folder.parents[2] / "pyproject.toml").read_text())
    (door,) = [
        item
        for item in contract["tool"]["importlinter"]["contracts"]
        if item.get("forbidden_modules") == ["countveil.engines.counts"]
    ]
    annotated = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            if node.name == "counts_again":
                assert ast.unparse(node.returns) == "Counts"
                annotated.add(path)
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.arg in ("counts", "exact_counts") and argument.annotation is not None:
                    assert ast.unparse(argument.annotation) == "Counts", f"{path}: {node.name}"
                    annotated.add(path)
    modules = {
        f"countveil.cli.{'.'.join(path.relative_to(folder).with_suffix('').parts)}"
        for path in annotated
    }
    excepted = {
        line.partition(" -> ")[0]
        for line in door["ignore_imports"]
        if line.startswith("countveil.cli")
    }
    assert modules == excepted, "each exception is used, and each use is an exception"
    assert len(modules) == 3
