"""The OpenAPI document: made when it is first asked for, from the endpoints of the app."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, ClassVar, get_args

import msgspec
from fastapi import FastAPI, params
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, APIRouter

from oplogd.decode.media_types import AVRO, JSON, PROBLEM
from oplogd.web.describe.described import Described
from oplogd.web.describe.types import ProblemAnswer

INTRODUCTION = """An operation log. Producers send operations: an object was inserted, updated
or deleted. Consumers follow the stream of operations. Producers may also send operations by UDP,
one JSON object per datagram, by default on the same port. The header Oplog-Store of every answer
names the store."""

_TAGS = {
    "operations": "The operations of the oplog.",
    "topics": "Topics and their messages.",
    "transactions": "Records that become visible together, in several topics.",
    "pointers": "Messages of foreign transactions.",
    "leases": "Leases of clients.",
    "agent": "The state of the agent.",
    "passwords": "Signing in from a browser, and tokens.",
}

_PROBLEMS = {
    400: "A name, a parameter or the body is invalid. The message names the part at fault. Nothing"
    " was stored.",
    401: "The password, cookie or token is missing, wrong or expired.",
    403: "Without an ingest password: a web page under a name that --allowed-hosts does not list.",
    404: "There is nothing of this name or number, or it was forgotten.",
    406: "The Accept header does not name text/event-stream.",
    408: "The headers or the body were too slow.",
    409: "The request does not fit the present state. The message gives the reason.",
    412: "The term of Oplog-Lease is over, or the lease has no holder. Nothing was stored.",
    413: "The body or a part of it is too large, or has more parts than the agent can hold.",
    415: "The body has another type or encoding.",
    429: "Too many wrong passwords came from this address or from others, or too many consumers"
    " from this address.",
    431: "The headers are too large.",
    503: "The queue or the memory for bodies is full, the store is unreachable, or the agent is"
    " stopping. Try again after Retry-After seconds. Requests that are 'not confirmed' may have"
    " been carried out.",
    507: "The store has no free number for another topic. Delete topics.",
}
_REF = "#/components/schemas/"


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
        told: Described = route.endpoint.__dict__["described"]
        shown.add_api_route(
            route.path,
            _asking(told.asks) if told.asks else route.endpoint,
            methods=route.methods and [*route.methods],
            name=route.name,
            description=inspect.getdoc(route.endpoint),
            tags=[told.tag],
            dependencies=route.dependencies,
        )
    tags = [{"name": name, "description": text} for name, text in _TAGS.items()]
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=shown.routes,
        tags=tags,
    )
    schemas = _Schemas(route.endpoint.__dict__["described"] for route in routes)
    for route in routes:
        for method in route.methods or ():
            operation = document["paths"][route.path][method.lower()]
            _complete(operation, route.endpoint.__dict__["described"], schemas)
    document["components"]["schemas"] = schemas.components
    return document


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


def _complete(operation: dict[str, Any], told: Described, schemas: "_Schemas") -> None:
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
    if told.body is not None:
        body = {"required": told.needs_body, "content": schemas.content(told.body, told.has_avro)}
        operation["requestBody"] = body
    success = {told.status: (told.text, told.answer), **told.also}
    answers = {status: schemas.answer(status, *each) for status, each in success.items()}
    if told.headers:
        answers[told.status]["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in told.headers.items()
        }
    if told.has_avro and told.answer is not None:
        answers[told.status]["content"] |= schemas.avro
    problem = {PROBLEM: {"schema": {"$ref": f"{_REF}{ProblemAnswer.__name__}"}}}
    for status in told.errors:
        answers.setdefault(status, {"description": _PROBLEMS[status], "content": problem})
    operation["responses"] = {str(status): answers[status] for status in sorted(answers)}


class _Schemas:
    """The schemas of all types, and examples made from those of their members."""

    avro: ClassVar = {AVRO: {"schema": {"type": "string", "format": "binary"}}}

    def __init__(self, found: Iterable[Described]) -> None:
        types = {repr(each): each for told in found for each in _types(told)}
        types[repr(ProblemAnswer)] = ProblemAnswer
        template = f"{_REF}{{name}}"
        schemas, self.components = msgspec.json.schema_components(
            types.values(), ref_template=template
        )
        self._by_type = dict(zip(types, schemas, strict=True))

    def content(self, of: Any, has_avro: bool = False) -> dict[str, Any]:
        """Return the contents of a body. ``of``: a type, or types and examples by media type."""
        found = {}
        for media_type, each in (of if isinstance(of, Mapping) else {JSON: of}).items():
            if isinstance(each, str):
                found[media_type] = {"schema": {"type": "string"}, "example": each}
            elif isinstance(each, tuple):  # a type, and examples by name
                found[media_type] = {"schema": self._by_type[repr(each[0])], "examples": each[1]}
            else:
                schema = self._by_type[repr(each)]
                found[media_type] = {"schema": schema, "example": self._example(schema)}
        return {**found, **(self.avro if has_avro else {})}

    def answer(self, status: int, text: str, of: Any) -> dict[str, Any]:
        described: dict[str, Any] = {"description": text or HTTPStatus(status).phrase}
        if of is not None:
            described["content"] = self.content(of)
        return described

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


def _types(told: Described) -> Iterator[Any]:
    for of in (told.body, told.answer, *(answer for _, answer in told.also.values())):
        for each in of.values() if isinstance(of, Mapping) else (of,):
            if isinstance(each, tuple):
                yield each[0]
            elif each is not None and not isinstance(each, str):
                yield each
