"""A sink for another agent: its oplog, or one of its topics."""

import logging
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.fields import AGENTS, LOG, TLS, Field, Kind, timeout
from oplog_pipe.model.options import SinkOptions, TlsOptions
from oplog_pipe.sinks.base import Sink
from oplog_pipe.sinks.parts.calls import Calls
from oplog_pipe.sinks.parts.origin import Circles, Own, PolledMessage, marked, origins
from oplogc.follow.stream import STORE_HEADER
from oplogc.http.answers import Answer
from oplogc.producers.verdict import Delivered, Invalid, Later, TooLarge, Verdict, judge
from oplogc.topics.messages.names import OPLOG, topic_name

_NDJSON = {"Content-Type": "application/x-ndjson", "Accept-Encoding": "identity"}
_JSON = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_encode = msgspec.json.Encoder().encode
_read_page = msgspec.json.Decoder(list[PolledMessage]).decode
# Of a topic's message. The id is the one of the first topic.
_MEMBERS = {"payload", "key", "headers", "encoding"}
_POLLED = 1000
logger = logging.getLogger("oplog_pipe")

# Place in the batch, and the message as the agent takes it.
Body = tuple[int, bytes]


@dataclass(frozen=True)
class OplogOptions(SinkOptions):
    """``log``: ``system/oplog`` or a topic, which must exist."""

    type_name = "oplog"
    hints = ("topic",)
    settings = (
        AGENTS,
        LOG,
        Field("password", Kind.SECRET, "Password for sending."),
        timeout("Time for one request."),
        *TLS,
    )
    identity = ("log",)

    agents: tuple[str, ...] = field(repr=False)
    log: str = str(OPLOG)
    password: str | None = field(default=None, repr=False)
    timeout: float = 10.0
    tls: TlsOptions = field(default_factory=TlsOptions)

    def sink(self, namespace: str, root: Path) -> "OplogSink":
        return OplogSink(self)

    def mirrored(self) -> tuple[Sequence[str], str]:
        return self.agents, str(topic_name(self.log))


class OplogSink(Sink):
    """Sends operations to ``system/oplog``, or messages to a topic, which must exist.

    Repeated messages are appended again, in their order: the agent has no versions. The end of a
    copy removes nothing. Messages of a topic from the target, or through this sink, are not sent:
    see ``origin``. Raises ValueError for an unusable option.
    """

    def __init__(self, options: OplogOptions) -> None:
        self._topic = topic_name(options.log)
        self._is_oplog = self._topic == OPLOG
        self._hop = ""
        self._may_poll = True
        self._circles = Circles()
        self._own = Own()
        self.notice: str | None = None
        self._store = ""
        self._notices: dict[str, str] = {}
        self._calls = Calls(options.agents, options.tls, options.timeout, password=options.password)

    def mirror(self, hop: str) -> None:
        self._hop = hop

    def open(self) -> None:
        path = "/status" if self._is_oplog else self._topic.path
        answer = self._ask("GET", path, None, _JSON)
        if answer.status != 200:
            raise self._refused(answer)

    def write(self, messages: Sequence[Message]) -> None:
        returned = set() if self._is_oplog or not self._hop else self._returned(messages)
        bodies: list[Body] = []
        for place, message in enumerate(messages):
            if place in returned:
                continue
            try:
                body = operation(message) if self._is_oplog else payload(message, self._hop)
                bodies.append((place, body))
            except (ValueError, TypeError) as error:
                raise SinkError(f"{message!r}: {error}", index=place) from None
        if bodies:
            self._send(bodies)
        if self._is_oplog and (notice := self._circles.see(messages)):
            self._tell("circle", notice)

    def close(self) -> None:
        self._calls.close()

    def _returned(self, messages: Sequence[Message]) -> set[int]:
        """Return the places of messages sent by this sink or by the target."""
        own: set[int] = set()
        log = str(self._topic)
        ids: dict[str, list[int]] = {}
        for place, message in enumerate(messages):
            for each in origins(message.data) if is_of_topic(message) else ():
                if each.hop == self._hop:
                    own.add(place)
                    self._tell(f"own {message.source}", self._own.see(message), once=True)
                    break
                if each.log == log:
                    ids.setdefault(each.id, []).append(place)
        ids = {id: places for id, places in ids.items() if not own.issuperset(places)}
        at, wanted = 0, sorted(ids)
        while at < len(wanted) and self._may_poll:
            page = self._poll(wanted[at], min(len(wanted) - at, _POLLED))
            for found in page:
                # Ids are times, so that another store may have the same one.
                places = ids.get(found.id, ())
                own.update(each for each in places if found.is_copied_by(messages[each].data))
            at = max(bisect_right(wanted, page[-1].id), at + 1) if page else len(wanted)
        return own

    def _tell(self, subject: str, notice: str, *, once: bool = False) -> None:
        """Set the notice about a subject, beside those about others, and log it."""
        if not (once and subject in self._notices):
            logger.warning("%s: %s", self._calls.server, notice)
        self._notices[subject] = f"{self._calls.server}: {notice}"
        self.notice = "; ".join(self._notices.values())

    def _poll(self, start: str, limit: int) -> list[PolledMessage]:
        """Return messages of the target from an id on. Raises SinkError."""
        asked = {"startFrom": start, "limit": limit, "isolation": "read_committed"}
        answer = self._ask("POST", f"{self._topic.path}/poll", _encode(asked), _JSON)
        if answer.status in (401, 403):
            self._may_poll = False
            reason = f"the password of the sink may not read {self._topic}"
            notice = f"{reason}: a message that comes back from there is sent once more"
            self._tell("poll", notice)
            return []
        if answer.status != 200:
            raise self._refused(answer)
        try:
            return _read_page(answer.body)
        except ValueError:
            reason = f"{self._calls.server}: the answer to a poll cannot be read: is it an agent?"
            raise SinkError(reason, transient=True) from None

    def _send(self, bodies: list[Body]) -> None:
        match self._verdict([body for _, body in bodies]):
            case Delivered():
                return
            case Invalid(bad) if bad:
                place = min(bad)
                raise SinkError(f"{self._calls.server}: {bad[place]}", index=bodies[place][0])
            case TooLarge(reason) if len(bodies) == 1:
                raise SinkError(f"{self._calls.server}: {reason}", index=bodies[0][0])
            case TooLarge():
                half = len(bodies) // 2
                self._send(bodies[:half])
                self._send(bodies[half:])
            case Later(reason, _, status):
                if status in (401, 403):
                    reason += "; look at the password of the sink"
                reason = f"{self._calls.server}: {reason}"
                raise SinkError(reason, transient=True) if status is None else TargetError(reason)

    def _verdict(self, bodies: list[bytes]) -> Verdict:
        if self._is_oplog:
            return judge(self._ask("POST", "/ops", b"\n".join(bodies), _NDJSON), len(bodies))
        body = b'{"messages":[' + b",".join(bodies) + b"]}"
        answer = self._ask("POST", f"{self._topic.path}/publish", body, _JSON)
        if answer.status == 200 and not answer.body:
            return Delivered()
        # Of a refused request nothing is stored; a smaller part of it tells which message it is.
        if answer.status in (400, 413):
            return TooLarge(answer.sentence())
        return judge(answer, -1)

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Send a request to one agent after the other until one answers. Raises SinkError."""

        def fault(answer: Answer) -> str | None:
            self._see_store(answer.headers.get(STORE_HEADER, ""))
            return answer.sentence() if answer.passes else None

        return self._calls.first_answer(method, path, body, headers, fault)

    def _see_store(self, store: str) -> None:
        """Tell if a store is not the one before. ``store``: its identity; empty: not known."""
        before, self._store = self._store, store or self._store
        if before in ("", self._store):
            return
        then = "the pipe cannot send them again"
        if self._is_oplog:
            then = "`oplog-pipe copy SOURCE` sends the objects of an oplog again"
        notice = f"another store answers than before, {store} instead of {before}"
        self._tell("store", f"{notice}. It may lack what was sent until now; {then}")

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


def is_of_topic(message: Message) -> bool:
    """Return whether the data is a message of a topic, as its source brought it."""
    data: Any = message.data
    return "/" in message.namespace and isinstance(data, dict) and data.keys() - _MEMBERS == {"id"}


def payload(message: Message, hop: str = "") -> bytes:
    """Return a message for a topic.

    A message of a topic keeps payload, key and headers. ``hop``: id of the sink, for a header with
    the origin; empty: no header. Otherwise the key is the id. The payload is the data: text as it
    is, other data as JSON, null for a delete. Raises ValueError, TypeError.
    """
    data: Any = message.data
    if is_of_topic(message):
        return marked(data, hop, message.namespace)
    text = None
    if message.op != "delete":
        text = data if isinstance(data, str) else message.json().decode()
    return _encode({"payload": text, "key": message.id})
