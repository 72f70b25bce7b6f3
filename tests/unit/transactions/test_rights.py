"""The right to write is asked for the topic of every record, before anything is stored."""

import asyncio
import json
from typing import Any

import pytest
from fastapi import FastAPI

from oplogd.ingest.appends import Appends
from oplogd.ingest.budget import Budgets
from oplogd.ingest.counters import IngestCounters
from oplogd.ingest.ignored import IgnoredMembers
from oplogd.model.names import TopicName
from oplogd.store.transactions import RecordLimits
from oplogd.topics.known import KnownTopics
from oplogd.topics.transactions.service import TransactionService
from oplogd.watch.health import Health
from oplogd.web.access.right_bodies import right_of
from oplogd.web.access.rights import Right
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.error_handlers import Refusals, add_error_handlers
from oplogd.web.v1.requests import Api
from oplogd.web.v1.transactions import TXNS, add_transactions
from tests.kits.topics.memory import MemoryTopics
from tests.kits.topics.memory_transactions import MemoryTransactions
from tests.kits.web.keepers import Granting

OWN, FOREIGN = TopicName("ns", "own"), TopicName("ns", "foreign")
RIGHT = right_of({"write": ["ns/own"]})


async def post(app: FastAPI, path: str, body: Any) -> tuple[int, Any]:
    """Return the status and the JSON of an answer."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def app_with_topics(right: Right = RIGHT, client: Any = None) -> FastAPI:
    topics = MemoryTopics(lambda: 1_700_000_000_000)
    for name in (OWN, FOREIGN):
        await topics.create(name, None)
    service = TransactionService(
        MemoryTransactions(topics), topics, KnownTopics(topics), RecordLimits()
    )
    app = FastAPI()
    add_error_handlers(app, Refusals())
    bodies = BodyReader(Budgets.of(1 << 20, 30.0), 1 << 20)
    client = client or Granting(right)
    api = Api(client, client, bodies, Appends(Health()), lambda: False)
    add_transactions(app, api, service, IgnoredMembers(IngestCounters()))
    return app


@pytest.mark.parametrize("last", [OWN, FOREIGN])
def test_one_record_without_the_right_refuses_all(last: TopicName) -> None:
    async def work() -> None:
        app = await app_with_topics()
        _, begun = await post(app, TXNS, {})
        records = [
            {"topic": str(name), "lsn": lsn, "payload": "a"}
            for lsn, name in enumerate((OWN, OWN, last))
        ]
        path = f"{TXNS}/{begun['txn']}"
        status, answer = await post(app, f"{path}/records", {"records": records})
        if last == OWN:
            assert (status, answer["records"]) == (200, 3)
            return
        assert (status, answer["detail"]) == (403, "the right to write ns/foreign is missing")
        status, answer = await post(app, f"{path}/commit", {"records": 1})
        assert status == 409, "nothing was stored"

    asyncio.run(work())


def test_a_transaction_of_a_topic_needs_the_right_to_write_it() -> None:
    async def work() -> None:
        app = await app_with_topics()
        assert (await post(app, TXNS, {"topic": str(OWN)}))[0] == 201
        assert (await post(app, TXNS, {"topic": str(FOREIGN)}))[0] == 403

    asyncio.run(work())


def test_a_group_and_the_records_of_a_whole_transaction_need_their_rights() -> None:
    async def work() -> None:
        app = await app_with_topics()
        for group, status in ((None, 201), ("default", 201), ("orders", 403)):
            assert (await post(app, TXNS, {"group": group}))[0] == status, group
        for names, status in (((OWN, OWN), 200), ((OWN, FOREIGN), 403)):
            records = [{"topic": str(name), "payload": "a"} for name in names]
            assert (await post(app, TXNS, {"records": records}))[0] == status, names
        reader = await app_with_topics(right_of({"read": ["*"], "manage": ["*"]}))
        status, answer = await post(reader, TXNS, {})
        assert (status, answer["detail"]) == (403, "the right to write a topic is missing")

    asyncio.run(work())


def test_the_rights_of_all_its_topics_are_asked_again_at_the_commit() -> None:
    async def work() -> None:
        client = Granting(right_of({"write": ["ns/own", "system/oplog"]}))
        app = await app_with_topics(client=client)
        _, begun = await post(app, TXNS, {})
        operation = json.dumps({"event": "insert", "type": "t", "id": "1"})
        records = [
            {"topic": "system/oplog", "lsn": 0, "payload": operation},
            {"topic": str(OWN), "lsn": 1, "payload": "a"},
        ]
        path = f"{TXNS}/{begun['txn']}"
        assert (await post(app, f"{path}/records", {"records": records}))[0] == 200
        for left, missing in (("ns/own", "system/oplog"), ("system/oplog", "ns/own")):
            client.given = client.given._replace(right=right_of({"write": [left]}))
            status, answer = await post(app, f"{path}/commit", {"records": 2})
            assert (status, answer["detail"]) == (403, f"the right to write {missing} is missing")

    asyncio.run(work())
