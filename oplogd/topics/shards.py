"""Polls of one shard of a topic from memory."""

import asyncio

from oplogd.model.message import message_hash
from oplogd.model.message_id import MessageId
from oplogd.model.shard import Shard
from oplogd.model.transaction import Isolation
from oplogd.store.topics import Topic
from oplogd.topics.codec.codec import PollMessage
from oplogd.topics.memory import Memory
from oplogd.topics.poll import MAX_ANSWER_BYTES, PASSING_ENTRIES, PollAnswer


async def peek_shard(
    memory: Memory,
    topic: Topic,
    after: MessageId | None,
    limit: int,
    isolation: Isolation,
    shard: Shard,
) -> PollAnswer | None:
    """Return the messages of a shard past a position (None: from the oldest one), if all are known.

    It reads on behind the messages of other shards. None: ask the store.
    """
    messages: list[PollMessage] = []
    reached: str | None = None
    size = 0
    while True:
        found = await memory.peek_soon(topic, after, PASSING_ENTRIES, MAX_ANSWER_BYTES, isolation)
        if found is None or found.held_by is not None:  # maybe by a message of another shard
            return None
        for after, data in found.messages:
            id_ = str(after)
            if shard.has(message_hash(id_, data)):
                size += len(data)
                if messages and size > MAX_ANSWER_BYTES:
                    return PollAnswer(messages, gap=False, reached=reached)
                messages.append(PollMessage(id_, data))
            reached = id_
            if len(messages) == limit:
                break
        if len(messages) == limit or not found.messages:
            return PollAnswer(messages, gap=False, reached=reached)
        await asyncio.sleep(0)  # other requests run in between
