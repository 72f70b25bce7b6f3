"""Types of columns in tables of users: ids, numbers, and what no row fits into."""

from typing import Any

import pytest

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from tests.kits.pipe.messages import OPLOG, message, version
from tests.kits.pipe.targets import PostgresTarget, opened
from tests.kits.servers.postgres import PostgresServer

UUID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"


@pytest.fixture
def target(postgres: PostgresServer) -> PostgresTarget:
    return PostgresTarget(postgres)


def create(
    target: PostgresTarget, id: str = "text PRIMARY KEY", columns: str = "data jsonb"
) -> None:
    target.run(
        f"CREATE TABLE video (id {id}, version bigint NOT NULL, source text,"
        f' "timestamp" timestamptz, oplog_owner text, {columns})'
    )


@pytest.mark.parametrize(
    ("type", "given", "stored"),
    [
        ("bigint", ["9007199254740993", "-2"], ["-2", "9007199254740993"]),
        ("integer", ["7", "12"], ["12", "7"]),
        ("uuid", [UUID, "00000000-0000-0000-0000-000000000000"],
         ["00000000-0000-0000-0000-000000000000", UUID.lower()]),
        ("numeric(20, 2)", ["1.50", "12345678901234567.89"], ["1.50", "12345678901234567.89"]),
        ("varchar(5)", ["a", "abcde"], ["a", "abcde"]),
        ("date", ["2014-11-06", "2014-11-07"], ["2014-11-06", "2014-11-07"]),
    ],
)  # fmt: skip
def test_ids_have_the_type_of_their_column(
    type: str, given: list[str], stored: list[str], target: PostgresTarget
) -> None:
    create(target, f"{type} PRIMARY KEY")
    with opened(target.sink()) as sink:
        assert sink.faults() == []
        sink.write([message(0, given[0]), message(1, given[1]), message(2, given[1], "update")])
        query = 'SELECT id::text FROM video ORDER BY id::text COLLATE "C"'
        assert target.run(query) == [(each,) for each in stored]
        sink.write([message(3, given[0], "delete")])
        sink.write([message(1, given[1])])
        assert target.run("SELECT version FROM video") == [(version(2),)]
        sink.end_copy(version(3), OPLOG)
    assert target.run("SELECT id FROM video") == []


@pytest.mark.parametrize("type", ["bigint", "uuid", "varchar(3)"])
def test_an_id_that_its_column_cannot_take_is_a_bad_message(
    type: str, target: PostgresTarget
) -> None:
    good = UUID if type == "uuid" else "777"
    create(target, f"{type} PRIMARY KEY")
    with opened(target.sink()) as sink:
        with pytest.raises(SinkError) as caught:
            sink.write([message(0, good), message(1, "many"), message(2, "more", "delete")])
        assert (caught.value.transient, caught.value.index) == (False, 1)
        assert not isinstance(caught.value, TargetError)
        assert "many" not in str(caught.value)
        sink.write([message(0, good)])
    assert target.run("SELECT version FROM video") == [(version(0),)]


@pytest.mark.parametrize("last", ["7", "007"])
def test_two_texts_that_are_one_id_are_one_row_with_the_last_version(
    last: str, target: PostgresTarget
) -> None:
    create(target, "bigint PRIMARY KEY")
    first = "7" if last == "007" else "007"
    with opened(target.sink()) as sink:
        sink.write([message(0, first), message(1, last)])
        assert target.run("SELECT id, version FROM video") == [(7, version(1))]
        sink.write([message(2, last, "delete"), message(3, first)])
        assert target.run("SELECT id, version FROM video") == [(7, version(3))]


def test_the_end_of_a_copy_passes_over_many_rows_with_numbers_as_ids(
    target: PostgresTarget,
) -> None:
    create(target, "bigint PRIMARY KEY")
    target.run(
        f"INSERT INTO video SELECT n, {version(0)} + n, '{OPLOG}', now(), 'test/sink'"
        " FROM generate_series(1, 25000) n"
    )
    with opened(target.sink()) as sink:
        sink.end_copy(version(24_999), OPLOG)
    assert target.run("SELECT id FROM video ORDER BY id") == [(24999,), (25000,)]


NUMBERS = ["12345678901234567.89", "123456789012345678901234567890", "1.10", "-0.0", "1e2"]


def raw(offset: int, data: str) -> Message:
    changed = message(offset, f"id{offset}")
    changed.set_json(data.encode())
    return changed


def test_numbers_in_columns_keep_their_digits(target: PostgresTarget) -> None:
    create(target, columns="amount numeric, note text, list jsonb")
    columns = {"amount": "a.b", "note": "a.b", "list": "a.list"}
    with opened(target.sink(columns=columns)) as sink:
        sink.write(
            [
                raw(each, f'{{"a": {{"b": {number} , "list": [{number}, 1.50]}}}}')
                for each, number in enumerate(NUMBERS)
            ]
        )
    found = target.run("SELECT amount::text, note, list::text FROM video ORDER BY version")
    assert [row[1] for row in found] == NUMBERS
    assert [row[0] for row in found] == [*NUMBERS[:3], "0.0", "100"]
    assert found[0][2] == f"[{NUMBERS[0]}, 1.50]"


@pytest.mark.parametrize(
    ("id", "columns", "options", "fault"),
    [
        ("text", "data jsonb", {}, "the column id must be the primary key"),
        ("name UNIQUE", "data jsonb", {}, "the column id is name, which cuts ids at 63 bytes"),
        ("text COLLATE any_case UNIQUE", "data jsonb", {}, "the collation of the column id takes"),
        ("text UNIQUE", "data integer", {}, "the column data is integer; it must be jsonb"),
        ("text UNIQUE", "item text", {"columns": {"amount": "a"}}, "it has no column amount"),
        ("text UNIQUE", "item text", {}, "it has no column data"),
        ("text UNIQUE", "data jsonb GENERATED ALWAYS AS ('1') STORED", {}, "data is generated"),
    ],
)
def test_a_table_that_no_row_fits_into_is_a_fault_of_the_target(
    id: str, columns: str, options: Any, fault: str, target: PostgresTarget
) -> None:
    target.run(
        "CREATE COLLATION any_case"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    create(target, id, columns)
    with opened(target.sink(table="video", id="{id}", **options)) as sink:
        assert [fault in each for each in sink.faults()] == [True]
        with pytest.raises(TargetError, match=fault):
            sink.write([message(0)])


@pytest.mark.parametrize(
    ("column", "type", "wanted"),
    [
        ("version", "integer", "bigint"),
        ("source", "integer", "text"),
        ('"timestamp"', "bigint USING 1", "timestamp with time zone"),
        ("oplog_owner", "integer USING 1", "text"),
    ],
)
def test_a_column_of_the_sink_with_another_type_is_named(
    column: str, type: str, wanted: str, target: PostgresTarget
) -> None:
    create(target)
    using = "" if "USING" in type else f" USING {column}::text::integer"
    target.run(f"ALTER TABLE video ALTER {column} TYPE {type}{using}")
    with opened(target.sink()) as sink:
        (fault,) = sink.faults()
        name = column.strip('"')
        kind = type.partition(" ")[0]
        assert fault.endswith(f"the column {name} is {kind}; it must be {wanted}")


def test_a_required_column_that_gets_no_value_is_told_unless_a_trigger_may_fill_it(
    target: PostgresTarget,
) -> None:
    create(target, columns="data jsonb, item text NOT NULL, n int NOT NULL DEFAULT 1")
    with opened(target.sink()) as sink:
        assert sink.faults() == [
            'table "public"."video": the column item is NOT NULL without a default, and the sink'
            " does not write it"
        ]
        target.run("CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
                   " $$BEGIN new.item := 'filled'; RETURN new; END$$")  # fmt: skip
        target.run(
            "CREATE TRIGGER fills BEFORE INSERT ON video FOR EACH ROW EXECUTE FUNCTION fill()"
        )
        assert sink.faults() == []
        sink.write([message(0)])
    assert target.run("SELECT item FROM video") == [("filled",)]


def test_a_view_and_a_domain_take_rows(target: PostgresTarget) -> None:
    target.run("CREATE DOMAIN number AS bigint CHECK (VALUE > 0)")
    target.run(
        "CREATE TABLE behind (id number PRIMARY KEY, version number, source text,"
        ' "timestamp" timestamptz, oplog_owner text, data jsonb)'
    )
    target.run("CREATE VIEW video AS SELECT * FROM behind")
    with opened(target.sink(table="video", id="{id}")) as sink:
        assert sink.faults() == []
        sink.write([message(0, "7"), message(1, "8"), message(2, "7", "update")])
        with pytest.raises(SinkError, match="violates check constraint") as caught:
            sink.write([message(3, "1"), message(4, "-1")])
        assert (caught.value.transient, caught.value.index) == (False, 1)
        sink.write([message(5, "8", "delete")])
    assert target.run("SELECT id, version FROM behind") == [(7, version(2))]


def test_a_missing_table_is_a_fault_only_if_the_sink_does_not_create_it(
    target: PostgresTarget,
) -> None:
    with opened(target.sink(table="t", id="{namespace}/{id}")) as sink:
        assert sink.faults() == []
    with opened(target.sink(table="t", id="{namespace}/{id}", create=False)) as sink:
        assert sink.faults() == ['table "t" does not exist; create it, or set create: true']


def test_reserved_words_and_mixed_case_are_names_of_tables_and_columns(
    target: PostgresTarget,
) -> None:
    target.run(
        'CREATE TABLE "Order" (id bigint PRIMARY KEY, version bigint, source text,'
        ' "timestamp" timestamptz, oplog_owner text, "select" integer, "Mixed Case" numeric)'
    )
    columns = {"select": "n", "Mixed Case": "n"}
    with opened(target.sink(table="Order", columns=columns)) as sink:
        sink.write([message(5, "1"), message(6, "2"), message(7, "2", "delete")])
    assert target.run('SELECT id, "select", "Mixed Case"::text FROM "Order"') == [(1, 5, "5")]
