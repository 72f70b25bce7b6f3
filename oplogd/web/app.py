"""The FastAPI app: composes the endpoints of the wire contract."""

import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from oplogd import __version__
from oplogd.agent import Agent
from oplogd.ingest.budget import Budgets
from oplogd.ingest.queue import Intake
from oplogd.web.access.keeper import Keeper
from oplogd.web.access.sides import ReadAuthenticator, WriteAuthenticator
from oplogd.web.access.sources import Sources
from oplogd.web.connection.short_way import ShortWay
from oplogd.web.describe.document import INTRODUCTION, add_document
from oplogd.web.figures.status import StatusReport
from oplogd.web.http.bodies import BodyReader
from oplogd.web.http.error_handlers import Refusals, add_error_handlers
from oplogd.web.http.methods import add_head, add_preflight
from oplogd.web.http.plain import Begin
from oplogd.web.oplog.ingest import OPLOG_PATHS, Ingest, add_ingest
from oplogd.web.oplog.monitoring import add_monitoring
from oplogd.web.oplog.objects import Objects, add_objects
from oplogd.web.oplog.page import add_docs
from oplogd.web.oplog.session import add_session
from oplogd.web.oplog.stream import Streams, add_stream
from oplogd.web.v1.consumers import add_consumers
from oplogd.web.v1.leases import add_leases
from oplogd.web.v1.messages import add_poll, add_publish
from oplogd.web.v1.plain import PlainMessages, PlainPositions, PlainTransactions, find_of_topic
from oplogd.web.v1.pointers import add_pointers
from oplogd.web.v1.requests import Api
from oplogd.web.v1.stream import TopicStreams, add_topic_stream
from oplogd.web.v1.topics import add_topics
from oplogd.web.v1.transactions import TXNS, add_transactions

# FastAPI 0.165 makes spans for any provider of OpenTelemetry. They hold the query of a request,
# with its token.
_NO_TELEMETRY = {"tracing": False, "metrics": False, "logs": False}


class Web(NamedTuple):
    """``short_way``: answers the most frequent requests before the app sees them.

    ``tasks``: by name, to run while the agent runs.
    """

    app: FastAPI
    short_way: ShortWay
    tasks: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]


def create_web(agent: Agent) -> Web:
    """Return the endpoints of an agent. Each group of them gets only the parts it uses."""
    settings = agent.settings
    private_files = (settings.store, settings.spool)
    allowed_hosts = settings.allowed_hosts or frozenset()
    clock, workers = agent.clock, agent.worker.workers
    of_credentials = dataclasses.replace(clock, now_ms=agent.time_of_day)
    refused = agent.worker.tallies.requests_refused
    sources = Sources(settings)
    keeper = Keeper(sources, clock, agent.worker, lambda: agent.store.secret)
    readers = ReadAuthenticator(
        keeper, allowed_hosts, of_credentials, refused.cell("read"), workers=workers
    )
    writers = WriteAuthenticator(
        keeper, allowed_hosts, of_credentials, refused.cell("write"), workers=workers
    )

    def is_stopping() -> bool:
        return agent.stopping

    app = FastAPIOffline(
        title="oplog",
        version=__version__,
        description=INTRODUCTION,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
    )
    refusals = Refusals(private_files, refused.bodies)
    add_error_handlers(app, refusals)
    intake = Intake(agent.queue, agent.fenced, agent.counters, agent.health.part("writer"))
    memory, timeout = settings.max_upload_memory, settings.body_timeout
    budgets = Budgets.of(memory, timeout, clock, is_part=workers.count > 1)
    bodies = BodyReader(budgets, settings.max_body_size, clock)
    api = Api(readers, writers, bodies, agent.appends, is_stopping)
    topics = agent.topics
    # The router tries its routes one after another, so the most frequent requests come first.
    ingest = Ingest(writers, intake, agent.ignored, bodies, is_stopping)
    add_ingest(app, ingest)
    add_publish(app, api, topics.publisher, agent.pointers, intake, agent.ignored)
    add_poll(app, api, topics.poller, topics.oplog)
    streams = Streams(agent.hub, readers, is_stopping, settings.max_filter_values)
    add_stream(app, streams)
    add_objects(app, Objects(agent.store, agent.framer, readers, settings.max_filter_values))
    add_monitoring(
        app,
        readers,
        StatusReport(agent, private_files, lambda: keeper.credentials.errors),
        is_stopping,
    )
    add_session(app, readers)
    add_topics(app, api, agent.store, topics.known, agent.feeds, agent.sweep_soon)
    topic_streams = TopicStreams(topics.known, streams)
    add_topic_stream(app, topic_streams)
    add_transactions(app, api, agent.transactions, agent.ignored)
    add_pointers(app, api, agent.pointers, topics.publisher)
    add_leases(app, api, agent.store, agent.leases)
    add_consumers(app, api, agent.consumers, streams, settings.max_filter_values)
    add_docs(app)
    add_document(app)
    add_preflight(app)
    add_head(app)
    plain = PlainMessages(topics.publisher, topics.poller, bodies, readers, writers, is_stopping)
    whole = PlainTransactions(
        agent.transactions, agent.ignored, bodies, writers, agent.appends, is_stopping
    )
    positions = PlainPositions(agent.consumers, bodies, readers)
    posts, gets = {TXNS.encode(): whole.begin}, {}
    for path in OPLOG_PATHS:
        posts[path.encode()], gets[path.encode()] = ingest.begin, streams.begin
    post_actions = {b"publish": plain.publish, b"poll": plain.poll}
    get_actions = {b"stream": topic_streams.begin}

    def find(method: bytes, path: bytes) -> Begin | None:
        if method == b"POST":
            found = posts.get(path) or find_of_topic(path, post_actions)
            return found or positions.find(path)
        if method == b"GET":
            return gets.get(path) or find_of_topic(path, get_actions)
        return None

    watch = partial(keeper.run, partial(agent.hub.end_without, readers.is_valid))
    tasks = {"watch of passwords": watch} if sources.is_watched else {}
    return Web(app, ShortWay(find, refusals), tasks)
