"""Reading from secondaries, by the URL's read preference."""

from typing import Any

import pytest

from oplog_sync.backend import Wanted, make_backend
from oplogd.errors import StoreUnavailableError
from tests.kits.mongo.wire import Wire
from tests.kits.spark.helpers import StorePlace, append, operation

TIME = "2020-01-01T00:00:00.001Z"


class Secondary(Wire):
    """Presents the server as the only member of a replica set that answers: no primary does."""

    def _rewrite(self, document: dict[str, Any]) -> None:
        document |= {"secondary": True, "primary": "127.0.0.1:1"}
        document |= {name: False for name in ("ismaster", "isWritablePrimary") if name in document}


def test_a_range_is_read_from_a_secondary_while_there_is_no_primary(plain_url: str) -> None:
    StorePlace(plain_url, "plain").create()
    append(plain_url, [operation("insert", "video", str(n), TIME) for n in range(10)])
    with Secondary(plain_url, as_replica_set=True) as member:
        url = member.url(
            directConnection="false",
            replicaSet="rs",
            readPreference="secondaryPreferred",
            serverSelectionTimeoutMS="2000",
        )
        backend = make_backend(url)
        with pytest.raises(StoreUnavailableError, match="no writable server answers"):
            backend.locate(0)
        entries = [row for rows in backend.operations((0, 10), Wanted()) for row in rows]
        assert [row.offset for row in entries] == list(range(1, 11))
        wanted = Wanted(offset=(None, 10))
        states = [row for rows in backend.states((None, None), wanted) for row in rows]
        assert len(states) == 10
