"""The files of a dump. The job lists them itself, so that Spark skips none in silence.

Spark ignores files in nested folders, files named ``_x`` or ``.x`` and empty files, and reads a file twice that is named twice.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.dump.endings import BZ2_TAIL_BYTES, bz2_is_whole, zst_is_whole
from oplog_sync.errors import SyncError
from oplog_sync.failure import shown_path

MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}
"""The first bytes of compressed files, and the suffix by which Spark tells them."""

SNIFFED = 16
"""Files whose first bytes are looked at. It only improves a message: rows of the others are judged one by one."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_COMPRESSED = (".gz", ".zst", ".bz2", ".deflate", ".lz4", ".snappy")
_MARKERS = re.compile(
    r"_SUCCESS|_(?:common_)?metadata|_committed_.*|_started_.*|\..*\.crc|\.DS_Store|\._.*|\.gitignore|\.gitkeep"
)
"""Files that tools leave beside a dump and that hold no row of it."""

_TABLES = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}


class DumpFile(NamedTuple):
    """``path`` is a Hadoop path, not encoded; ``base`` the folder that the user named, else the file's own."""

    path: str
    base: str
    size: int

    @property
    def folders(self) -> list[str]:
        """The folders between the base and the file."""
        return self.path.removeprefix(self.base).strip("/").split("/")[:-1]

    @property
    def shown(self) -> str:
        return shown_path(self.path)


def list_files(spark: SparkSession, dumps: Sequence[str]) -> list[DumpFile]:
    """Every file of the dump once, in the order of their paths. Raises SyncError for a file that must not be ignored."""
    found: dict[str, DumpFile] = {}
    for dump in dumps:
        for file in _files(spark, dump):
            found.setdefault(file.path, file)
    if not found:
        raise SyncError(
            f"the dump cannot be read: {' '.join(map(shown_path, dumps))} names no file with rows"
        )
    return sorted(found.values())


def check(spark: SparkSession, files: Sequence[DumpFile], format_: str) -> None:
    """Raise SyncError where the first bytes of a file show that it is of another format, or its size that it is cut off."""
    for file in files:
        if not file.size and (format_ != "json" or file.path.endswith(_COMPRESSED)):
            raise SyncError(
                f"the dump cannot be read: {file.shown} is empty; export it again, or leave it out"
            )
    for number, file in enumerate(files):
        # A .bz2 file in which no block is found counts as empty, without an error.
        if (number < SNIFFED or file.path.endswith((".bz2", ".lz4"))) and (
            wrong := _wrong(*_head(spark, file.path), file.path, format_)
        ):
            raise SyncError(f"the dump cannot be read: {file.shown} {wrong}")
        if not _is_whole(spark, file):
            raise SyncError(
                f"the dump cannot be read: {file.shown} ends too early, or holds something else behind its end; "
                "copy or export it again"
            )


def columns_in_folders(file: DumpFile) -> dict[str, str]:
    """The columns that the names of its folders give a file, such as ``type=video``: lower-case name -> name."""
    names = [
        name for name, equals, _ in (folder.partition("=") for folder in file.folders) if equals
    ]
    return {name.lower(): name for name in names}


def _files(spark: SparkSession, dump: str) -> Iterator[DumpFile]:
    system, roots = _roots(spark, dump)
    if not roots:
        raise SyncError(f"the dump cannot be read: there is no {shown_path(dump)}")
    for root in roots:
        base = root.getPath()
        chosen = _chosen(base.toString(), dump)
        if root.isFile():
            files = iter([DumpFile(base.toString(), base.getParent().toString(), root.getLen())])
        else:
            listed = _walk(system.listFiles(base, True))
            files = (
                DumpFile(each.getPath().toString(), base.toString(), each.getLen())
                for each in listed
            )
        is_empty = True
        for file in files:
            name = file.path.rpartition("/")[2]
            if file.size and not _MARKERS.fullmatch(name):
                _check_names(file.path, [*chosen, *file.folders, name])
            if not name.startswith(("_", ".")):
                is_empty = False
                yield file
        if is_empty and not root.isFile():
            raise SyncError(
                f"the dump cannot be read: the folder {shown_path(base.toString())} holds no file"
            )


def _chosen(path: str, dump: str) -> list[str]:
    """The folders of a path that a pattern found, without those that the user wrote out."""
    pairs = zip(reversed(path.split("/")), reversed(dump.rstrip("/").split("/")), strict=False)
    return [name for name, given in pairs if name != given]


def _roots(spark: SparkSession, dump: str) -> tuple[Any, list[Any]]:
    """The file system, and the status of each file and folder that a DUMP names. A name that exists is no pattern."""
    hadoop, configuration = _hadoop(spark)
    hadoop = hadoop.fs
    is_local = hadoop.FileSystem.getDefaultUri(configuration).getScheme() == "file"
    if is_local and not _SCHEME.match(dump):
        dump = os.path.abspath(dump)  # a relative name with a colon would be taken for a URL
    try:
        path = hadoop.Path(dump)
        system = path.getFileSystem(configuration)
        if system.exists(path):
            return system, [system.getFileStatus(path)]
        return system, list(system.globStatus(path) or [])
    except PySparkException as error:
        if "URISyntaxException" not in str(error):
            raise
        raise SyncError(
            f"the dump cannot be read: {shown_path(dump)}: Hadoop takes no pattern with or beside a name that holds ':'; "
            "name the files or their folder"
        ) from error


def _hadoop(spark: SparkSession) -> tuple[Any, Any]:
    """Its Java package, and its configuration."""
    assert spark._jvm is not None
    return spark._jvm.org.apache.hadoop, spark.sparkContext._jsc.hadoopConfiguration()


def _walk(statuses: Any) -> Iterator[Any]:
    while statuses.hasNext():
        yield statuses.next()


def _check_names(path: str, names: Iterable[str]) -> None:
    """Raise SyncError for a hidden file: whoever wrote it says that it is no part of the data, or not yet."""
    for name in names:
        if table := _TABLES.get(name):
            raise SyncError(
                f"the dump cannot be read: {shown_path(path).partition('/' + name)[0]} is {table}, whose files hold "
                "deleted rows too; export its present rows"
            )
        if name.endswith("._COPYING_") or name in ("_temporary", "_temporary_"):
            raise SyncError(
                f"the dump cannot be read: {shown_path(path)} is still being written, or was left half written"
            )
        if name.startswith(("_", ".")):
            raise SyncError(
                f"the dump cannot be read: {shown_path(path)} is hidden by its name, and Spark would ignore it; "
                "rename it, remove it, or name the files of the dump"
            )


def _head(spark: SparkSession, path: str) -> tuple[bytes, bytes]:
    """The first bytes of a file as they are, and those of what it holds if it is compressed; empty where that fails."""
    hadoop, configuration = _hadoop(spark)
    codec = hadoop.io.compress.CompressionCodecFactory(configuration).getCodec(hadoop.fs.Path(path))
    return _bytes_at(spark, path, 0, 64), _bytes_at(spark, path, 0, 64, codec)


def _is_whole(spark: SparkSession, file: DumpFile) -> bool:
    """False if a compressed file is cut off. Of .zst files only local ones are looked through; others may be far away."""
    if file.path.endswith(".bz2"):
        tail = _bytes_at(spark, file.path, max(file.size - BZ2_TAIL_BYTES, 0), BZ2_TAIL_BYTES)
        return not tail or bz2_is_whole(tail)
    is_local_zst = file.path.endswith(".zst") and file.path.startswith("file:")
    return not is_local_zst or zst_is_whole(Path(file.shown))


def _bytes_at(
    spark: SparkSession, path: str, position: int, count: int, codec: Any = None
) -> bytes:
    """Empty if the file cannot be read: reading it as a dump says it better."""
    hadoop, configuration = _hadoop(spark)
    file = hadoop.fs.Path(path)
    try:
        system = file.getFileSystem(configuration)
        if ":" in file.getName():
            system = getattr(system, "getRawFileSystem", lambda: system)()
        stream = system.open(file)
        try:
            stream.seek(position)
            return bytes(
                (stream if codec is None else codec.createInputStream(stream)).readNBytes(count)
            )
        finally:
            stream.close()
    except Exception:
        return b""


def _wrong(head: bytes, content: bytes, path: str, format_: str) -> str | None:
    """The rest of a sentence that begins with the file's name."""
    is_parquet = head.startswith((b"PAR1", b"PARE"))
    if format_ == "parquet":
        return (
            None if is_parquet or not head else "is no Parquet file; --format says what the dump is"
        )
    if path.endswith(".bz2") and not head.startswith(b"BZh"):
        return "is not compressed as its name says; rename it"
    if head.startswith(
        b"\x04\x22\x4d\x18"
    ):  # Java would take its first bytes for a length, and all memory for it
        return "is compressed by lz4, which Spark does not read; compress it as .gz or .zst"
    if is_parquet:
        return "is a Parquet file; give --format parquet"
    for magic, suffix in MAGIC.items():
        if head.startswith(magic) and not path.endswith(_COMPRESSED):
            return f"is compressed; give it a name that ends in {suffix}"
    if format_ == "json" and content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return "holds a JSON array; a JSON dump holds one object a line (jq -c '.[]' makes it of an array)"
    return None
