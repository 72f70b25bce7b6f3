"""The bodies of publish and poll in JSON. No I/O."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from oplogd.errors import MessageError, MessageTooLargeError
from oplogd.ingest.array import elements
from oplogd.ingest.body import MANY_COMMAS
from oplogd.isolation import isolation_of
from oplogd.media_types import JSON
from oplogd.message import MAX_MESSAGE_BYTES, Message, of_json
from oplogd.topics.codec import Polled, PollRequest
from oplogd.transaction import Isolation

_ID = re.compile(r"[0-9a-f]{24}|[0-9a-f]{40}")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)

# No message has a longer text, even if all of it is escaped. It would delay other requests.
MAX_TEXT_BYTES = 7 * MAX_MESSAGE_BYTES

_T = TypeVar("_T")


class _Publish(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    messages: msgspec.Raw = msgspec.Raw(b"null")
    transactionWritePointer: msgspec.Raw = msgspec.Raw(b"null")


class _Poll(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    startFrom: Any = None
    inclusive: Any = True
    limit: Any = None
    transaction: Any = None
    isolation: Any = None


_decode_publish: Callable[[bytes], _Publish] = msgspec.json.Decoder(_Publish).decode
_decode_array: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_poll: Callable[[bytes], _Poll] = msgspec.json.Decoder(_Poll).decode
_decode_any: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder().decode


class JsonCodec:
    """Implements ``Codec``. Given messages are their JSON text."""

    media_type = JSON

    def split(self, raw: bytes) -> Iterable[bytes | msgspec.Raw]:
        publish = read(_decode_publish, raw, "body")
        if bytes(publish.transactionWritePointer).strip() != b"null":
            raise MessageError("transactionWritePointer", "must be null")
        messages = split(publish.messages)
        if messages is None:
            raise MessageError("messages", "must be a list with at least one message")
        return messages

    def message(self, given: bytes | msgspec.Raw, ttl: int | None) -> Message:
        if len(given) > MAX_TEXT_BYTES:
            reason = f"has {len(given):,} bytes of JSON, more than {MAX_TEXT_BYTES:,}"
            raise MessageTooLargeError("message", reason)
        message = of_json(read(_decode_any, given, "message"))
        return message if ttl is None or message.ttl is not None else message._replace(ttl=ttl)

    def operation(self, given: bytes | msgspec.Raw) -> bytes:
        text = bytes(given)
        value = read(_decode_any, given, "message")
        if isinstance(value, dict) and "event" not in value and "payload" in value:
            value = value["payload"] if value.keys() == {"payload"} else None
            if not isinstance(value, str):
                raise MessageError("payload", "must be the JSON text of an operation, and alone")
        if not isinstance(value, str):
            return text
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise MessageError("message", "has an unpaired surrogate") from None

    def decode_poll(
        self, raw: bytes, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> PollRequest:
        poll = read(_decode_poll, raw, "body")
        if poll.transaction is not None:
            raise MessageError("transaction", "must be null")
        if not isinstance(poll.inclusive, bool):
            raise MessageError("inclusive", "must be true or false")
        if poll.isolation is not None:
            isolation = isolation_of(poll.isolation)
        return PollRequest(_start(poll.startFrom), poll.inclusive, limit(poll.limit), isolation)

    def encode(self, messages: Sequence[Polled]) -> bytes:
        texts = ",".join([f'{{"id":"{id_}",{data[1:]}' for id_, data in messages])
        return f"[{texts}]".encode()


def split(given: msgspec.Raw) -> Iterable[bytes | msgspec.Raw] | None:
    """Return the texts of the elements of a list, None if it is no list."""
    text = bytes(given).strip()
    if not text.startswith(b"["):
        return None
    # A list of all its texts could take a hundred times the memory of the body.
    return elements(text) if text.count(b",") > MANY_COMMAS else _decode_array(text)


def limit(given: Any) -> int | None:
    """Check the limit of a poll. Raises MessageError."""
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError("limit", "must be a whole number or null")
    if given < 1:
        raise MessageError("limit", "must be at least 1")
    return given


def _start(given: Any) -> bytes | int | None:
    if given is None:
        return None
    if isinstance(given, str):
        if not _ID.fullmatch(given):
            raise MessageError("startFrom", "an id is 40 lower-case hexadecimal digits")
        return bytes.fromhex(given)
    if not isinstance(given, int) or isinstance(given, bool):
        raise MessageError("startFrom", "must be an id, milliseconds since 1970, or null")
    if given < 0:
        raise MessageError("startFrom", "must not be negative")
    return given


def read(decode: Callable[[Any], _T], raw: Any, field: str) -> _T:
    """Decode JSON. Raises MessageError, which names ``field`` or an unknown member."""
    try:
        return decode(raw)
    except RecursionError:
        raise MessageError(field, "is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise MessageError(field, f"is not UTF-8 (byte {error.start})") from None
    except msgspec.ValidationError as error:
        if unknown := _UNKNOWN.fullmatch(str(error)):
            raise MessageError(unknown[1], "is not a member of this request") from None
        if "out of range" in str(error):
            raise MessageError(field, "has a number that is out of range") from None
        raise MessageError(field, "must be an object") from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise MessageError(field, f"is not valid JSON: {reason}") from None
