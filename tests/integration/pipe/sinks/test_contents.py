"""A target that refuses a row quotes it. Neither the error nor its traceback does."""

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oplog_pipe.errors import SinkError
from tests.kits.pipe.messages import message
from tests.kits.pipe.targets import (
    SECRET,
    ElasticsearchTarget,
    MongodbTarget,
    PostgresTarget,
    opened,
)
from tests.kits.servers.mongo import RunningMongo
from tests.kits.servers.opensearch import OpenSearchServer
from tests.kits.servers.postgres import PostgresServer

CREATE = (
    "CREATE TABLE video (id text PRIMARY KEY, version bigint, source text,"
    ' "timestamp" timestamptz, oplog_owner text, name text NOT NULL, {})'
)
RAISING = """
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the name % is bad', NEW.name USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER judge BEFORE INSERT ON video FOR EACH ROW EXECUTE FUNCTION judge()
"""
COLUMNS = {"name": "name", "n": "n"}


@contextmanager
def refused(*told: str) -> Iterator[None]:
    """Expect a SinkError that has these words, and no content."""
    with pytest.raises(SinkError) as caught:
        yield
    text = "".join(traceback.format_exception(caught.value))
    assert [word for word in told if word not in str(caught.value)] == [], str(caught.value)
    assert SECRET not in text
    assert not caught.value.transient


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("column", "n", "told"),
    [
        ("n integer", SECRET, ["invalid input syntax for type integer"]),
        ("n text CHECK (n <> 'x')", "x", ['violates check constraint "video_n_check"']),
        ("n text NOT NULL", None, ['null value in column "n"', '"video"']),
        ("n date", SECRET, ["invalid input syntax for type date"]),
        ("n varchar(3)", SECRET, ["value too long for type character varying(3)"]),
        ("n text REFERENCES video (id)", SECRET, ["violates foreign key constraint"]),
    ],
)
def test_postgresql_refuses_a_row(
    postgres: PostgresServer, column: str, n: str | None, told: list[str]
) -> None:
    target = PostgresTarget(postgres)
    target.run(CREATE.format(column))
    with opened(target.sink(columns=COLUMNS)) as sink, refused("PostgreSQL: ", *told):
        sink.write([message(0, data={"name": SECRET, "n": n})])


@pytest.mark.postgres
def test_postgresql_finds_a_duplicate_and_a_trigger_has_words_of_its_own(
    postgres: PostgresServer,
) -> None:
    target = PostgresTarget(postgres)
    target.run(CREATE.format("n text UNIQUE"))
    with opened(target.sink(columns=COLUMNS)) as sink:
        sink.write([message(0, "a", data={"name": SECRET, "n": SECRET})])
        with refused('violates unique constraint "video_n_key"'):
            sink.write([message(1, "b", data={"name": SECRET, "n": SECRET})])
        target.run(RAISING)
        with refused("CheckViolation (SQLSTATE 23514); the log of the server says more"):
            sink.write([message(2, "c", data={"name": SECRET, "n": "x"})])


@pytest.mark.mongo
def test_mongodb_finds_a_duplicate(java: RunningMongo) -> None:
    target = MongodbTarget(java)
    target.do(lambda database: database["video"].create_index("data.name", unique=True))
    with opened(target.sink()) as sink:
        sink.write([message(0, "a", data={"name": SECRET})])
        with refused("duplicate key in collection ", "video", "index data.name_1", "(code 11000)"):
            sink.write([message(1, "b", data={"name": SECRET})])


@pytest.mark.mongo
def test_a_document_that_cannot_be_encoded_is_not_quoted(java: RunningMongo) -> None:
    with opened(MongodbTarget(java).sink()) as sink, refused("is no document of MongoDB"):
        bad = message(0)
        bad.data = {"name": SECRET, "n": 1 << 80}
        sink.write([bad])


@pytest.mark.opensearch
def test_opensearch_refuses_a_document(opensearch: OpenSearchServer) -> None:
    with opened(ElasticsearchTarget(opensearch).sink()) as sink:
        sink.write([message(0, "a", data={"n": 1})])
        with refused("failed to parse field [n] of type [long]", "(HTTP 400)"):
            sink.write([message(1, "b", data={"n": SECRET, "text": json.dumps({"x": SECRET})})])
