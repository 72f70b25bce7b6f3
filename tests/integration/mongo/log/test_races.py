"""A race of two clients for one document has one winner: leases and take-overs rely on that.

FerretDB by itself fails here; the gate before its stand-in makes it hold, see
`docs/operate/mongodb.md`.
Run as a program, this counts the races with two winners, with the gate and without.
"""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from tests.kits.servers.mongo import MongoServer, RunningMongo, build_ferretdb, new_database

Documents = Collection[dict[str, Any]]
# Tries to win the race of this number under this name. Returns whether it won.
Race = Callable[[Documents, int, str], bool]


def update(documents: Documents, number: int, name: str) -> bool:
    held = {"_id": number, "holder": None}
    return documents.update_one(held, {"$set": {"holder": name}}).modified_count == 1


def find_and_update(documents: Documents, number: int, name: str) -> bool:
    held = {"_id": number, "holder": None}
    return documents.find_one_and_update(held, {"$set": {"holder": name}}) is not None


def delete(documents: Documents, number: int, name: str) -> bool:
    return documents.find_one_and_delete({"_id": number}) is not None


def upsert(documents: Documents, number: int, name: str) -> bool:
    """Take the document if it is free; otherwise the upsert meets its key."""
    free = {"_id": number, "holder": None}
    try:
        answer = documents.update_one(free, {"$set": {"holder": name}}, upsert=True)
    except DuplicateKeyError:
        return False
    return answer.modified_count == 1 or answer.upserted_id is not None


RACES: list[Race] = [update, find_and_update, delete, upsert]
ROUNDS = 60


def winners(url: str, race: Race, rounds: int) -> list[int]:
    """Return how many of two clients won each race."""
    with ExitStack() as stack:
        clients = [stack.enter_context(MongoClient[dict[str, Any]](url)) for _ in range(2)]
        first, *_ = sides = [client.get_default_database()["races"] for client in clients]
        first.insert_many([{"_id": number, "holder": None} for number in range(rounds)])
        start = Barrier(len(sides))

        def run(name: str, documents: Documents) -> list[bool]:
            won = []
            for number in range(rounds):
                start.wait(60)
                won.append(race(documents, number, name))
            return won

        with ThreadPoolExecutor(len(sides)) as pool:
            results = list(pool.map(run, ("a", "b"), sides))
        clients[0].drop_database(first.database.name)
        return [sum(round_) for round_ in zip(*results, strict=True)]


@pytest.mark.parametrize("stand_in", ["ferret", "java"])
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_a_race_for_a_document_has_one_winner(
    race: Race, stand_in: str, request: pytest.FixtureRequest
) -> None:
    running: RunningMongo = request.getfixturevalue(stand_in)
    assert winners(new_database(running.url), race, ROUNDS) == [1] * ROUNDS


@pytest.mark.parametrize("stand_in", ["ferret", "java"])
def test_increments_of_two_clients_are_all_there(
    stand_in: str, request: pytest.FixtureRequest
) -> None:
    running: RunningMongo = request.getfixturevalue(stand_in)

    url = new_database(running.url)
    seen: list[dict[str, Any]] = []

    def increment(documents: Documents, number: int, name: str) -> bool:
        documents.update_one(
            {"_id": 0}, {"$inc": {"revision": 1}, "$addToSet": {"seen": f"{name}{number}"}}
        )
        if number == ROUNDS - 1:
            seen.append(documents.find_one({"_id": 0}) or {})
        return True

    assert winners(url, increment, ROUNDS) == [2] * ROUNDS
    final = max(seen, key=lambda each: int(each["revision"]))
    assert final["revision"] == 2 * ROUNDS
    assert len(final["seen"]) == 2 * ROUNDS


def main() -> None:
    print("| writes pass | race | two winners of 500 |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in (("one at a time", []), ("together", ["-together"])):
            with MongoServer(
                [str(build_ferretdb()), *flags], Path(folder) / name, separate_port=False
            ) as server:
                for race in RACES:
                    counts = winners(f"{server.url}/{race.__name__}", race, 500)
                    print(f"| {name} | {race.__name__} | {sum(count > 1 for count in counts)} |")


if __name__ == "__main__":
    main()
