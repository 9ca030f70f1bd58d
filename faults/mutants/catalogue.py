"""Catalogue of the seeded bugs, each with the hunt that detects it, and of changes that are not bugs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.failures import Failure
from adapters.policies import RetryDecision
from faults.mutants import audit, clients, disk, dispatch, domain, equivalent, model, postgres, reservation, schedule
from faults.mutants.checks import Check
from faults.mutants.detection import Days, DiskErrors, Model, PowerCuts, Windows
from faults.mutants.patching import both

if TYPE_CHECKING:
    from collections.abc import Callable

    from faults.mutants.ground import Hunt


@dataclass(frozen=True, slots=True)
class Bug:
    """One change to production code. `sentence` describes the bug."""

    name: str
    sentence: str
    patch: Callable[[], None]
    hunt: Hunt


# First block of the hunt for bugs that are detected late. (If the ledger changes, the hunt goes through all blocks.)
FIRST_BLOCKS: Final = {
    "settle without a fence": 24,
    "step recorded without a fence": 5,
    "steps lost by a retry": 4,
    "replay in the old cycle": 5,
    "tombstone not found": 9,
    "settlement not weighed": 16,
}
# the model seldom reaches this state
BY_A_STORY: Final[dict[str, Hunt]] = {"doubt forgotten by a replay": Windows("replay of a doubt")}


BUGS: Final = (
    # reservation and acknowledgement
    Bug(
        "ack before reserve",
        "the acknowledgement leaves before anything is written down",
        reservation.ack_before_reserve,
        Windows("create, delivered once", "ack:sent", deeds=("kill",)),
    ),
    Bug(
        "ack before the commit",
        "the acknowledgement leaves while its write waits",
        reservation.ack_before_the_commit,
        Windows("create, delivered once", "commit:reserve:before", deeds=("kill",)),
    ),
    Bug(
        "request id of the envelope",
        "a request is known by the envelope, not by the trigger",
        reservation.request_id_of_the_envelope,
        Windows("create", "ack"),
    ),
    Bug(
        "request id of the moment", "a redelivery is a new request", reservation.request_id_of_the_moment, Windows("create", "ack")
    ),
    Bug(
        "payload schema in the identity",
        "after a deploy a redelivery is another command",
        reservation.known_by_its_payload,
        Windows("create, delivered again to another build", "ack"),
    ),
    Bug("duplicate executed", "each delivery has a key of its own", reservation.duplicate_executed, Windows("submit", "ack")),
    # claim, attempt and settlement of effects
    Bug(
        "effects owed in a second transaction",
        "a death in between forgets them",
        dispatch.effects_enqueued_apart,
        Windows("submit, nobody needed", "commit:owe:before"),
    ),
    Bug(
        "completion in a second transaction",
        "a death in between carries the command out twice",
        dispatch.completed_apart,
        Windows("submit", "commit:execute:before"),
    ),
    Bug(
        "follow-ups in a second transaction",
        "a death in between forgets them",
        dispatch.follow_ups_apart,
        Windows("create", "commit:follow:before"),
    ),
    Bug(
        "settled before performed",
        "a death in between answers nobody",
        dispatch.settled_before_performed,
        Windows("refused command", "out:slack:response_url:before", deeds=("kill",)),
    ),
    Bug(
        "late answers let go",
        "whoever asked while the bot was down for half an hour is never told",
        dispatch.late_answers_let_go,
        Windows("answer an hour late"),
    ),
    Bug(
        "performed before claimed",
        "nothing durable is older than the request",
        dispatch.performed_before_claimed,
        Windows("create", "out:slack:chat.postMessage"),
    ),
    Bug(
        "no look before a repetition",
        "a lost answer makes two messages",
        dispatch.no_look_before_a_repetition,
        Windows("create", "out:slack:chat.postMessage:sent"),
    ),
    Bug(
        "absent counts at once",
        "the settle delay is not waited for",
        dispatch.absence_counts_at_once,
        Windows("a post arrives after its time-out"),
    ),
    Bug(
        "lost answer taken for not sent",
        "an append is repeated without a look",
        dispatch.lost_answer_taken_for_not_sent,
        Days(20),
    ),
    Bug(
        "lost answer taken for success",
        "what never arrived is recorded as delivered",
        dispatch.lost_answer_taken_for_success,
        Windows("create", "out:slack:chat.postMessage:before", deeds=("lose", "refuse")),
    ),
    Bug("lane ignored", "a younger deed overtakes an older one", dispatch.order_ignored, Windows("two posts wait")),
    Bug("lost wake-up", "what is owed waits for the hourly look", dispatch.nobody_is_woken, Windows("submit")),
    Bug("children never woken", "what waits for a delivery waits for ever", dispatch.children_not_woken, Windows("card in doubt")),
    Bug(
        "Retry-After ignored",
        "the wait that was asked for is not kept",
        dispatch.retry_after_ignored,
        Windows("throttled"),
    ),
    Bug(
        "429 burns attempts",
        "a throttled class ends in dead letters",
        dispatch.judged(Failure.THROTTLED, RetryDecision.RETRY),
        Windows("throttled"),
    ),
    Bug(
        "refused login dead-letters",
        "an expired secret buries what waits",
        dispatch.judged(Failure.AUTH, RetryDecision.DEAD),
        Windows("refused login"),
    ),
    Bug(
        "refused login burns attempts",
        "an expired secret spends the budget",
        dispatch.judged(Failure.AUTH, RetryDecision.RETRY),
        Windows("refused login"),
    ),
    Bug("retry without end", "nothing is ever given up", dispatch.retries_without_end, Windows("nine failures")),
    Bug("first failure buries", "nothing is tried twice", dispatch.first_failure_buries, Windows("throttled")),
    Bug(
        "record_step not written",
        "after a death an upload is made anew although it may be there",
        dispatch.steps_kept_in_memory,
        Windows("approve", "out:slack:files.completeUploadExternal:sent"),
    ),
    Bug(
        "upload started over without a look",
        "a lost answer shares two files",
        dispatch.upload_not_looked_for,
        Windows("approve", "out:slack:files.completeUploadExternal:sent"),
    ),
    Bug("dead letter not told", "what is given up leaves no alert", dispatch.dead_letter_not_announced, Windows("outage")),
    Bug("card never redrawn", "the card goes on saying pending", dispatch.card_never_redrawn, Windows("approve")),
    # recovery at a start
    Bug(
        "recovery forgets commands",
        "a command that was being executed is never finished",
        dispatch.forgets_operations,
        Windows("submit", "commit:execute:before"),
    ),
    Bug(
        "recovery forgets effects",
        "what was in flight stays so",
        dispatch.forgets_effects,
        Windows("create", "out:slack:chat.postMessage:before"),
    ),
    Bug(
        "recovery sends appends again",
        "a death after a post makes two",
        model.sends_appends_again,
        Windows("create", "out:slack:chat.postMessage:sent"),
    ),
    Bug(
        "recovery takes appends for done",
        "a death before a post makes none",
        dispatch.takes_it_for_delivered,
        Windows("create", "out:slack:chat.postMessage:before"),
    ),
    Bug("repeat_once without end", "one person is told again after every death", dispatch.repeats_for_ever, Model(3)),
    # calls to the external services
    Bug("key per attempt", "a post carries no key that could be looked for", clients.key_per_attempt, Windows("create")),
    Bug(
        "key per repetition",
        "the second attempt's key is another",
        clients.key_per_repetition,
        Windows("create", "out:slack:chat.postMessage:before"),
    ),
    Bug(
        "CRM key per attempt",
        "a lost answer makes two records",
        clients.crm_key_per_attempt,
        Windows("approve", "out:salesforce:graph:sent"),
    ),
    Bug(
        "library retries",
        "a request is repeated before anybody hears of it",
        clients.library_retries,
        Windows("create", "out:slack:chat.postMessage:sent"),
    ),
    Bug("every post twice", "each message is there twice", clients.every_post_twice, Windows("create")),
    Bug(
        "line left out of the CRM",
        "Salesforce has a smaller total",
        clients.line_left_out_of_the_crm,
        Windows("approve"),
    ),
    Bug("another file shared", "the file in Slack is not the rendered one", clients.another_file_shared, Windows("approve")),
    # audit, replays and retention
    Bug("audit row missing", "a delivery leaves no event", audit.delivery_not_audited, Windows("create")),
    Bug(
        "audit row in another transaction",
        "a death in between leaves a change without its event",
        audit.audited_apart,
        Windows("create", "commit:audit:before"),
    ),
    Bug("audit chain not linked", "events may be taken out unseen", audit.chain_not_linked, Windows("create")),
    Bug("audit chain begins anew", "an event does not name the one before", audit.chain_begins_anew, Windows("submit")),
    Bug("failure history dropped", "a replay forgets what went before", audit.history_dropped, Windows("replay")),
    Bug("replay under a new key", "a replay is another deed", clients.new_key_at_a_replay, Windows("replay")),
    Bug("tombstone not written", "a purged command may come again", audit.no_tombstone, Windows("purge of a refused creation")),
    # decisions of the domain
    Bug("authority not checked", "anybody may approve", domain.authority_not_checked, Windows("a stranger approves")),
    Bug("guests approve", "nobody looks at what Slack says of a person", domain.guests_approve, Windows("a guest approves")),
    Bug(
        "self-approval allowed",
        "who asked may decide",
        both(domain.authority_not_checked, domain.own_request_approved),
        Windows("refused command"),
    ),
    Bug("second decision stands", "a decision is made over another", domain.second_decision_stands, Windows("two approve")),
    Bug("expiry not looked at", "a quote is approved after its end", domain.expiry_not_looked_at, Windows("approved too late")),
    Bug(
        "last day not looked at",
        "a quote is accepted after its end",
        domain.last_day_not_looked_at,
        Windows("accepted too late"),
    ),
    Bug(
        "superseded version changed",
        "what was asked about an old version is done to the newest",
        domain.superseded_version_changed,
        Windows("a superseded version is finalized"),
    ),
    Bug("end not kept", "who ended a quote is forgotten", domain.end_not_kept, Windows("lose")),
    Bug(
        "superseded still asked",
        "approvers are asked about what was replaced",
        domain.superseded_still_asked,
        Windows("revise what waits for approval"),
    ),
    Bug("offer works twice", "two clicks make two quotes", domain.offer_works_twice, Windows("another, clicked twice")),
    Bug(
        "re-submission not asked about",
        "the same wish twice makes two quotes",
        domain.resubmission_not_asked_about,
        Windows("create again"),
    ),
    Bug("totals by hand", "a total is not the sum of its lines", domain.totals_by_hand, Windows("create")),
    # scheduled work
    Bug(
        "slot known by the moment",
        "what was fired before a death is fired again after it",
        schedule.slot_of_the_moment,
        Windows("stale draft", "commit"),
    ),
    Bug(
        "slot marked before it is reserved",
        "a death in between forgets it",
        schedule.marked_before_it_is_reserved,
        Windows("stale draft", "commit"),
    ),
    Bug("closed early", "a quote expires while it is valid", schedule.closed_a_week_early, Windows("nearly over")),
    # durability
    Bug("synchronous=NORMAL", "a power cut loses what was acknowledged", disk.synchronous_normal, PowerCuts()),
    Bug(
        "told before the flush", "a power cut loses what was just acknowledged", disk.answered_before_the_flush, PowerCuts(one_of=2)
    ),
    Bug(
        "failed flush taken for a good one",
        "what was acknowledged is not on the disk",
        disk.failed_flush_taken_for_a_good_one,
        DiskErrors("IOERR_FSYNC", "sticky"),
    ),
    Bug(
        "builds upon what is in memory alone",
        "after a failed flush, a restart and a power cut all is lost that was acknowledged since",
        disk.builds_upon_what_is_in_memory_alone,
        DiskErrors("IOERR_FSYNC", "sticky"),
    ),
    Bug(
        "COMMIT error taken for success",
        "what was answered is not there",
        disk.commit_error_taken_for_success,
        DiskErrors("IOERR_FSYNC"),
    ),
    Bug(
        "COMMIT error taken for nothing recorded",
        "what is said not to be there may be",
        disk.commit_error_taken_for_nothing_recorded,
        DiskErrors("IOERR_FSYNC"),
    ),
    Bug(
        "rolled back, told success",
        "a member of a lost batch hears that it stands",
        disk.rolled_back_answered_success,
        DiskErrors("IOERR_READ", most=100),  # both processes of the bot read the file to open it
    ),
    Bug("artefact not synced", "a stored file is empty after a power cut", disk.artefact_not_synced, PowerCuts(artefacts=True)),
    Bug(
        "artefact folder not synced",
        "a stored file has no name after a power cut",
        disk.artefact_folder_not_synced,
        PowerCuts(artefacts=True),
    ),
    Bug("half-written files kept", "a death leaves rubbish for ever", disk.artefact_left_half_written, PowerCuts(artefacts=True)),
    # the ledger itself
    Bug(
        "expired answer sent late",
        "an answer that is too old goes out",
        model.edit("insert_effect", ":expires_at,", "NULL + :expires_at,"),
        Model(),
    ),
    *(
        Bug(name, "as in faults/mutants/model.py", plant, BY_A_STORY.get(name, Model(first=FIRST_BLOCKS.get(name, 1))))
        for name, plant in model.BUGS.items()
    ),
)

COMMITS: Final = "engine/test_unknown_commits.py"
TOGETHER: Final = "engine/test_conformance.py"
LOCKS: Final = "postgres/test_locks.py"
REPLICAS: Final = "postgres/test_replicas.py"
AUDIT: Final = "postgres/test_audit.py"
SERVER_ENDS: Final = Check("postgres/test_transactions.py", "test_the_server_ends_waits_statements_and_idle_transactions_by_itself")
RESOLVED: Final = Check(COMMITS, "test_a_commit_that_breaks_is_resolved_and_recorded_exactly_once")
FORMER: Final = Check(COMMITS, "test_reads_leave_a_former_primary_when_a_write_has_found_the_new_one")
BARRIER: Final = Check(AUDIT, "test_no_anchor_and_no_fold_ends_before_the_writes_under_way")
IDS: Final = Check(AUDIT, "test_ids_are_never_given_twice_and_a_rollback_leaves_a_gap")
PASSED_OVER: Final = Check(LOCKS, "test_a_claim_passes_over_rows_that_another_process_is_claiming")

# Bugs of the engine for PostgreSQL, each hunted by a test on a real server.
POSTGRES: Final = (
    # a COMMIT without an answer
    Bug("unknown COMMIT taken for recorded", "what was acknowledged is not there", postgres.always_recorded, RESOLVED),
    Bug("unknown COMMIT taken for lost", "what is there runs again", postgres.never_recorded, RESOLVED),
    Bug("COMMIT sent again", "a second COMMIT succeeds and records nothing", postgres.committed_again, RESOLVED),
    Bug(
        "warning of COMMIT ignored",
        "what no standby has is acknowledged",
        postgres.warning_ignored,
        Check(COMMITS, "test_a_commit_with_a_warning_is_resolved_though_the_server_says_success"),
    ),
    Bug(
        "mark read and not moved",
        "a COMMIT that arrives late records what ran again",
        postgres.mark_only_read,
        Check(COMMITS, "test_a_commit_that_arrives_late_cannot_record_what_ran_again"),
    ),
    Bug(
        "silent COMMIT canceled",
        "a request to cancel ends no call that the network swallowed",
        postgres.canceled,
        Check(COMMITS, "test_a_commit_without_an_answer_is_cut_and_resolved", hangs=True),
    ),
    Bug(
        "mark not compared",
        "two processes write under one name",
        postgres.mark_not_compared,
        Check(COMMITS, "test_an_earlier_process_of_the_same_name_cannot_write_any_more"),
    ),
    Bug(
        "lost commits not noticed",
        "a database that lost acknowledged commits is written on",
        postgres.mark_not_compared,
        Check(COMMITS, "test_lost_commits_that_were_acknowledged_end_all_writing"),
    ),
    Bug("COMMIT before the disk", "the end of the server loses it", postgres.acknowledged_before_the_disk, SERVER_ENDS),
    Bug("idle transaction not ended", "a stopped process keeps its locks", postgres.idle_for_good, SERVER_ENDS),
    # batches
    Bug(
        "error of a member commits",
        "half of its work is recorded, and the others' work twice",
        postgres.half_recorded,
        Check(TOGETHER, "test_work_that_raises_is_rolled_back_whole_and_nobody_else_is[postgres-in company]"),
    ),
    Bug(
        "items kept between runs",
        "an event of a run that was rolled back is chained",
        postgres.events_kept,
        Check(TOGETHER, "test_emitted_events_are_finished_once_per_commit_in_order_in_the_transaction[postgres]"),
    ),
    Bug(
        "bound rows not read",
        "the audit does not cover changed rows",
        postgres.bound_rows_not_reported,
        Check("postgres/test_ledger.py", "test_a_changed_row_is_bound_to_its_commit_and_a_rolled_back_one_is_not"),
    ),
    # a former primary
    Bug("timeline forgotten", "a former primary is used again", postgres.timeline_forgotten, FORMER),
    Bug("reads stay where they began", "reads come from a former primary", postgres.reads_stay, FORMER),
    Bug(
        "read of several snapshots",
        "a read sees half of a commit",
        postgres.read_in_pieces,
        Check(TOGETHER, "test_a_read_is_one_snapshot_that_writes_neither_wait_for_nor_change[postgres]"),
    ),
    # several processes at one time
    Bug(
        "parent not locked",
        "a child of a delivered parent never becomes due",
        postgres.parent_not_locked,
        Check(LOCKS, "test_a_child_and_the_delivery_of_its_parent_wait_for_each_other"),
    ),
    Bug(
        "gate written over any state",
        "a settlement undoes an operator's pause",
        postgres.gate_over_any_state,
        Check(LOCKS, "test_an_operators_pause_is_not_undone_by_a_settlement_beside_it"),
    ),
    Bug(
        "gates not locked",
        "two processes let more through than a gate allows",
        postgres.gates_not_locked,
        Check(LOCKS, "test_two_processes_count_what_is_in_flight_behind_a_gate_one_after_the_other"),
    ),
    Bug(
        "paces not shared",
        "two processes together send more than Slack takes",
        postgres.paces_not_shared,
        Check("postgres/test_paces.py", "test_a_method_is_counted_over_all_processes"),
    ),
    Bug(
        "equal creations not locked",
        "two processes make the same quote",
        postgres.twins_not_locked,
        Check(LOCKS, "test_equal_creations_look_for_each_other_one_after_the_other"),
    ),
    Bug(
        "purges not locked",
        "two leaders count a deleted row twice",
        postgres.purges_not_locked,
        Check(LOCKS, "test_purges_delete_and_count_one_after_the_other"),
    ),
    Bug("claims wait for each other", "one process stops all others", postgres.claims_wait, PASSED_OVER),
    Bug("claims without a lock", "two processes claim one row", postgres.claimed_twice, PASSED_OVER),
    Bug(
        "end of a chain not locked",
        "two processes add to one chain",
        postgres.head_not_locked,
        Check(AUDIT, "test_the_end_of_a_chain_is_locked_also_before_there_is_one"),
    ),
    Bug("ids from the highest", "two processes give one id", postgres.ids_from_the_highest, IDS),
    Bug("ids taken in advance", "a later event has a smaller id than an anchor", postgres.ids_cached, IDS),
    Bug("anchor beside writes", "an anchor misses an earlier event", postgres.anchor_beside_writes, BARRIER),
    Bug("fold beside writes", "an event is never counted", postgres.fold_beside_writes, BARRIER),
    # several replicas
    Bug(
        "lapsed claims taken without grace",
        "after an outage each replica takes the claims of all others",
        postgres.no_grace,
        Check("test_leases.py", "test_nobody_takes_the_claims_of_others_after_an_outage_of_all"),
    ),
    Bug(
        "leases on the machine's clock",
        "a machine whose clock is ahead takes claims that have not lapsed",
        postgres.time_of_the_machine,
        Check(REPLICAS, "test_lease_lapses_by_the_time_of_the_server_and_not_of_a_machine"),
    ),
    Bug(
        "death not checked again",
        "a replica that has its lock again is taken for dead",
        postgres.death_not_checked_again,
        Check(REPLICAS, "test_death_of_a_replica_is_proven_and_another_leads"),
    ),
    Bug(
        "claims of a closed epoch",
        "a replica that was taken for dead goes on claiming before it knows",
        postgres.claims_in_any_term,
        Check("test_leases.py", "test_replica_that_was_taken_for_dead_goes_on_under_a_new_epoch"),
    ),
    Bug(
        "alone in name only",
        "another process commits meanwhile",
        postgres.never_alone,
        Check(COMMITS, "test_while_a_write_runs_alone_no_other_process_commits"),
    ),
)

# Changes that are not bugs: they are hunted like the others, and nothing may be found.
BENIGN: Final = (
    Bug(
        "another jitter",
        "waits are drawn otherwise, within their bounds",
        equivalent.another_jitter,
        Windows("throttled", "out", most=8),
    ),
    Bug("another latency", "rendering takes longer", equivalent.another_latency, Windows("approve", "out:pdf", most=4)),
    Bug(
        "a token that is kept",
        "an upload has a random token, written down before it is used",
        equivalent.a_token_that_is_kept,
        Windows("approve", "commit:record_step", most=8),
    ),
    Bug("one command at a time", "commands do not share commits", equivalent.one_command_at_a_time, Days(1, seeds=4)),
)
