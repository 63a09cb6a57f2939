"""Which records a leaf of Spark's analyzed plan reads, and whether the release declares it public.

One table has many names: a folder, a file in it, a link, a pattern, a view. So a leaf that reads files
is known by these files, local ones by device and inode, and two leaves that share a file share records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaObject

from countveil.engines.spark.query import kind_of

_LOCAL = ("", "file")
_FILE_TABLES = ("AvroTable", "CSVTable", "JsonTable", "OrcTable", "ParquetTable", "TextTable")
_WRITTEN_OUT = ("OneRowRelation", "Range", "EmptyRelation")


@dataclass(frozen=True, slots=True)
class PublicTables:
    """What a plan declares public: names of tables in lower case, local paths, and remote addresses."""

    names: frozenset[str]
    paths: frozenset[Path]
    addresses: frozenset[str]

    @classmethod
    def of(cls, declared: Iterable[str], folder: Path) -> PublicTables:
        """Read the entries of `records.public_tables`; paths are relative to the plan's folder."""
        texts = list(declared)
        remote = frozenset(text for text in texts if urlsplit(text).scheme not in _LOCAL)
        local = (text for text in texts if text not in remote)
        return cls(
            frozenset(text.lower() for text in texts),
            frozenset((folder / text.removeprefix("file:")).resolve() for text in local),
            remote,
        )

    def include(self, leaf: JavaObject, database: str) -> bool:
        """Return whether a table or view is declared by name, or all its files are by their paths."""
        for name in names_of(leaf):
            parts = name.split(".")
            short = [parts[-1]] if len(parts) == 1 or parts[-2] == database else []
            if {name, ".".join(parts[-2:]), *short} & self.names:
                return True
        files = files_of(leaf)
        return bool(files) and all(map(self._includes_file, files))

    def _includes_file(self, file: str) -> bool:
        if _is_local(file):
            path = _path(file).resolve()
            return bool({path, *path.parents} & self.paths)
        return any(
            file == address or file.startswith(address.rstrip("/") + "/")
            for address in self.addresses
        )


def files_of(leaf: JavaObject) -> list[str]:
    """Return the address of each file that a leaf reads, as often as it reads it; none for tables."""
    if kind_of(leaf) == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation":
        return [str(file) for file in leaf.relation().location().inputFiles()]
    if kind_of(leaf) == "DataSourceV2Relation" and kind_of(leaf.table()) in _FILE_TABLES:
        return [str(file) for file in leaf.table().fileIndex().inputFiles()]
    return []


def identities_of(leaf: JavaObject, view: str | None) -> list[str]:
    """Return texts that name the records of a leaf; two leaves that share one share records.

    A text that comes twice is read twice. `view` is the view that the leaf is written out in.
    """
    kind = kind_of(leaf)
    files = files_of(leaf)
    if files:
        return [_file_identity(file) for file in files]
    if kind == "LocalRelation":
        return [f"{kind} {leaf.data().hashCode()}"]
    if kind == "LogicalRDD":
        return [f"{kind} {leaf.rdd().id()}"]
    if kind in _WRITTEN_OUT:
        return [f"{kind} in {view}"]
    if kind == "LogicalRelation" and kind_of(leaf.relation()) != "HadoopFsRelation":
        return [kind_of(leaf.relation())]  # such as JDBC, where one table has many spellings
    names = names_of(leaf) or [str(leaf.canonicalized().toString())]
    return [f"{kind} {', '.join(sorted(names))}"]


def names_of(leaf: JavaObject) -> list[str]:
    """Return the name of a table or view in the catalog, in lower case; none for others."""
    kind = kind_of(leaf)
    if kind == "View":
        return [str(leaf.desc().identifier().unquotedString()).lower()]
    if kind == "HiveTableRelation":
        return [str(leaf.tableMeta().identifier().unquotedString()).lower()]
    if kind == "LogicalRelation" and leaf.catalogTable().isDefined():
        return [str(leaf.catalogTable().get().identifier().unquotedString()).lower()]
    if kind == "DataSourceV2Relation" and leaf.identifier().isDefined():
        return [str(leaf.name()).replace("`", "").lower()]
    return []


def _file_identity(file: str) -> str:
    if not _is_local(file):
        # A remote store goes by several schemes and hosts: hdfs and webhdfs, s3 and s3a.
        return f"file {urlsplit(file).path}"
    try:
        status = _path(file).stat()
    except OSError:
        return f"file {_path(file).resolve()}"
    return f"file {status.st_dev}:{status.st_ino}"


def _is_local(file: str) -> bool:
    return urlsplit(file).scheme in _LOCAL


def _path(file: str) -> Path:
    return Path(unquote(urlsplit(file).path))
