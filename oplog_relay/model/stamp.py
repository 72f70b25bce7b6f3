"""The values of the column ``leader_id``. No I/O.

Each mark writes a stamp of its own: the leader id, whose last 12 digits are the number of the mark.
So a row with the id of an older one is not taken for it: its stamp differs.
"""

from uuid import UUID

from oplog_relay.model.errors import OutboxError

_DIGITS = 12
_LARGEST = (1 << 4 * _DIGITS) - 1
# Characters of a stamp for the leader.
PART = 36 - _DIGITS


def stamp(leader_id: UUID, mark: int) -> UUID:
    """Return the stamp of a mark. ``mark``: its number, from 0 to 2 ** 48 - 1.

    Raises OutboxError for another one: it would give the stamp of another leader. A new term
    numbers its marks from 1 again.
    """
    if not 0 <= mark <= _LARGEST:
        raise OutboxError(f"mark: {mark} is not from 0 to {_LARGEST}")
    return UUID(int=leader_id.int & ~_LARGEST | mark)


def stamps(leader_id: UUID) -> tuple[UUID, UUID]:
    """Return the smallest and the largest stamp of a leader."""
    return stamp(leader_id, 0), stamp(leader_id, _LARGEST)


def leader_part(text: str) -> str:
    """Return the beginning of a stamp or leader id, which all stamps of a leader share."""
    return text[:PART]
