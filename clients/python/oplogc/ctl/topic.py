"""``oplogctl topic``, and its subcommands that create, change and delete topics."""

import json
from collections.abc import Callable
from typing import Any

import click

from oplogc.ctl import topic_reading, topic_writing, values
from oplogc.ctl.lines import topic_json, topic_line
from oplogc.ctl.options import Connection, Converted, as_json, connected, named, option
from oplogc.topics import Topic
from oplogc.topics.names import DEFAULT_NAMESPACE, namespace_name


@click.group(no_args_is_help=True)
def topic() -> None:
    """Create topics, publish to them and look into them.

    TOPIC is NAMESPACE/NAME, or NAME in the namespace default. No command of these consumes
    anything: messages stay until their time to live is over.
    """


def _of_pointers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the properties that concern pointers."""
    timeout = option(
        "--pointer-timeout",
        metavar="DURATION",
        convert=values.pointer_timeout,
        help="How long a pointer stays open in it: 1s to 30d. Not set: the agent's default.",
    )
    pointers = option(
        "--pointers",
        metavar="on|off",
        convert=values.on_or_off,
        choices=("on", "off"),
        default="on",
        show_default=True,
        help="Whether it takes messages under pointers.",
    )
    made: Callable[..., Any] = pointers(timeout(command))
    return made


@topic.command()
@named()
@option(
    "--ttl",
    metavar="DURATION",
    convert=values.ttl,
    help="Time to live of its messages: 90s, 10m, 12h or 7d. Not set: the agent's default.",
)
@_of_pointers
@as_json
@connected(writes=True)
def create(
    connection: Connection,
    topic: str,
    ttl: int | None,
    pointers: bool,
    pointer_timeout: int | None,
    as_json: bool,
) -> None:
    """Create a topic."""
    with connection.topics() as topics:
        made = topics.create(topic, ttl=ttl, pointers=pointers, pointer_timeout=pointer_timeout)
        _show_topic(made, as_json)


@topic.command()
@named()
@option(
    "--ttl",
    metavar="DURATION|default",
    convert=values.new_ttl,
    choices=("default",),
    required=True,
    help="New time to live of its messages, or default: the agent's.",
)
@_of_pointers
@as_json
@connected(writes=True)
def update(
    connection: Connection,
    topic: str,
    ttl: int,
    pointers: bool,
    pointer_timeout: int | None,
    as_json: bool,
) -> None:
    """Replace the properties of a topic.

    One that is not given gets its default.
    """
    with connection.topics() as topics:
        changed = topics.update(
            topic, ttl=ttl or None, pointers=pointers, pointer_timeout=pointer_timeout
        )
        _show_topic(changed, as_json)


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
@named()
@as_json
@connected(writes=False)
def show(connection: Connection, topic: str, as_json: bool) -> None:
    """Show the properties of a topic."""
    with connection.topics() as topics:
        _show_topic(topics.get(topic), as_json)


@topic.command()
@named()
@as_json
@connected(writes=True)
def delete(connection: Connection, topic: str, as_json: bool) -> None:
    """Delete a topic with all its messages."""
    with connection.topics() as topics:
        topics.delete(topic)
    print(json.dumps({"deleted": topic}) if as_json else f"{topic} is deleted")


def _show_topic(topic: Topic, as_json: bool) -> None:
    print(topic_json(topic) if as_json else topic_line(topic))


for _command in (*topic_writing.COMMANDS, *topic_reading.COMMANDS):
    topic.add_command(_command)
