"""A request, and readers of its answer. No I/O."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from oplogc.http.answers import Answer
from oplogc.wire.errors import ProtocolError

MAX_LIST = 1000
"""Limit of one request for a list."""
_T = TypeVar("_T")


class Call(NamedTuple):
    """A request. ``writes``: whether it needs the right to write. ``done``: status of success.

    ``query``: parameters of the address. ``headers``: besides those of every request.
    """

    method: str
    path: str
    body: bytes | None = None
    writes: bool = False
    done: int = 200
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def query(**asked: object) -> dict[str, str]:
    """Return the parameters of an address. None: not given."""
    return {name: str(value) for name, value in asked.items() if value is not None}


def limit(given: int | None) -> int | None:
    """Return the number of items to list. Raise ValueError."""
    if given is not None and (type(given) is not int or not 1 <= given <= MAX_LIST):
        raise ValueError(f"limit: give a whole number, 1 to {MAX_LIST:,}")
    return given


def read(answer: Answer, kind: str, convert: Callable[[Any], _T]) -> _T:
    """Return the content of an answer.

    ``kind``: entries of the agents with this request. Raises ProtocolError, also if ``convert``
    raises ValueError, TypeError, KeyError or AttributeError.
    """
    try:
        return convert(answer.json())
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise no_agent(answer, kind, f"its answer cannot be read: {error!r}"[:300]) from None


def read_list(answer: Answer, kind: str, convert: Callable[[Any], _T]) -> tuple[_T, ...]:
    """Return the items of an answer. Raises ProtocolError, as ``read``."""

    def items(given: Any) -> tuple[_T, ...]:
        if not isinstance(given, list):
            raise TypeError("a list was expected")
        return tuple(map(convert, given))

    return read(answer, kind, items)


def text(given: object) -> str:
    """Return a member of type text. Raise TypeError."""
    if not isinstance(given, str):
        raise TypeError("text was expected")
    return given


def no_agent(answer: Answer, kind: str, reason: str) -> ProtocolError:
    """Return the error for an answer of another server, or of an agent without this request."""
    return ProtocolError(f"{answer.url} is no agent with {kind}: {reason}")
