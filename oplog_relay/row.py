"""A row of the outbox. No I/O."""

from datetime import datetime
from typing import NamedTuple


class Row(NamedTuple):
    """A row of the outbox, as the database returns it.

    ``create_time``: with a time zone. ``topic``: ``oplog``, ``namespace/topic``, or a topic in the
    namespace ``default``. ``value``: None is a message without payload; in the oplog it deletes the
    object. ``headers``: pairs of name and value. ``fault``: the reason why the row can never be
    sent, such as headers that cannot be read; empty: none is known. ``mark``: number of the mark
    that has returned the row; with the id it tells the row from others that have had this id.
    """

    id: int
    create_time: datetime
    topic: str
    key: str
    value: str | None
    headers: tuple[tuple[str, str], ...] = ()
    fault: str = ""
    mark: int = 0
