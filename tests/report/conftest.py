"""Releases that several tests read and none changes."""

import pytest
from tests.conftest import few_simulated_releases
from tests.report import hand_plan

from countveil import Release, Seeded, open_engine, pipeline
from countveil.assess.realised_disclosure import realised
from countveil.plan.plans import Plan
from countveil.report.budget_steps import other_budgets
from countveil.report.report_page import internal_report, public_report


@pytest.fixture(scope="session")
def hand(tmp_path_factory):
    """The release of the plan whose numbers are made by hand."""
    folder = tmp_path_factory.mktemp("hand")
    pipeline.release(Plan.load(hand_plan.write(folder)), to=folder / "out", rng=Seeded(9))
    return Release.read(folder / "out")


@pytest.fixture(scope="session")
def hand_found(hand):
    """What that release turned out to disclose."""
    counts = open_engine("local").tabulate(Plan.load(hand.folder.parent / "plan.toml"))
    return realised(hand, counts)


@pytest.fixture(scope="session")
def hand_others(hand):
    """What other budgets would give it."""
    return other_budgets(hand.plan)


@pytest.fixture(scope="session")
def hand_page(hand):
    """Its public report."""
    with few_simulated_releases():
        return public_report(hand)


@pytest.fixture(scope="session")
def hand_internal_page(hand, hand_found):
    """Its internal report."""
    with few_simulated_releases():
        return internal_report(hand, hand_found)


@pytest.fixture(scope="session")
def settled(tmp_path_factory):
    """A release that publishes the total of every area as counted, and so settles who is there."""
    folder = tmp_path_factory.mktemp("settled")
    path = hand_plan.write(folder, hand_plan.PLAN + hand_plan.SETTLING + hand_plan.ESTIMATED)
    pipeline.release(Plan.load(path), to=folder / "out", rng=Seeded(3), above_limit=True)
    return Release.read(folder / "out")
