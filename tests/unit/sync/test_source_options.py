"""The options of the data source."""

from pathlib import Path

import pytest

from oplog_sync.backend import make_backend
from oplog_sync.errors import OptionError
from oplog_sync.source.options import Use, read_options
from oplog_sync.source.positions import Instant, bound, is_past, offset
from oplog_sync.source.write import OplogWriter
from oplogd.model.event_id import EventId
from tests.unit.sync.schemas import schema

_ID = "545b55c7f095528dd0f3863c"


@pytest.mark.parametrize(
    ("options", "use", "message"),
    [
        ({}, "batch", "none of its options; use CREATE TEMPORARY VIEW"),
        ({"table": "states"}, "batch", "option store: name the SQLite file"),
        ({"store": ""}, "batch", "option store: must not be empty"),
        (
            {"store": "a", "table": "rows"},
            "batch",
            "option table: 'rows' is neither states nor operations",
        ),
        (
            {"store": "a", "partitionRows": "0"},
            "batch",
            "option partitionRows: '0' is not a whole number of at least 1",
        ),
        ({"store": "a", "onGap": "x"}, "stream", "option onGap: 'x' is neither fail nor states"),
        (
            {"store": "a", "onGap": "oldest"},
            "stream",
            "of the oplog it is fail or states or copy",
        ),
        ({"store": "a", "agent": "http://b"}, "batch", "either store or agent"),
        ({"store": "a", "colour": "red"}, "batch", "option colour: there is no such option"),
        ({"store": "a", "pushFilters": "true"}, "batch", "pushFilters: it is gone; types"),
        ({"store": "a", "password": "x"}, "batch", "option password: it is for reads and writes"),
        ({"store": "a", "start": "now"}, "batch", "start: it is for streams, and for batches of"),
        ({"store": "a", "table": "operations"}, "stream", "option table: it is for batch reads"),
        ({"store": "a", "types": "x"}, "write", "option types: it does not apply to a write"),
        ({"store": "a", "maxOperationsPerTrigger": "5"}, "batch", "it is for streams"),
        ({"store": "a", "table": "states"}, "stream", "table: it is for batch reads"),
        ({"store": "a", "onGap": "*"}, "stream", "onGap: '*' is neither fail nor"),
        ({"agent": "https://a", "keyFile": __file__}, "batch", "keyFile: it is for certFile"),
        ({"store": "a", "onGap": "fail"}, "batch", "onGap: it is for streams, and for batches of"),
        ({"store": "a", "failOnDataLoss": "true"}, "batch", "failOnDataLoss: it is for streams"),
        ({"store": "a", "isolation": "read_uncommitted"}, "batch", "isolation: it is for topics"),
        (
            {"store": "a", "topic": "shop/x", "types": "y"},
            "batch",
            "types: it does not apply to topics",
        ),
        ({"agent": "http://a", "partitionRows": "5"}, "batch", "it is for reads from a store"),
        ({"store": "a", "events": "insert,remove"}, "batch", "events: 'remove' is none of insert"),
        ({"store": "a", "types": "a,,b"}, "batch", "types: 'a,,b' holds an empty name"),
        ({"store": "a", "path": "b"}, "batch", "option path: give either path or store"),
        (
            {"store": "a", "start": "now", "startingOffsets": "latest"},
            "stream",
            "option startingOffsets: give either startingOffsets or start",
        ),
        ({"store": "a", "failOnDataLoss": "maybe"}, "stream", "option failOnDataLoss: 'maybe'"),
        ({"storeFile": "/nonexistent"}, "batch", "option storeFile: cannot read"),
        ({"store": "a", "retryFor": "soon"}, "stream", "option retryFor: 'soon' is not a duration"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], use: Use, message: str) -> None:
    with pytest.raises(OptionError) as refused:
        read_options(options, use)
    assert message in str(refused.value)


def test_names_of_kafkas_connector_are_understood() -> None:
    options = read_options(
        {
            "store": "a",
            "startingoffsets": "earliest",
            "endingOffsets": _ID,
            "maxOffsetsPerTrigger": "7",
            "failOnDataLoss": "false",
        },
        "stream",
    )
    assert (options.start, options.end, options.max_operations, options.on_gap) == (
        "oldest",
        _ID,
        7,
        "states",
    )
    of_topic = read_options({"store": "a", "topic": "n/t", "failOnDataLoss": "FALSE"}, "stream")
    assert of_topic.on_gap == "oldest"
    assert read_options({"path": "x.db"}).location == "x.db"


@pytest.mark.parametrize(
    "address",
    [
        "http://any:hidden@localhost:8042",
        "http://any:hid/den@localhost:8042",
        "http://any:hid?den@localhost:8042",
        "ftp://any:hidden@localhost:8042",
        "http://localhost:8042,http://:hidden@localhost:8043",
    ],
)
def test_an_address_with_credentials_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(OptionError, match="may hold no user and no password") as refused:
        read_options({"agent": address})
    assert "hid" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["", "localhost:8042", "http://", "http://a:99999", "http://a?x=hid", "http://a,", "u:hid"],
)
def test_an_address_that_is_none_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(OptionError, match="is not the address of an agent") as refused:
        read_options({"agent": address})
    assert "hid" not in str(refused.value)


def test_a_wrong_url_of_a_database_names_the_option() -> None:
    options = read_options({"store": "mongodb://host/db?w=majority&x=1"})
    with pytest.raises(OptionError, match=r"^option store \(host\): "):
        options.backend()


def test_the_scheme_of_a_database_may_be_in_capitals() -> None:
    backend = make_backend("MONGODB://u:hid@host/db")
    assert backend.name == "MongoDB at host"


def test_secrets_come_from_files_and_no_repr_shows_them(tmp_path: Path) -> None:
    url, password = tmp_path / "url", tmp_path / "password"
    url.write_text("mongodb://user:hidden@db/oplog\n")
    password.write_text("hidden\n")
    options = read_options({"storeFile": str(url)})
    assert options.location == "mongodb://user:hidden@db/oplog"
    assert "hidden" not in repr(options)
    asked = read_options({"agent": "http://a, http://b/x/", "passwordFile": str(password)})
    assert asked.agent == ("http://a", "http://b/x")
    assert asked.password is not None
    assert asked.password.reveal() == "hidden"
    assert "hidden" not in repr(asked)
    with pytest.raises(OptionError, match="option storeFile: give either store or storeFile"):
        read_options({"store": "a", "storeFile": str(url)})


def test_positions_are_ids_or_times() -> None:
    assert bound("start", "now") == "now"
    assert bound("start", "0") == "everything"
    assert bound("start", "1577836800001") == Instant(1_577_836_800_001)
    assert bound("start", "2020-01-01T01:00:00.0019+01:00") == Instant(1_577_836_800_001)
    assert bound("start", "1960-01-01T00:00:00Z") == Instant(0)
    assert bound("start", _ID) == EventId(0x545B55C7, 0xF095, 0x528DD0F3863C)
    with pytest.raises(OptionError, match="option start: 'yesterday' is neither now, nor oldest"):
        bound("start", "yesterday")


def test_an_event_id_is_later_than_replication_ids() -> None:
    early, late = "545b55c7000000000000000a", "545b55c7000000000000000b"
    assert [is_past(late, early), is_past(early, late), is_past(early, early)] == [
        True,
        False,
        False,
    ]
    assert [is_past(early, "0"), is_past("0", early), is_past("1", "0")] == [True, False, False]
    assert offset(early) == {"id": early, "offset": 10, "ms": 0x545B55C7 * 1000}
    assert offset("0", first=True) == {"id": "0", "offset": 0, "ms": 0, "first": True}


@pytest.mark.parametrize("kind", ["binary", "bigint"])
def test_an_operation_is_written_from_columns_of_text(kind: str) -> None:
    columns = schema(f"event string, type string, id {kind}")
    with pytest.raises(OptionError, match="column id: it must be a string, not "):
        OplogWriter(read_options({"store": "a"}, "write"), columns)
