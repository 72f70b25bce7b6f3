"""The fence of an owner's documents: a document in an index of its own."""

from typing import Any
from urllib.parse import quote

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.sinks.parts.fence import Fence, other_driver
from oplog_pipe.sinks.search.server import SearchServers, error_type, path_of

INDEX = "oplog-fence"
# The second one: an alias has the name.
EXISTS = ("resource_already_exists_exception", "invalid_index_name_exception")
_MAPPING = {
    "properties": {
        "owner": {"type": "keyword"},
        "term": {"type": "long"},
        "step": {"type": "long"},
    }
}
# Drivers that begin at the same moment take turns.
_ATTEMPTS = 20


class SearchFence:
    """``creates``: create the index if it is missing."""

    def __init__(self, servers: SearchServers, owner: str, *, creates: bool) -> None:
        self._servers = servers
        self._owner = owner
        self._creates = creates
        self._path = f"{path_of(INDEX)}/_doc/{quote(owner, safe='')}"

    def begin_term(self) -> int:
        if self._creates:
            answer = self._servers.send("PUT", path_of(INDEX), {"mappings": _MAPPING})
            if answer.status >= 300 and error_type(answer) not in EXISTS:
                raise self._servers.refused(answer)
        for _ in range(_ATTEMPTS):
            found, condition = self._found()
            term = 1 if found is None else found.term + 1
            if self._put(Fence(term, -1), condition):
                return term
        raise SinkError(f"index {INDEX}: other drivers begin again and again", transient=True)

    def move(self, fence: Fence) -> None:
        """Raises FencedError if a later term has begun."""
        for _ in range(_ATTEMPTS):
            found, condition = self._found()
            if found is None or found.term != fence.term or found.step > fence.step:
                raise other_driver(self._owner)
            if self._put(fence, condition):
                return
        raise SinkError(f"index {INDEX}: others change the fence", transient=True)

    def read(self) -> Fence | None:
        return self._found()[0]

    def _found(self) -> tuple[Fence | None, str]:
        """Return the fence, and the condition that it is unchanged."""
        found: Any = self._servers.ask("GET", self._path, missing_is_none=True)
        if not found or not found.get("found"):
            return None, "op_type=create"
        place = found["_source"]
        condition = f"if_seq_no={found['_seq_no']}&if_primary_term={found['_primary_term']}"
        return Fence(int(place["term"]), int(place["step"])), condition

    def _put(self, fence: Fence, condition: str) -> bool:
        """Return False if the fence has changed."""
        body = {"owner": self._owner, **fence._asdict()}
        answer = self._servers.send("PUT", f"{self._path}?{condition}", body)
        if answer.status == 409:
            return False
        if answer.status == 404:
            raise TargetError(f"index {INDEX} does not exist: create it, or set create: true")
        if answer.status >= 300:
            raise self._servers.refused(answer)
        return True
