"""What cannot be finished is refused before it is charged, with simulated people alone."""

import itertools

import pytest
from tests.postprocess.solver.test_precision import with_facts

from countveil import Plan, pipeline
from countveil.demo import starter
from countveil.errors import InputError
from countveil.postprocess import rehearsal, rehearse
from countveil.postprocess.solver import multipliers, nonnegative


@pytest.fixture
def crossing(tmp_path):
    """Return a plan whose facts need the method of multipliers."""
    return with_facts(tmp_path / "place")


@pytest.fixture
def cripple(monkeypatch):
    """Stop the solver of families with rows far too early."""
    monkeypatch.setattr(multipliers, "_ROUNDS", 1)
    monkeypatch.setattr(multipliers, "_PIVOTS", 1)


def test_every_size_and_every_level_is_tried(crossing, monkeypatch):
    plan = Plan.load(crossing)
    seen = []
    real = rehearsal.solve

    def solve(family, passes, **options):
        people = None if family.parent is None else int(family.parent.sum())
        seen.append((family.name, len(family.children), people))
        return real(family, passes, **options)

    monkeypatch.setattr(rehearsal, "solve", solve)
    steps = []
    rehearse(plan, plan.geography(), progress=lambda *step: steps.append(step))
    assert steps[-1] == ("rehearsing", "block", rehearsal.DRAWS, rehearsal.DRAWS)
    assert {name.split()[0] for name, _, _ in seen} == set(plan.levels)
    widest = max(len(part) for part in _families(plan.geography(), "block", "tract"))
    assert ("block", widest) in {(name.split()[0], children) for name, children, _ in seen}
    below = [people for name, _, people in seen if name.startswith("county")]
    assert min(below) < 1_000
    assert max(below) > 0.9 * rehearsal.MOST_PEOPLE


@pytest.mark.parametrize("paths", [1, 2, 3])
@pytest.mark.parametrize("sizes", [1, 2, 3, 4])
def test_every_size_meets_mixed_and_segregated_children_on_every_path(sizes, paths):
    people, routes = list(range(sizes)), [(number,) for number in range(paths)]
    draws = rehearsal._planned_draws(people, routes, rehearsal.DRAWS)
    assert [draw.number for draw in draws] == list(range(rehearsal.DRAWS)), "no more than before"
    seen = {(draw.people, draw.segregated, draw.path) for draw in draws}
    every = set(itertools.product(people, [False, True], routes))
    assert len(every - seen) <= max(0, len(every) - rehearsal.DRAWS)
    assert {draw[:2] for draw in every} == {draw[:2] for draw in seen}
    assert {draw[1:] for draw in every} == {draw[1:] for draw in seen}
    assert all(draw.smallest == (draw.people == 0) for draw in draws)


def test_the_largest_population_is_tried_mixed_and_segregated(crossing, monkeypatch):
    plan, tried = Plan.load(crossing), set()
    real = rehearsal._split

    def split(rng, truth, children, alone, segregated):
        if children > 1:
            tried.add((int(truth.sum()) > rehearsal.MOST_PEOPLE // 4, segregated))
        return real(rng, truth, children, alone, segregated)

    monkeypatch.setattr(rehearsal, "_split", split)
    rehearse(plan, plan.geography())
    assert tried == set(itertools.product([False, True], [False, True]))


def _families(geography, level, above):
    parents = geography.ancestors(level, above).tolist()
    return [[u for u in parents if u == parent] for parent in set(parents)]


def test_it_reads_no_record(crossing):
    (crossing.parent / "people.csv").unlink()
    plan = Plan.load(crossing)
    rehearse(plan, plan.geography(), draws=4)


def test_it_says_the_same_each_time(crossing, cripple):
    plan = Plan.load(crossing)
    messages = []
    for _ in range(2):
        with pytest.raises(InputError, match="could not be solved") as caught:
            rehearse(plan, plan.geography())
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("what", ["check", "release"])
def test_a_rehearsal_that_fails_charges_nothing(what, crossing, cripple, command, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    arguments = [what, crossing] + (["--to", tmp_path / "out"] if what == "release" else [])
    ran = command(*arguments)
    assert ran.status == 2
    assert "a rehearsal with simulated people failed" in ran.err
    assert "Nothing was charged" in ran.err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_release_that_was_charged_is_not_rehearsed_again(tmp_path, monkeypatch, command):
    starter.write_start(tmp_path / "place", people=500, seed=1)
    plan = tmp_path / "place" / "plan.toml"

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.postprocess, "top_down", interrupted)
    assert command("release", plan, "--to", tmp_path / "out").status == 3
    monkeypatch.undo()

    def refused(*_, **__):
        raise AssertionError("it was rehearsed")

    monkeypatch.setattr(pipeline.postprocess, "rehearse", refused)
    assert command("release", plan, "--to", tmp_path / "out").status == 0


def test_a_solution_that_misses_by_a_hair_can_be_finished(crossing, command, monkeypatch, tmp_path):
    out = tmp_path / "out"
    real = nonnegative._certify

    def certify(*arguments, **options):  # as if rounding had cost seven digits
        certificate = real(*arguments, **options)
        return type(certificate)(3e-8, 2e-5, certificate.objective, 1, 0)

    monkeypatch.setattr(pipeline.postprocess, "rehearse", lambda *_, **__: None)
    monkeypatch.setattr(nonnegative, "_certify", certify)
    ran = command("release", crossing, "--to", out)
    assert ran.status == 3
    assert "a larger residual in [postprocess]" in ran.err
    assert command("postprocess", out).status == 3
    other = crossing.with_name("other.toml")
    text = crossing.read_text()
    other.write_text(text.replace('method = "top-down"', 'method = "top-down"\nresidual = 1e-7', 1))
    assert command("postprocess", out, "--plan", other).status == 0
    ran = command("verify", out)
    assert ran.status == 0
    assert "within 1e-07" in ran.out + ran.err


def test_a_residual_past_a_thousandth_is_refused():
    text = (
        'release = { title = "t", unit = "person", neighbors = "add-remove" }\n'
        "[postprocess]\nresidual = 0.1\n"
    )
    with pytest.raises(InputError, match="residual"):
        Plan.parse(text)


def test_certificates_keep_full_precision_unless_asked():
    from countveil.postprocess.certificate import Certificate

    assert not Certificate(2e-9, 0.0, 0.0, 1, 0).holds
    assert not Certificate(1e-10, 2e-6, 0.0, 1, 0).holds
    assert Certificate(2e-9, 2e-6, 0.0, 1, 0).within(1e-8)
    assert Certificate(2e-9, 0.02, 0.0, 1, 0).within(1e-8), "rounding makes sums exact"
    assert not Certificate(2e-8, 0.02, 0.0, 1, 0).within(1e-8)
    assert not Certificate(float("nan"), 0.0, 0.0, 1, 0).within(1e-3)
