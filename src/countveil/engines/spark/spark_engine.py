"""The Spark engine: counts records where they are, with executors as workers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from countveil.engines.counts import Counts
from countveil.engines.spark.spark_counting import count
from countveil.engines.spark.spark_session import open_session, refuse_exposed
from countveil.engines.spark.spark_source import open_source
from countveil.engines.spark.spark_workers import SparkWorkers
from countveil.errors import PlanError
from countveil.plan.plan_basis import PlanBasis


@dataclass(frozen=True, eq=False, slots=True)
class SparkEngine:
    """Spark counts the records, and its executors do the work that follows.

    Parameters
    ----------
    show_values
        Whether messages may quote values taken from records.
    session
        The session to use; by default that of `records` or of this process, or a new one.
    records
        A DataFrame to count instead of the records that the plan names.

    """

    show_values: bool = False
    session: SparkSession | None = None
    records: DataFrame | None = None
    name = "spark"

    def tabulate(self, plan: PlanBasis) -> Counts:
        """Return the counts of every level, once the records are checked against the plan."""
        if plan.records is None:
            raise PlanError(f"{plan.name}: [records] is missing; a release needs it")
        geography = plan.geography()
        source = open_source(plan, self._open_session(), self.records, self.show_values)
        return count(source, plan, geography)

    def workers(self, number: int | None = None) -> SparkWorkers:
        """Return the executors; the session decides how many there are."""
        return SparkWorkers(self._open_session())

    def _open_session(self) -> SparkSession:
        session = self.session
        if session is None:
            session = self.records.sparkSession if self.records is not None else None
        if session is None:
            session = open_session(show_values=self.show_values)
        refuse_exposed(session)
        return session
