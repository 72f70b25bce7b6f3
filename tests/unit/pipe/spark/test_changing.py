"""The steps of a task: which rows they leave, and what becomes of refused ones."""

import json
from collections.abc import Sequence

import pytest

from oplog_pipe.deliver.retry import RetryClock
from oplog_pipe.deliver.steps import FunctionCalls, SinkStep, Steps
from oplog_pipe.errors import SinkError, TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import BatchLimits, SinkSettings
from oplog_pipe.sinks.custom import CustomOptions
from oplog_pipe.spark.tasks.changing import Changing
from oplog_pipe.spark.tasks.refusals import Refusals
from oplog_pipe.spark.tasks.rows import Row


def changing(step: SinkStep, *, letters: bool = True) -> tuple[Changing, Refusals]:
    own = SinkSettings(
        "s", "m:C", CustomOptions("m:C"), batch=BatchLimits(4), retry_for=0.0,
        dead_letter="dead.jsonl" if letters else None,
    )  # fmt: skip
    refusals = Refusals(own, RetryClock())
    return Changing(own, Steps([(".*", step)]), refusals, RetryClock()), refusals


def rows(count: int) -> list[Row]:
    return [
        Row("update", "oplog", 100 + n, n, n, "video", str(n), 5, f'{{"n":{n}.10}}')
        for n in range(count)
    ]


def test_a_function_changes_drops_and_moves_messages() -> None:
    def change(message: Message) -> Message | None:
        number = int(message.id)
        if number % 3 == 0:
            return None
        if number % 3 == 1:
            message.id, message.namespace, message.op = "one", "other", "delete"
            message.data = [number]
        return message

    made, refusals = changing(FunctionCalls("f", change), letters=False)
    found = made(rows(10))
    assert [(each.version, each.op, each.namespace, each.id, each.data) for each in found] == [
        (101, "delete", "other", "one", "[1]"),
        (102, "update", "video", "2", '{"n":2.10}'),
        (104, "delete", "other", "one", "[4]"),
        (105, "update", "video", "5", '{"n":5.10}'),
        (107, "delete", "other", "one", "[7]"),
        (108, "update", "video", "8", '{"n":8.10}'),
    ]
    assert [each.at for each in found] == [1, 2, 4, 5, 7, 8]
    assert made.filtered == 4
    assert refusals.take() == []
    assert {each.letter for each in found} == {None}


def test_a_letter_has_the_message_before_all_steps() -> None:
    def change(message: Message) -> Message:
        if message.id in ("1", "6"):
            raise ValueError("secret")
        message.data = object() if message.id == "2" else "changed"
        return message

    made, refusals = changing(FunctionCalls("f", change))
    found = made(rows(8))
    assert [each.id for each in found] == ["0", "3", "4", "5", "7"]
    letters = [json.loads(each.data or "") for each in refusals.take()]
    assert [each["id"] for each in letters] == ["1", "2", "6"]
    assert letters[0]["data"] == {"n": 1.1}
    assert letters[0]["version"] == 101
    assert "secret" not in str(letters)
    assert all(each.letter and json.loads(each.letter)["data"] != "changed" for each in found)


def test_without_a_file_a_refusal_is_a_failure() -> None:
    def change(message: Message) -> Message:
        raise ValueError

    made, _ = changing(FunctionCalls("f", change), letters=False)
    with pytest.raises(TransformError, match="ValueError"):
        made(rows(1))


def test_each_attempt_gets_messages_as_they_were() -> None:
    seen = []

    class Once:
        def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
            seen.append([each.data for each in messages])
            for each in messages:
                each.data = "changed"
            if len(seen) == 1:
                raise SinkError("busy", transient=True, index=0)
            return messages

        def close(self) -> None: ...

    own = SinkSettings("s", "m:C", CustomOptions("m:C"), retry_for=60.0)
    clock = RetryClock(pause=lambda *_: False)
    refusals = Refusals(own, clock)
    made = Changing(own, Steps([(".*", Once())]), refusals, clock)
    assert [each.data for each in made(rows(2))] == ['"changed"', '"changed"']
    assert seen[0] == seen[1] == [{"n": 0.1}, {"n": 1.1}]
    assert refusals.retries == 1


def test_a_message_that_a_function_makes_keeps_its_place_in_the_log() -> None:
    def change(message: Message) -> Message:
        return Message("update", 9, "new", b"{}", id="new", offset=0, version=1, source="x")

    made, _ = changing(FunctionCalls("f", change))
    found = made([row._replace(source=f"s{n}") for n, row in enumerate(rows(3))])
    assert [(each.version, each.source, each.place) for each in found] == [
        (100, "s0", 0), (101, "s1", 1), (102, "s2", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", "\ud800"), ("namespace", "\ud800"), ("timestamp", 1 << 63), ("data", "\ud800")],
)
def test_what_cannot_travel_is_refused(name: str, value: object) -> None:
    def change(message: Message) -> Message:
        if message.id == "1":
            setattr(message, name, value)
        return message

    made, refusals = changing(FunctionCalls("f", change))
    assert [each.id for each in made(rows(3))] == ["0", "2"]
    (letter,) = refusals.take()
    assert "cannot be sent on" in (letter.data or "")
    assert json.loads(letter.data or "")["id"] == "1"
