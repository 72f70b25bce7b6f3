"""Pointers of foreign transactions: store, roll back, report, and show what is in a topic.

Publish and poll are in ``messages``.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request, Response

from oplogd.errors import MessageError
from oplogd.model.names import OPLOG, TopicName
from oplogd.model.pointer import Decision
from oplogd.store.pointers import FoundPointer, OpenPointer, PointerKey
from oplogd.topics.pointers import rules
from oplogd.topics.pointers.service import PointerService
from oplogd.topics.publish import PublishService
from oplogd.topics.transactions.rules import DEFAULT_LIMIT
from oplogd.web.access.caller import Caller
from oplogd.web.describe import types
from oplogd.web.describe.document import BODY_ERRORS, ERRORS, described
from oplogd.web.describe.parameters import (
    After,
    AfterOffset,
    Force,
    Limit,
    Pointer,
    TimedOut,
    TtlQuery,
)
from oplogd.web.http.cursors import key_in
from oplogd.web.http.headers import refuse_fence
from oplogd.web.http.problem import Problem
from oplogd.web.v1.pages import MORE, Asked, asked_page, listed
from oplogd.web.v1.requests import (
    HEADERS,
    STORES_TWICE,
    TOPIC,
    Api,
    answer,
    codec_for,
    json_body,
    read_messages,
    refuse_reserved,
    require_known,
    shown,
)

POINTERS = "/v1/pointers"
POINTER = f"{POINTERS}/{{pointer}}"

# No report is longer, unless it has many blanks.
_MAX_REPORT_BYTES = 600 * 1024
_ERRORS = (*BODY_ERRORS, 404, 409)


def add_pointers(
    app: FastAPI, api: Api, service: PointerService, publisher: PublishService
) -> None:
    """Add the endpoints. ``publisher`` counts messages refused as invalid."""
    report = json_body(api.bodies, rules.parse_report, _MAX_REPORT_BYTES)

    async def writable(request: Request, name: TopicName = Depends(api.writable)) -> TopicName:
        """Return a topic to which messages under pointers may be written. Raises Problem."""
        refuse_fence(request, "messages under a pointer")
        if name == OPLOG:
            raise Problem(400, rules.NOT_FOR_OPLOG)
        require_known(name)
        refuse_reserved(name)
        return name

    async def with_pointers(name: TopicName = Depends(api.with_pointers)) -> TopicName:
        """Return a topic whose pointers may be shown. Raises Problem."""
        return logged(name)

    async def readable(name: TopicName = Depends(api.readable)) -> TopicName:
        """Return a topic whose entries may be shown. Raises Problem."""
        return logged(name)

    def logged(name: TopicName) -> TopicName:
        if name == OPLOG:
            raise Problem(400, f"{OPLOG} is the log of operations: poll it, or follow /ops")
        require_known(name)
        return name

    async def reported(
        caller: Caller = Depends(api.writer), names: list[TopicName] = report
    ) -> list[TopicName]:
        """Return the topics of a report, which are in its body. Raises Problem."""
        api.require_still(caller)
        for name in names:
            caller.require_write(name)
            require_known(name)
        return names

    @app.post(f"{TOPIC}/store")
    @described("pointers", *_ERRORS, body=types.StoreBody, has_avro=True)
    async def store(
        request: Request,
        name: TopicName = Depends(writable),
        caller: Caller = Depends(api.writer),
        ttl: TtlQuery = None,
    ) -> Response:
        """Store messages under a pointer.

        No reader gets them before they are published, by a publish with the pointer and without
        messages. An answer of 200 means that they are durable. Sent again, they are stored twice.
        """
        codec = codec_for(request)
        pointer, messages = await read_messages(request, codec, api.bodies, publisher)
        api.require_still(caller)
        if pointer is None:
            raise MessageError("transactionWritePointer", "must not be null")
        if not messages:
            raise MessageError("messages", "there is none")
        await api.confirmed(service.store(name, pointer, messages), STORES_TWICE)
        return Response(status_code=200, headers=HEADERS)

    @app.post(f"{TOPIC}/rollback")
    @described("pointers", *_ERRORS, body=types.RollbackBody, has_avro=True)
    async def rollback(
        request: Request,
        name: TopicName = Depends(writable),
        caller: Caller = Depends(api.writer),
        force: Force = False,
    ) -> Response:
        """Roll back messages under a pointer.

        Takes the answer to a publish as it is, or its keys. Without any, everything under the
        pointer is rolled back, also messages that are only stored. No reader gets the messages
        afterwards. Messages that are already rolled back, or belong to others, are passed over:
        repeat a request that got no answer. After the report of a commit it is refused; after the
        time-out it is the report of an abort.
        """
        if force:
            caller.require_manage(name)
        codec = codec_for(request)
        async with api.bodies.received(request, "keys") as raw:
            pointer, stamps = await api.bodies.work(codec.decode_rollback(raw))
        api.require_still(caller)
        await api.confirmed(service.rollback(name, pointer, stamps, force=force))
        return Response(status_code=200, headers=HEADERS)

    @app.post(f"{POINTER}/commit")
    @described("pointers", *_ERRORS, body=rules.ReportBody, answer=types.DecidedAnswer)
    async def commit_pointer(
        pointer: int = Depends(pointer_of), names: list[TopicName] = Depends(reported)
    ) -> Response:
        """Commit a pointer in topics.

        The owner of the foreign transaction reports its end for each topic in which it has
        published. Readers with `isolation` `read_committed` get its messages. Where it has timed
        out, they get them at the end of the topic. Nothing more can be published under the pointer
        in these topics. It is for all of these topics, or refused for all. Repeated, the answer is
        the same.
        """
        return await decide(pointer, names, Decision.COMMITTED)

    @app.post(f"{POINTER}/abort")
    @described("pointers", *_ERRORS, body=rules.ReportBody, answer=types.DecidedAnswer)
    async def abort_pointer(
        pointer: int = Depends(pointer_of), names: list[TopicName] = Depends(reported)
    ) -> Response:
        """Abort a pointer in topics.

        As a commit, but readers with `isolation` `read_committed` do not get its messages.
        """
        return await decide(pointer, names, Decision.ABORTED)

    @app.get(f"{TOPIC}/pointers")
    @described("pointers", *ERRORS, 404, answer=list[types.PointerAnswer], headers=MORE)
    async def list_pointers(
        name: TopicName = Depends(with_pointers),
        has_timed_out: TimedOut = False,
        limit: Limit = DEFAULT_LIMIT,
        after: After = "",
    ) -> Response:
        """List the open pointers of a topic, the oldest first.

        A pointer is open from its first message in the topic until it is decided. `published`:
        messages were published under it; otherwise they are only stored. With `state=timed-out`:
        the pointers that timed out with messages and were not reported since, with `timed_out_at`
        and `state` in place of `expires_at` and `published`.
        """
        if has_timed_out:
            found = await service.timed_out(name, limit)
            return shown([rules.timed_out_shown(each) for each in found])
        return await listed(
            Asked(limit, after),
            lambda after, most: service.select(name, most, key_in(after, PointerKey)),
            lambda each: PointerKey(each.begun_ms, each.pointer, 0),
            show_page,
        )

    @app.get(POINTERS)
    @described("pointers", *ERRORS, answer=list[types.TopicPointerAnswer], headers=MORE)
    async def list_all_pointers(
        caller: Caller = Depends(api.reader), asked: Asked = Depends(asked_page)
    ) -> Response:
        """List the open pointers of all topics, the oldest first.

        One item for each topic in which a pointer is open. `holds`: readers with `isolation`
        `read_committed` wait for it, because messages were published under it (`published`). Only
        pointers in topics that the client manages are shown, and to the password for reading all.
        """

        async def seen(found: Sequence[FoundPointer]) -> list[FoundPointer]:
            managed = caller.right.manage
            names = await service.topics_of(found)
            return [each for each in found if names.get(each.log) in managed]

        return await listed(
            asked,
            lambda after, most: service.select_all(most, key_in(after, PointerKey)),
            lambda each: each.key,
            service.shown,
            None if caller.right.sees_all else seen,
        )

    async def show_page(found: Sequence[OpenPointer]) -> list[dict[str, Any]]:
        return [rules.pointer_shown(each) for each in found]

    @app.get(f"{TOPIC}/entries")
    @described("pointers", *ERRORS, 404, answer=list[types.EntryAnswer])
    async def list_entries(
        name: TopicName = Depends(readable),
        after: AfterOffset = None,
        limit: Limit = DEFAULT_LIMIT,
    ) -> Response:
        """List the entries of a topic in their order.

        Shows the kinds of entries, and the transactions to which they belong, but no message.
        """
        return shown(await service.entries(name, after, limit))

    async def decide(pointer: int, names: list[TopicName], decision: Decision) -> Response:
        await api.confirmed(service.decide(names, pointer, decision))
        topics = [str(name) for name in names]
        return answer({"pointer": str(pointer), "state": decision, "topics": topics})


async def pointer_of(request: Request, pointer: Pointer) -> int:
    """Return the pointer of a report. Raises MessageError, and Problem 400 with a fence."""
    refuse_fence(request, "reports")
    return pointer
