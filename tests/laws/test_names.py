"""What names promise: one name per thing, one word per idea, no participle for a variable."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import countveil

SOURCE = Path(countveil.__file__).parent


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Participles that say what happened to a value, not what it holds: name the thing.
VAGUE = words("found told asked given taken wanted held")

# Words that say nothing of what they name, or that another word has replaced.
RETIRED = words(
    """
    asked spread quotients standing listing workplace taken_names filed_rows working_ahead
    chance chances picture pictures normaliser normalised somebody nobodys beside beside_plan
    """
)


# What a function does, not a participle or a preposition that fits any of them.
VAGUE_FUNCTIONS = words(
    """
    blamed inert near some together apart readings coded mapped narrowed written opened short
    is_settled tells
    """
)


class Names:
    """The names that the package defines, from one pass over its modules."""

    def __init__(self) -> None:
        self.modules: dict[str, list[str]] = defaultdict(list)
        self.classes: dict[str, list[str]] = defaultdict(list)
        self.public: dict[str, list[str]] = defaultdict(list)
        self.variables: dict[str, list[str]] = defaultdict(list)
        self.functions: dict[str, list[str]] = defaultdict(list)
        for path in sorted(SOURCE.rglob("*.py")):
            place = str(path.relative_to(SOURCE))
            self.modules[path.parent.name if path.stem == "__init__" else path.stem].append(place)
            tree = ast.parse(path.read_text())
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.classes[node.name].append(place)
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    self.public[node.name].append(place)
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.functions[node.name.lstrip("_")].append(f"{place}:{node.lineno}")
                name = _variable(node)
                if name is not None:
                    self.variables[name].append(f"{place}:{node.lineno}")


def _variable(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


@pytest.fixture(scope="module")
def names() -> Names:
    return Names()


def repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_modules_share_a_name(names):
    assert not repeated(names.modules)


def test_no_two_classes_share_a_name(names):
    assert not repeated(names.classes)


def test_no_name_is_both_a_module_and_what_one_defines(names):
    assert not names.modules.keys() & names.public.keys()


def test_no_retired_word_names_anything(names):
    defined = names.modules.keys() | names.public.keys() | names.variables.keys()
    places = {name: names.variables.get(name, name) for name in RETIRED & defined}
    assert not places, f"name these for what they are: {places}"


def test_no_variable_is_named_for_what_happened_to_it(names):
    places = {name: names.variables[name] for name in VAGUE & names.variables.keys()}
    assert not places, f"name what these variables hold: {places}"


def test_no_function_has_a_vague_name(names):
    places = {name: names.functions[name] for name in VAGUE_FUNCTIONS & names.functions.keys()}
    assert not places, f"say what these functions do: {places}"


def test_the_test_finds_what_it_looks_for(tmp_path):
    tree = ast.parse("def f(*, found):\n    total = sum(found)\n    return total\n")
    variables = [name for node in ast.walk(tree) if (name := _variable(node))]
    assert sorted(VAGUE.intersection(variables)) == ["found"]
