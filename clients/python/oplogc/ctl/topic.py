"""``oplogctl topic``, and its subcommands that create, change and delete topics."""

import json

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


@topic.command()
@named()
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
@named()
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
