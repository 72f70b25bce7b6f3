"""GET /v1/schemas/{name}: the Avro schemas of requests and answers. Needs no password."""

from typing import Any

from fastapi import FastAPI, Response

from oplogd.topics.codec.avro import SCHEMAS
from oplogd.web.describe.described import described
from oplogd.web.describe.parameters import SchemaName
from oplogd.web.http.problem import Problem
from oplogd.web.v1.requests import shown


def add_schemas(app: FastAPI) -> None:
    @app.get("/v1/schemas/{name}")
    @described("topics", 404, answer=dict[str, Any])
    async def schema(name: SchemaName) -> Response:
        """Show the Avro schema of a request or an answer.

        Bodies of the type `avro/binary` are bare data, without a container. An agent that was
        installed without Avro refuses them (415). Needs no password.
        """
        found = SCHEMAS.get(name)
        if found is None:
            raise Problem(404, f"there is no schema {name}; there are {', '.join(SCHEMAS)}")
        return shown(found)
