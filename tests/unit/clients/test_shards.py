"""Shards on the side of the Python client: their names, the echo of an agent, and polls."""

from collections.abc import Mapping

import httpx
import pytest

from oplogc.http.answers import Answer
from oplogc.topics.calls import topics as calls
from oplogc.topics.messages.names import topic_name
from oplogc.wire.errors import ProtocolError
from oplogc.wire.shard import check_echo, check_shard

URL = "http://agent/ops"
OPERATION = "545b55c7f095528dd0f3863c"
MESSAGE = "0000019aa0a36b00000000000000000000000000"


@pytest.mark.parametrize("text", ["0/1", "0/256", "255/256", "3/8", "9/10", "99/100"])
def test_a_shard_is_its_number_and_the_number_of_shards(text: str) -> None:
    assert check_shard(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "/", "3/", "/8", "8/8", "9/8", "0/0", "0/257", "256/256", "-1/8", "+3/8", "03/8",
        "3/08", "00/8", "3/8/1", " 3/8", "3/8\n", "3 / 8", "3%2F8", "3.0/8", "٣/8", "3/²", "1000/8",
        "3\\8", 3, (3, 8), b"3/8", True,
    ],
)  # fmt: skip
def test_a_bad_shard_is_told_with_its_form(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a shard: give I/N such as '3/8', with 0 <= I"):
        check_shard(text)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a shard"):
        calls.poll(topic_name("t"), None, True, None, "read_committed", None, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["oplog-shard", "Oplog-Shard", "OPLOG-SHARD"])
def test_the_name_of_the_echo_has_no_letter_case(name: str) -> None:
    check_echo("3/8", httpx.Headers({name: "3/8"}), URL)


@pytest.mark.parametrize("asked", [None, ""])
@pytest.mark.parametrize("headers", [{}, {"oplog-shard": "3/8"}])
def test_without_a_shard_no_echo_is_wanted(asked: str | None, headers: Mapping[str, str]) -> None:
    check_echo(asked, headers, URL)


def test_an_agent_without_shards_is_told_as_one() -> None:
    with pytest.raises(ProtocolError) as raised:
        check_echo("3/8", httpx.Headers(), URL)
    assert str(raised.value) == (
        "http://agent/ops was asked for shard 3/8 and sent everything: the agent does not know"
        " shards, because it is older than this client. Upgrade the agent"
    )


@pytest.mark.parametrize(
    "echo", ["", "2/8", "3/16", "03/8", "3/8, 3/8", "3/80", "\x1b[2J", "x" * 99]
)
def test_another_echo_is_told_and_shown_on_one_short_line(echo: str) -> None:
    with pytest.raises(ProtocolError, match="asked for shard 3/8 and sent shard '") as raised:
        check_echo("3/8", {"oplog-shard": echo}, URL)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 100


@pytest.mark.parametrize(
    ("shown", "position"),
    [
        (None, None), ("", None), (MESSAGE, MESSAGE), (OPERATION, OPERATION), ("0", None),
        (MESSAGE.upper(), None), (f"{MESSAGE}0", None), (f"{MESSAGE} ", None), ("x" * 40, None),
    ],
)  # fmt: skip
def test_a_poll_has_the_position_of_the_agent_and_no_other_text(
    shown: str | None, position: str | None
) -> None:
    headers = {} if shown is None else {"oplog-position": shown}
    found = calls.polled(Answer(200, b"[]", URL, headers=headers))
    assert (found.position, found.held_by) == (position, None)
    assert tuple(found) == ((), False)


def test_the_echo_of_a_poll_comes_before_its_messages() -> None:
    body = b'[{"id":"%s","payload":"a"}]' % MESSAGE.encode()
    call = calls.poll(topic_name("t"), None, True, None, "read_committed", None, "3/8")
    assert call.query == {"shard": "3/8"}
    assert len(call.read(Answer(200, body, URL, headers={"oplog-shard": "3/8"})).messages) == 1
    for content in (body, b"[{}]"):
        with pytest.raises(ProtocolError, match="does not know shards"):
            call.read(Answer(200, content, URL))
