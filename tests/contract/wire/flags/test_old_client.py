"""A client of the first server meets a password, a restart, and an id that has left the log."""

from pathlib import Path

from tests.contract.wire.old_client import OldEvent, read
from tests.kits.agents.agent import Agent
from tests.kits.clients.restart import agent_on
from tests.kits.contract.passwords import basic
from tests.kits.contract.wire import SSE, RawStream, Target, operation
from tests.kits.servers.ports import free_port

# Headers of such a client. It asks for gzip but cannot read it.
GIVEN = {**SSE, **basic("secret"), "Accept-Encoding": "gzip"}


class OldConsumer:
    """Reads only with the old parser. Remembers the last id, as the old library does."""

    def __init__(self) -> None:
        self.last_id = ""
        self.known: dict[str, str] = {}
        self.events: list[OldEvent] = []

    def connect(self, target: Target) -> RawStream:
        headers = {**GIVEN, **({"Last-Event-ID": self.last_id} if self.last_id else {})}
        stream = RawStream(target, "/", headers)
        assert stream.header("Last-Event-ID") == (
            self.last_id or None
        )  # the old library reads its position there
        return stream

    def take(self, stream: RawStream, count: int) -> None:
        """Read the next ``count`` events."""
        before = len(list(read(bytes(stream.received))))
        stream.take(count)
        for event in list(read(bytes(stream.received)))[before:]:
            self.last_id = event.id
            self.events.append(event)
            if event.event == "reset":
                self.known.clear()
            elif event.operation and event.event == "delete":
                self.known.pop(event.operation["id"], None)
            elif event.operation:
                self.known[event.operation["id"]] = event.operation["ref"]


def test_an_old_client_resumes_after_a_restart_and_after_its_id_left_the_log(
    tmp_path: Path,
) -> None:
    flags = (
        "--password",
        "secret",
        "--object-url",
        "http://a.b/{{type}}/{{id}}",
        "--capped-collection-size",
        "4096",
    )
    port = free_port()
    old = OldConsumer()
    old.last_id = "0"
    with agent_on(port, tmp_path, *flags) as agent:
        target = Target.of(agent)
        target.store(operation("insert", "a", "video"), operation("insert", "b", "video"))
        with old.connect(target) as stream:
            old.take(stream, 4)
            assert [event.event for event in old.events] == ["reset", "insert", "insert", "live"]
            target.store(operation("update", "a", "video"))
            old.take(stream, 1)
        assert agent.stop() == 0
    with agent_on(port, tmp_path, *flags) as agent:
        target = Target.of(agent)
        target.store(operation("delete", "a", "video"))
        with old.connect(target) as stream:
            old.take(stream, 1)
            assert old.known == {"b": "http://a.b/video/b"}
        target.store(
            *(operation("insert", f"c{number}", "video") for number in range(100))
        )  # more than the log holds
        target.store(operation("delete", "b", "video"))
        with old.connect(target) as stream:
            old.take(stream, 103)
    # Replication repeats the second of the last id: the deletion of a, later changes, then live.
    assert [event.event for event in old.events[6:]] == [
        "delete",
        *["insert"] * 100,
        "delete",
        "live",
    ]
    assert old.known == {f"c{number}": f"http://a.b/video/c{number}" for number in range(100)}


def test_an_old_client_without_its_password_gets_a_401(tmp_path: Path) -> None:
    with Agent(tmp_path, "--password", "secret") as agent:
        assert Target.of(agent).request("GET", "/", headers=SSE).status == 401
