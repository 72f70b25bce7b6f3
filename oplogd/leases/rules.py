"""The bodies of requests for leases, and a lease as clients see it. No I/O."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from oplogd.errors import LeaseError
from oplogd.lease import MAX_HOLDER_BYTES, MAX_NOTE_BYTES, MAX_TERM, MAX_TTL_MS, MIN_TTL_MS
from oplogd.store.leases import Lease, LeaseRequest
from oplogd.topics.json_codec import read

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Release(NamedTuple):
    holder: str
    term: int


class _Poll(msgspec.Struct, forbid_unknown_fields=True):
    holder: Any = None
    ttl_ms: Any = None
    refresh: Any = False
    note: Any = None


class _Release(msgspec.Struct, forbid_unknown_fields=True):
    holder: Any = None
    term: Any = None


_decode_poll: Callable[[bytes], _Poll] = msgspec.json.Decoder(_Poll).decode
_decode_release: Callable[[bytes], _Release] = msgspec.json.Decoder(_Release).decode


def parse_poll(name: str, raw: bytes) -> LeaseRequest:
    """Read the body of a poll. Raises LeaseError and MessageError."""
    given = read(_decode_poll, raw.strip() or b"{}", "body")
    ttl, note = given.ttl_ms, given.note
    if ttl is None:
        raise LeaseError("ttl_ms", "is required")
    if type(ttl) is not int or not MIN_TTL_MS <= ttl <= MAX_TTL_MS:
        raise LeaseError("ttl_ms", f"must be a whole number from {MIN_TTL_MS} to {MAX_TTL_MS:,}")
    if not isinstance(given.refresh, bool):
        raise LeaseError("refresh", "must be true or false")
    if note is not None and (not isinstance(note, str) or len(note.encode()) > MAX_NOTE_BYTES):
        raise LeaseError("note", f"must be a string of at most {MAX_NOTE_BYTES:,} bytes, or null")
    return LeaseRequest(name, _holder(given.holder), ttl, given.refresh, note)


def parse_release(raw: bytes) -> Release:
    """Read the body of a release. Raises LeaseError and MessageError."""
    given = read(_decode_release, raw.strip() or b"{}", "body")
    if given.term is None:
        raise LeaseError("term", "is required")
    if type(given.term) is not int or not 1 <= given.term <= MAX_TERM:
        raise LeaseError("term", "must be a whole number, at least 1")
    return Release(_holder(given.holder), given.term)


def _holder(given: Any) -> str:
    if given is None:
        raise LeaseError("holder", "is required")
    if (
        not isinstance(given, str)
        or not 1 <= len(given.encode()) <= MAX_HOLDER_BYTES
        or _CONTROL.search(given)
    ):
        reason = f"must be a string of 1 to {MAX_HOLDER_BYTES} bytes without control characters"
        raise LeaseError("holder", reason)
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
