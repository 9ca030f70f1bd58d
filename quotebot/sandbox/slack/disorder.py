"""Reordering by the network: an envelope that is overtaken by another one, an acknowledgement that arrives late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quotebot.sandbox.faults import ArmedFaults


class Disorder:
    """Applies the socket's faults `out_of_order` and `delay_ack`, by delaying the affected envelopes and acks."""

    def __init__(self, weather: ArmedFaults) -> None:
        self._weather = weather
        self._overtaken: list[asyncio.Event] = []  # one per delayed envelope

    async def before_sending(self, kind: str) -> None:
        """Delay an envelope until another one was sent, for `delay` seconds at most. Its ack timeout starts after that."""
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
        """Release the envelopes that wait to be overtaken."""
        for overtaken in self._overtaken:
            overtaken.set()

    def ack_delay(self, kind: str) -> float:
        """Return by how many seconds an acknowledgement is delayed; 0 for none."""
        fault = self._weather.take("socket", kind, only=frozenset({"delay_ack"}))
        return 0.0 if fault is None else fault.delay
