"""Parser for `/quote digest on` and `/quote digest off`: a message on working mornings with the person's work queue."""

from __future__ import annotations

from dataclasses import dataclass

from quotebot.domain.language import _
from quotebot.slack.grammar import GrammarProblem


@dataclass(frozen=True, slots=True)
class DigestRequest:
    """Request for the daily digest, or for its end."""

    wanted: bool


def read_digest(rest: str) -> DigestRequest | GrammarProblem:
    """Parse the text after the verb."""
    word = rest.strip().casefold()
    if word in ("on", "off"):
        return DigestRequest(word == "on")
    return GrammarProblem(
        _("Type `/quote digest on` for your work queue as a message each working morning, or `/quote digest off`.")
    )
