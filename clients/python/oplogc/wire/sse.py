"""Blocks of an event stream from bytes, as the standard of server-sent events reads them.

No I/O.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from oplogc.wire.errors import ProtocolError

MAX_BLOCK_BYTES = 1024 * 1024
"""An operation has at most 64 KiB when it is sent.

Escaping and ``ref`` enlarge it a few times, but not this much.
"""

_BOM = b"\xef\xbb\xbf"
# A whole block as agents write it. Other blocks are read line by line, in twice the time.
_PLAIN = re.compile(rb"id: ([^\n]*)\nevent: ([^\n]*)\ndata: ([^\n]*)\n\n")


class Block(NamedTuple):
    """The fields of a block. ``event`` and ``data`` are empty if the block has none."""

    id: str = ""
    """The last id received, in this block or in an earlier one."""
    event: str = ""
    data: str = ""
    has_id: bool = True


class BlockParser:
    """Give ``feed`` the bytes as they come, in pieces of any size. A block cut off by the stream's
    end is not returned.

    ``last_id`` is the id of the blocks before the first id.
    """

    def __init__(self, last_id: str = "", max_block_bytes: int = MAX_BLOCK_BYTES) -> None:
        self._max_block_bytes = max_block_bytes
        self.comments = 0
        self._last_id = last_id
        self._partial = bytearray()
        self._at_start = True
        self._after_cr = False
        self._fields: dict[str, str] = {}
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Block]:
        """Yield the blocks completed by ``chunk``.

        Take them all. Raises ProtocolError, after the blocks before the error.
        """
        self._partial += self._with_bare_newlines(chunk)
        if self._at_start:
            if len(self._partial) < len(_BOM) and _BOM.startswith(self._partial):
                return
            self._at_start = False
            if self._partial.startswith(_BOM):
                del self._partial[: len(_BOM)]
        if b"\n" in chunk or b"\r" in chunk:
            yield from self._begun_block()
            if not self._size:
                yield from self._plain_blocks()
            *lines, self._partial = self._partial.split(b"\n")
            for line in lines:
                if line:
                    self._line(line)
                elif block := self._end():
                    yield block
        self._check_size(len(self._partial))

    def _with_bare_newlines(self, chunk: bytes) -> bytes:
        """Replace the other two ends of a line, ``\\r\\n`` and ``\\r``.

        A final ``\\r`` counts at once. Its ``\\n`` may follow.
        """
        if not chunk:
            return chunk
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk

    def _begun_block(self) -> Iterator[Block]:
        """Take the rest of a block whose first lines came earlier, as far as it is there."""
        at = 0
        while self._size and (end := self._partial.find(b"\n", at)) >= 0:
            line, at = self._partial[at:end], end + 1
            if line:
                self._line(line)
            elif block := self._end():
                yield block
        del self._partial[:at]

    def _plain_blocks(self) -> Iterator[Block]:
        """Take plain blocks from the beginning of the bytes, as long as there are any."""
        at = 0
        match = _PLAIN.match
        try:
            while found := match(self._partial, at):
                if found.end() - at > self._max_block_bytes:
                    return
                id, event, data = found.groups()
                try:
                    block = Block(id.decode(), event.decode(), data.decode())
                except UnicodeDecodeError:
                    return
                at = found.end()
                self._last_id = block.id
                yield block
        finally:
            del self._partial[:at]

    def _line(self, line: bytearray) -> None:
        if line.startswith(b":"):
            self.comments += 1
            return
        self._size += len(line)
        self._check_size()
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a line of the stream is not UTF-8: {error}") from None
        value = value.removeprefix(" ")
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        if name in ("id", "event", "data"):
            self._fields[name] = value

    def _end(self) -> Block | None:
        fields, self._fields, self._size = self._fields, {}, 0
        if not fields:
            return None
        has_id = "id" in fields
        self._last_id = fields.get("id", self._last_id)
        return Block(self._last_id, fields.get("event", ""), fields.get("data", ""), has_id)

    def _check_size(self, partial: int = 0) -> None:
        if self._size + partial > self._max_block_bytes:
            raise ProtocolError(
                f"a block of the stream has more than {self._max_block_bytes:,} bytes"
            )
