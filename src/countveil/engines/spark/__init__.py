"""Past one machine: counting with Spark, and its executors as workers. Needs the extra `spark`."""

from countveil.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
