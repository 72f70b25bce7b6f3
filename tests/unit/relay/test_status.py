"""The figures of a relay as its log, ``status`` and Prometheus show them."""

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from oplog_kit import logs as relay_logs
from oplog_kit.units import rough_duration
from oplog_relay import (
    Backlog,
    Blocked,
    LeaderAcquired,
    LeaderFenced,
    LeaderRefreshed,
    LeaderRevoked,
    LeaseState,
    MeterRead,
)
from oplog_relay.commands.status import MAX_COUNTED, Status, lines, members
from oplog_relay.model.note import note, read_note
from oplog_relay.watch.progress import is_busy, log_event, progress

IDLE = MeterRead(0.0, 5000, 0, 0, 0, 0.0, 0)
MINE = UUID("4ffe2e3e-a1d3-4ee8-ac0e-b9bee02d8a12")
OTHER = "b5c1f5b4-0000-4000-8000-000000000000"
BLOCKED = Blocked(17, "orders", "42", "no topic", datetime(2026, 1, 31, tzinfo=UTC), 3)


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[str]]]:
    """Return the lines that were logged since the last call."""
    loggers = [logging.getLogger(name) for name in ("", *relay_logs.LOGGERS)]
    levels = [each.level for each in loggers]
    yield lambda: capsys.readouterr().err.splitlines()
    forget()
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


def forget() -> None:
    """Undo ``logs.configure``."""
    root = logging.getLogger()
    for each in list(root.handlers):
        if type(each.formatter).__module__ == relay_logs.__name__:
            root.removeHandler(each)


def led(text: str, *, expires_in: float = 9.5, holder: str | None = "h:1:x") -> Status:
    """Return the status of a lease with a note."""
    lease = LeaseState(False, holder, 7, expires_in, text)
    return Status(True, lease, read_note(text), Backlog(0, 0.0))


def a_note(*blocked: Blocked, in_flight: int = 12) -> str:
    reading = MeterRead(812.44, 4210, in_flight, 9, 30, 3.2, len(blocked))
    return note("host-a", 4711, reading, blocked, MINE)


def test_a_relay_that_has_nothing_to_do_is_silent(stderr: Callable[[], list[str]]) -> None:
    relay_logs.configure("text", False)
    log_event(IDLE)
    assert stderr() == []
    for busy in (
        IDLE._replace(rate=0.2),
        IDLE._replace(in_flight=1),
        IDLE._replace(backlog=1),
        IDLE._replace(blocked=1),
    ):
        assert is_busy(busy)
        log_event(busy)
    assert len(stderr()) == 4


def test_the_progress_is_rate_rows_in_flight_backlog_and_age() -> None:
    reading = MeterRead(1234.56, 99, 1000, 7, 45678, 3.21, 2)
    assert progress(reading) == (
        "1,234.6 rows per second, 1,000 in flight, backlog 45,678, oldest row 3.2 s, 2 blocked keys"
    )
    unknown = reading._replace(backlog=None, oldest_seconds=None, blocked=1)
    assert progress(unknown) == "1,234.6 rows per second, 1,000 in flight, 1 blocked key"


def test_durations_have_the_units_that_people_use() -> None:
    assert [rough_duration(each) for each in (0.0, 0.0204, 59.94, 61.0, 3599.9, 7500.0)] == [
        "0 ms", "20 ms", "59.9 s", "1 min 1 s", "59 min 59 s", "2 h 5 min",
    ]  # fmt: skip


def test_begin_end_loss_and_renewal_of_the_lead_are_lines_with_the_reason(
    stderr: Callable[[], list[str]],
) -> None:
    relay_logs.configure("text", False)
    for event in (
        LeaderAcquired(MINE, 1),
        LeaderRefreshed(MINE, 2, "the agent\nis away"),
        LeaderFenced(MINE, 2, "no answer"),
        LeaderRevoked(MINE, 3),
    ):
        log_event(event)
    told = [line.partition(" oplog_relay: ") for line in stderr()]
    assert [(head.split()[1], text) for head, _, text in told] == [
        ("INFO", f"leading begins: term 1, leader id {MINE}"),
        ("INFO", f"leading continues with term 2, leader id {MINE}: the agent\\nis away"),
        ("WARNING", "leading is lost: term 2: no answer"),
        ("INFO", "leading ends: term 3 is handed over"),
    ]


def test_a_long_series_of_failures_becomes_quiet(stderr: Callable[[], list[str]]) -> None:
    relay_logs.configure("text", False)
    for number in range(1, 101):
        log_event(LeaderRefreshed(MINE, number, "away", number))
    terms = [line.partition(" term ")[2].partition(",")[0] for line in stderr()]
    assert terms == ["1", "2", "4", "8", "16", "32", "64"]


def test_a_traceback_is_logged_only_if_asked(stderr: Callable[[], list[str]]) -> None:
    def fail() -> None:
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("oplog_relay").exception("it failed")

    relay_logs.configure("text", False)
    fail()
    (line,) = stderr()
    assert line.endswith(" ERROR oplog_relay: it failed: KeyError: 'x'")
    forget()
    relay_logs.configure("json", True)
    fail()
    told = json.loads(stderr()[0])
    assert told["message"] == "it failed: KeyError: 'x'"
    assert told["level"] == "ERROR"
    assert told["exception"].startswith("Traceback")


def test_status_shows_the_leader_its_figures_and_the_outbox() -> None:
    found = led(a_note())
    found.backlog = Backlog(1204, 3.25)
    found.marked = {str(MINE): 700, OTHER: 2}
    assert lines("orders", found) == [
        "orders: led by host-a (process 4711), term 7, expires in 9.5 s",
        "leader: 12 in flight, 4,210 relayed, 812.4 rows per second",
        "outbox: 1,204 rows, the oldest is 3.2 s old",
        "outbox: 2 rows marked by a leader that is gone",
    ]
    assert found.is_well
    shown = members("orders", found)
    assert shown["lease"] == {"holder": "h:1:x", "term": 7, "expires_seconds": 9.5}
    assert shown["outbox"]["marked_by_others"] == 2
    assert json.loads(json.dumps(shown))["leader"]["leader_id"] == str(MINE)


def test_status_names_blocked_rows() -> None:
    found = led(a_note(BLOCKED))
    assert lines("orders", found)[2:] == [
        "blocked: 1 key; see `oplog-relay skip --help`",
        "  row 17, topic orders, key 42: no topic (3 attempts since 2026-01-31T00:00:00+00:00)",
        "outbox: empty",
    ]
    assert found.is_led
    assert not found.is_well


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (Status(True), "orders: no relay has ever led"),
        (Status(problems=["away"]), "orders: the lease is not known"),
        (led("", expires_in=0.0), "orders: no relay leads; the term 7 of h:1:x has expired"),
        (
            led(a_note(), expires_in=0.0),
            "orders: no relay leads; the term 7 of host-a (process 4711) has expired",
        ),
        (
            led(a_note(), expires_in=0.0, holder=None),
            "orders: no relay leads; the last leader has handed over term 7",
        ),
    ],
    ids=["never", "unknown", "expired", "expired-with-note", "released"],
)
def test_status_is_clear_if_nobody_leads(found: Status, line: str) -> None:
    found.backlog = Backlog(3, 60.0)
    found.marked = {OTHER: 1}
    told = lines("orders", found)
    assert told[:3] == [
        line,
        "outbox: 3 rows, the oldest is 1 min 0 s old",
        "outbox: 1 row marked by a leader that is gone",
    ]
    assert not found.is_well


@pytest.mark.parametrize("text", ["", "later", "[1]", "[" * 100_000, '{"rate": "much"}', "null"])
def test_a_note_of_another_program_does_no_harm(text: str) -> None:
    first, *rest = lines("orders", led(text))
    assert first == "orders: led by h:1:x, term 7, expires in 9.5 s"
    assert rest[-1] == "outbox: empty"


def test_a_count_that_was_cut_short_says_so() -> None:
    found = Status(True, backlog=Backlog(MAX_COUNTED, 1.0))
    assert "outbox: 1,000,000 rows or more, the oldest is 1.0 s old" in lines("orders", found)


def test_a_problem_is_told_and_makes_the_status_fail() -> None:
    found = led(a_note())
    found.backlog = None
    found.problems.append("SQLite (database.url): unable to open database file")
    assert lines("orders", found)[-1] == (
        "problem: SQLite (database.url): unable to open database file"
    )
    assert members("orders", found)["outbox"] is None
    assert not found.is_well
