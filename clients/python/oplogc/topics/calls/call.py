"""A request, and readers of its answer. No I/O."""

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType, NoneType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from oplogc.http.answers import Answer
from oplogc.wire.errors import ProtocolError

MAX_LIST = 1000
"""Limit of one request for a list."""
_T = TypeVar("_T")


class Call(NamedTuple, Generic[_T]):
    """A request.

    ``read``: returns the content of an answer that is no refusal, and may raise ProtocolError.
    ``writes``: whether the request needs the right to write. ``done``: status of success.
    ``query``: parameters of the address. ``headers``: besides those of every request.
    """

    method: str
    path: str
    read: Callable[[Answer], _T]
    body: bytes | None = None
    writes: bool = False
    done: int = 200
    query: Mapping[str, str] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


def nothing(answer: Answer) -> None:
    """Read an answer without content."""


def query(**asked: object) -> dict[str, str]:
    """Return the parameters of an address. None: not given."""
    return {name: str(value) for name, value in asked.items() if value is not None}


def limit(given: int | None) -> int | None:
    """Return the number of items to list. Raise ValueError."""
    if given is not None and (type(given) is not int or not 1 <= given <= MAX_LIST):
        raise ValueError(f"limit: give a whole number, 1 to {MAX_LIST:,}")
    return given


def reader(kind: str, convert: Callable[[Any], _T]) -> Callable[[Answer], _T]:
    """Return a reader of an answer in JSON. ``kind``: entries of the agents with this request.

    The reader raises ProtocolError for ValueError, TypeError, KeyError and AttributeError.
    """

    def read(answer: Answer) -> _T:
        try:
            return convert(answer.json())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise no_agent(answer, kind, f"its answer cannot be read: {error!r}"[:300]) from None

    return read


def list_reader(kind: str, convert: Callable[[Any], _T]) -> Callable[[Answer], tuple[_T, ...]]:
    """Return a reader of a list, as ``reader``. ``convert``: for an item."""

    def items(given: Any) -> tuple[_T, ...]:
        if not isinstance(given, list):
            raise TypeError("a list was expected")
        return tuple(map(convert, given))

    return reader(kind, items)


def members_of(kind: Callable[..., _T]) -> Callable[[Any], _T]:
    """Return a conversion of a JSON object to a named tuple: each field is a member.

    A field that may be None may be absent. The conversion raises the errors ``reader`` expects.
    """
    hints = get_type_hints(kind)

    def convert(given: Any) -> _T:
        return kind(**{name: _member(given, name, hint) for name, hint in hints.items()})

    return convert


def _member(given: Any, name: str, hint: Any) -> Any:
    options = get_args(hint)
    if NoneType in options:
        if given.get(name) is None:
            return None
        hint = options[0]
    conversion = _CONVERSIONS.get(hint)
    return conversion(given[name]) if conversion else given[name]


def text(given: object) -> str:
    """Return a member of type text. Raise TypeError."""
    if not isinstance(given, str):
        raise TypeError("text was expected")
    return given


_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    str: text,
    int: int,
    bool: bool,
    float: float,
    datetime: datetime.fromisoformat,
    tuple[str, ...]: lambda given: tuple(map(text, given)),
}


def no_agent(answer: Answer, kind: str, reason: str) -> ProtocolError:
    """Return the error for an answer of another server, or of an agent without this request."""
    return ProtocolError(f"{answer.url} is no agent with {kind}: {reason}")
