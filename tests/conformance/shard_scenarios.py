"""The table of consumers: shards, and agents that do not confirm them."""

from tests.conformance.events import block, event_id, live, reset
from tests.conformance.play import Outcome
from tests.conformance.steps import (
    LAST_CHUNK,
    SSE,
    Do,
    Script,
    Step,
    head,
    pieces,
    problem,
    stream,
)
from tests.conformance.stream_scenarios import A, B, consumer

SHARD = "3/8"
DIVIDED = "the log is read in 16 numbers of shards already"


def confirmed(shard: str, *steps: Step) -> Script:
    """Return an event stream of a shard, and its end."""
    echo = f"Oplog-Shard: {shard}"
    begin = head(SSE, echo, "Transfer-Encoding: chunked", "Connection: close")
    return [begin, *map(pieces, steps), LAST_CHUNK, Do.CLOSE]


def asked(outcome: Outcome, *shards: list[str]) -> None:
    assert [request.query.get("shard", []) for request in outcome.requests] == [*shards]


SCENARIOS = [
    consumer(
        "each connection asks for the shard, and an agent that confirms it is followed",
        [
            confirmed(SHARD, block(reset()), block(A), block(live(event_id(1)))),
            confirmed(SHARD, block(B)),
        ],
        flags={"shard": SHARD},
        events=[reset(), A, live(event_id(1)), B],
        positions=[None, A["id"]],
        check=lambda outcome: asked(outcome, [SHARD], [SHARD]),
    ),
    consumer(
        "without a shard none is asked for",
        [stream(block(A))],
        events=[A],
        check=lambda outcome: asked(outcome, []),
    ),
    consumer(
        "an agent that does not confirm the shard ends the consumer before the first event",
        [stream(block(reset()), block(A))],
        flags={"shard": SHARD, "state": "state", "start": event_id(5)},
        exit=1,
        says=[
            "does not know shards",
            "older than this client",
            "sent everything",
            "upgrade the agent",
        ],
        positions=[event_id(5)],
    ),
    *(
        consumer(
            f"an agent that confirms the shard {other} instead ends the consumer",
            [confirmed(other, block(A))],
            flags={"shard": SHARD},
            exit=1,
            says=[other, SHARD],
            positions=[None],
        )
        for other in ("2/8", "3/16", "03/8", "3/8 of 9")
    ),
    *(
        consumer(
            f"an agent that confirms the shards {first} and {second} ends the consumer",
            [confirmed(f"{first}\r\nOplog-Shard: {second}", block(A))],
            flags={"shard": SHARD},
            exit=1,
            says=[f"{first}, {second}"],
            positions=[None],
        )
        for first, second in ((SHARD, "2/8"), ("2/8", SHARD), (SHARD, SHARD))
    ),
    consumer(
        "an agent that no longer confirms the shard ends the consumer at its position",
        [confirmed(SHARD, block(A)), stream(block(B))],
        flags={"shard": SHARD, "state": "state", "count": "0"},
        events=[A],
        exit=1,
        says=["does not know shards"],
        positions=[None, A["id"]],
        state=A["id"],
    ),
    consumer(
        "an agent with too many numbers of shards is asked again",
        [
            [problem("409 Conflict", DIVIDED)],
            confirmed(SHARD, block(A)),
            [problem("409 Conflict", DIVIDED)],
            confirmed(SHARD, block(B)),
        ],
        flags={"shard": SHARD},
        events=[A, B],
        says=[DIVIDED, "trying again"],
        positions=[None, None, A["id"], A["id"]],
    ),
    consumer(
        "409 ends a consumer without a shard",
        [[problem("409 Conflict", "something else")]],
        exit=1,
        says=["something else"],
        positions=[None],
    ),
    *(
        consumer(
            f"the shard {bad} is none",
            [],
            flags={"shard": bad},
            exit=2,
            says=["shard"],
            positions=[],
        )
        for bad in ("8/8", "0/0", "0/257", "-1/8", "03/8", "3", "3/8/9", "\u0663/8")
    ),
]
