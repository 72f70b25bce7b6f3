"""The bodies of reports, and pointers and entries as clients see them. No I/O."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, about, read
from oplogd.errors import MessageError
from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import stamp
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.operation import format_ms
from oplogd.model.pointer import Decision, decode_voided
from oplogd.model.transaction import FIRST_ID, decode_marker
from oplogd.store.pointers import OpenPointer, TimedOutPointer
from oplogd.store.topics import MAX_OFFSET, TopicEntry
from oplogd.topics.transactions.rules import TOPIC_RULES, topic_name

# Of one report.
MAX_TOPICS = 1000

NOT_FOR_OPLOG = f"{OPLOG} takes operations in transactions of /v1/txns, not under pointers"

_OPEN = "open"
_MARKERS = (EntryKind.PUBLISH, EntryKind.COMMIT, EntryKind.ABORT, EntryKind.BEGIN)


class ReportBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a report."""

    topics: Annotated[
        list[msgspec.Raw],
        about("Each is NAMESPACE/TOPIC.", ["shop/orders"], min_length=1, max_length=MAX_TOPICS),
    ]


_RULES = Rules({"topics": f"must be a list of 1 to {MAX_TOPICS:,} topics"}, required=("topics",))
_decode_topic: Callable[[Text], str | None] = msgspec.json.Decoder(str | None).decode
_decode_report: Callable[[Text], ReportBody] = msgspec.json.Decoder(ReportBody).decode


def parse_report(raw: Buffer) -> list[TopicName]:
    """Return the topics of a report, each once, in their order. Raises MessageError."""
    given = read(_decode_report, raw.strip() or b"{}", "body", _RULES).topics
    return list(dict.fromkeys(_topic(each, f"topics[{k}]") for k, each in enumerate(given)))


def parse_after(given: str | None) -> int | None:
    """Return the offset after which to show entries, None for the newest. Raises MessageError."""
    if given is None:
        return None
    if given.isascii() and given.isdecimal() and len(given) <= 13 and int(given) <= MAX_OFFSET:
        return int(given)
    raise MessageError("after", f"must be an offset: a whole number from 0 to {MAX_OFFSET}")


def parse_force(given: str) -> bool:
    """Return whether a rollback is forced. Raises MessageError."""
    if given in ("true", "false"):
        return given == "true"
    raise MessageError("force", "must be true or false")


def parse_state(given: str) -> bool:
    """Return whether timed out pointers are wanted, not open ones. Raises MessageError."""
    if given in ("open", "timed-out"):
        return given == "timed-out"
    raise MessageError("state", "must be open or timed-out")


def timed_out_shown(pointer: TimedOutPointer) -> dict[str, Any]:
    """Return the members of a timed out pointer for an answer."""
    return {
        "pointer": str(pointer.pointer),
        "begun_at": format_ms(pointer.begun_ms),
        "timed_out_at": format_ms(pointer.ended_ms),
        "state": Decision.TIMED_OUT,
    }


def pointer_shown(pointer: OpenPointer, *, is_of_all: bool = False) -> dict[str, Any]:
    """Return the members of an open pointer for an answer. ``is_of_all``: to a list of all."""
    return {
        "pointer": str(pointer.pointer),
        **({"state": _OPEN, "holds": pointer.has_entries} if is_of_all else {}),
        "begun_at": format_ms(pointer.begun_ms),
        "expires_at": format_ms(pointer.expires_ms),
        "published": pointer.has_entries,
    }


class EntryShown(NamedTuple):
    """An entry for people, without its data. ``size``: of the data in bytes.

    ``id_``: its pointer, or the id of its transaction, or None. ``records``: number
    of the messages or records made visible by it. ``voided``: number of entries voided before it
    by a rollback.
    """

    entry: TopicEntry
    size: int
    id_: int | None
    records: int | None = None
    voided: int | None = None

    @property
    def pointer(self) -> int | None:
        return self.id_ if self.id_ is not None and self.id_ < FIRST_ID else None

    def members(self, decisions: dict[int, Decision]) -> dict[str, Any]:
        """Return the members for an answer. ``decisions``: see ``TopicLog.decisions``."""
        entry, pointer = self.entry, self.pointer
        members: dict[str, Any] = {
            "offset": entry.offset,
            "id": f"{stamp(entry.ms, entry.sequence):020x}",
            "time": format_ms(entry.ms),
            "kind": entry.event,
        }
        if self.id_ is not None:
            members["txn" if pointer is None else "pointer"] = str(self.id_)
        if pointer is not None:
            members["state"] = decisions.get(pointer, _OPEN)
        if self.records is not None:
            members["records"] = self.records
        if self.voided is not None:
            members["voided"] = self.voided
        return members | {"bytes": self.size}


def entry_shown(entry: TopicEntry) -> EntryShown:
    kind, size = entry.event, len(entry.data.encode())
    bare = entry._replace(data="")
    if kind in _MARKERS:
        marker = decode_marker(entry.data)
        id_ = int(marker.txn)
        is_visible = kind == EntryKind.PUBLISH or (kind == EntryKind.COMMIT and id_ >= FIRST_ID)
        return EntryShown(bare, size, id_, marker.records if is_visible else None)
    if kind == EntryKind.VOID and (rollback := decode_voided(entry.data)) is not None:
        voided = sum(count for _, count in rollback.runs)
        return EntryShown(bare, size, int(rollback.txn), voided=voided)
    return EntryShown(bare, size, entry.pointer)


def _topic(given: msgspec.Raw, field: str) -> TopicName:
    try:
        name = topic_name(read(_decode_topic, given, field, TOPIC_RULES))
    except MessageError as error:
        raise MessageError(field, error.reason) from None
    if name == OPLOG:
        raise MessageError(field, NOT_FOR_OPLOG)
    return name
