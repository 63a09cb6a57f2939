"""What an engine is: where records live and are counted, and who works on them there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts
from countveil.workers import Workers


class Engine(Protocol):
    """Counts records where they are, and has workers for all that follows."""

    name: str

    def tabulate(self, plan: Plan) -> Counts:
        """Check the records against the plan and count them at every level."""
        ...

    def workers(self, number: int | None = None) -> AbstractContextManager[Workers]:
        """Return those who measure and post-process there; `number` of them, if it can be chosen."""
        ...
