"""A changed plan as text: the file as it was opened, comments included, with new values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from countveil.errors import InputError, PlanError
from countveil.plan import plan_file
from countveil.plan.plans import Plan

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_VALUE = r"""("(?:[^"\\]|\\.)*"|'[^']*'|\[[^\[\]]*\]|\{[^{}]*\}|[^\s#,\[\]{}"']+)"""
_HEADER = re.compile(r"\s*\[")
_QUERIES = re.compile(r"\s*\[\s*budget\s*\.\s*queries\s*\.")
_KEYS = (
    *(("release", "neighbors"), ("intruder", "priors")),
    *(("intruder", "level"), ("intruder", "knows")),
)


@dataclass(frozen=True, slots=True)
class Edit:
    """One value of one table; None removes the key, `instead_of` names a key to replace."""

    table: str
    key: str
    value: Any
    instead_of: str | None = None


def rewritten(text: str, plan: Plan, changed: Plan) -> tuple[str, bool]:
    """Return the text of the changed plan, and whether its comments were kept.

    Values are replaced line by line. The result is parsed again: if it is not the changed plan, as may
    happen with an unusual layout, the whole file is rewritten.
    """
    edits = list(_edits(plan.document, changed.document))
    lines = text.splitlines()
    for edit in edits:
        lines = _edited(lines, edit)
    queries = changed.document["budget"].get("queries", {})
    if queries != plan.document["budget"].get("queries", {}):
        lines = _with_queries(lines, queries)
        edits.append(Edit("budget", "queries", queries))
    kept = "\n".join(lines) + "\n" if edits else text
    if _says(kept, changed):
        return kept, True
    fresh = toml_of(_edited_document(tomllib.loads(text), edits))
    if not _says(fresh, changed):
        raise InputError(
            f"{plan.name}: its layout is too unusual to change it here; change it in an editor"
        )
    return fresh, False


def toml_of(document: Mapping[str, Any]) -> str:
    """Write a document as TOML: tables with headers, arrays of tables, everything else on one line."""
    return "\n".join(_tables(document, ())).strip("\n") + "\n"


def _edits(own: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Edit]:
    """Yield the differences among the values that settings can change."""
    for table, key in _KEYS:
        value = new.get(table, {}).get(key)
        if value != own.get(table, {}).get(key):
            yield Edit(table, key, value)
    before, after = own["budget"], new["budget"]
    currency = "rho" if "rho" in after else "epsilon"
    if any(before.get(key) != after.get(key) for key in ("rho", "epsilon")):
        other = "epsilon" if currency == "rho" else "rho"
        yield Edit("budget", currency, after[currency], instead_of=other)
    for key in ("delta", "accounting"):
        if key in before and key not in after:
            yield Edit("budget", key, None)
    if before["levels"] != after["levels"]:
        yield Edit("budget", "levels", dict(after["levels"]))


def _says(text: str, changed: Plan) -> bool:
    try:
        document = plan_file.parse(text, changed.name).document
    except PlanError:
        return False
    return document == changed.document


def _edited(lines: list[str], edit: Edit) -> list[str]:
    """Return the lines with one value replaced, added or removed."""
    nested = _section(lines, f"{edit.table}.{edit.key}")
    if isinstance(edit.value, dict) and nested is not None:
        for key, value in edit.value.items():
            lines = _edited(lines, Edit(f"{edit.table}.{edit.key}", key, value))
        return lines
    section = _section(lines, edit.table)
    if section is not None:
        for key in (edit.key, edit.instead_of):
            for number in range(*section) if key is not None else ():
                line = re.fullmatch(
                    rf"""(\s*)["']?{key}["']?\s*=\s*{_VALUE}(\s*)(#.*)?""", lines[number]
                )
                if line:
                    new = [] if edit.value is None else [_line(edit, line)]
                    return [*lines[:number], *new, *lines[number + 1 :]]
    if edit.value is None:
        return lines
    if isinstance(edit.value, dict):
        body = [f"{_key(key)} = {_value(value)}" for key, value in edit.value.items()]
        return [*lines, "", f"[{edit.table}.{edit.key}]", *body]
    own = f"{_key(edit.key)} = {_value(edit.value)}"
    if section is None:
        return [*lines, "", f"[{edit.table}]", own]
    return [*lines[: section[0]], own, *lines[section[0] :]]


def _with_queries(lines: list[str], queries: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the lines with other tables of shares of queries, where the old ones were."""
    kept: list[str] = []
    place = None
    inside = False
    for line in lines:
        if _HEADER.match(line):
            inside = bool(_QUERIES.match(line))
        if not inside:
            kept.append(line)
        elif place is None:
            place = len(kept)
    fresh = []
    for level, shares in queries.items():
        fresh += [f"[budget.queries.{_key(level)}]"]
        fresh += [f"{_key(query)} = {_value(share)}" for query, share in shares.items()]
    place = len(kept) if place is None else place
    return [*kept[:place], *fresh, "", *kept[place:]]


def _line(edit: Edit, written: re.Match[str]) -> str:
    """Return a line with another value; a comment stays where it was, if there is room."""
    indent, comment = written[1], written[4] or ""
    line = f"{indent}{_key(edit.key)} = {_value(edit.value)}"
    return line + " " * max(1, written.start(4) - len(line)) + comment if comment else line


def _section(lines: Sequence[str], table: str) -> tuple[int, int] | None:
    """Return where the lines of a table begin and end."""
    header = re.compile(rf"\s*\[\s*{re.escape(table)}\s*\]\s*(#.*)?")
    for first, line in enumerate(lines):
        if header.fullmatch(line):
            rest = range(first + 1, len(lines))
            return first + 1, next((n for n in rest if _HEADER.match(lines[n])), len(lines))
    return None


def _edited_document(own: dict[str, Any], edits: Sequence[Edit]) -> dict[str, Any]:
    for edit in edits:
        table = own.setdefault(edit.table, {})
        table.pop(edit.instead_of, None)
        table.pop(edit.key, None)
        if edit.value is not None:
            table[edit.key] = edit.value
    return own


def _tables(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a table: its own values first, then its subtables."""
    for key, value in table.items():
        if not isinstance(value, dict) and not _is_array_of_tables(value):
            yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        where = (*path, key)
        name = ".".join(map(_key, where))
        if isinstance(value, dict):
            yield from ("", f"[{name}]")
            yield from _tables(value, where)
        elif _is_array_of_tables(value):
            for item in value:
                yield from ("", f"[[{name}]]")
                yield from (f"{_key(inner)} = {_value(each)}" for inner, each in item.items())


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    if not isinstance(value, int | float):
        raise InputError(f"a plan cannot hold {type(value).__name__} values; write it as text")
    return repr(value)


def _text(value: str) -> str:
    # JSON and TOML escape alike, except for DEL, which JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
