"""The Python code of reference/pipe.md does what it says, and its tables agree with the code."""

import re
from typing import Any

import pytest

from oplog_pipe.commitlog import Mode
from oplog_pipe.message import Message
from oplog_pipe.model import exits
from oplog_pipe.sinks.base import Sink
from tests.kits.documents import pages
from tests.kits.documents.snippets import snippet_of

PAGE = pages.PIPE


def defined(name: str) -> dict[str, Any]:
    """Return what a file of the page defines."""
    names: dict[str, Any] = {}
    exec(compile(snippet_of(pages.PIPE, name), name, "exec"), names)
    return names


def message(op: Any, raw: bytes) -> Message:
    return Message(
        op, 0, "video", raw, id="x1", offset=7, version=7, source="system/oplog"
    )  # fmt: skip


def test_the_transform_keeps_public_videos_and_deletes_the_others() -> None:
    video = defined("shape.py")["video"]
    public = video(message("insert", b'{"public":true,"title":"A","owner":{"name":"Ada"},"x":1}'))
    assert (public.op, public.data) == ("insert", {"title": "A", "owner": "Ada"})
    assert video(message("update", b'{"public":false}')).op == "delete"
    assert video(message("delete", b"{}")).op == "delete"


def test_the_sink_prints_messages(capsys: pytest.CaptureFixture[str]) -> None:
    sink: Sink = defined("printing.py")["Printing"](prefix=">")
    sink.open()
    sink.begin_copy(1, "system/oplog")
    sink.write([message("insert", b"{}"), message("delete", b"{}")])
    sink.end_copy(1, "system/oplog")
    sink.close()
    assert capsys.readouterr().out == "> insert video x1\n> delete video x1\n"


def test_the_page_has_every_exit_code_and_mode() -> None:
    text = PAGE.read_text()
    codes = re.findall(r"^\| (\d) \|", text.partition("## Exit codes")[2], re.MULTILINE)
    assert {int(code) for code in codes} == {
        value for name, value in vars(exits).items() if name.startswith("EXIT_")
    }
    (modes,) = re.findall(r"^\| 1 \| mode: (.*) \|$", text, re.MULTILINE)
    assert modes == ", ".join(f"{mode.value} {mode.name.lower()}" for mode in Mode)


def test_the_page_has_every_member_of_a_message() -> None:
    table = PAGE.read_text().partition("A message has the same form everywhere:")[2]
    rows = table.split("\n\n")[1].splitlines()
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    public = {name for name in Message.__slots__ if not name.startswith("_")} | {"data"}
    assert named == public
