"""Reasons for logs, /status and dead letters have no contents of rows."""

from collections.abc import Callable

import pytest

from oplog_pipe.errors import SinkError
from oplog_pipe.model.reasons import of_code, of_mongodb, of_search, of_sql, of_status, of_url

CONTENT = "sEcret"
PREVIEW = f" in document with id 'x'. Preview of field's value: '{CONTENT}'"


@pytest.mark.parametrize(
    ("state", "words", "names", "told"),
    [
        ("23502", 'null value in column "item"', {}, 'null value in column "item"'),
        ("42P01", 'relation "x" does not exist', {}, 'relation "x" does not exist'),
        ("22P02", f'invalid input syntax for type integer: "{CONTENT}"', {},
         "invalid input syntax for type integer (Kind)"),
        ("22P02", f"ungültige Eingabesyntax für Typ integer: »{CONTENT}«", {},
         "ungültige Eingabesyntax für Typ integer (Kind)"),
        ("22003", f'value "{CONTENT}" is out of range for type integer', {}, "value (Kind)"),
        ("22008", f'"{CONTENT}" is no date', {}, "Kind (SQLSTATE 22008); the log of the server"),
        ("P0001", f"amount of {CONTENT} is too high", {"table": "orders"},
         "Kind (SQLSTATE P0001), table 'orders'; the log of the server says more"),
        ("23514", f"{CONTENT} is too much", {"context": "PL/pgSQL function", "column": "c"},
         "Kind (SQLSTATE 23514), column 'c'; the log of the server says more"),
    ],
)  # fmt: skip
def test_an_error_of_postgresql_tells_names_and_no_values(
    state: str, words: str, names: dict[str, str | None], told: str
) -> None:
    found = of_sql("Kind", state, words, names)
    assert found.startswith(told)
    assert CONTENT not in found


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            {
                "type": "mapper_parsing_exception",
                "reason": f"failed to parse field [a.b] of type [long]{PREVIEW}",
                "caused_by": {
                    "type": "illegal_argument_exception",
                    "reason": f'For input string: "{CONTENT}"',
                },
            },
            "mapper_parsing_exception: failed to parse field [a.b] of type [long];"
            " illegal_argument_exception",
        ),
        (
            {
                "type": "document_parsing_exception",
                "reason": f"[1:23] failed to parse field [t] of type [date]{PREVIEW}",
            },
            "document_parsing_exception: failed to parse field [t] of type [date]",
        ),
        (
            {
                "type": "unavailable_shards_exception",
                "reason": f"[x][0] request: [index {{[x][1], source[{CONTENT}]}}]",
            },
            "unavailable_shards_exception",
        ),
        (
            {
                "type": "illegal_argument_exception",
                "reason": f"failed to parse field {CONTENT} failed to parse field [a] of type [b]",
            },
            "illegal_argument_exception",
        ),
        (
            {"type": "index_not_found_exception", "reason": "no such index [x]"},
            "index_not_found_exception: no such index [x]",
        ),
        (
            {
                "type": "illegal_argument_exception",
                "reason": f"Limit of total fields [1000] has been exceeded {CONTENT}",
            },
            "illegal_argument_exception: Limit of total fields [1000] has been exceeded",
        ),
        ({"type": f"a {CONTENT}"}, "an error without a type"),
        (CONTENT, "an error without a type"),
        ({"reason": CONTENT}, "error"),
    ],
)
def test_an_error_of_a_search_server_tells_fields_and_no_values(error: object, told: str) -> None:
    assert of_search(error) == told


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (
            11000,
            "E11000 duplicate key error collection: d.video index: name_1 dup key:"
            f' {{ n: "{CONTENT}" }}',
            "duplicate key in collection d.video, index name_1 (code 11000)",
        ),
        (11000, CONTENT, "duplicate key (code 11000)"),
        (13, f"not authorized to execute command {{ insert: {CONTENT} }}", "not authorized"),
        (17280, f'key too large: {{ : "{CONTENT}" }}', "refused (code 17280)"),
        (None, CONTENT, "refused"),
    ],
)  # fmt: skip
def test_an_error_of_mongodb_tells_collection_and_index_and_no_values(
    code: int | None, words: str, told: str
) -> None:
    found = of_mongodb(code, words)
    assert found.startswith(told)
    assert CONTENT not in found


def shape() -> None:
    raise ValueError(CONTENT)


def deep() -> None:
    int(CONTENT)


def raised(call: Callable[..., object], *arguments: object) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each of them
        call(*arguments)
    error = caught.value
    assert error.__traceback__ is not None
    # As the pipe sees it: without the frame of this test.
    return error.with_traceback(error.__traceback__.tb_next)


def test_an_exception_of_user_code_tells_its_type_and_its_place() -> None:
    line = shape.__code__.co_firstlineno
    assert of_code(raised(shape)) == f"ValueError in test_reasons.py, line {line + 1}"
    line = deep.__code__.co_firstlineno
    assert of_code(raised(deep)) == f"ValueError in test_reasons.py, line {line + 1}"
    assert "takes 0 positional arguments but 1 was given" in of_code(raised(shape, 1))
    assert of_code(SinkError("said to people")) == "said to people"


def test_an_answer_tells_its_status_only() -> None:
    assert of_status(404) == "Not Found (HTTP 404)"
    assert of_status(599) == "HTTP 599"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://hooks.example.com/services/sEcret", "https://hooks.example.com/***"),
        ("https://u:sEcret@h:8443/?x=sEcret#sEcret", "https://h:8443/***"),
        ("http://h", "http://h/"),
        ("http://[::1]:80/", "http://[::1]/"),
    ],
)
def test_of_an_address_only_scheme_host_and_port_are_told(url: str, told: str) -> None:
    assert of_url(url) == told
