import json
import logging
import re
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from oplogd.host.logs import Episode, configure
from tests.kits.clock.virtual import VirtualClock

AT = 1_795_168_800.0  # 2026-11-20T10:00:00Z
LOGGERS = ("", "oplogd", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(each.level, each.handlers[:], each.propagate, each.disabled) for each in loggers]
    yield
    for logger, (level, handlers, propagate, disabled) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
        logger.propagate, logger.disabled = propagate, disabled


def emit(
    name: str, level: int, message: str, *args: object, created: float = AT, **more: Any
) -> None:
    logger = logging.getLogger(name)
    record = logger.makeRecord(name, level, "file", 1, message, args, more.get("exc_info"))
    record.created = created
    logger.handle(record)


@pytest.mark.parametrize(
    ("level", "created", "line"),
    [
        (logging.INFO, AT, "2026-11-20T10:00:00.000Z INFO  oplogd.udp: took 3"),
        (logging.ERROR, AT + 0.9996, "2026-11-20T10:00:00.999Z ERROR oplogd.udp: took 3"),
        (logging.WARNING, AT + 1.25, "2026-11-20T10:00:01.250Z WARNING oplogd.udp: took 3"),
    ],
)
def test_a_text_line_has_utc_time_level_logger_and_message(
    level: int, created: float, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("text", debug=False)
    emit("oplogd.udp", level, "took %d", 3, created=created)
    out, err = capsys.readouterr()
    assert (out, err) == ("", line + "\n")


def test_a_line_break_in_a_message_does_not_begin_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("text", debug=False)
    emit("oplogd", logging.INFO, "bad type %s", "ü\r\n\x1b[0m\u2028\ud800'")
    assert capsys.readouterr().err.endswith("oplogd: bad type ü\\r\\n\\x1b[0m\\u2028\\ud800'\n")


def test_a_json_line_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", debug=False)
    emit("oplogd.udp", logging.WARNING, "two\nlines %s", "\ud800")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) == {
        "time": "2026-11-20T10:00:00.000Z",
        "level": "WARNING",
        "logger": "oplogd.udp",
        "message": "two\nlines \ud800",
    }


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_an_exception_is_logged_with_its_message(
    fmt: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(fmt, debug=False)
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("oplogd").exception("failed")
    lines = capsys.readouterr().err.splitlines()
    trace = json.loads(lines[0])["exception"].splitlines() if fmt == "json" else lines[1:]
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "ValueError: odd")


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_an_exception_outside_of_an_except_block_is_no_trouble(
    fmt: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(fmt, debug=False)
    logging.getLogger("oplogd").exception("failed")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "debug", "shown"),
    [
        ("oplogd.udp", False, ["INFO", "WARNING", "ERROR"]),
        ("oplogd.udp", True, ["DEBUG", "INFO", "WARNING", "ERROR"]),
        ("uvicorn.error", True, ["WARNING", "ERROR"]),
        ("uvicorn.access", True, []),
        ("asyncio.other", True, ["WARNING", "ERROR"]),
    ],
)
def test_each_logger_shows_its_levels(
    name: str, debug: bool, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    uvicorn = logging.getLogger(name)
    if name.startswith("uvicorn"):
        uvicorn.addHandler(logging.StreamHandler())
    configure("text", debug=debug)
    for level in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(name), level)("message")
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == shown


def test_configuring_again_replaces_the_handler(capsys: pytest.CaptureFixture[str]) -> None:
    configure("text", debug=False)
    configure("json", debug=False)
    logging.getLogger("oplogd").info("once")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "once"


def test_the_time_of_a_line_is_now(capsys: pytest.CaptureFixture[str]) -> None:
    configure("text", debug=False)
    logging.getLogger("oplogd").info("now")
    assert re.match(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO  oplogd: now\n", capsys.readouterr().err
    )


def test_an_episode_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    episode = Episode(logging.getLogger("oplogd.test"), "queue full", clock=clock.monotonic)
    episode.end()
    assert not episode.active
    episode.occurred(detail="100 waiting")
    assert episode.active
    for _ in range(3):
        clock.seconds += 0.5
        episode.occurred(2)
    clock.seconds += 1
    episode.end()
    episode.end()
    assert not episode.active
    assert caplog.messages == ["queue full: 100 waiting", "queue full: over, 7 times in 2.5 s"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_second_episode_counts_anew(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    episode = Episode(
        logging.getLogger("oplogd.test"), "50% full", level=logging.ERROR, clock=clock.monotonic
    )
    for _ in range(2):
        episode.occurred()
        episode.end()
    assert caplog.messages == ["50% full", "50% full: over, 1 time in 0.0 s"] * 2


def test_an_episode_with_quiet_outlives_short_pauses(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    episode = Episode(logging.getLogger("oplogd.test"), "full", quiet=5, clock=clock.monotonic)
    for _ in range(4):
        episode.occurred()
        clock.seconds += 4
        episode.end()
    assert caplog.messages == ["full"]
    clock.seconds += 1
    episode.end()
    assert caplog.messages == ["full", "full: over, 4 times in 12.0 s"]


def test_a_forced_end_does_not_wait_for_the_quiet(caplog: pytest.LogCaptureFixture) -> None:
    episode = Episode(
        logging.getLogger("oplogd.test"), "full", quiet=5, clock=VirtualClock().monotonic
    )
    episode.occurred()
    episode.end(force=True)
    assert caplog.messages == ["full", "full: over, 1 time in 0.0 s"]
