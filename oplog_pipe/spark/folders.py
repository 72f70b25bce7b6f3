"""Folders of tables, in whatever file system Spark finds them."""

import os
import re
import uuid
from typing import Any

from pyspark.sql import SparkSession

from oplog_sync.failure import SPARK_ERRORS
from oplog_sync.jvm import hadoop_configuration, hadoop_path, java_class

_ID = re.compile(r"\w+", re.ASCII)


class Folders:
    """Methods raise the errors of Spark."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._files: Any = hadoop_path(path).getFileSystem(hadoop_configuration(spark))
        self._is_local = str(self._files.getUri().getScheme()) == "file"

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(hadoop_path(path)))

    def is_empty(self, path: str) -> bool:
        """Return whether a folder has no folder, and no file with content."""
        found = self._files.listStatus(hadoop_path(path))
        return all(each.isFile() and each.getLen() == 0 for each in found)

    def names(self, prefix: str) -> list[str]:
        """Return the paths that are the prefix with a word behind it."""
        folder, start = prefix.rsplit("/", 1)
        found = self._files.globStatus(hadoop_path(f"{prefix}*")) or ()
        names = sorted(each.getPath().getName() for each in found)
        return [f"{folder}/{each}" for each in names if _ID.fullmatch(each[len(start) :])]

    def unique(self, prefix: str) -> str:
        """Return a path for ``names`` that no other driver uses."""
        return prefix + uuid.uuid4().hex

    def delete(self, path: str) -> None:
        """Delete a folder or a file, if there is one."""
        self._files.delete(hadoop_path(path), True)

    def rename(self, path: str, to: str) -> None:
        """Give a file or a folder another name. Raises OSError if the file system refuses."""
        if self._is_local and os.path.isdir(self._local(path)):
            # Hadoop would copy file by file if there is such a folder.
            os.rename(self._local(path), self._local(to))
        elif not self._files.rename(hadoop_path(path), hadoop_path(to)):
            raise OSError(f"{path} cannot become {to}")

    def move(self, path: str, to: str) -> bool:
        """Give a folder another name. False: it is gone, or there is a folder of this name."""
        try:
            self.rename(path, to)
        except (OSError, *SPARK_ERRORS):
            if self.exists(path) and not self.exists(to):
                raise
            return False
        # Some file systems move a folder into the one that has its new name.
        within = f"{to}/{path.rsplit('/', 1)[1]}"
        if self.exists(within):
            self.delete(within)
            return False
        return True

    def remove(self, path: str, prefix: str) -> None:
        """Delete a folder whose driver may go on writing it.

        It goes away in one step, to a name with the prefix, so no part of it is ever in use.
        """
        dead = self.unique(prefix)
        if self.move(path, dead):
            self.delete(dead)

    def write(self, path: str, text: bytes) -> None:
        stream = self._files.create(hadoop_path(path), True)
        stream.write(bytearray(text))
        stream.close()

    def read(self, path: str) -> str:
        stream = self._files.open(hadoop_path(path))
        try:
            return str(java_class("org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _local(self, path: str) -> str:
        return str(hadoop_path(path).toUri().getPath())
