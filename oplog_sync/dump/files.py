"""List the files of a dump. Spark would ignore some in silence, and read others twice.

It ignores files in nested folders, files named ``_x`` or ``.x`` and empty files.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from oplog_sync.dump.endings import BZ2_TAIL_BYTES, bz2_is_whole, zst_is_whole
from oplog_sync.errors import DumpError
from oplog_sync.failure import shown_path
from oplog_sync.jvm import hadoop_configuration, hadoop_path, java_class

# The first bytes of compressed files, and the suffix by which Spark recognizes them.
MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2"}

# Files whose first bytes are checked. This only improves the message: each row is checked later.
SNIFFED = 16

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_COMPRESSED = (".gz", ".zst", ".bz2", ".deflate", ".lz4", ".snappy")
# Files of tools beside a dump. They hold no rows.
_MARKERS = re.compile(
    r"_SUCCESS|_(?:common_)?metadata|_committed_.*|_started_.*"
    r"|\..*\.crc|\.DS_Store|\._.*|\.gitignore|\.gitkeep"
)

_TABLES = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table"}


class DumpFile(NamedTuple):
    """A file. ``path``: of Hadoop, not encoded. ``base``: the user's folder, else the file's."""

    path: str
    base: str
    size: int

    @property
    def folders(self) -> list[str]:
        """Return the names of the folders between the base and the file."""
        return self.path.removeprefix(self.base).strip("/").split("/")[:-1]

    @property
    def shown(self) -> str:
        return shown_path(self.path)


def list_files(spark: SparkSession, dumps: Sequence[str]) -> list[DumpFile]:
    """Return every file of the dump once, sorted by path. Raises DumpError for hidden files."""
    found: dict[str, DumpFile] = {}
    for dump in dumps:
        for file in _files(spark, dump):
            found.setdefault(file.path, file)
    if not found:
        raise DumpError(f"no file with rows in {' '.join(map(shown_path, dumps))}")
    return sorted(found.values())


def check(spark: SparkSession, files: Sequence[DumpFile], format_: str) -> None:
    """Raise DumpError if a file is empty, truncated, or in another format by its first bytes."""
    for file in files:
        if not file.size and (format_ != "json" or file.path.endswith(_COMPRESSED)):
            raise DumpError(f"{file.shown} is empty; export it again, or leave it out")
    for number, file in enumerate(files):
        # Spark reads a .bz2 file without any block as empty, without an error.
        is_sniffed = number < SNIFFED or file.path.endswith((".bz2", ".lz4"))
        if is_sniffed and (wrong := _wrong(spark, file.path, format_)):
            raise DumpError(f"{file.shown} {wrong}")
        if not _is_whole(spark, file):
            fault = "ends too early, or has other data behind its end; copy or export it again"
            raise DumpError(f"{file.shown} {fault}")


def columns_in_folders(file: DumpFile) -> dict[str, str]:
    """Return the columns from folder names such as ``type=video``: lower-case name -> name."""
    names = (folder.partition("=")[0] for folder in file.folders if "=" in folder)
    return {name.lower(): name for name in names}


def _files(spark: SparkSession, dump: str) -> Iterator[DumpFile]:
    system, roots = _roots(spark, dump)
    if not roots:
        raise DumpError(f"there is no {shown_path(dump)}")
    for root in roots:
        base = root.getPath()
        chosen = _chosen(base.toString(), dump)
        if root.isFile():
            files = iter([DumpFile(base.toString(), base.getParent().toString(), root.getLen())])
        else:
            files = _walk(system.listFiles(base, True), base.toString())
        is_empty = True
        for file in files:
            name = file.path.rpartition("/")[2]
            if file.size and not _MARKERS.fullmatch(name):
                _check_names(file.path, [*chosen, *file.folders, name])
            if not name.startswith(("_", ".")):
                is_empty = False
                yield file
        if is_empty and not root.isFile():
            raise DumpError(f"the folder {shown_path(base.toString())} holds no file")


def _chosen(path: str, dump: str) -> list[str]:
    """Return the parts of a path matched by a pattern, without literal parts."""
    pairs = zip(reversed(path.split("/")), reversed(dump.rstrip("/").split("/")), strict=False)
    return [name for name, given in pairs if name != given]


def _roots(spark: SparkSession, dump: str) -> tuple[Any, list[Any]]:
    """Return the file system and the statuses of a DUMP. An existing name is not a pattern."""
    configuration = hadoop_configuration(spark)
    systems = java_class("org.apache.hadoop.fs.FileSystem")
    is_local = systems.getDefaultUri(configuration).getScheme() == "file"
    if is_local and not _SCHEME.match(dump):
        dump = os.path.abspath(dump)  # Hadoop takes a relative name with a colon for a URL
    try:
        path = hadoop_path(dump)
        system = path.getFileSystem(configuration)
        if system.exists(path):
            return system, [system.getFileStatus(path)]
        return system, list(system.globStatus(path) or [])
    except PySparkException as error:
        if "URISyntaxException" not in str(error):
            raise
        fault = "Hadoop supports no pattern in a folder with a name that contains ':'"
        raise DumpError(f"{shown_path(dump)}: {fault}; name the files or their folder") from error


def _walk(statuses: Any, base: str) -> Iterator[DumpFile]:
    while statuses.hasNext():
        status = statuses.next()
        yield DumpFile(status.getPath().toString(), base, status.getLen())


def _check_names(path: str, names: Iterable[str]) -> None:
    """Raise DumpError for a hidden file: its name marks it as no data, or not yet data."""
    shown = shown_path(path)
    for name in names:
        if table := _TABLES.get(name):
            raise DumpError(
                f"{shown.partition('/' + name)[0]} is {table}; its files also hold deleted rows;"
                " export its current rows"
            )
        if name.endswith("._COPYING_") or name in ("_temporary", "_temporary_"):
            raise DumpError(f"{shown} is still being written, or its writer was interrupted")
        if name.startswith(("_", ".")):
            raise DumpError(
                f"{shown} is hidden by its name, and Spark would ignore it; rename it, remove it,"
                " or name the files of the dump"
            )


def _is_whole(spark: SparkSession, file: DumpFile) -> bool:
    """Return False for a truncated .bz2 file or a truncated local .zst file, which is read."""
    if file.path.endswith(".bz2"):
        tail = _bytes_at(spark, file.path, max(file.size - BZ2_TAIL_BYTES, 0), BZ2_TAIL_BYTES)
        return not tail or bz2_is_whole(tail)
    is_local_zst = file.path.endswith(".zst") and file.path.startswith("file:")
    return not is_local_zst or zst_is_whole(Path(file.shown))


def _bytes_at(
    spark: SparkSession, path: str, position: int, count: int, *, decompress: bool = False
) -> bytes:
    """Return bytes of a file, empty on failure: reading it as a dump gives a better error."""
    file, configuration = hadoop_path(path), hadoop_configuration(spark)
    codec = None
    if decompress:
        codecs = java_class("org.apache.hadoop.io.compress.CompressionCodecFactory")
        codec = codecs(configuration).getCodec(file)
    try:
        system = file.getFileSystem(configuration)
        if ":" in file.getName():
            system = getattr(system, "getRawFileSystem", lambda: system)()
        stream = system.open(file)
        try:
            stream.seek(position)
            content = stream if codec is None else codec.createInputStream(stream)
            return bytes(content.readNBytes(count))
        finally:
            stream.close()
    except Exception:
        return b""


def _wrong(spark: SparkSession, path: str, format_: str) -> str | None:
    """Return the fault of a file, as the rest of a sentence after its name."""
    head, content = (_bytes_at(spark, path, 0, 64, decompress=each) for each in (False, True))
    is_parquet, is_orc = head.startswith((b"PAR1", b"PARE")), head.startswith(b"ORC")
    for name, is_it, title in (("parquet", is_parquet, "a Parquet"), ("orc", is_orc, "an ORC")):
        if format_ == name:
            return None if is_it or not head else f"is not {title} file; give the dump's --format"
    if path.endswith(".bz2") and not head.startswith(b"BZh"):
        return "is not compressed as its name says; rename the file"
    # Java would take the first bytes of lz4 for a length and allocate that much memory.
    if head.startswith(b"\x04\x22\x4d\x18"):
        return "is compressed by lz4, and Spark cannot read it; compress it as .gz or .zst"
    if is_parquet or is_orc:
        name = "parquet" if is_parquet else "orc"
        return f"is {'a Parquet' if is_parquet else 'an ORC'} file; give --format {name}"
    for magic, suffix in MAGIC.items():
        if head.startswith(magic) and not path.endswith(_COMPRESSED):
            return f"is compressed; give it a name that ends in {suffix}"
    if format_ == "json" and content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        return "holds a JSON array; a JSON dump has one object per line (jq -c '.[]' converts it)"
    return None
