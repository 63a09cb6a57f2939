"""On a cluster: Spark counts, and its executors are the workers. Needs the extra `spark`."""

from countveil.engines.spark.spark_engine import SparkEngine

__all__ = ["SparkEngine"]
