"""Requests to Elasticsearch and OpenSearch, and the meaning of refusals."""

from typing import Any
from urllib.parse import quote

import msgspec

from oplog_pipe.errors import SinkError, TargetError
from oplog_pipe.model.reasons import of_search, of_status
from oplog_pipe.sinks.parts.calls import Calls, check_headers
from oplog_pipe.sinks.search import ElasticsearchOptions
from oplogc.http.answers import Answer

_NDJSON = "application/x-ndjson"
_JSON = "application/json"


class SearchServers(Calls):
    """The servers of a sink. Raises ValueError for an unusable option."""

    def __init__(self, options: ElasticsearchOptions) -> None:
        key = options.api_key
        self._headers = {} if key is None else {"Authorization": f"ApiKey {key}"}
        check_headers(self._headers, "api_key")
        user, password = options.user, options.password
        super().__init__(options.urls, options.tls, options.timeout, user=user, password=password)

    def ask(
        self, method: str, path: str, body: object = None, *, missing_is_none: bool = False
    ) -> Any:
        answer = self.send(method, path, body)
        if missing_is_none and answer.status == 404:
            return None
        if answer.status >= 300:
            raise self.refused(answer)
        return self.read(answer)

    def send(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request to one server after the other. Raises SinkError if none takes it."""
        raw = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        kind = {"Content-Type": _NDJSON if isinstance(body, bytes) else _JSON}
        headers = {**self._headers, **(kind if raw is not None else {})}

        def fault(answer: Answer) -> str | None:
            if answer.status == 429:
                raise self.refused(answer)
            if answer.status >= 500 or answer.status in (408, 425):
                return _reason_of(answer)
            return None

        return self.first_answer(method, path, raw, headers, fault)

    def refused(self, answer: Answer, before: str = "", index: int | None = None) -> SinkError:
        # A proxy before the server answers in its own words.
        transient = answer.passes or (answer.status in (400, 404, 405) and not answer.members())
        reason = _reason_of(answer)
        if answer.status in (401, 403):
            blocked = error_type(answer) == "cluster_block_exception"
            transient = transient or blocked
            reason += "" if blocked else "; look at user, password and api_key"
        if 300 <= answer.status < 400:
            reason = f"redirects to {answer.location or 'nowhere'}: give that address instead"
        sentence = f"{self.server}: {before}{reason}"
        if not transient and (answer.status in (401, 403) or 300 <= answer.status < 400):
            return TargetError(sentence)
        return SinkError(sentence, transient=transient, index=index)

    def read(self, answer: Answer) -> Any:
        try:
            return msgspec.json.decode(answer.body)
        except ValueError:
            sentence = f"{self.server} does not answer in JSON"
            raise SinkError(sentence, transient=True) from None


def _reason_of(answer: Answer) -> str:
    error = answer.members().get("error")
    if error is None:
        return of_status(answer.status)
    return f"{of_search(error)} (HTTP {answer.status})"


def error_type(answer: Answer) -> str:
    error = answer.members().get("error")
    return str(error.get("type", "")) if isinstance(error, dict) else ""


def path_of(index: str) -> str:
    return "/" + quote(index, safe="")
