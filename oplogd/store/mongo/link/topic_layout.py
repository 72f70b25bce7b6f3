"""The documents of the two collections of topics. No I/O.

``oplog_topics`` holds

- the catalogue ``{_id: "#", version, default_ttl, logs, ended_stamp, repaired}``. ``logs``: the
  largest log ever used. ``ended_stamp``: the largest stamp in the logs of deleted topics.
  ``repaired``: ``[[first, last], …]``, see ``TopicBounds``.
- per log a reservation of its number ``{_id: "#<6 hex digits>", name, generation, ended, swept}``.
  ``ended``: time of the deletion in ms, missing while the topic exists. ``swept``: time in ms of
  the removal of its entries.
- per name of a deleted topic whose stamps were ahead ``{_id: "!namespace/topic", stamp}``: past all
  of them.
- per topic ``{_id: "namespace/topic", log, generation, ttl, floor, floor_stamp, expired,
  created}``. ``log``: the number of its log. ``generation``: see ``numbers``; missing for the
  first. Entries up to the offset ``floor`` are gone. Those up to ``expired`` had expired before the
  time to live grew, so they stay expired. It is an offset, not a time: a message appended after the
  clock was set back is past it.

``left``: the sweep has left entries at or below the floor. ``pointers: "off"``: nothing is
published or stored under pointers. ``pointer_timeout``: of pointers in seconds. Both are missing
for the default. ``purged``: see ``TopicBounds``; missing if it is 0.

``oplog_entries`` holds the entries ``{_id: place, ts, q, kind, data, expires, w, s, x, d, t}``. The
place is 6 hex digits of the log and 10 of the offset, so the index on ``_id`` keeps offsets unique.
``ts`` and ``q``: time in ms and sequence. ``kind``: an ``EntryKind``, or ``end`` at the end of the
log of a deleted topic. ``w`` and ``s``: token of the writer and its number of the entry. Only
entries of transactions and pointers have ``x``, their identity: 16 hex digits of the transaction or
pointer, 6 of the log and 10 of the lsn, or of a number past all of them. ``d``: the digest of a
record. ``t``: time of writing in ms, only where the stamp is ahead of it. One more document, the
seal, shows by its presence and by its ``ts`` that neither collection was dropped.

Under a pointer, the number of a DIRECT entry is its own offset. The number of a PUBLISH entry is
PUBLISH_BASE plus the number of its last message. The COMMIT or ABORT entry has END_NUMBER, and in
``d`` the ``Decision``. A voided entry keeps its identity. The VOID entry of a rollback has a token
in place of the number, which sorts past all numbers. So does a LATE entry: see ``late_identity``.
"""

from collections.abc import Iterable
from typing import Any

from oplogd.clock.ages import Present
from oplogd.errors import StoreUnavailableError
from oplogd.model.event_id import Mark
from oplogd.model.message_id import stamp, unstamp
from oplogd.model.names import TopicName
from oplogd.model.pointer import PointerRules
from oplogd.store import numbers
from oplogd.store.mongo.link.damage import whole
from oplogd.store.numbers import generation_of
from oplogd.store.numbers import number_of as number_of_log
from oplogd.store.topics import (
    MAX_OFFSET,
    EntryKind,
    Topic,
    TopicEntry,
    TopicRecord,
    dated_entry,
    voided,
)

Document = dict[str, Any]

TOPICS = "oplog_topics"
ENTRIES = "oplog_entries"

CATALOGUE = "#"

# Names of topics sort after this, all other ids before it.
NAMES_FROM = "$"

RESERVATIONS: Document = {"_id": {"$gt": CATALOGUE, "$lt": NAMES_FROM}}

# The place before the first entry of log 0, which has no entries here.
SEAL = "0" * 16

END = "end"

# The index on ``x``.
IDENTITY_INDEX = "x"

# Numbers in place of the lsn in the identity of the first, or last, entry of a transaction in a
# log. They are past every lsn.
BEGIN_NUMBER = (1 << 40) - 2
END_NUMBER = (1 << 40) - 1

# The number of a stored message is added to this in the identity of the PUBLISH entry. Offsets of
# DIRECT entries are below.
PUBLISH_BASE = 1 << 39

# Characters of an identity with a number.
_IDENTITY_LENGTH = 32

_WITH_POINTER = (EntryKind.DIRECT, EntryKind.PUBLISH)

_KINDS = {str(each): each for each in EntryKind}

# The members that tell the end of a log.
MARK_FIELDS = {"ts": 1, "q": 1, "kind": 1, "t": 1}


def place(log: int, offset: int) -> str:
    return f"{number_of_log(log):06x}{offset:010x}"


def number_and_offset(key: str) -> tuple[int, int]:
    return int(key[:6], 16), int(key[6:], 16)


def places_of(log: int, after: int = 0, upto: int = MAX_OFFSET) -> Document:
    """Return the range of places past ``after`` up to ``upto``, for a filter of ``_id``."""
    return {"$gt": place(log, after), "$lte": place(log, upto)}


def identity(txn: int, log: int, number: int) -> str:
    """Return the identity of an entry of a transaction. ``number``: its lsn, or see above."""
    return f"{txn:016x}{number_of_log(log):06x}{number:010x}"


def late_identity(pointer: int, log: int, offset: int, write_stamp: int) -> str:
    """Return the identity of a LATE entry.

    ``offset``: of the message's first entry. ``write_stamp``: of a stored message, else 0.
    """
    return f"{pointer:016x}{number_of_log(log):06x}y{offset:010x}{write_stamp:016x}"


def number_of(key: str) -> int:
    """Return the last part of an identity."""
    return int(key[22:], 16)


def is_number(key: str) -> bool:
    """Return whether the last part of an identity is a number."""
    return len(key) == _IDENTITY_LENGTH


def is_publish(key: str | None) -> bool:
    """Return whether this is the identity of a PUBLISH entry, which may be voided."""
    return key is not None and is_number(key) and PUBLISH_BASE < number_of(key) < BEGIN_NUMBER


def owner_of(key: str) -> int:
    """Return the transaction, or the pointer, of an identity."""
    return int(key[:16], 16)


def ended_ahead(name: str) -> str:
    return f"!{name}"


def reservation(log: int) -> str:
    return f"#{number_of_log(log):06x}"


def reserved(log: int) -> Document:
    """Return the filter of the reservation of a log."""
    return {"_id": reservation(log), "generation": generation_of(log) or None}


def numbered(log: int) -> Document:
    """Return the members that tell a log, for a filter of topics."""
    return {"log": number_of_log(log), "generation": generation_of(log) or None}


def log_of(document: Document) -> int:
    """Return the log of a topic. Raises StoreUnavailableError if the document is damaged."""
    return numbers.log_of(number(document, "log"), int(document.get("generation") or 0))


def log_reserved(document: Document) -> int:
    """Return the log of a reservation."""
    return numbers.log_of(int(document["_id"][1:], 16), int(document.get("generation") or 0))


def mark_of(document: Document) -> Mark:
    """Return the mark of an entry. Raises StoreUnavailableError if the entry is damaged."""
    _, offset = number_and_offset(document["_id"])
    return Mark(offset, number(document, "ts"), number(document, "q"))


def stamp_of(mark: Mark) -> int:
    return stamp(mark.ms, mark.sequence)


def following(head: Mark, now_ms: int) -> Mark:
    """Return the mark of the next entry of a log."""
    return Mark(head.offset + 1, *unstamp(max(stamp(now_ms, 0), stamp_of(head) + 1)))


def entry(document: Document, present: Present) -> TopicEntry:
    mark = mark_of(document)
    kind, data, pointer = _KINDS.get(document.get("kind", "")), "", None
    if kind is not None:
        data = document["data"]
        pointer = owner_of(document["x"]) if kind in _WITH_POINTER else None
    kind, expires = kind or EntryKind.VOID, document.get("expires", 0)
    found = TopicEntry(mark.offset, mark.ms, kind, data, mark.sequence, expires, pointer)
    if present.ages.lags or "t" in document:
        found = dated_entry(found, document.get("t", 0), present)
    return voided(found) if 0 < found.expires_ms < present.ms else found


def record(document: Document, lsn: int, commit_ms: int, now_ms: int) -> TopicRecord:
    """Return a record of a transaction committed at a time."""
    expires = document.get("expires", 0)
    if expires:
        expires += commit_ms - number(document, "ts")
    return TopicRecord(lsn, "" if 0 < expires < now_ms else document["data"], expires)


def topic_of(document: Document) -> Topic:
    return Topic(
        log_of(document),
        name_of(document["_id"]),
        document.get("ttl"),
        rules_of(document),
        whole(document.get("max_bytes")),
    )


def rules_of(document: Document) -> PointerRules:
    """Return the rules of a topic for messages under pointers."""
    return PointerRules(document.get("pointers") != "off", whole(document.get("pointer_timeout")))


def rules_members(rules: PointerRules) -> Document:
    """Return the members of a topic's document holding these rules."""
    given: Document = {} if rules.is_on else {"pointers": "off"}
    return given if rules.timeout is None else {**given, "pointer_timeout": rules.timeout}


def name_of(key: str) -> TopicName:
    namespace, _, topic = key.partition("/")
    return TopicName(namespace, topic)


def floor_of(document: Document) -> Mark:
    """Return the mark of the floor of a topic's log."""
    return Mark(number(document, "floor"), *unstamp(number(document, "floor_stamp")))


def number(document: Document, member: str) -> int:
    """Return a member. Raises StoreUnavailableError unless it is a whole number."""
    found = whole(document.get(member))
    if found is None:
        raise StoreUnavailableError(
            f"the document {document.get('_id')} of a topic is damaged: its member {member} is"
            " missing or no whole number"
        )
    return found


def parts(keys: Iterable[str], size: int = 500) -> Iterable[list[str]]:
    """Divide keys into lists that one look-up takes."""
    given = list(keys)
    return (given[start : start + size] for start in range(0, len(given), size))
