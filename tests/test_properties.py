"""Malformed plans, crosswalks and records: never a traceback, never a partial release."""

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from countveil import Release
from tests.conftest import TINY_PEOPLE, TINY_PLACES, TINY_PLAN, run

PEOPLE = "area,AGE,SEX\n" + "".join(",".join(row) + "\n" for row in TINY_PEOPLE)

GARBAGE = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", '"', "'", "[", "]", "=", "\\", "\x00", ";", "--", ",", "\n", "\r\n", "\ufeff"]
    ),
    st.sampled_from(
        ["NaN", "-1", "1e999", "1/0", "2.5", "true", "{}", "∞", "A1", "R1", "region", "🐟"]
    ),
    st.sampled_from(["area", "TOTAL", "AGE*AGE", "../x"]),
)


@st.composite
def spoiled(draw, text: str) -> bytes:
    """Take a good text and cut, double, replace or garble parts of it."""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["cut", "double", "line", "insert", "bytes", "swap"]))
        at = draw(st.integers(0, max(0, len(text) - 1)))
        size = draw(st.integers(1, 30))
        if kind == "cut":
            text = text[:at] + text[at + size :]
        elif kind == "double":
            text = text[: at + size] + text[at:]
        elif kind == "insert":
            text = text[:at] + draw(GARBAGE) + text[at:]
        elif kind == "swap":
            text = text[:at] + draw(GARBAGE) + text[at + size :]
        elif kind == "line":
            lines = text.splitlines(keepends=True)
            if lines:
                lines.pop(draw(st.integers(0, len(lines) - 1)))
            text = "".join(lines)
        else:
            raw = bytearray(text.encode())
            if raw:
                raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
            return bytes(raw)
    return text.encode("utf-8", "surrogatepass")


def check_promises(plan: bytes, places: bytes, people: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as name:
        folder = Path(name)
        (folder / "plan.toml").write_bytes(plan)
        (folder / "places.csv").write_bytes(places)
        (folder / "people.csv").write_bytes(people)
        before = {p: p.read_bytes() for p in folder.rglob("*")}
        checked = run("check", folder / "plan.toml")
        assert checked.status in (0, 1, 2), checked.err
        assert before == {p: p.read_bytes() for p in folder.rglob("*")}, "check wrote something"
        out = folder / "out"
        ran = run("release", folder / "plan.toml", "--to", out, "--quiet")
        assert ran.status == checked.status, ran.err
        assert "Traceback" not in ran.err
        if ran.status:
            lines = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
            assert lines[0].startswith("error: ")
            assert len(lines[0]) > 20
            assert before == {p: p.read_bytes() for p in folder.rglob("*")}, (
                "a refused release left traces"
            )
        else:
            assert Release.read(out).verify()


MANY = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@given(spoiled(TINY_PLAN))
@MANY
def test_malformed_plans(plan):
    check_promises(plan, TINY_PLACES.encode(), PEOPLE.encode())


@given(spoiled(TINY_PLACES))
@MANY
def test_malformed_crosswalks(places):
    check_promises(TINY_PLAN.encode(), places, PEOPLE.encode())


@given(spoiled(PEOPLE))
@MANY
def test_malformed_records(people):
    check_promises(TINY_PLAN.encode(), TINY_PLACES.encode(), people)


@given(st.binary(max_size=300), st.sampled_from(["plan", "places", "people"]))
@MANY
def test_arbitrary_bytes(data, which):
    texts = {"plan": TINY_PLAN.encode(), "places": TINY_PLACES.encode(), "people": PEOPLE.encode()}
    check_promises(**(texts | {which: data}))
