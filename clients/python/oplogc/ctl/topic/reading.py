"""The subcommands of ``oplogctl topic`` to look into topics."""

import sys
import time
from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import AgentConnection
from oplogc.ctl.options.flags import connected, isolation, limit, named, on_topics, option, shard
from oplogc.ctl.options.inputs import transaction_in
from oplogc.ctl.output import follow_topic, show
from oplogc.ctl.topic.newest import newest
from oplogc.http.address import check_consumer_name
from oplogc.terminal.values import count as whole_number
from oplogc.terminal.values import state_file_path
from oplogc.topics import ReceivedMessage, Topics
from oplogc.topics.calls.topics import READ_COMMITTED

_GAP = "oplogctl: messages after this position are gone"
_HELD = (
    "oplogctl: pointer {} holds this reader: its messages, and those after them, cannot be read yet"
)


@click.command()
@named
@option(
    "--from start POSITION",
    values.position,
    "Begin here: an id, RFC 3339, milliseconds since 1970, or a duration before now."
    " Not set: the oldest message.",
)
@click.option(
    "--exclusive",
    is_flag=True,
    help="Leave out the message of this id, or all messages of this millisecond.",
)
@option("--limit -n N", whole_number, "Print at most N messages. The agent has a limit of its own.")
@isolation
@shard
@option(
    "--transaction JSON|@FILE",
    transaction_in,
    "Read with the snapshot of a foreign transaction: an object with readPointer, and"
    " writePointer, inProgress and invalid, or a file with it. It reads committed.",
)
@on_topics(writes=False)
def poll(
    topics: Topics, topic: str, start: Any, exclusive: bool, as_json: bool, **options: Any
) -> None:
    """Print messages that are in a topic now, oldest first.

    If a pointer of a foreign transaction holds the reader, a line on stderr says so.
    """
    if options["transaction"] is not None and options["isolation"] != READ_COMMITTED:
        raise click.UsageError("--transaction and --isolation read_uncommitted exclude each other")
    found = topics.poll(topic, None if start == "0" else start, inclusive=not exclusive, **options)
    if found.gap:
        print(_GAP, file=sys.stderr)
    show(found.messages, as_json)
    _tell_hold(found.held_by)


@click.command()
@named
@option("--count -n N", whole_number, "Number of messages.", default="10")
@isolation
@shard
@on_topics(writes=False)
def peek(topics: Topics, topic: str, count: int, as_json: bool, **options: Any) -> None:
    """Print the newest messages of a topic, oldest first.

    If a pointer of a foreign transaction holds the reader, a line on stderr says so.
    """
    found, held_by = _newest(topics, topic, count, options)
    show(found, as_json)
    _tell_hold(held_by)


@click.command()
@named
@option(
    "--from start POSITION",
    values.position,
    "Begin after this id, at this time (RFC 3339, milliseconds since 1970, a duration"
    " before now), or with the oldest message: 0. Not set: the next message.",
)
@option(
    "--state-file PATH",
    state_file_path,
    "Keep the position in this file, and resume there next time. A position in the file"
    " overrides --from.",
)
@option("--count -n N", whole_number, "End after N messages. reset does not count.")
@option(
    "--name NAME",
    check_consumer_name,
    "Name of this consumer in the agent's /status and /metrics: 1 to 100 ASCII letters,"
    " digits, '.', '_' or '-'.",
)
@isolation
@shard
@connected(writes=False)
def follow(
    agent: AgentConnection, topic: str, count: int | None, as_json: bool, **options: Any
) -> None:
    """Print messages as they are published, until Ctrl-C.

    Reconnects by itself. A line `reset` tells that messages are gone; the oldest follow.
    """
    follow_topic(agent.stream(topic, **options), count, as_json)


@click.command()
@named
@option(
    "--after OFFSET",
    values.offset,
    "Begin after the entry at this offset. Not set: the newest entries.",
)
@limit("entries")
@on_topics(writes=False)
def entries(topics: Topics, topic: str, as_json: bool, **options: Any) -> None:
    """Print the entries of a topic, without messages.

    POINTER/TXN is the pointer of a foreign transaction or the id of a transaction, STATE the state
    of the pointer, RECORDS the number of messages that are read at an entry or that a rollback has
    voided, BYTES the size of its data.
    """
    show(topics.entries(topic, **options), as_json)


@click.command()
@named
@limit("pointers")
@on_topics(writes=False)
def pointers(topics: Topics, topic: str, limit: int, as_json: bool) -> None:
    """List the open pointers of a topic, the oldest first.

    They are write pointers of foreign transactions without a decision in the topic.

    published: its messages hold committed readers. stored: readers cannot get its messages yet.
    """
    show(topics.pointers.list(topic, limit), as_json)


COMMANDS = (poll, peek, follow, entries, pointers)


def _tell_hold(held_by: int | None) -> None:
    if held_by is not None:
        print(_HELD.format(held_by), file=sys.stderr)


def _newest(
    topics: Topics, topic: str, count: int, options: dict[str, Any]
) -> tuple[list[ReceivedMessage], int | None]:
    """Return the newest messages, and the pointer at which they end."""
    search = newest(count, time.time_ns() // 1_000_000)
    ask = next(search)
    while True:
        found = topics.poll(topic, ask.start, inclusive=ask.inclusive, limit=ask.limit, **options)
        try:
            ask = search.send(found)
        except StopIteration as ended:
            return ended.value, found.held_by
