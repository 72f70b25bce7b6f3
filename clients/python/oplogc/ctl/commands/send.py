"""The command ``oplogctl send``."""

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import AgentConnection
from oplogc.ctl.options.flags import connected, option
from oplogc.ctl.output import say
from oplogc.http.answers import printable
from oplogc.terminal.options import Converted
from oplogc.terminal.values import one_of
from oplogc.topics.calls.call import Call, nothing
from oplogc.wire.errors import OperationError
from oplogc.wire.operation import EVENTS, encode

_EVENT = Converted("EVENT", one_of("an event", EVENTS), EVENTS)


def _object(text: str) -> tuple[str, str]:
    type_, _, id_ = values.text(text).partition("/")
    if not type_ or not id_:
        raise ValueError(f"{text!r} is not TYPE/ID, such as video/x1")
    return type_, id_


@click.command()
@click.argument("event", metavar="insert|update|delete", type=_EVENT)
@click.argument("key", metavar="TYPE/ID", type=Converted("TYPE/ID", _object))
@option(
    "--parent parents PARENT",
    values.text,
    "A parent that the object has now. Can be repeated. Without one it has none.",
    multiple=True,
)
@option(
    "--timestamp TIME",
    values.text,
    "When the object changed, such as 2026-01-31T12:00:00Z. Not set: the time of arrival.",
)
@connected(writes=True)
def send(
    agent: AgentConnection,
    event: str,
    key: tuple[str, str],
    parents: tuple[str, ...],
    timestamp: str | None,
    as_json: bool,
) -> None:
    """Send one operation to the oplog, and wait until it is durable.

    An operation says that an object was inserted, updated or deleted. If an answer is lost, it is
    sent again, and may be stored twice.
    """
    type_, id_ = key
    try:
        body = encode(event, type_, id_, parents, timestamp)
    except OperationError as error:
        raise click.UsageError(str(error)) from None
    agent.ask(Call("POST", "/ops", nothing, body, writes=True, done=204))
    shown = {"event": event, "type": type_.lower(), "id": id_}
    say(shown, printable(f"{event} of {type_.lower()}/{id_} is stored"), as_json)
