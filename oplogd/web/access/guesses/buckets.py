"""Token buckets of guesses, for many addresses or networks. No I/O."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias


class AttemptLimit(NamedTuple):
    """``burst`` guesses at once, then one more every ``seconds``."""

    burst: int
    seconds: float


# How many guesses are left, since when, and the wrong attempts.
BucketState: TypeAlias = tuple[float, float, list[bytes]]
BucketStates: TypeAlias = dict[str, BucketState]


class Bucket:
    """A token bucket of guesses. ``wrong``: the last counted wrong attempts."""

    __slots__ = ("_at", "_left", "_limit", "_remembered", "wrong")

    def __init__(self, limit: AttemptLimit, now: float, remembered: int) -> None:
        self._limit = limit
        self._left = float(limit.burst)
        self._at = now
        self._remembered = remembered
        self.wrong: OrderedDict[bytes, None] = OrderedDict()

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until the next guess, 0 if it is possible now."""
        left = self._left_at(now)
        return 0.0 if left >= 1 else (1 - left) * self._limit.seconds

    def is_full(self, now: float) -> bool:
        return self._left_at(now) >= self._limit.burst

    def spend(self, attempt: bytes, now: float) -> None:
        self._left = self._left_at(now) - 1
        self._at = now
        self.remember(attempt)

    def remember(self, attempt: bytes) -> None:
        self.wrong[attempt] = None
        self.wrong.move_to_end(attempt)
        if len(self.wrong) > self._remembered:
            self.wrong.popitem(last=False)

    @property
    def state(self) -> BucketState:
        return self._left, self._at, list(self.wrong)

    @state.setter
    def state(self, state: BucketState) -> None:
        self._left, self._at, wrong = state
        self.wrong = OrderedDict.fromkeys(wrong)

    def _left_at(self, now: float) -> float:
        return min(float(self._limit.burst), self._left + (now - self._at) / self._limit.seconds)


class Buckets:
    """Buckets of many addresses or networks, in the order of their last guess.

    A bucket is removed only once it is full again, so removing one never gives away a guess. Few
    are not full: each of them had a guess within the time of its burst that EVERYBODY or a cell
    counted too, or belongs to a known address.
    """

    def __init__(self, limit: AttemptLimit, size: int, remembered: int) -> None:
        self._limit = limit
        self._size = size
        self._remembered = remembered
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def get(self, key: str) -> Bucket | None:
        return self._buckets.get(key)

    def wait_seconds(self, key: str, now: float) -> float:
        bucket = self._buckets.get(key)
        return bucket.wait_seconds(now) if bucket else 0.0

    def spend(self, key: str, attempt: bytes, now: float) -> None:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(self._limit, now, self._remembered)
        bucket.spend(attempt, now)
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._size and next(iter(self._buckets.values())).is_full(now):
            self._buckets.popitem(last=False)

    @property
    def states(self) -> BucketStates:
        return {key: bucket.state for key, bucket in self._buckets.items()}

    @states.setter
    def states(self, states: Mapping[str, BucketState]) -> None:
        self._buckets.clear()
        for key, state in states.items():
            bucket = self._buckets[key] = Bucket(self._limit, 0.0, self._remembered)
            bucket.state = state
