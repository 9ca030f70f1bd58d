"""Pacing of messages per channel: a burst at once, then one a second, as Slack asks of apps.

Turns rotate among the people of a channel, so that one person's burst does not delay the others.
A message that must wait goes back to the ledger until its turn, and no request is spent on it. Turns are kept in memory and are
assigned anew after a restart, perhaps earlier; so a message asks again after at most 30 s. Slack enforces its limits by method (its
tiers) with a 429, which holds the class meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from adapters.failures import Failure
from ledger.records import Retry, Trouble

if TYPE_CHECKING:
    from ledger.clock import Clock

CHANNEL_SECONDS: Final = 1.0  # average interval between two messages into one channel
AT_ONCE: Final = 15
ASK_AGAIN_SECONDS: Final = 30.0  # longest wait before a message asks again; Slack's classes have no longer retry delay of their own
EARLY_SECONDS: Final = 0.05  # a message this much before its turn counts as in time
REMEMBERED_MAX: Final = 10_000  # limit of turns and of channels; the oldest are evicted


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate of one channel: `at_once` messages without a wait, then one per `seconds`."""

    at_once: int = AT_ONCE
    seconds: float = CHANNEL_SECONDS


@dataclass(frozen=True, slots=True)
class Turn:
    """Time at which a person's message may go into a channel, in monotonic seconds."""

    channel: str
    person: str
    at: float


class Pacer:
    """Scheduler of turns per channel: in order of request for each person, and in rotation among people."""

    def __init__(self, clock: Clock, pace: Pace = Pace()) -> None:
        self._clock = clock
        self._pace = pace
        self._full_at: dict[str, float] = {}  # channel -> due time of its last message, were all evenly spaced
        self._turns: dict[int, Turn] = {}  # by effect id

    def wait_seconds(self, channel: str, effect_id: int, person: str = "") -> float:
        """Return 0 when this message may go now, or the seconds until its turn; later messages of other people may defer it."""
        now = self._clock.monotonic()
        turn = self._turns.get(effect_id)
        if turn is None:
            row = max(self._full_at.pop(channel, now), now)
            self._full_at[channel] = row + self._pace.seconds
            turn = Turn(channel, person, row - (self._pace.at_once - 1) * self._pace.seconds)
            if turn.at > now:
                turn = self._rotated(turn, now)
            self._forget()
        wait = turn.at - now
        if wait <= EARLY_SECONDS:
            self._turns.pop(effect_id, None)
            return 0.0
        self._turns[effect_id] = turn
        return wait

    def put_off(self, channel: str, effect_id: int, person: str = "") -> Retry | None:
        """Return the retry of a message that has to wait, or None when it may go now. `person` is the user it is sent for."""
        wait = self.wait_seconds(channel, effect_id, person)
        if not wait:
            return None
        why = f"This channel takes one message a second: this one waits {wait:.0f} s for its turn. Nothing was sent."
        return Retry(Trouble(Failure.THROTTLED.value, why), delay_ms=round(min(wait, ASK_AGAIN_SECONDS) * 1000), spent=False)

    def _rotated(self, last: Turn, now: float) -> Turn:
        """Return the turn of a new message that would get the `last` one.

        No other person keeps two turns more before it than its person.
        A person who has more takes later turns, in the order of their messages, down to the last.
        """
        waiting = sorted(
            ((turn.at, effect_id) for effect_id, turn in self._turns.items() if turn.channel == last.channel and turn.at > now),
        )
        count = Counter(self._turns[effect_id].person for _, effect_id in waiting)
        before = Counter[str]()
        for _, effect_id in waiting:
            person = self._turns[effect_id].person
            before[person] += 1
            if person != last.person and before[person] > count[last.person] + 1:
                break
        else:
            return last
        given = self._turns[effect_id]
        theirs = [other for at, other in waiting if at >= given.at and self._turns[other].person == given.person]
        later = [*(self._turns[other].at for other in theirs[1:]), last.at]
        for other, at in zip(theirs, later, strict=True):
            self._turns[other] = replace(given, at=at)
        return replace(last, at=given.at)

    def _forget(self) -> None:
        while len(self._turns) > REMEMBERED_MAX:
            del self._turns[next(iter(self._turns))]
        while len(self._full_at) > REMEMBERED_MAX:
            del self._full_at[next(iter(self._full_at))]
