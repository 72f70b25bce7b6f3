"""One scenario: a service with its outbox, relays, agents, and the judgement at the end."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.kits.agents.agent import Agent, Answer
from tests.kits.agents.topics import Topic
from tests.kits.mongo.agents import wait_for
from tests.kits.relay.checker import Arrival, Sent, check
from tests.kits.relay.outbox import OPLOG, NewRow, OutboxTable
from tests.kits.relay.processes import TALKATIVE, RelayProcess, write_settings
from tests.kits.relay.reading import OplogPosition, read_topic
from tests.kits.relay.writer import Writer, log_of

# No request is given up because the machine is busy.
_PATIENT = {"poll": 0.05, "io_error_backoff": 0.05, "request_timeout": 60.0, "queue_timeout": 120.0}
# As short as a busy machine allows: a leader polls in time.
SHORT = {**_PATIENT, "heartbeat": 5.0, "session": 6.0}
# Nobody leads because a lease has expired while a test runs.
LONG = {**_PATIENT, "heartbeat": 60.0, "session": 120.0}


class Chain:
    """``name``: of the lease, of the namespace of the topics, and the type of the operations.

    ``agents`` share a store. ``program`` of the relays: see ``processes``.
    """

    def __init__(
        self,
        name: str,
        agents: Sequence[Agent],
        table: OutboxTable,
        folder: Path,
        program: Sequence[str] = TALKATIVE,
    ) -> None:
        self.name = name
        self.agents = agents
        self.table = table
        self.topics = [f"{name}/one", f"{name}/two", OPLOG]
        for topic in self.topics[:-1]:
            Topic(agents[0], topic).create()
        self.committed: dict[str, list[Sent]] = defaultdict(list)
        self._folder = folder
        self._program = program
        self._relays = 0
        self._writers: list[Writer] = []
        self._position = OplogPosition(agents[0])

    def key(self, number: int | str) -> str:
        """Return a key for topics and the oplog: ``type/id``."""
        return f"{self.name}/{number}"

    def settings(
        self, *urls: str, database: str = "", limits: dict[str, float] = SHORT, **others: object
    ) -> Path:
        """Write the settings of one more relay. ``urls``: of agents; all of them if none."""
        self._relays += 1
        return write_settings(
            self._folder / f"{self.name}-{self._relays}.yaml",
            self.name,
            urls or [agent.url for agent in self.agents],
            database or self.table.url,
            **{**limits, **others},
        )

    def relay(
        self, *urls: str, environ: Mapping[str, str] | None = None, **options: Any
    ) -> RelayProcess:
        """Start a relay. ``options``: see ``settings``."""
        settings = self.settings(*urls, **options)
        return RelayProcess(settings, program=self._program, environ=environ)

    def row(self, key: int | str, topic: str | None = None) -> NewRow:
        """Return the next row of a key, which is expected to arrive."""
        name = self.key(key)
        topic = topic or self.topics[0]
        row = NewRow(topic, name, len(self.committed[name]))
        self.committed[name].append(Sent(log_of(topic), row.number))
        return row

    def insert(self, rows: int, keys: int, topics: Sequence[str] | None = None) -> None:
        """Insert rows in one transaction, their keys and topics in turn."""
        names = topics or self.topics
        self.table.insert(
            *(self.row(number % keys, names[number % len(names)]) for number in range(rows))
        )

    def write(self, keys: int, seed: int, pause: float = 0.005) -> Writer:
        """Start a writer with keys of its own, over all topics."""
        names = [self.key(f"w{seed}-{number}") for number in range(keys)]
        writer = Writer(self.table, f"w{seed}", names, self.topics, seed, pause)
        self._writers.append(writer)
        writer.start()
        return writer

    def wait_empty(self) -> None:
        """Wait until the outbox has no row."""
        wait_for("an empty outbox", lambda: self.table.rows() == 0)

    def lease(self) -> dict[str, Any]:
        answer: Answer = self.agents[0].request("GET", f"/v1/leases/{self.name}")
        assert answer.status == 200, answer
        lease: dict[str, Any] = answer.json
        return lease

    def arrivals(self) -> list[Arrival]:
        agent = self.agents[-1]
        in_topics = [each for topic in self.topics[:-1] for each in read_topic(agent, topic)]
        return in_topics + self._position.arrivals(agent, self.name)

    def check(self) -> int:
        """Judge all that arrived, once the outbox is empty. Return the number of duplicates."""
        self.wait_empty()
        committed = dict(self.committed)
        for writer in self._writers:
            committed |= writer.committed
        return check(self.arrivals(), committed)
