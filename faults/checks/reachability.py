"""The interesting states: a run of the suites proves nothing about a state that it never reached.

Each state is one query on a ledger (plain SQL), on the records of the external services, or on what the clients saw. A suite calls
`reached` after each of its runs and keeps the union; at the end every state must be in it. All are reachable by existing commands:
`python -m faults.suites.reaching` goes to each of them. (A product without a price is not one of these states: a typed command is
priced before it is recorded, by the same catalogue, so no command can be refused for a missing price while commands are only
typed.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from faults.checks.evidence import NOBODY, ClientRecord, Outside

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

DOUBT: Final[Mapping[str, str]] = {
    "an append was in doubt and found": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE a.kind = 'reconcile' AND a.outcome = 'delivered' AND e.semantics = 'append'""",
    "an append was in doubt, absent, and sent again": """
        SELECT 1 FROM attempts AS looked JOIN attempts AS sent ON sent.effect_id = looked.effect_id AND sent.fence > looked.fence
        JOIN effects AS e ON e.id = looked.effect_id
        WHERE looked.kind = 'reconcile' AND looked.outcome = 'retry' AND sent.kind = 'send' AND e.semantics = 'append'""",
    "an absence did not count before the settle delay": """
        SELECT 1 FROM attempts WHERE kind = 'reconcile' AND outcome = 'doubt' AND category = 'uncertain'""",
    "a look-up itself failed": """
        SELECT 1 FROM attempts
        WHERE kind = 'reconcile' AND outcome = 'doubt' AND category IN ('transient', 'timeout', 'throttled')""",
    "a doubt outlived its process": """
        SELECT 1 FROM attempts AS a JOIN attempts AS b ON b.effect_id = a.effect_id AND b.fence = a.fence + 1
        WHERE a.outcome = 'doubt' AND b.kind = 'reconcile' AND b.epoch > a.epoch""",
    "an append was killed in flight": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE a.outcome = 'died' AND a.kind = 'send' AND e.semantics = 'append'""",
    "a look-up was killed": "SELECT 1 FROM attempts WHERE outcome = 'died' AND kind = 'reconcile'",
    "a person said that it had arrived": """
        SELECT 1 FROM audit_events WHERE event_type = 'effect.resolved' AND json_extract(after, '$.state') = 'delivered'""",
    "a person said that it had not arrived": """
        SELECT 1 FROM audit_events WHERE event_type = 'effect.resolved' AND json_extract(after, '$.state') = 'pending'""",
    "an upload that nobody could have seen was repeated at once": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE e.class = 'slack.file' AND a.kind = 'reconcile' AND a.outcome = 'retry' AND a.delay_ms = 0""",
    "an upload turned out to be shared already": """
        SELECT 1 FROM effects WHERE class = 'slack.file' AND state = 'delivered' AND json_extract(result, '$.already_there') = 1""",
}

REPETITION: Final[Mapping[str, str]] = {
    "a lost update of a card was drawn once more": "SELECT 1 FROM effects WHERE class = 'slack.card' AND not_before IS NOT NULL",
    "a card was killed in flight and drawn again": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE a.outcome = 'died' AND e.class = 'slack.card' AND e.state = 'delivered'""",
    "a record was killed in flight and written once": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE a.outcome = 'died' AND e.class = 'crm.create' AND e.state = 'delivered'""",
    "a record was there already under its key": """
        SELECT 1 FROM effects WHERE class = 'crm.create' AND state = 'delivered' AND json_extract(result, '$.already_there') = 1""",
    "a PDF was killed while it was drawn and drawn again": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id
        WHERE a.outcome = 'died' AND e.class = 'pdf.render' AND e.state = 'delivered'""",
    "a card was needless before its first try": """
        SELECT 1 FROM effects WHERE class = 'slack.card' AND state = 'superseded' AND fence = 0""",
    "a card that failed gave way to a newer one": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id WHERE a.outcome = 'drop' AND e.class = 'slack.card'""",
    "a card gave way to a newer one between two tries": """
        SELECT 1 FROM effects AS e WHERE e.class = 'slack.card' AND e.state = 'superseded' AND e.fence > 0
          AND NOT EXISTS (SELECT 1 FROM attempts WHERE effect_id = e.id AND outcome = 'drop')""",
    "an answer to one person was cut off and repeated": """
        SELECT 1 FROM effects AS e WHERE e.class = 'slack.reply' AND e.state = 'delivered' AND e.maybe_sent = 1 AND e.fence > 1""",
    "an answer to one person was let go after two cuts": """
        SELECT 1 FROM effects AS e WHERE e.class = 'slack.reply' AND e.state = 'superseded' AND e.maybe_sent = 1
          AND (SELECT count(*) FROM attempts WHERE effect_id = e.id AND kind = 'send') > 1""",
    "an answer to one person came too late for its address and was said directly": """
        SELECT 1 FROM effects WHERE class = 'slack.reply' AND state = 'delivered' AND external_ref IS NOT NULL""",
    "a thread waited until its card was posted at the second try": """
        SELECT 1 FROM effects AS child JOIN effects AS root ON root.id = child.after_id
        WHERE root.state = 'delivered' AND root.fence > 1 AND child.state = 'delivered'""",
}

DELIVERIES: Final[Mapping[str, str]] = {
    "a duplicate arrived before its command was begun": """
        SELECT 1 FROM audit_events AS d JOIN audit_events AS c ON c.operation_key = d.operation_key
        WHERE d.event_type = 'delivery.duplicate' AND c.event_type = 'operation.claimed' AND d.id < c.id""",
    "a duplicate arrived while its command was carried out": """
        SELECT 1 FROM audit_events AS d JOIN audit_events AS c ON c.operation_key = d.operation_key
        JOIN audit_events AS e ON e.operation_key = d.operation_key
        WHERE d.event_type = 'delivery.duplicate' AND c.event_type = 'operation.claimed' AND c.id < d.id AND d.id < e.id
          AND e.event_type IN ('operation.applied', 'operation.refused', 'operation.released')""",
    "a duplicate arrived after its command was done": """
        SELECT 1 FROM audit_events AS d JOIN audit_events AS e ON e.operation_key = d.operation_key
        WHERE d.event_type = 'delivery.duplicate' AND e.event_type = 'operation.applied' AND e.id < d.id""",
    "a duplicate of a refused command was answered": """
        SELECT 1 FROM audit_events AS d JOIN audit_events AS e ON e.operation_key = d.operation_key
        WHERE d.event_type = 'delivery.duplicate' AND e.event_type = 'operation.refused' AND e.id < d.id""",
    "a duplicate of a dead or closed command was answered": """
        SELECT 1 FROM audit_events AS d JOIN audit_events AS e ON e.operation_key = d.operation_key
        WHERE d.event_type = 'delivery.duplicate' AND e.id < d.id
          AND e.event_type IN ('system.error', 'operation.cancelled', 'operation.discarded')""",
    "a duplicate arrived in another life than the first": """
        SELECT 1 FROM deliveries AS d JOIN epochs AS p ON p.started_at > d.received_at AND p.started_at <= d.last_seen_at
        WHERE d.seen > 1""",
    "a duplicate was answered from a tombstone": """
        SELECT 1 FROM audit_events WHERE event_type = 'delivery.duplicate' AND json_extract(after, '$.tombstone') = 1""",
    "the same request came five times": "SELECT 1 FROM deliveries WHERE seen >= 5",
    "a request came again with another content": "SELECT 1 FROM audit_events WHERE event_type = 'delivery.conflict'",
    "a command was carried out by a later life than recorded it": """
        SELECT 1 FROM operations AS o JOIN epochs AS p ON p.started_at > o.created_at AND p.started_at <= o.claimed_at
        WHERE o.state = 'completed'""",
    "a command was killed while it was carried out": """
        SELECT 1 FROM attempts WHERE operation_id IS NOT NULL AND outcome = 'died'""",
    "two commands about one quote stood in line": """
        SELECT 1 FROM audit_events AS r JOIN operations AS later ON later.operation_key = r.operation_key
        JOIN operations AS o ON o.lane = later.lane AND o.id < later.id
        JOIN audit_events AS e ON e.operation_key = o.operation_key
        WHERE r.event_type = 'operation.reserved' AND e.event_type IN ('operation.applied', 'operation.refused') AND r.id < e.id""",
    "several commands were taken in one round": """
        SELECT 1 FROM audit_events AS a JOIN audit_events AS b ON b.id = a.id + 1
        WHERE a.event_type = 'operation.claimed' AND b.event_type = 'operation.claimed'""",
}

PEOPLE: Final[Mapping[str, str]] = {
    "a person typed it again and was asked back": """
        SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'resubmission'""",
    "a person wanted another one after all": "SELECT 1 FROM one_time_tokens",
    "the same offer was used twice": "SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'already_created'",
    "a second decision was told who had decided": """
        SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'already_decided'""",
    "two approvers raced": """
        SELECT 1 FROM operations AS a JOIN operations AS b ON b.lane = a.lane AND b.id > a.id AND b.actor <> a.actor
        WHERE a.action_kind = 'approval.decide' AND b.action_kind = 'approval.decide' AND a.outcome = 'applied'
          AND b.outcome = 'refused' AND b.created_at <= a.finished_at""",
    "approve and reject met": """
        SELECT 1 FROM operations AS a JOIN operations AS b ON b.lane = a.lane AND b.id <> a.id
        WHERE a.action_kind = 'approval.decide' AND a.outcome = 'applied' AND b.action_kind = 'approval.decide'
          AND json_extract(a.payload, '$.decision') <> json_extract(b.payload, '$.decision')""",
    "the requester wanted to decide": "SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'own_request'",
    "somebody without the role wanted to decide": """
        SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'missing_role'""",
    "a decision came after the quote had expired": "SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'expired'",
    "a quote was rejected": "SELECT 1 FROM approvals WHERE state = 'rejected'",
    "a quote was approved by a person": "SELECT 1 FROM approvals WHERE state = 'approved' AND decided_by IS NOT NULL",
    "a quote was approved automatically": "SELECT 1 FROM approvals WHERE state = 'approved' AND decided_by IS NULL",
    "the policy blocked a quote": "SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'blocked'",
    "a quote was submitted twice": "SELECT 1 FROM operations WHERE json_extract(response, '$.code') = 'wrong_state'",
    "a whole deal was done": """
        SELECT 1 FROM quotes AS q JOIN effects AS crm ON crm.aggregate_id = q.quote_id AND crm.class = 'crm.create'
        JOIN effects AS file ON file.aggregate_id = q.quote_id AND file.class = 'slack.file'
        WHERE q.state = 'approved' AND crm.state = 'delivered' AND file.state = 'delivered'""",
}

GATES: Final[Mapping[str, str]] = {
    "a Retry-After held a class": "SELECT 1 FROM holds WHERE cause = 'throttled'",
    "a Retry-After held a class over a restart": """
        SELECT 1 FROM holds AS h JOIN epochs AS p ON p.started_at > h.held_at
          AND p.started_at < coalesce(h.ended_at, p.started_at + 1)
        WHERE h.cause = 'throttled'""",
    "the same effect was told to wait three times": """
        SELECT 1 FROM attempts WHERE retry_after_ms IS NOT NULL GROUP BY effect_id HAVING count(*) >= 3""",
    "a breaker opened": "SELECT 1 FROM holds WHERE cause = 'breaker'",
    "a breaker closed again": """
        SELECT 1 FROM holds AS h JOIN audit_events AS a ON json_extract(a.after, '$.class') = h.name
        WHERE a.event_type = 'class.resumed' AND json_extract(a.after, '$.cause') = 'breaker' AND h.cause = 'breaker'
          AND h.ended_at <= a.at""",
    "a breaker's trial failed": "SELECT 1 FROM holds WHERE cause = 'breaker' GROUP BY name HAVING count(*) > 1",
    "a breaker let one effect try": "SELECT 1 FROM holds WHERE cause = 'breaker' AND ended_at IS NOT NULL",
    "a refused login held a family": "SELECT 1 FROM holds WHERE cause = 'auth'",
    "what a refused login kept waiting was delivered later": """
        SELECT 1 FROM attempts AS a JOIN effects AS e ON e.id = a.effect_id WHERE a.outcome = 'hold' AND e.state = 'delivered'""",
    "a restart tried a refused login again": """
        SELECT 1 FROM audit_events
        WHERE event_type = 'class.half_open' AND json_extract(after, '$.why') = 'restart'""",
    "an operator paused a class": "SELECT 1 FROM holds WHERE cause = 'operator'",
    "an operator let a class go on": "SELECT 1 FROM audit_events WHERE event_type = 'class.half_open' AND actor <> 'quotebot'",
    "a class was held when something of it was owed": """
        SELECT 1 FROM holds AS h JOIN effects AS e ON e.created_at >= h.held_at
          AND e.created_at < coalesce(h.ended_at, e.created_at + 1)
        WHERE e.class = h.name OR e.class LIKE h.name || '.%'""",
}

DEAD: Final[Mapping[str, str]] = {
    "a poisonous command was buried": """
        SELECT 1 FROM audit_events
        WHERE event_type = 'system.error' AND failure_category = 'poison' AND effect_id IS NULL""",
    "a poisonous effect was buried": """
        SELECT 1 FROM audit_events WHERE event_type = 'system.error' AND failure_category = 'poison' AND effect_id IS NOT NULL""",
    "a suspect was tried again after two deaths": """
        SELECT 1 FROM attempts AS a WHERE a.effect_id IS NOT NULL AND (
          SELECT count(*) FROM attempts AS b
          WHERE b.effect_id = a.effect_id AND b.cycle = a.cycle AND b.fence < a.fence AND b.outcome = 'died') >= 2""",
    "an effect grew too old": "SELECT 1 FROM audit_events WHERE event_type = 'system.error' AND failure_category = 'expired'",
    "a budget was spent": """
        SELECT 1 FROM attempts
        WHERE effect_id IS NOT NULL AND outcome = 'bury' AND category IN ('transient', 'timeout', 'internal', 'render')""",
    "a refusal for good was seen at first sight": """
        SELECT 1 FROM attempts
        WHERE outcome = 'bury' AND fence = 1 AND category IN ('mapping', 'validation', 'not_found', 'conflict')""",
    "a card could not be posted and its requester was told": """
        SELECT 1 FROM effects AS e JOIN effects AS told ON told.parent_id = e.id AND told.class = 'slack.reply'
        WHERE e.class = 'slack.post' AND e.ever_failed = 1""",
    "a dead letter was replayed and delivered": """
        SELECT 1 FROM effects WHERE cycle > 1 AND state = 'delivered' AND json_extract(result, '$.already_there') = 0""",
    "a dead letter was replayed and was there already": """
        SELECT 1 FROM effects WHERE cycle > 1 AND state = 'delivered' AND json_extract(result, '$.already_there') = 1""",
    "a dead letter failed again": """
        SELECT 1 FROM effects WHERE cycle > 1 AND (state = 'failed' OR json_array_length(failure_history) > 1)""",
    "a dead letter was looked for before it was sent again": """
        SELECT 1 FROM audit_events WHERE event_type = 'effect.replayed' AND recovery_action = 'reconcile'""",
    "a dead letter gave way to a newer one": "SELECT 1 FROM effects WHERE ever_failed = 1 AND state = 'superseded'",
    "a dead command was replayed and carried out": "SELECT 1 FROM operations WHERE cycle > 1 AND state = 'completed'",
    "a dead effect was discarded": "SELECT 1 FROM audit_events WHERE event_type = 'effect.discarded'",
    "a dead command was discarded": "SELECT 1 FROM audit_events WHERE event_type = 'operation.discarded'",
    "what waited for a discarded effect was dropped": """
        SELECT 1 FROM effects AS child JOIN effects AS parent ON parent.id = child.after_id
        WHERE child.state = 'superseded' AND parent.state = 'discarded'""",
    "a waiting effect was cancelled": "SELECT 1 FROM audit_events WHERE event_type = 'effect.cancelled'",
    "a waiting command was cancelled": "SELECT 1 FROM audit_events WHERE event_type = 'operation.cancelled'",
    "a server's failure was answered by a retry": """
        SELECT 1 FROM attempts WHERE http_status >= 500 AND outcome IN ('retry', 'doubt')""",
}

LIVES: Final[Mapping[str, str]] = {
    "a process died": "SELECT 1 FROM epochs WHERE end_reason = 'died'",
    "three processes died": "SELECT 1 FROM epochs WHERE end_reason = 'died' GROUP BY end_reason HAVING count(*) >= 3",
    "a process died in its recovery": """
        SELECT 1 FROM attempts AS a JOIN epochs AS lost ON lost.epoch > a.epoch AND lost.started_at <= a.ended_at
        JOIN epochs AS next ON next.epoch > lost.epoch AND next.started_at <= a.ended_at
        WHERE a.outcome = 'died'""",
    "a process stopped as asked": "SELECT 1 FROM epochs WHERE end_reason = 'stopped'",
    "a stopping process gave its work back": "SELECT 1 FROM attempts WHERE outcome = 'released'",
    "the clock was put back": """
        SELECT 1 FROM audit_events AS a JOIN audit_events AS b ON b.id = a.id + 1 WHERE b.at < a.at - 1000""",
    "a day went by": "SELECT 1 FROM (SELECT max(at) - min(at) AS spent FROM audit_events) WHERE spent >= 86400000",
    "retention buried a command": "SELECT 1 FROM tombstones",
    "the audit was anchored": "SELECT 1 FROM audit_anchors",
    "a late result of an effect was refused": "SELECT 1 FROM audit_events WHERE event_type = 'effect.late_result'",
    "a late result of a command was refused": "SELECT 1 FROM audit_events WHERE event_type = 'operation.late_result'",
}

UNAUTHORISED: Final = 401
IN_THE_LEDGER: Final[Mapping[str, str]] = {**DOUBT, **REPETITION, **DELIVERIES, **PEOPLE, **GATES, **DEAD, **LIVES}


def _uploads_made_anew(ledger: sqlite3.Connection, outside: Outside, _history: Sequence[ClientRecord]) -> bool:
    announced = sum(seen["method"] == "files.getUploadURLExternal" and seen["applied"] for seen in outside.sightings)
    (uploads,) = ledger.execute("SELECT count(*) FROM effects WHERE class = 'slack.file'").fetchone()
    return bool(announced > uploads)


def _unacknowledged(ledger: sqlite3.Connection, _outside: Outside, history: Sequence[ClientRecord], *, recorded: bool) -> bool:
    unheard = {told.request_id for told in history if told.kind and not told.acked}
    known = {request_id for (request_id,) in ledger.execute("SELECT source_request_id FROM deliveries")}
    return bool(unheard & known if recorded else unheard - known)


def _unanswered(_ledger: sqlite3.Connection, outside: Outside, _history: Sequence[ClientRecord], *, applied: bool) -> bool:
    return any(seen["applied"] == applied and seen["status"] is None and seen["system"] != "socket" for seen in outside.sightings)


def _asked_twice(_ledger: sqlite3.Connection, outside: Outside, _history: Sequence[ClientRecord]) -> bool:
    keys = [seen["key"] for seen in outside.sightings if seen["method"] == "composite/graph"]
    return len(set(keys)) < len(keys)


def _session_renewed(_ledger: sqlite3.Connection, outside: Outside, _history: Sequence[ClientRecord]) -> bool:
    refused = [seen["seq"] for seen in outside.sightings if seen["method"] == "composite/graph" and seen["status"] == UNAUTHORISED]
    written = [seen["seq"] for seen in outside.sightings if seen["method"] == "composite/graph" and seen["applied"]]
    return bool(refused) and bool(written) and min(refused) < max(written)


OUTSIDE: Final[Mapping[str, Callable[[sqlite3.Connection, Outside, Sequence[ClientRecord]], bool]]] = {
    "an upload was started over": _uploads_made_anew,
    "a command was recorded whose acknowledgement was lost": partial(_unacknowledged, recorded=True),
    "a delivery died with its process before it was recorded": partial(_unacknowledged, recorded=False),
    "a deed was done and its answer lost": partial(_unanswered, applied=True),
    "a request was cut off before it arrived": partial(_unanswered, applied=False),
    "Salesforce was asked twice under one key": _asked_twice,
    "an expired session was renewed": _session_renewed,
}

STATES: Final[frozenset[str]] = frozenset(IN_THE_LEDGER) | frozenset(OUTSIDE)


def reached(ledger: sqlite3.Connection, outside: Outside = NOBODY, history: Sequence[ClientRecord] = ()) -> set[str]:
    """Return the names of the states that this ledger, with the records of the external services, has been in. Only reads."""
    found = {name for name, sql in IN_THE_LEDGER.items() if ledger.execute(f"SELECT EXISTS ({sql})").fetchone()[0]}
    return found | {name for name, seen in OUTSIDE.items() if seen(ledger, outside, history)}
