"""Methods for threads, made of the methods of an asyncio object, and docstrings for both."""

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from oplogc.process.loop_thread import LoopThread

_A = TypeVar("_A")
_A_co = TypeVar("_A_co", covariant=True)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])


class HasTwin(Protocol[_A_co]):
    """An object for threads. ``_twin``: the object for asyncio and its loop, during a call."""

    def _twin(self) -> AbstractContextManager[tuple[_A_co, LoopThread]]: ...


def blocking(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate[HasTwin[_A], _P], _R]:
    """Return a method to run the twin's method in its loop, and wait for the result."""

    @functools.wraps(method)
    def call(self: HasTwin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._twin() as (twin, thread):
            return thread.call(method(twin, *args, **kwargs))

    call.__qualname__ = method.__qualname__.removeprefix("Async")
    return call


def documented_as(other: Callable[..., Any]) -> Callable[[_F], _F]:
    """Return a decorator that copies the docstring of the twin's method."""

    def copy(method: _F) -> _F:
        method.__doc__ = other.__doc__
        return method

    return copy
