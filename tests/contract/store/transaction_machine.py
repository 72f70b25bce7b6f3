"""Random calls on topics and transactions."""

import json

from hypothesis import strategies as some
from hypothesis.stateful import initialize, precondition, rule

from oplogd.errors import TopicExistsError
from oplogd.model.event_id import Mark, format_id
from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import stamp
from oplogd.model.transaction import Record, State
from oplogd.store.transactions import Commit, Transaction
from tests.contract.store.model_readers import Pair
from tests.contract.store.reader_machine import AGENTS, NUMBERS, ReaderMachine
from tests.contract.store.transaction_reference import (
    Line,
    Named,
    Txn,
    Written,
)
from tests.kits.models.operations import operation
from tests.kits.store.messages import named, publish
from tests.kits.store.transacting import (
    LIMITS,
    TIMEOUT_MS,
    begin,
    new_transaction,
    oplog_record,
    record,
    seen_committed,
    write,
)

NAMES = ["a", "b"]
GROUPS = ["default", "g"]
TTLS = some.sampled_from([None, None, None, 1, 3])
# Added to the lsn of a new record: -1 clashes with a known one, the others leave a gap.
SHIFTS = some.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1])
# The oplog, or a number of a topic.
PLACES = some.sampled_from([None, 0, 1, 0, 1])


class TransactionMachine(ReaderMachine):
    @initialize()
    def create_all(self) -> None:
        for name in NAMES:
            self.create(name, 1000, 0)

    @rule(name=some.sampled_from(NAMES), ttl=some.sampled_from([5, 1000]), agent=AGENTS)
    def create(self, name: str, ttl: int, agent: int) -> None:
        try:
            topic = self.run(self.store(agent).topics.create(named(name), ttl))
        except TopicExistsError:
            assert name in [pair.model.name for pair in self.existing]
            return
        assert name not in [pair.model.name for pair in self.existing]
        self.pairs.append(Pair(topic, Named(name, ttl)))

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, agent=AGENTS)
    def delete(self, choice: int, agent: int) -> None:
        pair = self.existing[choice % len(self.existing)]
        self.run(self.store(agent).topics.delete(pair.topic.name))
        pair.model.exists = False

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, ttl=TTLS, agent=AGENTS)
    def publish(self, choice: int, ttl: int | None, agent: int) -> None:
        pair = self.existing[choice % len(self.existing)]
        payload = self.payload()
        placed = self.run(publish(self.store(agent).topics, pair.topic, payload, ttl=ttl))
        item = pair.model.add(EntryKind.MESSAGE, self.reference.now, [Line(payload, ttl)])
        item.stamp = stamp(placed.first.ms, placed.first.sequence)

    @rule(
        place=PLACES,
        group=some.sampled_from(GROUPS),
        timeout=some.sampled_from([1000, 60_000, 900_000, 900_000]),
        agent=AGENTS,
    )
    def begin(self, place: int | None, group: str, timeout: int, agent: int) -> None:
        # Most transactions begin with a group.
        pair = self.existing[-1] if place == 1 and self.existing else None
        made = self.run(
            begin(
                self.store(agent),
                group=group,
                topic=pair.topic if pair else None,
                timeout_ms=timeout,
            )
        )
        self.begun.append(
            (made, self.reference.begin(pair.model if pair else None, group, timeout))
        )

    @precondition(lambda self: self.begun)
    @rule(
        choice=NUMBERS,
        given=some.lists(some.tuples(SHIFTS, PLACES, TTLS), min_size=1, max_size=4),
        agent=AGENTS,
    )
    def write(
        self, choice: int, given: list[tuple[int, int | None, int | None]], agent: int
    ) -> None:
        """Write records past the known ones, out of order or with a gap, or clash with one."""
        made, txn = self.begun[-1 - choice % len(self.begun)]
        first = len(txn.records)
        written = {}
        for k, (shift, place, ttl) in enumerate(given):
            pair = self.pairs[-1 - (place or 0) % len(self.pairs)]
            model = txn.topic or (None if place is None else pair.model)
            lsn = max(0, first + k + shift)
            written[lsn] = Written(model, self.payload(), ttl if model else None)
        self._write(made, txn, written, agent)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, first=NUMBERS, agent=AGENTS, more=some.booleans())
    def repeat(self, choice: int, first: int, agent: int, more: bool) -> None:
        """Write known records again, perhaps with a new one."""
        made, txn = self.begun[-1 - choice % len(self.begun)]
        known = sorted(txn.records.items())
        written = dict(known[first % (len(known) + 1) :])
        if more:
            lsn = len(txn.records)
            model = txn.topic or self.pairs[-1].model
            written.setdefault(lsn, Written(model, self.payload(), None))
        # Whether a record of a topic that was deleted since is refused is left open.
        if written and all(not each.topic or each.topic.exists for each in written.values()):
            self._write(made, txn, written, agent)

    def _write(self, made: Transaction, txn: Txn, written: dict[int, Written], agent: int) -> None:
        sent = [self._record(lsn, each) for lsn, each in written.items()]
        errors = self.reference.write(txn, written)
        self.call(write(self.store(agent), made, *sent), errors)

    def _record(self, lsn: int, written: Written) -> Record:
        if written.topic is None:
            return oplog_record(lsn, operation(id_=written.payload))
        (pair,) = [pair for pair in self.pairs if pair.model is written.topic]
        return record(lsn, pair.topic, written.payload, written.ttl)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, wrong=some.sampled_from([0, 0, 0, 0, -1, 1]), agent=AGENTS)
    def commit(self, choice: int, wrong: int, agent: int) -> None:
        made, txn = self.begun[-1 - choice % len(self.begun)]
        number = max(0, len(txn.records) + wrong)
        errors = self.reference.commit(txn, number)
        commit = self.call(self.store(agent).transactions.commit(made.id, number), errors)
        if commit is not None:
            self._check_ids(txn, commit)

    @rule(
        place=PLACES,
        group=some.sampled_from(GROUPS),
        given=some.lists(some.tuples(PLACES, TTLS), min_size=1, max_size=4),
        agent=AGENTS,
    )
    def commit_whole(
        self, place: int | None, group: str, given: list[tuple[int | None, int | None]], agent: int
    ) -> None:
        """Do in one call what a begin, a write and a commit do in three."""
        pairs = self.existing
        only = pairs[-1] if place == 1 and pairs else None
        topic, model = (only.topic, only.model) if only else (None, None)
        txn = self.reference.begin(model, group, TIMEOUT_MS)
        written = {}
        for lsn, (where, ttl) in enumerate(given):
            place_of = pairs[-1 - where % len(pairs)].model if pairs and where is not None else None
            target = model or place_of
            written[lsn] = Written(target, self.payload(), ttl if target else None)
        assert not self.reference.write(txn, written)
        assert not self.reference.commit(txn, len(written))
        store = self.store(agent)
        new = self.run(new_transaction(store, group, topic=topic))
        sent = [self._record(lsn, each) for lsn, each in written.items()]
        commit = self.run(store.transactions.commit_whole(new, sent, LIMITS))
        self.begun.append((commit.transaction, txn))
        self._check_ids(txn, commit)

    def _check_ids(self, txn: Txn, commit: Commit) -> None:
        """Compare the ids in an answer with those that readers see."""
        ids, id_ = list(commit.record_ids()), commit.transaction.id
        if id_ in self.answers:
            assert ids == self.answers[id_]
            return
        self.answers[id_] = ids
        seen = self.run(self._seen_ids())
        for lsn, written in txn.records.items():
            exists = written.topic is None or written.topic.exists
            assert ids[lsn] == (seen[written.payload] if exists else None)

    async def _seen_ids(self) -> dict[str, str]:
        store = self.store(0)
        entries = await store.read(0, 10_000)
        ids = {
            json.loads(entry.data)["id"]: format_id(Mark(entry.offset, entry.ms))
            for entry in entries
        }
        for pair in self.existing:
            ids |= {each.payload: each.id for each in await seen_committed(store, pair.topic)}
        return ids

    @precondition(lambda self: self.begun)
    @rule(
        choice=NUMBERS,
        places=some.lists(PLACES, min_size=2, max_size=5),
        ttl=TTLS,
        agent=AGENTS,
    )
    def finish(self, choice: int, places: list[int | None], ttl: int | None, agent: int) -> None:
        """Write what is missing and some more, and commit."""
        _, txn = self.begun[-1 - choice % len(self.begun)]
        missing = set(range(max(txn.records, default=-1))) - txn.records.keys()
        first = max(txn.records, default=-1) + 1
        for lsn in [*missing, *range(first, first + len(places))]:
            self.write(choice, [(lsn - len(txn.records), places[lsn % len(places)], ttl)], agent)
        self.commit(choice, 0, agent)

    @precondition(lambda self: self.begun)
    @rule(choice=NUMBERS, agent=AGENTS)
    def abort(self, choice: int, agent: int) -> None:
        made, txn = self.begun[-1 - choice % len(self.begun)]
        errors = self.reference.abort(txn)
        self.call(self.store(agent).transactions.abort(made.id), errors)

    @rule(ms=some.sampled_from([1, 1, 1001, 3000, 6000, 61_000, 901_000]))
    def wait(self, ms: int) -> None:
        self.kit.clock.ms += ms
        self.reference.now += ms

    @rule(agent=AGENTS)
    def keep(self, agent: int) -> None:
        now = self.reference.now
        overdue = [txn for _, txn in self.begun if txn.state == State.OPEN and txn.expires < now]
        # Another agent may be the one that keeps.
        count = self.run(self.store(agent).transactions.keep())
        assert count in (0, len(overdue))
        for txn in overdue if count else ():
            self.reference.expire(txn)

    @rule(agent=AGENTS)
    def sweep(self, agent: int) -> None:
        self.run(self.store(agent).topics.sweep())
        self.run(self.after_sweep())

    async def after_sweep(self) -> None:
        """Learn what the sweep has done."""
