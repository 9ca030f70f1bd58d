"""A scripted performer, and a harness that runs it through the real dispatcher."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from adapters.failures import AdapterError, Failure
from adapters.policies import POLICIES, Matrix, policy_for
from ledger.records import Delivered, EffectIntent, FollowUps, Outcome
from quotebot.commands.payloads import SubmitQuote
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
    return AdapterError(Failure.TRANSIENT, "network", "No answer.", possibly_applied=possibly_applied)


def lost() -> AdapterError:
    """Return the error of a lost answer: the call may have been applied."""
    return transient(possibly_applied=True)


class Scripted:
    """Performer with scripted results. A result may be a function of the effect; an empty script is an error of the test."""

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
    """One ledger, one scripted performer, one dispatcher. `draws` are the ranges from which jitter was drawn."""

    def __init__(
        self, bench: Bench, *, highest: bool = True, poll_seconds: float = POLL_SECONDS, trusted: Callable[[], bool] = lambda: True
    ) -> None:
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
            trusted=trusted,
        )

    async def owe(
        self,
        effect_class: str,
        target: str = "t",
        *,
        expires_at: int | None = None,
        payload: dict[str, Any] | None = None,
    ) -> None:
        """Enqueue one effect, with a completed operation."""
        reserved = await self.bench.ledger.reserve(request_for(SubmitQuote(), f"{effect_class}:{target}", quote_id=f"Q-{target}"))
        claimed = await self.bench.ledger.claim_operation()
        assert claimed is not None
        assert claimed.id == reserved.operation.id
        intent = EffectIntent(
            effect_class,
            policy_for(effect_class).semantics,
            target,
            f"Q-{target}",
            payload or {"what": "test"},
            expires_at=expires_at,
        )
        await self.bench.ledger.execute(claimed, lambda _: Outcome("applied", {"text": "ok"}, (intent,)))

    async def step(self) -> int:
        """Execute the effects that are due now; return the number of attempts."""
        started = await self.dispatcher.step()
        await self.dispatcher.drain(5.0)
        return started

    async def next_step(self) -> int:
        """Advance the clock exactly to the next due time, and check that nothing happens a millisecond earlier."""
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
        """Return the state and the number of used attempts."""
        row = self.row(target)
        return row["state"], row["attempts"]

    def delay(self, target: str = "t") -> int:
        """Return the milliseconds until the row is due."""
        due: int = self.row(target)["next_attempt_at"]
        return due - self.bench.clock.now_ms()

    def _draw(self, low: float, high: float) -> float:
        self.draws.append((low, high))
        return high if self._highest else low
