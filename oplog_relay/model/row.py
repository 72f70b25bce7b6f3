"""A row of the outbox. No I/O."""

from datetime import datetime
from typing import NamedTuple

# Surrogates by the way in which they are shown: surrogates for bytes, and others.
_SHOWN = {
    ord("\\"): r"\\",
    **{code: rf"\u{code:04x}" for code in range(0xD800, 0xE000)},
    **{0xDC00 + byte: rf"\x{byte:02x}" for byte in range(0x80, 0x100)},
}


class Row(NamedTuple):
    """A row of the outbox, as the database returns it.

    ``create_time``: with a time zone. ``topic``: ``oplog``, ``namespace/topic``, or a topic in the
    namespace ``default``. ``value``: None is a message without payload, in the oplog a delete.
    ``headers``: pairs of name and value. ``fault``: why the row can never be sent, such as
    unreadable headers. Empty: not known. ``mark``: number of its mark. Id and mark identify a row.

    Invalid bytes of topic and key are surrogates, as of ``os.fsdecode``: different keys stay
    different. Such a row has a fault. ``shown`` makes them printable.
    """

    id: int
    create_time: datetime
    topic: str
    key: str
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()
    fault: str = ""
    mark: int = 0


def is_text(text: str) -> bool:
    """Return whether a text is valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    r"""Return a topic or key for people. Invalid bytes are shown as ``\xff``.

    A backslash in such a text is doubled, so different strings look different.
    """
    return text if is_text(text) else text.translate(_SHOWN)
