"""What an engine is: the place where records live and are counted."""

from __future__ import annotations

from typing import Protocol

from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts


class Engine(Protocol):
    """Counts records where they are."""

    name: str

    def tabulate(self, plan: Plan) -> Counts:
        """Check the records against the plan and count them at every level."""
        ...
