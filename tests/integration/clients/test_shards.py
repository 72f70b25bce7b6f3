"""The programs in Go and PHP follow one shard, or end."""

import pytest

from tests.kits.clients.examples import FAST, Example
from tests.kits.servers.scripted import ScriptedServer, answer

OLDER = (
    "the agent does not know shards: it is older than this client and sent everything."
    " Upgrade the agent"
)
LIVE = "id: 5\nevent: live\ndata:\n\n"


def stream(*headers: str) -> bytes:
    """Return an answer with one event."""
    lines = ["HTTP/1.1 200 OK", *headers, "Content-Type: text/event-stream", "Connection: close"]
    return "\r\n".join([*lines, "", LIVE]).encode()


GOOD = stream("OPLOG-SHARD: 3/8 ")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (stream(), [OLDER]),
        (stream("Oplog-Shard:"), [OLDER]),
        (stream("Oplog-Shard: 3/9"), ["the agent sent the shard", "3/9", "instead of 3/8"]),
        (stream("Oplog-Shard: 03/8"), ["the agent sent the shard", "03/8", "instead of 3/8"]),
    ],
    ids=["none", "empty", "another", "zero"],
)
def test_an_answer_that_does_not_confirm_the_shard_ends_a_consumer(
    example: Example, wrong: bytes, says: list[str]
) -> None:
    with ScriptedServer([GOOD, GOOD, wrong]) as server:
        done = example.consume_all(server.url, shard="3/8", **FAST)
        assert (done.returncode, done.stdout) == (1, "live\nlive\n")
        last = done.stderr.splitlines()[-1]
        assert all(part in last for part in says), last
        assert len(server.heads) == 3
        for head in server.heads:
            target = head.split(" ")[1].replace("%2F", "/")
            assert target.partition("?")[2].split("&").count("shard=3/8") == 1


def test_a_consumer_without_a_shard_needs_no_confirmation(example: Example) -> None:
    with ScriptedServer([stream(), GOOD, answer("410 Gone")]) as server:
        assert example.consume_all(server.url, **FAST).stdout == "live\nlive\n"
        assert "shard" not in server.heads[0]


def test_a_consumer_tries_again_while_the_agent_has_too_many_numbers_of_shards(
    example: Example,
) -> None:
    full = answer("409 Conflict", '{"detail": "too many numbers of shards"}')
    with ScriptedServer([full, GOOD, answer("410 Gone")]) as server:
        done = example.consume_all(server.url, shard="3/8", **FAST)
        assert (done.returncode, done.stdout) == (1, "live\n")
        first = done.stderr.splitlines()[0]
        assert "too many numbers of shards; trying again" in first
    with ScriptedServer([full]) as server:
        assert example.consume_all(server.url, **FAST).returncode == 1
        assert len(server.heads) == 1


def test_a_bad_shard_ends_a_consumer_before_it_asks(example: Example) -> None:
    bad = ["3", "8/8", "9/8", "0/0", "0/257", "03/8", "3/08", "+3/8", "-1/8", " 3/8", "3/8\n"]
    with ScriptedServer([GOOD]) as server:
        for shard in [*bad, "3/8/9", "3.0/8", "\u0663/8"]:
            done = example.consume_all(server.url, shard=shard)
            assert (done.returncode, done.stdout) == (2, ""), shard
            assert "hard: give I/N, such as 3/8, with 0 <= I < N <= 256" in done.stderr
        assert server.heads == []


def test_the_first_and_the_last_shard_are_sent(example: Example) -> None:
    for shard in ("0/1", "0/256", "255/256"):
        script = [stream(f"Oplog-Shard: {shard}"), answer("410 Gone")]
        with ScriptedServer(script) as server:
            assert example.consume_all(server.url, shard=shard, **FAST).stdout == "live\n"
