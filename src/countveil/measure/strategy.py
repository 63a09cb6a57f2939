"""Which noise each query gets: the exact one that costs what the plan allots."""

from __future__ import annotations

from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Mechanism
from countveil.privacy.costs import ZCDP
from countveil.privacy.loss_distribution import LossyQuery
from countveil.schema.allocation import Allocation
from countveil.schema.plan import Plan


def mechanism_for(allocation: Allocation) -> Mechanism:
    """Return discrete Gaussian noise for a rho, discrete Laplace noise for a pure epsilon."""
    sensitivity = allocation.sensitivity
    if isinstance(allocation.cost, ZCDP):
        return DiscreteGaussian.from_rho(allocation.cost.rho, sensitivity.l2_squared)
    return DiscreteLaplace(sensitivity.l1 / allocation.cost.epsilon)


def lossy_queries(allocation: Allocation, noise: Mechanism, plan: Plan) -> list[LossyQuery]:
    """Return what the tight privacy-loss figure needs of a query: one entry per cell that moves."""
    if not isinstance(noise, DiscreteGaussian):
        return []
    # add-remove moves one cell by the rows of a person, change-one moves a second one as far.
    rows, cells = plan.rows_per_person, 2 if plan.neighbors == "change-one" else 1
    rho = float(allocation.cost.rho) / cells
    return [LossyQuery(lambda epsilon: noise.hockey_stick(epsilon, rows), rho, cells)]
