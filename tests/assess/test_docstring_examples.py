"""The examples in the docstrings are true."""

import doctest
from importlib import import_module
from pkgutil import walk_packages

import pytest

from countveil import assess

MODULES = [item.name for item in walk_packages(assess.__path__, "countveil.assess.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_say(name):
    results = doctest.testmod(import_module(name))
    assert results.failed == 0
