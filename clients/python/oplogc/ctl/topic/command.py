"""``oplogctl topic``, and its subcommands that create, change and delete topics."""

from collections.abc import Callable
from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.flags import named, on_topics, option
from oplogc.ctl.output import say, show
from oplogc.ctl.topic import reading as topic_reading
from oplogc.ctl.topic import writing as topic_writing
from oplogc.terminal.options import Converted
from oplogc.topics import Topics
from oplogc.topics.messages.names import namespace_name


@click.group(no_args_is_help=True)
def topic() -> None:
    """Create topics, publish to them and look into them.

    TOPIC is NAMESPACE/NAME, or NAME in the namespace default. No command of these consumes
    anything: messages stay until their time to live is over.
    """


def _of_pointers(*, is_new: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options about pointers. A topic to change keeps those that are not given."""
    timeout = option(
        "--pointer-timeout DURATION" + ("" if is_new else "|default"),
        values.pointer_timeout if is_new else values.or_word("default", values.pointer_timeout),
        "How long a pointer stays open in it: 1s to 30d. Not set: "
        + ("the agent's default." if is_new else "as before."),
        choices=() if is_new else ("default",),
    )
    pointers = option(
        "--pointers on|off",
        values.on_or_off,
        "Whether it takes messages under pointers." + ("" if is_new else " Not set: as before."),
        choices=("on", "off"),
        default="on" if is_new else None,
    )
    return lambda command: pointers(timeout(command))


@topic.command()
@named
@option(
    "--ttl DURATION",
    values.ttl,
    "Time to live of its messages: 90s, 10m, 12h or 7d. Not set: the agent's default.",
)
@_of_pointers(is_new=True)
@option(
    "--max-bytes SIZE",
    values.max_bytes,
    "Bytes above which its oldest messages leave, such as 500MB or 2GB. Not set: no bound.",
)
@on_topics(writes=True)
def create(topics: Topics, topic: str, as_json: bool, **properties: Any) -> None:
    """Create a topic."""
    show([topics.create(topic, **properties)], as_json)


@topic.command()
@named
@option(
    "--ttl DURATION|default",
    values.or_word("default", values.ttl),
    "New time to live of its messages, or default: the agent's.",
    choices=("default",),
    required=True,
)
@_of_pointers(is_new=False)
@option(
    "--max-bytes SIZE|none",
    values.or_word("none", values.max_bytes),
    "Bytes above which its oldest messages leave. Not set: as before.",
    choices=("none",),
)
@on_topics(writes=True)
def update(
    topics: Topics, topic: str, pointers: bool | None, as_json: bool, **given: int | None
) -> None:
    """Change the properties of a topic."""
    before = topics.get(topic)
    # None keeps a property, 0 stands for its default.
    properties: dict[str, Any] = {
        name: getattr(before, name) if value is None else value or None
        for name, value in given.items()
    }
    properties["pointers"] = before.pointers if pointers is None else pointers
    show([topics.update(topic, **properties)], as_json)


@topic.command("list")
@click.argument(
    "namespace", metavar="[NAMESPACE]", required=False, type=Converted("NAMESPACE", namespace_name)
)
@on_topics(writes=False)
def list_(topics: Topics, namespace: str | None, as_json: bool) -> None:
    """List the topics of a namespace. Without one: of all namespaces."""
    names = [each.name for each in topics.namespaces()] if namespace is None else [namespace]
    for name in names:
        show(topics.list(name), as_json)


@topic.command("show")
@named
@on_topics(writes=False)
def show_(topics: Topics, topic: str, as_json: bool) -> None:
    """Show the properties of a topic."""
    show([topics.get(topic)], as_json)


@topic.command()
@named
@on_topics(writes=True)
def delete(topics: Topics, topic: str, as_json: bool) -> None:
    """Delete a topic with all its messages."""
    topics.delete(topic)
    say({"deleted": topic}, f"{topic} is deleted", as_json)


for _command in (*topic_writing.COMMANDS, *topic_reading.COMMANDS):
    topic.add_command(_command)
