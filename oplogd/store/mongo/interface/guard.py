"""The guard of all calls of a class."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_C = TypeVar("_C", bound=type)


def guarded(cls: _C) -> _C:
    """Let each public coroutine method of a class run in a block of its ``_working``."""
    for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            setattr(cls, name, _guarded(method))
    return cls


def _guarded(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: Any, *given: Any, **named: Any) -> Any:
        async with self._working():
            return await method(self, *given, **named)

    return call
