"""Values of the command line. No I/O."""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial

from oplogc.terminal.values import SECONDS, count, duration, moment, one_of, size
from oplogc.topics.calls import consumers
from oplogc.topics.calls.call import MAX_LIST
from oplogc.topics.calls.pointers import MAX_OFFSET
from oplogc.topics.calls.topics import MAX_POINTER_TIMEOUT
from oplogc.topics.calls.transactions import STATES
from oplogc.topics.messages.message import MAX_TTL_SECONDS, MIN_MAX_BYTES, Message, encode
from oplogc.wire.errors import MessageError
from oplogc.wire.shard import MAX_SHARDS

state = one_of("a state", STATES)
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{24}", re.ASCII)


def or_word(word: str, convert: Callable[[str], int]) -> Callable[[str], int]:
    """Return a conversion with this word for 0."""
    return lambda text: 0 if text == word else convert(text)


def _whole_seconds(text: str, most: int) -> int:
    """Return the seconds of a duration. Raise ValueError."""
    seconds = duration(text)
    if not 1 <= seconds <= most:
        raise ValueError(f"{text!r} is not between 1s and {most // 86_400}d")
    if not seconds.is_integer():
        raise ValueError(f"{text!r} is not a whole number of seconds")
    return int(seconds)


ttl = partial(_whole_seconds, most=MAX_TTL_SECONDS)
pointer_timeout = partial(_whole_seconds, most=MAX_POINTER_TIMEOUT)
max_bytes = partial(size, least=MIN_MAX_BYTES, example="1MB, such as 1000000000 or 500MB")


def on_or_off(text: str) -> bool:
    """Raise ValueError."""
    if text not in ("on", "off"):
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def position(text: str) -> str | datetime:
    """Return the id or the time of a position, "0" for the oldest. Raise ValueError."""
    text = text.strip()
    if text == "0" or _ID.fullmatch(text):
        return text
    if (time := moment(text)) is not None:
        return time
    raise ValueError(
        f"{text!r} is neither an id, 0, a duration before now such as 10m, RFC 3339 such as "
        "2026-01-31T12:00:00Z, nor milliseconds"
    )


def consumer_name(text: str) -> str:
    """Return the name of a named consumer. Raise ValueError."""
    consumers.path(text)
    return text


def consumer_position(text: str) -> str | datetime:
    """Return a position of a named consumer. Raise ValueError."""
    return text if text in consumers.WORDS else position(text)


def shards(text: str) -> int:
    """Return a number of shards. Raise ValueError."""
    if not 1 <= count(text) <= MAX_SHARDS:
        raise ValueError(f"{text!r} is more than {MAX_SHARDS}")
    return int(text)


def shard_number(text: str) -> int:
    """Return the number of a shard. Raise ValueError."""
    if re.fullmatch(r"[0-9]{1,3}", text, re.ASCII) and int(text) < MAX_SHARDS:
        return int(text)
    raise ValueError(f"{text!r} is not the number of a shard: give 0 to {MAX_SHARDS - 1}")


def offset(text: str) -> int:
    """Return the offset of an entry. Raise ValueError."""
    if re.fullmatch(r"[0-9]{1,13}", text, re.ASCII) and int(text) <= MAX_OFFSET:
        return int(text)
    raise ValueError(f"{text!r} is not an offset: give a whole number from 0 to {MAX_OFFSET}")


def listed(text: str) -> int:
    """Return the number of transactions, pointers or entries to list. Raise ValueError."""
    if count(text) > MAX_LIST:
        raise ValueError(f"{text!r} is more than {MAX_LIST:,}")
    return int(text)


def text(given: str) -> str:
    """Return a text in UTF-8. Raise ValueError: the command line may have other bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{given!r} is not UTF-8") from None
    return given


def filtered(given: str) -> str:
    """Return a type or a parent to filter by. Raise ValueError."""
    if not given:
        raise ValueError("must not be empty")
    return text(given)


def key(given: str) -> str:
    """Return the key of a message. Raise ValueError."""
    try:
        encode(Message(None, text(given)))
    except MessageError as error:
        raise ValueError(error.reason) from None
    return given


def header(given: str) -> tuple[str, str]:
    """Return the name and the value of NAME=VALUE. Raise ValueError."""
    name, equals, value = text(given).partition("=")
    if not equals or not name:
        raise ValueError(f"{given!r} is not NAME=VALUE")
    return name, value


def shown_duration(seconds: int) -> str:
    """Return seconds in the largest unit without a remainder: 7d, 90s."""
    for unit in "dhm":
        if seconds and seconds % SECONDS[unit] == 0:
            return f"{int(seconds / SECONDS[unit])}{unit}"
    return f"{seconds}s"
