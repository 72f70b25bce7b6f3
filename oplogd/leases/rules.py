"""The bodies of requests for leases, and a lease as clients see it. No I/O."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from oplogd.decode.buffers import Buffer, Text
from oplogd.decode.typed import Rules, read
from oplogd.errors import LeaseError
from oplogd.model.lease import MAX_HOLDER_BYTES, MAX_NOTE_BYTES, MAX_TERM, MAX_TTL_MS, MIN_TTL_MS
from oplogd.store.leases import Lease, LeaseRequest

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Release(NamedTuple):
    holder: str
    term: int


class _Poll(msgspec.Struct, forbid_unknown_fields=True):
    holder: str | None = None
    ttl_ms: int | None = None
    refresh: bool = False
    note: str | None = None


class _Release(msgspec.Struct, forbid_unknown_fields=True):
    holder: str | None = None
    term: int | None = None


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
    }
)

_decode_poll: Callable[[Text], _Poll] = msgspec.json.Decoder(_Poll).decode
_decode_release: Callable[[Text], _Release] = msgspec.json.Decoder(_Release).decode


def parse_poll(name: str, raw: Buffer) -> LeaseRequest:
    """Read the body of a poll. Raises LeaseError and MessageError."""
    given = read(_decode_poll, raw.strip() or b"{}", "body", _RULES)
    ttl, note = given.ttl_ms, given.note
    if ttl is None:
        raise LeaseError("ttl_ms", "is required")
    if not MIN_TTL_MS <= ttl <= MAX_TTL_MS:
        raise LeaseError("ttl_ms", _TTL)
    if note is not None and len(note.encode()) > MAX_NOTE_BYTES:
        raise LeaseError("note", _NOTE)
    return LeaseRequest(name, _holder(given.holder), ttl, given.refresh, note)


def parse_release(raw: Buffer) -> Release:
    """Read the body of a release. Raises LeaseError and MessageError."""
    given = read(_decode_release, raw.strip() or b"{}", "body", _RULES)
    if given.term is None:
        raise LeaseError("term", "is required")
    if not 1 <= given.term <= MAX_TERM:
        raise LeaseError("term", _TERM)
    return Release(_holder(given.holder), given.term)


def _holder(given: str | None) -> str:
    if given is None:
        raise LeaseError("holder", "is required")
    if not 1 <= len(given.encode()) <= MAX_HOLDER_BYTES or _CONTROL.search(given):
        raise LeaseError("holder", _HOLDER)
    return given


def polled(lease: Lease, holder: str) -> dict[str, Any]:
    """Return the members of the answer to a poll by ``holder``."""
    return {
        "leader": lease.holder == holder,
        "holder": lease.holder,
        "term": lease.term,
        "expires_in_ms": lease.left_ms,
    }


def released(lease: Lease) -> dict[str, Any]:
    """Return the members of the answer to a release."""
    return {
        "name": lease.name,
        "holder": lease.holder,
        "term": lease.term,
        "expires_in_ms": lease.left_ms,
    }


def shown(lease: Lease) -> dict[str, Any]:
    """Return the members of a lease for an answer."""
    return {**released(lease), "note": lease.note}
