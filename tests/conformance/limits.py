"""Clients without a behaviour, and the sentence about them in ``docs/reference/clients.md``."""

# Scenario -> its clients, and words of the table of limits.
LIMITS: dict[str, tuple[tuple[str, ...], str]] = {
    "a state file in use ends the consumer": (
        ("javascript",),
        "Node has no `flock`: it does not see that a state file is in use at its start",
    ),
    **{
        f"a state file that a consumer in {holder} uses ends the consumer": (
            ("javascript",),
            "Node has no `flock`: it does not see that a state file is in use at its start",
        )
        for holder in ("python", "go", "php")
    },
    "a state file that another process wrote meanwhile ends the consumer": (
        ("python", "python-async", "go", "php"),
        "a program that writes the state file without the lock is not noticed",
    ),
    "SIGTERM ends a producer that waits to try again": (
        ("python", "python-async", "javascript"),
        "signals are the program's affair: call `close`",
    ),
    "close under load loses nothing that send has taken": (
        ("go", "php"),
        "a producer has one sender",
    ),
    "close wakes the senders that wait for room, and a second close returns at once": (
        ("go", "php"),
        "a producer has one sender",
    ),
    "a position is not saved while its event is handled": (
        ("go", "php"),
        "a consumer handles an event by printing it",
    ),
    "a handler that waits longer than the heartbeat timeout keeps its connection": (
        ("go", "php"),
        "a consumer handles an event by printing it",
    ),
}
