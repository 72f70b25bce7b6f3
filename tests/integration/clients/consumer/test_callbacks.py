"""A consumer with callbacks."""

from pathlib import Path

import pytest

from oplogc import (
    Consumer,
    Live,
    Operation,
    Reset,
)
from tests.integration.clients.copies import operations
from tests.kits.agents.agent import Agent


def test_callbacks(tmp_path: Path) -> None:
    state = tmp_path / "state"
    got: list[str] = []
    with Agent(tmp_path) as agent:
        agent.post(operations(2))
        for type_ in ("user", "comment", "live", "reset"):
            agent.post(operations(1, type_))
        consumer = Consumer(agent.url, start="0", state_file=state)

        @consumer.on("Video", "user", "reset")
        def on_object(operation: Operation) -> None:
            got.append(operation.key)

        @consumer.on_reset
        async def on_reset(event: Reset) -> None:
            got.append("reset")

        @consumer.on_live
        def on_live(event: Live) -> None:
            got.append("live")
            consumer.stop()

        for register in (consumer.on("USER"), consumer.on_live, consumer.on_reset):
            with pytest.raises(ValueError, match="already"):
                register(on_object)
        consumer.run()
        assert got == ["reset", "video/0", "video/1", "user/0", "reset/0", "live"]
        assert len(state.read_text()) == 24


def test_the_old_names_of_the_two_events_never_take_an_operation(tmp_path: Path) -> None:
    got: list[str] = []
    with Agent(tmp_path) as agent:
        for type_ in ("live", "reset"):
            agent.post(operations(1, type_))
        consumer = Consumer(agent.url, start="0")

        @consumer.on()
        def on_others(operation: Operation) -> None:
            got.append(operation.key)

        @consumer.on("reset", "live")
        def on_event(event: Reset | Live) -> None:
            got.append(event.event)
            if event.event == "live":
                consumer.stop()

        with pytest.warns(DeprecationWarning, match="use on_") as warned:
            consumer.run()
        assert [str(warning.message) for warning in warned] == [
            f'on("{name}") for the event {name} is deprecated: use on_{name}'
            for name in ("reset", "live")
        ]
        assert got == ["reset", "live/0", "reset/0", "live"]


def test_an_operation_whose_callback_fails_comes_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Agent(tmp_path) as agent:
        for operation in operations(3):
            agent.post(operation)
        for number in range(3):
            got = []
            consumer = Consumer(agent.url, start="0", state_file=state)

            @consumer.on()
            def on_any(operation: Operation) -> None:
                got.append(operation.id)  # noqa: B023
                if operation.id == str(number):  # noqa: B023
                    raise RuntimeError("no")

            with pytest.raises(RuntimeError):
                consumer.run()
            assert got[-1] == str(number)
