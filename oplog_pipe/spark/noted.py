"""The settings of a sink that decide which rows go where, noted beside its checkpoint."""

from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from oplog_pipe.errors import ConfigError
from oplog_pipe.folder.fingerprint import fingerprints
from oplog_pipe.model.settings import SinkSettings, SourceSettings
from oplog_pipe.spark.session import sentences
from oplog_sync.jvm import hadoop, jvm

_FILE = "oplog-pipe.json"


class NotedSettings:
    """A file in the folder of a query's checkpoint, in whatever file system it is."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Raises PipeError if Spark cannot use the folder."""
        self._spark = spark
        with sentences():
            java, configuration = hadoop(spark)
            self._path: Any = java.fs.Path(f"{checkpoint}/{_FILE}")
            self._offsets: Any = java.fs.Path(f"{checkpoint}/offsets")
            self._files: Any = self._path.getFileSystem(configuration)
            self._java = java

    def has_batches(self) -> bool:
        """Return whether a query has planned a batch with this checkpoint. Raises PipeError."""
        with sentences():
            files, path = self._files, self._offsets
            return bool(files.exists(path)) and len(files.listStatus(path)) > 0

    def check(self, place: str, sink: SinkSettings, sources: Sequence[SourceSettings]) -> None:
        """Note the settings. Raises ConfigError if they have changed since the first batch.

        With ``start: end`` a change is allowed, and holds from the next batch on. ``place``: of the
        sink in the file.
        """
        present = fingerprints(sink, sources)
        noted = self._read()
        changed = sorted(
            name for name in present.keys() | noted.keys() if present.get(name) != noted.get(name)
        )
        if not changed:
            return
        if noted and sink.start != "end" and self.has_batches():
            raise ConfigError(
                f"{place}: {', '.join(changed)} changed since the checkpoint was begun: rows that"
                " are in the target would stay as they are. Give another --checkpoint, which begins"
                " with a copy and ends with the removal of old rows, or set start: end to go on"
                " without one"
            )
        self._write(present)

    def _read(self) -> dict[str, int]:
        with sentences():
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
        with sentences():
            # A file of this name is whole: a driver may be killed meanwhile.
            part = self._java.fs.Path(f"{self._path}.part")
            stream = self._files.create(part, True)
            stream.write(bytearray(msgspec.json.encode(numbers)))
            stream.close()
            self._files.delete(self._path, False)
            self._files.rename(part, self._path)
