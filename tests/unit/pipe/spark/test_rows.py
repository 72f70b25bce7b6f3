"""Rows as Arrow and back."""

import pytest

from oplog_pipe.spark.tasks.rows import LIVE, Row, batch_of, letter, rows_of

MESSAGE = Row("update", "oplog", 1 << 62, 5, 6, "video", "x\u00e9", -3, '{"n":1.10}', None)


@pytest.mark.parametrize("rows", [[], [MESSAGE], [MESSAGE, Row(LIVE, "oplog", 7)]])
def test_rows_come_back_as_they_were(rows: list[Row]) -> None:
    assert list(rows_of(batch_of(rows))) == rows


def test_a_message_keeps_its_digits() -> None:
    message = MESSAGE.message(3)
    assert message.json() == b'{"n":1.10}'
    assert (message.offset, message.version, message.timestamp) == (3, 1 << 62, -3)
    assert MESSAGE.is_message
    assert not Row(LIVE, "oplog", 7).is_message


def test_a_letter_is_json_on_one_line() -> None:
    line = letter(MESSAGE, 'a "reason"').data
    assert line is not None
    assert line.endswith(r'"data":{"n":1.10},"error":"a \"reason\""}')
