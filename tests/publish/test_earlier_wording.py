"""Releases whose files have the words of earlier versions still verify; nothing else may differ."""

import json

import pytest
from tests.conftest import TINY_PLAN, restate
from tests.measure.test_one_table import drawn, plan  # noqa: F401

from countveil import Plan, Seeded, pipeline
from countveil.errors import VerificationError
from countveil.measure import manifest
from countveil.publish import open_release
from countveil.publish.earlier_wording import earlier_guarantee

INTRODUCTION = (
    "Each table has one row per unit of each level, from the top down: the column `level` names the "
    "level, `geocode` the unit, and the others are the variables below. All numbers are estimates: "
    "noise was added to protect each person, and then they were made consistent. A line includes "
    "those below it that are indented further.\n\nLevels and their units: region (2), area (5).\n\n"
)


def test_a_codebook_may_have_the_earlier_introduction(tiny, tmp_path):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\ntables = ["AGE"]\n')
    out = tmp_path / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(1))
    path = out / "tables" / "codebook.md"
    title, rest = path.read_text().split("\n\n", 1)
    tables = rest[rest.index("## AGE") :]
    path.write_text(f"{title}\n\n{INTRODUCTION}{tables}")
    restate(out, "tables/codebook.md")
    open_release(out).verify(simulation=True)
    path.write_text(f"{title}\n\n{INTRODUCTION}{tables}".replace("was added", "was not added"))
    restate(out, "tables/codebook.md")
    with pytest.raises(VerificationError, match="codebook.md does not match the estimates"):
        open_release(out).verify(simulation=True)


def test_a_guarantee_may_be_stated_in_earlier_words(plan):  # noqa: F811
    drawn(plan)
    out = plan.parent / "out"
    document = manifest.read(out)
    words = earlier_guarantee(open_release(out).guarantee)
    assert words["secrets"].endswith("of his state counts him, and whether as died")
    assert words["sentence"].startswith("Whoever sees the release changes his odds between")
    document["guarantee"] |= words
    (out / manifest.NAME).write_text(json.dumps(document))
    open_release(out).verify(simulation=True)
    document["guarantee"]["sentence"] = words["sentence"].replace("2.718", "1.718")
    (out / manifest.NAME).write_text(json.dumps(document))
    with pytest.raises(VerificationError, match="guarantee in the manifest differs"):
        open_release(out).verify(simulation=True)


def test_ledgers_know_a_coupling_by_the_digest_that_earlier_versions_wrote(plan):  # noqa: F811
    drawn(plan)
    coupling = manifest.read(plan.parent / "out")["guarantee"]["coupling"]
    assert coupling == "c555a6b2f0570d8dbd8dfa58265bedc46c741711fbb01954ec9e8d7f152b4e91"
