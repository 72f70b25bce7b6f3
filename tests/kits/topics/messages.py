"""Messages as clients send them."""

import json
from typing import Any

from oplogd.message import Message, decode_message


def of_json(given: Any) -> Message:
    """Return the message that a client sends as this JSON value. Raises MessageError."""
    return decode_message(json.dumps(given).encode())
