"""The table of consumers: the state file, signals, and flags."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conformance.events import block, blocks, checkpoint, event_id, operation
from tests.conformance.play import Outcome, Scenario
from tests.conformance.steps import (
    Do,
    Drip,
    Printed,
    Script,
    Signal,
    StateHolds,
    Step,
    Told,
    WriteState,
    problem,
    stream,
)
from tests.conformance.stream_scenarios import consumer

A, B, C, D = (operation(number) for number in (1, 2, 3, 4))
STATE = {"state": "state"}
# Clients that lock their state file.
FLOCK = ("python", "python-async", "go", "php")


def holding(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "state").write_text(text)


def a_loop(folder: Path) -> None:
    (folder / "state").symlink_to("state.2")
    (folder / "state.2").symlink_to("state")


def a_link(folder: Path) -> None:
    (folder / "real").write_text(A["id"])
    (folder / "state").symlink_to("real")


def still_a_link(outcome: Outcome) -> None:
    assert "real" in outcome.others


def nothing_left_behind(outcome: Outcome) -> None:
    assert set(outcome.others) <= {"state.lock"}, f"files beside the state file: {outcome.others}"


def made_as_any_file(outcome: Outcome) -> None:
    """Other users may read the state file, unless the umask keeps them from it."""
    nothing_left_behind(outcome)
    os.umask(mask := os.umask(0))
    assert outcome.state_mode == 0o666 & ~mask, (
        f"the state file has the mode {outcome.state_mode:o}"
    )


def refused_at_start(
    name: str, prepare: Callable[[Path], object] | None, **fields: Any
) -> Scenario:
    given: dict[str, Any] = {
        "flags": STATE,
        "exit": 1,
        "says": [r"\w+ \w+ \w+"],
        "positions": [],
        **fields,
    }
    return consumer(name, [], prepare=prepare, **given)


def told_once(outcome: Outcome) -> None:
    lines = [
        line for line in outcome.stderr.splitlines() if "space" in line.lower() or "ENOSPC" in line
    ]
    # Once while it runs and once at the end.
    assert 1 <= len(lines) <= 2, f"told {len(lines)} times that the disk is full"


def until_signal(*steps: Step, number: int = 15) -> Script:
    return stream(*steps, end=[Signal(number), Do.HOLD])


# The client reads it more slowly than the server sends it.
BACKLOG = b":\n" * 1_000_000

STATE_FILE = [
    consumer(
        "a missing state file starts as told, and the position is saved at the end",
        [stream(block(A), block(B))],
        flags={**STATE, "start": event_id(5)},
        events=[A, B],
        positions=[event_id(5)],
        state=B["id"],
        check=made_as_any_file,
    ),
    consumer(
        "a state file comes before the start, and may end in a newline",
        [stream(block(B))],
        flags={**STATE, "start": "0"},
        prepare=holding(f"{A['id']}\n"),
        events=[B],
        positions=[A["id"]],
        state=B["id"],
    ),
    consumer(
        "a state file that is a link stays one",
        [stream(block(B))],
        flags=STATE,
        prepare=a_link,
        events=[B],
        positions=[A["id"]],
        state=B["id"],
        check=still_a_link,
    ),
    refused_at_start("an empty state file ends the consumer", holding(""), state=""),
    refused_at_start(
        "a state file that holds no position ends the consumer", holding("x" * 24), state="x" * 24
    ),
    refused_at_start(
        "a state file that holds much more ends the consumer", holding("1" * 5000), state="1" * 5000
    ),
    refused_at_start(
        "a folder in the place of the state file ends the consumer",
        lambda folder: (folder / "state").mkdir(),
    ),
    refused_at_start("a state file that is a loop of links ends the consumer", a_loop),
    refused_at_start(
        "a state file in a missing folder ends the consumer", None, flags={"state": "missing/state"}
    ),
    refused_at_start(
        "a state file below a file ends the consumer",
        lambda folder: (folder / "file").write_text(""),
        flags={"state": "file/state"},
    ),
    refused_at_start(
        "a state file in use ends the consumer",
        holding(A["id"]),
        locks_state=True,
        state=A["id"],
        only=FLOCK,
    ),
    *(
        consumer(
            f"a state file that a consumer in {holder} uses ends the consumer",
            [stream(end=[Do.HOLD])],
            flags=STATE,
            prepare=holding(A["id"]),
            holder=holder,
            exit=1,
            says=[r"state.*(use|lock)"],
            positions=[A["id"]],
            state=A["id"],
            only=FLOCK,
        )
        for holder in ("python", "go", "php")
    ),
    consumer(
        "a state file that another process wrote meanwhile ends the consumer",
        [[*stream(block(B), end=[Printed(1), WriteState(D["id"]), Signal(), Do.HOLD])]],
        flags=STATE,
        prepare=holding(A["id"]),
        events=[B],
        exit=1,
        says=["state"],
        state=D["id"],
        only=["javascript"],
    ),
    consumer(
        "a full disk leaves the old position whole, is told once, and ends in an error",
        [
            stream(
                block(B),
                Printed(1),
                StateHolds(B["id"]),
                Do.FILL_DISK,
                *(step for n in range(3, 9) for step in (block(operation(n)), Printed(n - 1))),
                end=[Told("(?i)space|ENOSPC"), Signal(), Do.HOLD],
            )
        ],
        flags=STATE,
        prepare=holding(A["id"]),
        events=[B, *(operation(n) for n in range(3, 9))],
        exit=1,
        small_disk=True,
        check=told_once,
        state=B["id"],
    ),
]

SIGNALS = [
    consumer(
        "a position is not saved while its event is handled",
        [
            stream(
                block(A),
                block(B),
                Printed(1),
                StateHolds(A["id"]),
                Drip(b":\n", 0.1, times=15),
                Signal(9),
                end=[Do.HOLD],
            )
        ],
        flags={**STATE, "handler-delay": "600"},
        prepare=holding(D["id"]),
        events=[A],
        exit=-9,
        state=A["id"],
        only=["python", "python-async", "javascript"],
    ),
    *(
        consumer(
            f"{name} saves the position of the last event",
            [until_signal(block(A), block(B), Printed(2), number=number)],
            flags=STATE,
            events=[A, B],
            state=B["id"],
        )
        for name, number in {"SIGTERM": 15, "SIGINT": 2}.items()
    ),
    consumer(
        "SIGTERM saves a position that moved without an event",
        [
            stream(
                block(A),
                Printed(1),
                checkpoint(event_id(9)),
                Do.READ,
                block(operation(10)),
                Printed(2),
                checkpoint(event_id(11)),
                end=[Do.CLOSE],
            ),
            [Signal(), Do.HOLD],
        ],
        flags=STATE,
        events=[A, operation(10)],
        positions=[None, event_id(11)],
        state=event_id(11),
    ),
    consumer(
        "SIGTERM ends a consumer that waits to try again",
        [
            stream(block(A)),
            [
                problem("503 Service Unavailable", "busy", "Retry-After: 3000"),
                Told("trying again in [3-9]..."),
                Signal(),
                Do.HOLD,
            ],
        ],
        flags=STATE,
        events=[A],
        state=A["id"],
    ),
    consumer(
        "SIGTERM ends a consumer that has always something to read",
        [stream(block(A), Printed(1), BACKLOG, Signal(), Drip(BACKLOG, 0))],
        flags=STATE,
        events=[A],
        state=A["id"],
    ),
    consumer("SIGTERM ends a consumer that waits for an answer", [[Signal(), Do.HOLD]]),
    consumer(
        "a count ends the consumer behind its last operation",
        [stream(blocks(A, B, C, D))],
        flags={**STATE, "count": "2"},
        events=[A, B],
        state=B["id"],
    ),
]

BAD_FLAGS = {
    "an unknown flag": {"nonsense": "1"},
    "a time-out that is no number": {"timeout": "soon"},
    "a negative time-out": {"timeout": "-1"},
    "a time-out that is not a number": {"timeout": "nan"},
    "a heartbeat time-out of zero": {"heartbeat-timeout": "0"},
    "a heartbeat time-out that is no number": {"heartbeat-timeout": "x"},
    "a back-off whose end is before its begin": {"backoff": "2,1"},
    "a back-off of one number": {"backoff": "1"},
    "a back-off of zero": {"backoff": "0,1"},
    "a start that is no event id": {"start": "yesterday"},
    "a count that is no number": {"count": "many"},
    "an address of another scheme": {"url": "ftp://127.0.0.1"},
    "an address without a scheme": {"url": "127.0.0.1"},
    "an address without a host": {"url": "http://"},
    "an empty type": {"types": "video,,user"},
}

FLAGS = [
    consumer(
        f"{what} is refused", [], flags=flags, exit=2, says=[r"\w+"], positions=[], python_once=True
    )
    for what, flags in BAD_FLAGS.items()
]

SCENARIOS = [*STATE_FILE, *SIGNALS, *FLAGS]
