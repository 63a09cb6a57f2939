"""The examples of the front door run in a folder that `countveil init` made, and say what is true."""

import doctest
from importlib import import_module

import pytest

from countveil.demo.starter import write_start

MODULES = [
    "countveil.engines.engine",
    "countveil.estimate.unbiased",
    "countveil.measure.door",
    "countveil.pipeline",
    "countveil.plan.plans",
    "countveil.postprocess.topdown",
    "countveil.publish.release_folder",
    "countveil.report.report_page",
]
EXAMPLES = [
    test
    for name in MODULES
    for test in doctest.DocTestFinder().find(import_module(name))
    if test.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_example_prints_what_it_says(example, tmp_path, monkeypatch):
    write_start(tmp_path / "place", people=2000, seed=1)
    monkeypatch.chdir(tmp_path / "place")
    for line in example.examples:
        assert doctest.SKIP not in line.options, "an example of the front door is run"
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_most_used_functions_have_examples():
    names = {example.name.rpartition(".")[2] for example in EXAMPLES}
    assert names >= {
        *("load", "parse", "risk", "open_engine", "take", "top_down", "least_squares"),
        *("release", "check", "read", "verify", "open_release", "public_report"),
    }
