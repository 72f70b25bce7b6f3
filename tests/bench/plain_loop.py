"""The simplest relay: ``python -m tests.bench.plain_loop DATABASE AGENT TOPIC ROWS``.

Selects 100 rows, publishes them in one request, deletes them; until it has moved so many rows. It
has no order per key beside a second process, no standby, and no answer to a failure.
"""

import sys

import httpx
import psycopg

BATCH = 100
# Written when it begins, so that the start of Python is not measured.
BEGINS = "the loop begins"


def move(database: str, agent: str, topic: str, rows: int) -> None:
    with psycopg.connect(database, autocommit=True) as db, httpx.Client(base_url=agent) as http:
        db.execute("SELECT 1")
        print(BEGINS, file=sys.stderr, flush=True)
        while rows:
            found = db.execute(
                "SELECT id, key, value, header_keys, header_values FROM outbox"
                " ORDER BY id LIMIT %s",
                [BATCH],
            ).fetchall()
            messages = [
                {"key": key, "payload": value, "headers": [*zip(names, values, strict=True)]}
                for _, key, value, names, values in found
            ]
            answer = http.post(f"{topic}/publish", json={"messages": messages})
            answer.raise_for_status()
            db.execute("DELETE FROM outbox WHERE id = ANY(%s)", [[row[0] for row in found]])
            rows -= len(found)


if __name__ == "__main__":
    move(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
