"""Effect classes pdf.render and slack.file: the document of an approved version, its upload, and what follows them.

A document is rendered unless it is stored already. The document, its upload and the record in Salesforce share their follow-ups:
the redrawn card, and a notice of a failure.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from adapters.failures import AdapterError, Failure
from adapters.pdf.renderer import render_key
from ledger.gates import is_stopped
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch import slack_card
from quotebot.dispatch.services import EffectHandler, announces, dead_letter_card_updated, earliest_attempt, enqueuing
from quotebot.domain.language import N_, _
from quotebot.execution import crm_effects
from quotebot.store import quotes
from quotebot.store.quotes import Artefact
from quotebot.views import messages, operator_messages
from quotebot.views.document import file_name, file_title, quote_document, seller_of

if TYPE_CHECKING:
    from adapters.pdf.renderer import QuoteDocument, RenderedPdf
    from adapters.slack.api import SharedFile
    from ledger.database import Tx
    from ledger.records import Effect, EffectIntent, Settlement
    from quotebot.dispatch.services import Services
    from quotebot.domain.quotes.quote import Quote

LATE_MS: Final = 5 * 60_000  # a PDF that is not tried again by then does not announce its approval any more
RENDERED: Final = "rendered"  # durable step of an upload whose file was lost and rendered again with other bytes

NAMES: Final = {effects.RENDER: N_("The PDF"), effects.FILE: N_("The PDF"), effects.CRM: N_("The write to Salesforce")}


@dataclass(frozen=True, slots=True)
class Documents:
    """Source of documents: the store if it holds them intact; otherwise the renderer, whose output is then stored."""

    services: Services

    async def render(self, quote: Quote) -> Delivered:
        """Return the document of a quote version as a stored file. An existing file is not rendered again."""
        document = await self._document(quote)
        key = render_key(document)
        known = await self.services.ledger.database.read(lambda tx: quotes.artefact_of_key(tx, key))
        if known is not None and await self._stored(known.sha256) is not None:
            return _delivered(known.sha256, known.pages, key, already_there=True)
        rendered = await self._rendered(document)
        sha256 = await asyncio.to_thread(self.services.adapters.artefacts.put, rendered.content)
        return _delivered(sha256, rendered.pages, key, already_there=False)

    async def content(self, effect: Effect, quote: Quote) -> tuple[Effect, bytes]:
        """Return the bytes to upload, rendered again if the store has lost them. Different bytes are recorded as a step."""
        asked: str = effect.steps.get(RENDERED, effect.payload)["sha256"]
        content = await self._stored(asked)
        if content is not None:
            return effect, content
        document = await self._document(quote)
        rendered = await self._rendered(document)
        sha256 = await asyncio.to_thread(self.services.adapters.artefacts.put, rendered.content)
        if sha256 != asked:
            made = _delivered(sha256, rendered.pages, render_key(document), already_there=False)
            effect = await self.services.ledger.record_step(effect, RENDERED, made.result)
        return effect, rendered.content

    async def restore(self, lost: Artefact) -> bool:
        """Render a lost file again and store it; false if the same bytes can no longer be produced. Raises AdapterError."""
        quote = await self.services.ledger.database.read(lambda tx: quotes.load_version(tx, lost.quote_id, lost.version))
        if quote is None:
            return False
        rendered = await self._rendered(await self._document(quote))
        if rendered.sha256 != lost.sha256:
            return False
        await asyncio.to_thread(self.services.adapters.artefacts.put, rendered.content)
        return True

    async def _rendered(self, document: QuoteDocument) -> RenderedPdf:
        """Render and report how long that took."""
        clock = self.services.ledger.clock
        began = clock.monotonic()
        rendered = await self.services.adapters.pdf.render(document)
        self.services.observe_pdf(clock.monotonic() - began)
        return rendered

    async def _document(self, quote: Quote) -> QuoteDocument:
        """Return the document of a quote by the set of its approval. Raises AdapterError (RENDER) if it has no such template."""
        database = self.services.ledger.database
        version = quote.quote_id, quote.version
        pinned, contact = await database.read(lambda tx: (quotes.document_set_of(tx, *version), quotes.contact_of(tx, *version)))
        try:
            seller = self.services.seller if pinned is None else seller_of(pinned)
            return quote_document(quote, seller, quote.requester_name, contact)
        except ValueError as error:
            message = _(
                "The document cannot be made: {error}. Nothing was stored. Revise the quote with a template that is there.",
                error=error,
            )
            raise AdapterError(Failure.RENDER, "template_error", message) from error

    async def _stored(self, sha256: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self.services.adapters.artefacts.get, sha256)
        except AdapterError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            return None


def remember(tx: Tx, effect: Effect, now_ms: int) -> None:
    """Record the file of a settled render, or the file that an upload rendered again."""
    made = effect.steps.get(RENDERED) or effect.result or {}
    if "render_key" not in made:
        return
    version = effect.payload["version"]
    quotes.record_artefact(tx, Artefact(made["render_key"], made["sha256"], effect.aggregate_id, version, made["pages"], now_ms))


def _delivered(sha256: str, pages: int, key: str, *, already_there: bool) -> Delivered:
    return Delivered(sha256, {"sha256": sha256, "pages": pages, "render_key": key}, already_there=already_there)


class RenderHandler(EffectHandler):
    """Renders the PDF of one quote version; the upload into the thread and the copy in Salesforce follow."""

    effect_class: ClassVar = effects.RENDER

    async def perform(self, effect: Effect) -> Delivered:
        """Return the stored document. Raises AdapterError."""
        return await Documents(self.services).render(await self.services.quote(effect))

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the upload, the attachment to the record that exists already, and the redrawn card."""
        more: tuple[EffectIntent, ...] = ()
        if effect.state == "delivered" and effect.result is not None:
            remember(tx, effect, now_ms)
            root = quotes.root_effect_key(tx, effect.aggregate_id)
            version, sha256 = effect.payload["version"], effect.result["sha256"]
            untold = announces(tx, effect)
            told = untold and is_stopped(tx, effects.FILE)
            notices = (effects.notice(effect.aggregate_id, root, messages.approved(enqueuing(tx, effect))),) if told else ()
            upload = effects.share(effect.aggregate_id, version, sha256, root, announces=untold and not told)
            more = (*notices, upload, *crm_effects.document_pending(tx, effect))
        return of_approved(tx, effect, now_ms, more)


def of_approved(tx: Tx, effect: Effect, now_ms: int, more: tuple[EffectIntent, ...] = (), *, name: str | None = None) -> FollowUps:
    """Return the redrawn card, the notices of an effect that failed or was recovered, and `more` after them.

    `name` begins the sentence of the notice; None is the name of the effect's class.
    """
    notices = _approval_notice(tx, effect)
    if _looks_the_same(effect):
        return FollowUps((*notices, *dead_letter_card_updated(tx, effect)))
    root = quotes.root_effect_key(tx, effect.aggregate_id)
    if effect.state in ("pending", "uncertain"):  # after the current card, without replacing it: this effect may settle first
        again = effects.card_again(effect.aggregate_id, root, now_ms)
        return FollowUps((again, *notices, *dead_letter_card_updated(tx, effect)))
    if effect.state == "failed" or effect.effect_class != effects.RENDER:
        notices = (*notices, *outcome_notices(tx, effect, name or _(NAMES[effect.effect_class])))
    card = effects.card(effect.aggregate_id, root)
    return FollowUps((card, *notices, *more, *dead_letter_card_updated(tx, effect)))


def _approval_notice(tx: Tx, effect: Effect) -> tuple[EffectIntent, ...]:
    """Return the notice of the approval, in place of the comment of a PDF that is late, failed or was cancelled.

    It is enqueued once: from then on the PDF announces nothing. While the comment may be there already, there is no notice.
    """
    ended, waits = effect.state in ("failed", "discarded"), effect.state == "pending" and _is_late(effect)
    if not (ended or waits) or not announces(tx, effect):
        return ()
    root, text = quotes.root_effect_key(tx, effect.aggregate_id), messages.approved(enqueuing(tx, effect))
    return (effects.notice(effect.aggregate_id, root, text),)


def _is_late(effect: Effect) -> bool:
    """Return true if a pending effect waits for a refused login, or for its next attempt until long after it was enqueued."""
    due_at = effect.next_attempt_at
    return effect.category == Failure.AUTH.value or (due_at is not None and due_at - effect.created_at >= LATE_MS)


def _direct_notice(tx: Tx, effect: Effect, now_ms: int) -> tuple[EffectIntent, ...]:
    """Tell the approval to the person who asked for it, if its PDF is in a direct message that only the requester reads."""
    quote = enqueuing(tx, effect)
    asked_by = quote.requester if quote.approval is None else quote.approval.requested_by
    if not announces(tx, effect) or quote.card_channel is None or asked_by == quote.requester:
        return ()
    text = messages.sent_directly(quote, messages.approved(quote))
    return (effects.tell(quote.quote_id, asked_by, text, now_ms),)


def outcome_notices(tx: Tx, effect: Effect, name: str) -> tuple[EffectIntent, ...]:
    """Return a notice in the quote's thread if the effect failed, or was delivered after a replay; `name` begins its sentence."""
    failed, recovered = effect.state == "failed", effect.cycle > 1 and effect.state == "delivered"
    if not (failed or recovered):
        return ()
    quote = enqueuing(tx, effect)
    if failed:
        text = messages.dead_letter(name, effect.correlation_id, operator_messages.failure_words(effect.category), quote)
    else:
        text = operator_messages.recovered(name, quote, effect.correlation_id)
    return (effects.notice(effect.aggregate_id, quotes.root_effect_key(tx, effect.aggregate_id), text),)


def _looks_the_same(effect: Effect) -> bool:
    """Return true if the card would not change: after the first failure it already shows that the effect is retried.

    A wait that the external service asks for does not count as a failure.
    """
    if effect.state not in ("pending", "uncertain") or effect.category in (None, Failure.AUTH.value):
        return False
    return effect.attempts != 1 or effect.category == Failure.THROTTLED.value


TICKET, UPLOADED = "ticket", "uploaded"  # durable steps of an upload


class FileHandler(EffectHandler):
    """Uploads the file, and shares it in the thread with the last call."""

    effect_class: ClassVar = effects.FILE

    async def perform(self, effect: Effect) -> Settlement:
        """Share the file. Raises AdapterError."""
        quote = await self.services.quote(effect)
        if not await self.services.may_post_about(quote):
            return await slack_card.given_away(self.services.ledger, effect, quote)
        if (later := await self.services.pacer.put_off("files.completeUploadExternal", effect.id)) is not None:
            return later
        if UPLOADED not in effect.steps:
            effect = await self._upload(effect, quote)
        slack, file_id = self.services.adapters.slack, effect.steps[TICKET]["file_id"]
        try:
            async with self.services.pacer.place_in(quote.place) as busy:
                if busy is not None:
                    return busy
                told = await self.services.ledger.database.read(lambda tx: announces(tx, effect))
                completed = await slack.complete_upload(
                    file_id=file_id,
                    title=file_title(quote),
                    channel=quote.place,
                    thread_ts=quote.thread_ts,
                    comment=messages.pdf_comment(quote, announces=told),
                )
        except AdapterError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            shared = await slack.find_file(file_id=file_id, channel=quote.place)
            if shared is not None:
                return _shared(shared, already_there=True)  # completed by an earlier attempt
            # Slack has dropped the upload, or does not show it yet: it is looked up after the settle delay, then uploaded again.
            gone = _("Slack does not know the uploaded file; it is looked for once more before it is uploaded again.")
            raise AdapterError(Failure.TRANSIENT, "upload_gone", gone, possibly_applied=True) from error
        return _shared(completed, already_there=False)

    async def _upload(self, effect: Effect, quote: Quote) -> Effect:
        """Send the bytes. No one sees them before the completing call, so any failure here may be retried."""
        services = self.services
        effect, content = await Documents(services).content(effect, quote)
        try:
            ticket = await services.adapters.slack.upload_url(filename=file_name(quote), length=len(content))
            effect = await services.ledger.record_step(effect, TICKET, {"file_id": ticket.file_id})
            await services.adapters.slack.upload_bytes(ticket.upload_url, content)
        except AdapterError as error:
            error.possibly_applied = False
            raise
        return await services.ledger.record_step(effect, UPLOADED, {"bytes": len(content)})

    async def find(self, effect: Effect) -> Delivered | None:
        """Find the file by its id. One from a lost part of the ledger has another id, so it is found by its name as well."""
        slack, quote = self.services.adapters.slack, await self.services.quote(effect)
        shared = None
        if TICKET in effect.steps:
            shared = await slack.find_file(file_id=effect.steps[TICKET]["file_id"], channel=quote.place)
        if shared is None and effect.lost_from is not None and quote.thread_ts is not None:
            before = await self.services.ledger.database.read(lambda tx: tx.one("was_in_backup", operation_id=effect.operation_id))
            if before is not None:  # a new decision makes a new document
                shared = await slack.find_shared(
                    channel=quote.place,
                    thread_ts=quote.thread_ts,
                    filenames=(file_name(quote), f"{quote.quote_id}-v{quote.version}.pdf"),  # the second of earlier builds
                    oldest_seconds=earliest_attempt(effect, self.services.ledger.clock.now_ms()),
                )
        return None if shared is None else _shared(shared, already_there=True)

    def may_have_happened(self, effect: Effect) -> bool:
        """Return true from the completing call on: an upload shows nothing before it."""
        return super().may_have_happened(effect) and (UPLOADED in effect.steps or effect.lost_from is not None)

    @classmethod
    def follow_ups(cls, tx: Tx, effect: Effect, now_ms: int) -> FollowUps:
        """Return the redrawn card, or the new card if the thread was found gone."""
        if slack_card.was_replaced(effect):
            return slack_card.replaced(tx, effect, now_ms)
        if effect.state != "delivered":
            return of_approved(tx, effect, now_ms)
        remember(tx, effect, now_ms)
        marks = effects.mark_replaced(effect, announces=False) if enqueuing(tx, effect).superseded else ()
        return of_approved(tx, effect, now_ms, (*_direct_notice(tx, effect, now_ms), *marks))


def _shared(file: SharedFile, *, already_there: bool) -> Delivered:
    return Delivered(file.file_id, {"file_id": file.file_id, "permalink": file.permalink}, already_there=already_there)
