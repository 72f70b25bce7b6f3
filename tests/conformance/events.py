"""Blocks of a stream, and the lines that a consumer prints for them."""

import json
from typing import Any

TIME = "2024-05-06T07:08:09.123Z"
Shown = dict[str, Any]


def event_id(number: int) -> str:
    return f"663880{number:018x}"


def operation(
    number: int, event: str = "insert", type_: str = "video", object_: str = "", *parents: str
) -> Shown:
    return {
        "id": event_id(number),
        "event": event,
        "type": type_,
        "object": object_ or f"x{number}",
        "parents": list(parents),
        "timestamp": TIME,
    }


def reset(id_: str = "1") -> Shown:
    return {"id": id_, "event": "reset"}


def live(id_: str) -> Shown:
    return {"id": id_, "event": "live"}


def data_of(shown: Shown) -> str:
    """Return the JSON of an operation, with the agent's order of keys."""
    fields = {
        "timestamp": shown["timestamp"],
        "parents": shown["parents"],
        "type": shown["type"],
        "id": shown["object"],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def block(shown: Shown, with_id: bool = True) -> bytes:
    """Return the block of an agent."""
    id_line = f"id: {shown['id']}\n" if with_id else ""
    data = f"data: {data_of(shown)}" if "object" in shown else "data:"
    return f"{id_line}event: {shown['event']}\n{data}\n\n".encode()


def blocks(*shown: Shown) -> bytes:
    return b"".join(map(block, shown))


def checkpoint(id_: str) -> bytes:
    return f"id: {id_}\n\n".encode()
