"""The content of an entry of the pipe's commit log. No I/O.

An entry has the timestamp of the message, its key the namespace. ``reset`` and ``live`` have the
key of their source, which no namespace can be: a type has no slash, a topic's name only one.
"""

from typing import Literal

import msgspec

from oplog_pipe.message import Message, version_of

RecordOp = Literal["insert", "update", "delete", "reset", "live"]


class EntryRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``position``: from which the source resumes behind this entry.

    ``copy``: offset of the ``reset`` entry of the copy that this entry belongs to, or
    ends. None: of no copy. ``data``: empty for ``reset`` and ``live``.
    """

    source: str
    position: str
    op: RecordOp
    id: str = ""
    copy: int | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")


class CopyBegins(msgspec.Struct, frozen=True):
    """An entry ``reset``."""

    source: str
    generation: int


class CopyEnds(msgspec.Struct, frozen=True):
    """An entry ``live`` at the end of a copy."""

    source: str
    generation: int


_CONTROL = "source//"

encode_record = msgspec.json.Encoder().encode
decode_record = msgspec.json.Decoder(EntryRecord).decode


def control_key(source: str) -> str:
    """Return the key of the entries ``reset`` and ``live`` of a source."""
    return f"{_CONTROL}{source}"


def is_control_key(key: str) -> bool:
    """Return whether an entry with this key is ``reset`` or ``live``."""
    return key.startswith(_CONTROL)


def content(
    offset: int, timestamp: int, key: str, record: EntryRecord, created: int
) -> Message | CopyBegins | CopyEnds | None:
    """Return an entry's content for a sink. None: a ``live`` without a copy.

    ``created``: time of creation of the folder, in ms since 1970.
    """
    match record.op:
        case "reset":
            return CopyBegins(record.source, version_of(created, offset))
        case "live":
            if record.copy is None:
                return None
            return CopyEnds(record.source, version_of(created, record.copy))
        case op:
            return Message(
                op,
                timestamp,
                key,
                record.data,
                id=record.id,
                offset=offset,
                version=version_of(created, offset),
                source=record.source,
            )
