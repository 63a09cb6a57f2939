"""What names promise: one name per thing, one word per idea, no participle for a variable."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import countveil

SOURCE = Path(countveil.__file__).parent


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Participles that still name variables or parameters, and how often. A number may only fall: name what
# the variable holds (`solution`, `message`, `rows`), and lower or delete its entry.
PARTICIPLES = """
accepted 14, added 12, adjusted 4, allowed 35, applied 1, assumed 5, attested 1, batched 2, begun 1,
bounded 8, broken 13, called 1, carried 4, certified 1, changed 14, charged 2, checked 17,
chosen 38, climbed 1, clipped 2, closed 1, coded 1, combined 2, commented 2, compared 2, computed 2,
connected 1, contracted 1, corrected 1, counted 24, covered 1, debiased 1, decided 2, declared 4,
defined 2, derived 1, described 3, determined 6, disabled 1, disclosed 3, dispersed 1, done 32,
drawn 34, dropped 14, eliminated 1, ended 6, estimated 3, excluded 1, expected 14, failed 2,
filled 1, filtered 1, finished 5, fitted 8, fixed 31, folded 3, found 18, grouped 3, halved 2,
handed 5, hashed 1, held 1, hidden 7, hinted 1, ignored 3, implied 1, informed 1, joined 4,
judged 2, kept 61, known 120, labelled 2, layered 1, learned 1, led 1, left 73, limited 1,
listed 27, loaded 5, lost 1, made 3, marked 4, matched 1, measured 17, merged 4, misattributed 1,
misled 2, missed 4, mixed 7, moved 22, named 14, needed 14, nested 3, normalized 1, numbered 2,
observed 49, occupied 4, omitted 2, opened 19, ordered 15, packed 5, padded 3, paid 1, parsed 11,
passed 1, picked 1, planned 1, plugged 2, pooled 1, predicted 1, prepared 4, priced 1, printed 16,
projected 7, proposed 3, published 14, pulled 3, pushed 3, quoted 1, raised 1, reached 6,
realised 6, redacted 1, reduced 9, relabelled 1, released 48, renamed 2, replaced 1, requested 1,
required 2, reserved 4, restarted 1, rounded 7, said 1, sampled 4, scaled 6, sealed 4, seeded 1,
seen 32, segregated 2, selected 1, separated 1, settled 15, shaped 1, shared 9, shifted 1, shown 29,
signed 2, smoothed 1, solved 2, spent 3, spoiled 1, squared 2, stated 17, stopped 1, stored 6,
subtracted 1, summed 20, suppressed 2, tabulated 1, tested 2, thinned 2, tied 11, tilted 4,
touched 4, tried 1, turned 2, typed 1, unbiased 6, unchanged 2, undetermined 2, unfinished 1,
uninformed 1, unmeasured 3, unpacked 1, unpivoted 1, used 19, varied 1, visited 8, weighed 2,
weighted 18, wrapped 1, written 8
"""
IRREGULAR = words(
    """
    begun bound broken built chosen done drawn driven fed forgotten found given grown held hidden kept
    known left lost made meant paid read said seen sent set shown sold spent split taken told written
    """
)
NOUNS = words("bound embed feed need read seed set shed speed split")

# Words that say nothing of what they name, or that another word has replaced.
RETIRED = words(
    """
    asked spread quotients standing listing workplace taken_names filed_rows working_ahead
    chance chances picture pictures normaliser normalised
    """
)


class Names:
    """The names that the package defines, from one pass over its modules."""

    def __init__(self) -> None:
        self.modules: dict[str, list[str]] = defaultdict(list)
        self.classes: dict[str, list[str]] = defaultdict(list)
        self.public: dict[str, list[str]] = defaultdict(list)
        self.variables: dict[str, list[str]] = defaultdict(list)
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
                name = _variable(node)
                if name is not None:
                    self.variables[name].append(f"{place}:{node.lineno}")


def _variable(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else None


def _is_participle(name: str) -> bool:
    return name.islower() and name not in NOUNS and (name in IRREGULAR or name.endswith("ed"))


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


def test_participles_name_ever_fewer_variables(names):
    counts = Counter(
        {
            name: len(where)
            for name, where in names.variables.items()
            if "_" not in name and _is_participle(name)
        }
    )
    allowed = {name: int(most) for name, most in re.findall(r"(\w+) (\d+)", PARTICIPLES)}
    more = {name: names.variables[name] for name in counts if counts[name] > allowed.get(name, 0)}
    assert not more, f"name what these variables hold, not what happened to it: {more}"
    assert not allowed.keys() - counts.keys(), "delete their entries"


def test_the_test_finds_what_it_looks_for(tmp_path):
    tree = ast.parse("def f(*, found):\n    kept = [seed for seed in found]\n    return kept\n")
    variables = [name for node in ast.walk(tree) if (name := _variable(node))]
    assert sorted(name for name in variables if _is_participle(name)) == ["found", "kept"]
