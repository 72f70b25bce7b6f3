"""Steps, the functions that users bring, and the transform that comes with the pipe."""

import base64
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from oplog_pipe.deliver.steps import FunctionCalls, Steps, build_steps
from oplog_pipe.errors import ConfigError, SinkError, TransformError
from oplog_pipe.message import Message
from oplog_pipe.model.settings import FunctionStep, SinkSettings
from oplog_pipe.sinks.file import FileOptions
from oplog_pipe.transforms import json_payload


def message(namespace: str = "video", data: Any = None, op: Any = "update") -> Message:
    raw = json.dumps(data).encode()
    return Message(op, 1, namespace, raw, id="7", offset=3, version=3, source="oplog")


def rename(found: Message) -> Message:
    found.namespace = "film"
    return found


def test_a_step_sees_the_result_of_the_step_before_it_in_order() -> None:
    seen: list[str] = []

    def see(found: Message) -> Message | None:
        seen.append(found.namespace)
        return found if found.data != 2 else None

    steps = Steps(
        [("^video$", FunctionCalls("rename", rename)), ("^film$", FunctionCalls("see", see))]
    )
    left, number = steps([message(data=1), message("user", 1), message(data=2), message(data=3)])
    assert [(each.namespace, each.data) for each in left] == [("film", 1), ("film", 3)]
    assert number == 4
    assert seen == ["film", "film", "film"]


def test_a_namespace_is_searched_and_no_step_passes_all() -> None:
    found = [message("video"), message("my-video-x"), message("user")]
    assert Steps([])(list(found)) == (found, 3)
    same = FunctionCalls("same", lambda each: each)
    assert Steps([("video", same)])(list(found)) == (found[:2], 3)


class First:
    """Takes one message of each call, without the data ``0``."""

    def __call__(self, messages: Sequence[Message]) -> list[Message | None]:
        return [messages[0] if messages[0].data else None]

    def close(self) -> None: ...


def test_messages_that_a_step_does_not_take_are_left_for_the_next_call() -> None:
    def fail(found: Message) -> Message:
        return found if found.data != 3 else _with(found, op="deleted")

    rest = [message("user", 1), *(message(data=data) for data in (0, 2, 3))]
    steps = Steps([("video|user", FunctionCalls("fail", fail)), ("video", First())])
    taken = []
    while len(rest) > 1:
        found, number = steps(rest)
        taken.append(([each.data for each in found], number))
        rest = rest[number:]
    assert taken == [([], 2), ([2], 1)]
    with pytest.raises(TransformError, match="op is 'deleted'") as caught:
        steps(rest)
    assert caught.value.index == 0
    dropped = Steps([(".*", First()), (".*", FunctionCalls("fail", fail))])
    assert dropped([message(data=0), message(data=3)]) == ([], 1)


def test_a_message_that_fails_behind_dropped_ones_fails_the_next_call_only() -> None:
    def fail(found: Message) -> Message:
        raise ValueError

    steps = Steps([("video", FunctionCalls("fail", fail))])
    assert steps([message("user"), message("video")]) == ([], 1)
    with pytest.raises(TransformError):
        steps([message("video")])


def test_the_size_of_a_message_is_that_of_its_data_as_json() -> None:
    found = message(data={"a": 1})
    assert found.size == len(found.json()) == 8
    found.data["b"] = "é"
    assert found.size == len(found.json()) == 16
    found.data = object()
    assert found.size == 0


def test_no_step_reads_the_data() -> None:
    broken = Message("update", 1, "video", b"not read", id="", offset=0, version=0, source="")
    [found], _ = Steps([(".*", FunctionCalls("rename", rename))])([broken])
    assert found.json() == b"not read"


@pytest.mark.parametrize(
    ("function", "text", "transient"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError in test_steps.py, line N", False),
        (lambda _: {}, "it returned dict instead of a message or None", False),
        (lambda _: _raise(SinkError("busy", transient=True)), "busy", True),
        (lambda _: sys.exit("bye"), "SystemExit in test_steps.py, line N", False),
        (
            lambda each: _with(each, op="deleted"),
            "op is 'deleted', not insert, update or delete",
            False,
        ),
        (lambda each: _with(each, op=[]), "op is [], not insert, update or delete", False),
        (lambda each: _with(each, namespace=None), "namespace is NoneType, not text", False),
        (lambda each: _with(each, id=5), "id is int, not text", False),
        (
            lambda each: _with(each, timestamp=1.5),
            "timestamp is float, not a number of milliseconds",
            False,
        ),
    ],
)
def test_an_error_names_the_function_and_the_message(
    function: Any, text: str, transient: bool
) -> None:
    calls = FunctionCalls("shape:video", lambda each: function(each) if each.data else each)
    good = message(data=0)
    assert calls([good, message(data=1)]) == [good]
    with pytest.raises(TransformError) as caught:
        calls([message(data=1)])
    found = re.sub(r"line \d+", "line N", str(caught.value))
    assert found == f"transform shape:video: video 7, offset 3: {text}"
    assert (caught.value.index, caught.value.transient) == (0, transient)


def _with(found: Message, **changes: Any) -> Message:
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def _raise(error: Exception) -> None:
    raise error


def test_functions_are_found_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "steps_shape.py").write_text("def drop(message): return None\nnumber = 1\n")
    (tmp_path / "steps_exit.py").write_text("raise SystemExit(0)\n")

    def steps_of(*targets: str) -> Steps:
        functions = tuple(map(FunctionStep, targets))
        settings = SinkSettings("s", "file", FileOptions("f"), transforms=functions)
        return build_steps(settings, tmp_path, "sinks[0]")

    assert steps_of("steps_shape:drop")([message()]) == ([], 1)
    for target in (
        "steps_shape:number",
        "steps_shape:missing",
        "steps_gone:f",
        "steps_exit:f",
        "steps_shape",
    ):
        with pytest.raises(ConfigError, match=r"sinks\[0\]\.transforms\[1\]: .*" + target):
            steps_of("steps_shape:drop", target)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"id": "1", "payload": '{"a": [1]}'}, {"a": [1]}),
        ({"id": "1", "payload": "3", "key": "k"}, 3),
        ({"payload": base64.b64encode(b'"\\u00e9"').decode(), "encoding": "base64"}, "é"),
        ({"id": "1", "payload": None, "key": "k"}, None),
    ],
)
def test_json_payload_decodes_the_payload_and_keeps_the_id(data: Any, expected: Any) -> None:
    found = json_payload(message("shop/orders", data))
    assert (found.data, found.id) == (expected, "7")


def test_json_payload_refuses_a_payload_that_is_no_json() -> None:
    with pytest.raises(ValueError, match="the payload is no JSON"):
        json_payload(message("shop/orders", {"payload": "{"}))
