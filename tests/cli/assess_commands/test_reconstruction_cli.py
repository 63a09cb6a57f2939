"""`countveil assess reconstruction` as a stranger uses it, and its sections in the reports."""

import pytest
from tests.conftest import run

from countveil import Plan, Release, Seeded, open_engine, pipeline
from countveil.assess.realised_disclosure import realised
from countveil.assess.reconstruction import reconstruct
from countveil.report.report_page import internal_report, public_report
from countveil.report.section_data import Subject
from countveil.report.sections import reconstruction_section

PUBLISHED = '\n[postprocess]\nmethod = "top-down"\ntables = ["AGE", "SEX"]\n'


@pytest.fixture
def out(tiny):
    tiny.write_text(tiny.read_text() + PUBLISHED)
    folder = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=folder, rng=Seeded(2))
    return folder


def exact(tiny, level="area"):
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    return reconstruct(plan, counts.levels[level], level=level, audience="internal")


def test_a_release_is_taken_as_if_it_were_exact(out, tiny):
    ran = run("assess", "reconstruction", out)
    assert ran.status == 0, ran.err
    text = " ".join(ran.out.split())
    assert "INTERNAL" not in text
    assert "the published estimates, as if they were exact" in text
    assert "these tables of each place: AGE, SEX and TOTAL" in text
    document = run("assess", "reconstruction", out, "--json").document()
    assert document["audience"] == "public"
    assert document["lens"] == "reconstruction"
    release = Release.read(out)
    found = reconstruct(
        release.plan, release.estimates.levels["area"], level="area", audience="public"
    )
    assert document["reconstruction"]["one_units"] == found.one_units
    assert document["reconstruction"]["people"] == found.people
    assert len(document["release"]) == len(release.plan.intruder.priors)


def test_records_are_read_with_internal_only(out, tiny):
    found = exact(tiny)
    for target in (out, tiny):
        ran = run("assess", "reconstruction", target, "--internal")
        assert ran.status == 0, ran.err
        assert ran.out.startswith("INTERNAL")
        document = run("assess", "reconstruction", target, "--internal", "--json").document()
        assert document["audience"] == "internal"
        assert document["lens"] == "realised-reconstruction"
        assert document["reconstruction"]["one_people"] == found.one_people
        assert document["reconstruction"]["certain"] == found.certain


def test_level_tables_limit_and_units_can_be_chosen(out, tiny):
    words = ("--level", "region", "--table", "AGE*SEX", "--limit", "5", "--units", "1")
    document = run("assess", "reconstruction", out, *words, "--json").document()
    found = document["reconstruction"]
    assert (found["level"], found["units"], found["limit"]) == ("region", 1, 5)
    assert found["tables"] == ["AGE*SEX", "TOTAL"]
    assert found["one_units"] == 1  # every cell is listed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan.toml",), "a plan has no counts; name a release folder, or add --internal"),
        (("nothing",), "not found; name a release folder or a plan file"),
        (("out", "--level", "street"), "unknown level 'street'; choose from region, area"),
        (("out", "--table", "HEIGHT"), "unknown table 'HEIGHT'; choose from"),
        (("out", "--plan", "plan.toml"), "--plan: has no effect with a release without"),
        (("plan.toml", "--internal", "--plan", "plan.toml"), "--plan: has no effect with a plan"),
    ],
)
def test_bad_input_exits_2(out, tiny, words, message):
    first, *rest = words
    ran = run("assess", "reconstruction", tiny.parent / first, *rest)
    assert ran.status == 2
    assert message in ran.err


def test_a_release_without_estimates_has_no_such_section(tiny):
    folder = tiny.parent / "noisy"
    pipeline.release(
        Plan.load(tiny).with_document(
            {**Plan.load(tiny).document, "postprocess": {"method": "none"}}
        ),
        to=folder,
        rng=Seeded(2),
    )
    release = Release.read(folder)
    assert reconstruction_section.section(Subject(release.plan, release)) is None
    ran = run("assess", "reconstruction", folder)
    assert ran.status == 2
    assert "make estimates with `countveil postprocess`" in ran.err


@pytest.mark.usefixtures("few_simulations")
def test_the_public_report_never_uses_the_records(out, tiny):
    """The public section is the same whatever the records are; the internal one is watermarked."""
    release = Release.read(out)
    before = reconstruction_section.section(Subject(release.plan, release))
    assert before.audience == "public"
    page = public_report(release)
    assert before.sentences[0] in page
    assert "realised-reconstruction" not in page
    counts = open_engine("local").tabulate(Plan.load(tiny))
    found = realised(release, counts)
    inside = reconstruction_section.realised(Subject(release.plan, release, found))
    assert inside.audience == "internal"
    assert inside.sentences[0] in internal_report(release, found)
    assert inside.figures["reconstruction"]["one_people"] == exact(tiny).one_people
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().splitlines()[0] + "\n")
    again = Release.read(out)
    after = reconstruction_section.section(Subject(again.plan, again))
    assert after.document == before.document


def test_the_sentence_says_what_would_be_given_away(out, tiny):
    found = exact(tiny)
    plan = Plan.load(tiny)
    made = reconstruction_section.section_of(plan, found, reconstruction_section.record_risks(plan))
    share = f"{100 * found.one_units / found.units:.0f} %"
    assert made.sentences[0].startswith(
        f"Published exactly, {share} of the occupied places at level area"
    )
    assert "could be reconstructed person by person: only one database agrees" in made.sentences[0]
    assert (
        "Take someone who knows everyone else in an area and hesitates between two records of the "
        "remaining person. Before this release, they give the true one 50 %; after it, "
    ) in made.sentences[0]
