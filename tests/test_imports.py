"""What loads when: small scripts and `--help` must not pay for what they do not use."""

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


def test_the_extra_for_spark_brings_what_arrow_needs_there():
    """Spark hands no Arrow batch to Python without pandas, which it names in an extra of its own."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    (wanted,) = project["optional-dependencies"]["spark"]
    assert wanted.startswith("pyspark[sql]")
    assert any("pandas" in line and "sql" in line for line in metadata.requires("pyspark") or [])
