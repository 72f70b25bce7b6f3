"""Finds the callback of an event. No I/O."""

import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from oplogc.wire.events import Event, Operation

Callback = Callable[[Any], Awaitable[None] | None]
_C = TypeVar("_C", bound=Callback)


class Callbacks:
    """Callbacks of operations by type, and of ``Reset`` and ``Live``.

    In earlier versions the types ``reset`` and ``live`` stood for these events. They still do for
    an event without a callback. Operations of such a type go to the callback of all others.
    """

    def __init__(self) -> None:
        self._types: dict[str, Callback] = {}
        self._events: dict[str, Callback] = {}

    def on(self, *types: str) -> Callable[[_C], _C]:
        """Register a function for operations of these types. Without a type: of all others."""

        def register(callback: _C) -> _C:
            for name in types or ("",):
                _put(self._types, name.lower(), callback)
            return callback

        return register

    def on_event(self, event: Literal["reset", "live"], callback: _C) -> _C:
        _put(self._events, event, callback)
        return callback

    def of(self, event: Event) -> Callback | None:
        """Return the callback of ``event``, or None."""
        if not isinstance(event, Operation):
            return self._events.get(event.event) or self._types.get(event.event)
        named = None if event.type in self._old_names() else self._types.get(event.type)
        return named or self._types.get("")

    def warn_of_old_names(self) -> None:
        for name in self._old_names():
            warnings.warn(
                f'on("{name}") for the event {name} is deprecated: use on_{name}',
                DeprecationWarning,
                stacklevel=3,
            )

    def _old_names(self) -> list[str]:
        return [
            name for name in ("reset", "live") if name in self._types and name not in self._events
        ]


def _put(callbacks: dict[str, Callback], name: str, callback: Callback) -> None:
    if name in callbacks:
        raise ValueError(f"there is a callback for {name or 'all others'} already")
    callbacks[name] = callback
