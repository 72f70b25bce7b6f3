"""The bodies of publish and poll, whatever their encoding. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.compressed import TooLargeError
from oplogd.decode.faults import Faults
from oplogd.decode.pieces import Pieces, pieces
from oplogd.errors import MessageError, MessageTooLargeError, OperationError, OplogError
from oplogd.model.event_id import Mark
from oplogd.model.message import Message
from oplogd.model.message_id import MAX_SEQUENCE, stamp
from oplogd.model.pointer import Snapshot
from oplogd.model.transaction import DEFAULT_ISOLATION, Isolation
from oplogd.watch.bounded import THE_QUEUE

_PIECE_KEYS = 64
# Marks in a part of the answer to a publish.
PART_MARKS = 1000

# Of one rollback.
MAX_KEYS = 100_000

# No entry has a larger stamp. All stores can compare it.
_MAX_STAMP = stamp((1 << 47) - 1, MAX_SEQUENCE)
_MAX_LONG = (1 << 63) - 1

_T = TypeVar("_T")
_Given = TypeVar("_Given", bound=Sized)


class Most(NamedTuple):
    """The most items of a request. ``error`` returns the error for more of them."""

    number: int
    error: Callable[[], OplogError]


class PublishRequest(NamedTuple):
    """A publish, or a store of messages under a pointer, as it was sent.

    ``pointer``: None for a plain publish. ``given``: the unchecked messages; None: there are none,
    but a pointer.
    """

    pointer: int | None
    given: Iterable[Any] | None


class Rollback(NamedTuple):
    """``stamps``: of the entries to void, at least one; None: everything under the pointer."""

    pointer: int
    stamps: list[int] | None


class PollRequest(NamedTuple):
    """A poll as it was sent.

    ``start``: the bytes of an id, ms since 1970 (0 or more), or None for the oldest message.
    ``limit``: messages wanted, at least 1. None: as many as are allowed. ``isolation`` and
    ``snapshot`` have no effect in the oplog. With a snapshot the isolation is READ_COMMITTED.
    """

    start: bytes | int | None = None
    inclusive: bool = True
    limit: int | None = None
    isolation: Isolation = DEFAULT_ISOLATION
    snapshot: Snapshot | None = None


class PollMessage(NamedTuple):
    """A message of an answer. ``id``: 40 hexadecimal digits, 24 in the oplog.

    ``data``: as ``Message.data``.
    """

    id: str
    data: str


class Codec(Protocol):
    """One encoding of the bodies."""

    # Content-Type of requests and answers.
    media_type: str

    def decode_publish(self, raw: Buffer, most: Most) -> Pieces[PublishRequest]:
        """Decode the body of a publish or a store.

        Raises MessageError for a fault of the whole body, here or while messages are taken. May
        raise the error of ``most``.
        """

    def decode_rollback(self, raw: Buffer) -> Pieces[Rollback]:
        """Decode the body of a rollback. Raises MessageError."""

    def encode_published(self, pointer: int, marks: Iterable[Mark]) -> Iterator[bytes]:
        """Yield the answer to a publish under a pointer, in parts of at most PART_MARKS marks."""

    def message(self, given: Any, ttl: int | None) -> Message:
        """Check a given message. ``ttl``: its default, in seconds. Raises MessageError."""

    def operation(self, given: Any) -> Text:
        """Return one of these messages as the JSON text of an operation. Raises MessageError."""

    def decoding_poll(self, raw: Buffer, isolation: Isolation | None = None) -> Pieces[PollRequest]:
        """Decode the body of a poll. ``isolation``: its default. Raises MessageError."""

    def encode(self, messages: Sequence[PollMessage]) -> bytes:
        """Return the body of the answer to a poll."""


class BadMessage(NamedTuple):
    """``field``: the place of the fault, such as ``messages[3].headers[0]``."""

    field: str
    reason: str


class InvalidMessagesError(OplogError):
    """Nothing was stored. ``bad``: the first bad messages or records. ``count``: of all bad ones.

    ``too_large``: one of ``bad`` is larger than a message may be.
    """

    def __init__(self, bad: Faults[BadMessage], list_name: str, *, too_large: bool) -> None:
        first, count = bad.named[0], bad.count
        more = f"; {count:,} {list_name} are bad, nothing was stored" if count > 1 else ""
        super().__init__(f"{first.field}: {first.reason}{more}")
        self.bad = bad.named
        self.count = count
        self.too_large = too_large


def isolation_with(snapshot: Snapshot | None, isolation: Isolation | None) -> Isolation:
    """Return the isolation of a poll. Raises MessageError if it does not suit the snapshot."""
    if snapshot is None:
        return isolation or DEFAULT_ISOLATION
    if isolation is Isolation.READ_UNCOMMITTED:
        raise MessageError("isolation", f"must be {Isolation.READ_COMMITTED} with a transaction")
    return Isolation.READ_COMMITTED


def by_parts(marks: Iterable[Mark]) -> Iterator[list[Mark]]:
    """Yield the marks of an answer in groups for its parts."""
    rest = iter(marks)
    while some := list(islice(rest, PART_MARKS)):
        yield some


def rolling_back(
    pointer: int, given: Iterable[_T], stamp_of: Callable[[_T, str], int], list_name: str
) -> Pieces[Rollback]:
    """Return a rollback. Without keys, it covers everything. Raises MessageError.

    ``stamp_of`` gets a key and the name of its place. ``list_name``: the name of the list.
    """
    stamps: list[int] = []
    for index, each in enumerate(given):
        if index == MAX_KEYS:
            raise too_many_keys(list_name)
        stamps.append(min(stamp_of(each, f"{list_name}[{index}]"), _MAX_STAMP))
        if index % _PIECE_KEYS == _PIECE_KEYS - 1:
            yield
    return Rollback(pointer, stamps or None)


def too_many_keys(list_name: str) -> MessageError:
    """Return the error for a rollback with more than MAX_KEYS keys."""
    return MessageError(list_name, f"are more than {MAX_KEYS:,}; send fewer at a time")


def stamp_of_info(ms: Any, sequence: Any, place: str) -> int:
    """Return the stamp of an item of the answer to a publish. Raises MessageError."""
    return stamp(
        _whole(ms, _MAX_LONG, f"{place}.publishTimestamp"),
        _whole(sequence, MAX_SEQUENCE, f"{place}.sequenceId"),
    )


def _whole(given: Any, most: int, field: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= most:
        raise MessageError(field, f"must be a whole number from 0 to {most}")
    return given


def reading_publish(
    codec: Codec,
    raw: Buffer,
    check: Callable[[Any], _T],
    most: int,
    *,
    queue: str = THE_QUEUE,
    is_brief: bool = False,
) -> Pieces[tuple[int | None, list[_T]]]:
    """Return the pointer of a publish or a store, None without one, and its checked messages.

    Without a pointer there is at least one message. Raises InvalidMessagesError, MessageError, and
    TooLargeError for more than ``most`` messages, which names the ``queue``. ``is_brief``: raises
    FaultyError for the first bad message.
    """
    limit = Most(
        most,
        lambda: TooLargeError(
            f"the messages are more than {queue} holds ({most:,}; see --max-queued-events);"
            " send fewer at a time"
        ),
    )
    pointer, given = yield from codec.decode_publish(raw, limit)
    if given is None:
        return pointer, []
    checked = yield from checking(given, check, "messages", limit, is_brief=is_brief)
    return pointer, checked


def checking(
    given: Iterable[_Given],
    check: Callable[[_Given], _T],
    list_name: str,
    most: Most,
    *,
    is_brief: bool = False,
) -> Pieces[list[_T]]:
    """Return the checked items of a request. ``list_name``: the name of their list.

    Raises InvalidMessagesError, MessageError if the list is empty, and the error of ``most``.
    """
    checked: list[_T] = []
    bad: Faults[BadMessage] = Faults(is_brief=is_brief)
    index = 0
    too_large = False
    for group in pieces(given):
        for each in group:
            try:
                checked.append(check(each))
            except (MessageError, OperationError) as error:
                bad.add(BadMessage(_place(list_name, index, error.field), error.reason))
                too_large = too_large or isinstance(error, MessageTooLargeError)
            index += 1
        if index > most.number:
            raise most.error()
        if bad:
            checked.clear()
        yield
    if bad:
        raise InvalidMessagesError(bad, list_name, too_large=too_large)
    if not checked:
        raise MessageError(list_name, "there is none")
    return checked


def _place(list_name: str, index: int, field: str) -> str:
    whole = field in ("message", "operation", "record")
    return f"{list_name}[{index}]" if whole else f"{list_name}[{index}].{field}"
