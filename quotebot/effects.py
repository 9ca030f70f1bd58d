"""Constructors of effect intents, one per kind of effect. dispatch/ performs them; policies.py defines their retries.

Every effect in a quote's thread waits for the effect that posts the quote's card, the thread's root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from adapters.policies import policy_for
from ledger.records import EffectIntent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledger.records import Effect

CARD: Final = "slack.card"
POST: Final = "slack.post"
DIRECT: Final = "slack.direct"
DIRECT_CARD: Final = "slack.direct_card"
REPLY: Final = "slack.reply"
UNFURL: Final = "slack.unfurl"
FILE: Final = "slack.file"
RENDER: Final = "pdf.render"
CRM: Final = "crm.create"
EXTRACT: Final = "llm.extract"
SUMMARIZE: Final = "llm.summarize"
UPDATE: Final = "crm.update"
READ_CRM: Final = "crm.read"

Label = Literal["PDF", "CRM", "CRM status", "CRM amount", "CRM stage", "CRM PDF"]  # of an effect on a quote's card
_LABELS: Final[Mapping[str, Label]] = {RENDER: "PDF", FILE: "PDF", CRM: "CRM"}
_UPDATES: Final[Mapping[str, Label]] = {
    "status": "CRM status",
    "amount": "CRM amount",
    "stage": "CRM stage",
    "document": "CRM PDF",
}

REMINDER_MS: Final = 6 * 3600_000  # a reminder that could not be posted for so long is not posted late
RESPONSE_URL_MS: Final = 29 * 60_000  # Slack gives a response_url 30 minutes
PREVIEW_MS: Final = 15 * 60_000  # after that the talk has moved on
ANSWER_MS: Final = 7 * 24 * 3600_000  # lifetime of an ephemeral reply


def label_of(effect: Effect) -> Label | None:
    """Return the name of an effect that a person waits for, as the quote's card shows it; None for every other effect."""
    if effect.effect_class == UPDATE:
        return _UPDATES.get(effect.payload["what"])
    return _LABELS.get(effect.effect_class)


def root(quote_id: str) -> EffectIntent:
    """Post the quote's status card: the root of its thread."""
    return _intent(POST, quote_id, quote_id, {"what": "root", "quote_id": quote_id})


def root_again(quote_id: str, dead_ts: str) -> EffectIntent:
    """Post the card again, as the root of a new thread, in place of a deleted one."""
    return _intent(POST, quote_id, quote_id, {"what": "root", "quote_id": quote_id, "replaces": dead_ts})


def card(quote_id: str, root_key: str, *, always: bool = False) -> EffectIntent:
    """Show the quote's current state on its card. A newer card effect supersedes this one.

    It is sent only if it differs from what the card shows, or `always`.
    """
    content: dict[str, Any] = {"quote_id": quote_id} | ({"always": True} if always else {})
    return _intent(CARD, quote_id, quote_id, content, after=root_key, supersede_key=f"card:{quote_id}")


def card_again(quote_id: str, root_key: str, not_before: int, *, always: bool = False) -> EffectIntent:
    """Draw the card once more at `not_before` (ms); no newer card supersedes this one. `always` as in `card`."""
    content: dict[str, Any] = {"quote_id": quote_id} | ({"always": True} if always else {})
    return _intent(CARD, quote_id, quote_id, content, after=root_key, not_before=not_before)


def card_withdrawn(quote_id: str, channel: str, ts: str) -> EffectIntent:
    """Remove the facts from a card in a channel that another organization shares; the quote has another card then."""
    content = {"what": "withdrawn", "quote_id": quote_id, "channel": channel, "ts": ts}
    return _intent(CARD, quote_id, quote_id, content)


def home(user: str, team_id: str, not_before: int | None = None, *, always: bool = False) -> EffectIntent:
    """Publish one user's App Home in its state at that time. A newer one supersedes this one. `not_before` is Unix milliseconds.

    It is sent only if it differs from what the tab shows, or `always`.
    """
    target = f"home:{user}"
    content: dict[str, Any] = {"what": "home", "user": user, "team_id": team_id} | ({"always": True} if always else {})
    return _intent(CARD, target, target, content, supersede_key=target, not_before=not_before)


def copy_target(approval_id: str, user: str) -> str:
    """Return the target of all effects on the direct message that asks a person to decide a request."""
    return f"copy:{approval_id}:{user}"


def ask_directly(quote_id: str, approval_id: str, user: str) -> EffectIntent:
    """Ask a person in a direct message to decide a request for approval."""
    content = {"quote_id": quote_id, "approval_id": approval_id, "user": user}
    return _intent(DIRECT, copy_target(approval_id, user), quote_id, content)


def remind_directly(quote_id: str, approval_id: str, user: str, awaited: str | None, text: str, expires_at: int) -> EffectIntent:
    """Remind a person below the message that asks them to decide. It is not sent after `expires_at` (ms)."""
    content = {"what": "reminder", "quote_id": quote_id, "approval_id": approval_id, "user": user, "text": text}
    return _intent(DIRECT, copy_target(approval_id, user), quote_id, content, after=awaited, expires_at=expires_at)


def update_copy(quote_id: str, approval_id: str, user: str, awaited: str | None) -> EffectIntent:
    """Show the current state of a request in the direct message to a person. A newer one supersedes this one.

    `awaited` is the effect that posts the message; None once it is posted.
    """
    target = copy_target(approval_id, user)
    content = {"quote_id": quote_id, "approval_id": approval_id, "user": user}
    return _intent(DIRECT_CARD, target, quote_id, content, after=awaited, supersede_key=f"card:{target}")


def digest(user: str, team_id: str, due_at: int, expires_at: int) -> EffectIntent:
    """Send a person the digest that was due at `due_at`, as a direct message; not after `expires_at` (both ms)."""
    content = {"what": "digest", "user": user, "team_id": team_id}
    return _intent(DIRECT, f"digest:{user}:{due_at}", f"digest:{user}", content, expires_at=expires_at)


def dead_letter_target(reference: str) -> str:
    """Return the target and aggregate of all effects on the card of a dead letter."""
    return f"letter:{reference}"


def post_dead_letter(reference: str, channel: str) -> EffectIntent:
    """Post the card of a dead letter into the operators' channel."""
    target = dead_letter_target(reference)
    return _intent(POST, target, target, {"what": "letter", "reference": reference, "channel": channel})


def update_dead_letter(reference: str, awaited: str | None) -> EffectIntent:
    """Show the current state of a dead letter on its card. A newer one supersedes this one."""
    target = dead_letter_target(reference)
    content = {"what": "letter", "reference": reference}
    return _intent(CARD, target, target, content, after=awaited, supersede_key=f"card:{target}")


def ops_target(subject: str) -> str:
    """Return the target and aggregate of all effects on the card of a cause or of a refused login."""
    return f"ops:{subject}"


def post_ops_card(subject: str, channel: str) -> EffectIntent:
    """Post the card of a subject into the operators' channel."""
    target = ops_target(subject)
    return _intent(POST, target, target, {"what": "ops", "subject": subject, "channel": channel})


def update_ops_card(subject: str, awaited: str | None) -> EffectIntent:
    """Show the current state of a subject on its card. A newer one supersedes this one."""
    target = ops_target(subject)
    return _intent(CARD, target, target, {"what": "ops", "subject": subject}, after=awaited, supersede_key=f"card:{target}")


def close_ops_message(target: str, channel: str, ts: str) -> EffectIntent:
    """Replace the content of an older card in the operators' channel with a pointer to the newer one."""
    return _intent(CARD, target, target, {"what": "closed", "channel": channel, "ts": ts})


def notice(quote_id: str, root_key: str, text: str, *, expires_at: int | None = None, decide: bool = False) -> EffectIntent:
    """Post a message in the quote's thread, once; with `decide` it has a button that shows each person the quote privately.

    It is not sent after `expires_at` (ms); holds of its class extend that time.
    """
    content: dict[str, Any] = {"what": "notice", "quote_id": quote_id, "text": text} | ({"decide": True} if decide else {})
    return _intent(POST, quote_id, quote_id, content, after=root_key, expires_at=expires_at)


def reply(
    aggregate_id: str,
    user: str,
    channel: str | None,
    text: str,
    received_at: int,
    *,
    offer: Mapping[str, Any] | None = None,
    typed: str | None = None,
    thread_ts: str | None = None,
) -> EffectIntent:
    """Reply to one user, visible to them alone, over the response_url of their request; once that has expired, directly.

    `offer` asks under the text whether to create the same quote again: {"token": operation key, "quote_id", "version"}; without a
    quote it asks whether to create what was proposed; without a token it offers to show the quote or, with "clone": True, to copy
    it. `typed` offers a form filled with the extracted values, in command syntax. `thread_ts` is the thread where the user
    asked, if it was in one.
    """
    content: dict[str, Any] = {"user": user, "channel": channel, "text": text}
    more = {"offer": offer, "typed": typed, "thread_ts": thread_ts}
    content |= {name: value for name, value in more.items() if value is not None}
    return _intent(REPLY, user, aggregate_id, content, expires_at=received_at + ANSWER_MS)


def tell(aggregate_id: str, user: str, text: str, now: int) -> EffectIntent:
    """Send one user a direct message: about a quote whose thread they cannot read, or about whom they cover for."""
    content = {"user": user, "channel": None, "text": text, "directly": True}
    return _intent(REPLY, user, aggregate_id, content, expires_at=now + ANSWER_MS)


def preview_links(target: str, team_id: str, channel: str, ts: str, links: Mapping[str, str], received_at: int) -> EffectIntent:
    """Show quotes below the message at `ts`; `links` are its addresses of their records, each with the quote's number."""
    content = {"team_id": team_id, "channel": channel, "ts": ts, "links": dict(links)}
    return _intent(UNFURL, target, target, content, expires_at=received_at + PREVIEW_MS)


def is_late(answer: Effect, now_ms: int) -> bool:
    """Return true if a reply's response_url has expired: the user no longer looks for the reply where they asked."""
    assert answer.expires_at is not None  # noqa: S101 -- an answer has one
    return now_ms >= answer.expires_at - ANSWER_MS + RESPONSE_URL_MS


def render(quote_id: str, version: int, *, announces: bool = False) -> EffectIntent:
    """Render the PDF of one quote version. `announces` is as of `share`."""
    content: dict[str, Any] = {"quote_id": quote_id, "version": version} | ({"announces": True} if announces else {})
    return _intent(RENDER, quote_id, quote_id, content)


def share(quote_id: str, version: int, sha256: str, root_key: str, *, announces: bool = False) -> EffectIntent:
    """Upload a rendered PDF into the quote's thread. If it `announces` the approval, its comment or a notice after it tells it."""
    content: dict[str, Any] = {"quote_id": quote_id, "version": version, "sha256": sha256}
    return _intent(FILE, quote_id, quote_id, content | ({"announces": True} if announces else {}), after=root_key)


def mark_replaced(upload: Effect, *, announces: bool) -> tuple[EffectIntent, ...]:
    """Mark the message of a delivered PDF as that of a version that another one replaced.

    `announces` is as of its comment. Nothing is marked if an operator reported the delivery without a reference to the file.
    """
    if upload.external_ref is None:
        return ()
    content = {"what": "replaced", **{name: upload.payload[name] for name in ("quote_id", "version")}}
    content |= {"file_id": upload.external_ref} | ({"announces": True} if announces else {})
    return (_intent(CARD, upload.aggregate_id, upload.aggregate_id, content),)


def create_in_crm(quote_id: str, version: int) -> EffectIntent:
    """Write one quote version to Salesforce."""
    return _intent(CRM, quote_id, quote_id, {"quote_id": quote_id, "version": version})


def extract(reading: str) -> EffectIntent:
    """Extract a quote request from a message with the model; `reading` is the key of the operation that asks for it."""
    return _intent(EXTRACT, reading, "new", {"reading": reading})


def summarize(quote_id: str, version: int) -> EffectIntent:
    """Summarize a quote version for its approvers with the model."""
    return _intent(SUMMARIZE, quote_id, quote_id, {"quote_id": quote_id, "version": version})


def status_in_crm(quote_id: str, version: int, status: str, *, instead_of: tuple[str, ...] = ()) -> EffectIntent:
    """Write a version's status to its record in Salesforce. A newer status supersedes this one.

    The call writes the status at that moment; `status` is the status at enqueue time. `instead_of` are values of the field that an
    operator allows us to overwrite.
    """
    content: dict[str, Any] = {"quote_id": quote_id, "version": version, "what": "status", "status": status}
    content |= {"instead_of": list(instead_of)} if instead_of else {}
    return _intent(UPDATE, quote_id, quote_id, content, supersede_key=f"crm-status:{quote_id}:v{version}")


def amount_in_crm(quote_id: str, version: int, *, instead_of: tuple[str, ...] = ()) -> EffectIntent:
    """Write the total of the newest recorded version to the quote's opportunity. A newer one supersedes this one."""
    content: dict[str, Any] = {"quote_id": quote_id, "version": version, "what": "amount"}
    content |= {"instead_of": list(instead_of)} if instead_of else {}
    return _intent(UPDATE, quote_id, quote_id, content, supersede_key=f"crm-amount:{quote_id}")


def stage_in_crm(quote_id: str, version: int, status: str, *, instead_of: tuple[str, ...] = ()) -> EffectIntent:
    """Write the newest recorded version's stage and loss reason to the quote's opportunity. A newer one supersedes this one.

    `status` and `instead_of` are as of `status_in_crm`.
    """
    content: dict[str, Any] = {"quote_id": quote_id, "version": version, "what": "stage", "status": status}
    content |= {"instead_of": list(instead_of)} if instead_of else {}
    return _intent(UPDATE, quote_id, quote_id, content, supersede_key=f"crm-stage:{quote_id}")


def document_in_crm(quote_id: str, version: int, sha256: str) -> EffectIntent:
    """Attach a rendered PDF to the record of its version."""
    content = {"quote_id": quote_id, "version": version, "what": "document", "sha256": sha256}
    return _intent(UPDATE, quote_id, quote_id, content)


def read_mirror(aggregate_id: str, kind: str) -> EffectIntent:
    """Read what changed in one kind since its last sync, and store it. A newer one supersedes this one."""
    return _intent(READ_CRM, aggregate_id, aggregate_id, {"what": "mirror", "kind": kind}, supersede_key=f"crm-read:{kind}")


def read_crm(aggregate_id: str) -> EffectIntent:
    """Read what changed in Salesforce since the last sync. A newer one supersedes this one."""
    return _intent(READ_CRM, aggregate_id, aggregate_id, {"what": "changes"}, supersede_key="crm-read")


def _intent(
    effect_class: str,
    target: str,
    aggregate_id: str,
    payload: Mapping[str, Any],
    *,
    after: str | None = None,
    supersede_key: str | None = None,
    expires_at: int | None = None,
    not_before: int | None = None,
) -> EffectIntent:
    return EffectIntent(
        effect_class=effect_class,
        semantics=policy_for(effect_class).semantics,
        target=target,
        aggregate_id=aggregate_id,
        payload=payload,
        after=after,
        supersede_key=supersede_key,
        expires_at=expires_at,
        not_before=not_before,
    )
