"""A sink for another agent: its oplog, or one of its topics."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from oplog_pipe.calls import Calls
from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.sinks.options import OplogOptions
from oplogc.answers import Answer
from oplogc.http_client import NoAnswer
from oplogc.topics.names import OPLOG, topic_name
from oplogc.verdict import Delivered, Invalid, Later, TooLarge, Verdict, judge

_NDJSON = {"Content-Type": "application/x-ndjson", "Accept-Encoding": "identity"}
_JSON = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_encode = msgspec.json.Encoder().encode
# Of a topic's message. The id is the one of the first topic.
_KEPT = {"payload", "key", "headers", "encoding"}


class OplogSink:
    """Sends operations to ``system/oplog``, or messages to a topic, which must exist.

    The agent has no versions: messages that come again are appended again, in their order. At the
    end of a copy nothing is removed. Raises ValueError for an option that cannot be used.
    """

    def __init__(self, options: OplogOptions) -> None:
        topic = topic_name(options.log)
        self._is_oplog = topic == OPLOG
        self._topic = topic
        self._encode: Callable[[Message], bytes] = operation if self._is_oplog else payload
        self._calls = Calls(options.agents, options.tls, options.timeout, password=options.password)

    def open(self) -> None:
        path = "/status" if self._is_oplog else self._topic.path
        answer = self._ask("GET", path, None, _JSON)
        if answer.status != 200:
            raise self._refused(answer)

    def write(self, messages: Sequence[Message]) -> None:
        bodies = []
        for place, message in enumerate(messages):
            try:
                bodies.append(self._encode(message))
            except (ValueError, TypeError) as error:
                raise SinkError(f"{message!r}: {error}", index=place) from None
        self._send(bodies, 0)

    def begin_copy(self, generation: int, source: str) -> None:
        pass

    def end_copy(self, generation: int, source: str) -> None:
        pass

    def close(self) -> None:
        self._calls.close()

    def _send(self, bodies: list[bytes], first: int) -> None:
        """Send bodies. ``first``: place of the first one in the batch."""
        verdict = self._operations(bodies) if self._is_oplog else self._messages(bodies)
        match verdict:
            case Delivered():
                return
            case Invalid(bad) if bad:
                place = min(bad)
                raise SinkError(f"{self._calls.server}: {bad[place]}", index=first + place)
            case TooLarge(reason) if len(bodies) == 1:
                raise SinkError(f"{self._calls.server}: {reason}", index=first)
            case TooLarge():
                half = len(bodies) // 2
                self._send(bodies[:half], first)
                self._send(bodies[half:], first + half)
            case Later(reason, _, status):
                if status in (401, 403):
                    reason += "; look at the password of the sink"
                reason = f"{self._calls.server}: {reason}"
                raise SinkError(reason, transient=True) if status is None else TargetError(reason)

    def _operations(self, bodies: list[bytes]) -> Verdict:
        return judge(self._ask("POST", "/ops", b"\n".join(bodies), _NDJSON), len(bodies))

    def _messages(self, bodies: list[bytes]) -> Verdict:
        body = b'{"messages":[' + b",".join(bodies) + b"]}"
        answer = self._ask("POST", f"{self._topic.path}/publish", body, _JSON)
        if answer.status == 200 and not answer.body:
            return Delivered()
        # Of a refused request nothing is stored; a smaller part of it tells which message it is.
        if answer.status in (400, 413):
            return TooLarge(answer.sentence())
        return judge(answer, -1)

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Send a request to the first agent that answers, each of them once. Raises SinkError."""
        reason = ""
        for _ in range(self._calls.count):
            answer = self._calls.ask(method, path, body, headers)
            if isinstance(answer, Answer) and not answer.passes:
                return answer
            reason = answer.reason if isinstance(answer, NoAnswer) else answer.sentence()
            reason = f"{self._calls.server}: {reason}"
            self._calls.move_on()
        raise SinkError(reason, transient=True)

    def _refused(self, answer: Answer) -> SinkError:
        hint = "; look at the password of the sink" if answer.status in (401, 403) else ""
        return TargetError(f"{answer.url}: {answer.sentence()}{hint}")


def operation(message: Message) -> bytes:
    """Return a message of an oplog as an operation. Raises ValueError if its data is none."""
    data: Any = message.data
    if not isinstance(data, dict) or not {"type", "id"} <= data.keys():
        raise ValueError("data is no operation, with type and id: another log suits it better")
    members = {name: data[name] for name in ("type", "id", "parents", "timestamp") if name in data}
    return _encode({"event": message.op, **members})


def payload(message: Message) -> bytes:
    """Return a message for a topic.

    A message of a topic keeps payload, key and headers. Otherwise the key is the id, and the
    payload the data, null for a delete: text as it is, other data as JSON. Raises ValueError or
    TypeError if it cannot be expressed.
    """
    data: Any = message.data
    if "/" in message.namespace and isinstance(data, dict) and data.keys() - _KEPT == {"id"}:
        return _encode({name: value for name, value in data.items() if name != "id"})
    text = None
    if message.op != "delete":
        text = data if isinstance(data, str) else message.json().decode()
    return _encode({"payload": text, "key": message.id})
