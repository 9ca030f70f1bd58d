"""Payloads of extraction commands: send one message to the model, and answer its author. Only the bot sends the latter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from quotebot.commands.payload import StoredPayload

ANSWER_MS: Final = 45_000  # time limit of the model, after which fixed rules answer


@dataclass(frozen=True, slots=True)
class ReadMessage(StoredPayload):
    """Extraction by the model of a message that fixed rules do not understand completely, to answer its author.

    It creates no quote.
    """

    kind: ClassVar[str] = "message.read"
    text: str
    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerMessage(StoredPayload):
    """Answer to the author of a message, from the model's extraction or else from fixed rules. Only the first answer counts.

    `reading` is the operation key of the `ReadMessage`.
    """

    kind: ClassVar[str] = "message.answer"
    reading: str


ReadingPayload = ReadMessage | AnswerMessage
