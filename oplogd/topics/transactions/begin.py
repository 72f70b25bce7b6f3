"""The body of a begin, or of a whole transaction. No I/O."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.pieces import Pieces
from oplogd.decode.typed import Members, Rules, Value, about, example, read
from oplogd.decode.walk import Extents, begins
from oplogd.errors import MessageError
from oplogd.model.lease import Fence
from oplogd.model.names import TopicName
from oplogd.model.once import MAX_NUMBER, OnceNumber, once_key
from oplogd.model.operation import OnUnknown
from oplogd.model.transaction import DEFAULT_GROUP, DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from oplogd.topics.transactions.rules import (
    GROUP_RULE,
    OTHER_TOPIC,
    TOPIC_RULE,
    Writing,
    checking_records,
    group_name,
    too_many,
    topic_name,
)

# No body without records is longer.
MAX_BYTES = 16 * 1024


class Begin(NamedTuple):
    """A begin as it was sent. Either ``group`` or ``topic`` is None. ``fence``: of the header.

    ``writing``: all records of a whole transaction, None for one that stays open. ``owner``: the
    sender as the agent knows it, never of the body.
    """

    group: str | None
    topic: TopicName | None
    timeout_ms: int
    once: OnceNumber | None = None
    fence: Fence | None = None
    writing: Writing | None = None
    owner: str | None = None


class OnceBody(msgspec.Struct, forbid_unknown_fields=True):
    """A number of a key. Transactions commit each number once, and in ascending order."""

    key: Annotated[str, about("1 to 249 of `[A-Za-z0-9._-]`.", "import-7")]
    number: Annotated[int, example(17, ge=0, le=MAX_NUMBER)]


class BeginBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a begin."""

    group: Annotated[str | None, about(f"Default: {DEFAULT_GROUP}.")] = None
    topic: Annotated[str | None, about("NAMESPACE/TOPIC.")] = None
    timeout_ms: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMEOUT_MS)] | None,
        about(f"Default: {DEFAULT_TIMEOUT_MS}.", 60_000),
    ] = None
    once: Annotated[
        OnceBody | None,
        about("Commit only if no transaction with this number, or a larger one, has committed."),
    ] = None


_TIMEOUT = f"must be a whole number from 1 to {MAX_TIMEOUT_MS:,}"

_BEGIN_RULES = Rules(
    {
        "group": GROUP_RULE,
        "topic": TOPIC_RULE,
        "timeout_ms": _TIMEOUT,
        "once": 'must be an object such as {"key": "import-7", "number": 17}',
        "once.key": "must be a string",
        "once.number": f"must be a whole number from 0 to {MAX_NUMBER:,}",
    }
)

_MEMBERS = Members("group", "topic", "timeout_ms", "once", "records")
_decode_begin: Callable[[Text], BeginBody] = msgspec.json.Decoder(BeginBody).decode


def parsing_begin(
    raw: Buffer,
    arrival: str,
    most: int,
    on_unknown: OnUnknown = None,
    *,
    is_brief: bool = False,
) -> Pieces[Begin]:
    """Read the body of a begin, maybe with all records. See ``checking_records``.

    Raises MessageError, TooLargeError for a long body without records, and the errors of records.
    """
    too_large = TooLargeError(f"a body without records has at most {MAX_BYTES:,} bytes")
    is_short = len(raw) <= MAX_BYTES
    if not is_short and not begins(raw, b"{"):
        raise too_large
    found = yield from _MEMBERS.reading(
        raw.strip() or b"{}" if is_short else raw, most, lambda _: too_many(most)
    )
    given = found.pop("records", None)
    if given is None and not is_short:
        raise too_large
    begin = _begin(found)
    if given is None:
        return begin
    writing = yield from checking_records(
        given, arrival, most, on_unknown, are_numbered=True, is_brief=is_brief
    )
    lsns = {record.lsn for record in writing.records}
    if max(lsns) >= len(lsns):
        missing = next(lsn for lsn in range(len(lsns)) if lsn not in lsns)
        raise MessageError(
            "records", f"lack lsn {missing}; {len(lsns):,} have 0 to {len(lsns) - 1:,}"
        )
    if begin.topic is not None and any(name != begin.topic for name in writing.topics):
        index = next(i for i, each in enumerate(writing.records) if each.topic != begin.topic)
        raise MessageError(f"records[{index}].topic", OTHER_TOPIC)
    return begin._replace(writing=writing)


def _begin(found: dict[str, Value]) -> Begin:
    """Return the begin of these members."""
    if found:
        text = ",".join(f'"{name}":{_text(name, value)}' for name, value in found.items())
        given = read(_decode_begin, f"{{{text}}}".encode(), "body", _BEGIN_RULES)
    else:
        given = BeginBody()
    if given.group is not None and given.topic is not None:
        raise MessageError("topic", "cannot be given together with group")
    timeout = DEFAULT_TIMEOUT_MS if given.timeout_ms is None else given.timeout_ms
    once = None
    if given.once is not None:
        once = OnceNumber(once_key(given.once.key, "once.key"), given.once.number)
    if given.topic is not None:
        return Begin(None, topic_name(given.topic), timeout, once)
    group = group_name(DEFAULT_GROUP if given.group is None else given.group)
    return Begin(group, None, timeout, once)


def _text(name: str, value: Value) -> str:
    if isinstance(value, Extents) or len(value) > MAX_BYTES:
        raise MessageError(name, _BEGIN_RULES.members[name])
    return str(value, "utf-8")
