"""Words of msgspec about unpaired surrogates that say what is wrong. No I/O."""

import re
from collections.abc import Callable

import msgspec

_TRUNCATED = "Input data was truncated"
# msgspec looks for the second half of a pair only if so many bytes are left.
_HALF_PAIR = b" " * len(rb"\udc00")
_FIRST_HALF = re.compile(rb"\\u[dD][89abAB]")
# Bytes at the end of a text in which a first half then begins.
_NEAR_END = len(rb"\ud800") + len(_HALF_PAIR) - 1
# The second one is used for strings that are passed over.
_UNPAIRED = "JSON is malformed: unexpected end of escaped utf-16 surrogate pair"
_PASSED_OVER = "JSON is malformed: unexpected end of hex escape"


def explained(
    error: msgspec.DecodeError, decode: Callable[[bytes], object], raw: bytes | memoryview
) -> msgspec.DecodeError:
    r"""Return the error of ``decode`` for a text, or a better one.

    msgspec calls a text truncated if an unpaired surrogate (``\ud800``) stands near its end. Only
    such a text is copied.
    """
    message = str(error)
    if message == _TRUNCATED and _FIRST_HALF.search(raw[-_NEAR_END:]):
        try:
            decode(b"".join((raw, _HALF_PAIR)))
        except msgspec.DecodeError as other:
            message = str(other)
    if message.startswith((_UNPAIRED, _PASSED_OVER)):
        return msgspec.DecodeError(message.replace(_PASSED_OVER, _UNPAIRED))
    return error
