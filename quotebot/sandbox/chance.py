"""Source of every id, secret and random choice of the local world: random, or seeded if a run must repeat exactly."""

from __future__ import annotations

import base64
import random
import uuid
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
_SHORT_ID_LENGTH = 5


class Tokens:
    """Random values in the vendors' formats. Unseeded, no two worlds ever send a bot's ledger the same request id."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._source = random.SystemRandom() if source is None else source

    @classmethod
    def seeded(cls, seed: int) -> Tokens:
        """Return a source that gives the same values every time."""
        return cls(random.Random(seed))  # noqa: S311 -- to repeat a run, not to keep a secret

    def hex(self, size: int) -> str:
        """Return `size` random bytes as lower-case hexadecimal digits."""
        return self._source.randbytes(size).hex()

    def urlsafe(self, size: int) -> str:
        """Return `size` random bytes as text that may stand in a URL."""
        return base64.urlsafe_b64encode(self._source.randbytes(size)).rstrip(b"=").decode()

    def uuid(self) -> str:
        """Return a random UUID."""
        return str(uuid.UUID(bytes=self._source.randbytes(16), version=4))

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to below `limit`."""
        return self._source.randrange(limit)

    def choice(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return self._source.choice(options)

    def object_id(self, prefix: str) -> str:
        """Return an object id such as F3K9..., upper-case."""
        return f"{prefix}{self.hex(5).upper()}"

    def short_id(self) -> str:
        """Return an id such as Slack gives to a block without a block_id."""
        return self.urlsafe(4)[:_SHORT_ID_LENGTH]
