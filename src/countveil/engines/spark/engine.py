"""The Spark engine: the same plan, counted where the records are, with executors as workers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from countveil.engines.spark.counting import count
from countveil.engines.spark.session import open_session, refuse_exposed
from countveil.engines.spark.source import open_source
from countveil.engines.spark.workers import SparkWorkers
from countveil.errors import PlanError
from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts


@dataclass(frozen=True, eq=False, slots=True)
class SparkEngine:
    """A Spark session: the one given, that of this process, or one that is opened.

    `records` is a DataFrame to count instead of what the plan names.
    """

    show_values: bool = False
    session: SparkSession | None = None
    records: DataFrame | None = None
    name = "spark"

    def tabulate(self, plan: Plan) -> Counts:
        """Check the records against the plan and count them at every level."""
        if plan.records is None:
            raise PlanError(f"{plan.name}: records: is needed to release, and not there")
        geography = plan.geography()
        source = open_source(plan, self._opened(), self.records, self.show_values)
        return count(source, plan, geography)

    def workers(self, number: int | None = None) -> SparkWorkers:
        """Return the executors; how many there are is for the session to say."""
        return SparkWorkers(self._opened())

    def _opened(self) -> SparkSession:
        session = self.session
        if session is None:
            session = self.records.sparkSession if self.records is not None else None
        if session is None:
            session = open_session(show_values=self.show_values)
        refuse_exposed(session)
        return session
