"""README and documentation: built without a warning, and every example runs."""

import inspect
import re
import runpy
import subprocess
import sys
import tomllib
from html import escape
from importlib import resources

import pytest

from tests.documentation_blocks import FENCE, PAGES, ROOT, open_ended, run_page, tidy


def test_the_documentation_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, ROOT / "docs", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_examples_run_and_print_what_the_page_shows(page, tmp_path):
    ran, outputs = run_page(page, tmp_path / "small-place")
    for item in outputs:
        assert tidy(item.shown) == item.printed, "run python -m tests.documentation_blocks"
    assert ran or page.name not in ("README.md", "tutorial.md")


def test_an_open_end_hides_only_what_follows_it():
    assert open_ended("residual …\n", "residual 3e-16\n") == "residual …\n"
    for shown in ("gap …\n", "residual 4e-16\n", "", "residual …\nmore …\n"):
        assert open_ended(shown, "gaps\nresidual 3e-16\n") == "gaps\nresidual 3e-16\n"


def test_the_tutorial_shows_the_plan_that_init_writes():
    text = (ROOT / "docs" / "tutorial.md").read_text()
    shown = "\n".join(body for language, body in FENCE.findall(text) if language == "toml")
    starter = resources.files("countveil.demo").joinpath("starter.toml").read_text()
    assert tomllib.loads(shown) == tomllib.loads(starter)


def test_every_public_name_is_in_the_reference():
    import countveil
    from countveil.report import charts

    text = (ROOT / "docs" / "reference.md").read_text()
    names = [f"countveil.{name}" for name in countveil.__all__]
    names += [f"countveil.report.charts.{name}" for name in charts.__all__]
    for name in names:
        assert re.search(rf"{re.escape(name)}\b", text), f"{name} is not in docs/reference.md"


def table_below(page, heading):
    """Return the first cells of the rows of the table that follows a heading, without its header."""
    text = (ROOT / "docs" / page).read_text().partition(f"{heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()
    return [row.split("|")[1].strip() for row in rows[2:]]


def test_the_page_about_charts_names_them_all():
    from countveil.report import charts

    cells = table_below("ideas/report.md", "## A result in, a chart out")
    names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in names if not hasattr(charts, name)] == []
    functions = {name for name in charts.__all__ if inspect.isfunction(getattr(charts, name))}
    assert set(names) == functions - {"places_of"}


@pytest.mark.usefixtures("few_simulations")
def test_the_page_for_review_boards_names_every_section(tmp_path):
    from countveil import Plan, Seeded, open_engine, pipeline
    from countveil.assess.realised_disclosure import realised
    from countveil.demo.starter import write_start
    from countveil.report.lenses import sections_of
    from countveil.report.section_data import Subject

    write_start(tmp_path / "place", people=300, seed=1)
    plan = Plan.load(tmp_path / "place" / "plan.toml")
    release = pipeline.release(plan, to=tmp_path / "place" / "out", rng=Seeded(1))
    found = realised(release, open_engine("local").tabulate(plan))
    titles = {"public": [], "internal": []}
    for section in sections_of(Subject(release.plan, release, found)):
        titles[section.audience].append(section.title)
    page = "how-to/bring-it-to-a-review-board.md"
    listed = table_below(page, "## The other sections")
    assert listed.pop() == "Method"
    assert titles["public"] == listed
    assert table_below(page, "## The internal report") == titles["internal"]


def test_the_chart_is_drawn_and_described_by_us():
    chart = runpy.run_path(str(ROOT / "docs" / "draw_chart.py"))["chart"]()
    assert escape(chart.alt) in (ROOT / "docs" / "_static" / "risk-by-rho.svg").read_text()
    for page in ("README.md", "docs/index.md"):
        assert f"![{chart.alt}](" in (ROOT / page).read_text(), "run python docs/draw_chart.py"


def test_relative_links_of_the_readme_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(targets) > 5
    for target in targets:
        assert (ROOT / target).exists(), target


def test_no_file_names_a_machine_path():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    pattern = re.compile(r"/(?:root|home/\w+|work)/\w")
    for name in filter(None, listed):
        path = ROOT / name
        if path.is_file() and path.suffix not in (".parquet", ".png"):
            assert not pattern.search(path.read_text(errors="replace")), name
