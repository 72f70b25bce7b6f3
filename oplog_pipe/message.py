"""The message of transforms and sinks. No I/O, and nothing of the engine."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import msgspec

Op = Literal["insert", "update", "delete"]

_VERSIONS_PER_MS = 1 << 20
_UNREAD: Any = object()


class Message:
    """One change of one object, or one message of a topic.

    - ``op``: ``insert``, ``update`` or ``delete``. Write ``insert`` and ``update`` in the same way:
      both bring an object as it is now.
    - ``timestamp``: of the change or the publishing, in milliseconds since 1970.
    - ``namespace``: the type of the object, or ``namespace/topic``.
    - ``data``: the operation as streamed, or the message of a topic as a poll shows it, decoded at
      the first access. A transform may change it or set another one.
    - ``id``: of the object in its namespace; of a message of a topic: its key, else its id.
    - ``offset``: in the commit log. ``version``: ascends with it, across folders too; a sink writes
      nothing over a larger one. ``source``: name of the source.

    A transform may set ``op``, ``timestamp``, ``namespace``, ``data`` and ``id``.
    """

    __slots__ = (
        "_data",
        "_raw",
        "id",
        "namespace",
        "offset",
        "op",
        "source",
        "timestamp",
        "version",
    )

    def __init__(
        self,
        op: Op,
        timestamp: int,
        namespace: str,
        raw: bytes | memoryview | msgspec.Raw,
        *,
        id: str,
        offset: int,
        version: int,
        source: str,
    ) -> None:
        self.op: Op = op
        self.timestamp = timestamp
        self.namespace = namespace
        self.id = id
        self.offset = offset
        self.version = version
        self.source = source
        self._raw: bytes | memoryview | msgspec.Raw | None = raw
        self._data: Any = _UNREAD

    @property
    def data(self) -> Any:
        if self._data is _UNREAD:
            assert self._raw is not None
            self._data = msgspec.json.decode(self._raw)
            self._raw = None  # it may be changed in place from now on
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value
        self._raw = None

    def set_json(self, raw: bytes) -> None:
        """Set ``data`` as JSON, and put it on one line. It is decoded at the first access.

        A sink gets its numbers digit by digit: as Python's floats they would be rounded. Raises
        ValueError, and RecursionError if it is nested too deeply.
        """
        msgspec.json.decode(raw, type=msgspec.Raw)  # the syntax, but not the encoding
        raw.decode()
        self._raw, self._data = msgspec.json.format(raw, indent=-1), _UNREAD

    @property
    def size(self) -> int:
        """Bytes of ``data`` as JSON. 0: JSON cannot express it."""
        if self._raw is not None:
            return memoryview(self._raw).nbytes
        try:
            return len(msgspec.json.encode(self._data))
        except (TypeError, ValueError, RecursionError):
            return 0

    def json(self) -> bytes:
        """Return ``data`` as JSON: without decoding it if no transform has read it.

        Raises TypeError or ValueError if a transform has set a value that JSON cannot express.
        """
        return msgspec.json.encode(self._data) if self._raw is None else bytes(self._raw)

    def __repr__(self) -> str:
        return f"Message({self.op} {self.namespace!r} {self.id!r}, offset {self.offset})"


def namespace_filter(pattern: str) -> Callable[[str], object]:
    """Return a function that finds a regular expression in a namespace. Remembers 10,000."""
    matches = lru_cache(10_000)(re.compile(pattern).search)
    return matches


def version_of(created: int, offset: int) -> int:
    """Return the version of an offset in a folder created at this time, ms since 1970.

    Versions ascend with the offset. A later folder has larger ones if the older folder took fewer
    than a million entries per millisecond. At most 2^63 - 1 until the year 2248.
    """
    return created * _VERSIONS_PER_MS + offset
