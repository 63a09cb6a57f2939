"""The examples in the docstrings of `countveil.papers` print what they show."""

import doctest
import pkgutil
from importlib import import_module

import pytest

from countveil import papers

MODULES = [info.name for info in pkgutil.walk_packages(papers.__path__, "countveil.papers.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name):
    results = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    tests = [test for name in MODULES for test in finder.find(import_module(name)) if test.examples]
    assert len(tests) > 8
