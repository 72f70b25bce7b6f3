"""The subcommands of ``oplogctl consumer``."""

from typing import Any, get_args

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.flags import on_topics, option, topic_text
from oplogc.ctl.output import say, show
from oplogc.terminal.options import Converted
from oplogc.topics import ConsumerStatus, Isolation, Topics
from oplogc.topics.calls.consumers import WORDS
from oplogc.topics.calls.topics import check_isolation
from oplogc.wire.shard import MAX_SHARDS

_POSITIONS = (
    "now: the next entry. copy: a copy of all objects, or the oldest message. Or an id to begin"
    " after, or a time: RFC 3339, milliseconds since 1970, a duration before now."
)


@click.group(no_args_is_help=True)
def consumer() -> None:
    """Create, move and look at named consumers, whose positions are at the agent.

    NAME is 1 to 100 ASCII letters, digits, '.', '_' or '-'. `oplogctl consumers` lists the
    consumers that are connected at present, with a name or without.
    """


_named = click.argument("name", metavar="NAME", type=Converted("NAME", values.consumer_name))


@consumer.command("list")
@on_topics(writes=False)
def list_(topics: Topics, as_json: bool) -> None:
    """List the named consumers, sorted by name.

    Only those of logs that the password or the token may read.
    """
    show(topics.list_consumers(), as_json)


@consumer.command("show")
@_named
@on_topics(writes=False)
def show_(topics: Topics, name: str, as_json: bool) -> None:
    """Show a named consumer, with position, term, reader and lag of each shard.

    LAG counts the entries behind the acknowledged position, with the age of the oldest. ~: it is
    the share of one shard in the entries of all.
    """
    _show(topics.get_consumer(name), as_json)


@consumer.command()
@_named
@click.argument("log", metavar="LOG", type=Converted("LOG", topic_text))
@option(
    "--type types TYPE",
    values.filtered,
    "Only operations of this type. Can be repeated. Only of system/oplog.",
    multiple=True,
)
@option(
    "--parent parents PARENT",
    values.filtered,
    "Only operations on objects with this parent. Can be repeated. Only of system/oplog.",
    multiple=True,
)
@option(
    "--isolation ISOLATION",
    check_isolation,
    "Of a topic: read_committed or read_uncommitted. Not set: read_committed.",
    choices=get_args(Isolation),
)
@option(
    "--start POSITION",
    values.consumer_position,
    f"Where all shards begin. {_POSITIONS}",
    choices=WORDS,
    default="now",
)
@option(
    "--shards N",
    values.shards,
    f"Number of shards, {MAX_SHARDS} at most. Each has a position and a reader of its own.",
    default="1",
)
@on_topics(writes=True)
def create(
    topics: Topics,
    name: str,
    log: str,
    as_json: bool,
    isolation: Isolation | None,
    **options: Any,
) -> None:
    """Create a named consumer of LOG: system/oplog, NAMESPACE/TOPIC or TOPIC.

    If it exists with the same settings, nothing changes. With other ones it is refused.
    """
    _show(topics.create_consumer(name, log, isolation=isolation, **options), as_json)


@consumer.command()
@_named
@click.argument(
    "position", metavar="POSITION", type=Converted("POSITION", values.consumer_position, WORDS)
)
@option("--shard N", values.shard_number, "Move only this shard. Not set: all.")
@on_topics(writes=True)
def seek(topics: Topics, name: str, position: Any, shard: int | None, as_json: bool) -> None:
    """Move a named consumer to POSITION: now, copy, an id or a time.

    Its present readers end: start them again.
    """
    _show(topics.seek_consumer(name, position, shard), as_json)


@consumer.command()
@_named
@on_topics(writes=True)
def delete(topics: Topics, name: str, as_json: bool) -> None:
    """Delete a named consumer with its positions. Its readers end."""
    topics.delete_consumer(name)
    say({"deleted": name}, f"{name} is deleted", as_json)


def _show(status: ConsumerStatus, as_json: bool) -> None:
    show([status], as_json)
    if not as_json:
        show(status.shards, as_json)
