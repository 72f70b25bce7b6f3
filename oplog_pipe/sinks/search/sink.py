"""A sink for Elasticsearch and OpenSearch: each object is a document, with its version."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.message import Message
from oplog_pipe.model.reasons import of_search
from oplog_pipe.sinks.parts.fence import LOOK_SECONDS, Fence, FenceLook
from oplog_pipe.sinks.parts.ownership import OwnedRows
from oplog_pipe.sinks.parts.template import Template
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplog_pipe.sinks.search.bulk import (
    OWN,
    BulkAction,
    bodies,
    changes_of_owner,
    check,
    check_owners,
    items,
    readable,
)
from oplog_pipe.sinks.search.fence import EXISTS, SearchFence
from oplog_pipe.sinks.search.names import IndexNames
from oplog_pipe.sinks.search.server import SearchServers, error_type, path_of

MAX_BODY_BYTES = 10_000_000
# Documents one request deletes at the end of a copy: it must end within the time-out.
MAX_DELETES = 10_000
_MAX_ADOPTED = 1000
# Requests in a row without a deletion, because others change the same documents.
_MAX_CONFLICTS = 20
# Namespaces in one index.
_MAX_NAMESPACES = 10_000
_KEYWORDS = {name: {"type": "keyword"} for name in ("source", "namespace", "owner")}
_FIGURES = {"version": {"type": "long"}, "timestamp": {"type": "date"}, **_KEYWORDS}
_MAPPING = {"properties": {OWN: {"properties": _FIGURES}}}
# By itself a server passes over unreachable shards, for example after its start.
_SEARCH = "_search?allow_partial_search_results=false"


class ElasticsearchSink(OwnedRows):
    """Writes documents: the data of a message, and a member ``oplog`` with its figures.

    ``namespace``: regular expression of the namespaces the sink gets. Raises ValueError for an
    unusable option.
    """

    def __init__(
        self,
        options: ElasticsearchOptions,
        namespace: str = ".*",
        *,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_deletes: int = MAX_DELETES,
    ) -> None:
        super().__init__()
        self._names = IndexNames(options.index, namespace)
        if self._names.is_fixed:
            self._names.of("")  # raises if no index can have this name
        self._ids = Template(options.id)
        self._create = options.create
        # Of a request: it goes to one server after the other.
        self._longest = options.timeout * len(options.urls)
        self._look = FenceLook()
        self._max_body_bytes = max_body_bytes
        self._max_deletes = max_deletes
        self._servers = SearchServers(options)
        # Indexes with the mapping.
        self._ready: set[str] = set()
        # Written offsets of the present batch: a repetition leaves them out.
        self._done: set[int] = set()

    def open(self) -> None:
        found = self._servers.ask("GET", "/")
        if not isinstance(found, dict) or "version" not in found:
            raise SinkError(f"{self._servers.server} is neither Elasticsearch nor OpenSearch")

    def write(self, messages: Sequence[Message]) -> None:
        found = items(messages, self._names, self._ids, str(self._owner))
        actions = [each for each in found if each.offset not in self._done]
        for index in dict.fromkeys(action.target for action in actions):
            if index not in self._ready:
                self._prepare(index, self._create)
            self._judge_once(index, partial(self._judge, index, str(self._owner)))
        for group in bodies(actions, self._max_body_bytes):
            self._write(group)
        self._done.clear()

    @property
    def late_seconds(self) -> float:
        return LOOK_SECONDS + self._longest

    @readable()
    def begin_term(self) -> int:
        return self._fence().begin_term()

    @readable()
    def read_fence(self) -> Fence | None:
        return self._fence().read()

    @readable()
    def move_fence(self, fence: Fence) -> None:
        self._fence().move(fence)

    def stand_at(self, fence: Fence) -> None:
        self._look = FenceLook(fence, self.read_fence)

    def _fence(self) -> SearchFence:
        return SearchFence(self._servers, str(self._owner), creates=self._create)

    @readable()
    def end_copy(self, generation: int, source: str) -> None:
        for index, own in self._existing().items():
            self._prepare(index, False)
            self._judge_once(index, partial(self._judge, index, str(self._owner)))
            older = [
                *own,
                {"term": {f"{OWN}.owner": str(self._owner)}},
                {"term": {f"{OWN}.source": source}},
                {"range": {f"{OWN}.version": {"lt": generation}}},
            ]
            self._delete(index, {"bool": {"filter": older}})

    @readable()
    def adopt(self, former: str) -> int:
        """Change all documents of the former owner, one index after the other.

        After a failure a part of them is changed: call it again. The change of a document raises
        its version in the index by one. Its next message has at least this one.
        """
        indexes = list(self._existing())
        for index in indexes:
            self._prepare(index, False)
            self._judge(index, former)
        return sum(self._adopt(index, former) for index in indexes)

    def _adopt(self, index: str, former: str) -> int:
        asked = {
            "size": _MAX_ADOPTED,
            "_source": False,
            "seq_no_primary_term": True,
            "query": {"term": {f"{OWN}.owner": former}},
        }
        changed = 0
        while hits := self._search(index, asked)["hits"]["hits"]:
            group = changes_of_owner(hits, str(self._owner))
            answer = self._servers.ask("POST", "/_bulk", b"".join(each.body for each in group))
            check(answer, group)  # 409: another program has changed it, and it is found again
            changed += sum(each["update"]["status"] == 200 for each in answer["items"])
        return changed

    def close(self) -> None:
        self._servers.close()

    @readable()
    def _judge(self, index: str, owner: str) -> None:
        """Judge the newest version of an owner's documents. Raises ConfigError."""
        # Not by an aggregation: its numbers are doubles, which hold 53 bits of a version.
        body = {
            "size": 1,
            "_source": False,
            "query": {"term": {f"{OWN}.owner": owner}},
            "sort": [{f"{OWN}.version": {"order": "desc", "unmapped_type": "long"}}],
        }
        for hit in self._search(index, body)["hits"]["hits"]:
            self._owner.check(f"index {index}", int(hit["sort"][0]))

    def _search(self, index: str, body: Mapping[str, Any]) -> Any:
        # Without a refresh a query misses the newest documents.
        self._servers.ask("POST", f"{path_of(index)}/_refresh")
        return self._servers.ask("POST", f"{path_of(index)}/{_SEARCH}", body)

    def _existing(self) -> dict[str, list[dict[str, Any]]]:
        """Return the existing indexes of this sink, each with the filters for its documents."""
        pattern = quote(self._names.pattern, safe="*")
        found = self._servers.ask("GET", f"/_resolve/index/{pattern}", missing_is_none=True) or {}
        # Name -> indexes it stands for: several if it is the name of an alias.
        indexes = {each["name"]: [each["name"]] for each in found.get("indices", ())}
        indexes |= {each["name"]: each["indices"] for each in found.get("aliases", ())}
        exists: dict[str, Any] = {"exists": {"field": f"{OWN}.version"}}
        if self._names.is_fixed:
            return {index: [exists, self._of_the_sink(index)] for index in indexes}
        # A pattern such as * matches indexes of others, too: they do not have the mapping.
        # Not by _mapping/field, which asks the shards: while they recover, it finds nothing.
        path = f"/{pattern}/_mapping?filter_path=*.mappings.properties.{OWN}.properties.version"
        mapped = self._servers.ask("GET", path, missing_is_none=True) or {}
        spaces = {
            index: self._names.namespace_of(index)
            for index, members in indexes.items()
            if any(each in mapped for each in members)
        }
        return {
            index: [exists, {"term": {f"{OWN}.namespace": namespace}}]
            for index, namespace in spaces.items()
            if namespace is not None
        }

    def _of_the_sink(self, index: str) -> dict[str, Any]:
        """Return the filter for documents of the sink's namespaces, which share this index."""
        field = {"field": f"{OWN}.namespace", "size": _MAX_NAMESPACES}
        body = {"size": 0, "aggs": {"namespaces": {"terms": field}}}
        found = self._search(index, body).get("aggregations", {})
        counted = found.get("namespaces", {"buckets": []})
        if counted.get("sum_other_doc_count"):
            raise SinkError(f"index {index} has more than {_MAX_NAMESPACES} namespaces")
        spaces = self._names.matching(bucket["key"] for bucket in counted["buckets"])
        return {"terms": {f"{OWN}.namespace": spaces}}

    def _prepare(self, index: str, create: bool) -> None:
        """Give the index the mapping. ``create``: also create a missing index.

        With a mapping of the server's own choice, no source could be found again.
        """
        if create:
            answer = self._servers.send("PUT", path_of(index), {"mappings": _MAPPING})
            if answer.status < 300:
                self._ready.add(index)
                return
            if answer.status != 400 or error_type(answer) not in EXISTS:
                raise self._servers.refused(answer)
        answer = self._servers.send("PUT", f"{path_of(index)}/_mapping", _MAPPING)
        if answer.status == 404:
            raise TargetError(f"index {index} does not exist: create it, or set create: true")
        if answer.status >= 300:
            before = f"index {index} cannot get the mapping of {OWN!r}: "
            raise self._servers.refused(answer, before)
        self._ready.add(index)

    def _write(self, group: list[BulkAction]) -> None:
        self._look.look()
        asked = {"docs": [{"_index": each.target, "_id": each.id} for each in group]}
        path = f"/_mget?_source_includes={OWN}.owner,{OWN}.version"
        check_owners(self._servers.ask("POST", path, asked), group, self._owner)
        self._look.check()
        answer = self._servers.send("POST", "/_bulk", b"".join(each.body for each in group))
        if answer.status == 413 and len(group) > 1:
            half = len(group) // 2
            self._write(group[:half])
            self._write(group[half:])
            return
        place = group[0].place if len(group) == 1 else None
        if answer.status >= 300:
            raise self._servers.refused(answer, index=place)
        try:
            check(self._servers.read(answer), group, self._done)
        except SinkError:
            self._ready.clear()  # an index may have been deleted
            raise

    def _delete(self, index: str, query: Mapping[str, Any]) -> None:
        """Delete documents until none of them is left. Others may change documents meanwhile."""
        path = f"{path_of(index)}/_delete_by_query?conflicts=proceed&max_docs={self._max_deletes}"
        conflicts = 0
        while True:
            # Without it a query does not see the newest documents, nor their newest versions.
            self._servers.ask("POST", f"{path_of(index)}/_refresh")
            self._look.look()
            done = self._servers.ask("POST", path, {"query": query})
            if done.get("failures"):
                reason = of_search(done["failures"][0].get("cause"))
                raise SinkError(f"index {index}: {reason}", transient=True)
            if not done["total"] and not done.get("timed_out"):
                return
            conflicts = 0 if done["deleted"] else conflicts + 1
            if conflicts > _MAX_CONFLICTS:
                sentence = f"index {index}: others change the documents that are to be deleted"
                raise SinkError(sentence, transient=True)
