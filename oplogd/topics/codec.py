"""The bodies of publish and poll, whatever their encoding. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from oplogd.errors import MessageError, MessageTooLargeError, OperationError, OplogError
from oplogd.event_id import Mark
from oplogd.ingest.body import MAX_NAMED, Pieces, TooLargeError
from oplogd.message import Message
from oplogd.message_id import MAX_SEQUENCE, stamp
from oplogd.pointer import Snapshot
from oplogd.transaction import Isolation

# A piece of the work ends after this many messages, or when they have this many bytes.
_PIECE_MESSAGES = 64
_PIECE_BYTES = 64 * 1024

# Of one rollback.
MAX_KEYS = 100_000

# No entry has a larger stamp. All stores can compare it.
_MAX_STAMP = stamp((1 << 47) - 1, MAX_SEQUENCE)
_MAX_LONG = (1 << 63) - 1

_T = TypeVar("_T")
_Given = TypeVar("_Given", bound=Sized)


class PublishRequest(NamedTuple):
    """A publish, or a store of messages under a pointer, as it was sent.

    ``pointer``: None for a plain publish. ``given``: the messages as they were given, each not yet
    checked. None: there are none; then there is a pointer.
    """

    pointer: int | None
    given: Iterable[Any] | None


class Rollback(NamedTuple):
    """``stamps``: of the entries to void, at least one; None: everything under the pointer."""

    pointer: int
    stamps: list[int] | None


class PollRequest(NamedTuple):
    """A poll as it was sent.

    ``start``: the bytes of an id, a time in ms since 1970 (0 or more), or None for the oldest
    message. ``limit``: messages wanted, at least 1; None: as many as are allowed. ``isolation`` and
    ``snapshot`` have no effect in the oplog. With a snapshot the isolation is READ_COMMITTED.
    """

    start: bytes | int | None = None
    inclusive: bool = True
    limit: int | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    snapshot: Snapshot | None = None


class Polled(NamedTuple):
    """A message of an answer. ``id``: 40 hexadecimal digits, 24 in the oplog.

    ``data``: as ``Message.data``.
    """

    id: str
    data: str


class Codec(Protocol):
    """One encoding of the bodies."""

    # Content-Type of requests and answers.
    media_type: str

    def split(self, raw: bytes) -> Iterable[Any]:
        """Return the messages of a plain publish as they were given, each not yet checked.

        Raises MessageError for a fault of the whole body, and for a pointer.
        """

    def decode_publish(self, raw: bytes) -> PublishRequest:
        """Decode the body of a publish or a store.

        Raises MessageError for a fault of the whole body, here or while messages are taken.
        """

    def decode_rollback(self, raw: bytes) -> Pieces[Rollback]:
        """Decode the body of a rollback. Raises MessageError."""

    def encode_published(self, pointer: int, marks: Sequence[Mark]) -> bytes:
        """Return the answer to a publish under a pointer, which is the body of its rollback."""

    def message(self, given: Any, ttl: int | None) -> Message:
        """Check one of the messages that ``split`` returned. Raises MessageError.

        ``ttl``: time to live in seconds of a message that has none of its own.
        """

    def operation(self, given: Any) -> bytes:
        """Return one of these messages as the JSON text of an operation. Raises MessageError."""

    def decode_poll(self, raw: bytes, isolation: Isolation | None = None) -> PollRequest:
        """Decode the body of a poll, which is not empty. Raises MessageError.

        ``isolation``: that of a body which has none; None: it was not given.
        """

    def encode(self, messages: Sequence[Polled]) -> bytes:
        """Return the body of the answer to a poll."""


class BadMessage(NamedTuple):
    """``field``: the place of the fault, such as ``messages[3].headers[0]``."""

    field: str
    reason: str


class InvalidMessagesError(OplogError):
    """A request has bad messages or records, so nothing was stored.

    ``bad``: the first of them, at most MAX_NAMED. ``count``: the number of all of them.
    ``too_large``: one of ``bad`` is larger than a message may be.
    """

    def __init__(
        self, bad: list[BadMessage], count: int, things: str = "messages", *, too_large: bool
    ) -> None:
        more = f"; {count:,} {things} are bad, nothing was stored" if count > 1 else ""
        super().__init__(f"{bad[0].field}: {bad[0].reason}{more}")
        self.bad = bad
        self.count = count
        self.too_large = too_large


def plain(request: PublishRequest) -> Iterable[Any]:
    """Return the given messages of a plain publish. Raises MessageError if there is a pointer."""
    if request.pointer is not None or request.given is None:
        raise MessageError("transactionWritePointer", "must be null")
    return request.given


def isolation_with(snapshot: Snapshot | None, isolation: Isolation | None) -> Isolation:
    """Return the isolation of a poll. ``isolation``: as given, None if it was not given.

    Raises MessageError if it does not suit the snapshot.
    """
    if snapshot is None:
        return isolation or Isolation.READ_UNCOMMITTED
    if isolation is Isolation.READ_UNCOMMITTED:
        raise MessageError("isolation", f"must be {Isolation.READ_COMMITTED} with a transaction")
    return Isolation.READ_COMMITTED


def rolling_back(
    pointer: int, given: Iterable[_T], stamp_of: Callable[[_T, str], int], things: str
) -> Pieces[Rollback]:
    """Return a rollback. ``stamp_of`` gets each key as it was given, and the name of its place.

    ``things``: the name of their list. No key means everything. Raises MessageError.
    """
    stamps: list[int] = []
    for index, each in enumerate(given):
        if index == MAX_KEYS:
            raise MessageError(things, f"are more than {MAX_KEYS:,}; send fewer at a time")
        stamps.append(min(stamp_of(each, f"{things}[{index}]"), _MAX_STAMP))
        if index % _PIECE_MESSAGES == _PIECE_MESSAGES - 1:
            yield
    return Rollback(pointer, stamps or None)


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


def publishing(
    given: Iterable[_Given], check: Callable[[_Given], _T], most: int
) -> Pieces[list[_T]]:
    """Return the checked messages of a publish. ``len`` of a given one is its size in bytes.

    Raises InvalidMessagesError, MessageError if there is no message, and TooLargeError for more
    than ``most`` messages, which can never be stored together.
    """

    def too_many() -> TooLargeError:
        return TooLargeError(
            f"the messages are more than the queue holds ({most:,}); send fewer at a time"
        )

    return checking(given, check, "messages", most, too_many)


def checking(
    given: Iterable[_Given],
    check: Callable[[_Given], _T],
    things: str,
    most: int,
    too_many: Callable[[], OplogError],
) -> Pieces[list[_T]]:
    """Return the checked things of a request. ``len`` of a given one is its size in bytes.

    ``things``: the name of their list. Raises InvalidMessagesError, MessageError if the list is
    empty, and the error of ``too_many`` for more than ``most`` of them.
    """
    checked: list[_T] = []
    bad: list[BadMessage] = []
    wrong = index = 0
    too_large = False
    values = iter(given)
    while piece := list(_piece(values)):
        for each in piece:
            try:
                checked.append(check(each))
            except (MessageError, OperationError) as error:
                wrong += 1
                if wrong <= MAX_NAMED:
                    too_large = too_large or isinstance(error, MessageTooLargeError)
                    bad.append(BadMessage(_place(things, index, error.field), error.reason))
            index += 1
        if index > most:
            raise too_many()
        if bad:
            checked.clear()
        yield
    if bad:
        raise InvalidMessagesError(bad, wrong, things, too_large=too_large)
    if not checked:
        raise MessageError(things, "there is none")
    return checked


def _piece(values: Iterator[_Given]) -> Iterator[_Given]:
    size = 0
    for each in islice(values, _PIECE_MESSAGES):
        yield each
        size += len(each)
        if size >= _PIECE_BYTES:
            return


def _place(things: str, index: int, field: str) -> str:
    whole = field in ("message", "operation", "record")
    return f"{things}[{index}]" if whole else f"{things}[{index}].{field}"
