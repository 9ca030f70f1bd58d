"""A performer whose every answer is written down beforehand, and the hands to run it through the real dispatcher."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from adapters.failures import AdapterError, Failure
from adapters.policies import POLICIES, Matrix, policy_for
from ledger.records import Delivered, EffectIntent, FollowUps, Outcome
from quotebot.commands.registry import SubmitQuote
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.worker_loop import POLL_SECONDS
from tests.quotebot.parts import request_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledger.database import Tx
    from ledger.records import Effect
    from tests.quotebot.parts import Bench

SETTLE_SECONDS = 30.0
DONE = Delivered("17.5", {"ts": "17.5"})

Answer = Delivered | Exception


def transient(*, possibly_applied: bool = False) -> AdapterError:
    return AdapterError(Failure.TRANSIENT, "timeout", "No answer.", possibly_applied=possibly_applied)


def lost() -> AdapterError:
    """The answer got lost: it may have been done."""
    return transient(possibly_applied=True)


class Scripted:
    """Performs by the script. An answer may be a function of the effect; an empty script is a mistake of the test."""

    def __init__(self) -> None:
        self.sends: deque[Answer | Callable[[Effect], Awaitable[Delivered]]] = deque()
        self.looks: deque[Delivered | Exception | None] = deque()
        self.sent: list[str] = []
        self.looked: list[str] = []
        self.started_over: list[str] = []
        self.visible = True

    async def perform(self, effect: Effect) -> Delivered:
        self.sent.append(effect.target)
        answer = self.sends.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Delivered) else await answer(effect)

    async def find(self, effect: Effect) -> Delivered | None:
        self.looked.append(effect.target)
        answer = self.looks.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def may_have_happened(self, effect: Effect) -> bool:
        del effect
        return self.visible

    async def start_over(self, effect: Effect) -> None:
        self.started_over.append(effect.target)

    def follow_ups(self, tx: Tx, effect: Effect) -> FollowUps:
        del tx, effect
        return FollowUps()


class Round:
    """One ledger, one scripted performer, one dispatcher. `draws` are the ranges jitter was drawn from."""

    def __init__(self, bench: Bench, *, highest: bool = True, poll_seconds: float = POLL_SECONDS) -> None:
        self.bench = bench
        self.performer = Scripted()
        self.draws: list[tuple[float, float]] = []
        self._highest = highest
        self.dispatcher = Dispatcher(
            bench.ledger,
            self.performer,
            self._draw,
            Matrix(POLICIES),
            settle_delay_seconds=SETTLE_SECONDS,
            poll_seconds=poll_seconds,
        )

    async def owe(self, effect_class: str, target: str = "t", *, expires_at: int | None = None) -> None:
        """Owe one effect, by way of a completed operation."""
        reserved = await self.bench.ledger.reserve(request_for(SubmitQuote(), f"{effect_class}:{target}", quote_id=f"Q-{target}"))
        claimed = await self.bench.ledger.claim_operation()
        assert claimed is not None
        assert claimed.id == reserved.operation.id
        intent = EffectIntent(
            effect_class, policy_for(effect_class).semantics, target, f"Q-{target}", {"what": "test"}, expires_at=expires_at
        )
        await self.bench.ledger.execute(claimed, lambda _: Outcome("applied", {"text": "ok"}, (intent,)))

    async def step(self) -> int:
        """Work off what is due now; return how many attempts that were."""
        started = await self.dispatcher.step()
        await self.dispatcher.drain(5.0)
        return started

    async def next_step(self) -> int:
        """Let time pass exactly until the next row is due, proving that nothing is done a millisecond earlier."""
        due = self.row()["next_attempt_at"]
        assert due is not None
        wait = due - self.bench.clock.now_ms()
        if wait > 0:
            self.bench.clock.advance(wait - 1)
            assert await self.step() == 0
            self.bench.clock.advance(1)
        return await self.step()

    def row(self, target: str = "t") -> dict[str, Any]:
        """Return the effect with this target."""
        return self.bench.row("SELECT * FROM effects WHERE target = ?", target)

    def state(self, target: str = "t") -> tuple[str, int]:
        """Return state and burnt attempts."""
        row = self.row(target)
        return row["state"], row["attempts"]

    def delay(self, target: str = "t") -> int:
        """Return how many milliseconds the row sleeps from now."""
        due: int = self.row(target)["next_attempt_at"]
        return due - self.bench.clock.now_ms()

    def _draw(self, low: float, high: float) -> float:
        self.draws.append((low, high))
        return high if self._highest else low
