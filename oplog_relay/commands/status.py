"""``oplog-relay status``: the lease, its leader and the outbox, for people and in JSON."""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from oplog_kit.command.options import PATIENCE, json_option
from oplog_kit.units import rough_duration
from oplog_kit.wording import counted
from oplog_relay.agent.lease import HttpLease
from oplog_relay.commands.options import settings_option
from oplog_relay.commands.validate import check_that_it_has_leases
from oplog_relay.db import open_outbox
from oplog_relay.db.operated import OperatedTable
from oplog_relay.leader.rivals import identity_of
from oplog_relay.model.bindings import Backlog, LeaseState, MeasurableOutbox
from oplog_relay.model.errors import ConfigError, LeaseUnavailableError, OutboxError
from oplog_relay.model.exits import EXIT_FAILED, EXIT_OK
from oplog_relay.model.note import read_note
from oplog_relay.model.place import conflict, holder_of, place_of
from oplog_relay.model.settings import RelaySettings
from oplog_relay.model.stamp import leader_part
from oplogc.http.answers import printable

# Rows that are counted at most, so that a large table costs little.
MAX_COUNTED = 1_000_000


@dataclass
class Status:
    """All that is known. ``problems`` has the reasons for missing parts.

    ``is_asked``: whether an agent has answered about the lease. ``marked``: rows by leader id.
    """

    is_asked: bool = False
    lease: LeaseState | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
    backlog: Backlog | None = None
    marked: Mapping[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def is_led(self) -> bool:
        return self.lease is not None and self.lease.is_held

    @property
    def is_well(self) -> bool:
        return self.is_led and not self.problems and not self.note.get("blocked_keys")

    @property
    def foreign(self) -> int:
        """Rows marked by another than the present leader, as far as its leader id is known."""
        mine = self.note.get("leader_id") if self.is_led else None
        if self.is_led and mine is None:
            return 0
        stamps = leader_part(str(mine))
        return sum(rows for leader, rows in self.marked.items() if leader_part(leader) != stamps)


@click.command()
@settings_option()
@json_option
def status(settings: RelaySettings, as_json: bool) -> int:
    """Show who leads, its progress, the blocked keys and the outbox.

    Exit code: 0 a relay leads and no key is blocked; 1 no relay leads, a key is blocked, the lease
    is held for another outbox, or an agent or the database cannot be asked.
    """
    found = asyncio.run(_ask(settings))
    if as_json:
        print(json.dumps(members(settings.name, found)))
    else:
        print("\n".join(map(printable, lines(settings.name, found))))
    return EXIT_OK if found.is_well else EXIT_FAILED


async def _ask(settings: RelaySettings) -> Status:
    found = Status()
    lease = HttpLease(settings, "oplog-relay status")
    try:
        found.lease = await lease.look(PATIENCE)
        if found.lease is None:  # an agent without leases answers in the same way
            for url in settings.agents.urls:
                one = dataclasses.replace(settings.agents, urls=(url,))
                await check_that_it_has_leases(dataclasses.replace(settings, agents=one))
        found.is_asked = True
    except (ConfigError, LeaseUnavailableError) as error:
        found.problems.append(str(error))
    finally:
        await lease.close()
    if found.lease is not None:
        found.note = read_note(found.lease.note)
    outbox = open_outbox(settings.database)
    try:
        if isinstance(outbox, MeasurableOutbox):
            found.backlog = await outbox.backlog(MAX_COUNTED)
        place = place_of(settings.database, await identity_of(outbox, PATIENCE))
        if found.is_led and (rival := conflict(settings.name, found.note, place)) is not None:
            found.problems.append(rival)
        with OperatedTable(settings.database) as table:
            found.marked = table.marked(MAX_COUNTED)
    except OutboxError as error:
        found.problems.append(str(error))
    finally:
        await outbox.dispose()
    return found


def members(name: str, found: Status) -> dict[str, Any]:
    """Return the JSON of ``--json``."""
    lease, backlog = found.lease, found.backlog
    return {
        "name": name,
        "is_led": found.is_led,
        "lease": None if lease is None else {
            "holder": lease.holder,
            "term": lease.term,
            "expires_seconds": round(lease.expires_in, 3),
        },
        "leader": found.note or None,
        "outbox": None if backlog is None else {
            "rows": backlog.rows,
            "oldest_seconds": round(backlog.oldest_seconds, 3),
            "marked": found.marked,
            "marked_by_others": found.foreign,
        },
        "problems": found.problems,
    }  # fmt: skip


def lines(name: str, found: Status) -> list[str]:
    """Return the lines for people."""
    output = [_lease_line(name, found)]
    if found.is_led:
        output += _leader_lines(found.note)
    if found.backlog is not None:
        output += _outbox_lines(found.backlog, found)
    return [*output, *(f"problem: {each}" for each in found.problems)]


def _lease_line(name: str, found: Status) -> str:
    lease = found.lease
    if lease is None:
        return f"{name}: {'no relay has ever led' if found.is_asked else 'the lease is not known'}"
    if lease.holder is None:
        return f"{name}: no relay leads; the last leader has handed over term {lease.term}"
    who = holder_of(found.note) or lease.holder
    if lease.expires_in <= 0:
        return f"{name}: no relay leads; the term {lease.term} of {who} has expired"
    return f"{name}: led by {who}, term {lease.term}, expires in {rough_duration(lease.expires_in)}"


def _leader_lines(note: Mapping[str, Any]) -> list[str]:
    if not note:
        return ["leader: has left no figures yet"]
    known = [
        f"{note[name]:,} {text}"
        for name, text in (
            ("in_flight", "in flight"), ("relayed", "relayed"), ("rate", "rows per second"),
        )
        if isinstance(note.get(name), int | float)
    ]  # fmt: skip
    output = [f"leader: {', '.join(known)}"]
    if note.get("table"):
        output.append(f"leader: moves table {note['table']} of {note.get('database')}")
    keys = note.get("blocked_keys") or 0
    blocked = note.get("blocked")
    if keys:
        output.append(f"blocked: {counted(keys, 'key')}; see `oplog-relay skip --help`")
        for each in blocked if isinstance(blocked, list) else []:
            output.append(
                f"  row {each.get('id')}, topic {each.get('topic')}, key {each.get('key')}:"
                f" {each.get('reason')} ({counted(each.get('attempts') or 0, 'attempt')}"
                f" since {each.get('since')})"
            )
    return output


def _outbox_lines(backlog: Backlog, found: Status) -> list[str]:
    if not backlog.rows:
        return ["outbox: empty"]
    more = " or more" if backlog.rows >= MAX_COUNTED else ""
    age = rough_duration(backlog.oldest_seconds)
    output = [f"outbox: {counted(backlog.rows, 'row')}{more}, the oldest is {age} old"]
    if found.foreign:
        output.append(f"outbox: {counted(found.foreign, 'row')} marked by a leader that is gone")
    return output
