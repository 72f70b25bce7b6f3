"""Descriptions of endpoints, and the OpenAPI document: made when it is first asked for."""

import inspect
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from fastapi import FastAPI, params
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, APIRouter

from oplogd.decode.media_types import AVRO, JSON, PROBLEM
from oplogd.web.describe.types import ProblemAnswer

ERRORS = (400, 401, 403, 429, 503)
BODY_ERRORS = (*ERRORS, 408, 413, 415, 431)

# Security schemes. One of them suffices.
AUTHORIZATION = ("password", "bearer")
READ = (*AUTHORIZATION, "token", "session")
_WRITE = ("ingest-password", "bearer")

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])

INTRODUCTION = """An operation log. Producers send operations: an object was inserted, updated
or deleted. Consumers follow the stream of operations. Producers may also send operations by UDP,
one JSON object per datagram, by default on the same port. The header Oplog-Store of every answer
names the store."""

_PROBLEMS = {
    400: "A name, a parameter or the body is invalid. The message names the part at fault. Nothing"
    " was stored.",
    401: "The password, cookie or token is missing, wrong or expired.",
    403: "The right is missing: see Rights in the reference. Without a password for writing: a web"
    " page under a name that --allowed-hosts does not list.",
    404: "There is nothing of this name or number, or it was forgotten.",
    406: "The Accept header does not name text/event-stream.",
    408: "The headers or the body were too slow.",
    409: "The request does not fit the present state. The message gives the reason.",
    412: "The term of Oplog-Lease is over, or the lease has no holder, or another reader has taken"
    " the shard of a named consumer. Nothing was stored.",
    413: "The body or a part of it is too large, or has more parts than the agent can hold.",
    415: "The body has another type or encoding.",
    429: "Too many wrong passwords came from this address or from others, or too many consumers"
    " from this address.",
    431: "The headers are too large.",
    503: "The queue or the memory for bodies is full, the store is unreachable, or the agent is"
    " stopping. Try again after Retry-After seconds. Requests that are 'not confirmed' may have"
    " been carried out.",
    507: "The store has no number for another topic, or no room for another key or named consumer."
    " Delete some.",
}
_SCHEMES = {
    "ingest-password": {
        "type": "http",
        "scheme": "basic",
        "description": "--ingest-password with any user name, or a principal of --rights.",
    },
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": "--password with any user name, or a principal of --rights.",
    },
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token: a JWT for a key of --token-key, or of POST /token.",
    },
    "token": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The same. It only reads.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "oplog",
        "description": "Of POST /session, or a JWT. It only reads.",
    },
}
_REF = "#/components/schemas/"


class Described(NamedTuple):
    """The description of an endpoint. Its docstring is the summary and the description.

    ``errors``: statuses of answers with a problem. ``faults``: the example of the member ``errors``
    of a 400. ``answer``, ``body``: a type, or an example by media type. ``needs_body``: also
    without a required member. ``status``, ``text``: of the answer. ``also``: text and answer of
    other statuses. ``headers``: descriptions of its headers. ``asks``: parameters of an endpoint
    that reads its request itself. ``rights``: security schemes, None: those of reading for a GET,
    and of writing for others.
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

    def security(self, method: str) -> tuple[str, ...]:
        """Return the security schemes of which one suffices."""
        if self.rights is not None or 401 not in self.errors:
            return self.rights or ()
        return READ if method == "GET" else _WRITE


def described(tag: str, *errors: int, **others: Any) -> Callable[[_Endpoint], _Endpoint]:
    """Describe an endpoint. See ``Described``."""

    def decorate(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["described"] = Described(tag, errors, **others)
        return endpoint

    return decorate


def add_document(app: FastAPI) -> None:
    """Make ``app.openapi`` return the whole document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    shown = APIRouter(generate_unique_id_function=lambda route: route.name)
    routes = [
        route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema
    ]
    for route in routes:
        entry: Described = route.endpoint.__dict__["described"]
        shown.add_api_route(
            route.path,
            _asking(entry.asks) if entry.asks else route.endpoint,
            methods=_methods(route),
            name=route.name,
            description=inspect.getdoc(route.endpoint),
            tags=[entry.tag],
            dependencies=route.dependencies,
        )
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=shown.routes
    )
    schemas = _Schemas()
    for route in routes:
        for method in _methods(route):
            operation = document["paths"][route.path_format][method.lower()]
            entry = route.endpoint.__dict__["described"]
            _complete(operation, entry, entry.security(method), schemas)
    document["components"] = {"schemas": schemas.components, "securitySchemes": _SCHEMES}
    return document


def _methods(route: APIRoute) -> list[str]:
    return [each for each in route.methods or () if each != "HEAD"]


def _asking(asks: Mapping[str, Any]) -> Any:
    """Return a function with parameters of these types."""

    def endpoint() -> None: ...

    optional = (params.Query, params.Header)
    found = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=type_,
            default=None if isinstance(get_args(type_)[-1], optional) else inspect.Parameter.empty,
        )
        for name, type_ in asks.items()
    ]
    endpoint.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    return endpoint


def _complete(
    operation: dict[str, Any], entry: Described, security: tuple[str, ...], schemas: "_Schemas"
) -> None:
    summary, _, description = operation.pop("description").partition("\n\n")
    operation["summary"] = summary.removesuffix(".")
    if description:
        operation["description"] = description
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        if examples := schema.pop("examples", None):
            parameter["example"] = examples[0]
        for name in ("title", "description"):
            schema.pop(name, None)
        if not schema.get("default"):
            schema.pop("default", None)
    if security:
        operation["security"] = [{name: []} for name in security]
    if entry.body is not None:
        content = schemas.content(entry.body, entry.has_avro)
        needed = entry.needs_body or schemas.requires(content[JSON]["schema"])
        operation["requestBody"] = {"required": needed, "content": content}
    answers: dict[int, dict[str, Any]] = {}
    for status, (text, of) in {entry.status: (entry.text, entry.answer), **entry.also}.items():
        answers[status] = {"description": text or HTTPStatus(status).phrase}
        if of is not None:
            answers[status]["content"] = schemas.content(of, entry.has_avro)
    if entry.headers:
        answers[entry.status]["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in entry.headers.items()
        }
    schema = schemas.schema(ProblemAnswer)
    for status in entry.errors:
        title, text = HTTPStatus(status).phrase, _PROBLEMS[status]
        faults = [*entry.faults] if status == 400 else []
        problem = ProblemAnswer("about:blank", title, status, "…", faults)
        content = {PROBLEM: {"schema": schema, "example": msgspec.to_builtins(problem)}}
        answers.setdefault(status, {"description": text, "content": content})
    operation["responses"] = {str(status): answers[status] for status in sorted(answers)}


class _Schemas:
    """The schemas of all types, and examples made from the examples of members."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def schema(self, of: Any) -> dict[str, Any]:
        """Return the schema of a type."""
        (schema,), components = msgspec.json.schema_components([of], ref_template=f"{_REF}{{name}}")
        self.components |= components
        return schema

    def requires(self, schema: Mapping[str, Any]) -> bool:
        """Return whether a member of a type is required."""
        name = schema.get("$ref", "").removeprefix(_REF)
        return bool(self.components.get(name, {}).get("required"))

    def content(self, of: Any, has_avro: bool) -> dict[str, Any]:
        """Return the contents of a body. ``of``: a type, or types and examples by media type."""
        found: dict[str, Any] = {}
        for media_type, each in (of if isinstance(of, Mapping) else {JSON: of}).items():
            if isinstance(each, str):
                found[media_type] = {"schema": {"type": "string"}, "example": each}
            elif isinstance(each, tuple):  # a type, and examples by name
                found[media_type] = {"schema": self.schema(each[0]), "examples": each[1]}
            else:
                schema = self.schema(each)
                found[media_type] = {"schema": schema, "example": self._example(schema)}
        if has_avro:
            found[AVRO] = {"schema": {"type": "string", "format": "binary"}}
        return found

    def _example(self, schema: Mapping[str, Any]) -> Any:
        if "examples" in schema:
            return schema["examples"][0]
        if "$ref" in schema:
            return self._example(self.components[schema["$ref"].removeprefix(_REF)])
        if schema.get("type") == "array":
            return [self._example(schema["items"])]
        members = schema.get("properties", {}).items()
        return {name: self._example(each) for name, each in members if _has_example(each)}


def _has_example(schema: Mapping[str, Any]) -> bool:
    inner = schema.get("items", {})
    return "examples" in schema or ("$ref" in inner and schema.get("type") == "array")
