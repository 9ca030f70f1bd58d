"""Documents of quote versions: rendered unless they are stored already, and read back for an upload."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.failures import AdapterError, Failure
from adapters.pdf.renderer import render_key
from ledger.records import Delivered
from quotebot.store import artefacts as store
from quotebot.store import quotes
from quotebot.store.artefacts import Artefact
from quotebot.views.document import quote_document

if TYPE_CHECKING:
    from adapters.artefacts import Artefacts
    from adapters.pdf.renderer import PdfRenderer, QuoteDocument
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.records import Effect
    from quotebot.domain.quotes.quote import Quote
    from quotebot.views.document import Seller

RENDERED: Final = "rendered"  # durable step of an upload whose file was lost and rendered again with other bytes


@dataclass(frozen=True, slots=True)
class Documents:
    """Source of documents: the store if it holds them intact; otherwise the renderer, whose output is then stored."""

    ledger: Ledger
    pdf: PdfRenderer
    artefacts: Artefacts
    seller: Seller

    async def render(self, quote: Quote) -> Delivered:
        """Return the document of a quote version as a stored file. An existing file is not rendered again."""
        document = self._document(quote)
        key = render_key(document)
        known = await self.ledger.database.read(lambda tx: store.of_key(tx, key))
        if known is not None and await self._stored(known.sha256) is not None:
            return _delivered(known.sha256, known.pages, key, already_there=True)
        rendered = await self.pdf.render(document)
        sha256 = await asyncio.to_thread(self.artefacts.put, rendered.content)
        return _delivered(sha256, rendered.pages, key, already_there=False)

    async def content(self, effect: Effect, quote: Quote) -> tuple[Effect, bytes]:
        """Return the bytes to upload, rendered again if the store has lost them. Different bytes are recorded as a step."""
        asked: str = effect.steps.get(RENDERED, effect.payload)["sha256"]
        content = await self._stored(asked)
        if content is not None:
            return effect, content
        document = self._document(quote)
        rendered = await self.pdf.render(document)
        sha256 = await asyncio.to_thread(self.artefacts.put, rendered.content)
        if sha256 != asked:
            made = _delivered(sha256, rendered.pages, render_key(document), already_there=False)
            effect = await self.ledger.record_step(effect, RENDERED, made.result)
        return effect, rendered.content

    async def restore(self, lost: Artefact) -> bool:
        """Render a lost file again and store it; false if the same bytes can no longer be produced. Raises AdapterError."""
        quote = await self.ledger.database.read(lambda tx: quotes.load_version(tx, lost.quote_id, lost.version))
        if quote is None:
            return False
        rendered = await self.pdf.render(self._document(quote))
        if rendered.sha256 != lost.sha256:
            return False
        await asyncio.to_thread(self.artefacts.put, rendered.content)
        return True

    def _document(self, quote: Quote) -> QuoteDocument:
        return quote_document(quote, self.seller, quote.requester_name)

    async def _stored(self, sha256: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self.artefacts.get, sha256)
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
    store.remember(tx, Artefact(made["render_key"], made["sha256"], effect.aggregate_id, version, made["pages"], now_ms))


def _delivered(sha256: str, pages: int, key: str, *, already_there: bool) -> Delivered:
    return Delivered(sha256, {"sha256": sha256, "pages": pages, "render_key": key}, already_there=already_there)
