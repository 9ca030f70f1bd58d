"""Tests that the suites' bots print with the shipped renderer, started by a fork."""

from __future__ import annotations

import os

import pytest

import adapters.pdf.renderer
from adapters.pdf.renderer import DocumentLine, PdfRenderer, QuoteDocument
from faults.harness import printers
from faults.harness.fork_server import FOLDER_VARIABLE, leave_fork_servers, was_left
from faults.harness.rig import eventually
from faults.scenarios.pdf import processes
from quotebot.views.document import named_texts
from quotebot.views.document_texts import ENGLISH

DOCUMENT = QuoteDocument(
    title="Quote",
    quote_id="Q-2026-0042",
    version="3",
    account="Northwind",
    issued_on="3 March 2026",
    valid_until="2 April 2026",
    prepared_by="Regional sales",
    currency="USD",
    term="12 months",
    lines=(DocumentLine("1", "Pro", "pro", "billed monthly", "150", "12 months", "6.00", "", "10,800.00"),),
    unit_price_title="USD per unit/month",
    amount_title="Amount, USD",
    list_total="10,800.00 USD",
    discount_label="Discount (0 %)",
    discount_total="",
    net_total="10,800.00 USD",
    terms=("Payment is due within 30 days.",),
    acceptance="By signing, both parties agree.",
    seller_name="Acme Software Ltd",
    seller_lines=("100 Harbour Street, Dublin 2",),
    accent="#1f4e79",
    created_at="2026-03-03T09:30:00Z",
    texts=named_texts(ENGLISH),
)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_a_fork(pid: int | None) -> bool:
    return any("faults.harness.fork_server" in arguments for found, _, arguments in processes() if found == pid)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a fork server of printers for this test, even if one was left before."""
    monkeypatch.setenv(FOLDER_VARIABLE, "")
    assert not was_left(printers.WARM)
    leave_fork_servers((printers.WARM, None))
    assert was_left(printers.WARM)


@pytest.mark.usefixtures("left")
async def test_a_forked_renderer_prints_the_bytes_of_the_shipped_one_and_ends_with_its_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, forked = PdfRenderer(), PdfRenderer()
    expected = await shipped.render(DOCUMENT)
    monkeypatch.setattr(adapters.pdf.renderer, "start_worker", printers.start_worker)
    found = await forked.render(DOCUMENT)
    pids = [renderer.child_pid for renderer in (shipped, forked)]
    forks = [is_a_fork(pid) for pid in pids]
    await shipped.close()
    await forked.close()

    assert found == expected
    assert forks == [False, True]
    for pid in pids:
        assert pid is not None
        await eventually(lambda pid=pid: not lives(pid), "the renderer to be gone")  # type: ignore[misc] # of this turn
