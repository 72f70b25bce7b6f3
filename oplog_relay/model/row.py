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
    namespace ``default``. ``value``: None is a message without payload; in the oplog it deletes the
    object. ``headers``: pairs of name and value. ``fault``: the reason why the row can never be
    sent, such as unreadable headers; empty: none is known. ``mark``: number of the mark
    of this row; together with the id it identifies the row.

    Invalid bytes of topic and key are surrogates, as ``os.fsdecode`` makes them, so that
    different keys stay different. Such a row has a fault. ``shown`` makes them printable.
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
