"""Limits the nesting of JSON text. No I/O.

msgspec's own limit is Python's, which depends on the version, the platform and the call stack.
"""

from itertools import accumulate

# Lists and objects inside each other. Every supported Python decodes this many.
MAX_DEPTH = 500

_STEPS = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_NO_BRACKETS_OR_QUOTES = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def is_too_deep(raw: bytes) -> bool:
    """Return whether lists and objects are nested deeper than MAX_DEPTH. Takes invalid JSON too."""
    # Cheap tests first: the length, then at most one bracket of each kind (most operations).
    if len(raw) <= MAX_DEPTH or (
        raw.find(b"[") == raw.rfind(b"[") and raw.find(b"{") == raw.rfind(b"{")
    ):
        return False
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    steps = _outside_strings(raw).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH


def _outside_strings(raw: bytes) -> bytes:
    """Return the brackets outside strings. A regular expression takes six times as long."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(raw.translate(None, _NO_BRACKETS_OR_QUOTES).split(b'"')[::2])
