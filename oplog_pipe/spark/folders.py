"""Folders of tables, in whatever file system Spark finds them."""

from typing import Any

import msgspec
from pyspark.sql import SparkSession

from oplog_sync.jvm import hadoop, jvm

# Spark reads no files whose names begin so.
_MARK = "_oplog_pipe"


class Mark(msgspec.Struct, frozen=True):
    """Of a table: its owner, and the id of the checkpoint that has written it."""

    owner: str
    checkpoint: int


class Folders:
    """Methods raise the errors of Spark."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        java, configuration = hadoop(spark)
        self._path: Any = java.fs.Path
        self._files: Any = self._path(path).getFileSystem(configuration)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._path(path)))

    def is_empty(self, path: str) -> bool:
        return len(self._files.listStatus(self._path(path))) == 0

    def delete(self, path: str) -> None:
        """Delete a folder or a file, if there is one."""
        self._files.delete(self._path(path), True)

    def delete_all(self, pattern: str) -> None:
        """Delete what drivers have left that were killed."""
        for each in self._files.globStatus(self._path(pattern)) or ():
            self._files.delete(each.getPath(), True)

    def rename(self, path: str, to: str) -> None:
        """Give a folder another name. Raises OSError if the file system refuses."""
        if not self._files.rename(self._path(path), self._path(to)):
            raise OSError(f"{path} cannot become {to}")

    def make(self, path: str) -> None:
        self._files.mkdirs(self._path(path))

    def write(self, path: str, text: bytes) -> None:
        stream = self._files.create(self._path(path), True)
        stream.write(bytearray(text))
        stream.close()

    def read(self, path: str) -> str:
        stream = self._files.open(self._path(path))
        try:
            return str(jvm(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def mark(self, path: str, mark: Mark) -> None:
        self.write(f"{path}/{_MARK}", msgspec.json.encode(mark))

    def mark_of(self, path: str) -> Mark | None:
        """Return the mark of a table. None: it is no table of a pipe."""
        if not self.exists(f"{path}/{_MARK}"):
            return None
        return msgspec.json.decode(self.read(f"{path}/{_MARK}"), type=Mark)
