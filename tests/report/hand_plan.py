"""A plan whose levels, queries and priors all differ, and its numbers from definitions alone.

Nothing here is computed by the package: laws are summed by their formula, least squares are matrices
of zeros and ones, and records are counted one by one.
"""

import math
from itertools import product

import numpy as np

AGES, SEXES = ("young", "old"), ("f", "m", "x")
CELLS = list(product(AGES, SEXES))
ROWS = 3  # that a person may have
PRIORS = (0.4, 0.1, 0.02)
REGIONS = {"R1": ("A1", "A2", "A3"), "R2": ("A4", "A5", "A6")}
AREAS = [area for areas in REGIONS.values() for area in areas]
# rho of each query: 9/10 in all, a fifth for regions; with noise of sigma² = 2 ROWS² / (2 rho).
RHO = {
    "region": {"TOTAL": 0.9 / 5 / 3, "AGE*SEX": 0.9 / 5 * 2 / 3},
    "area": {"TOTAL": 0.72 / 6, "AGE": 0.72 / 3, "AGE*SEX": 0.72 / 2},
}
PLAN = """
[release]
title = "Hand"
unit = "person"
neighbors = "change-one"
purpose = "to test"

[records]
path = "people.csv"
person_id = "id"
max_rows = 3

[geography]
path = "places.csv"
levels = ["region", "area"]

[attributes]
AGE = ["young", "old"]
SEX = ["f", "m", "x"]

[budget]
rho = "9/10"
[budget.levels]
region = "1/5"
area = "4/5"
[budget.queries.region]
TOTAL = "1/3"
"AGE*SEX" = "2/3"
[budget.queries.area]
TOTAL = "1/6"
AGE = "1/3"
"AGE*SEX" = "1/2"

[intruder]
priors = [0.4, 0.1, 0.02]
limit = 4.0
"""
SETTLING = '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "known"\n'
ESTIMATED = '[postprocess]\nmethod = "top-down"\n'


def write(folder, plan=PLAN + ESTIMATED):
    """Write plan, places and records of people with up to three rows; return the plan's path."""
    lines = [f"{region},{area}" for region, areas in REGIONS.items() for area in areas]
    (folder / "places.csv").write_text("\n".join(["region,area", *lines]) + "\n")
    lines = [",".join((area, *CELLS[cell], f"p{person}")) for area, cell, person in records()]
    (folder / "people.csv").write_text("\n".join(["area,AGE,SEX,id", *lines]) + "\n")
    (folder / "plan.toml").write_text(plan)
    return folder / "plan.toml"


def records():
    """Return (area, cell, person) of every row; some areas and cells stay empty."""
    found = []
    for person in range(60):
        for row in range(1 + person % ROWS):
            area = AREAS[(person * person + row) % 5]
            found.append((area, (person * 7 + row * row) % 6 if person % 4 else 3, person))
    return found


def counted():
    """Return the exact count of every area and cell."""
    found = {(area, cell): 0 for area in AREAS for cell in range(6)}
    for area, cell, _ in records():
        found[area, cell] += 1
    return found


def variance(level, query):
    """Return sigma² of a query's noise."""
    return ROWS**2 / RHO[level][query]


def law(sigma2, reach=None):
    """Return noises, and how likely each is by the definition of the discrete Gaussian."""
    reach = reach or math.ceil(12 * math.sqrt(sigma2)) + 2
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * sigma2))
    return k, weights / weights.sum()


def losses(level, cells):
    """Return the points and chances of what queries say, each told apart in so many cells.

    Of a count with noise e the log-likelihood ratio is rows (2 e + rows) / (2 sigma²).
    """
    points, chances = np.zeros(1), np.ones(1)
    for query, number in cells.items():
        sigma2 = variance(level, query)
        for _ in range(number):
            k, chance = law(sigma2)
            kept = chance > 1e-16
            more = ROWS * (2 * k[kept] + ROWS) / (2 * sigma2)
            points, chances = _added(points, chances, more, chance[kept])
    return points, chances


def _added(points, chances, more, more_chances):
    sums = np.round((points[:, None] + more).ravel(), 9)
    both = (chances[:, None] * more_chances).ravel()
    points, place = np.unique(sums, return_inverse=True)
    chances = np.bincount(place, both)
    kept = chances > 1e-15
    return points[kept], chances[kept]


def presence(level):
    """Return the losses of who asks whether a person is counted in a unit of a level."""
    return losses(level, dict.fromkeys(RHO[level], 1))


def posterior(points, chances, prior):
    """Return what they believe on average while their target is counted."""
    return float(chances @ (1 / (1 + (1 - prior) / prior * np.exp(-points))))


def right(points, chances, prior):
    """Return how often they say so while their target is counted, ties split."""
    odds = math.log(prior / (1 - prior)) + points
    return float(chances @ np.where(np.abs(odds) < 1e-7, 0.5, odds > 0))


MOVES = {  # in how many cells of each query of an area an attack's hypotheses differ, and the direction
    "unknown attribute: AGE": ({"AGE": 2, "AGE*SEX": 2}, np.eye(6)[0] - np.eye(6)[3]),
    "unknown attribute: SEX": ({"AGE*SEX": 2}, np.eye(6)[0] - np.eye(6)[1]),
    "whole record": ({"AGE": 2, "AGE*SEX": 2}, np.eye(6)[0] - np.eye(6)[4]),
    "presence": ({"TOTAL": 1, "AGE": 1, "AGE*SEX": 1}, np.eye(6)[0]),
}
WORST = "unknown attribute: AGE"
LADDER = {"region": {"AGE*SEX": 2}, "area": {"AGE": 2, "AGE*SEX": 2}}


PRESENCE = {"region": {"TOTAL": 1, "AGE*SEX": 1}, "area": {"TOTAL": 1, "AGE": 1, "AGE*SEX": 1}}


def together(one, other):
    """Return the law of the sum of two losses."""
    return _added(*one, *other)


def of_both_levels(prior):
    """Return what someone who knows everyone everywhere believes, and how often they are right."""
    found = []
    for cells in (LADDER, PRESENCE):
        law = together(*(losses(level, cells[level]) for level in RHO))
        found.append((posterior(*law, prior), right(*law, prior)))
    return max(found)


def outside(move):
    """Return the precision of what the rest of the release says of a move in the first area.

    Everyone else in that area is known; the counts of all others are free. Least squares over the
    whole tree leave of the signal what they cannot explain.
    """
    rows, weights = [], []
    units = {"region": list(REGIONS.values()), "area": [(area,) for area in AREAS[1:]]}
    for level, places in units.items():
        for query in RHO[level]:
            for areas in places:
                inside = np.array([area in areas for area in AREAS], float)
                rows += [np.kron(inside, row) for row in QUERIES[query]]
                weights += [1 / variance(level, query)] * len(QUERIES[query])
    seen = np.sqrt(weights)[:, None] * np.array(rows)
    signal, others = seen[:, :6] @ move, seen[:, 6:]
    left = signal - others @ np.linalg.lstsq(others, signal, rcond=None)[0]
    return float(left @ left)


def of_whole_release(prior, attack=WORST):
    """Return what someone who sees all levels believes on average, and how often they are right."""
    cells, move = MOVES[attack]
    points, chances = losses("area", cells)
    rho = ROWS**2 * outside(move) / 2
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    odds = math.log(prior / (1 - prior)) + points
    more = rho + math.sqrt(2 * rho) * nodes
    believed = 1 / (1 + np.exp(-(odds[:, None] + more)))
    right = [math.erfc(-(x + rho) / math.sqrt(4 * rho)) / 2 for x in odds]
    return float(chances @ believed @ weights / weights.sum()), float(chances @ right)


QUERIES = {
    "TOTAL": np.ones((1, 6)),
    "AGE": np.array([[age == of for age, _ in CELLS] for of in AGES], float),
    "AGE*SEX": np.eye(6),
}


def standard_error(level, query):
    """Return that of a cell of a query, by least squares over its level."""
    precision = sum(QUERIES[q].T @ QUERIES[q] / spread(level, q) ** 2 for q in RHO[level])
    rows = QUERIES[query]
    return math.sqrt((rows @ np.linalg.inv(precision) @ rows.T)[0, 0])


def spread(level, query):
    """Return the standard deviation of a query's noise."""
    k, chance = law(variance(level, query))
    return math.sqrt(float(chance @ k**2))


def absolute(level, query):
    """Return the mean size of a query's noise."""
    k, chance = law(variance(level, query))
    return float(chance @ np.abs(k))
