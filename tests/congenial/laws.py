"""Small laws of databases and mechanisms, written out, which several tests enumerate."""

import json
import math
from fractions import Fraction
from itertools import product

from tests.conftest import GOLDEN

TRUTH = {i["id"]: i for i in json.loads((GOLDEN / "public_information.json").read_text())}


def golden(kind):
    """The golden values of one kind: what follows the kind in the id, the value and its tolerance."""
    result = {k: i for k, i in TRUTH.items() if k.startswith(f"ppd.{kind}")}
    assert result, kind
    return [(k[len(f"ppd.{kind}") + 1 :], i["exact"], i["tol"]) for k, i in result.items()]


def of_value_and_count(n, z0, z1):
    """P(one person's value, count of all), the value being 0 or 1 with probability 1/2."""
    law = {}
    for value, z in enumerate((Fraction(z0), Fraction(z1))):
        for k in range(n):
            p = math.comb(n - 1, k) * z**k * (1 - z) ** (n - 1 - k)
            law[value, k + value] = p / 2
    return law


def has(value):
    return lambda database: database[0] == value


def exponential(n, rate):
    """Counts y = 0 … n, with weights exp(-rate |y - count|)."""

    def mechanism(database):
        weights = {y: math.exp(-rate * abs(y - database[1])) for y in range(n + 1)}
        return {y: w / sum(weights.values()) for y, w in weights.items()}

    return mechanism


def response(bits, epsilon):
    """Randomised response on some functions of the database."""
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))

    def mechanism(database):
        true = [bit(database) for bit in bits]
        return {
            answers: math.prod(
                truth if a == b else 1 - truth for a, b in zip(answers, true, strict=True)
            )
            for answers in product((0, 1), repeat=len(true))
        }

    return mechanism


def uniform(databases):
    result = list(databases)
    return {x: Fraction(1, len(result)) for x in result}
