"""A Spark session fit for confidential records: authenticated, encrypted, without web page or logs."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from countveil.errors import InputError, MissingExtra

ACCEPT = "spark.countveil.accept"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A setting that keeps records confidential, and what happens without it."""

    key: str
    value: str
    without: str
    network: bool = False  # not needed if nothing leaves the process
    instead: str | None = None  # a setting that will do as well, if true


_RULES = (
    _Rule("spark.authenticate", "true", "anyone on the network can query executors", network=True),
    _Rule(
        "spark.network.crypto.enabled",
        "true",
        "counts cross the network unencrypted",
        network=True,
        instead="spark.ssl.rpc.enabled",
    ),
    _Rule("spark.io.encryption.enabled", "true", "counts are spilled to disk unencrypted"),
    _Rule("spark.ui.enabled", "false", "a web page shows the queries on the records"),
    _Rule("spark.eventLog.enabled", "false", "a log shows how many rows each step had"),
)
_DEFAULTS = {"spark.eventLog.enabled": "false", "spark.ui.enabled": "true"}  # Spark's own
_FOLDERS = "spark.local.dir"
# When a task fails, Spark's log quotes records. Executors read their own settings and ignore a log
# level set by the driver, so they get a logger that writes nothing.
_SILENT = {
    "spark.log.level": "OFF",
    "spark.executor.defaultJavaOptions": (
        "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider"
    ),
}
_ALONE = re.compile(r"local(\[[^\]]*\])?")  # all in one process; local-cluster[…] is not
_STANDALONE = "spark://"
_PATIENCE = 10.0  # seconds in which a master must answer


def open_session(*, show_values: bool = False) -> SparkSession:
    """Return the session of this process, or open one that is fit for confidential records.

    Settings come from spark-submit and spark-defaults.conf, with safe defaults for the rest. Unless
    values may be shown, nothing is logged, since Spark's logs quote records.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # PySpark takes the executors' Python from the environment only.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = os.umask(0o077)  # so that only the owner can read what the driver spills
    try:
        # A configuration includes spark-defaults.conf only once the virtual machine runs.
        SparkContext._ensure_initialized()
        settings = SparkConf()
        for rule in _RULES:
            settings.setIfMissing(rule.key, rule.value)
        for key, value in _SILENT.items() if not show_values else ():
            settings.setIfMissing(key, value)
        settings.setIfMissing("spark.app.name", "countveil")
        settings.setIfMissing("spark.master", "local[*]")
        settings.set("spark.ui.showConsoleProgress", "false")  # PySpark's launcher turns it on
        # Otherwise Spark leaves an empty folder for tables in the working folder.
        empty = Path(tempfile.gettempdir()) / f"countveil-spark-tables-{os.getuid()}"
        settings.setIfMissing("spark.sql.warehouse.dir", empty.as_uri())
        refuse_silent_master(settings.get("spark.master", ""))
        return SparkSession.builder.config(conf=settings).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started(error) from error
    finally:
        os.umask(before)


def refuse_silent_master(master: str) -> None:
    """Refuse masters if none accepts a connection: Spark would try for more than a minute."""
    if not master.startswith(_STANDALONE):
        return
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError, OverflowError):
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
            return
    raise InputError(
        f"no Spark master answers at {master}; start it, or set spark.master in spark-defaults.conf to "
        f"the right address"
    )


def not_started(error: Exception) -> InputError:
    """Return the error for a session that did not open; Spark's text quotes no record yet."""
    reason = _reason(error)
    if isinstance(error, PySparkRuntimeError) and "GATEWAY" in reason:
        return MissingExtra(
            "Spark's virtual machine did not start: either Java 17 or later is missing (apt-get "
            "install openjdk-17-jre-headless, or set JAVA_HOME), or spark-defaults.conf or "
            "PYSPARK_SUBMIT_ARGS contain something that spark-submit refuses, such as an unknown "
            "spark.master"
        )
    if "stopped SparkContext" in reason:
        return InputError(
            "Spark did not start: the master did not answer, or its secret differs; compare "
            "spark.master and spark.authenticate.secret with those of the master"
        )
    return InputError(
        f"Spark did not start ({reason}); check spark-defaults.conf and the master it names"
    )


def refuse_exposed(session: SparkSession) -> None:
    """Refuse a session that would expose records, unless its settings accept that."""
    try:
        context = session.sparkContext
    except PySparkException as error:
        raise InputError(
            "a Spark Connect session cannot reach executors; start a classic session with "
            "spark-submit, or with SparkSession.builder and spark.master"
        ) from error
    settings = context.getConf()
    accepted = settings.get(ACCEPT, "").replace(",", " ").split()
    alone = _ALONE.fullmatch(context.master or "") is not None
    for rule in _RULES:
        value = settings.get(rule.key, _DEFAULTS.get(rule.key, "false"))
        fine = value.lower() == rule.value or rule.key in accepted or (rule.network and alone)
        if not fine and rule.instead is not None:
            fine = settings.get(rule.instead, "false").lower() == "true"
        if not fine:
            other = f" (or {rule.instead} = true)" if rule.instead else ""
            raise InputError(
                f"the Spark session has {rule.key} = {value}: {rule.without}; start it with {rule.key} "
                f"= {rule.value}{other}, or accept this with {ACCEPT} = {rule.key}"
            )
    if _FOLDERS not in accepted:
        _refuse_open_folders(context)


def _refuse_open_folders(context: SparkContext) -> None:
    """Refuse a driver that spills where others can look: Spark leaves that to the umask."""
    folder = Path(context._temp_dir)  # next to the spilled files, by the same virtual machine
    above = folder.parents[1:]  # in a folder of Spark that is private in any case
    if folder.stat().st_mode & 0o077 and all(parent.stat().st_mode & 0o011 for parent in above):
        raise InputError(
            f"other users can see the folders where the Spark session spills, in {above[0]}, and the "
            f"sizes of files reveal something about records; start it with umask 077, or accept this "
            f"with {ACCEPT} = {_FOLDERS}"
        )


def _reason(error: Exception) -> str:
    """Return the first line of a Java error."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    return text.splitlines()[0] if text else type(error).__name__
