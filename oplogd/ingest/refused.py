"""The last invalid datagrams, for whoever looks for their sender. No I/O."""

from collections import deque
from typing import Any, NamedTuple

from oplogd.operation import format_ms
from oplogd.values import Address

_REMEMBERED = 20
_SHOWN_BYTES = 200
_MAPPED = "::ffff:"


class _Datagram(NamedTuple):
    ms: int
    sender: tuple[Any, ...]
    reason: str
    data: bytes


class RefusedDatagrams:
    """``count``: all since the start. The last ones are remembered with their first bytes."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[_Datagram] = deque(maxlen=_REMEMBERED)

    def add(self, ms: int, sender: tuple[Any, ...], reason: str, raw: bytes) -> None:
        """``ms``: time of arrival, since 1970. ``sender``: an address as a socket returns it."""
        self.count += 1
        self._last.append(_Datagram(ms, sender, reason, raw[:_SHOWN_BYTES]))

    def described(self) -> list[dict[str, str]]:
        """Members for /status, the newest first."""
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
    """HOST:PORT of an address as a socket returns it. One of IPv4 is written as such, also if the socket takes both."""
    return str(Address(str(address[0]).removeprefix(_MAPPED), int(address[1])))


def _printable(raw: bytes) -> str:
    """The text with everything escaped that would not show, or would turn the text around."""
    text = raw.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
