"""Prints items and answers."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from oplogc.ctl.output.lines import Item, item_json, lines_of
from oplogc.terminal.output import follow
from oplogc.topics import ReceivedMessage, TopicConsumer


def follow_topic(consumer: TopicConsumer, count: int | None, as_json: bool) -> None:
    """Print events until ``count`` messages, a signal, or the end of the reader.

    Raises the errors of the consumer.
    """
    asyncio.run(follow(consumer, lambda event: show([event], as_json), ReceivedMessage, count))


def show(items: Sequence[Item], as_json: bool) -> None:
    """Print each item in JSON, or lines for people."""
    for line in map(item_json, items) if as_json else lines_of(items):
        print(line)


def say(shown: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print what a command has done."""
    print(json.dumps(shown) if as_json else sentence)
