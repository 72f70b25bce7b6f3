"""Blocks of a named consumer's stream, its refusals, and its two kinds of readers."""

import inspect

import pytest

from oplogc import Live, Operation, Reset
from oplogc.http.answers import Answer
from oplogc.topics import (
    AsyncNamedConsumer,
    NamedConsumer,
    NotAllowed,
    ReceivedMessage,
    RefusedError,
    StaleTermError,
)
from oplogc.topics.calls import consumers as calls
from oplogc.topics.calls.call import Call
from oplogc.topics.named.acknowledger import stale
from oplogc.topics.named.reader import read
from oplogc.wire.errors import ProtocolError
from oplogc.wire.events import Checkpoint
from oplogc.wire.sse import Block

MESSAGE_ID = "0" * 38 + "2a"
EVENT_ID = "545b55c7f095528dd0f3863c"
DATA = '{"timestamp":"2014-11-06T11:04:39.041Z","parents":[],"type":"video","id":"x"}'


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (Block(EVENT_ID, "insert", DATA), Operation),
        (Block("1415271879041", "delete", DATA), Operation),
        (Block("1", "reset"), Reset),
        (Block(EVENT_ID, "live"), Live),
        (Block(EVENT_ID), Checkpoint),
        (Block(MESSAGE_ID, "message", '{"payload":"a"}'), ReceivedMessage),
        (Block("0", "reset"), Reset),
        (Block(MESSAGE_ID), Checkpoint),
        (Block("", "news", "x", has_id=False), type(None)),
    ],
)
def test_a_block_is_an_event_of_the_oplog_or_of_a_topic(block: Block, kind: type) -> None:
    found = read(block, 7)
    assert type(found) is kind
    if found is not None:
        assert (found.event_id, found.sequence) == (block.id, 7)


@pytest.mark.parametrize(
    "block",
    [
        Block("x"),
        Block(EVENT_ID, "insert", "{"),
        Block(MESSAGE_ID, "message", "{"),
        Block("f" * 41),
    ],
)
def test_a_block_that_no_agent_sends_is_an_error(block: Block) -> None:
    with pytest.raises(ProtocolError):
        read(block, 1)


@pytest.mark.parametrize(
    ("call", "status", "kind"),
    [
        (calls.get("a"), 200, type(None)),
        (calls.create("a", "t", [], [], None, "now", 1), 200, type(None)),
        (calls.create("a", "t", [], [], None, "now", 1), 201, type(None)),
        (calls.create("a", "t", [], [], None, "now", 1), 409, RefusedError),
        (calls.create("a", "t", [], [], None, "now", 1), 404, RefusedError),
        (calls.get("a"), 201, ProtocolError),
        (calls.get("a"), 404, RefusedError),
        (calls.get("a"), 403, NotAllowed),
        (calls.delete("a"), 204, type(None)),
        (calls.delete("a"), 200, ProtocolError),
        (calls.acknowledge("a", "1", 1, 0), 204, type(None)),
        (calls.acknowledge("a", "1", 1, 0), 412, StaleTermError),
    ],
)
def test_an_answer_is_a_success_or_an_error(call: Call[object], status: int, kind: type) -> None:
    assert type(calls.refusal(call, Answer(status, b"", "http://agent"))) is kind


def test_a_term_that_is_over_names_the_present_one_if_the_agent_does() -> None:
    told = "shard 3 of the consumer search has term 8, not 7: another reader has taken it"
    taken = "another reader has taken shard 3 of the consumer search"
    assert stale("search", 3, told).detail == f"{taken} (term 8), or it was moved"
    assert stale("search", 3, "").detail == f"{taken}, or it was moved"


def test_both_kinds_of_readers_have_the_same_arguments() -> None:
    ours, theirs = inspect.signature(NamedConsumer), inspect.signature(AsyncNamedConsumer)
    assert ours.parameters == theirs.parameters
