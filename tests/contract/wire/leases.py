"""Short ways to use leases over HTTP."""

import json
import os
from typing import Any

from tests.kits.contract.wire import JSON, Headers, Reply, Target

LEASES = "/v1/leases"
# No test lasts so long: the lease does not expire meanwhile.
LONG_MS = 1_800_000


class LeaseClient:
    """A lease of an agent under test. ``name``: by default an unused one."""

    def __init__(self, target: Target, name: str = "", headers: Headers = ()) -> None:
        self.name = name or "l" + os.urandom(8).hex()
        self.path = f"{LEASES}/{self.name}"
        self._target = target
        self._headers = {**JSON, **dict(headers)}

    def request(self, method: str, body: Any = None, headers: Headers | None = None) -> Reply:
        """``body``: bytes or None as they are, or a value to send as JSON."""
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = self._headers if headers is None else headers
        return self._target.request(method, self.path, raw, given)

    def poll(self, holder: str = "a", ttl_ms: int = LONG_MS, **members: Any) -> dict[str, Any]:
        return _ok(self.request("POST", {"holder": holder, "ttl_ms": ttl_ms, **members}))

    def shown(self) -> dict[str, Any]:
        return _ok(self.request("GET"))

    def releasing(self, holder: str, term: int) -> Reply:
        return self.request("DELETE", {"holder": holder, "term": term})

    def release(self, holder: str, term: int) -> dict[str, Any]:
        return _ok(self.releasing(holder, term))

    def fence(self, term: int) -> dict[str, str]:
        return fence(self.name, term)


def fence(name: str, term: int) -> dict[str, str]:
    """Return the header of a publish with this fence."""
    return {"Oplog-Lease": f"{name}; term={term}"}


def _ok(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply
    body: dict[str, Any] = reply.json
    return body
