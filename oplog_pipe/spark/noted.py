"""The settings of a sink that decide which rows go where, noted beside its checkpoint."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from oplog_pipe.errors import ConfigError
from oplog_pipe.folder.fingerprint import fingerprints, former_sources
from oplog_pipe.model.settings import SinkSettings, SourceSettings
from oplog_sync.failure import SPARK_ERRORS, reason
from oplog_sync.jvm import hadoop, jvm

_FILE = "oplog-pipe.json"
_ID = "id"


class NotedSettings:
    """A file in the folder of a query's checkpoint, in whatever file system it is."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Raises PipeError if Spark cannot use the folder."""
        self._spark = spark
        with _usable():
            java, configuration = hadoop(spark)
            self._path: Any = java.fs.Path(f"{checkpoint}/{_FILE}")
            self._offsets: Any = java.fs.Path(f"{checkpoint}/offsets")
            self._files: Any = self._path.getFileSystem(configuration)
            self._java = java

    def has_batches(self) -> bool:
        """Return whether a query has planned a batch with this checkpoint. Raises PipeError."""
        with _usable():
            files, path = self._files, self._offsets
            return bool(files.exists(path)) and len(files.listStatus(path)) > 0

    def check(self, place: str, sink: SinkSettings, sources: Sequence[SourceSettings]) -> int:
        """Note the settings, and return the id of the checkpoint.

        Raises ConfigError if they have changed since the first batch.

        With ``start: end`` a change is allowed, and holds from the next batch on, unless there are
        other sources. ``place``: of the sink in the file.
        """
        present = fingerprints(sink, sources)
        noted = self._read()
        id = noted.pop(_ID, None) or secrets.randbits(48)
        changed = sorted(
            name for name in present.keys() | noted.keys() if present.get(name) != noted.get(name)
        )
        if not changed:
            return id
        if noted and self.has_batches():
            has_others = former_sources(present) != former_sources(noted)
            if has_others or sink.start != "end":
                others = "" if has_others else ", or set start: end to go on without one"
                raise ConfigError(
                    f"{place}: {', '.join(changed)} changed since the checkpoint was begun: rows"
                    " that are in the target would stay as they are. Give another --checkpoint,"
                    f" which begins with a copy and ends with the removal of old rows{others}"
                )
        self._write({**present, _ID: id})
        return id

    def _read(self) -> dict[str, int]:
        with _usable():
            if not self._files.exists(self._path):
                return {}
            stream = self._files.open(self._path)
            try:
                text = jvm(self._spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        try:
            return msgspec.json.decode(text, type=dict[str, int])
        except msgspec.MsgspecError:
            raise ConfigError(f"--checkpoint: {self._path} is not of oplog-pipe") from None

    def _write(self, numbers: dict[str, int]) -> None:
        with _usable():
            # A file of this name is whole: a driver may be killed meanwhile.
            part = self._java.fs.Path(f"{self._path}.part")
            stream = self._files.create(part, True)
            stream.write(bytearray(msgspec.json.encode(numbers)))
            stream.close()
            self._files.delete(self._path, False)
            self._files.rename(part, self._path)


@contextmanager
def _usable() -> Iterator[None]:
    """Raise ConfigError for an error of the file system."""
    try:
        yield
    except (*SPARK_ERRORS, ConnectionError) as error:
        raise ConfigError(f"--checkpoint: {reason(error)}") from error
