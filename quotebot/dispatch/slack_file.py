"""Effect class slack.file: the upload of a rendered PDF into the quote's thread.

An upload has three calls. Nobody sees the file before the last one, so each earlier failure may be retried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from adapters.failures import AdapterError, Failure
from ledger.records import Delivered, FollowUps
from quotebot import effects
from quotebot.dispatch import slack_card
from quotebot.dispatch.pdf_render import Documents, of_approved, remember
from quotebot.dispatch.services import EffectHandler, earliest_attempt
from quotebot.views import messages
from quotebot.views.document import file_title

if TYPE_CHECKING:
    from adapters.slack.api import SharedFile
    from ledger.database import Tx
    from ledger.records import Effect, Settlement
    from quotebot.domain.quotes.quote import Quote

TICKET, UPLOADED = "ticket", "uploaded"  # durable steps of an upload


class FileHandler(EffectHandler):
    """Uploads the file, and shares it in the thread with the last call."""

    effect_class: ClassVar = effects.FILE

    async def perform(self, effect: Effect) -> Settlement:
        """Share the file. Raises AdapterError."""
        quote = await self.services.quote(effect)
        if not await self.services.may_post_about(quote):
            return await slack_card.given_away(self.services.ledger, effect, quote)
        if UPLOADED not in effect.steps:
            effect = await self._upload(effect, quote)
        slack, file_id = self.services.adapters.slack, effect.steps[TICKET]["file_id"]
        try:
            completed = await slack.complete_upload(
                file_id=file_id,
                title=file_title(quote),
                channel=quote.place,
                thread_ts=quote.thread_ts,
                comment=messages.pdf_comment(quote),
            )
        except AdapterError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            shared = await slack.find_file(file_id=file_id, channel=quote.place)
            if shared is not None:
                return _shared(shared, already_there=True)  # completed by an earlier attempt
            # Slack has dropped the upload, or does not show it yet: it is looked up after the settle delay, then uploaded again.
            gone = "Slack does not know the uploaded file; it is looked for once more before it is uploaded again."
            raise AdapterError(Failure.TRANSIENT, "upload_gone", gone, possibly_applied=True) from error
        return _shared(completed, already_there=False)

    async def _upload(self, effect: Effect, quote: Quote) -> Effect:
        """Send the bytes. No one sees them before the completing call, so any failure here may be retried."""
        services = self.services
        effect, content = await Documents(services).content(effect, quote)
        try:
            ticket = await services.adapters.slack.upload_url(filename=_filename(quote), length=len(content))
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
                    filename=_filename(quote),
                    oldest_seconds=earliest_attempt(effect),
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
        if effect.state == "delivered":
            remember(tx, effect, now_ms)
        return of_approved(tx, effect, now_ms)


def _filename(quote: Quote) -> str:
    return f"{quote.quote_id}-v{quote.version}.pdf"


def _shared(file: SharedFile, *, already_there: bool) -> Delivered:
    return Delivered(file.file_id, {"file_id": file.file_id, "permalink": file.permalink}, already_there=already_there)
