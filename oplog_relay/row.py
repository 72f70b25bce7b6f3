"""A row of the outbox. No I/O."""

from datetime import datetime
from typing import NamedTuple


class Row(NamedTuple):
    """A row of the outbox, as the database returns it.

    ``create_time``: with a time zone. ``topic``: ``oplog``, ``namespace/topic``, or a topic in the
    namespace ``default``. ``value``: None is a message without payload; in the oplog it deletes the
    object. ``headers``: pairs of name and value. ``fault``: the reason why the row can never be
    sent, such as headers that cannot be read; empty: none is known.
    """

    id: int
    create_time: datetime
    topic: str
    key: str
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()
    fault: str = ""
