"""The producers in Go and PHP deliver an operation, or print its loss and fail."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.kits.agents.agent import DEADLINE, Agent
from tests.kits.clients.examples import FAST, Example, videos
from tests.kits.contract.wire import wait_until
from tests.kits.servers.scripted import ScriptedServer, answer


@pytest.mark.parametrize(
    "status", ["503 Service Unavailable", "408 Request Timeout", "429 Too Many Requests"]
)
def test_a_producer_tries_again_with_the_same_batch(example: Example, status: str) -> None:
    later = answer(status, '{"detail":"not now"}', "Retry-After: 0")
    with ScriptedServer([later, answer("200 OK", "%COUNT%")]) as server:
        done = example.produce(server.url, videos(0, 2), **FAST)
        assert done.returncode == 0
        assert "trying again" in done.stderr
        assert len(server.bodies) == 2
        assert server.bodies[0] == server.bodies[1]


@pytest.mark.parametrize(
    "taken",
    [
        answer("200 OK", "<html>welcome</html>"),
        answer("200 OK", '{"ingested": 1}'),
        answer("200 OK", ""),
        answer("204 No Content"),
    ],
    ids=["html", "another_count", "empty", "204"],
)
def test_only_the_count_of_an_agent_means_delivered(example: Example, taken: bytes) -> None:
    with ScriptedServer([taken]) as server:
        done = example.produce(server.url, videos(0, 2))
        assert done.returncode == 1
        assert "no agent" in done.stderr
        assert "2 operations are not delivered" in done.stderr
        assert len(server.bodies) == 1


@pytest.mark.parametrize("status", [302, 307])
def test_a_batch_is_not_sent_to_where_an_answer_redirects(example: Example, status: int) -> None:
    with ScriptedServer([answer("200 OK", "%COUNT%")]) as elsewhere:
        moved = answer(f"{status} Moved", "", f"Location: {elsewhere.url}/ops?secret=1")
        with ScriptedServer([moved]) as server:
            done = example.produce(server.url, videos(0, 2))
            assert done.returncode == 1
            assert f"{elsewhere.url}/ops" in done.stderr
            assert "secret" not in done.stderr
            assert (len(server.bodies), elsewhere.bodies) == (1, [])


GOOD = [
    b'{"event":"insert","type":"video","id":"a\\u00e4<&>\\ud83d\\ude00", "extra":1.50}',
    (
        '{"timestamp":"2014-11-06 11:04:39.123456z","type":"VIDEO","id":"ä\u2028",'
        '"event":"Delete","parents":null}'
    ).encode(),
    b'{"event":"update","type":"video","id":"\\\\u0000\\\\ud800","timestamp":null,"parents":["x"]}',
]
BAD = [
    b"nonsense",
    b"[]",
    b"null",
    b'{"event":"insert","type":"video","id":"\xff"}',
    b'{"event":"insert","type":"video","id":"a","extra":"\xc3"}',
    b'{"event":"insert","type":"video","id":"a\\ud800"}',
    b'{"event":"insert","type":"video","id":"\\udc00a"}',
    b'{"event":"insert","type":"video","id":"a\\u0000"}',
    b'{"event":"insert","type":"video","ID":"a"}',
    b'{"event":"insert","type":"video","id":""}',
    b'{"event":"insert","type":"video","id":7}',
    b'{"event":"insert","type":"vi/deo","id":"a"}',
    b'{"event":"insert","type":"vi,deo","id":"a"}',
    b'{"event":"replace","type":"video","id":"a"}',
    b'{"event":"insert","type":"video","id":"a","parents":"b"}',
    b'{"event":"insert","type":"video","id":"a","parents":[""]}',
    b'{"event":"insert","type":"video","id":"a","timestamp":"2014-11-06T11:04:39"}',
    b'{"event":"insert","type":"video","id":"a","timestamp":"2014-02-30T11:04:39Z"}',
    b'{"event":"insert","type":"video","id":"a","timestamp":"0001-01-01T00:00:00+01:00"}',
    b'{"event":"insert","type":"video","id":"a","extra":"%s"}' % (b"x" * 65_536),
    b'{"event":"insert","type":"video","id":"a","extra":"%s"}' % (b"x" * 500_000),
]


def test_invalid_lines_are_told_and_the_others_are_sent_as_they_stand(example: Example) -> None:
    lines = [line for number, bad in enumerate(BAD) for line in (bad, GOOD[number % 3])]
    with ScriptedServer([answer("200 OK", "%COUNT%")]) as server:
        done = example.produce(server.url, b"\r\n\n".join(lines))  # the last line has no end
        assert done.returncode == 1
        told = [line.split(" is rejected: ")[0] for line in done.stderr.splitlines()]
        assert told == [f"line {4 * number + 1}" for number in range(len(BAD))]
        assert server.bodies == [b"\n".join(lines[1::2])]


def test_what_is_sent_unaltered_is_what_consumers_get(tmp_path: Path, example: Example) -> None:
    with Agent(tmp_path, "--password", "geheim", "--ingest-password", "geheim") as agent:
        assert example.produce(agent.url, b"\n".join(GOOD)).returncode == 0
        udp = f"udp://127.0.0.1:{agent.udp_port}"
        assert (
            example.produce(
                udp, b'{"event":"insert","type":"video","id":"\xff"}\n' + GOOD[0]
            ).returncode
            == 1
        )
        agent.wait_status(events_ingested=4, events_error=0)
        done = example.run(
            [*example.consumer, *example.flags(url=agent.url, start="0", count="2"), "--json"]
        )
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert events[0] == {"id": "1", "event": "reset"}
        assert {event["object"]: event["event"] for event in events[1:]} == {
            "aä<&>\U0001f600": "insert",
            "\\u0000\\ud800": "insert",
        }


def test_operations_that_the_agent_names_are_told_and_the_rest_is_delivered(
    example: Example,
) -> None:
    named = json.dumps(
        {
            "detail": "invalid",
            "errors": [{"line": n, "field": "id", "reason": "is odd"} for n in (4, 2)],
        }
    )
    bad = answer("400 Bad Request", named)
    with ScriptedServer([bad, answer("200 OK", "%COUNT%")]) as server:
        done = example.produce(server.url, b"oops\n" + b"\n".join(GOOD + GOOD))
        assert done.returncode == 1
        assert [line.split(" is rejected")[0] for line in done.stderr.splitlines()] == [
            "line 1",
            "line 3",
        ]
        assert "id: is odd" in done.stderr
        assert "2 operations" in done.stderr
        assert [body.split(b"\n") for body in server.bodies] == [
            GOOD + GOOD,
            [GOOD[0], GOOD[2], GOOD[1], GOOD[2]],
        ]


@pytest.mark.parametrize("line", ["0", "7", '"1"', "1.5", "1" + "0" * 400])
def test_an_answer_that_names_no_line_of_the_batch_ends_the_producer(
    example: Example, line: str
) -> None:
    named = '{"detail":"so be it","errors":[{"line":' + line + "}]}"
    with ScriptedServer([answer("400 Bad Request", named)]) as server:
        done = example.produce(server.url, b"\n".join(GOOD + GOOD))
        assert done.returncode == 1
        assert "6 operations are not delivered" in done.stderr
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "url",
    ["udp://nowhere.invalid", "udp://:8042", "udp://h:0", "udp://h:99999", "localhost:8042", "h"],
)
def test_an_address_that_cannot_be_sent_to_is_an_error(example: Example, url: str) -> None:
    done = example.produce(url, videos(0, 1))
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


def test_a_signal_ends_a_producer_after_what_it_read(example: Example) -> None:
    with ScriptedServer(
        [answer("503 Service Unavailable", "{}"), answer("200 OK", "%COUNT%")]
    ) as server:
        command = [*example.producer, *example.flags(url=server.url, **FAST)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin
            process.stdin.write(GOOD[0] + b"\n" + GOOD[1] + b"\nunfinished")
            process.stdin.flush()
            assert wait_until(
                lambda: bool(server.bodies)
            )  # an operation is sent soon after it was read
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE) == 0
        assert server.bodies == [b"\n".join(GOOD[:2])] * 2
