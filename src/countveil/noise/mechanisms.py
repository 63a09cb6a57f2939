"""The mechanisms that a plan can use, and how the budget of a query becomes noise.

A new mechanism is its module and one line of `MECHANISMS`. Everything else asks the mechanism: its
name, the currency of its price, the noise that a budget pays for, and its law.
"""

from __future__ import annotations

from collections.abc import Mapping

from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.law import Mechanism
from countveil.privacy.costs import Cost, Currency, Sensitivity

# The first of each currency is the default of plans that name none.
MECHANISMS: dict[str, type[Mechanism]] = {
    DiscreteGaussian.name: DiscreteGaussian,
    DiscreteLaplace.name: DiscreteLaplace,
}

_IN_PLANS: dict[Currency, str] = {
    "rho": "rho (or epsilon with delta)",
    "epsilon": "epsilon without delta",
}


def mechanism_named(name: str | None, currency: Currency) -> type[Mechanism]:
    """Return the mechanism that a plan names, or the default for the currency of its budget.

    Parameters
    ----------
    name
        A name in `MECHANISMS`; None for the default.
    currency
        What the budget is in: "rho" or "epsilon".

    Raises
    ------
    InputError
        If there is no such mechanism, or its price is in the other currency.

    """
    fitting = [kind for kind in MECHANISMS.values() if kind.currency == currency]
    if name is None:
        return fitting[0]
    kind = _registered(name)
    if kind.currency != currency:
        raise InputError(
            f"{name} needs a budget in {_IN_PLANS[kind.currency]}, and this one is in {currency}; "
            f"choose {' or '.join(item.name for item in fitting)}, or change the budget"
        )
    return kind


def calibrate(kind: type[Mechanism], cost: Cost, sensitivity: Sensitivity) -> Mechanism:
    """Return the noise that `cost` pays for, once its own price confirms that.

    The check is what keeps a mechanism with a mistake in `for_cost` from spending more than the
    budget allots.
    """
    noise = kind.for_cost(cost, sensitivity)
    price = noise.cost(sensitivity)
    if price.currency != cost.currency or price.amount > cost.amount:
        raise InputError(f"{kind.name} is priced at {price}, more than the {cost} allotted to it")
    return noise


def from_parameters(name: str, parameters: Mapping[str, str]) -> Mechanism:
    """Build a mechanism again from its name and parameters in a manifest."""
    return _registered(name)(**parameters)


def _registered(name: str) -> type[Mechanism]:
    if name not in MECHANISMS:
        raise InputError(f"unknown mechanism {name!r}; choose from {', '.join(MECHANISMS)}")
    return MECHANISMS[name]
