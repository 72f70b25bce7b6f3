"""Remembers the last invalid datagrams, so that their sender can be found. No I/O."""

from collections import deque
from typing import Any, NamedTuple

from oplog_kit.listen import Address
from oplogd.model.operation import format_ms

_REMEMBERED = 20
_SHOWN_BYTES = 200
_MAPPED = "::ffff:"


class _Datagram(NamedTuple):
    ms: int
    sender: tuple[Any, ...]
    reason: str
    data: bytes


class RefusedDatagrams:
    """The last invalid datagrams. ``count``: their number since the start."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[_Datagram] = deque(maxlen=_REMEMBERED)

    def add(self, ms: int, sender: tuple[Any, ...], reason: str, raw: bytes) -> None:
        """Remember a datagram. ``sender``: an address as a socket returns it."""
        self.count += 1
        self._last.append(_Datagram(ms, sender, reason, raw[:_SHOWN_BYTES]))

    def described(self) -> list[dict[str, str]]:
        """Return the datagrams for /status, the newest first."""
        return [
            {
                "time": format_ms(each.ms),
                "sender": shown_address(each.sender),
                "reason": each.reason,
                "data": _printable(each.data),
            }
            for each in reversed(self._last)
        ]


def shown_address(address: tuple[Any, ...]) -> str:
    """Format a socket's address as HOST:PORT, IPv4 addresses mapped to IPv6 as IPv4."""
    return str(Address(host_of(address), int(address[1])))


def host_of(address: tuple[Any, ...]) -> str:
    """Return the host of a socket's address, IPv4 addresses mapped to IPv6 as IPv4."""
    return str(address[0]).removeprefix(_MAPPED)


def _printable(raw: bytes) -> str:
    """Decode, and escape characters that are invisible or change the text's direction."""
    text = raw.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
