"""The subcommands of ``oplogctl txn``."""

from typing import Any

import click

from oplogc.ctl.options import values
from oplogc.ctl.options.connection import AgentConnection
from oplogc.ctl.options.flags import connected, limit, on_topics, option
from oplogc.ctl.output import follow_topic, show
from oplogc.terminal.options import Converted
from oplogc.terminal.values import count as whole_number
from oplogc.topics import Topics
from oplogc.topics.calls.transactions import DEFAULT_GROUP, STATES, group_log
from oplogc.topics.calls.transactions import transaction_id as id_of


@click.group(no_args_is_help=True)
def txn() -> None:
    """Look at transactions, and abort them.

    ID is the number of a transaction, as `list` and the agent show it.
    """


def _group(text: str) -> str:
    group_log(text)
    return text


_named = click.argument("txn", metavar="ID", type=Converted("ID", id_of))


@txn.command("list")
@option(
    "--state STATE",
    values.state,
    f"Only transactions in this state: {', '.join(STATES)}.",
    STATES,
)
@option("--group GROUP", _group, "Only transactions of this group.")
@limit("transactions")
@on_topics(writes=False)
def list_(topics: Topics, as_json: bool, **options: Any) -> None:
    """List transactions, the newest first."""
    show(topics.list_transactions(**options), as_json)


@txn.command("show")
@_named
@on_topics(writes=False)
def show_(topics: Topics, txn: str, as_json: bool) -> None:
    """Show a transaction."""
    show([topics.get_transaction(txn)], as_json)


@txn.command()
@_named
@on_topics(writes=True)
def abort(topics: Topics, txn: str, as_json: bool) -> None:
    """Abort a transaction that is open, and show it.

    One that was aborted before, or timed out, is shown.
    """
    show([topics.abort_transaction(txn)], as_json)


@txn.command()
@option("--group GROUP", _group, "The group of transactions.", default=DEFAULT_GROUP)
@option(
    "--from start POSITION",
    values.position,
    "Begin here: at this position with the records that are there, behind it with --follow."
    " 0 is the oldest record.",
    default="0",
)
@option("--count -n N", whole_number, "End after N records.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new records, until Ctrl-C.")
@connected(writes=False)
def log(
    agent: AgentConnection, group: str, start: Any, count: int | None, follow: bool, as_json: bool
) -> None:
    """Print the commit log of a group: when transactions began, committed or were aborted.

    It is the topic system/_txn.GROUP, which exists once the group was used.
    """
    topic = str(group_log(group))
    if follow:
        follow_topic(agent.stream(topic, start=start), count, as_json)
        return
    with agent.topics() as topics:
        found = topics.poll(topic, None if start == "0" else start, limit=count).messages
        while found:
            show(found, as_json)
            if count is not None:
                count -= len(found)
            if count == 0:
                return
            found = topics.poll(topic, found[-1].id, inclusive=False, limit=count).messages
