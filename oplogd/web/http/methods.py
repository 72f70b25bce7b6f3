"""The methods of paths: HEAD for every GET, OPTIONS for every path."""

from fastapi import FastAPI, Response
from fastapi.routing import APIRoute
from starlette.routing import Route

_ANY_PATH = "/{path:path}"

# No web page may write, so a preflight grants neither POST nor DELETE.
_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, HEAD",
    "Access-Control-Allow-Headers": "Accept, Authorization, Cache-Control, Last-Event-ID",
    "Access-Control-Max-Age": "86400",
}


def add_preflight(app: FastAPI) -> None:
    """Answer OPTIONS at every path, known or not."""

    @app.options(_ANY_PATH, include_in_schema=False)
    async def preflight() -> Response:
        return Response(status_code=204, headers=_PREFLIGHT_HEADERS)


def add_head(app: FastAPI) -> None:
    """Add HEAD to every path with GET so far, also to the documentation."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")


def allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods of a path, sorted. Return an empty list for an unknown path."""
    methods: set[str] = set()
    for route in app.routes:
        if isinstance(route, Route) and route.path != _ANY_PATH and route.path_regex.match(path):
            methods |= route.methods or set()
    return sorted(methods | {"OPTIONS"}) if methods else []
