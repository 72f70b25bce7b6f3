"""Transforms that come with the pipe. Name them as ``oplog_pipe.transforms:json_payload``."""

import base64

import msgspec

from oplog_pipe.message import Message


def json_payload(message: Message) -> Message:
    """Replace a topic's message by its payload, decoded from JSON. ``id`` stays.

    A message without a payload deletes its key and stays without data. Raises ValueError if the
    payload is no JSON.
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
    except msgspec.DecodeError as error:
        raise ValueError(f"the payload is no JSON: {error}") from None
    return message
