"""The bodies of requests for leases, and a lease as clients see it. No I/O."""

import re
from collections.abc import Callable
from typing import Annotated

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, about, example, read
from oplogd.errors import LeaseError
from oplogd.model.lease import MAX_HOLDER_BYTES, MAX_NOTE_BYTES, MAX_TERM, MAX_TTL_MS, MIN_TTL_MS
from oplogd.store.leases import Lease

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


_Holder = Annotated[
    str,
    about(
        f"At most {MAX_HOLDER_BYTES} bytes, without control characters.",
        "host-1:4711",
        min_length=1,
    ),
]


class LeasePollBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a poll."""

    ttl_ms: Annotated[
        int,
        about(
            "Time to live without another poll of the holder.",
            10_000,
            ge=MIN_TTL_MS,
            le=MAX_TTL_MS,
        ),
    ]
    holder: _Holder
    refresh: Annotated[bool, about("The holder gets the next term.")] = False
    note: Annotated[
        str | None,
        about(
            f"Text for others to read, at most {MAX_NOTE_BYTES:,} bytes. null keeps the note that"
            " is there."
        ),
    ] = None


class LeaseReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a release."""

    term: Annotated[int, example(7, ge=1, le=MAX_TERM)]
    holder: _Holder


class LeaseReleased(msgspec.Struct):
    """The answer to a release."""

    name: Annotated[str, example("orders")]
    holder: Annotated[str | None, about("null: the lease is released.", "host-1:4711")]
    term: Annotated[int, example(7)]
    expires_in_ms: Annotated[int, example(8123)]


class LeaseShown(LeaseReleased):
    """A lease."""

    note: Annotated[str, example("")]


class LeasePolled(msgspec.Struct):
    """The answer to a poll."""

    leader: Annotated[bool, about("The sender is the holder.", True)]
    holder: Annotated[str | None, example("host-1:4711")]
    term: Annotated[int, example(7)]
    expires_in_ms: Annotated[int, example(10_000)]


_TTL = f"must be a whole number from {MIN_TTL_MS} to {MAX_TTL_MS:,}"
_TERM = "must be a whole number, at least 1"
_NOTE = f"must be a string of at most {MAX_NOTE_BYTES:,} bytes, or null"
_HOLDER = f"must be a string of 1 to {MAX_HOLDER_BYTES} bytes without control characters"
_RULES = Rules(
    {
        "holder": _HOLDER,
        "ttl_ms": _TTL,
        "refresh": "must be true or false",
        "note": _NOTE,
        "term": _TERM,
    },
    required=("holder", "ttl_ms", "term"),
)

_decode_poll: Callable[[Text], LeasePollBody] = msgspec.json.Decoder(LeasePollBody).decode
_decode_release: Callable[[Text], LeaseReleaseBody] = msgspec.json.Decoder(LeaseReleaseBody).decode


def parse_poll(raw: Buffer) -> LeasePollBody:
    """Read the body of a poll. Raises LeaseError and MessageError."""
    given = read(_decode_poll, raw.strip() or b"{}", "body", _RULES)
    if given.note is not None and len(given.note.encode()) > MAX_NOTE_BYTES:
        raise LeaseError("note", _NOTE)
    _check_holder(given.holder)
    return given


def parse_release(raw: Buffer) -> LeaseReleaseBody:
    """Read the body of a release. Raises LeaseError and MessageError."""
    given = read(_decode_release, raw.strip() or b"{}", "body", _RULES)
    _check_holder(given.holder)
    return given


def _check_holder(given: str) -> None:
    if len(given.encode()) > MAX_HOLDER_BYTES or _CONTROL.search(given):
        raise LeaseError("holder", _HOLDER)


def polled(lease: Lease, holder: str) -> LeasePolled:
    """Return the answer to a poll by ``holder``."""
    return LeasePolled(lease.holder == holder, lease.holder, lease.term, lease.left_ms)


def released(lease: Lease) -> LeaseReleased:
    """Return the answer to a release."""
    return LeaseReleased(lease.name, lease.holder, lease.term, lease.left_ms)


def shown(lease: Lease) -> LeaseShown:
    """Return a lease for an answer."""
    return LeaseShown(lease.name, lease.holder, lease.term, lease.left_ms, lease.note)
