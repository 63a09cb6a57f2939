"""Ways to damage a file: its bytes, or its contents as TOML, JSON, CSV, Parquet or SQLite."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import random
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ODD_TEXTS = (
    *(
        "",
        " ",
        "x",
        "0",
        "-1",
        "1/0",
        "1e999",
        "1e-999",
        "NaN",
        "\0",
        "\u00a0",
        "=1+1",
        "../x",
        "*",
    ),
    *(
        "TOTAL",
        "a" * 700,
        "1/3",
        "2",
        "\u202e",
        "é",
        "'",
        '"',
        "\n",
        "name\tx",
        ".",
        "/",
        "99999999999999",
    ),
)
ODD_NUMBERS = (
    *(
        0,
        1,
        -1,
        2,
        255,
        2**31 - 1,
        2**31,
        -(2**31) - 1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**70,
        -(2**70),
    ),
    *(0.5, -0.0, 1e-320, 1e308, math.inf, -math.inf, math.nan, True, False),
)


def mutated(data: bytes, suffix: str, rng: random.Random, other: bytes = b"") -> bytes:
    """Return a damaged copy of a file; `other` is another file to splice in."""
    structured: dict[str, Callable[[bytes, random.Random], bytes]] = {
        ".toml": _toml,
        ".json": _json,
        ".jsonl": _json_lines,
        ".csv": _csv,
        ".parquet": _parquet,
        ".sqlite": _sqlite,
    }
    way = structured.get(suffix)
    if way is not None and rng.random() > 0.35:
        with suppress(RecursionError):  # nested too deeply to be written
            return way(data, rng)
    return _bytes(data, rng, other)


def _bytes(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Flip, cut, repeat, insert, splice."""
    result = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        at = rng.randrange(len(result) + 1)
        length = min(rng.choice([1, 2, 8, 64, 1024]), len(result) - at)
        way = rng.randrange(8)
        if way == 0 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif way == 1 and at < len(result):
            result[at] = rng.choice([0, 10, 34, 39, 44, 45, 48, 57, 127, 255])
        elif way == 2:
            del result[at:]
        elif way == 3:
            del result[at : at + length]
        elif way == 4:
            result[at:at] = result[at : at + length]
        elif way == 5:
            result[at:at] = rng.randbytes(length)
        elif way == 6 and other:
            begin = rng.randrange(len(other))
            result[at : at + length] = other[begin : begin + length]
        elif way == 7:
            result[at:at] = rng.choice(ODD_TEXTS).encode()
    return bytes(result)


def _odd(rng: random.Random) -> Any:
    """Return a value of any type."""
    kind = rng.randrange(6)
    if kind < 2:
        return rng.choice(ODD_TEXTS)
    if kind < 4:
        return rng.choice(ODD_NUMBERS)
    if kind == 4:
        return rng.choice([None, [], {}, [[]], [None], {"": 1}, ["x"] * 50, list(range(100))])
    deep: Any = 1
    for _ in range(rng.choice([3, 30, 100])):
        deep = [deep] if rng.random() < 0.5 else {"x": deep}
    return deep


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return all (container, key) of a tree."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        keys = node.keys() if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                left.append(node[key])
    return found


def _changed_tree(tree: Any, rng: random.Random) -> Any:
    """Replace, delete, repeat, swap, rename and add values of a tree."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        places = _places(tree) if isinstance(tree, dict | list) else []
        if not places or rng.random() < 0.01:
            return _odd(rng)
        node, key = rng.choice(places)
        way = rng.randrange(9)
        if way < 3:
            node[key] = _odd(rng)
        elif way == 3:
            del node[key]
        elif way == 4:
            other, where = rng.choice(places)
            node[key] = copy.deepcopy(other[where]) if where in _keys(other) else None
        elif way == 5 and isinstance(node, list):
            node.insert(key, copy.deepcopy(node[key]))
        elif way == 6 and isinstance(node, dict):
            node[rng.choice(ODD_TEXTS) if rng.random() < 0.5 else f"{key}x"] = node.pop(key)
        elif way == 7 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
            node[key] = node[key] * rng.choice([-1, 2, 10**6, 0.5])
        elif way == 8 and isinstance(node[key], str):
            at = rng.randrange(len(node[key]) + 1)
            node[key] = node[key][:at] + rng.choice(ODD_TEXTS) + node[key][at:]
    return tree


def _keys(node: Any) -> Any:
    return node if isinstance(node, dict) else range(len(node))


def _json(data: bytes, rng: random.Random) -> bytes:
    changed = _changed_tree(json.loads(data), rng)
    text = json.dumps(changed)
    if rng.random() < 0.1:
        text = text.replace("x", "\\ud800", 1)
    return text.encode()


def _json_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = _json(lines[at], rng)
    return b"\n".join(lines) + b"\n"


def _toml(data: bytes, rng: random.Random) -> bytes:
    return _as_toml(_changed_tree(tomllib.loads(data.decode()), rng)).encode()


def _as_toml(tree: Any) -> str:
    """Write a tree with one inline table per key; types that TOML lacks are written as they are."""
    if not isinstance(tree, dict):
        return str(tree)
    return "".join(f"{json.dumps(str(key))} = {_inline(value)}\n" for key, value in tree.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        items = (f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else str(value)


def _csv(data: bytes, rng: random.Random) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    for _ in range(rng.choice([1, 1, 2, 5])):
        row = rng.choice(rows)
        column = rng.randrange(max(len(row), 1))
        way = rng.randrange(9)
        if way < 3 and row:
            row[column % len(row)] = str(_odd(rng))[:2000]
        elif way == 3:
            for each in rows:
                del each[column : column + 1]
        elif way == 4:
            for each in rows:
                each.insert(column, rng.choice(ODD_TEXTS))
        elif way == 5:
            rows.insert(rng.randrange(len(rows) + 1), list(row))
        elif way == 6 and len(rows) > 1:
            rows.remove(row)
        elif way == 7:
            rng.shuffle(rows)
        elif way == 8:
            row.append(rng.choice(ODD_TEXTS))
    text = io.StringIO()
    delimiter = rng.choice(",,,,,;\t|")
    every = rng.random() < 1 / 3
    csv.writer(
        text,
        delimiter=delimiter,
        lineterminator="\n",
        quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL,
    ).writerows(rows)
    encoding = rng.choice(["utf-8"] * 9 + ["utf-8-sig", "utf-16", "latin-1"])
    return text.getvalue().encode(encoding, "replace")


_TYPES = (
    *(pa.string(), pa.large_string(), pa.binary(), pa.int8(), pa.int32(), pa.int64(), pa.uint64()),
    *(
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
        pa.decimal128(20, 2),
    ),
    *(
        pa.dictionary(pa.int32(), pa.string()),
        pa.list_(pa.int32()),
        pa.list_(pa.string()),
        pa.null(),
    ),
    *(pa.struct([("x", pa.int32())]), pa.dictionary(pa.int8(), pa.int64())),
)


def _parquet(data: bytes, rng: random.Random) -> bytes:
    table = pq.read_table(pa.BufferReader(data))
    for _ in range(rng.choice([1, 1, 2, 3])):
        table = _changed_table(table, rng)
    sink = pa.BufferOutputStream()
    options: dict[str, Any] = {"compression": rng.choice(["zstd", "none", "snappy"])}
    if rng.random() < 0.3:
        options["row_group_size"] = rng.choice([1, 2, 3, 7])
    if rng.random() < 0.2:
        options["use_dictionary"] = False
    if rng.random() < 0.1:
        options["store_schema"] = False
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def _changed_table(table: pa.Table, rng: random.Random) -> pa.Table:
    """Retype, empty, drop, repeat, rename, reorder or change columns and rows of a table."""
    way = rng.randrange(11)
    rows, columns = table.num_rows, table.num_columns
    if not columns:
        return pa.table({"x": [1]})
    at = rng.randrange(columns)
    name, column = table.column_names[at], table.column(at)
    if way == 0:
        return table.drop_columns([name]) if table.column_names.count(name) == 1 else table
    if way == 1:
        return table.append_column(rng.choice(["x", name]), column)
    if way == 2:
        names = list(table.column_names)
        names[at] = rng.choice(["x", name.upper(), "", *names])
        return table.rename_columns(names)
    if way == 3:
        return table.slice(rng.randrange(rows + 1), rng.choice([0, 1, rows]))
    if way == 4 and rows:
        order = [rng.randrange(rows) for _ in range(rng.choice([rows, rows, 2 * rows]))]
        return table.take(order)
    if way == 5 and rows:
        return table.take(sorted(range(rows), key=lambda _: rng.random()))
    if way == 6:
        values = [None] * rows
        return table.set_column(at, name, pa.array(values, column.type))
    kind = rng.choice(_TYPES)
    if way == 7:
        try:
            return table.set_column(at, name, column.cast(kind))
        except pa.ArrowException:
            return table.set_column(at, name, pa.nulls(rows, kind))
    values = column.to_pylist()
    for _ in range(rng.choice([1, 1, 2, rows]) if rows else 0):
        row = rng.randrange(rows)
        values[row] = _changed_cell(values[row], rng)
    try:
        changed = pa.array(values, column.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        changed = pa.array([str(value)[:300] for value in values])
    field = table.schema.field(at)
    if changed.type == field.type and not (changed.null_count and not field.nullable):
        return table.set_column(at, field, changed)  # the type is unchanged; a nested one differs
    return table.set_column(at, name, changed)


def _changed_cell(value: Any, rng: random.Random) -> Any:
    way = rng.randrange(6)
    if isinstance(value, list):
        if way == 0:
            return value[:-1]
        if way == 1:
            return [*value, 0]
        if way == 2:
            return []
        return [rng.choice([-1, 0, 2**31 - 1, -(2**31), *value[:1]]) for _ in value]
    if isinstance(value, str):
        return rng.choice([*ODD_TEXTS, None, value + "x", value[:-1]])
    if isinstance(value, int):
        return rng.choice([0, -1, value + 1, -value, 2**31 - 1, -(2**31), None, 2**63 - 1])
    if isinstance(value, float):
        return rng.choice([0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 1e-320, None])
    return None


def _sqlite(data: bytes, rng: random.Random) -> bytes:
    """Change cells, rows, columns and tables of a database."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        tables = [name for name in tables if not name.startswith("sqlite_")]
        for _ in range(rng.choice([1, 1, 2, 4])):
            try:
                _change_database(connection, rng.choice(tables), rng)
            except sqlite3.Error:
                continue  # its constraints do not allow this
        connection.commit()
        return bytes(connection.serialize())
    finally:
        connection.close()


def _change_database(connection: sqlite3.Connection, table: str, rng: random.Random) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column = rng.choice(columns or ["gone"])
    way = rng.randrange(10)
    odd = _odd(rng)
    value: object = odd if isinstance(odd, str | float | int | None) else json.dumps(odd)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = str(value)
    if rng.random() < 0.3:
        value = rng.choice(
            ["rho 1", "zcdp 1", "pure 1/0", "x 1", "zcdp", b"\xff\xfe", "2020-13-99", "none"]
        )
    numbers = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
    some = f"rowid = {rng.choice(numbers or [0])}"
    if way < 6:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {some}", (value,))
    elif way == 6:
        connection.execute(f"DELETE FROM {table} WHERE {some}")
    elif way == 7:
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    elif way == 8:
        connection.execute(f"ALTER TABLE {table} RENAME TO {table}_other")
    else:
        connection.execute(f"DROP TABLE {table}")
