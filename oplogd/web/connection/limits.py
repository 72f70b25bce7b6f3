"""Bounds on one request."""

from typing import NamedTuple

MAX_HEADERS = 256

# Bytes per second that a body must reach on average once ``--body-timeout`` is over.
MIN_BODY_RATE = 4096


class RequestLimits(NamedTuple):
    """Sizes in bytes, times in seconds."""

    header_size: int
    header_seconds: float
    body_seconds: float
    # How long a client may take no byte of an answer. 0: without limit.
    answer_seconds: float
