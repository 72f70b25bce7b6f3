"""The health of the agent's parts, and its log lines."""

import logging

import pytest

from oplogd.watch.health import Health


def test_the_first_trouble_is_reported_until_its_part_works() -> None:
    health = Health()

    def told() -> list[str | None]:
        return [health.trouble, health.part("writer").trouble, health.part("follower").trouble]

    assert told() == [None, None, None]
    writer, follower = health.part("writer"), health.part("follower")
    writer.bad("full")
    follower.bad("away")
    assert told() == ["full", "full", "away"]
    writer.good()
    assert told() == ["away", None, "away"]
    follower.good()
    assert told() == [None, None, None]


def test_a_trouble_is_logged_when_it_begins_changes_and_ends_and_not_in_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oplogd.store")
    part = Health().part("writer")
    part.good()
    for message in ("full", "full", "locked", "locked"):
        part.bad(message)
    part.good()
    part.good()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "writer: full"),
        ("ERROR", "writer: locked"),
        ("INFO", "writer: the store answers again"),
    ]
