"""The subcommands of ``oplogctl topic`` to publish messages, and to roll them back."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import Connection, Failed
from oplogc.ctl.options.flags import as_json, connected, given_flag, named, option
from oplogc.ctl.options.inputs import rollback_keys
from oplogc.ctl.topic.publishing import PublishError, are_published, lines, publish, send_batches
from oplogc.topics import FlushError, Message, Published
from oplogc.topics.messages.snapshot import pointer_of

_CONTENT: tuple[Callable[[Any], Any], ...] = (
    option("--key", "KEY", values.key, "Key of each message."),
    option(
        "--header headers",
        "NAME=VALUE",
        values.header,
        "Header of each message. Can be repeated.",
        multiple=True,
    ),
    option(
        "--ttl",
        "DURATION",
        values.ttl,
        "Time to live of each message, if it is shorter than the topic's.",
    ),
)


def _content(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of messages."""
    for flag in reversed(_CONTENT):
        flag(command)
    return command


@click.command("publish")
@named()
@click.argument("messages", nargs=-1, metavar="[MESSAGE...|-]")
@_content
@option(
    "--pointer",
    "POINTER",
    pointer_of,
    "Publish under this write pointer of a foreign transaction. Without MESSAGE: publish the"
    " messages that are stored under it.",
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
        _publish_under(connection, topic, pointer, messages, (key, headers, ttl), as_json)
        return
    payloads = _payloads(messages)
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


_pointer = option(
    "--pointer", "POINTER", pointer_of, "The write pointer of a foreign transaction.", required=True
)


@click.command()
@named()
@click.argument("messages", nargs=-1, metavar="MESSAGE...|-")
@_content
@_pointer
@as_json
@connected(writes=True)
def store(
    connection: Connection,
    topic: str,
    messages: tuple[str, ...],
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    ttl: int | None,
    pointer: int,
    as_json: bool,
) -> None:
    """Store messages under a pointer. `-` stores each line of stdin.

    Readers get them after `publish --pointer`, which publishes them together. After a lost answer
    they are not sent again.
    """
    payloads = _payloads(messages)
    with connection.topics() as topics:
        count = send_batches(
            lambda batch: topics.pointers.store(topic, pointer, *batch),
            payloads,
            lambda payload: Message(payload, key, headers, ttl),
            "stored",
        )
    shown = {"topic": topic, "pointer": str(pointer), "stored": count}
    text = f"{are_published(count, 'stored')} in {topic} under pointer {pointer}"
    print(json.dumps(shown) if as_json else text)


@click.command()
@named()
@click.argument("keys", nargs=-1, metavar="[KEY...|@FILE|-]")
@_pointer
@click.option(
    "--force",
    is_flag=True,
    help="Also after the report of a commit. Readers may have the messages; those that resume"
    " before them get a gap.",
)
@as_json
@connected(writes=True)
def rollback(
    connection: Connection,
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
    with connection.topics() as topics:
        topics.pointers.rollback(topic, pointer, chosen, force=force)
    shown = {"topic": topic, "pointer": str(pointer), "keys": chosen}
    text = "everything" if chosen is None else f"entries: {len(chosen):,}"
    print(
        json.dumps(shown) if as_json else f"rolled back in {topic} under pointer {pointer}: {text}"
    )


COMMANDS = (publish_, store, rollback)


def _publish_under(
    connection: Connection,
    topic: str,
    pointer: int,
    messages: tuple[str, ...],
    content: tuple[str | None, tuple[tuple[str, str], ...], int | None],
    as_json: bool,
) -> None:
    def tell(answer: Published) -> None:
        if as_json:
            print(json.dumps(answer.as_json()))

    with connection.topics() as topics:
        if not messages:
            tell(topics.pointers.publish(topic, pointer))
            text = "the stored messages are published"
        else:
            count = send_batches(
                lambda batch: tell(topics.pointers.publish(topic, pointer, *batch)),
                _payloads(messages),
                lambda payload: Message(payload, *content),
                "published",
            )
            text = are_published(count)
    if not as_json:
        print(f"{text} to {topic} under pointer {pointer}")


def _payloads(messages: tuple[str, ...]) -> Iterable[bytes]:
    if not messages or (len(messages) > 1 and "-" in messages):
        raise click.UsageError("give messages, or - alone for the lines of stdin")
    if messages == ("-",):
        if sys.stdin is None:
            raise Failed("stdin is closed: there is nothing to read")
        return lines(sys.stdin.buffer)
    return map(os.fsencode, messages)  # as they stand in the command line
