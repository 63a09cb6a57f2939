"""A Spark session fit for confidential records: authenticated, encrypted, and shown on no page."""

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
_FOLDERS = "spark.local.dir"
# What Spark logs when a task fails quotes records. A level that the driver sets does not stay with
# executors, which read their settings anew; so theirs are given nothing to log by.
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
    """Return the session of this process; if there is none, open one that is fit.

    It takes what spark-submit or spark-defaults.conf say; where they say nothing, what is safe.
    Unless values may be shown, it logs nothing, for Spark's logs quote records.
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
        for key, value in _SILENT.items() if not show_values else ():
            settings.setIfMissing(key, value)
        settings.setIfMissing("spark.app.name", "countveil")
        settings.setIfMissing("spark.master", "local[*]")
        settings.set("spark.ui.showConsoleProgress", "false")  # PySpark's launcher turns it on
        # Otherwise Spark leaves an empty folder for tables wherever it is started.
        empty = Path(tempfile.gettempdir()) / f"countveil-spark-tables-{os.getuid()}"
        settings.setIfMissing("spark.sql.warehouse.dir", empty.as_uri())
        refuse_silent_master(settings.get("spark.master", ""))
        return SparkSession.builder.config(conf=settings).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started(error) from error
    finally:
        os.umask(before)


def refuse_silent_master(master: str) -> None:
    """Refuse masters of which none takes a connection: Spark would try for more than a minute."""
    if not master.startswith(_STANDALONE):
        return
    for place in master.removeprefix(_STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        with contextlib.suppress(OSError, ValueError, OverflowError):
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE).close()
            return
    raise InputError(
        f"no Spark master answers at {master}; start it, or name the right one as spark.master in "
        f"spark-defaults.conf"
    )


def not_started(error: Exception) -> InputError:
    """Say why no session could be opened; Spark's own text names settings, for no record was read."""
    reason = _reason(error)
    if isinstance(error, PySparkRuntimeError) and "GATEWAY" in reason:
        return MissingExtra(
            "Spark's virtual machine did not start: either there is no Java 17 or later (apt-get "
            "install openjdk-17-jre-headless, or set JAVA_HOME), or spark-defaults.conf or "
            "PYSPARK_SUBMIT_ARGS hold what spark-submit refuses, such as an unknown spark.master"
        )
    if "stopped SparkContext" in reason:
        return InputError(
            "Spark did not start: the master did not answer, or its secret differs; compare "
            "spark.master and spark.authenticate.secret with those of the master"
        )
    return InputError(
        f"Spark did not start ({reason}); see spark-defaults.conf and the master it names"
    )


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
    alone = _ALONE.fullmatch(context.master or "") is not None
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
    if _FOLDERS not in accepted:
        _refuse_open_folders(context)


def _refuse_open_folders(context: SparkContext) -> None:
    """Refuse a driver that spills where others can look: Spark leaves that to the umask."""
    made = Path(context._temp_dir)  # beside the spilled files, by the same virtual machine
    above = made.parents[1:]  # but within a folder of Spark's own, which is private in any case
    if made.stat().st_mode & 0o077 and all(folder.stat().st_mode & 0o011 for folder in above):
        raise InputError(
            f"others can look into the folders where the Spark session spills, in {above[0]}: how "
            f"large its files are tells of records; start it under umask 077, or accept that by "
            f"{ACCEPT} = {_FOLDERS}"
        )


def _reason(error: Exception) -> str:
    """Return the line of a Java error that says what is wrong."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    return text.splitlines()[0] if text else type(error).__name__
