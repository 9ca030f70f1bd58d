"""Commands about the daily digest: a person asks for it or ends it, and the scheduler sends it when something waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quotebot import effects
from quotebot.domain.access import Refusal, admit
from quotebot.domain.language import _
from quotebot.domain.schedule.schedules import next_morning
from quotebot.execution import membership
from quotebot.execution.run import Run, outcome_of
from quotebot.handlers.decision import Decision
from quotebot.store import approvals, homes
from quotebot.views import digest_card
from quotebot.views.work_queue import Reader, load_home

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.records import Outcome
    from quotebot.commands.payloads import SendDigest, SetDigest
    from quotebot.domain.rules import Rules
    from quotebot.views.work_queue import Home

LATE_MS: Final = effects.REMINDER_MS  # a digest later than this is not sent


@dataclass(frozen=True, slots=True)
class Morning:
    """A person's digest. `due` is true if this command is the one that is due; `next_at` is the next one's time (Unix ms)."""

    due: bool
    waits: bool
    next_at: int


def set_digest(run: Run, payload: SetDigest, loaded: None) -> Decision:
    """Turn a person's digest on or off."""
    del loaded
    asked = run.asked
    text = digest_card.turned(wanted=payload.wanted)
    drawn = [effects.home(user, asked.team_id) for user in approvals.homes_to_redraw(run.tx, asked.team_id, [asked.actor])]
    replies = () if payload.at_home else (effects.reply(f"digest:{asked.actor}", asked.actor, None, text, asked.received_at),)
    return Decision("applied", {"code": "digest", "text": text}, None, (*replies, *drawn))


def save_digest(run: Run, payload: SetDigest, loaded: None, decision: Decision) -> Outcome:
    """Store whether the person wants the digest."""
    del loaded
    team_id, user = run.asked.team_id, run.asked.actor
    due_at = _next(run, team_id, user, run.now) if payload.wanted else None
    homes.want_digest(run.tx, team_id, user, due_at)
    return run.kept(decision)


def load_morning(run: Run, payload: SendDigest) -> Morning:
    """Load whether the digest is due, and whether anything waits for its person."""
    team_id, user = run.operation.team_id, payload.user
    due = homes.digest_due(run.tx, team_id, user) == payload.due_at
    waits = due and digest_home(run.tx, team_id, user, run.rules, run.now) is not None
    return Morning(due, waits, _next(run, team_id, user, max(run.now, payload.due_at)))


def send_digest(run: Run, payload: SendDigest, morning: Morning) -> Decision:
    """Enqueue the digest, unless nothing waits, or it is too late for it."""
    late = run.asked.received_at - payload.due_at > LATE_MS
    if run.asked.actor_type != "system" or not morning.due or not morning.waits or late:
        code = "not_due" if not morning.due else "too_late" if late else "nothing_waits"
        return Decision("refused", {"code": code, "text": _(digest_card.NOT_SENT)})
    sent = effects.digest(payload.user, run.operation.team_id, payload.due_at, payload.due_at + LATE_MS)
    return Decision("applied", {"code": "digest_sent", "text": _(digest_card.SENT)}, None, (sent,))


def save_morning(run: Run, payload: SendDigest, morning: Morning, decision: Decision) -> Outcome:
    """Store when the next digest is due."""
    if morning.due:
        homes.want_digest(run.tx, run.operation.team_id, payload.user, morning.next_at)
    return replace(outcome_of(decision), retain_until=run.now + run.rules.keep_refused_ms)


def digest_home(tx: Tx, team_id: str, user: str, rules: Rules, now: int) -> Home | None:
    """Return the work queue for a person's digest; None if nothing waits for them, or if they are not admitted any more."""
    found = membership.known_person(tx, team_id, user)
    admitted = admit(user, team_id, "member" if found is None else found.kind, rules.guest_reps)
    if isinstance(admitted, Refusal):
        return None
    name, zone = ("", "") if found is None else (found.name, found.zone)
    reader = Reader(admitted, name, zone or rules.time_zone)
    home = load_home(tx, reader, rules, now, homes.HomeChoice())
    return home if digest_card.waits(home) else None


def _next(run: Run, team_id: str, user: str, after: int) -> int:
    found = membership.known_person(run.tx, team_id, user)
    zone = "" if found is None else found.zone
    return next_morning(after, zone or run.rules.time_zone, run.rules.timing.calendar)
