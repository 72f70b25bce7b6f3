"""The commands ``oplogctl status`` and ``oplogctl consumers``."""

import json
from typing import Any

import click

from oplogc.ctl.options.connection import AgentConnection, Failed
from oplogc.ctl.options.flags import connected
from oplogc.ctl.status.lines import consumer_lines, status_lines
from oplogc.ctl.status.members import unexpected_member
from oplogc.http.answers import printable
from oplogc.topics.calls.call import Call, nothing
from oplogc.topics.calls.topics import refusal
from oplogc.topics.messages.names import OPLOG

_STATUS = Call("GET", "/status", nothing)
# A small answer for which an agent wants its password for reading.
_GUARDED = Call("GET", OPLOG.path, nothing)


@click.command()
@connected(writes=False)
def status(agent: AgentConnection, as_json: bool) -> None:
    """Show whether an agent works, and its main figures.

    Ends with exit code 1 if it is DEGRADED. With --json: the whole answer of /status. Without the
    password for reading the agent leaves out consumers and refused datagrams: stderr says so.
    """
    found = _status(agent)
    for line in [json.dumps(found)] if as_json else status_lines(found):
        print(line)
    if "consumers" not in found and (refused := _refusal(agent)):
        click.echo(f"oplogctl: consumers and refused datagrams are left out: {refused}", err=True)
    if found["status"] != "OK":
        reason = found.get("reason", "it gives no reason")
        raise Failed(printable(f"the agent is {found['status']}: {reason}"))


@click.command()
@connected(writes=False)
def consumers(agent: AgentConnection, as_json: bool) -> None:
    """List the consumers that are connected to an agent, the largest lag first.

    Their connections, whether they have a named consumer or not. `oplogctl consumer` is for the
    named ones, whose positions are at the agent.

    LAG counts what was not yet handed to a consumer's connection. What a consumer has received and
    not handled yet is not in it.
    """
    found = _status(agent)
    if "consumers" not in found:
        raise Failed(
            _refusal(agent)
            or "the agent shows its consumers to clients with its password for reading; if it has"
            " none, on its own machine only"
        )
    listed = found["consumers"]
    for line in map(json.dumps, listed) if as_json else consumer_lines(listed):
        print(line)
    if left := found.get("consumers_left_out"):
        click.echo(f"and {left:,} others", err=True)


def _status(agent: AgentConnection) -> dict[str, Any]:
    """Return the members of /status, whose types are right. Raises OplogError, Failed."""
    answer = agent.ask_once(_STATUS)
    found = answer.members()
    if "status" in found:
        if member := unexpected_member(found):
            raise Failed(
                f"{answer.url}: this is no agent of oplog (unexpected member {member} in /status)"
            )
        return found
    if answer.status != 503 and (error := refusal(_STATUS, answer)) is not None:
        raise error
    raise Failed(f"{answer.url} is no agent: it has no status")


def _refusal(agent: AgentConnection) -> str:
    """Return why the agent refuses this client's reads, empty if not for its password."""
    try:
        answer = agent.ask_once(_GUARDED)
    except Failed:
        return ""
    if answer.status == 401:
        return agent.password_problem(writes=False)
    return answer.sentence() if answer.status == 429 else ""
