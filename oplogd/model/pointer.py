"""Pointers of foreign transactions: their rules, their snapshots, their decisions. No I/O.

A service with a transaction manager publishes under the write pointer of its transaction.
"""

import re
from collections.abc import Callable, Mapping, Set
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from oplogd.decode.pieces import Pieces
from oplogd.errors import MessageError, TransactionConflictError, TransactionTooLargeError
from oplogd.model.isolation import EntryKind, Reading
from oplogd.model.transaction import FIRST_ID, decode_marker

# Larger numbers are ids of our own transactions.
MAX_POINTER = FIRST_ID - 1

# Longest time-out of a pointer in seconds: 30 days, as of --pointer-timeout.
MAX_TIMEOUT = 30 * 86_400

# Of one snapshot, all of its lists together.
MAX_SNAPSHOT_POINTERS = 100_000

# Items of a list checked together.
_AT_ONCE = 1000

_MIN_LONG, _MAX_LONG = -(1 << 63), (1 << 63) - 1

_POINTER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_LONG = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{20}")
KEY_BYTES = 10

_SNAPSHOT_MEMBERS = frozenset({"readPointer", "writePointer", "inProgress", "invalid"})

# Returns PASS if the reader may read the messages of a pointer, SKIP if not, HOLD if it must wait.
Judge = Callable[[int], Reading]


class PointerRules(NamedTuple):
    """The rules of a topic for messages under pointers. ``is_on``: they may be published.

    ``timeout``: of a pointer in seconds. None: the agent's.
    """

    is_on: bool = True
    timeout: int | None = None

    def timeout_ms(self, default_ms: int) -> int:
        """Return the time-out. ``default_ms``: the agent's."""
        return default_ms if self.timeout is None else self.timeout * 1000


DEFAULT_RULES = PointerRules()


class Decision(StrEnum):
    """The end of a pointer in one topic. It is final: nothing is appended under it afterwards."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    # No report came in time: it counts as aborted.
    TIMED_OUT = "timed out"

    @property
    def kind(self) -> EntryKind:
        """The kind of its entry."""
        return EntryKind.COMMIT if self is Decision.COMMITTED else EntryKind.ABORT


class Snapshot(NamedTuple):
    """The pointers visible to a reader. ``write_pointer``: its own, None if it has none."""

    read_pointer: int
    write_pointer: int | None = None
    in_progress: Set[int] = frozenset()
    invalid: Set[int] = frozenset()

    def verdict(self, pointer: int) -> Reading:
        """Judge a pointer: see ``Judge``."""
        if pointer == self.write_pointer:
            return Reading.PASS
        if pointer in self.invalid:
            return Reading.SKIP
        visible = pointer <= self.read_pointer and pointer not in self.in_progress
        return Reading.PASS if visible else Reading.HOLD


def by_decisions(decisions: Mapping[int, Decision]) -> Judge:
    """Return the judge of a reader without a snapshot: it waits for the decisions."""

    def verdict(pointer: int) -> Reading:
        match decisions.get(pointer):
            case None:
                return Reading.HOLD
            case Decision.COMMITTED:
                return Reading.PASS
            case _:
                return Reading.SKIP

    return verdict


class Voided(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The data of the VOID entry of a rollback.

    ``runs``: first offset and number of voided entries, ascending. ``txn``: the pointer
    in decimal digits. ``is_gap``: committed readers may have read them, see
    ``TopicBounds.purged``.
    """

    txn: str
    runs: list[tuple[int, int]]
    is_gap: bool = False


_encode = msgspec.json.Encoder().encode
_decode_numbers: Callable[[str], list[int]] = msgspec.json.Decoder(list[int]).decode
_decode_voided: Callable[[str], Voided] = msgspec.json.Decoder(Voided).decode


def encode_voided(voided: Voided) -> str:
    return _encode(voided).decode()


def decode_voided(data: str) -> Voided | None:
    """Decode the data of a VOID entry, None if it is empty."""
    return _decode_voided(data) if data else None


def decided_by(kind: str, data: str) -> tuple[int, bool] | None:
    """Return the pointer of a COMMIT or ABORT entry, and whether it has committed; else None."""
    if kind not in (EntryKind.COMMIT, EntryKind.ABORT):
        return None
    id_ = int(decode_marker(data).txn)
    return (id_, kind == EntryKind.COMMIT) if id_ < FIRST_ID else None


def parse_pointer(given: Any, field: str = "transactionWritePointer") -> int:
    """Check a pointer: 0 to MAX_POINTER, as a number or in decimal digits. Raises MessageError."""
    number = _whole(given, _POINTER)
    if number is None or not 0 <= number <= MAX_POINTER:
        raise MessageError(field, f"must be a whole number from 0 to {MAX_POINTER} (2^62 - 1)")
    return number


def parsing_snapshot(given: Any) -> Pieces[Snapshot]:
    """Check the ``transaction`` of a poll, in pieces of less than a millisecond.

    Raises MessageError, which names the member.
    """
    if not isinstance(given, dict):
        raise MessageError("transaction", "must be an object or null")
    if unknown := sorted(given.keys() - _SNAPSHOT_MEMBERS):
        raise MessageError(f"transaction.{unknown[0]}", "is not a member of a transaction")
    if "readPointer" not in given:
        raise MessageError("transaction.readPointer", "is required")
    read = _long(given["readPointer"], "transaction.readPointer")
    write = given.get("writePointer")
    if write is not None:
        write = _long(write, "transaction.writePointer")
    lists = [_listed(given.get(name), f"transaction.{name}") for name in ("inProgress", "invalid")]
    in_progress = yield from _longs(lists[0], "transaction.inProgress")
    invalid = yield from _longs(lists[1], "transaction.invalid")
    if len(in_progress) + len(invalid) > MAX_SNAPSHOT_POINTERS:
        raise too_many_pointers()
    return Snapshot(read, write, in_progress, invalid)


def parse_key(given: Any, field: str) -> int:
    """Return the stamp in a key of a rollback: 20 hexadecimal digits. Raises MessageError."""
    if not isinstance(given, str) or not _KEY.fullmatch(given):
        raise MessageError(
            field, "must be 20 lower-case hexadecimal digits: 16 of the time and 4 of the sequence"
        )
    return int(given, 16)


def decided(pointer: int, decision: Decision | None) -> TransactionConflictError:
    """Return the error for a request under a decided pointer. None: in an unknown way."""
    end = {
        Decision.COMMITTED: "has committed",
        Decision.ABORTED: "was aborted",
        Decision.TIMED_OUT: "has timed out (--pointer-timeout)",
        None: "is decided",
    }[decision]
    return TransactionConflictError(f"pointer {pointer} {end} in this topic")


def switched_off() -> TransactionConflictError:
    """Return the error for messages under a pointer in a topic without pointers."""
    return TransactionConflictError(
        "this topic takes no messages under pointers: its property pointers is off"
    )


def too_late(pointer: int) -> TransactionConflictError:
    """Return the error for a rollback after the report of a commit."""
    return TransactionConflictError(
        f"pointer {pointer} has committed in this topic: readers may have its messages; nothing was"
        " rolled back (?force=true removes them all the same, and tells readers of a gap)"
    )


def stored_before(pointer: int) -> MessageError:
    """Return the error for a publish of messages while stored ones wait for theirs."""
    return MessageError(
        "messages",
        f"must be empty: messages are stored under pointer {pointer}; publish those first",
    )


def nothing_stored(pointer: int) -> MessageError:
    """Return the error for a publish without messages if the stored ones are rolled back."""
    return MessageError("messages", f"there is none, and none is stored under pointer {pointer}")


def too_many_stored(pointer: int, records: int, size: int) -> TransactionTooLargeError:
    """Return the error for a store over the bounds, which are given."""
    return TransactionTooLargeError(
        f"pointer {pointer} would have more than {records:,} stored messages or {size:,} bytes of"
        " them in this topic (--txn-max-records, --txn-max-bytes); publish them first"
    )


def _whole(given: Any, pattern: re.Pattern[str]) -> int | None:
    if isinstance(given, str):
        return int(given) if pattern.fullmatch(given) else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _long(given: Any, field: str, index: int | None = None) -> int:
    number = _whole(given, _LONG)
    if number is None or not _MIN_LONG <= number <= _MAX_LONG:
        place = field if index is None else f"{field}[{index}]"
        raise MessageError(place, "must be a whole number of 64 bits")
    return number


def _listed(given: Any, field: str) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise MessageError(field, "must be a list of pointers")
    if len(given) > MAX_SNAPSHOT_POINTERS:
        raise too_many_pointers()
    return given


def _longs(given: list[Any], field: str) -> Pieces[Set[int]]:
    numbers: set[int] = set()
    for start in range(0, len(given), _AT_ONCE):
        numbers.update(_some_longs(given[start : start + _AT_ONCE], field, start))
        yield
    return numbers  # a copy would take as long as many pieces


def _some_longs(given: list[Any], field: str, start: int) -> list[int]:
    """Check a part of a list. ``start``: index of its first item in the list."""
    # A call for each of them would delay other requests.
    types = set(map(type, given))
    numbers = given if types == {int} else _from_digits(given) if types == {str} else None
    if numbers is not None and min(numbers) >= _MIN_LONG and max(numbers) <= _MAX_LONG:
        return numbers
    return [_long(each, field, index) for index, each in enumerate(given, start)]


def _from_digits(given: list[str]) -> list[int] | None:
    """Return the numbers if each text has exactly the digits of its number."""
    digits = f"[{','.join(given)}]"
    try:
        numbers = _decode_numbers(digits)
        is_same = len(numbers) == len(given) and _encode(numbers).decode() == digits
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return numbers if is_same else None


def too_many_pointers() -> MessageError:
    reason = f"has more than {MAX_SNAPSHOT_POINTERS:,} pointers in its lists"
    return MessageError("transaction", reason)
