"""Agents that answer as a test says, and settings with their addresses."""

import json
from typing import Any

from oplog_relay.model.settings import AgentSettings, DatabaseSettings, Limits, RelaySettings
from tests.kits.servers.ports import free_port

PROBLEM = "application/problem+json"


def respond(status: str, body: Any = None, *headers: str, media_type: str = "text/html") -> bytes:
    """Return an HTTP answer. ``body``: text, or a value to be sent as JSON; None: no body."""
    text = "" if body is None else body if isinstance(body, str) else json.dumps(body)
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(text)}"]
    if body is not None:
        lines.append(f"Content-Type: {media_type}")
    return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()


def problem(status: str, detail: str, *headers: str) -> bytes:
    return respond(status, {"detail": detail}, *headers, media_type=PROBLEM)


def settings_of(*urls: str, password: str | None = None, **limits: Any) -> RelaySettings:
    agents = AgentSettings(urls, password)
    return RelaySettings("orders", DatabaseSettings("sqlite:///a"), agents, Limits(**limits))


def nobody() -> str:
    """Return an address at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"
