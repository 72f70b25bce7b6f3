"""The subcommands of ``oplogctl topic``."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from oplogc.ctl import values
from oplogc.ctl.events import follow_until, print_events
from oplogc.ctl.lines import topic_json, topic_line
from oplogc.ctl.newest import newest
from oplogc.ctl.options import (
    Connection,
    Converted,
    Failed,
    as_json,
    connected,
    isolation,
    option,
)
from oplogc.ctl.publishing import PublishError, are_published, lines, publish
from oplogc.tail_settings import state_file_path
from oplogc.topics import FlushError, Isolation, Topic, Topics
from oplogc.topics.names import DEFAULT_NAMESPACE, namespace_name, topic_name

_GAP = "oplogctl: messages after this position are gone"


@click.group(no_args_is_help=True)
def topic() -> None:
    """Create topics, publish to them and look into them.

    TOPIC is NAMESPACE/NAME, or NAME in the namespace default. No command of these consumes
    anything: messages stay until their time to live is over.
    """


def _named(metavar: str = "TOPIC", **more: Any) -> Callable[[Any], Any]:
    def checked(text: str) -> str:
        return str(topic_name(text))

    return click.argument("topic", metavar=metavar, type=Converted(metavar, checked), **more)


@topic.command()
@_named()
@option(
    "--ttl",
    metavar="DURATION",
    convert=values.ttl,
    help="Time to live of its messages: 90s, 10m, 12h or 7d. Not set: the agent's default.",
)
@as_json
@connected(writes=True)
def create(connection: Connection, topic: str, ttl: int | None, as_json: bool) -> None:
    """Create a topic."""
    with connection.topics() as topics:
        _show_topic(topics.create(topic, ttl=ttl), as_json)


@topic.command()
@_named()
@option(
    "--ttl",
    metavar="DURATION|default",
    convert=values.new_ttl,
    choices=("default",),
    required=True,
    help="New time to live of its messages, or default: the agent's.",
)
@as_json
@connected(writes=True)
def update(connection: Connection, topic: str, ttl: int, as_json: bool) -> None:
    """Change the properties of a topic."""
    with connection.topics() as topics:
        _show_topic(topics.update(topic, ttl=ttl or None), as_json)


@topic.command("list")
@click.argument(
    "namespace",
    metavar="[NAMESPACE]",
    default=DEFAULT_NAMESPACE,
    type=Converted("NAMESPACE", namespace_name),
)
@as_json
@connected(writes=False)
def list_(connection: Connection, namespace: str, as_json: bool) -> None:
    """List the topics of a namespace. Without one: of the namespace default."""
    with connection.topics() as topics:
        for each in topics.list(namespace):
            _show_topic(each, as_json)


@topic.command()
@_named()
@as_json
@connected(writes=False)
def show(connection: Connection, topic: str, as_json: bool) -> None:
    """Show the properties of a topic."""
    with connection.topics() as topics:
        _show_topic(topics.get(topic), as_json)


@topic.command()
@_named()
@as_json
@connected(writes=True)
def delete(connection: Connection, topic: str, as_json: bool) -> None:
    """Delete a topic with all its messages."""
    with connection.topics() as topics:
        topics.delete(topic)
    print(json.dumps({"deleted": topic}) if as_json else f"{topic} is deleted")


@topic.command("publish")
@_named()
@click.argument("messages", nargs=-1, metavar="MESSAGE...|-")
@option("--key", metavar="KEY", convert=values.key, help="Key of each message.")
@option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    convert=values.header,
    multiple=True,
    help="Header of each message. Can be repeated.",
)
@option(
    "--ttl",
    metavar="DURATION",
    convert=values.ttl,
    help="Time to live of each message, if it is shorter than the topic's.",
)
@as_json
@connected(writes=True)
def publish_(
    connection: Connection,
    topic: str,
    messages: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    ttl: int | None,
    as_json: bool,
) -> None:
    """Publish messages. `-` publishes each line of stdin.

    Ends when all messages are durable at the agent. After a lost answer messages are sent again,
    so that some may be stored twice.
    """
    if not messages or (len(messages) > 1 and "-" in messages):
        raise click.UsageError("give messages, or - alone for the lines of stdin")
    payloads: Iterable[bytes] = map(os.fsencode, messages)  # as they stand in the command line
    if messages == ("-",):
        if sys.stdin is None:
            raise Failed("stdin is closed: there is nothing to read")
        payloads = lines(sys.stdin.buffer)
    topics = connection.topics()
    try:
        count = publish(topics, topic, payloads, key, headers, ttl)
    except PublishError as error:
        raise Failed(str(error)) from None
    finally:
        with contextlib.suppress(FlushError):
            topics.close(0)  # nothing is left, or it is not waited for
    shown = {"topic": topic, "published": count}
    print(json.dumps(shown) if as_json else f"{are_published(count)} to {topic}")


@topic.command()
@_named()
@option(
    "--from",
    "start",
    metavar="POSITION",
    convert=values.position,
    help="Begin here: an id, RFC 3339, milliseconds since 1970, or a duration before now."
    " Not set: the oldest message.",
)
@click.option(
    "--exclusive",
    is_flag=True,
    help="Leave out the message of this id, or all messages of this millisecond.",
)
@option(
    "--limit",
    "-n",
    metavar="N",
    convert=values.count,
    help="Print at most N messages. The agent has a limit of its own.",
)
@isolation
@as_json
@connected(writes=False)
def poll(
    connection: Connection,
    topic: str,
    start: Any,
    exclusive: bool,
    limit: int | None,
    isolation: Isolation,
    as_json: bool,
) -> None:
    """Print messages that are in a topic now, oldest first."""
    with connection.topics() as topics:
        found = topics.poll(
            topic,
            None if start == "0" else start,
            inclusive=not exclusive,
            limit=limit,
            isolation=isolation,
        )
    if found.gap:
        print(_GAP, file=sys.stderr)
    print_events(found.messages, as_json)


@topic.command()
@_named()
@option(
    "--count",
    "-n",
    metavar="N",
    convert=values.count,
    default="10",
    show_default=True,
    help="Number of messages.",
)
@isolation
@as_json
@connected(writes=False)
def peek(
    connection: Connection, topic: str, count: int, isolation: Isolation, as_json: bool
) -> None:
    """Print the newest messages of a topic, oldest first."""
    with connection.topics() as topics:
        print_events(_newest(topics, topic, count, isolation), as_json)


@topic.command()
@_named()
@option(
    "--from",
    "start",
    metavar="POSITION",
    convert=values.position,
    help="Begin after this id, at this time (RFC 3339, milliseconds since 1970, a duration"
    " before now), or with the oldest message: 0. Not set: the next message.",
)
@option(
    "--state-file",
    metavar="PATH",
    convert=state_file_path,
    help="Keep the position in this file, and resume there next time. A position in the file"
    " overrides --from.",
)
@option(
    "--count",
    "-n",
    metavar="N",
    convert=values.count,
    help="End after N messages. reset does not count.",
)
@isolation
@as_json
@connected(writes=False)
def follow(
    connection: Connection,
    topic: str,
    start: Any,
    state_file: Path | None,
    count: int | None,
    isolation: Isolation,
    as_json: bool,
) -> None:
    """Print messages as they are published, until Ctrl-C.

    Reconnects by itself. A line `reset` tells that messages are gone; the oldest follow.
    """
    consumer = connection.stream(topic, start=start, state_file=state_file, isolation=isolation)
    asyncio.run(follow_until(consumer, count, as_json))


def _newest(topics: Topics, topic: str, count: int, isolation: Isolation) -> Any:
    search = newest(count, time.time_ns() // 1_000_000)
    ask = next(search)
    while True:
        found = topics.poll(
            topic, ask.start, inclusive=ask.inclusive, limit=ask.limit, isolation=isolation
        )
        try:
            ask = search.send(found.messages)
        except StopIteration as ended:
            return ended.value


def _show_topic(topic: Topic, as_json: bool) -> None:
    print(topic_json(topic) if as_json else topic_line(topic))
