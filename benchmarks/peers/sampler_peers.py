"""Time the discrete samplers of other packages, in the peers' interpreter; print JSON.

The plain Python sampler is Canonne, Kamath & Steinke (2020), Algorithms 1 to 3, in integers and
fractions, with the operating system's random bits.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from typing import Any

Sampler = Callable[[int], list[int]]
_SYSTEM = random.SystemRandom()
_REHEARSAL = 1000


def opendp(kind: str, parameter: Fraction) -> Sampler:
    """Return OpenDP's sampler: noise added to a vector of integers is drawn from the integer law."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "gaussian":
        noise = dp.m.make_gaussian(integers, dp.l2_distance(T=float), math.sqrt(parameter))
    else:
        noise = dp.m.make_laplace(integers, dp.l1_distance(T=int), float(parameter))
    return lambda draws: noise([0] * draws)


def diffprivlib(kind: str, parameter: Fraction) -> Sampler:
    """Return diffprivlib's sampler, which adds noise to one number at a time."""
    from diffprivlib import mechanisms

    if kind == "gaussian":
        noise = mechanisms.GaussianDiscrete(epsilon=1.0, delta=0.01)
        noise._scale = math.sqrt(parameter)  # it accepts only a budget, not a scale
    else:
        noise = mechanisms.Geometric(epsilon=float(1 / parameter))
    return lambda draws: [noise.randomise(0) for _ in range(draws)]


def plain_python(kind: str, parameter: Fraction) -> Sampler:
    """Return the reference sampler."""
    draw = _gaussian if kind == "gaussian" else _laplace
    return lambda draws: [draw(parameter) for _ in range(draws)]


def _happens(p: Fraction) -> bool:
    return _SYSTEM.randrange(p.denominator) < p.numerator


def _happens_exp_minus(gamma: Fraction) -> bool:
    """Return True with probability exp(-gamma): Algorithm 1."""
    while gamma > 1:
        if not _happens_exp_minus(Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while _happens(gamma / k):
        k += 1
    return k % 2 == 1


def _laplace(scale: Fraction) -> int:
    """Draw from P(k) ∝ exp(-|k|/scale): Algorithm 2."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = _SYSTEM.randrange(t)
        if not _happens_exp_minus(Fraction(u, t)):
            continue
        v = 0
        while _happens_exp_minus(Fraction(1)):
            v += 1
        magnitude = (u + t * v) // s
        negative = _SYSTEM.randrange(2) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def _gaussian(sigma2: Fraction) -> int:
    """Draw from P(k) ∝ exp(-k²/(2 sigma²)): Algorithm 3."""
    t = math.isqrt(math.floor(sigma2)) + 1
    while True:
        k = _laplace(Fraction(t))
        if _happens_exp_minus((abs(k) - sigma2 / t) ** 2 / (2 * sigma2)):
            return k


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def measure(
    make: Callable[[str, Fraction], Sampler],
    kind: str,
    parameter: Fraction,
    question: dict[str, Any],
) -> dict[str, Any]:
    """Time the setup and the draws: as many, in powers of ten, as fit the time limit."""
    make(kind, parameter)  # imports are not setup
    repeats = range(question["repeats"])
    setup = min(_timed(lambda: make(kind, parameter))[1] for _ in repeats)
    sample = make(kind, parameter)
    sample(_REHEARSAL)
    per_draw = _timed(lambda: sample(_REHEARSAL))[1] / _REHEARSAL
    fitting = math.floor(math.log10(max(question["seconds"] / per_draw, _REHEARSAL)))
    draws = min(question["draws"], 10**fitting)
    runs = [_timed(lambda: sample(draws)) for _ in repeats]
    values = runs[-1][0]
    return {
        "draws": draws,
        "setup_seconds": setup,
        "seconds": min(seconds for _, seconds in runs),
        "variance": sum(value * value for value in values) / draws,
    }


def main() -> None:
    """Answer {"laws": [[kind, parameter], …], "draws": n, "seconds": s, "repeats": r}."""
    question = json.loads(sys.argv[1])
    samplers = {
        f"OpenDP {version('opendp')}": opendp,
        f"diffprivlib {version('diffprivlib')}": diffprivlib,
        "plain Python": plain_python,
    }
    answer = [
        {"law": index, "sampler": name, **measure(make, kind, Fraction(parameter), question)}
        for index, (kind, parameter) in enumerate(question["laws"])
        for name, make in samplers.items()
    ]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
