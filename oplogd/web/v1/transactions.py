"""Transactions: begin, write records, commit, abort, show, list."""

from fastapi import Depends, FastAPI, Request, Response

from oplogd.decode.media_types import JSON
from oplogd.ingest.ignored import Ignored, IgnoredMembers
from oplogd.model.lease import Fence
from oplogd.model.once import once_key
from oplogd.model.operation import format_ms
from oplogd.model.transaction import State, parse_id
from oplogd.store.transactions import Transaction
from oplogd.topics.transactions import answers, begin, rules
from oplogd.topics.transactions.service import TransactionService
from oplogd.web.access.caller import Caller
from oplogd.web.describe import types
from oplogd.web.describe.document import BODY_ERRORS, ERRORS, described
from oplogd.web.describe.parameters import (
    After,
    FenceHeader,
    Group,
    Limit,
    OnceKeyName,
    StateOfTransaction,
    Txn,
)
from oplogd.web.http.cursors import key_in
from oplogd.web.http.headers import note_ignored
from oplogd.web.v1.pages import MORE, Asked, asked_page, listed
from oplogd.web.v1.requests import (
    HEADERS,
    Api,
    allow_fence,
    allowed_fence,
    answer,
    begun_by,
    committing_whole,
    continuing,
    given_fence,
    json_body,
    require_begin,
    require_json,
    require_records,
    shown,
)

TXNS = "/v1/txns"
TXN = f"{TXNS}/{{txn}}"
ONCE = "/v1/once"
ONCE_KEY = f"{ONCE}/{{key}}"

_ERRORS = (*BODY_ERRORS, 404, 409)


def add_transactions(
    app: FastAPI, api: Api, service: TransactionService, ignored: IgnoredMembers
) -> None:
    async def open_to(
        txn: Txn, caller: Caller = Depends(api.writer), fence: Fence | None = Depends(given_fence)
    ) -> int:
        """Return the id of a transaction that takes requests with this fence. Raises Problem."""
        allow_fence(caller, fence)
        with continuing():
            await service.require_owner(txn, caller.owner, fence)
        return txn

    @app.post(TXNS)
    @described(
        "transactions",
        *(*BODY_ERRORS, 404, 409, 412, 507),
        body=types.WholeBody,
        answer=types.BegunAnswer,
        status=201,
        headers={"Location": "Path of the transaction."},
        also={200: ("With `records`: the transaction is committed.", types.WholeAnswer)},
    )
    async def begin_transaction(
        request: Request,
        caller: Caller = Depends(api.writer),
        fence: Fence | None = Depends(given_fence),
    ) -> Response:
        """Begin a transaction, or commit a whole one.

        A group selects the commit log `system/_txn.GROUP`: the commits of a group have one order.
        With `topic` the log of that topic is the commit log, and all records must be in that topic.
        Nothing commits after the time-out. With Oplog-Lease it commits only if the lease still has
        this term when the commit is decided; later requests may repeat the header. With `once` it
        commits only if no transaction with this number of the key, or a larger one, has committed.
        If the number has committed already, the answer is 200 with the transaction that has.

        With `records` the transaction has these records, and is committed when the answer comes.
        The answer is that of a commit, with `txn`. If the request is refused, nothing commits. A
        repeated request is another transaction, unless it has `once`.
        """
        allow_fence(caller, fence)
        found = Ignored()
        given = await read_begin(request, found)
        asked = begun_by(caller, given._replace(fence=fence))
        api.require_still(caller)
        require_begin(caller, asked)
        if asked.writing is not None:
            done = await committing_whole(service, api.appends, asked)
            body = await api.bodies.work(answers.encoding_commit(done, is_named=True))
            return Response(body, 200, HEADERS | note_ignored(request, found, ignored), JSON)
        begun = await api.confirmed(service.begin(asked))
        id_ = str(begun.id)
        headers = {**HEADERS, "Location": f"{TXNS}/{id_}"}
        if begun.state is State.COMMITTED:
            return await show(begun, headers)
        return answer({"txn": id_, "expires_at": format_ms(begun.expires_ms)}, headers, 201)

    @app.post(f"{TXN}/records")
    @described(
        "transactions",
        *(*_ERRORS, 412),
        body=types.RecordsBody,
        answer=types.TransactionAnswer,
        asks={"txn": Txn, "lease": FenceHeader},
    )
    async def write_records(request: Request) -> Response:
        """Write records of a transaction.

        The records are stored together or not at all. A record that was written before, with the
        same lsn and content, is passed over: repeat a request that got no answer. Readers of a
        topic see records at once, unless they read with `isolation` `read_committed`: then they see
        them after the commit. Operations always wait for the commit.
        """
        caller = await api.writer(request)
        fence = allowed_fence(request, caller)
        id_ = parse_id(request.path_params["txn"])
        found = Ignored()
        with continuing():
            await service.require_owner(id_, caller.owner, fence)
            writing = await read_records(request, found)
            api.require_still(caller)
            require_records(caller, writing)
            written = await api.appends.confirmed(service.write(id_, writing))
        return await show(written, HEADERS | note_ignored(request, found, ignored))

    @app.post(f"{TXN}/commit")
    @described(
        "transactions", *(*_ERRORS, 412), body=rules.CommitBody, answer=types.CommittedAnswer
    )
    async def commit_transaction(
        txn: int = Depends(open_to),
        count: int = json_body(api.bodies, rules.parse_commit, begin.MAX_BYTES),
        caller: Caller = Depends(api.writer),
    ) -> Response:
        """Commit a transaction.

        `records` is the number of records that were written, with lsn 0 to `records` - 1. If one is
        missing, the transaction stays open. Repeated, the answer is the same. If another
        transaction has committed with the same number of a key, the answer is that of its commit.
        """
        api.require_still(caller)
        if not caller.right.write.everything:
            for name in await service.topics_of(txn):
                caller.require_write(name)
        done = await api.confirmed(service.commit(txn, count))
        return Response(await api.bodies.work(answers.encoding_commit(done)), 200, HEADERS, JSON)

    @app.post(f"{TXN}/abort")
    @described("transactions", *_ERRORS, body=rules.AbortBody, answer=types.TransactionAnswer)
    async def abort_transaction(
        txn: int = Depends(open_to),
        _: None = json_body(api.bodies, rules.parse_abort, begin.MAX_BYTES),
        caller: Caller = Depends(api.writer),
    ) -> Response:
        """Abort a transaction.

        Readers with `isolation` `read_committed` never see its records. Repeated, or after a
        time-out, the answer is the same.
        """
        api.require_still(caller)
        return await show(await api.confirmed(service.abort(txn)))

    @app.get(TXN)
    @described("transactions", *ERRORS, 404, answer=types.TransactionAnswer)
    async def show_transaction(txn: Txn, caller: Caller = Depends(api.reader)) -> Response:
        """Show a transaction.

        A finished transaction is forgotten after a day.
        """
        found = await service.find(txn, caller.shown_owner)
        return shown((await service.shown([found]))[0])

    @app.get(TXNS)
    @described("transactions", *ERRORS, answer=list[types.TransactionAnswer], headers=MORE)
    async def list_transactions(
        caller: Caller = Depends(api.reader),
        state: StateOfTransaction = None,
        group: Group = None,
        limit: Limit = rules.DEFAULT_LIMIT,
        after: After = "",
    ) -> Response:
        """List transactions, the newest first.

        Finished transactions of the last day are among them.
        """
        return await listed(
            Asked(limit, after),
            lambda after, most: service.select(
                state, group, most, key_in(after, int), caller.shown_owner
            ),
            lambda each: int(each.id),  # of MongoDB it is a number of another type
            service.shown,
        )

    @app.get(ONCE_KEY)
    @described("transactions", *ERRORS, 404, answer=types.TransactionAnswer)
    async def show_once_key(
        caller: Caller = Depends(api.reader), key: str = Depends(key_of)
    ) -> Response:
        """Show the newest committed transaction of a key: see `once` of a begin.

        It is never forgotten, unless the key is deleted.
        """
        found = await service.newest(key, caller.shown_owner)
        return shown((await service.shown([found]))[0])

    @app.get(ONCE)
    @described("transactions", *ERRORS, answer=list[types.TransactionAnswer], headers=MORE)
    async def list_once_keys(
        caller: Caller = Depends(api.reader), asked: Asked = Depends(asked_page)
    ) -> Response:
        """List the newest committed transaction of each key, sorted by key."""
        return await listed(
            asked,
            lambda after, most: service.keys(key_in(after, str) or "", most, caller.shown_owner),
            lambda each: each.once and each.once.key,
            service.shown,
        )

    @app.delete(ONCE_KEY, status_code=204)
    @described("transactions", *ERRORS, 404, 409, status=204)
    async def delete_once_key(
        caller: Caller = Depends(api.writer), key: str = Depends(key_of)
    ) -> Response:
        """Delete a key. After that its numbers can commit again."""
        await api.confirmed(service.forget_key(key, caller.owner))
        return Response(None, 204, HEADERS)

    async def read_begin(request: Request, found: Ignored) -> begin.Begin:
        async with api.bodies.received(request, "records") as raw:
            require_json(request, raw)
            return await api.bodies.work(
                begin.parsing_begin(raw, api.bodies.arrival(), service.limits.records, found.add)
            )

    async def read_records(request: Request, found: Ignored) -> rules.Writing:
        async with api.bodies.received(request, "records") as raw:
            require_json(request, raw)
            return await api.bodies.work(
                rules.parsing_records(raw, api.bodies.arrival(), service.limits.records, found.add)
            )

    async def show(transaction: Transaction, headers: dict[str, str] = HEADERS) -> Response:
        return answer((await service.shown([transaction]))[0], headers)


async def key_of(key: OnceKeyName) -> str:
    """Return the key in a request's path. Raises TopicError."""
    return once_key(key)
