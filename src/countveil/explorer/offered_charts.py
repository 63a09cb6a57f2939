"""Which charts the page shows, and when one has to be drawn again."""

from __future__ import annotations

import hashlib

from countveil.base.numerics import exact
from countveil.explorer.settings import CURRENCY, Settings

TITLES = {
    "risk-by-rho": "Marginal risk against rho",
    "intruders": "Two hundred intruders",
    "risk-by-level": "Marginal risk of each level",
    "expected-error": "Expected error of a count",
    "budget-allocation": "How the budget is shared",
}


def offered(settings: Settings) -> tuple[str, ...]:
    """Return which charts these settings have: some speak of rho, or of presence, only."""
    fits = {
        "risk-by-rho": CURRENCY[settings.mechanism] == "rho",
        "intruders": settings.attack == "presence",
    }
    return tuple(name for name in TITLES if fits.get(name, True))


def fingerprint(name: str, settings: Settings) -> str:
    """Return a text that is the same as long as the chart is."""
    found: list[object] = [settings.mechanism, exact(settings.amount), settings.neighbors]
    found.append(sorted(settings.shares.items()))
    if name not in ("budget-allocation", "expected-error"):
        found += [settings.attack, settings.attribute, settings.prior_value]
    if name in ("risk-by-rho", "intruders"):
        found.append(settings.level)
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]
