"""Payloads of extraction commands: send one message to the model, and answer its author. Only the bot sends the latter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    Stored = Mapping[str, Any]

ANSWER_MS: Final = 45_000  # time limit of the model, after which fixed rules answer


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """Extraction by the model of a message that fixed rules do not understand completely, to answer its author.

    It creates no quote.
    """

    kind: ClassVar[str] = "message.read"
    schema: ClassVar[int] = 1
    text: str
    channel: str
    thread_ts: str | None = None

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "text": self.text, "channel": self.channel, "thread_ts": self.thread_ts}

    @classmethod
    def parse(cls, stored: Stored) -> ReadMessage:
        """Rebuild from the canonical form of this schema version."""
        thread_ts = stored["thread_ts"]
        return cls(str(stored["text"]), str(stored["channel"]), None if thread_ts is None else str(thread_ts))


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """Answer to the author of a message, from the model's extraction or else from fixed rules. Only the first answer counts.

    `reading` is the operation key of the `ReadMessage`.
    """

    kind: ClassVar[str] = "message.answer"
    schema: ClassVar[int] = 1
    reading: str

    def canonical(self) -> dict[str, object]:
        """Return the JSON-ready form that is stored and hashed."""
        return {"v": self.schema, "reading": self.reading}

    @classmethod
    def parse(cls, stored: Stored) -> AnswerMessage:
        """Rebuild from the canonical form of this schema version."""
        return cls(str(stored["reading"]))


ReadingPayload = ReadMessage | AnswerMessage
