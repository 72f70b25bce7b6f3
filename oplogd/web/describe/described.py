"""Describes endpoints: their answers, and what FastAPI does not read itself."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

READ_ERRORS = (400, 401, 429, 503)
WRITE_ERRORS = (*READ_ERRORS, 403)
BODY_ERRORS = (*WRITE_ERRORS, 408, 413, 415, 431)

# Security schemes. One of them suffices.
PASSWORD = ("password",)
_READ = (*PASSWORD, "token", "session")
_WRITE = ("ingest-password",)

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class Described(NamedTuple):
    """The description of an endpoint. Its docstring is the summary and the description.

    ``errors``: statuses of answers with a problem. ``faults``: the example of the member ``errors``
    of a 400. ``answer``, ``body``: a type, or an example by
    media type. ``needs_body``: also without a required member. ``status``, ``text``: of the answer.
    ``also``: text and answer of other statuses. ``headers``: descriptions of those of the answer.
    ``asks``: parameters of an endpoint that reads its request itself. ``rights``: security schemes,
    None for those that the errors tell.
    """

    tag: str
    errors: tuple[int, ...]
    answer: Any = None
    body: Any = None
    status: int = 200
    text: str = ""
    also: Mapping[int, tuple[str, Any]] = {}
    headers: Mapping[str, str] = {}
    asks: Mapping[str, Any] = {}
    has_avro: bool = False
    needs_body: bool = False
    rights: tuple[str, ...] | None = None
    faults: tuple[Mapping[str, Any], ...] = ()

    @property
    def security(self) -> tuple[str, ...]:
        """The security schemes of which one suffices."""
        if self.rights is not None or 401 not in self.errors:
            return self.rights or ()
        return _WRITE if 403 in self.errors else _READ


def described(tag: str, *errors: int, **others: Any) -> Callable[[_Endpoint], _Endpoint]:
    """Describe an endpoint. See ``Described``."""

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["described"] = Described(tag, errors, **others)
        return endpoint

    return decorate
