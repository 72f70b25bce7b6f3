"""Quirks are chosen when a server is greeted. MongoDB itself has none."""

import re

import pytest

from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.quirks import Quirks, quirks_of
from tests.kits.paths import ROOT
from tests.kits.servers.mongo import RunningMongo


def test_mongodb_has_no_quirks() -> None:
    hello = {"isWritablePrimary": True, "logicalSessionTimeoutMinutes": 30}
    assert quirks_of("hello", hello, {"version": "8.0.4", "modules": []}) == Quirks()


async def greeted(url: str) -> Quirks:
    link = Link(url)
    try:
        assert link.quirks == Quirks()
        await link.greet()
        return link.quirks
    finally:
        await link.close()


JAVA_SERVER = Quirks(hello_command="isMaster", has_sessions=False)
FERRETDB = Quirks(
    inserts_per_command=100,
    updates_per_command=20,
    awaits_tail=False,
    tail_misses_inserts=True,
    ranges_miss_inserts=True,
    has_sample=False,
)


async def test_servers_are_known_by_their_answers(ferret: RunningMongo, java: RunningMongo) -> None:
    for running, quirks in ((java, JAVA_SERVER), (ferret, FERRETDB)):
        is_stand_in = running.is_stand_in
        assert await greeted(running.url) == (quirks if is_stand_in else Quirks())


@pytest.mark.parametrize("folder", ["oplogd", "oplog_sync"])
def test_no_code_but_the_quirks_names_a_stand_in(folder: str) -> None:
    names = re.compile("ferret|java-server", re.IGNORECASE)
    naming = {
        path.name
        for path in (ROOT / folder).rglob("*.py")
        if names.search(path.read_text(encoding="utf-8"))
    }
    assert naming <= {"quirks.py"}
