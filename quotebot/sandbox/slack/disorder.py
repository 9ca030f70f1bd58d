"""What a network does to the order of things: an envelope that another one overtakes, an acknowledgement that comes late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.sandbox.faults import ArmedFaults


class Disorder:
    """Takes the faults `out_of_order` and `delay_ack` of the socket, and holds back what they strike."""

    def __init__(self, weather: ArmedFaults) -> None:
        self._weather = weather
        self._overtaken: list[asyncio.Event] = []  # one per envelope that is held back

    async def before_sending(self, kind: str) -> None:
        """Hold an envelope back until another one was sent, for `delay` seconds at most. Its patience begins after that."""
        fault = self._weather.take("socket", kind, only=frozenset({"out_of_order"}))
        if fault is None:
            return
        overtaken = asyncio.Event()
        self._overtaken.append(overtaken)
        try:
            async with asyncio.timeout(fault.delay):
                await overtaken.wait()
        except TimeoutError:
            return
        finally:
            self._overtaken.remove(overtaken)

    def sent(self) -> None:
        """Let go of what was waiting to be overtaken."""
        for overtaken in self._overtaken:
            overtaken.set()

    def ack_delay(self, kind: str) -> float:
        """Return how many seconds late an acknowledgement is to arrive; 0: in time."""
        fault = self._weather.take("socket", kind, only=frozenset({"delay_ack"}))
        return 0.0 if fault is None else fault.delay
