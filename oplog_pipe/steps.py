"""A sink's namespace filter and its steps, in order. Nothing of the engine that runs them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, get_args

from oplog_pipe.errors import ConfigError, SinkError, TransformError
from oplog_pipe.imports import load
from oplog_pipe.message import Message, Op
from oplog_pipe.reasons import of_code
from oplog_pipe.settings import FetchStep, FunctionStep

Function = Callable[[Message], Message | None]

_OPS = get_args(Op)
# More namespaces than this are searched again and again.
_REMEMBERED = 10_000


class Step(Protocol):
    """Changes messages, or drops them."""

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        """Return a message, or None to drop it, for each of them, in order.

        Raises SinkError, whose ``index`` counts in ``messages``.
        """

    def close(self) -> None: ...


class Namespaces:
    """Tells which namespaces a regular expression is found in. Remembers them."""

    def __init__(self, pattern: str) -> None:
        self._search = re.compile(pattern).search
        self._known: dict[str, bool] = {}

    def __contains__(self, namespace: str) -> bool:
        known = self._known.get(namespace)
        if known is None:
            known = self._search(namespace) is not None
            if len(self._known) < _REMEMBERED:
                self._known[namespace] = known
        return known


class Steps:
    """The steps of one sink. A message that a step's namespace does not match goes no further."""

    def __init__(self, steps: Sequence[tuple[str, Step]]) -> None:
        """``steps``: each with its namespace."""
        self._steps = [(Namespaces(namespace), step) for namespace, step in steps]

    def __call__(self, messages: list[Message]) -> list[Message]:
        """Return the messages that are left. A step sees the result of the step before it.

        Steps change the messages themselves: give fresh ones to repeat a call. Raises SinkError.
        """
        for namespaces, step in self._steps:
            messages = [each for each in messages if each.namespace in namespaces]
            if not messages:
                break
            messages = [each for each in step(messages) if each is not None]
        return messages

    def close(self) -> None:
        for _, step in self._steps:
            step.close()


class FunctionCalls:
    """Calls a function of the user with one message after another. ``name``: as in the settings."""

    def __init__(self, name: str, function: Function) -> None:
        self._name = name
        self._function = function

    def __call__(self, messages: Sequence[Message]) -> list[Message | None]:
        """Raises TransformError, which names the function and the message."""
        function = self._function
        found: list[Message | None] = []
        for index, message in enumerate(messages):
            place = f"{message.namespace} {message.id}, offset {message.offset}"
            try:
                result = function(message)
            except (Exception, SystemExit) as error:
                transient = isinstance(error, SinkError) and error.transient
                raise TransformError(
                    f"transform {self._name}: {place}: {of_code(error)}",
                    transient=transient,
                    index=index,
                ) from error
            if result is not None and (fault := _fault(result)):
                raise TransformError(f"transform {self._name}: {place}: {fault}", index=index)
            found.append(result)
        return found

    def close(self) -> None: ...


def _fault(result: object) -> str | None:
    """Return why the result of a function is no message that a sink can take."""
    if not isinstance(result, Message):
        return f"it returned {type(result).__name__} instead of a message or None"
    if result.op not in _OPS:  # a sink would write such a message like an update
        return f"op is {result.op!r}, not insert, update or delete"
    for name in ("namespace", "id"):
        if not isinstance(value := getattr(result, name), str):
            return f"{name} is {type(value).__name__}, not text"
    if type(result.timestamp) is not int:
        return f"timestamp is {type(result.timestamp).__name__}, not a number of milliseconds"
    return None


def build_steps(settings: Sequence[FunctionStep | FetchStep], root: Path, place: str) -> Steps:
    """Return the steps of a sink; import the functions of users.

    ``root``: folder of the settings file. ``place``: of the sink in it, such as ``sinks[0]``.
    Raises ConfigError.
    """
    steps: list[tuple[str, Step]] = []
    for number, each in enumerate(settings):
        try:
            step = _function(each, root) if isinstance(each, FunctionStep) else _fetch(each)
        except ConfigError as error:
            raise ConfigError(f"{place}.transforms[{number}]: {error}") from error.__cause__
        steps.append((each.namespace, step))
    return Steps(steps)


def _function(step: FunctionStep, root: Path) -> Step:
    function = load(step.function, root)
    if not callable(function):
        raise ConfigError(f"{step.function} is no function")
    return FunctionCalls(step.function, function)


def _fetch(step: FetchStep) -> Step:
    from oplog_pipe.fetch import Fetcher  # its HTTP client is needed only here

    return Fetcher(step)
