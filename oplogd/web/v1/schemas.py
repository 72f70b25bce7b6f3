"""GET /v1/schemas/{name}: the Avro schemas of requests and answers. Needs no password."""

import msgspec
from fastapi import FastAPI, Request, Response

from oplogd.decode.media_types import JSON
from oplogd.topics.codec.avro import SCHEMAS
from oplogd.web.describe import topics as describe
from oplogd.web.http.problem import COMMON_HEADERS, Problem


def add_schemas(app: FastAPI) -> None:
    @app.get("/v1/schemas/{name}", **describe.SCHEMA)
    async def get_schema(request: Request) -> Response:
        name = request.path_params["name"]
        schema = SCHEMAS.get(name)
        if schema is None:
            raise Problem(404, f"there is no schema {name}; there are {', '.join(SCHEMAS)}")
        return Response(msgspec.json.encode(schema), 200, COMMON_HEADERS, JSON)
