"""What is noted beside the checkpoint of a sink: where rows go, its driver, planned batches."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from pyspark.sql import SparkSession

from oplog_pipe.commitlog.log import now_ms
from oplog_pipe.errors import ConfigError
from oplog_pipe.folder.fingerprint import fingerprints, former_sources
from oplog_pipe.model.settings import SinkSettings, SourceSettings
from oplog_pipe.sinks.parts.fence import other_driver
from oplog_pipe.spark.folders import Folders
from oplog_sync.failure import SPARK_ERRORS, reason

_FILE = "oplog-pipe.json"
_DRIVER = "oplog-pipe-driver"
_ID = "id"
_CREATED = "created"


class Checkpoint(NamedTuple):
    """``id``: 48 random bits. ``created_ms``: in ms since 1970."""

    id: int
    created_ms: int


class NotedSettings:
    """A file in the folder of a query's checkpoint, in whatever file system it is."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Raises ConfigError if Spark cannot use the folder."""
        self._path = f"{checkpoint}/{_FILE}"
        self._part = f"{self._path}.part"
        self._offsets = f"{checkpoint}/offsets"
        with _usable():
            self._folders = Folders(spark, checkpoint)

    def has_batches(self) -> bool:
        """Return whether a query has planned a batch with this checkpoint. Raises ConfigError."""
        with _usable():
            return self._folders.exists(self._offsets) and not self._folders.is_empty(self._offsets)

    def check(
        self, place: str, sink: SinkSettings, sources: Sequence[SourceSettings]
    ) -> Checkpoint:
        """Note the settings, and return what is noted of the checkpoint.

        Raises ConfigError if they have changed since the first batch.

        With ``start: end`` a change is allowed, and holds from the next batch on, unless there are
        other sources. ``place``: of the sink in the file.
        """
        present = fingerprints(sink, sources)
        noted = self._read()
        made = Checkpoint(noted.pop(_ID, 0) or secrets.randbits(48), noted.pop(_CREATED, now_ms()))
        changed = sorted(
            name for name in present.keys() | noted.keys() if present.get(name) != noted.get(name)
        )
        if not changed:
            return made
        if noted and self.has_batches():
            has_others = former_sources(present) != former_sources(noted)
            if has_others or sink.start != "end":
                others = "" if has_others else ", or set start: end to go on without one"
                raise ConfigError(
                    f"{place}: {', '.join(changed)} changed since the checkpoint was begun: rows"
                    " that are in the target would stay as they are. Give another --checkpoint,"
                    f" which begins with a copy and ends with the removal of old rows{others}"
                )
        self._write({**present, _ID: made.id, _CREATED: made.created_ms})
        return made

    def planned(self, batch: int) -> list[str]:
        """Return where a planned batch ends: a line of JSON per source, or ``-``.

        Raises OSError and the errors of Spark.
        """
        # A version, then figures of Spark.
        return self._folders.read(f"{self._offsets}/{batch}").splitlines()[2:]

    def _read(self) -> dict[str, int]:
        with _usable():
            if self._folders.exists(self._path):
                text = self._folders.read(self._path)
            elif self._folders.exists(self._part) and self.has_batches():
                text = self._folders.read(self._part)  # a driver was killed before the rename
            else:
                return {}
        try:
            return msgspec.json.decode(text, type=dict[str, int])
        except msgspec.MsgspecError:
            raise ConfigError(f"--checkpoint: {self._path} is not of oplog-pipe") from None

    def _write(self, numbers: dict[str, int]) -> None:
        with _usable():
            self._folders.write(self._part, msgspec.json.encode(numbers))
            self._folders.delete(self._path)
            self._folders.rename(self._part, self._path)


class Claim:
    """A file beside the checkpoint names the driver that has begun last.

    A driver that was frozen looks at it before it goes on. The fence of a target, or the folder of
    a table, would not tell who has begun first: a frozen driver may not have moved it yet.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, owner: str) -> None:
        """Claim a checkpoint. ``owner``: of the rows. Raises ConfigError."""
        self._path = f"{checkpoint}/{_DRIVER}"
        self._owner = owner
        self._id = secrets.token_hex(8)
        with _usable():
            self._folders = Folders(spark, checkpoint)
            self._folders.write(self._path, self._id.encode())

    def check(self) -> None:
        """Raise FencedError if another driver has begun since.

        Raises OSError and the errors of Spark, too.
        """
        if self._folders.read(self._path) != self._id:
            raise other_driver(self._owner)


@contextmanager
def _usable() -> Iterator[None]:
    """Raise ConfigError for an error of the file system."""
    try:
        yield
    except (*SPARK_ERRORS, OSError) as error:
        raise ConfigError(f"--checkpoint: {reason(error)}") from error
