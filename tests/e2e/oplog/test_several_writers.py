"""Several processes write to one store: all consumers get the same log."""

import http.client
import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.oplog.append_process import appender
from tests.kits.agents.agent import DEADLINE, Agent, fold
from tests.kits.agents.streams import ByteStream, offset_of, offsets, operation


def test_operations_of_another_process_reach_the_consumers_within_100_ms(tmp_path: Path) -> None:
    with (
        Agent(tmp_path) as agent,
        appender(tmp_path / "oplog.db") as other,
        ByteStream(agent) as stream,
    ):
        assert agent.post(operation("insert", "own")) == 204
        latencies = []
        for number in range(20):
            durable_ms = other.append(
                [operation("insert", f"foreign {number}"), operation("update", "own")]
            )
            if number == 0:
                assert [event.operation["id"] for event in stream.take(1)] == ["own"]
            events = stream.take(2)
            latencies.append(time.time() * 1000 - durable_ms)
            assert [event.operation["id"] for event in events] == [f"foreign {number}", "own"]
            assert offsets(events) == [2 * number + 2, 2 * number + 3]
        assert agent.post(operation("delete", "own")) == 204
        (last,) = stream.take(1)
        assert (last.event, offset_of(last.id)) == ("delete", 42)
        assert len(agent.replicate()) == 20
        # Another process that has the processor lengthens some of them, a rare look all.
        assert min(latencies) < 100, latencies


def test_a_log_that_outran_a_suspended_agent_is_bridged_by_the_states(tmp_path: Path) -> None:
    flags = ("--capped-collection-size", "4096")
    with (
        Agent(tmp_path, *flags) as agent,
        appender(tmp_path / "oplog.db") as other,
        ByteStream(agent) as stream,
    ):
        other.append([operation("insert", f"n{number}") for number in range(10)])
        events = stream.take(10)
        agent.freeze()
        for number in range(100):
            other.append([operation("insert" if number % 3 else "delete", f"n{number}")])
        agent.thaw()
        events += stream.until_live()
        assert offset_of(agent.status()["store"]["oldest_id"]) > 11
        assert events[-1].id == agent.status()["store"]["newest_id"]
        assert set(fold(events)) == {f"thing/n{number}" for number in range(100) if number % 3}
        assert "reset" not in {event.event for event in events}
        other.append([operation("delete", "n1")])
        (deleted,) = stream.take(1)
        assert (deleted.event, offset_of(deleted.id)) == ("delete", 111)


def test_two_agents_on_one_file_and_a_third_writer_give_all_consumers_the_same_sequence(
    tmp_path: Path,
) -> None:
    each = 100
    with (
        Agent(tmp_path) as one,
        Agent(tmp_path) as two,
        appender(tmp_path / "oplog.db") as third,
        ExitStack() as stack,
    ):
        streams = [stack.enter_context(ByteStream(agent)) for agent in (one, two) for _ in range(3)]
        names = ["one a", "one b", "two a", "two b", "third"]
        failures: list[BaseException] = []

        def produce(name: str) -> None:
            try:
                if name == "third":
                    for number in range(each):
                        third.append([operation("insert", f"{name} {number}")])
                    return
                agent = one if name.startswith("one") else two
                connection = http.client.HTTPConnection("127.0.0.1", agent.port, timeout=DEADLINE)
                for number in range(each):
                    body = json.dumps(operation("insert", f"{name} {number}"))
                    connection.request("POST", "/", body, {"Content-Type": "application/json"})
                    with connection.getresponse() as response:
                        assert response.status == 204
                connection.close()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=produce, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        sequences = [stream.until_offset(each * len(names)) for stream in streams]
        for thread in threads:
            thread.join(DEADLINE)
        assert failures == []
        sequence = sequences[0]
        assert offsets(sequence) == list(range(1, each * len(names) + 1))
        assert all(other == sequence for other in sequences)
        for name in names:
            own = [
                event.operation["id"]
                for event in sequence
                if event.operation["id"].startswith(name)
            ]
            assert own == [f"{name} {number}" for number in range(each)]
        for agent in (one, two):
            assert list(agent.replicate()) == [event.key for event in sequence]
            assert agent.stop() == 0
        assert [list(stream.blocks()) for stream in streams] == [[]] * len(streams)
