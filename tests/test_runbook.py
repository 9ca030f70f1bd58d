"""Tests of every block of docs/runbook.md, run from top to bottom against one live sandbox with that incident."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import quotebot
from tests.quotebot.parts import reshaped, tampered
from tests.rig import eventually, read_ledger
from tests.runbook import Block, Line, Live, blocks, missing

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

PAGE: Final = Path(__file__).parent.parent / "docs" / "runbook.md"
KEPT: Final = "kept.db"
SLEEPER: Final = (
    "UPDATE effects SET state = 'pending', finished_at = NULL, after_id = (SELECT min(id) FROM effects WHERE state = 'delivered') "
    "WHERE id = (SELECT max(id) FROM effects WHERE state = 'failed')"
)


def column(live: Live, sql: str) -> list[str]:
    """Return the only column of a query on the ledger's file."""
    return [str(value) for row in read_ledger(live.data / "ledger.db", sql) for value in row.values()]


def newest_quote(live: Live) -> str:
    return column(live, "SELECT max(quote_id) FROM quotes")[0]


def given_up(live: Live, deals: int) -> list[str]:
    """Make deals while Salesforce is down; return the dead letters."""
    live.wait(live.deal.arm("salesforce", "5xx", seconds=60))
    for _ in range(deals):
        live.wait(live.deal.approved_deal())
    live.wait(live.deal.clear_faults())
    return column(live, "SELECT id FROM effects WHERE state = 'failed' ORDER BY id")


def the_bot_dies(live: Live) -> None:
    live.stop()


def two_are_given_up(live: Live) -> None:
    first, second = given_up(live, 2)
    (quote,) = column(live, f"SELECT aggregate_id FROM effects WHERE id = {int(first)}")  # noqa: S608 -- a number
    live.examples.update({"118": first, "119": second, "Q-2026-0042": quote})


def one_is_in_doubt(live: Live) -> None:
    live.examples["118"] = given_up(live, 1)[-1]
    live.stop()
    tampered(live.data / "ledger.db", "UPDATE effects SET category = 'uncertain', maybe_sent = 1 WHERE state = 'failed'")
    live.start()


def salesforce_refuses(live: Live) -> None:
    live.wait(live.deal.settled())
    live.wait(live.deal.arm("salesforce", "auth_expired", seconds=60))
    live.wait(live.deal.submitted_deal())
    live.wait(live.deal.click("approval.approve", user="U0MANAGER"))
    held(live, "crm")


def slack_refuses(live: Live) -> None:
    live.wait(live.deal.settled())
    live.wait(live.deal.arm("slack", "auth_expired", seconds=60))
    live.wait(live.deal.slash())
    held(live, "slack")


def held(live: Live, family: str) -> None:
    """Wait until the bot has held the family."""
    names = "SELECT name FROM gates WHERE state = 'held'"
    live.wait(eventually(lambda: family in column(live, names), f"{family} to be held"))


def they_let_us_in(live: Live) -> None:
    live.wait(live.deal.clear_faults())


def one_sleeps(live: Live) -> None:
    live.wait(live.deal.settled())
    live.examples["118"] = given_up(live, 1)[-1]
    live.stop()
    tampered(live.data / "ledger.db", SLEEPER)
    live.start()


def wrong_prices(live: Live) -> None:
    sample = (Path(quotebot.__file__).parent / "data" / "catalogue.toml").read_text("utf-8")
    (live.folder / "wrong.toml").write_text(
        sample.replace('version = "1"', 'version = "2"').replace("price = 500 }", "price = 50 }")
    )
    assert [live.run(f"quotebot catalog {asked}")[0] for asked in ("import wrong.toml", "activate 2")] == [0, 0]
    live.wait(live.deal.slash("new for Beta: 150 pro; discount 5%"))
    live.wait(live.deal.settled())
    live.examples["Q-2026-0042"] = newest_quote(live)


def an_approver_leaves(live: Live) -> None:
    live.wait(live.deal.settled())
    live.wait(live.deal.submitted_deal())
    live.examples["Q-2026-0042"] = newest_quote(live)


def somebody_forges(live: Live) -> None:
    live.wait(live.deal.settled())
    live.stop()
    shutil.copy(live.data / "ledger.db", KEPT)
    # A bot does not start on it: the changed event is among the newest, which every start verifies.
    tampered(live.data / "ledger.db", "UPDATE audit_events SET actor = 'nobody' WHERE id = 3")


def what_it_was(live: Live) -> None:
    """Restore the ledger from before the damage."""
    for file in live.data.glob("ledger.db-*"):
        file.unlink()
    shutil.copy(KEPT, live.data / "ledger.db")


def the_disk_dies(live: Live) -> None:
    live.wait(live.deal.settled())
    assert live.run("quotebot backup")[0] == 0
    newest = max((live.data / "backups").glob("*.db"))
    live.examples["ledger-20261121T215000Z.db"] = newest.name
    live.stop()
    with (live.data / "ledger.db").open("r+b") as file:
        for page in range(8, 24):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)


def a_trigger_is_planted(live: Live) -> None:
    live.wait(live.deal.settled())
    assert live.run("quotebot backup")[0] == 0
    live.examples["ledger-20261121T215000Z.db"] = max((live.data / "backups").glob("*.db")).name
    live.stop()
    reshaped(live.data / "ledger.db", "CREATE TRIGGER quick AFTER INSERT ON quotes BEGIN DELETE FROM gates; END")


# The incident before each block of the page, by its heading and its number under that heading.
BEFORE: Final[dict[tuple[str, int], Callable[[Live], None]]] = {
    ("The bot is down", 1): the_bot_dies,
    ("A dead letter", 1): two_are_given_up,
    ("A row is in doubt", 1): one_is_in_doubt,
    ("Salesforce refuses the login", 1): salesforce_refuses,
    ("Salesforce refuses the login", 2): they_let_us_in,
    ("Slack revoked a token", 1): slack_refuses,
    ("Slack revoked a token", 2): they_let_us_in,
    ("A row is stuck", 1): one_sleeps,
    ("Wrong prices were activated", 1): wrong_prices,
    ("Somebody has left", 1): an_approver_leaves,
    ("The audit does not verify", 1): somebody_forges,
    ("The audit does not verify", 2): what_it_was,
    ("The file is damaged", 1): the_disk_dies,
    ("The schema was changed", 1): a_trigger_is_planted,
}


def run_block(live: Live, block: Block) -> list[str]:
    """Run one block; return the differences from the page."""
    happens = BEFORE.get((block.heading, block.number))
    if happens is not None:
        happens(live)
    wrong = []
    for line in block.lines:
        status, printed = live.run(line.command)
        lacks = missing(line, printed, live.ours)
        if status != line.status or lacks:
            wrong.append(f"{block.heading}: {line.command}: status {status}, not there: {lacks}, but:\n{printed}")
    return wrong


def test_every_block_of_the_runbook_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = blocks(PAGE.read_text("utf-8"))
    assert set(BEFORE) <= {(block.heading, block.number) for block in page}
    with Live(tmp_path, monkeypatch, capsys).served() as live:
        for block in page:
            assert run_block(live, block) == []
        live.wait(live.deal.settled())


def test_what_a_command_did_not_print_is_found_whatever_the_columns() -> None:
    line = Line("quotebot gates", 0, ("crm ... held by", "never"))
    assert missing(line, "crm    half\nheld   by root", str) == ["never"]


def test_blocks_know_their_heading_their_number_and_what_each_line_is_to_print() -> None:
    page = "## One\n\n```console\n$ a  # status 3\nx\n$ b\n```\n\n```console\n$ c\n```\n## Two\n```console\n$ d\n```\n"
    found = blocks(page)
    assert [(block.heading, block.number) for block in found] == [("One", 1), ("One", 2), ("Two", 1)]
    assert found[0].lines == (Line("a", 3, ("x",)), Line("b", 0, ()))
