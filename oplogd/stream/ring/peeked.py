"""The messages that a poll found in memory."""

from typing import NamedTuple

from oplogd.model.message_id import MessageId


class Peeked(NamedTuple):
    """``held_by``: the pointer at which the reader must wait, None if no hold ended the answer."""

    messages: list[tuple[MessageId, str]]
    held_by: int | None = None
