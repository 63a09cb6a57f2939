"""Sessions that would show records to others are refused, each with the setting that mends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from tests.conftest import HANG

from countveil.engines.spark import SparkEngine
from countveil.engines.spark import spark_session as sessions
from countveil.engines.spark.spark_session import not_started, refuse_exposed, refuse_silent_master
from countveil.errors import InputError
from countveil.plan.plans import Plan

FIT = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "false",
}


SILENT = {
    "spark.log.level": "OFF",
    "spark.executor.defaultJavaOptions": (
        "-Dslf4j.provider=org.slf4j.helpers.NOP_FallbackServiceProvider"
    ),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder that a driver made for itself, as its umask had it."""
    made = tmp_path / "spark-1" / "pyspark-2"
    made.mkdir(parents=True)
    made.chmod(0o700)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(sys.modules[__name__], "TEMPORARY", made)
    return made


TEMPORARY = Path()


def session(master: str = "spark://somewhere:7077", **other: str | None):
    settings = {**FIT, **{key.replace("__", "."): value for key, value in other.items()}}
    kept = {key: value for key, value in settings.items() if value is not None}
    conf = SimpleNamespace(get=lambda key, default=None: kept.get(key, default))
    context = SimpleNamespace(master=master, getConf=lambda: conf, _temp_dir=str(TEMPORARY))
    return SimpleNamespace(sparkContext=context)


def test_a_fit_session_is_taken():
    refuse_exposed(session())
    refuse_exposed(session(spark__eventLog__enabled=None))  # off unless said otherwise
    refuse_exposed(session(spark__network__crypto__enabled=None, spark__ssl__rpc__enabled="true"))
    for master in ("local", "local[2]", "local[*]", "local[2,3]"):
        refuse_exposed(
            session(master, spark__authenticate=None, spark__network__crypto__enabled=None)
        )


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"spark__authenticate": None}, "spark.authenticate = false: anyone on the network"),
        ({"spark__network__crypto__enabled": "false"}, "or spark.ssl.rpc.enabled = true"),
        ({"spark__io__encryption__enabled": None}, "counts are spilled to disk unencrypted"),
        ({"spark__ui__enabled": None}, "spark.ui.enabled = true: a web page shows"),
        ({"spark__eventLog__enabled": "true"}, "a log shows how many rows each step had"),
    ],
)
def test_an_exposed_session_is_refused_unless_it_says_so(other, message):
    with pytest.raises(InputError) as caught:
        refuse_exposed(session(**other))
    assert message in str(caught.value)
    (key,) = (name.replace("__", ".") for name in other)
    assert f"or accept this with spark.countveil.accept = {key}" in str(caught.value)
    refuse_exposed(session(**other, spark__countveil__accept=f"spark.other, {key}"))


def test_encryption_on_disk_is_wanted_on_one_machine_too():
    with pytest.raises(InputError, match="spilled to disk unencrypted"):
        refuse_exposed(session("local[*]", spark__io__encryption__enabled="false"))


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "localhost:7077", "local[2],x", ""])
def test_only_one_process_needs_no_authentication(master):
    with pytest.raises(InputError, match="spark.authenticate = false"):
        refuse_exposed(session(master, spark__authenticate=None))


def test_folders_that_others_can_look_into_are_refused_unless_one_above_is_closed(
    temporary, monkeypatch
):
    stat, open_to_all = Path.stat, temporary.parents[1].parents  # wherever tests keep their files

    def seen(path: Path, **options: bool) -> object:
        return SimpleNamespace(st_mode=0o755) if path in open_to_all else stat(path, **options)

    monkeypatch.setattr(Path, "stat", seen)
    temporary.chmod(0o750)
    with pytest.raises(InputError) as caught:
        refuse_exposed(session())
    assert "start it with umask 077" in str(caught.value)
    refuse_exposed(session(spark__countveil__accept="spark.local.dir"))
    temporary.parents[1].chmod(0o700)
    refuse_exposed(session())


@pytest.mark.parametrize("use", [SparkEngine.tabulate, lambda engine, plan: engine.workers()])
def test_the_engine_refuses_an_exposed_session_before_it_reads_a_record(tiny, use):
    (tiny.parent / "people.csv").unlink()  # whoever looks for records says so
    exposed = session(spark__ui__enabled="true")
    with pytest.raises(InputError, match=r"spark.ui.enabled = true: a web page shows"):
        use(SparkEngine(session=exposed), Plan.load(tiny))
    with pytest.raises(InputError, match=r"spark.ui.enabled = true: a web page shows"):
        use(SparkEngine(records=SimpleNamespace(sparkSession=exposed)), Plan.load(tiny))


class Started(Exception):
    """Raised in place of starting Spark, with the settings that it would be started with."""


@pytest.fixture
def opened(monkeypatch):
    """Open a session up to where Spark would start; return the settings and the umask it had."""

    def opened(given: dict[str, str], **options: bool) -> tuple[dict[str, str], int]:
        found = {}

        class Builder:
            def config(self, conf: SparkConf) -> Builder:
                found.update(conf.getAll())
                return self

            def getOrCreate(self) -> None:
                os.umask(mask := os.umask(0))
                raise Started(mask)

        def settings() -> SparkConf:
            return SparkConf(loadDefaults=False).setAll(list(given.items()))

        fake = SimpleNamespace(getActiveSession=lambda: None, builder=Builder())
        monkeypatch.setattr(sessions, "SparkSession", fake)
        monkeypatch.setattr(sessions, "SparkConf", settings)
        monkeypatch.setattr(sessions, "SparkContext", SimpleNamespace(_ensure_initialized=dict))
        with pytest.raises(Started) as caught:
            sessions.open_session(**options)
        return found, caught.value.args[0]

    return opened


def test_a_session_that_is_opened_has_every_safe_setting_and_logs_nothing(opened):
    before = os.umask(0o022)
    try:
        found, mask = opened({})
        assert os.umask(0o022) == 0o022, "the umask is put back"
    finally:
        os.umask(before)
    assert mask == 0o077
    assert {key: found.get(key) for key in {**FIT, **SILENT}} == {**FIT, **SILENT}
    assert found["spark.master"] == "local[*]"
    refuse_exposed(session("spark://x:1", **{key.replace(".", "__"): found[key] for key in FIT}))


def test_what_the_configuration_says_is_kept_and_shown_values_are_logged(opened):
    given = {"spark.ui.enabled": "true", "spark.log.level": "INFO", "spark.master": "local[3]"}
    found, _ = opened(given)
    assert given.items() <= found.items()
    found, _ = opened({}, show_values=True)
    assert not SILENT.keys() & found.keys()


def test_a_master_that_takes_no_connection_is_reported_at_once(opened):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # nobody listens there
        with pytest.raises(
            InputError, match=f"no Spark master answers at spark://127.0.0.1:{port}"
        ):
            refuse_silent_master(f"spark://127.0.0.1:{port}")
        with pytest.raises(InputError, match="no Spark master answers"):
            refuse_silent_master("spark://127.0.0.1")
        with pytest.raises(InputError, match="no Spark master answers"):
            opened({"spark.master": f"spark://127.0.0.1:{port}"})
        taken.listen()
        refuse_silent_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    refuse_silent_master("local[*]")
    refuse_silent_master("yarn")


def test_a_master_that_refuses_the_driver_is_reported():
    java = SimpleNamespace(getMessage=lambda: "Cannot call methods on a stopped SparkContext.\nat")
    error = RuntimeError()
    error.java_exception = java
    assert "the master did not answer, or its secret differs" in str(not_started(error))
    other = not_started(OSError("no room\nat"))
    assert str(other).startswith("Spark did not start (no room); check spark-defaults.conf")


def test_a_virtual_machine_that_does_not_start_has_two_causes(tmp_path):
    """For a master that spark-submit does not know, and where there is no Java."""
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn2\n")
    code = "from countveil.engines.spark.spark_session import open_session; open_session()"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    last = ran.stderr.splitlines()[-1]
    assert "either Java 17 or later is missing" in last
    assert "such as an unknown spark.master" in last
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    assert str(not_started(gone)) in last
