"""Words of msgspec about unpaired surrogates that say what is wrong. No I/O."""

from collections.abc import Callable

import msgspec

_TRUNCATED = "Input data was truncated"
# msgspec looks for the second half of a pair only if so many bytes are left.
_HALF_PAIR = b" " * len(rb"\udc00")
# The second one is used for strings that are passed over.
_UNPAIRED = "JSON is malformed: unexpected end of escaped utf-16 surrogate pair"
_PASSED_OVER = "JSON is malformed: unexpected end of hex escape"


def explained(
    error: msgspec.DecodeError, decode: Callable[[bytes], object], raw: bytes
) -> msgspec.DecodeError:
    r"""Return the error of ``decode`` for a text, or a better one.

    msgspec calls a text truncated if an unpaired surrogate (``\ud800``) stands near its end.
    """
    message = str(error)
    if message == _TRUNCATED:
        try:
            decode(raw + _HALF_PAIR)
        except msgspec.DecodeError as other:
            message = str(other)
    if message.startswith((_UNPAIRED, _PASSED_OVER)):
        return msgspec.DecodeError(message.replace(_PASSED_OVER, _UNPAIRED))
    return error
