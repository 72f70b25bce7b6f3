"""A scripted server with transactions."""

import json

from tests.kits.servers.request import Request
from tests.kits.servers.scripted import ModelServer, Replies, answer

TXN = "4611686018427387905"
BEGUN = answer("201 Created", json.dumps({"txn": TXN, "expires_at": "2026-01-31T12:00:00.000Z"}))
SHOWN = answer("200 OK", json.dumps({"txn": TXN, "state": "open"}))


def id_of(lsn: int) -> str:
    return f"{lsn + 1:040x}"


def refused(status: str, detail: str) -> bytes:
    return answer(status, json.dumps({"detail": detail}))


class TransactionServer(ModelServer):
    """``begin``, ``records``, ``commit``, ``abort``: answers to the first requests of this kind."""

    def __init__(
        self,
        begin: Replies = (),
        records: Replies = (),
        commit: Replies = (),
        abort: Replies = (),
        repeat: bool = False,
    ) -> None:
        planned = {"txns": begin, "records": records, "commit": commit, "abort": abort}
        super().__init__(planned, repeat=repeat)

    @property
    def lsns(self) -> list[list[int]]:
        """Return the lsns of each request with records."""
        return [
            [record["lsn"] for record in request.json["records"]]
            for request in self.requests
            if request.verb == "records"
        ]

    def answer_well(self, request: Request) -> bytes:
        if request.verb == "txns":
            return BEGUN
        if request.verb != "commit":
            return SHOWN
        ids = [id_of(lsn) for lsn in range(request.json["records"])]
        return answer("200 OK", json.dumps({"begin": "0b", "commit": "0c", "records": ids}))
