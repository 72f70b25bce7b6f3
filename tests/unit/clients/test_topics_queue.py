"""Messages that wait for their topic: requests, answers, time. The rules without a network."""

import logging
from collections import Counter
from concurrent.futures import Future

import pytest

from oplogc.http.backoff import Backoff
from oplogc.topics import BadRequestError, OplogError, TopicName, TopicNotFound, UnavailableError
from oplogc.topics.messages.batch import BATCH_BYTES
from oplogc.topics.publish.publication import Publication
from oplogc.topics.publish.queue import PublishQueue
from oplogc.topics.publish.room import BufferRoom
from oplogc.wire.errors import NotAllowed, RefusedError

NAME = TopicName("default", "t")
GONE = TopicNotFound(404, "there is no topic default/t")


class Queue(PublishQueue):
    """A queue with a count of the messages that have left."""

    def __init__(self, batch_size: int = 10) -> None:
        super().__init__(str(NAME), batch_size, Backoff(1, 4), self._count)
        self.left: Counter[str] = Counter()

    def put(self, *messages: str, until: float | None = 10.0) -> "Future[None]":
        new = Publication(NAME, [message.encode() for message in messages], until)
        self.add(new)
        return new.future

    def texts(self) -> list[str]:
        return [raw.decode() for raw in self.batch()]

    def _count(self, publication: Publication, counter: str) -> None:
        self.left[counter] += len(publication.messages)


def error_of(future: "Future[None]") -> BaseException | None:
    return future.exception(0)


def test_calls_share_a_request_and_keep_their_order() -> None:
    queue = Queue()
    one, two = queue.put("a", "b"), queue.put("c")
    assert queue.texts() == ["a", "b", "c"]
    queue.put("d")
    assert queue.texts() == ["a", "b", "c"]  # the same until it is settled
    queue.delivered()
    assert (one.done(), two.done()) == (True, True)
    assert queue.texts() == ["d"]
    assert queue.left == {"delivered": 3}


def test_a_request_has_a_bounded_number_of_messages_and_bytes_and_never_half_a_call() -> None:
    queue = Queue(batch_size=3)
    for text in "abcd":
        queue.put(text)
    queue.put("e", "f", "g", "h")
    queue.put("x" * BATCH_BYTES)
    queue.put("y" * BATCH_BYTES)
    sizes = []
    while batch := queue.batch():
        sizes.append([len(raw) for raw in batch])
        queue.delivered()
    assert sizes == [[1] * 3, [1], [1] * 4, [BATCH_BYTES], [BATCH_BYTES]]


def test_a_call_that_the_agent_names_fails_alone_and_the_rest_is_sent_again() -> None:
    queue = Queue()
    one, two, three = queue.put("a", "b"), queue.put("c", "d"), queue.put("e")
    queue.batch()
    assert queue.refused(BadRequestError(400, "messages[3].key: must be text")) == 0
    assert str(error_of(two)) == "messages[1].key: must be text (HTTP 400)"
    assert queue.texts() == ["a", "b", "e"]
    queue.delivered()
    assert (error_of(one), error_of(three)) == (None, None)
    assert queue.left == {"delivered": 3, "rejected": 2}


@pytest.mark.parametrize(
    "error",
    [
        BadRequestError(413, "messages[0]: too large"),
        BadRequestError(400, "the body is no JSON"),
        BadRequestError(400, "messages[99]: is bad"),
    ],
)
def test_a_request_refused_as_a_whole_is_halved_until_one_call_is_at_fault(
    error: BadRequestError,
) -> None:
    queue = Queue()
    futures = [queue.put(text) for text in "abcde"]
    requests = []
    while texts := queue.texts():
        requests.append("".join(texts))
        if "d" in texts:
            queue.refused(error)
        else:
            queue.delivered()
    assert requests == ["abcde", "ab", "cde", "c", "de", "d", "e"]
    assert [error_of(future) for future in futures] == [None, None, None, error, None]


def test_a_halved_request_keeps_the_order() -> None:
    queue = Queue(batch_size=4)
    for text in "abcdefgh":
        queue.put(text)
    queue.batch()
    queue.refused(BadRequestError(413, "too large"))
    stored = []
    while texts := queue.texts():
        stored += texts
        queue.delivered()
    assert "".join(stored) == "abcdefgh"


def test_a_topic_that_is_gone_fails_all_messages_of_the_request() -> None:
    queue = Queue()
    futures = [queue.put("a"), queue.put("b", until=None)]
    queue.batch()
    assert queue.refused(GONE) == 0
    assert [error_of(future) for future in futures] == [GONE, GONE]
    assert (queue.texts(), queue.left) == ([], {"rejected": 2})


def test_messages_without_an_end_wait_for_a_password_and_others_fail_at_once() -> None:
    queue = Queue()
    durable, other = queue.put("a"), queue.put("b", until=None)
    queue.batch()
    error = NotAllowed(401, "a password is needed")
    assert queue.refused(error) >= 1
    assert queue.refusal is error
    assert (error_of(durable), other.done()) == (error, False)
    assert queue.texts() == ["b"]
    queue.delivered()
    assert [queue.refusal, other.done()] == [None, True]


def test_a_request_without_an_answer_is_sent_again_with_growing_pauses() -> None:
    queue = Queue()
    queue.put("a", until=None)
    pauses = []
    for _ in range(6):
        assert queue.texts() == ["a"]
        pauses.append(queue.postpone(0, "no answer"))
    assert all(1 <= pause <= 4 for pause in pauses)
    assert pauses[-1] >= 2 > 1
    assert queue.postpone(0, "busy", 100) >= 100
    queue.delivered()
    assert queue.trouble == ""


def test_messages_fail_once_their_time_would_be_over_before_the_next_attempt() -> None:
    queue = Queue()
    short, long, endless = queue.put("a"), queue.put("b", until=999), queue.put("c", until=None)
    waiting = Queue.put(queue, "d")
    queue.batch()
    queue.postpone(0, "the store is unreachable", 50)
    error = error_of(short)
    assert isinstance(error, UnavailableError)
    said = "confirmed 1 message for default/t, which may still be stored: the store is unreachable"
    assert said in str(error)
    assert isinstance(error_of(waiting), UnavailableError)
    assert (long.done(), endless.done()) == (False, False)
    assert queue.texts() == ["b", "c"]
    assert queue.left == {"dropped": 2}


def test_messages_that_no_agent_can_have_are_known_not_to_be_stored() -> None:
    queue = Queue()
    unsent, sent = queue.put("a"), queue.put("b", until=999)
    queue.batch()
    queue.postpone(0, "connection refused", 50, is_sent=False)
    error = error_of(unsent)
    assert isinstance(error, UnavailableError)
    assert (str(error), error.lost) == (
        "1 message for default/t not stored: connection refused",
        False,
    )
    queue.postpone(50, "no answer")
    queue.postpone(60, "connection refused", 1000, is_sent=False)
    error = error_of(sent)
    assert isinstance(error, UnavailableError)
    assert error.lost
    assert str(error).startswith("no agent has confirmed 1 message for default/t, which may still")


def test_a_slow_queue_fails_nothing_while_the_agent_confirms() -> None:
    queue = Queue(batch_size=1)
    futures = [queue.put("a", until=0), queue.put("b", until=0)]
    for _ in futures:
        queue.batch()
        queue.delivered()
    assert [error_of(future) for future in futures] == [None, None]


def test_a_cancelled_call_is_not_sent_unless_it_is_under_way() -> None:
    queue = Queue()
    first, second = queue.put("a"), queue.put("b")
    assert second.cancel()
    assert queue.texts() == ["a"]
    assert not first.cancel()
    third = queue.put("c")
    third.cancel()
    queue.end()
    assert isinstance(error_of(first), UnavailableError)
    assert queue.left == {"dropped": 3}


def test_messages_without_an_end_that_are_lost_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = Queue(batch_size=1)
    for text in "abc":
        queue.put(text, until=None)
    for _ in range(3):
        queue.batch()
        queue.refused(GONE)
    lost = [each for each in caplog.records if "are lost" in each.getMessage()]
    assert len(lost) == 1


def test_waiting_is_told_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    queue = Queue()
    queue.put("a", until=None)
    for reason in ("no answer", "no answer", "busy"):
        queue.batch()
        queue.postpone(0, reason)
    queue.delivered()
    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == [
        "no answer",
        "busy",
        "messages for default/t are delivered again",
    ]


def test_other_refusals_are_the_error_of_the_call() -> None:
    queue = Queue()
    future = queue.put("a")
    queue.batch()
    error: OplogError = RefusedError(302, "redirects")
    queue.refused(error)
    assert error_of(future) is error


def test_room_is_for_so_many_messages_and_bytes_but_always_for_one_call() -> None:
    room = BufferRoom(3, 100)
    assert room.take(9, 900)
    assert not room.take(1, 1)
    room.give(9, 900)
    assert [room.take(1, 40), room.take(1, 40), room.take(1, 40), room.take(1, 20)] == [
        True,
        True,
        False,
        True,
    ]
    assert not room.take(1, 0, 0.01)
    room.close()
    assert room.take(1, 1, None)
