"""Tests of `quotebot report ...`, as people run it, without a running bot."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli import root, terminal
from quotebot.domain.language import _, use
from quotebot.domain.quotes.quote import QuoteState
from quotebot.domain.quotes.reports import ReportedQuote, report, wins_and_losses
from tests.quotebot.cli.conftest import begun_ledger
from tests.quotebot.parts import copy_data, tampered

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

REP, OTHER = ("--as", "U0REP"), ("--as", "U0OTHER")
WHERE = ("--channel", "C0DEALS", "--team", "T0QUOTE")
REPORTS = ("discounts", "cycle-time", "win-loss", "approvals", "pipeline")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with four quotes: accepted, lost, waiting for approval, and one of another rep in another currency."""
    folder = tmp_path_factory.mktemp("made") / "bot"
    begun_ledger(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUOTEBOT_DATA_DIR", str(folder))
        patch.setenv("QUOTEBOT_CLI_OPERATORS", json.dumps([terminal.user()]))
        patch.chdir(folder)
        for arguments in (
            ("new", "for Acme: 10 pro; term 12m; discount 5%", *WHERE, *REP),
            ("submit", "Q-2026-0001", *REP),
            ("finalize", "Q-2026-0001", *REP),
            ("sent", "Q-2026-0001", "--to", "buyer@example.com", *REP),
            ("accept", "Q-2026-0001", *REP),
            ("new", "for =HYPERLINK(1): 20 sso; term 12m", *WHERE, *REP),
            ("submit", "Q-2026-0002", *REP),
            ("finalize", "Q-2026-0002", *REP),
            ("sent", "Q-2026-0002", "--to", "buyer@example.com", *REP),
            ("lost", "Q-2026-0002", "--reason", "price", *REP),
            ("new", "for Beta: 100 pro, 1 support; term 12m; discount 15%", *WHERE, *REP),
            ("submit", "Q-2026-0003", *REP),
            ("new", "for Gamma: 10 pro; term 12m; currency EUR; payment net 45; po 4711", *WHERE, *OTHER),
        ):
            assert root.run(("quote", *arguments)) == 0, arguments
    tampered(folder / "ledger.db", "UPDATE quote_sendings SET sent_at = sent_at + 7200000")
    tampered(folder / "ledger.db", "UPDATE quote_closings SET closed_at = closed_at + 43200000")
    return folder


@pytest.fixture
def ledger(tmp_path: Path, made: Path) -> Path:
    """Return the ledger of a copy of that data folder, where `command` finds it."""
    copy_data(made, tmp_path / "bot")
    return tmp_path / "bot" / "ledger.db"


def rows(command: Run, *arguments: str) -> list[dict[str, Any]]:
    done = command("report", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


def test_discounts_are_reported_by_person_and_currency(command: Run, ledger: Path) -> None:
    found = rows(command, "discounts")
    assert [(row["rep"], row["currency"], row["quotes"]) for row in found] == [("U0OTHER", "EUR", 1), ("U0REP", "USD", 3)]
    listed, net = 1200 + 480 + 7200 + 500 * 12, 1140 + 480 + (7200 + 500 * 12) * 0.85
    assert (float(found[1]["list_total"]), float(found[1]["net_total"])) == pytest.approx((listed, net))
    assert found[1]["discount_percent"] == f"{(listed - net) * 100 / listed:.2f}"


def test_discounts_by_product_split_each_quote_among_its_products(command: Run, ledger: Path) -> None:
    found = {(row["product"], row["currency"]): row for row in rows(command, "discounts", "--by", "product")}
    assert set(found) == {("pro", "EUR"), ("pro", "USD"), ("sso", "USD"), ("support", "USD")}
    assert (found["pro", "USD"]["quotes"], found["sso", "USD"]["discount_percent"]) == (2, "0.00")


def test_wins_and_losses_have_a_rate_and_the_reasons(command: Run, ledger: Path) -> None:
    by_rep = {row["rep"]: row for row in rows(command, "win-loss")}
    found = by_rep["U0REP"]
    assert (found["accepted"], found["lost"], found["open"], found["win_rate_percent"]) == (1, 1, 1, "50.00")
    assert (found["accepted_net"], found["lost_net"], found["reasons"]) == ("1140.00", "480.00", "Price (1)")
    assert by_rep["U0OTHER"]["win_rate_percent"] is None  # nothing has ended


def test_reasons_are_english_in_every_language_but_for_people() -> None:
    quote = ReportedQuote("Q-1", 1, QuoteState.LOST, "Acme", "U0REP", 0, "USD", 12, Decimal(10), Decimal(10), ())
    quotes = [quote, quote, replace(quote, closing_reason="price: too high")]
    use("de", {"no reason": "ohne Grund", "Price": "Preis"})
    assert wins_and_losses(quotes, "rep").records()[0]["reasons"] == "no reason (2); Price (1)"
    assert report("win-loss", quotes, "rep", _).records()[0]["reasons"] == "ohne Grund (2); Preis (1)"


def test_the_pipeline_holds_the_open_quotes_by_state(command: Run, ledger: Path) -> None:
    assert [(row["rep"], row["state"], row["currency"], row["quotes"]) for row in rows(command, "pipeline")] == [
        ("U0OTHER", "priced", "EUR", 1),
        ("U0REP", "pending_approval", "USD", 1),
    ]


def test_approvals_are_reported_by_the_role_that_was_asked(command: Run, ledger: Path) -> None:
    found = {row["role"]: row for row in rows(command, "approvals")}
    assert (found["nobody"]["automatic"], found["sales_manager"]["pending"]) == (2, 1)
    assert [row["rep"] for row in rows(command, "approvals", "--by", "rep")] == ["U0REP"]


def test_cycle_times_are_medians_in_hours(command: Run, ledger: Path) -> None:
    found = {row["span"]: row for row in rows(command, "cycle-time")}
    assert (found["created_to_sent"]["quotes"], found["created_to_sent"]["median_hours"]) == (2, "2.0")
    assert found["sent_to_closed"]["median_hours"] == "10.0"


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_is_a_table_csv_or_json_of_the_same_rows(command: Run, ledger: Path, name: str) -> None:
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows(command, name)]
    assert list(csv.DictReader(io.StringIO(command("report", name, "--csv").stdout))) == expected
    assert len(command("report", name).stdout.splitlines()) >= len(expected) + 1
    assert command("report", name, "--csv", "--json").returncode == 64


def test_an_export_holds_every_quote_and_no_formula(command: Run, ledger: Path) -> None:
    found = list(csv.DictReader(io.StringIO(command("report", "quotes").stdout)))
    assert [(row["quote_id"], row["state"], row["net_total"]) for row in found][:2] == [
        ("Q-2026-0001", "accepted", "1140.00"),
        ("Q-2026-0002", "lost", "480.00"),
    ]
    assert found[1]["account"] == "'=HYPERLINK(1)"  # a spreadsheet does not compute it
    assert (found[3]["payment_days"], found[3]["po_number"], found[3]["billing_frequency"]) == ("45", "4711", "upfront")
    assert [row["loss_category"] for row in found] == ["", "price", "", ""]
    lines = list(csv.DictReader(io.StringIO(command("report", "quotes", "--lines").stdout)))
    assert [(row["quote_id"], row["sku"], row["quantity"]) for row in lines if row["quote_id"] == "Q-2026-0003"] == [
        ("Q-2026-0003", "pro", "100"),
        ("Q-2026-0003", "support", "1"),
    ]


def test_a_period_selects_by_the_day_of_creation(command: Run, ledger: Path) -> None:
    assert rows(command, "pipeline", "--until", "2020-12-31") == []
    assert "nothing to report" in command("report", "pipeline", "--until", "2020-12-31").stderr
    assert command("report", "pipeline", "--since", "2026-12-02", "--until", "2026-12-01").returncode == 64
