"""The table of the agent's settings: names, defaults, and a value that does not change."""

import dataclasses
from pathlib import Path

import pytest

from oplog_kit.command.convert import Secret
from oplog_kit.command.flags import flags_of
from oplogd.config.command import parse
from oplogd.config.settings import Settings

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def test_defaults_are_those_of_the_documentation() -> None:
    settings = parse([], {})
    assert settings == Settings()
    assert dataclasses.asdict(settings) == {
        "listen": None,
        "udp_listen": None,
        "store": Path("oplog.db"),
        "mongo_url": None,
        "log_collection": "capped",
        "lease": 5.0,
        "spool": None,
        "spool_size": GB,
        "capped_collection_size": None,
        "disk_reserve": None,
        "object_url": None,
        "password": (),
        "ingest_password": (),
        "rights": None,
        "token_key": (),
        "token_audience": (),
        "allowed_hosts": None,
        "max_queued_events": 100_000,
        "max_queued_bytes": 64 * MB,
        "max_body_size": 16 * MB,
        "max_upload_memory": 64 * MB,
        "max_header_size": 64 * KB,
        "header_timeout": 10.0,
        "body_timeout": 30.0,
        "max_clients": 10_000,
        "max_clients_per_address": 0,
        "max_filter_values": 1000,
        "ring_size": 65_536,
        "ring_bytes": 64 * MB,
        "workers": 1,
        "shutdown_timeout": 30.0,
        "heartbeat": 20.0,
        "max_connection_age": 0.0,
        "stall_timeout": 300.0,
        "tombstone_retention": 0.0,
        "new_epoch": False,
        "topic_ttl": None,
        "topics_max_bytes": None,
        "topic_cleanup": 3600.0,
        "poll_limit": 1000,
        "txn_max_records": 100_000,
        "txn_max_bytes": 64 * MB,
        "pointer_timeout": 900,
        "debug": False,
        "log_format": "text",
        "tls_certificate": None,
        "tls_key": None,
    }


def test_every_field_has_the_flag_and_the_variable_of_its_name() -> None:
    names = [flag.name for flag in flags_of(Settings)]
    for field in dataclasses.fields(Settings):
        assert f"--{field.name.replace('_', '-')}" in names
    assert set(names) - {
        f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(Settings)
    } == {
        "--mongo-url-file",
        "--password-file",
        "--ingest-password-file",
    }
    for flag in flags_of(Settings):
        assert flag.variable == f"OPLOGD_{flag.name[2:].replace('-', '_').upper()}"


def test_secrets_do_not_show() -> None:
    settings = parse(
        [
            "--password",
            "hunter2",
            "--ingest-password",
            "hunter2",
            "--mongo-url",
            "mongodb://u:hunter2@db",
        ],
        {},
    )
    for shown in (
        repr(settings),
        str(settings),
        f"{settings.password}",
        f"{settings.password!r:>9}",
    ):
        assert "hunter2" not in shown
        assert "***" in shown
    assert settings.password == (Secret("hunter2"),)


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse([], {}).debug = True  # type: ignore[misc]
