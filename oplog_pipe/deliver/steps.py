"""A sink's namespace filter and its steps, in order. Nothing of the engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, get_args

from oplog_pipe.errors import ConfigError, SinkError, TransformError
from oplog_pipe.message import Message, Op, namespace_filter
from oplog_pipe.model.imports import load
from oplog_pipe.model.reasons import of_code
from oplog_pipe.model.settings import FetchStep, FunctionStep, SinkSettings

Function = Callable[[Message], Message | None]

_OPS = get_args(Op)


class SinkStep(Protocol):
    """Changes messages, or drops them."""

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message | None]:
        """Return a message, or None to drop it, for each of the first ones, in order.

        At least for one: raises SinkError with ``index`` 0 if this is not possible.
        """

    def close(self) -> None: ...


class Steps:
    """The steps of one sink. A message a step's namespace does not match goes no further."""

    def __init__(self, steps: Sequence[tuple[str, SinkStep]]) -> None:
        """``steps``: each with its namespace."""
        self._steps = [(namespace_filter(namespace), step) for namespace, step in steps]

    def __call__(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        """Take the first messages, at least one. Return their rest, and their number.

        Steps change the messages themselves: give fresh ones to repeat a call. Raises SinkError
        with ``index`` 0 for the first message.
        """
        left, count = self.placed(messages)
        return [each for _, each in left], count

    def placed(self, messages: Sequence[Message]) -> tuple[list[tuple[int, Message]], int]:
        """Do the same. Return each message with the place of the one it was made from."""
        left = list(enumerate(messages))
        count = len(messages)
        for matches, step in self._steps:
            left = [(place, each) for place, each in left if matches(each.namespace)]
            if not left:
                break
            try:
                results = step([each for _, each in left])
            except SinkError as error:
                if error.index is None or not left[error.index][0]:
                    raise
                return [], left[error.index][0]  # the messages before it are dropped
            if len(results) < len(left):
                count = left[len(results)][0]
            left = [
                (place, result)
                for (place, _), result in zip(left, results, strict=False)
                if result is not None
            ]
        return left, count

    def close(self) -> None:
        for _, step in self._steps:
            step.close()


class FunctionCalls:
    """Calls a function of the user with one message after another. ``name``: as in the settings."""

    def __init__(self, name: str, function: Function) -> None:
        self._name = name
        self._function = function

    def __call__(self, messages: Sequence[Message]) -> list[Message | None]:
        """Return the results up to the first failure. Raises TransformError if there is none."""
        found: list[Message | None] = []
        for message in messages:
            try:
                found.append(self._call(message))
            except TransformError:
                if found:
                    break
                raise
        return found

    def _call(self, message: Message) -> Message | None:
        place = f"transform {self._name}: {message.namespace} {message.id}, offset {message.offset}"
        try:
            result = self._function(message)
        except (Exception, SystemExit) as error:
            raise TransformError(
                f"{place}: {of_code(error)}",
                transient=isinstance(error, SinkError) and error.transient,
                index=0,
            ) from error
        if result is not None and (fault := _fault(result)):
            raise TransformError(f"{place}: {fault}", index=0)
        return result

    def close(self) -> None: ...


def _fault(result: object) -> str | None:
    """Return why the result of a function is no message a sink can take."""
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


def build_steps(sink: SinkSettings, root: Path, place: str) -> Steps:
    """Return the steps of a sink; import the functions of users.

    ``root``: folder of the settings file. ``place``: of the sink in it, such as ``sinks[0]``.
    Raises ConfigError.
    """
    steps: list[tuple[str, SinkStep]] = []
    for number, each in enumerate(sink.transforms):
        try:
            steps.append((each.namespace, _step(each, root, sink.batch.bytes)))
        except ConfigError as error:
            raise ConfigError(f"{place}.transforms[{number}]: {error}") from error.__cause__
    return Steps(steps)


def _step(step: FunctionStep | FetchStep, root: Path, together: int) -> SinkStep:
    if isinstance(step, FetchStep):
        from oplog_pipe.deliver.fetch import Fetcher  # its HTTP client is needed only here

        return Fetcher(step, together=together)
    function = load(step.function, root)
    if not callable(function):
        raise ConfigError(f"{step.function} is no function")
    return FunctionCalls(step.function, function)
