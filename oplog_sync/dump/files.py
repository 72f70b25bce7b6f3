"""The files of a dump. The job lists them itself, so that Spark skips none in silence.

Spark ignores files in nested folders, files named ``_x`` or ``.x`` and empty files, and reads a file twice that is named twice.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.errors import SyncError

MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
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
        return shown(self.path)


def shown(path: str) -> str:
    """A path as users write it: local ones without a scheme."""
    return re.sub(r"^file:/+", "/", path)


def list_files(spark: SparkSession, dumps: Sequence[str]) -> list[DumpFile]:
    """Every file of the dump once, in the order of their paths. Raises SyncError for a file that must not be ignored."""
    found: dict[str, DumpFile] = {}
    for dump in dumps:
        for file in _files(spark, dump):
            found.setdefault(file.path, file)
    return sorted(found.values())


def check(spark: SparkSession, files: Sequence[DumpFile], format_: str) -> None:
    """Raise SyncError where the first bytes of a file show that it is of another format, or its size that it is cut off."""
    for file in files:
        if not file.size and (format_ != "json" or file.path.endswith(_COMPRESSED)):
            raise SyncError(f"the dump cannot be read: {file.shown} is empty; export it again, or leave it out")
    for number, file in enumerate(files):
        # A .bz2 file in which no block is found counts as empty, without an error.
        if (number < SNIFFED or file.path.endswith(".bz2")) and (
            wrong := _wrong(*_head(spark, file.path), file.path, format_)
        ):
            raise SyncError(f"the dump cannot be read: {file.shown} {wrong}")


def columns_in_folders(file: DumpFile) -> dict[str, str]:
    """The columns that the names of its folders give a file, such as ``type=video``: lower-case name -> name."""
    names = [name for name, equals, _ in (folder.partition("=") for folder in file.folders) if equals]
    return {name.lower(): name for name in names}


def _files(spark: SparkSession, dump: str) -> Iterator[DumpFile]:
    system, roots = _roots(spark, dump)
    if not roots:
        raise SyncError(f"the dump cannot be read: there is no {dump}")
    for root in roots:
        base = root.getPath()
        if root.isFile():
            _check_names(base.toString(), [base.getName()])
            yield DumpFile(base.toString(), base.getParent().toString(), root.getLen())
            continue
        is_empty = True
        for status in _walk(system.listFiles(base, True)):
            file = DumpFile(status.getPath().toString(), base.toString(), status.getLen())
            name = file.path.rpartition("/")[2]
            if file.size and not _MARKERS.fullmatch(name):
                _check_names(file.path, [*file.folders, name])
            if not name.startswith(("_", ".")):
                is_empty = False
                yield file
        if is_empty:
            raise SyncError(f"the dump cannot be read: the folder {shown(base.toString())} holds no file")


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
            f"the dump cannot be read: {dump}: Hadoop takes no pattern with or beside a name that holds ':'; "
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
                f"the dump cannot be read: {shown(path).partition('/' + name)[0]} is {table}, whose files hold "
                "deleted rows too; export its present rows"
            )
        if name.endswith("._COPYING_") or name in ("_temporary", "_temporary_"):
            raise SyncError(f"the dump cannot be read: {shown(path)} is still being written, or was left half written")
        if name.startswith(("_", ".")):
            raise SyncError(
                f"the dump cannot be read: {shown(path)} is hidden by its name, and Spark would ignore it; "
                "rename it, remove it, or name the files of the dump"
            )


def _head(spark: SparkSession, path: str) -> tuple[bytes, bytes]:
    """The first bytes of a file as they are, and those of what it holds if it is compressed; empty where that fails."""
    hadoop, configuration = _hadoop(spark)
    file = hadoop.fs.Path(path)
    system = file.getFileSystem(configuration)
    if ":" in file.getName():
        system = getattr(system, "getRawFileSystem", lambda: system)()
    heads: list[bytes] = []
    for codec in (None, hadoop.io.compress.CompressionCodecFactory(configuration).getCodec(file)):
        try:
            stream = system.open(file)
            try:
                heads.append(bytes((stream if codec is None else codec.createInputStream(stream)).readNBytes(64)))
            finally:
                stream.close()
        except Exception:  # reading says it better
            heads.append(b"")
    return heads[0], heads[1]


def _wrong(head: bytes, content: bytes, path: str, format_: str) -> str | None:
    """The rest of a sentence that begins with the file's name."""
    is_parquet = head.startswith((b"PAR1", b"PARE"))
    if format_ == "parquet":
        return None if is_parquet or not head else "is no Parquet file; --format says what the dump is"
    if path.endswith(".bz2") and not head.startswith(b"BZh"):
        return "is not compressed as its name says; rename it"
    if is_parquet:
        return "is a Parquet file; give --format parquet"
    for magic, suffix in MAGIC.items():
        if head.startswith(magic) and not path.endswith(_COMPRESSED):
            return f"is compressed; give it a name that ends in {suffix}"
    if format_ == "json" and content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return "holds a JSON array; a JSON dump holds one object a line (jq -c '.[]' makes it of an array)"
    return None
