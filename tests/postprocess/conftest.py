"""Small places to descend through: a plan, its people, and seeded measurements of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from countveil import Seeded, measure, open_engine
from countveil.measure import Measurements
from countveil.plan.plans import Plan

LEVELS = ("state", "county", "tract", "block")
KINDS = ("home", "prison", "nursing", "college")
AGES = ("child", "adult")
RACES = ("a", "b", "c")

PLAN = """
[release]
title = "Small"
unit = "person"
neighbors = "change-one"
[records]
path = "people.csv"
one_row_per_person = true
[geography]
path = "blocks.csv"
levels = ["state", "county", "tract", "block"]
[attributes]
KIND = ["home", "prison", "nursing", "college"]
AGE = ["child", "adult"]
RACE = ["a", "b", "c"]
[recodes.SHARED]
of = "KIND"
groups = { home = ["home"], shared = ["prison", "nursing", "college"] }
[budget]
rho = "1"
[budget.levels]
state = "1/4"
county = "1/4"
tract = "1/4"
block = "1/4"
[budget.queries."*"]
TOTAL = "1/4"
RACE = "1/4"
"KIND*AGE*RACE" = "1/2"
[postprocess]
method = "top-down"
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    """1,500 people in 2 counties, 6 tracts and 30 blocks, some of them empty."""
    folder = tmp_path_factory.mktemp("place")
    rng = np.random.default_rng(7)
    blocks = [f"1{c}{t}{b}" for c in range(2) for t in range(3) for b in range(5)]
    rows = [f"1,{code[:2]},{code[:3]},{code}" for code in blocks]
    (folder / "blocks.csv").write_text("\n".join([",".join(LEVELS), *rows]) + "\n")
    weights = rng.dirichlet(np.full(30, 0.5))
    people = []
    for block in rng.choice(blocks, 1500, p=weights):
        kind = rng.choice(KINDS, p=(0.94, 0.02, 0.02, 0.02))
        age = "adult" if kind != "home" else rng.choice(AGES, p=(0.3, 0.7))
        people.append(f"{block},{kind},{age},{rng.choice(RACES, p=(0.7, 0.25, 0.05))}")
    (folder / "people.csv").write_text("\n".join(["block,KIND,AGE,RACE", *people]) + "\n")
    return folder


@pytest.fixture
def measured(place, tmp_path) -> Callable[..., tuple[Measurements, Plan]]:
    """Measure the place under the plan with changes: pairs of (old text, new text), and more text."""

    def make(*changes: tuple[str, str], more: str = "", seed: int = 3) -> tuple[Measurements, Plan]:
        text = PLAN
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        for name in ("people.csv", "blocks.csv"):
            if not (tmp_path / name).exists():
                shutil.copy(place / name, tmp_path / name)
        plan = Plan.parse(text + more, folder=tmp_path)
        counts = open_engine("local").tabulate(plan)
        number = len(list(tmp_path.glob("out-*-internal")))
        to = tmp_path / f"out-{number}"
        return measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=to), plan

    return make


@pytest.fixture(scope="session")
def people(place):
    """The exact counts by level and unit: KIND, AGE, RACE → number."""
    import pandas as pd

    frame = pd.read_csv(place / "people.csv", dtype=str)
    for level, digits in zip(LEVELS, (1, 2, 3, 4), strict=True):
        frame[level] = frame["block"].str[:digits]
    return frame
