"""The subcommands of ``oplogctl pointer``."""

import json
from collections.abc import Callable
from typing import Any

import click

from oplogc.ctl.options.connection import Connection
from oplogc.ctl.options.flags import as_json, connected, option
from oplogc.ctl.output.lines import listed_pointer_json, listed_pointer_lines
from oplogc.terminal.options import Converted
from oplogc.topics.calls.pointers import MAX_TOPICS
from oplogc.topics.messages.names import topic_name
from oplogc.topics.messages.snapshot import pointer_of


@click.group(no_args_is_help=True)
def pointer() -> None:
    """Report the end of foreign transactions, and list those that are open.

    POINTER is the write pointer of a transaction of another transaction manager. Readers without
    its snapshot wait for the report, or for its time-out.
    """


@pointer.command("list")
@as_json
@connected(writes=False)
def list_(connection: Connection, as_json: bool) -> None:
    """List the open pointers of all topics, the oldest first.

    HOLDS tells whether readers wait for it. `oplogctl topic pointers` lists those of one topic.
    """
    with connection.topics() as topics:
        found = topics.pointers.list_all()
    for line in map(listed_pointer_json, found) if as_json else listed_pointer_lines(found):
        print(line)


def _report(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of a report."""
    for add in (
        connected(writes=True),
        as_json,
        option(
            "--topic topics",
            "TOPIC",
            lambda text: str(topic_name(text)),
            f"A topic with messages under it. Can be repeated, {MAX_TOPICS:,} times at most.",
            multiple=True,
            required=True,
        ),
        click.argument("pointer", metavar="POINTER", type=Converted("POINTER", pointer_of)),
    ):
        command = add(command)
    return command


@pointer.command()
@_report
def commit(connection: Connection, pointer: int, topics: tuple[str, ...], as_json: bool) -> None:
    """Report that the transaction of a pointer has committed."""
    with connection.topics() as client:
        client.pointers.commit(pointer, topics)
    _show(pointer, "committed", topics, as_json)


@pointer.command()
@_report
def abort(connection: Connection, pointer: int, topics: tuple[str, ...], as_json: bool) -> None:
    """Report that the transaction of a pointer was aborted."""
    with connection.topics() as client:
        client.pointers.abort(pointer, topics)
    _show(pointer, "aborted", topics, as_json)


def _show(pointer: int, state: str, topics: tuple[str, ...], as_json: bool) -> None:
    names = list(dict.fromkeys(topics))
    shown = {"pointer": str(pointer), "state": state, "topics": names}
    print(json.dumps(shown) if as_json else f"pointer {pointer} is {state} in {', '.join(names)}")
