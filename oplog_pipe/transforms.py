"""Transforms of the pipe. Name them as ``oplog_pipe.transforms:json_payload``."""

import base64

import msgspec

from oplog_pipe.errors import TransformError
from oplog_pipe.message import Message


class PayloadError(TransformError, ValueError):
    """A payload is no JSON."""


def json_payload(message: Message) -> Message:
    """Replace a topic's message by its payload, decoded from JSON. ``id`` stays.

    A message without a payload deletes its key and stays without data. Raises PayloadError, a
    ValueError.
    """
    data = message.data
    payload = data.get("payload") if isinstance(data, dict) else None
    if payload is None:
        message.data = None
        return message
    if data.get("encoding") == "base64":
        payload = base64.b64decode(payload)
    try:
        message.data = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PayloadError("the payload is no JSON") from None
    return message
