"""The bytes of an entry. No I/O.

All numbers are big-endian: offset 8, length 4, timestamp 8, mode 1, key length 4, key, data
length 4, data, CRC32 4. The length counts the bytes behind its own field. The CRC32 covers
everything before it, from the offset on.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import NamedTuple
from zlib import crc32


class Mode(IntEnum):
    """``COPY``: in a copy of all objects. ``COMPLETE``: at its end. ``SYNC``: all other entries."""

    COPY = 0
    SYNC = 1
    COMPLETE = 2


class NewEntry(NamedTuple):
    """``timestamp``: ms since 1970, signed 64 bits."""

    timestamp: int
    mode: Mode
    key: str
    data: bytes


class LogEntry(NamedTuple):
    offset: int
    timestamp: int
    mode: Mode
    key: str
    data: bytes


class Decoded(NamedTuple):
    """``at``: place in the buffer behind the last entry. ``expected``: the offset behind it.

    ``valid``: False if the bytes at ``at`` are no entry. ``missing``: size of an entry cut by the
    end of the buffer; else 0.
    """

    entries: list[LogEntry]
    at: int
    expected: int
    valid: bool
    missing: int


_HEAD = Struct(">QIqBI")
_NUMBER = Struct(">I")
_BEFORE_LENGTH_ENDS = 12
_FIXED = 21  # bytes the length counts besides key and data
_MODES = tuple(Mode)


def encode(offset: int, entry: NewEntry) -> bytes:
    """Return the bytes of an entry. Raises struct.error if a number or a size is too large."""
    timestamp, mode, key, data = entry
    name = key.encode()
    head = _HEAD.pack(offset, _FIXED + len(name) + len(data), timestamp, mode, len(name))
    body = b"".join((head, name, _NUMBER.pack(len(data)), data))
    return body + _NUMBER.pack(crc32(body))


def encode_all(first: int, entries: Sequence[NewEntry]) -> list[bytes]:
    return [encode(offset, entry) for offset, entry in enumerate(entries, first)]


def size_of(entries: Sequence[NewEntry]) -> int:
    """Return the size of entries in a segment, in bytes."""
    fixed = _BEFORE_LENGTH_ENDS + _FIXED
    return sum([fixed + len(each.key.encode()) + len(each.data) for each in entries])


def decode(
    buffer: bytes,
    expected: int,
    *,
    compacted: int = -1,
    start: int = 0,
    max_entries: int | None = None,
) -> Decoded:
    """Read entries from the beginning of a buffer, up to its end or the first invalid one.

    - ``expected``: offset of the first entry. Up to ``compacted``, entries may be missing.
    - ``start``: entries with smaller offsets are checked, and left out.
    """
    entries: list[LogEntry] = []
    add = entries.append
    view = memoryview(buffer)
    size = len(buffer)
    at = 0
    keys: dict[bytes, str] = {}
    room = -1 if max_entries is None else max_entries
    while room and at + _HEAD.size <= size:
        offset, length, timestamp, mode, key_length = _HEAD.unpack_from(buffer, at)
        end = at + _BEFORE_LENGTH_ENDS + length
        data_at = at + _HEAD.size + key_length + _NUMBER.size
        is_misplaced = offset != expected and not expected < offset <= compacted + 1
        if is_misplaced or data_at + _NUMBER.size > end or mode > 2:
            return Decoded(entries, at, expected, False, 0)
        if end > size:
            return Decoded(entries, at, expected, True, end - at)
        data_end = end - _NUMBER.size
        (checksum,) = _NUMBER.unpack_from(buffer, data_end)
        if crc32(view[at:data_end]) != checksum:
            return Decoded(entries, at, expected, False, 0)
        if offset >= start:
            name = buffer[at + _HEAD.size : data_at - _NUMBER.size]
            if (key := keys.get(name)) is None:
                key = keys[name] = name.decode()
            add(LogEntry(offset, timestamp, _MODES[mode], key, buffer[data_at:data_end]))
            room -= 1
        at = end
        expected = offset + 1
    missing = _HEAD.size if room and at < size else 0
    return Decoded(entries, at, expected, True, missing)


def holds_entry(buffer: bytes, least: int) -> bool:
    """Return whether a valid entry begins anywhere, from offset ``least`` on.

    Only offsets with the same upper 48 bits count.
    """
    prefix = (least >> 16).to_bytes(6)
    at = buffer.find(prefix)
    while 0 <= at <= len(buffer) - _HEAD.size:
        offset, length = _HEAD.unpack_from(buffer, at)[:2]
        if offset >= least and length >= _FIXED:
            candidate = buffer[at : at + _BEFORE_LENGTH_ENDS + length]
            if decode(candidate, offset, max_entries=1).entries:
                return True
        at = buffer.find(prefix, at + 1)
    return False
