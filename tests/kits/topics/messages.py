"""Messages and polls as clients send them."""

import json
from typing import Any

from oplogd.decode.pieces import at_once
from oplogd.model.message import Message, decode_message
from oplogd.model.transaction import Isolation
from oplogd.topics.codec.codec import Codec, PollRequest


def of_json(given: Any) -> Message:
    """Return the message that a client sends as this JSON value. Raises MessageError."""
    return decode_message(json.dumps(given).encode())


def decode_poll(codec: Codec, body: bytes, isolation: Isolation | None = None) -> PollRequest:
    """Return the poll in a body. Raises MessageError."""
    return at_once(codec.decoding_poll(body, isolation))
