"""Addresses, failures and binary values of the sink for PostgreSQL, without a server."""

from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.sinks.postgres import arrays
from oplog_pipe.sinks.postgres.address import conninfo, unverified
from oplog_pipe.sinks.postgres.failures import failure, refusal
from oplog_pipe.sinks.postgres.sink import _split
from tests.kits.pipe.messages import message

ROOT = Path("/etc/pipe")


@pytest.mark.parametrize(
    ("query", "name", "path"),
    [
        ("sslrootcert=ca.pem", "sslrootcert", "/etc/pipe/ca.pem"),
        ("sslrootcert=/ca.pem", "sslrootcert", "/ca.pem"),
        ("sslrootcert=system", "sslrootcert", "system"),
        ("sslcert=tls/own.pem", "sslcert", "/etc/pipe/tls/own.pem"),
        ("sslkey=own.key", "sslkey", "/etc/pipe/own.key"),
        ("passfile=pass", "passfile", "/etc/pipe/pass"),
    ],
)
def test_files_in_a_url_start_at_the_folder_of_the_settings(
    query: str, name: str, path: str
) -> None:
    assert conninfo_to_dict(conninfo(f"postgresql://u@h/d?{query}", ROOT))[name] == path


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://u@db.example.com/d", "prefer"),
        ("postgresql://u@db.example.com/d?sslmode=require", "require"),
        ("postgresql://u@localhost,db.example.com/d?sslmode=disable", "disable"),
        ("postgresql://u@localhost/d?hostaddr=192.0.2.1", "prefer"),
    ],
)
def test_a_connection_that_does_not_verify_its_server_is_told(url: str, mode: str) -> None:
    told = unverified(url)
    assert told is not None
    assert told.startswith(f"sslmode is {mode}: ")
    assert ("unencrypted" in told) == (mode != "require")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@db.example.com/d?sslmode=verify-full&sslrootcert=ca.pem",
        "postgresql://u@db.example.com/d?sslmode=verify-ca",
        "postgresql://u@db.example.com/d?sslrootcert=system",
        "postgresql://u@localhost/d",
        "postgresql://u@127.0.0.1/d",
        "postgresql://u@/d?host=/run/postgresql",
        "postgresql:///d",
    ],
)
def test_a_server_that_is_verified_or_local_is_not_told(url: str) -> None:
    assert unverified(url) is None


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  password authentication failed for user "u"',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "::1", user "u", database "d", no encryption',
        'FATAL:  role "u" does not exist',
        'FATAL:  database "d" does not exist',
        'FATAL:  role "u" is not permitted to log in',
        "FATAL:  SASL authentication failed",
        "FATAL:  no such user: u",
        'root certificate file "/ca.pem" does not exist',
    ],
)
def test_a_refused_connection_is_a_failure_of_the_target(text: str) -> None:
    found = refusal(psycopg.OperationalError(f"connection to server failed: {text}"))
    assert isinstance(found, TargetError)
    assert not found.transient


@pytest.mark.parametrize(
    "text",
    [
        "Connection refused",
        "FATAL:  sorry, too many clients already",
        "FATAL:  the database system is starting up",
        "FATAL:  Passwort-Authentifizierung fehlgeschlagen",
        'could not translate host name "db" to address: Name or service not known',
    ],
)
def test_a_connection_that_fails_for_another_reason_is_tried_again(text: str) -> None:
    assert refusal(psycopg.OperationalError(text)).transient


@pytest.mark.parametrize(
    "error", [psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName]
)
def test_statements_that_another_client_of_a_pool_has_prepared_are_no_fault_of_a_message(
    error: type[psycopg.Error],
) -> None:
    found = failure(error("prepared statement"), creates=False)
    assert found.transient
    assert not isinstance(found, TargetError)


@pytest.mark.parametrize(
    "error", [psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.lookup("25P04")]
)
def test_a_transaction_that_the_server_ends_for_its_time_is_tried_again(
    error: type[psycopg.Error],
) -> None:
    assert failure(error("terminating connection"), creates=False).transient


def test_the_error_that_has_aborted_a_pipeline_is_the_one_that_counts() -> None:
    aborted = psycopg.errors.PipelineAborted("pipeline aborted")
    aborted.__context__ = psycopg.errors.UndefinedTable("there is no table")
    found: SinkError = failure(aborted, creates=False)
    assert isinstance(found, TargetError)
    assert "there is no table" in str(found)


def test_arrays_are_those_of_psycopg() -> None:
    """Its own dumpers write the same bytes."""
    from psycopg.types.array import ListBinaryDumper

    def by_psycopg(values: list[object]) -> bytes:
        dumper = ListBinaryDumper(list, None)
        return bytes(dumper.upgrade(values, psycopg.adapt.PyFormat.BINARY).dump(values) or b"")

    assert arrays.strings([b"a", "é☃".encode(), b""]) == by_psycopg(["a", "é☃", ""])
    numbers: list[object] = [1 << 40, -(1 << 62)]
    assert arrays.numbers([1 << 40, -(1 << 62)]) == by_psycopg(numbers)
    moments: list[object] = [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)]
    assert arrays.times([-31_536_000_000, 1_769_817_600_000]) == by_psycopg(moments)


def test_the_objects_of_a_batch_are_divided_in_each_process_alike() -> None:
    objects = {id: (0, message(0, id)) for id in ["a", "b", "c", "d", "\ud800"]}
    parts = _split({"video": objects, "number": {"7": objects["a"]}}, 2, whole={"number"})
    assert [list(each["video"]) for each in parts] == [["d", "\ud800"], ["a", "b", "c"]]
    assert [each.get("number") for each in parts] == [{"7": objects["a"]}, None]
