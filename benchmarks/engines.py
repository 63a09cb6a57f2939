"""One population through every engine: whether the bytes agree, and what each engine needs."""

from __future__ import annotations

import argparse
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import stages
from benchmarks.cluster import Cluster, running
from benchmarks.stages import Said, Work
from benchmarks.table import Missed, show
from countveil.base.storage import sha256
from countveil.publish import Release

_SEED = 5
_EVERY = 0.2  # seconds between two readings of the executors
_MOST_MB = 2_000  # limit for the local engine


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--people", type=int, default=10_000_000, help="records")
    parser.add_argument("--blocks", type=int, default=200_000, help="units of the lowest level")


@dataclass
class Executors:
    """The processor time of the executors in each stage, and their peak memory."""

    cluster: Cluster
    cpu: dict[str, float] = field(default_factory=dict)
    peak_mb: float = 0.0
    _begun: float = 0.0

    def hear(self, work: Work, said: Said) -> None:
        """Record the processor time at the start and the end of a stage."""
        if "begin" in said:
            self._begun = self._used()
        elif "end" in said:
            # Python workers that are idle for a minute end, and their times are lost.
            self.cpu[said["end"]] = max(0.0, self._used() - self._begun)

    def watch(self, over: threading.Event) -> None:
        """Read their memory at intervals."""
        while not over.wait(_EVERY):
            held = sum(map(stages.tree_bytes, self.cluster.executors())) / 2**20
            self.peak_mb = max(self.peak_mb, held)

    def _used(self) -> float:
        return sum(map(stages.tree_cpu, self.cluster.executors()))


def run(options: argparse.Namespace) -> None:
    """Release with both engines, compare every byte, and show seconds, memory and overhead."""
    with tempfile.TemporaryDirectory(prefix="countveil-engines-") as name:
        folder = Path(name)
        # A small release first, to compile the kernels.
        stages.population(folder / "few", people=2_000, seed=_SEED)
        stages.release(folder / "few" / "plan.toml", folder / "small", seed=_SEED, workers=2)
        stages.population(
            folder / "people", people=options.people, seed=_SEED, blocks=options.blocks
        )
        plan = folder / "people" / "plan.toml"
        local = stages.release(plan, folder / "local", seed=_SEED, workers=2, title="local: ")
        with running(folder / "cluster") as cluster:
            executors, over = Executors(cluster), threading.Event()
            watcher = threading.Thread(target=executors.watch, args=(over,), daemon=True)
            watcher.start()
            spark = stages.release(
                plan,
                folder / "spark",
                seed=_SEED,
                workers=2,
                engine="spark",
                environment=cluster.environment,
                title="spark: ",
                heard=executors.hear,
            )
            over.set()
            watcher.join()
        _show(options, local, spark, executors)
        _compare(folder, local, spark, executors)


def _show(options: argparse.Namespace, local: Work, spark: Work, executors: Executors) -> None:
    rows = []
    for name, here in local.stages.items():
        there = spark.stages[name]
        if here.seconds == 0:
            continue
        rows.append(
            (
                name,
                *(f"{here.seconds:,.1f}", f"{here.cpu:,.1f}", f"{here.peak_mb:,.0f}"),
                *(f"{there.seconds:,.1f}", f"{there.cpu:,.1f}"),
                f"{executors.cpu.get(name, 0.0):,.1f}",
                f"{there.seconds / here.seconds:.2f}",
            )
        )
    title = (
        f"{options.people:,} records, {options.blocks:,} blocks; the local engine with 2 processes, "
        f"Spark with 2 executors of one core on the same machine"
    )
    columns = ("stage", "local s", "processor s", "peak MB", "spark s", "driver processor s")
    show(title, (*columns, "executor processor s", "spark / local"), rows)


def _compare(folder: Path, local: Work, spark: Work, executors: Executors) -> None:
    """Compare the two releases, and print Spark's extra time per family."""
    outs = [folder / "local", folder / "spark"]
    names = sorted(p.relative_to(outs[0]).as_posix() for p in outs[0].rglob("*.parquet"))
    same = all(sha256(outs[0] / name) == sha256(outs[1] / name) for name in names)
    release = Release.read(outs[0])
    families = sum(item.families for item in release.certificate)
    tabulated, estimated = local.stages["tabulate"], local.stages["estimate"]
    there = spark.stages["estimate"]
    extra = there.cpu + executors.cpu.get("estimate", 0.0) - estimated.cpu
    blocks = release.manifest["levels"][-1]["units"]
    print(
        f"\n{len(names)} files {'are identical' if same else 'DIFFER'}, byte for byte; "
        f"{families:,} families\n"
        f"local: {estimated.seconds / families * 1e3:.2f} ms per family with 2 processes, "
        f"{blocks / estimated.seconds:,.0f} blocks per second, memory {local.peak_mb:,.0f} MB; "
        f"counted in {tabulated.seconds:.1f} s\n"
        f"spark: {there.seconds / families * 1e3:.2f} ms per family with 2 executors, "
        f"{extra / families * 1e3:.2f} ms of processor time more than the local engine; driver "
        f"{spark.peak_mb:,.0f} MB, executors together {executors.peak_mb:,.0f} MB; counted in "
        f"{spark.stages['tabulate'].seconds:.1f} s"
    )
    if not same:
        raise Missed("the engines released different bytes for the same seed")
    if local.peak_mb > _MOST_MB:
        raise Missed(f"the local engine needed {local.peak_mb:,.0f} MB, more than {_MOST_MB:,}")
