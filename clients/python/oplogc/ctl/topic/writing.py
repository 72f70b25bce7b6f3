"""The subcommands of ``oplogctl topic`` to publish messages, and to roll them back."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import AgentConnection, Failed
from oplogc.ctl.options.flags import connected, given_flag, named, on_topics, option
from oplogc.ctl.options.inputs import rollback_keys
from oplogc.ctl.output import say
from oplogc.ctl.topic.publishing import MakeMessage, are_published, publish, send_batches
from oplogc.topics import FlushError, Message, Published, Topics
from oplogc.topics.messages.snapshot import pointer_of

_CONTENT: tuple[Callable[[Any], Any], ...] = (
    option("--key KEY", values.key, "Key of each message."),
    option(
        "--header headers NAME=VALUE",
        values.header,
        "Header of each message. Can be repeated.",
        multiple=True,
    ),
    option(
        "--ttl DURATION",
        values.ttl,
        "Time to live of each message, if it is shorter than the topic's.",
    ),
)


def _content(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of messages. The command gets ``message``: it makes one of a payload."""

    @functools.wraps(command)
    def call(
        key: str | None, headers: tuple[tuple[str, str], ...], ttl: int | None, **rest: Any
    ) -> Any:
        return command(message=lambda payload: Message(payload, key, headers, ttl), **rest)

    for flag in reversed(_CONTENT):
        flag(call)
    return call


@click.command("publish")
@named
@click.argument("messages", nargs=-1, metavar="[MESSAGE...|-]")
@_content
@option(
    "--pointer POINTER",
    pointer_of,
    "Publish under this write pointer of a foreign transaction. Without MESSAGE: publish the"
    " messages that are stored under it.",
)
@connected(writes=True)
def publish_(
    agent: AgentConnection,
    topic: str,
    messages: tuple[str, ...],
    message: MakeMessage,
    pointer: int | None,
    as_json: bool,
) -> None:
    """Publish messages. `-` publishes each line of stdin.

    Ends when all messages are durable at the agent. After a lost answer messages are sent again,
    so that some may be stored twice; with --pointer they are not.

    With --pointer and --json it prints the agent's answers, which `rollback` takes.
    """
    if pointer is not None:
        if not messages and (flag := given_flag("key", "headers", "ttl")):
            raise click.UsageError(f"{flag}: give messages; stored ones keep what they have")
        with agent.topics() as topics:
            _publish_under(topics, topic, pointer, messages, message, as_json)
        return
    payloads = _payloads(messages)
    topics = agent.topics()
    try:
        count = publish(topics, topic, payloads, message)
    finally:
        with contextlib.suppress(FlushError):
            topics.close(0)  # nothing is left, or it is not waited for
    say({"topic": topic, "published": count}, f"{are_published(count)} to {topic}", as_json)


_pointer = option(
    "--pointer POINTER", pointer_of, "The write pointer of a foreign transaction.", required=True
)


@click.command()
@named
@click.argument("messages", nargs=-1, metavar="MESSAGE...|-")
@_content
@_pointer
@on_topics(writes=True)
def store(
    topics: Topics,
    topic: str,
    messages: tuple[str, ...],
    message: MakeMessage,
    pointer: int,
    as_json: bool,
) -> None:
    """Store messages under a pointer. `-` stores each line of stdin.

    Readers get them after `publish --pointer`, which publishes them together. After a lost answer
    they are not sent again.
    """
    payloads = _payloads(messages)
    count = send_batches(
        lambda batch: topics.pointers.store(topic, pointer, *batch), payloads, message, "stored"
    )
    shown = {"topic": topic, "pointer": str(pointer), "stored": count}
    text = f"{are_published(count, 'stored')} in {topic} under pointer {pointer}"
    say(shown, text, as_json)


@click.command()
@named
@click.argument("keys", nargs=-1, metavar="[KEY...|@FILE|-]")
@_pointer
@click.option(
    "--force",
    is_flag=True,
    help="Also after the report of a commit. Readers may have the messages; those that resume"
    " before them get a gap.",
)
@on_topics(writes=True)
def rollback(
    topics: Topics,
    topic: str,
    keys: tuple[str, ...],
    pointer: int,
    force: bool,
    as_json: bool,
) -> None:
    """Remove messages under a pointer from a topic, for every reader.

    KEY is the place of an entry, 20 hexadecimal digits. @FILE and `-` take the answers of
    `publish --pointer --json` from a file or from stdin. Without them everything under the pointer
    is removed. It can be repeated. It is refused after the report of a commit.
    """
    chosen = rollback_keys(keys, topic, pointer) if keys else None
    topics.pointers.rollback(topic, pointer, chosen, force=force)
    shown = {"topic": topic, "pointer": str(pointer), "keys": chosen}
    text = "everything" if chosen is None else f"entries: {len(chosen):,}"
    say(shown, f"rolled back in {topic} under pointer {pointer}: {text}", as_json)


COMMANDS = (publish_, store, rollback)


def _publish_under(
    topics: Topics,
    topic: str,
    pointer: int,
    messages: tuple[str, ...],
    message: MakeMessage,
    as_json: bool,
) -> None:
    def tell(answer: Published) -> None:
        if as_json:
            print(json.dumps(answer.as_json()))

    if messages:
        count = send_batches(
            lambda batch: tell(topics.pointers.publish(topic, pointer, *batch)),
            _payloads(messages),
            message,
            "published",
        )
        text = are_published(count)
    else:
        tell(topics.pointers.publish(topic, pointer))
        text = "the stored messages are published"
    if not as_json:
        print(f"{text} to {topic} under pointer {pointer}")


def _payloads(messages: tuple[str, ...]) -> Iterable[bytes]:
    if not messages or (len(messages) > 1 and "-" in messages):
        raise click.UsageError("give messages, or - alone for the lines of stdin")
    if messages == ("-",):
        if sys.stdin is None:
            raise Failed("stdin is closed: there is nothing to read")
        return (line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer)
    return map(os.fsencode, messages)  # as they stand in the command line
