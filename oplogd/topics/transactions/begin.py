"""The body of a begin. No I/O."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, about, example, read
from oplogd.errors import MessageError
from oplogd.model.lease import Fence
from oplogd.model.names import TopicName
from oplogd.model.once import MAX_NUMBER, OnceNumber, once_key
from oplogd.model.transaction import DEFAULT_GROUP, DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from oplogd.topics.transactions.rules import GROUP_RULE, TOPIC_RULE, group_name, topic_name


class Begin(NamedTuple):
    """A begin as it was sent. Either ``group`` or ``topic`` is None. ``fence``: of the header."""

    group: str | None
    topic: TopicName | None
    timeout_ms: int
    once: OnceNumber | None = None
    fence: Fence | None = None


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

_decode_begin: Callable[[Text], BeginBody] = msgspec.json.Decoder(BeginBody).decode


def parse_begin(raw: Buffer) -> Begin:
    """Read the body of a begin. Raises MessageError."""
    given = read(_decode_begin, raw.strip() or b"{}", "body", _BEGIN_RULES)
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
