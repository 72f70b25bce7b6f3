"""A model of the poll API: plain lists, and the answer that each poll must have."""

from dataclasses import dataclass, field
from typing import Any

from oplogd.model.message_id import MessageId, stamp, unstamp
from oplogd.model.shard import Shard, hash_of

# The first answer to fill these bytes of data is full.
ANSWER_BYTES = 1_000_000


@dataclass
class Known:
    """A published message. ``expires_ms``: past it nobody reads the message, 0: never."""

    stamp: int
    payload: str
    expires_ms: int

    @property
    def ms(self) -> int:
        return unstamp(self.stamp)[0]

    @property
    def id(self) -> str:
        return str(MessageId(*unstamp(self.stamp)))

    @property
    def size(self) -> int:
        return len(f'{{"payload":"{self.payload}"}}')


@dataclass
class TopicModel:
    """All messages of one generation, also those that are gone. ``begin``: stamp of its begin.

    ``floor_ms``: messages before it stay expired after the time to live grew.
    """

    ttl: int
    begin: int
    floor_ms: int = 0
    messages: list[Known] = field(default_factory=list)

    @property
    def head(self) -> int:
        return self.messages[-1].stamp if self.messages else self.begin

    def publish(self, now: int, payloads: list[str], ttl: int | None) -> None:
        first = max(stamp(now, 0), self.head + 1)
        for k, payload in enumerate(payloads):
            ms, _ = unstamp(first + k)
            self.messages.append(Known(first + k, payload, ms + ttl * 1000 if ttl else 0))

    def set_ttl(self, now: int, ttl: int) -> None:
        self.floor_ms = max(self.floor_ms, now - self.ttl * 1000)
        self.ttl = ttl

    def poll(
        self,
        now: int,
        start: str | int | None,
        inclusive: bool,
        limit: int,
        shard: Shard | None = None,
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return the messages of the answer, and whether it announces a gap."""
        floor = max(self.floor_ms, now - self.ttl * 1000)
        gone = [each for each in self.messages if each.ms < floor]
        readable = [
            each for each in self.messages if each.ms >= floor and not 0 < each.expires_ms < now
        ]
        if start is None:
            wanted, gap = readable, False
        elif isinstance(start, int):
            first_ms = start if inclusive else start + 1
            wanted = [each for each in readable if each.ms >= first_ms]
            gap = any(each.ms >= first_ms for each in gone)
        else:
            at = stamp(int(start[:16], 16), int(start[16:20], 16))
            wanted = [
                each for each in readable if each.stamp > at or (inclusive and each.id == start)
            ]
            gap = at < self.begin or any(each.stamp > at for each in gone)
        wanted = [each for each in wanted if shard is None or shard.has(hash_of(each.id))]
        return [{"id": each.id, "payload": each.payload} for each in _cut(wanted, limit)], gap


def _cut(wanted: list[Known], limit: int) -> list[Known]:
    answer: list[Known] = []
    size = 0
    for each in wanted[:limit]:
        size += each.size
        if answer and size > ANSWER_BYTES:
            break
        answer.append(each)
    return answer
