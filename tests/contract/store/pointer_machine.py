"""Random calls under pointers of foreign transactions, mixed with those of a machine without."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from hypothesis import strategies as some
from hypothesis.stateful import invariant, precondition, rule

from oplogd.model.isolation import EntryKind
from oplogd.model.message_id import stamp
from oplogd.model.pointer import Decision, decided_by
from oplogd.model.transaction import Isolation
from oplogd.store.pointers import OpenPointer
from oplogd.store.topics import TopicEntry, TopicLog
from oplogd.store.transactions import RecordLimits
from tests.contract.store.model_readers import Pair, read_entries
from tests.contract.store.pointer_reference import PointerReference
from tests.contract.store.reader_machine import AGENTS, ALL_POINTERS, NUMBERS, POINTERS
from tests.contract.store.transaction_machine import TTLS, TransactionMachine
from tests.contract.store.transaction_reference import Errors, Item, Line
from tests.kits.store.messages import entries_of, message

VOID, PUBLISH, ABORTED = EntryKind.VOID, EntryKind.PUBLISH, Decision.ABORTED
UNCOMMITTED = Isolation.READ_UNCOMMITTED

LIMITS = RecordLimits(records=5)
TIMEOUT_MS = 900_000
TIMEOUTS = some.sampled_from([1000, 900_000, 900_000])
COUNTS = some.integers(1, 3)
TIMES = some.integers(1, 2)
DECISIONS = some.sampled_from([Decision.COMMITTED, Decision.COMMITTED, Decision.ABORTED])
# The last entries of the topic, None: all of the pointer.
KEYS = some.none() | some.sets(some.integers(1, 6), max_size=4)

KINDS = some.sampled_from(
    ["publish", "store", "publish stored", "roll back", Decision.COMMITTED, Decision.ABORTED]
)
# Which message was stored first, and whether one was stored before a rollback, shows too late.
RACES = some.lists(KINDS, min_size=2, max_size=3).filter(
    lambda kinds: kinds.count("store") + kinds.count("roll back") < 2 or "store" not in kinds
)


class Racer(NamedTuple):
    """A call, and whether its answer agrees with the reference, in which it then has its effect."""

    call: Awaitable[object]
    agrees: Callable[[object], bool]


class PointerMachine(TransactionMachine):
    def __init__(self) -> None:
        super().__init__()
        self.held = PointerReference(lambda: self.reference.now, LIMITS.records)

    def any_pair(self, choice: int) -> Pair:
        """Return a topic: seldom one that is deleted."""
        pairs = self.pairs if choice == 3 else self.existing or self.pairs
        return pairs[-1 - choice % min(2, len(pairs))]

    def lines(self, count: int, ttl: int | None) -> list[Line]:
        return [Line(self.payload(), ttl) for _ in range(count)]

    @rule(choice=NUMBERS, pointer=POINTERS, count=COUNTS, ttl=TTLS, timeout=TIMEOUTS, agent=AGENTS)
    def publish_direct(
        self, choice: int, pointer: int, count: int, ttl: int | None, timeout: int, agent: int
    ) -> None:
        pair = self.any_pair(choice)
        lines = self.lines(count, ttl)
        errors, items = self.held.publish(pair.model, pointer, lines, timeout)
        sent = [message(each.payload, each.ttl) for each in lines]
        pointers = self.store(agent).pointers
        marks = self.call(pointers.publish(pair.topic.log, pointer, sent, timeout), errors)
        assert _placed(items, marks or [])

    @rule(choice=NUMBERS, pointer=POINTERS, count=COUNTS, ttl=TTLS, timeout=TIMEOUTS, agent=AGENTS)
    def keep_aside(
        self, choice: int, pointer: int, count: int, ttl: int | None, timeout: int, agent: int
    ) -> None:
        pair = self.any_pair(choice)
        lines = self.lines(count, ttl)
        errors = self.held.store(pair.model, pointer, lines, timeout)
        sent = [message(each.payload, each.ttl) for each in lines]
        pointers = self.store(agent).pointers
        self.call(pointers.store(pair.topic.log, pointer, sent, timeout, LIMITS), errors)

    @rule(
        choice=NUMBERS,
        pointer=POINTERS,
        counts=some.lists(COUNTS, max_size=2),
        ttl=TTLS,
        timeout=TIMEOUTS,
        times=TIMES,
        agent=AGENTS,
    )
    def publish_stored(
        self,
        choice: int,
        pointer: int,
        counts: list[int],
        ttl: int | None,
        timeout: int,
        times: int,
        agent: int,
    ) -> None:
        """Publish what was stored, after some more, perhaps twice."""
        for count in counts:
            self.keep_aside(choice, pointer, count, ttl, timeout, 1 - agent)
        pair = self.any_pair(choice)
        for _ in range(times):
            errors, item = self.held.publish_stored(pair.model, pointer, timeout)
            pointers = self.store(agent).pointers
            mark = self.call(pointers.publish_stored(pair.topic.log, pointer, timeout), errors)
            assert bool(errors) or _placed_if_any(item, mark)

    @rule(
        choice=NUMBERS,
        given=some.none() | POINTERS,
        keys=KEYS,
        times=TIMES,
        agent=AGENTS,
    )
    def roll_back(
        self, choice: int, given: int | None, keys: set[int] | None, times: int, agent: int
    ) -> None:
        """Roll back some of the last entries, those of other pointers and messages included.

        ``given``: None is the pointer of the last entry that has one.
        """
        pair = self.any_pair(choice)
        with_pointer = [each.pointer for each in pair.model.items if each.pointer is not None]
        pointer = (with_pointer or [0])[-1] if given is None else given
        last = pair.model.items[-6:]
        stamps = (
            None
            if keys is None
            else [each.stamp for each in last if len(last) - last.index(each) in keys]
        )
        log = self.store(1 - agent).topics.log(pair.topic)
        entries = self.run(_publish_entries(log, pointer)) if pair.model.exists else []
        voided: list[Item] = []
        for _ in range(times):
            living = [
                each
                for each in pair.model.items
                if not pair.model.is_gone(each, self.reference.now)
            ]
            errors, items = self.held.rollback(pair.model, pointer, stamps)
            voided += items
            pointers = self.store(agent).pointers
            mark = self.call(pointers.rollback(pair.topic.log, pointer, stamps), errors)
            if not items or errors:
                assert mark is None
            elif set(items) & set(living):
                assert mark is not None
        for entry in entries:
            if stamp(entry.ms, entry.sequence) in [each.stamp for each in voided]:
                assert self.run(log.expand(entry, 0, 1)) == []

    @rule(
        pointer=POINTERS,
        choices=some.sets(NUMBERS, min_size=1, max_size=2),
        decision=DECISIONS,
        times=TIMES,
        agent=AGENTS,
    )
    def decide(
        self, pointer: int, choices: set[int], decision: Decision, times: int, agent: int
    ) -> None:
        pairs = list(dict.fromkeys(self.any_pair(each) for each in choices))
        logs = [each.topic.log for each in pairs]
        answers = []
        for _ in range(times):
            errors = self.held.decide([each.model for each in pairs], pointer, decision)
            pointers = self.store(agent).pointers
            answers.append(self.call(pointers.decide(logs, pointer, decision), errors))
        assert answers[0] == answers[-1]
        assert answers[0] is None or answers[0].keys() == {*logs}

    @precondition(lambda self: self.existing)
    @rule(choice=NUMBERS, pointer=POINTERS, kinds=RACES)
    def race(self, choice: int, pointer: int, kinds: list[str]) -> None:
        """Make calls at the same time. Their effect must be that of one after the other."""
        pair = self.existing[choice % len(self.existing)]
        racers = [self._racer(kind, pair, pointer, k % 2) for k, kind in enumerate(kinds)]
        answers = self.run(_together([each.call for each in racers]))
        finished = list(zip(racers, answers, strict=True))
        seen, decision = self.run(self._outcome(pair, pointer))
        before = pair.model.history()
        for order in itertools.permutations(finished):
            pair.model.restore(before)
            if (
                all(racer.agrees(answer) for racer, answer in order)
                and pair.model.seen(UNCOMMITTED, self.reference.now).payloads == seen
                and pair.model.decisions.get(pointer) == decision
            ):
                return
        raise AssertionError(f"no order of {kinds} leads to {answers}, {seen}, {decision}")

    async def _outcome(self, pair: Pair, pointer: int) -> tuple[list[str], Decision | None]:
        log = self.store(0).topics.log(pair.topic)
        found, _ = await read_entries(log, UNCOMMITTED)
        return [each.payload for each in found], (await log.decisions([pointer])).get(pointer)

    def _racer(self, kind: str, pair: Pair, pointer: int, agent: int) -> "Racer":
        model, log, pointers = pair.model, pair.topic.log, self.store(agent).pointers
        lines = self.lines(1, None)
        sent = [message(each.payload) for each in lines]

        def publishes(answer: object) -> bool:
            errors, items = self.held.publish(model, pointer, lines, TIMEOUT_MS)
            return _fits(errors, answer) and (bool(errors) or _placed(items, answer))

        def stores(answer: object) -> bool:
            return _fits(self.held.store(model, pointer, lines, TIMEOUT_MS), answer)

        def publishes_stored(answer: object) -> bool:
            errors, item = self.held.publish_stored(model, pointer, TIMEOUT_MS)
            return _fits(errors, answer) and (bool(errors) or _placed_if_any(item, answer))

        def rolls_back(answer: object) -> bool:
            errors, items = self.held.rollback(model, pointer, None)
            return _fits(errors, answer) and (bool(errors or items) or answer is None)

        match kind:
            case "publish":
                return Racer(pointers.publish(log, pointer, sent, TIMEOUT_MS), publishes)
            case "store":
                return Racer(pointers.store(log, pointer, sent, TIMEOUT_MS, LIMITS), stores)
            case "publish stored":
                return Racer(pointers.publish_stored(log, pointer, TIMEOUT_MS), publishes_stored)
            case "roll back":
                return Racer(pointers.rollback(log, pointer, None), rolls_back)
        decision = Decision(kind)
        return Racer(
            pointers.decide([log], pointer, decision),
            lambda answer: _fits(self.held.decide([model], pointer, decision), answer),
        )

    @rule(agent=AGENTS)
    def keep_pointers(self, agent: int) -> None:
        overdue = [
            (pair.model, pointer)
            for pair in self.existing
            for pointer in self.held.overdue(pair.model)
        ]
        count = self.run(self.store(agent).pointers.keep())
        # Another agent may be the one that keeps.
        assert count in (0, len(overdue))
        for model, pointer in overdue if count else ():
            self.held.end(model, pointer, Decision.TIMED_OUT)

    async def after_sweep(self) -> None:
        """Take over what the sweep has removed: entries of aborted pointers, old decisions."""
        for pair in self.existing:
            log = self.store(0).topics.log(pair.topic)
            known = await log.decisions([*ALL_POINTERS])
            for pointer in pair.model.decisions.keys() - known.keys():
                self.held.forget(pair.model, pointer)
            entries = await entries_of(log)
            left = {stamp(each.ms, each.sequence) for each in entries if each.event != VOID}
            for item in pair.model.items:
                decision = pair.model.decisions.get(item.pointer or 0)
                if item.pointer is not None and decision == ABORTED and item.stamp not in left:
                    item.voided = True

    @invariant()
    def pointers_are_open_or_decided(self) -> None:
        self.run(self._compare_pointers())

    async def _compare_pointers(self) -> None:
        for agent in self.agents:
            for pair in self.existing:
                model, topic = pair.model, pair.topic
                log = agent.store.topics.log(topic)
                assert await log.decisions([*ALL_POINTERS]) == model.decisions
                _assert_ended(await entries_of(log))
                selected = await agent.store.pointers.select(topic.log, 100)
                assert selected == sorted(selected, key=lambda each: each.begun_ms)
                known = [(each, model.pointers[each]) for each in self.held.open(model)]
                expected = [
                    OpenPointer(each, state.begun, state.expires, state.has_entries)
                    for each, state in known
                ]
                assert sorted(selected) == sorted(expected)


async def _together(calls: Sequence[Awaitable[object]]) -> Sequence[object]:
    return await asyncio.gather(*calls, return_exceptions=True)


async def _publish_entries(log: TopicLog, pointer: int) -> list[TopicEntry]:
    entries = await entries_of(log)
    return [each for each in entries if each.event == PUBLISH and each.pointer == pointer]


def _assert_ended(entries: Sequence[TopicEntry]) -> None:
    """Assert that each pointer is decided once, and has no entry after that."""
    ended = set()
    for entry in entries:
        assert entry.pointer not in ended
        if end := decided_by(entry.event, entry.data):
            assert end[0] not in ended
            ended.add(end[0])


def _fits(errors: Errors, answer: object) -> bool:
    return isinstance(answer, tuple(errors)) if errors else not isinstance(answer, Exception)


def _placed_if_any(item: Item | None, mark: object) -> bool:
    if item is None or mark is None:
        return item is None and mark is None
    return _placed([item], [mark])


def _placed(items: Sequence[Item], marks: object) -> bool:
    """Note the stamps of entries. Return whether entries that were noted before have the same."""
    assert isinstance(marks, Iterable)
    for item, mark in zip(items, marks, strict=True):
        found = stamp(mark.ms, mark.sequence)
        item.stamp = item.stamp or found
        if item.stamp != found:
            return False
    return True
