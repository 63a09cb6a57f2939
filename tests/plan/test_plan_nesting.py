"""Plans whose text nests without end are refused at once; what only looks so is read."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import TINY_PLAN

from countveil.errors import PlanError
from countveil.plan import plan_file
from countveil.plan.plan_file import LONGEST_WORD, refuse_deep_nesting

MANY = 20_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a" + ".a" * MANY + " = 1", "a key has more than 16 parts; plans nest at most three deep"),
        ("a" + " . 'a'" * MANY + " = 1", "a key has more than 16 parts"),
        ('"a"' + '."."' * MANY + " = 1", "a key has more than 16 parts"),
        ("[a" + ".a" * MANY + "]", "a key has more than 16 parts"),
        ("[[a" + ".a" * MANY + "]]", "a key has more than 16 parts"),
        ("a = { b" + ".a" * MANY + " = 1 }", "a key has more than 16 parts"),
        ("a = " + "[" * MANY + "]" * MANY, "more than 16 nested brackets"),
        ("a = " + "{a=" * MANY + "1" + "}" * MANY, "more than 16 nested brackets"),
        ("a = [\n" + "[ # ]\n" * MANY, "more than 16 nested brackets"),
        ("a = " + "1" * 5_000, "a number or key has more than 1,000 characters; shorten it"),
        ("a = 0x" + "f" * 1_000_000, "a number or key has more than 1,000 characters"),
    ],
    ids=range(11),
)
def test_nesting_without_end_is_refused_before_it_is_parsed(text, message, monkeypatch):
    def never(*arguments):
        raise AssertionError(
            "the parser, which takes time and memory that grow with the square, ran"
        )

    monkeypatch.setattr(tomllib, "loads", never)
    with pytest.raises(PlanError, match=message) as caught:
        plan_file.parse(TINY_PLAN + text, "plan.toml")
    assert str(caught.value).startswith("plan.toml: line ")


def test_the_line_is_named():
    with pytest.raises(PlanError, match="^plan.toml: line 3: a key has more than"):
        refuse_deep_nesting('a = """\n"""\n' + "a." * 16 + "a = 1", "plan.toml")


def test_sixteen_parts_and_brackets_are_let_through():
    for fine, bad in (
        ("a." * 15 + "a = 1.5", "a." * 16 + "a = 1"),
        ("a = " + "[" * 16 + "]" * 16, "a = " + "[" * 17 + "]" * 17),
        ("a = " + "1" * LONGEST_WORD, "a = " + "1" * (LONGEST_WORD + 1)),
        ("a" * LONGEST_WORD + " = 1", "a" * (LONGEST_WORD + 1) + " = 1"),
    ):
        refuse_deep_nesting(fine, "p")
        tomllib.loads(fine)
        with pytest.raises(PlanError):
            refuse_deep_nesting(bad, "p")


LOOKS_DEEP = "[{." * 50


@pytest.mark.parametrize(
    "value",
    [
        f'"{LOOKS_DEEP}"',
        f"'{LOOKS_DEEP}'",
        f'"{LOOKS_DEEP} \\" {LOOKS_DEEP}"',
        f'"{LOOKS_DEEP}\\\\"',
        f"'{LOOKS_DEEP}\\'",
        f'"""\n{LOOKS_DEEP}\n"" \\""" {LOOKS_DEEP}"""',
        f'"""{LOOKS_DEEP}"""""',
        f'"""{LOOKS_DEEP}""""',
        f"'''\n{LOOKS_DEEP} '' {LOOKS_DEEP}\\'''",
        f"'''{LOOKS_DEEP}'''''",
        f'"{"x" * 5_000}"',
        f'["""a"""", "{LOOKS_DEEP}"]',
        f'[ # {LOOKS_DEEP} "\n"\' {LOOKS_DEEP} #" ] # " {LOOKS_DEEP}',
        '["' + '", "'.join(["1.5"] * 500) + '", ' + "1.5, " * 500 + "]",
        "{ " + ", ".join(f"a{n} = 1.{n}" for n in range(500)) + " }",
        "[" + "[], " * 500 + "]",
    ],
    ids=range(16),
)
def test_strings_comments_and_long_lists_may_hold_dots_and_brackets(value):
    text = f"title = {value}\n" + "".join(f"[t{n}.a.b]\nc.d = 1.5\n" for n in range(50))
    tomllib.loads(text)  # a valid document, so it is for us to read it
    refuse_deep_nesting(text, "plan.toml")


@given(st.text(alphabet="\"'\\#.[]{}=,\na1 ", max_size=200))
def test_what_is_let_through_never_nests_deep(text):
    """Whatever the text: if it is valid and let through, its document is no deeper than allowed."""
    try:
        refuse_deep_nesting(text, "p")
        document = tomllib.loads(text)
    except (PlanError, tomllib.TOMLDecodeError):
        return
    assert _depth(document) <= 16 + 16 * 17


def _depth(value):
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def test_the_command_refuses_it_with_little_memory(tmp_path):
    (tmp_path / "plan.toml").write_text(TINY_PLAN + "a" + ".a" * MANY + " = 1\n")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from countveil.errors import PlanError\n"
        "from countveil.plan import plan_file\n"
        "from countveil.engines.workers import peak_of\n"
        "before = peak_of()\n"
        "try:\n"
        "    plan_file.read(Path(sys.argv[1]))\n"
        "except PlanError:\n"
        "    print(peak_of() - before)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "plan.toml")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ran.stdout) < 20_000_000


@pytest.mark.parametrize("line", ['\\"""\n', "?'''\n'\n", '\\"', 'a = "\n'])
def test_nothing_is_scanned_again_behind_a_quote_without_an_end(line, monkeypatch):
    tokens = []

    class Counted:
        def finditer(self, text):
            for token in pattern.finditer(text):
                tokens.append(token)
                yield token

    pattern = plan_file._TOKEN
    monkeypatch.setattr(plan_file, "_TOKEN", Counted())
    with pytest.raises(PlanError, match="not valid TOML"):
        plan_file.parse(line * 300, "plan.toml")
    assert len(tokens) < 10
