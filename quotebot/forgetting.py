"""What is done and old is forgotten: the ledger's rows and what the bot keeps about them; by its job as by `ledger prune`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from ledger.retention import Purged, purge, quiet
from ledger.settlement import QUOTEBOT
from quotebot.store import letters

if TYPE_CHECKING:
    from ledger.database import Tx
    from ledger.ledger import Ledger
    from ledger.retention import Progress

FORGOTTEN_AT_ONCE: Final = 100  # in one transaction


@dataclass(frozen=True, slots=True)
class Forgotten(Purged):
    """How many rows were deleted, or would be. Of a dry run, `letter_cards` are those whose letter is gone already."""

    letter_cards: int = 0


async def forget(ledger: Ledger, now: int, *, dry_run: bool, progress: Progress = quiet, actor: str = QUOTEBOT) -> Forgotten:
    """Delete what may go (see ledger.retention.purge), then the cards of dead letters that went; `dry_run` only counts."""
    purged = await purge(ledger, now, dry_run=dry_run, progress=progress, actor=actor)
    if dry_run:
        cards = await ledger.database.read(letters.orphans)
    else:
        cards = await forget_cards(ledger, actor)
    return Forgotten(**asdict(purged), letter_cards=cards)


async def forget_cards(ledger: Ledger, actor: str = QUOTEBOT) -> int:
    """Forget the cards of letters that are purged, in batches, audited; returns how many those were."""
    actor_type = "system" if actor == QUOTEBOT else "operator"

    def work(tx: Tx) -> int:
        gone = letters.forget(tx, FORGOTTEN_AT_ONCE)
        if gone:
            after = {"letter_cards": gone}
            ledger.audit.append(tx, ledger.clock.now_ms(), "retention.purged", actor=actor, actor_type=actor_type, after=after)
        return gone

    forgotten = 0
    while gone := await ledger.database.write("letters.forget", work):
        forgotten += gone
    return forgotten
