"""The ages of entries and transactions beside steps of the clock. No I/O.

After a step ahead by a day, an older entry is not a day older. So each step ends an **era**: a span
of the guarded time, and the sum of the steps since then. An age is counted from the stamp plus this
sum. All times are ms since 1970.
"""

import json
from dataclasses import dataclass, field
from typing import NamedTuple, Self

# More eras are united: then ages are too small, never too large.
MOST_ERAS = 16

_FAR = (1 << 63) - 1

# A stamp leads the guarded time by no more than this, except behind a head that is ahead already.
MAX_LEAD_MS = 60_000


class Era(NamedTuple):
    """Times from ``first`` to ``last``, and the sum of the steps since then.

    ``lag``: for ages of entries. ``shift``: for time-outs. A stop of all agents is real time, so
    ``lag`` does not grow past ``most``, its value at the last stop, until the clock is believed.
    """

    first: int
    last: int
    lag: int
    shift: int
    most: int

    def stepped(self, by: int) -> "Era":
        return self._replace(lag=min(self.lag + by, self.most), shift=self.shift + by)


@dataclass(frozen=True, slots=True)
class Ages:
    """``since``: begin of the present era.

    ``lags``: ``[first, last, lag]`` of the eras with a lag. ``text``: the same as JSON.
    """

    eras: tuple[Era, ...] = ()
    since: int = 0
    lags: tuple[tuple[int, int, int], ...] = field(init=False, compare=False)
    text: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lags = tuple((each.first, each.last, each.lag) for each in self.eras if each.lag > 0)
        object.__setattr__(self, "lags", lags)
        object.__setattr__(self, "text", json.dumps(lags))

    @classmethod
    def load(cls, text: str, since: int) -> Self:
        """Return the ages from ``dump``, or those of a store that knows of no step."""
        try:
            loaded_since, eras = json.loads(text)
            found = tuple(Era(*map(int, each)) for each in eras)
            return cls(found[-MOST_ERAS:], int(loaded_since))
        except (TypeError, ValueError):
            return cls(since=since)

    def dump(self) -> str:
        return json.dumps((self.since, self.eras))

    def stepped(self, at: int, to: int) -> "Ages":
        """Return the ages after the guarded time went from ``at`` to ``to`` at once."""
        eras = [*self.eras, Era(min(self.since, at), at, 0, 0, _FAR)]
        return _united([each.stepped(to - at) for each in eras], to)

    def restarted(self, at: int, seen: int = 0) -> "Ages":
        """Return the ages after a stop of unknown length. ``at``: the saved time.

        ``seen``: a step ahead seen before the stop: it is no part of the stop.
        """
        eras = [*self.eras, Era(min(self.since, at), at, 0, 0, _FAR)]
        return _united([each._replace(most=min(each.most, each.lag + seen)) for each in eras], at)

    def believed(self) -> "Ages":
        """Return the ages after the clock gave the length of the last stop: steps count again."""
        eras = [
            each if each.most == _FAR else each._replace(lag=max(each.lag, 0), most=_FAR)
            for each in self.eras
        ]
        return Ages(tuple(eras), self.since)

    @property
    def is_stop_open(self) -> bool:
        """Whether there was a stop of unknown length."""
        return any(each.most != _FAR for each in self.eras)

    def date(self, ms: int) -> int:
        """Return the time from which an age counts, from a time in the store."""
        lags = [lag for first, last, lag in self.lags if first <= ms <= last]
        return ms + max(lags, default=0)

    def oldest(self, ms: int) -> int:
        """Return the time before which all times in the store have a date before this."""
        inside = [max(first, ms - lag) for first, last, lag in self.lags if ms - lag <= last]
        return min([ms, *inside])


def _united(eras: list[Era], since: int) -> Ages:
    """Return the ages with as many eras as may be: the two oldest become one."""
    while len(eras) > MOST_ERAS:
        one, two = eras[:2]
        eras[:2] = [Era(min(one.first, two.first), *map(max, one[1:], two[1:]))]
    return Ages(tuple(eras), since)


class Span(NamedTuple):
    """What began from ``first`` to ``last`` goes on while its end is from ``ends`` on."""

    first: int
    last: int
    ends: int


class Present(NamedTuple):
    """The present. ``ms``: for stamps. ``ends``: for time-outs older than all eras."""

    ms: int
    ends: int
    ages: Ages = Ages()

    def date(self, stamp_ms: int, written_ms: int = 0) -> int:
        """Return the time from which the age of an entry counts.

        ``written_ms``: time of writing if it was stored, else 0. The later of both counts,
        unless it is ahead of the present.
        """
        stamped = self.ages.date(stamp_ms)
        if not written_ms:
            return stamped
        dates = sorted((stamped, self.ages.date(written_ms)))
        return dates[1] if dates[1] <= self.ms + MAX_LEAD_MS else dates[0]

    def spans(self) -> list[Span]:
        """Return what goes on, by the time at which it began. Spans may overlap."""
        ages, ms = self.ages, self.ms
        spans = [Span(ages.since, ms + MAX_LEAD_MS, ms)]
        for first, last, _, shift, _ in ages.eras:
            spans.append(Span(first, last, ms - shift))
        return spans

    @property
    def elsewhere(self) -> int:
        """Return the earliest end of what goes on, and began outside of all spans."""
        return min(self.ends, self.ms)

    def is_over(self, begun: int, expires: int) -> bool:
        """Return whether what began at a time has reached its end, set in the same era."""
        spans = [each for each in self.spans() if each.first <= begun <= each.last]
        if not spans:
            return expires < self.elsewhere
        return not any(each.ends <= expires for each in spans)

    def is_recent(self, stamp_ms: int, written_ms: int, within: int) -> bool:
        """Return whether an entry was written less than ``within`` ms ago. Steps do not count.

        A time ahead of all that is known is not recent for ever. ``written_ms``: see ``date``.
        """
        at = written_ms or stamp_ms
        if any(each.first <= at <= each.last for each in self.spans()):
            return not self.is_over(at, at + within - 1)
        return abs(self.ms - self.date(stamp_ms, written_ms)) < within

    def begun(self, ms: int) -> int:
        """Return the begin of what gets a new end now: of another era, it begins again."""
        return ms if self.ages.since <= ms <= self.ms + MAX_LEAD_MS else self.ms

    @property
    def is_plain(self) -> bool:
        """Whether all that ends before the present is over, whenever it began."""
        return not self.ages.eras and self.ends >= self.ms

    @property
    def horizon(self) -> int:
        """Return a time after all ends of what is over."""
        return max(each.ends for each in self.spans())

    @property
    def known_to(self) -> int:
        """Return the last time at which a transaction or pointer can have begun."""
        return max(each.last for each in self.spans())
