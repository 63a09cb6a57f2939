"""From the codes of a row to the number of its cell, as Spark columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sql

from countveil.engines.spark.source import TORN
from countveil.schema.plan import Plan


def cell_of(plan: Plan) -> Column:
    """Return the number of a row's cell, NULL where a code is none of those declared."""
    stride, cell = plan.schema.cells, sql.lit(0)
    for number, attribute in enumerate(plan.schema.attributes):
        stride //= len(attribute.categories)
        cell += category_of(number, attribute.categories) * stride
    return sql.when(~sql.col(TORN), cell)


def category_of(number: int, categories: tuple[str, ...]) -> Column:
    """Return the number of an attribute's category, NULL where it is none."""
    pairs = [sql.lit(item) for place, name in enumerate(categories) for item in (name, place)]
    return sql.create_map(*pairs)[sql.col(f"code{number}")]
