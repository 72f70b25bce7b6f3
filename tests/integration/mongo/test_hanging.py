"""A database that leaves an insert unanswered: the agent says so, and answers its requests."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oplogd.ingest.appends import ANSWER_SECONDS, HANGING_SECONDS
from tests.kits.clock.moved import MovedAgent, MovedClock
from tests.kits.mongo.agents import agent, operation, replicated, wait_for
from tests.kits.proxies.mongo import CommandProxy


def test_a_held_insert_degrades_the_agent_and_ends_the_wait_of_its_request(
    plain_url: str, tmp_path: Path
) -> None:
    clock = MovedClock(tmp_path)
    with (
        CommandProxy(plain_url) as proxy,
        agent(tmp_path, proxy.url(), "plain", make=MovedAgent, environ=clock.environ) as only,
        ThreadPoolExecutor(1) as sender,
    ):
        assert only.post(operation(1)) == 204
        with proxy.hold("insert"):
            answer = sender.submit(only.request, "POST", "/ops", operation(2))
            wait_for("the insert is held", lambda: proxy.held)
            clock.move(HANGING_SECONDS)
            reason = "the store has not confirmed an append for 8 s"
            assert reason in only.wait_status(status="DEGRADED")["reason"]
            assert only.request("GET", "/ready").status == 503
            clock.move(ANSWER_SECONDS)
            assert answer.result().status == 503
            detail = answer.result().json["detail"]
            assert detail.startswith("not confirmed, it may still be stored: ")
        only.wait_status(status="OK", queue_size=0, events_ingested=2)
        assert len(replicated(only)) == 2
