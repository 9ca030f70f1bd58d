"""Test of twelve canaries through a whole lifecycle with faults: none appears in any output for operators."""

from __future__ import annotations

import base64
import json
import zipfile
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest

from quotebot.sandbox.llm import API_KEY
from quotebot.sandbox.salesforce.login import CLIENT_SECRET
from quotebot.sandbox.slack.directory import APP_TOKEN, BOT_TOKEN
from tests import canaries
from tests.canaries import SESSION_BYTES, SIGNATURE_BYTES, TICKET_BYTES, Canary, Remembered, files_under, hits
from tests.quotebot.slack.test_dialogs import send
from tests.quotebot.test_secrets import bad_weather
from tests.runbook import Live

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CUSTOMER: Final = "Kanarienvogel Handels"
WORDS: Final = "the margin is a yellow feather"
RECIPIENT: Final = "anna@kanarienvogel.example"
OPERATORS: Final = (
    *("doctor --json --only settings --only slack --only crm --only ledger --only secrets", "config show", "config show --json"),
    *("dead list --status all", "dead list --json --status all", "ops list", "ops list --json", "gates --json", "metrics"),
    *("policy", "audit verify", "audit show system", "ledger prune --dry-run", "catalog list --json"),
)  # commands that read everything, and show no customer
LETTERS: Final = ("dead show 118", "dead show 118 --json", "why 118", "trace 118", "trace 118 --json", "replay 118 --dry-run")
OF_QUOTES: Final = ("quote list --json", "quote show Q-2026-0042", "quote explain Q-2026-0042", "audit export Q-2026-0042")


@pytest.fixture
def chance() -> Remembered:
    return Remembered()


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], chance: Remembered) -> Live:
    return Live(tmp_path, monkeypatch, capsys, chance)


def story(live: Live) -> None:
    """Take one quote through faults to a dead letter and a rejection, then another to its end."""
    deal, wait = live.deal, live.wait
    wait(bad_weather(deal))
    wait(deal.slash(f"new for {CUSTOMER}: 150 pro; discount 15%"))
    wait(deal.settled())
    wait(deal.click("quote.submit", user="U0REP"))
    wait(deal.settled())
    wait(deal.click("approval.approve", user="U0REP"))  # refused: a reply over its response_url
    wait(deal.click("approval.reject", user="U0MANAGER"))
    wait(send(deal, "U0MANAGER", reason=WORDS))
    wait(deal.settled())
    wait(deal.clear_faults())
    wait(deal.approved_deal())  # a document, a record
    approved = wait(deal.rows("SELECT max(quote_id) AS quote_id FROM quotes"))[0]["quote_id"]
    for said in (f"finalize {approved}", f"sent {approved} to {RECIPIENT}"):
        wait(deal.slash(said))
        wait(deal.settled())
    wait(deal.arm("salesforce", "5xx", seconds=60))
    wait(deal.approved_deal())  # a dead letter
    wait(deal.clear_faults())
    (letter,) = wait(deal.rows("SELECT id, aggregate_id FROM effects WHERE state = 'failed'"))
    live.examples = {"118": str(letter["id"]), "Q-2026-0042": letter["aggregate_id"]}


def looked_at(live: Live) -> dict[str, bytes]:
    """Return every output, by its source."""
    pages = {f"health {page}": f"curl -s http://127.0.0.1:9464/{page}" for page in ("healthz", "readyz", "metrics")}
    asked = {
        **{f"operator {line}": f"quotebot {line}" for line in (*OPERATORS, *LETTERS)},
        **{f"seller {line}": f"quotebot {line}" for line in OF_QUOTES},
        **pages,
    }
    found = {}
    for name, line in asked.items():
        status, told = live.run(line)
        assert (status, told != "") == (0, True) or "doctor" in name, (line, told)
        found[name] = told.encode()
    return found


def planted(live: Live, given: Mapping[int, list[str]]) -> list[Canary]:
    """Return the twelve canaries, each with its value in this run and its allowed places."""
    folder = "data/"
    keys = [path for path in live.data.iterdir() if path.name.endswith((".key", ".pem"))]
    hooks = [path.rpartition("/")[2] for path in live.hooks()]
    tickets = tuple(given[TICKET_BYTES])
    return [
        Canary("the bot token", (BOT_TOKEN,)),
        Canary("the app-level token", (APP_TOKEN,)),
        Canary("the CRM's client secret", (CLIENT_SECRET,)),
        Canary("the model's key", (API_KEY,)),
        Canary("a CRM session", tuple(given[SESSION_BYTES])),
        Canary("a response_url", tuple(hooks), (f"{folder}ledger.db",)),  # until the reply is sent, or for its half hour
        Canary("the signature of a CRM session", tuple(given[SIGNATURE_BYTES])),
        Canary(
            "a ticket, a trigger or an upload address",
            tickets,
            (f"{folder}ledger.db", "operator ops", "operator dead", "operator trace", "seller"),
        ),
        Canary(
            "a key of the audit",
            tuple(key.read_text("utf-8").strip() for key in keys),
            tuple(f"{folder}{key.name}" for key in keys),
        ),
        Canary("a customer's name", (CUSTOMER,), (f"{folder}ledger.db", f"{folder}artefacts", "seller", "Q-")),
        Canary("what somebody wrote", (WORDS,), (f"{folder}ledger.db", "seller", "Q-")),
        Canary("a recipient's address", (RECIPIENT,), (f"{folder}ledger.db", "seller", "Q-")),
    ]


def test_none_of_twelve_canaries_gets_out(live: Live, chance: Remembered, caplog: pytest.LogCaptureFixture) -> None:
    with live.served():
        story(live)
        told = looked_at(live)
        live.stop()
        birds = planted(live, chance.given)
    places = {
        **told,
        "libraries' log": caplog.text.encode(),
        **{n: d for n, d in files_under(live.folder).items() if not n.startswith("world")},
    }
    open_to_others = [path.name for path in [live.data, *live.data.rglob("*")] if path.stat().st_mode & 0o077]
    assert open_to_others == []
    assert len(birds) == 12
    assert [bird.name for bird in birds if not bird.texts] == []
    assert hits(birds, places) == []
    assert "effect.retry" in places["journal"].decode()  # faults have occurred
    assert hits([Canary("it", (CUSTOMER,))], places) != []  # the search finds texts that are there


@pytest.mark.parametrize(
    "packed",
    [BOT_TOKEN, base64.b64encode(BOT_TOKEN.encode()).decode(), f"url={quote('x/' + BOT_TOKEN)}", json.dumps({"a": [BOT_TOKEN]})],
)
def test_a_secret_is_found_however_it_was_packed(packed: str) -> None:
    assert hits([Canary("it", (BOT_TOKEN,))], {"a place": packed.encode(), "its home": b"nothing"}) == ["it is in a place"]
    assert hits([Canary("it", (BOT_TOKEN,), ("a pl",))], {"a place": packed.encode()}) == []


def test_what_a_run_left_behind_is_searched_and_what_the_sandbox_keeps_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "witness.jsonl").write_text(BOT_TOKEN)
    assert canaries.main([str(tmp_path)]) == 0
    with zipfile.ZipFile(tmp_path / "proof.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("inside.txt", f"{CLIENT_SECRET} " * 50)
    assert canaries.main([str(tmp_path)]) == 1
    assert "Salesforce's client secret is in proof.zip!inside.txt" in capsys.readouterr().out
