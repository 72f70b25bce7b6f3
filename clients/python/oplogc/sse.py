"""Blocks of an agent's event stream from bytes. No I/O.

Lines end in a bare ``\n``, a blank line ends a block, a line that begins with ``:`` is a comment. What the agent never
sends (``\r``, a byte order mark) has no meaning here.
"""

from typing import NamedTuple

from oplogc.errors import ProtocolError

MAX_BLOCK_BYTES = 1024 * 1024
"""An operation has at most 64 KiB as it is sent; escaping and ``ref`` make it a few times larger, never this large."""


class Block(NamedTuple):
    """The fields of a block; a field that was not sent is empty."""

    id: str = ""
    event: str = ""
    data: str = ""


class BlockParser:
    """Give ``feed`` the bytes as they come, in pieces of any size. A block cut off by the stream's end is not returned."""

    def __init__(self) -> None:
        self.comments = 0
        self._partial = b""
        self._fields: dict[str, str] = {}
        self._size = 0

    def feed(self, chunk: bytes) -> list[Block]:
        """The blocks that ``chunk`` completes. Raises ProtocolError."""
        lines = (self._partial + chunk).split(b"\n")
        self._partial = lines.pop()
        blocks = []
        for line in lines:
            if not line:
                if self._fields:
                    blocks.append(Block(**self._fields))
                    self._fields = {}
                self._size = 0
            elif line.startswith(b":"):
                self.comments += 1
            else:
                self._field(line)
        if self._size + len(self._partial) > MAX_BLOCK_BYTES:
            raise ProtocolError(f"a block of the stream has more than {MAX_BLOCK_BYTES:,} bytes")
        return blocks

    def _field(self, line: bytes) -> None:
        self._size += len(line)
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a line of the stream is not UTF-8: {error}") from None
        value = value.removeprefix(" ")
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        if name in Block._fields:
            self._fields[name] = value
