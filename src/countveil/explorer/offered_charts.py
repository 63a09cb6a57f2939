"""Which charts the page shows, and when one must be redrawn."""

from __future__ import annotations

import hashlib

from countveil.base.numerics import exact
from countveil.explorer.settings import CURRENCY, Settings

TITLES = {
    "risk-by-rho": "Marginal risk against rho",
    "intruders": "Two hundred intruders",
    "risk-by-level": "Marginal risk of each level",
    "expected-error": "Expected standard error of a count",
    "budget-allocation": "How the budget is shared",
}


def offered(settings: Settings) -> tuple[str, ...]:
    """Return the charts that apply to these settings; some need rho, or the attack on presence."""
    fits = {
        "risk-by-rho": CURRENCY[settings.mechanism] == "rho",
        "intruders": settings.attack == "presence",
    }
    return tuple(name for name in TITLES if fits.get(name, True))


def fingerprint(name: str, settings: Settings) -> str:
    """Return a hash that changes only if the chart does."""
    inputs: list[object] = [settings.mechanism, exact(settings.amount), settings.neighbors]
    inputs.append(sorted(settings.shares.items()))
    if name not in ("budget-allocation", "expected-error"):
        inputs += [settings.attack, settings.attribute, settings.prior_value]
    if name in ("risk-by-rho", "intruders"):
        inputs.append(settings.level)
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
