"""A real, authenticated Spark cluster on loopback: one master and some workers, each a process."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from countveil.engines.workers import children_of

_HOME = Path(pyspark.__file__).parent
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # these processes live for minutes
_PATIENCE = 600  # seconds until a process must be ready


@dataclass
class Cluster:
    """Processes and their folder; with `environment` a driver finds it, as with spark-submit."""

    folder: Path
    settings: dict[str, str]
    master: str = ""
    workers: tuple[str, ...] = ()
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a driver needs."""
        return {
            **os.environ,
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK,
            "SPARK_LOCAL_DIRS": str(self.folder / "spill"),
            "SPARK_HOME": str(_HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    def start_worker(self, name: str) -> None:
        """Start a worker; one with that name may have been killed before.

        Each has its own address, as machines do: Spark never starts a second copy of a task on the same
        one.
        """
        host = f"127.0.0.{1 + int(name.removeprefix('worker'))}"
        command = ["worker.Worker", "--cores", "2", "--memory", "3g"]
        command += ["--work-dir", str(self.folder / "work" / name), self.master]
        self._start(name, command, host)

    def await_worker(self, name: str) -> None:
        """Wait until a worker is registered."""
        self._await(name, "Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill a worker with its executors, without warning, as if its machine were lost."""
        process = self.processes.pop(name)
        for child in children_of(process.pid):
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()

    def replace_lost(self) -> None:
        """Replace the workers that were killed."""
        gone = [name for name in self.workers if name not in self.processes]
        for name in gone:
            self.start_worker(name)
        for name in gone:
            self.await_worker(name)

    def executors(self) -> list[int]:
        """Return the processes of executors, in the order of their workers."""
        found = []
        for name, process in self.processes.items():
            if name != "master":
                found += [pid for pid in children_of(process.pid) if "Executor" in _command(pid)]
        return found

    def _start(self, name: str, command: list[str], host: str = "127.0.0.1") -> None:
        with (self.folder / "logs" / name).open("wb") as file:
            self.processes[name] = subprocess.Popen(
                [
                    str(_HOME / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{command[0]}",
                    *("--host", host, "--port", "0", "--webui-port", "0"),
                    *("--properties-file", str(self.folder / "conf" / "spark-defaults.conf")),
                    *command[1:],
                ],
                env={**self.environment, "SPARK_LOCAL_IP": host},
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def _await(self, name: str, ready: str) -> str:
        """Return the line with which a process reports that it is ready."""
        log, until = self.folder / "logs" / name, time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            for line in log.read_text(errors="replace").splitlines():
                if ready in line:
                    return line
            if self.processes[name].poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"{name} of the cluster did not start: {log.read_text()[-3000:]}")


@contextmanager
def running(
    folder: Path, workers: int = 2, settings: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """Yield a cluster, and remove it afterwards with everything it wrote."""
    for name in ("conf", "spill", "work", "logs", "events"):
        (folder / name).mkdir(parents=True, mode=0o700)
    cluster = Cluster(folder, settings or {})
    _configure(cluster, "")
    try:
        cluster._start("master", ["master.Master"])
        cluster.master = cluster._await("master", "Starting Spark master at").split()[-1]
        _configure(cluster, cluster.master)
        cluster.workers = tuple(f"worker{number}" for number in range(workers))
        cluster.replace_lost()
        yield cluster
    finally:
        for name, process in cluster.processes.items():
            if name != "master":
                for child in children_of(process.pid):
                    with suppress(ProcessLookupError):  # it may have ended by itself
                        os.kill(child, signal.SIGKILL)
            process.kill()
        for process in cluster.processes.values():
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _configure(cluster: Cluster, master: str) -> None:
    """Write the properties of master, workers and drivers; only their owner can read the secret."""
    path = cluster.folder / "conf" / "spark-defaults.conf"
    secret = cluster.folder / "conf" / "secret"
    if not secret.exists():
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret.read_text(),
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.executor.memory": "700m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "4",
        **({"spark.master": master} if master else {}),
        **cluster.settings,
    }
    path.touch(0o600)
    path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""
