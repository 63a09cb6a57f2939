"""A Spark session fit for confidential records: authenticated, encrypted, and shown on no page."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from countveil.errors import InputError, MissingExtra

ACCEPT = "spark.countveil.accept"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A setting that keeps records from eyes, and what happens without it."""

    key: str
    value: str
    without: str
    network: bool = False  # needless where nothing leaves the process
    instead: str | None = None  # a setting that does as well, when true


_RULES = (
    _Rule("spark.authenticate", "true", "anyone on the network may ask executors", network=True),
    _Rule(
        "spark.network.crypto.enabled",
        "true",
        "counts cross the network in the clear",
        network=True,
        instead="spark.ssl.rpc.enabled",
    ),
    _Rule("spark.io.encryption.enabled", "true", "spilled counts lie on disks in the clear"),
    _Rule("spark.ui.enabled", "false", "a web page shows what the records are read by"),
    _Rule("spark.eventLog.enabled", "false", "a log tells how many rows each step had"),
)
_DEFAULTS = {"spark.eventLog.enabled": "false", "spark.ui.enabled": "true"}  # Spark's own


def open_session() -> SparkSession:
    """Return the session of this process; if there is none, open one that is fit.

    It takes what spark-submit or spark-defaults.conf say; where they say nothing, what is safe.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # PySpark looks for the executors' Python in the environment only.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = os.umask(0o077)  # what the driver's virtual machine spills is for its owner only
    try:
        # A configuration knows spark-defaults.conf only once the virtual machine runs.
        SparkContext._ensure_initialized()
        settings = SparkConf()
        for rule in _RULES:
            settings.setIfMissing(rule.key, rule.value)
        settings.setIfMissing("spark.app.name", "countveil")
        settings.setIfMissing("spark.master", "local[*]")
        settings.setIfMissing("spark.ui.showConsoleProgress", "false")
        # Otherwise Spark leaves an empty folder for tables wherever it is started.
        empty = Path(tempfile.gettempdir()) / f"countveil-spark-tables-{os.getuid()}"
        settings.setIfMissing("spark.sql.warehouse.dir", empty.as_uri())
        return SparkSession.builder.config(conf=settings).getOrCreate()
    except PySparkRuntimeError as error:
        raise MissingExtra(
            "the spark engine needs Java 17 or later, and it did not start; install it (apt-get "
            "install openjdk-17-jre-headless), or set JAVA_HOME"
        ) from error
    except (PySparkException, OSError) as error:
        raise InputError(
            f"Spark did not start ({str(error).splitlines()[0]}); see spark-defaults.conf and the "
            f"master it names"
        ) from error
    except Exception as error:
        # Spark's own text names settings such as a missing secret; no record has been read yet.
        raise InputError(
            f"Spark did not start ({_reason(error)}); see spark-defaults.conf and the master it names"
        ) from error
    finally:
        os.umask(before)


def refuse_exposed(session: SparkSession) -> None:
    """Refuse a session that would show records to others, unless its own settings accept that."""
    try:
        context = session.sparkContext
    except PySparkException as error:
        raise InputError(
            "a Spark Connect session came, and executors are reached through a session of the classic "
            "kind only; start one by spark-submit, or by SparkSession.builder with spark.master"
        ) from error
    settings = context.getConf()
    accepted = settings.get(ACCEPT, "").replace(",", " ").split()
    alone = (context.master or "").startswith("local")
    for rule in _RULES:
        found = settings.get(rule.key, _DEFAULTS.get(rule.key, "false"))
        fine = found.lower() == rule.value or rule.key in accepted or (rule.network and alone)
        if not fine and rule.instead is not None:
            fine = settings.get(rule.instead, "false").lower() == "true"
        if not fine:
            other = f" (or {rule.instead} = true)" if rule.instead else ""
            raise InputError(
                f"the Spark session has {rule.key} = {found}: {rule.without}; start it with {rule.key} "
                f"= {rule.value}{other}, or accept that by {ACCEPT} = {rule.key}"
            )


def _reason(error: Exception) -> str:
    """Return the line of a Java error that says what is wrong."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    return text.splitlines()[0] if text else type(error).__name__
