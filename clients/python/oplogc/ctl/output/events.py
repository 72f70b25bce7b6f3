"""Prints the events of a topic."""

from collections.abc import Iterable

from oplogc.ctl.output.lines import event_json, event_line
from oplogc.terminal.output import stop_when_asked
from oplogc.topics import Reset, TopicConsumer, TopicEvent


async def follow_until(consumer: TopicConsumer, count: int | None, as_json: bool) -> None:
    """Print events until ``count`` messages, a signal, or the end of the reader.

    Raises the errors of the consumer.
    """
    left = count
    stop_when_asked(consumer)
    async with consumer:
        async for event in consumer:
            print_events([event], as_json)
            consumer.ack(event)
            if left is not None and not isinstance(event, Reset):
                left -= 1
                if not left:
                    return


def print_events(events: Iterable[TopicEvent], as_json: bool) -> None:
    for event in events:
        print(event_json(event) if as_json else event_line(event))
