"""Operations to store, and the consumer's side of a test."""

import asyncio

from oplogc import (
    Consumer,
    Event,
    Operation,
)
from tests.kits.agents.agent import DEADLINE

FAST = (0.01, 0.05)


def operations(count: int, type_: str = "video", first: int = 0) -> list[dict[str, object]]:
    return [
        {"event": "insert", "type": type_, "id": str(n), "parents": [f"user/{n % 3}"]}
        for n in range(first, first + count)
    ]


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events if isinstance(event, Operation)]


async def take(consumer: Consumer, count: int) -> list[Event]:
    async with asyncio.timeout(DEADLINE):
        return [await anext(consumer) for _ in range(count)]
