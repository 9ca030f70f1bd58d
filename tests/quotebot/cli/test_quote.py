"""Tests of `quotebot quote ...`: the commands of /quote from the terminal, without a running bot except where noted."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.app.bot import Ports
from quotebot.cli import terminal
from quotebot.domain.language import day_text
from quotebot.sandbox.world import World
from tests.rig import bot_in, read_ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

AS_REP = ("--as", "U0REP")
TERMINAL_USERS = json.dumps({"rep": "U0REP", "manager": "U0MANAGER", "vp": "U0VP", "guest": "U0GUEST"})
APPROVERS = json.dumps({"sales_manager": ["U0MANAGER"], "vp_sales": ["U0VP"]})
OPERATIONS = "SELECT id, source, source_request_id, actor, actor_type, outcome, action_kind FROM operations ORDER BY id DESC"


@pytest.fixture
def quote(command: Run, dead: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the id of a priced quote of U0REP, made from the terminal."""
    monkeypatch.setenv("QUOTEBOT_APPROVERS", APPROVERS)
    monkeypatch.setenv("QUOTEBOT_CLI_USERS", TERMINAL_USERS)
    assert dead.exists()
    found = done(command, "new", "for Zed & Co: 150 pro; discount 15%", "--channel", "C0DEALS", *AS_REP)["quote_id"]
    assert isinstance(found, str)
    return found


def done(command: Run, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Run `quotebot quote ... --json`; return the parsed output."""
    run = command("quote", *arguments, "--json")
    assert run.returncode == status, run.stderr
    printed: dict[str, Any] = json.loads(run.stdout)
    assert printed["schema_version"] == 1
    return printed


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that changes the system user of the terminal."""
    return lambda name: monkeypatch.setattr(terminal, "user", lambda: name)


def state(command: Run, quote: str) -> str:
    found: str = done(command, "show", quote)["quote"]["state"]
    return found


# ------------------------------------------------------------------------------------------------------------- the way out


def test_a_deal_goes_its_whole_way_from_the_terminal(command: Run, quote: str, dead: Path, as_user: Callable[[str], None]) -> None:
    by_manager = {"reject", "approve"}
    way = [
        (("submit", quote, *AS_REP), "submitted", "pending_approval"),
        (("reject", quote, "--reason", "too deep"), "rejected", "rejected"),
        (("revise", quote, "100 pro;", "discount 12%", *AS_REP), "revised", "priced"),
        (("submit", quote, *AS_REP), "submitted", "pending_approval"),
        (("approve", quote), "approved", "approved"),
        (("finalize", quote, *AS_REP), "finalized", "finalized"),
        (("sent", quote, "--to", "buyer@zed.example", *AS_REP), "sent", "sent"),
        (("accept", quote, *AS_REP), "accepted", "accepted"),
    ]
    operator = terminal.user()
    assert done(command, "submit", quote, "--note", "They need SSO.", *AS_REP, status=3)["code"] == "needs_no_note"
    for arguments, code, expected in way:
        as_user("manager" if arguments[0] in by_manager else operator)
        assert (done(command, *arguments)["code"], state(command, quote)) == (code, expected)
    newest = read_ledger(dead, OPERATIONS)[0]
    assert (newest["source"], newest["actor"], newest["actor_type"]) == ("cli", "U0REP", "operator")
    shown = done(command, "show", quote)["quote"]
    assert (shown["version"], shown["sent_to"], shown["decided_by"], shown["closed_by"]) == (
        *(2, "buyer@zed.example"),
        *("U0MANAGER", "U0REP"),
    )


def test_an_approver_says_at_a_terminal_who_decides_instead_and_sees_it(
    command: Run, quote: str, as_user: Callable[[str], None]
) -> None:
    assert quote
    as_user("manager")
    away = ("delegate", "U0VP", "until", "2099-12-31")
    assert done(command, *away, status=3)["code"] == "until_past"
    assert done(command, "delegate", "U0VP")["code"] == "delegated"
    as_user("vp")
    (shown,) = done(command, "delegate")["delegations"]
    assert (shown["absent"], shown["delegate"]) == ("U0MANAGER", "U0VP")


def test_days_of_a_cover_at_a_terminal_are_those_that_were_typed(
    command: Run, quote: str, as_user: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quote
    monkeypatch.setenv("QUOTEBOT_TIME_ZONE", "America/Los_Angeles")
    monkeypatch.setenv("QUOTEBOT_APPROVERS", json.dumps({"vp_sales": ["U0VP", "U0VP2"]}))
    as_user("vp")  # whose own zone Slack has not given
    last = datetime.now(UTC).date() + timedelta(days=30)
    assert f"through {day_text(last)}." in command("quote", "delegate", "U0VP2", "until", last.isoformat()).stdout
    assert f" to {day_text(last)}\n" in command("quote", "delegate").stdout


def test_tax_currency_terms_and_what_avoids_the_approval_are_shown_at_a_terminal(command: Run, dead: Path) -> None:
    assert dead.exists()
    seen = done(command, "preview", "1400 pro; currency JPY; tax JP; terms net_60")
    assert (seen["net_total"], seen["tax_total"], seen["gross_total"]) == ("15120000", "1512000", "16632000")
    assert (seen["terms"], seen["tax_estimated"], seen["required_roles"]) == (["net_60"], True, ["deal_desk"])
    assert [(way["what"], way["after"]) for way in seen["easier"]] == [("discount", "0.80"), ("term", "11"), ("quantity", "1388")]
    plain = command("quote", "price", "1400 pro; currency JPY; tax JP; terms net_60").stdout
    for said in ("Tax 10% (estimated): ¥1,512,000", "Policy check in USD: $100,800.00 (1 USD = 150 JPY", "Special terms: net 60"):
        assert said in plain


def test_commercial_terms_are_options_of_the_terminal_commands(command: Run, quote: str) -> None:
    note = ("--note", "Budget; until June", "--valid", "until 2099-12-31")
    assert done(command, "revise", quote, *note, *AS_REP, status=3)["code"] == "not_priceable"
    agreed = ("--start", "2027-02-01", "--payment", "net 45", "--bill-to", "Jo", "--note", "Budget; until June", "--valid", "45d")
    assert done(command, "revise", quote, *agreed, *AS_REP)["code"] == "revised"
    shown = done(command, "show", quote)["commercial_terms"]
    assert shown == {
        "start_date": "2027-02-01",
        "payment_days": 45,
        "bill_to": "Jo",
        "valid_days": 45,
        "approver_note": "Budget; until June",
    }
    done(command, "revise", quote, "--payment", "none", "--note", "none", "--bill-to", "none", *AS_REP)
    assert "payment_days" not in done(command, "show", quote)["commercial_terms"]
    assert "Start: 1 Feb 2027\nValid for: 45 days\n" in command("quote", "show", quote).stdout
    refused = command("quote", "new", "for Acme: 10 pro", "--start", "1/2/2027", "--channel", "C0DEALS", *AS_REP)
    assert (refused.returncode, "two ways" in refused.stderr) == (64, True)


def test_terminal_command_enqueues_slack_effects_and_sends_no_reply_in_slack(command: Run, quote: str, dead: Path) -> None:
    done(command, "accept", quote, *AS_REP, status=3)
    done(command, "submit", quote, *AS_REP)
    owed = read_ledger(dead, f"SELECT class, state FROM effects WHERE aggregate_id = '{quote}' ORDER BY id")  # noqa: S608 -- own id
    assert {effect["state"] for effect in owed} <= {"pending", "superseded"}
    assert {effect["class"] for effect in owed} == {"slack.post", "slack.card", "slack.direct"}


@pytest.mark.parametrize("verb", ["lost", "cancel"])
def test_a_quote_is_ended_with_a_reason(command: Run, quote: str, verb: str) -> None:
    if verb == "lost":
        for arguments in (("revise", quote, "discount 5%"), ("submit", quote), ("finalize", quote), ("sent", quote, "--to", "x")):
            done(command, *arguments, *AS_REP)
    done(command, verb, quote, "--reason", "too expensive", *AS_REP)
    assert done(command, "show", quote)["quote"]["closing_reason"] == "too expensive"


def test_a_clone_is_a_quote_of_its_own(command: Run, quote: str) -> None:
    copy = done(command, "clone", quote, "--for", "Other", "--as", "U0OTHER")["quote_id"]
    assert copy != quote
    shown = done(command, "show", copy)["quote"]
    assert (shown["account"], shown["requester"], shown["channel"]) == ("Other", "U0OTHER", "C0DEALS")


# ------------------------------------------------------------------------------------------------------------------- once


def test_the_same_request_id_twice_is_one_effect_and_the_same_answer(command: Run, quote: str, dead: Path) -> None:
    answers = [done(command, "revise", quote, "add 5 sso", *AS_REP, "--request-id", "r1") for _ in range(3)]
    assert [answer.pop("repeated") for answer in answers] == [False, True, True]
    assert answers[0] == answers[1] == answers[2]
    assert done(command, "show", quote)["quote"]["version"] == 2
    assert [row["outcome"] for row in read_ledger(dead, OPERATIONS) if row["source_request_id"] == "U0REP:r1"] == ["applied"]


def test_a_refusal_is_repeated_as_a_refusal(command: Run, quote: str) -> None:
    for _ in range(2):
        assert done(command, "accept", quote, *AS_REP, "--request-id", "r1", status=3)["code"] == "wrong_state"


@pytest.mark.parametrize("other", [("add 6 sso",), ("add 5 sso", "--version", "1")])
def test_a_request_id_that_means_something_else_is_a_conflict(command: Run, quote: str, other: tuple[str, ...]) -> None:
    done(command, "revise", quote, "add 5 sso", *AS_REP, "--request-id", "r1")
    conflict = command("quote", "revise", quote, *other, *AS_REP, "--request-id", "r1")
    assert (conflict.returncode, conflict.stdout) == (65, "")
    assert "already used for something else" in conflict.stderr
    assert done(command, "show", quote)["quote"]["version"] == 2


def test_equal_request_ids_of_two_people_are_two_commands(command: Run, quote: str) -> None:
    done(command, "revise", quote, "add 5 sso", *AS_REP, "--request-id", "r1")
    done(command, "revise", quote, "add 6 sso", "--as", "U0OTHER", "--request-id", "r1")
    assert done(command, "show", quote)["quote"]["version"] == 3


def test_without_an_id_a_fresh_one_is_printed_before_anything_is_done(command: Run, quote: str) -> None:
    run = command("quote", "revise", quote, "add 5 sso", *AS_REP)
    words = run.stderr.split()
    assert words[:2] == ["Request", "id"]
    assert done(command, "revise", quote, "add 5 sso", *AS_REP, "--request-id", words[2].rstrip(":"))["repeated"] is True


def test_four_processes_at_once_have_one_effect(quotebot: Run, quote: str, dead: Path) -> None:
    arguments = ("quote", "revise", quote, "add 5 sso", *AS_REP, "--request-id", "r1", "--json")
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: quotebot(*arguments), range(4)))
    assert {run.returncode for run in runs} == {0}, [run.stderr for run in runs]
    assert sorted(json.loads(run.stdout)["repeated"] for run in runs) == [False, True, True, True]
    assert [row["outcome"] for row in read_ledger(dead, OPERATIONS) if row["source_request_id"] == "U0REP:r1"] == ["applied"]


async def test_beside_a_running_bot_the_bot_executes_and_delivers(quotebot: Run, tmp_path: Path) -> None:
    async def beside(*arguments: str) -> dict[str, Any]:
        run = await asyncio.to_thread(quotebot, "quote", *arguments, "--json")
        found: dict[str, Any] = json.loads(run.stdout)
        return {**found, "status": run.returncode}

    async with (
        World(tmp_path / "world").serve() as world,
        bot_in(world, tmp_path / "bot", Ports(draw=lambda low, _: low)) as deal,
    ):
        await deal.approved_deal()
        quote = (await deal.rows("SELECT quote_id FROM quotes"))[0]["quote_id"]
        assert (await beside("finalize", quote, *AS_REP))["status"] == 0
        assert (await beside("finalize", quote, *AS_REP))["status"] == 3
        await deal.settled()
        assert "Ready to send" in await deal.card_text()
        assert "Locked by <@U0REP>" in await deal.card_text()
        assert {row["role"] for row in await deal.rows("SELECT role FROM epochs")} == {"bot"}


# --------------------------------------------------------------------------------------------------------------- refusals


def test_a_refusal_says_why_on_stderr_and_leaves_stdout_empty(command: Run, quote: str) -> None:
    run = command("quote", "finalize", quote, *AS_REP)
    assert (run.returncode, run.stdout) == (3, "")
    assert f"{quote} isn't approved yet, so it can't be locked for sending. Submit it for approval first." in run.stderr


def test_a_superseded_version_cannot_be_finalized(command: Run, quote: str) -> None:
    done(command, "revise", quote, "discount 5%", *AS_REP)
    done(command, "submit", quote, *AS_REP)
    assert done(command, "finalize", quote, "--version", "1", *AS_REP, status=3)["code"] == "stale"
    assert done(command, "finalize", quote, "--version", "2", *AS_REP)["code"] == "finalized"


@pytest.mark.parametrize("user", ["rep", "guest"])
def test_who_may_not_approve_may_not_from_the_terminal_either(
    command: Run, quote: str, user: str, as_user: Callable[[str], None]
) -> None:
    done(command, "submit", quote, *AS_REP)
    as_user(user)
    assert done(command, "approve", quote, status=3)["code"] in ("own_request", "missing_role")
    assert state(command, quote) == "pending_approval"


USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "nobody is named": (("finalize", "{quote}"), "is nobody in Slack yet"),
    "somebody who is no user": (("finalize", "{quote}", "--as", "ann"), "'ann' is no Slack user id"),
    "an id with a space": (("finalize", "{quote}", *AS_REP, "--request-id", "a b"), "1 to 100 printable characters"),
    "a request that cannot be read": (("new", "for Acme: 5 prro", "--channel", "C0DEALS", *AS_REP), "Did you mean pro?"),
    "no request": (("new", "help", "--channel", "C0DEALS", *AS_REP), "Start with the customer"),
    "changes that cannot be read": (("revise", "{quote}", "5 prro", *AS_REP), "Did you mean pro?"),
    "a whole request that cannot be read": (("revise", "{quote}", "5 prro", "--whole", *AS_REP), "Did you mean pro?"),
    "no reason": (("lost", "{quote}", *AS_REP), "--reason"),
    "a price that cannot be read": (("price", "5 prro"), "Did you mean pro?"),
    "a preview that cannot be read": (("preview", "{quote}: 5 prro"), "Did you mean pro?"),
    "no state": (("list", "--state", "aproved"), "There is no state 'aproved'"),
}


@pytest.mark.parametrize("case", USAGE)
def test_what_makes_no_sense_is_a_usage_error_and_records_nothing(command: Run, quote: str, dead: Path, case: str) -> None:
    before = read_ledger(dead, OPERATIONS)
    arguments, said = USAGE[case]
    run = command("quote", *(argument.format(quote=quote) for argument in arguments))
    assert (run.returncode, run.stdout if case != "no reason" else "") == (64, "")
    assert said in run.stdout + run.stderr
    assert read_ledger(dead, OPERATIONS) == before


@pytest.mark.parametrize(
    "arguments",
    [("show",), ("submit", *AS_REP), ("clone", *AS_REP), ("compare",), ("explain",), ("preview",), ("approve",)],
)
@pytest.mark.parametrize("named", ["Q-2026-9999", "42"])
def test_a_quote_that_is_not_there_is_said_so(command: Run, quote: str, arguments: tuple[str, ...], named: str) -> None:
    if arguments == ("preview",) and named == "42":
        return  # that is a request, not a quote
    run = command("quote", arguments[0], named, *arguments[1:])
    assert (run.returncode, run.stdout) == (4, "")
    assert f"There is no quote {named}" in run.stderr
    assert quote


def test_without_a_ledger_nothing_is_made(command: Run, tmp_path: Path) -> None:
    run = command("quote", "new", "for Acme: 5 pro", "--channel", "C0DEALS", *AS_REP)
    assert (run.returncode, (tmp_path / "bot").exists()) == (78, False)


def test_whom_the_settings_name_needs_no_option(command: Run, quote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_CLI_USERS", json.dumps({terminal.user(): "U0ANN"}))
    assert done(command, "cancel", quote)["code"] == "cancelled"
    assert done(command, "show", quote)["quote"]["closed_by"] == "U0ANN"


# ------------------------------------------------------------------------------------------------------------------ reads


def test_show_prints_facts_and_lines_and_never_what_it_costs_the_seller(command: Run, quote: str) -> None:
    run = command("quote", "show", quote.lower())
    assert (run.returncode, run.stderr) == (0, "")
    assert "state            priced" in run.stdout
    assert "150" in run.stdout
    assert "9,180.00" in run.stdout
    assert "cost" not in run.stdout + json.dumps(done(command, "show", quote))


def test_an_older_version_is_shown_and_compared(command: Run, quote: str) -> None:
    done(command, "revise", quote, "discount 8%", *AS_REP)
    assert done(command, "show", quote, "--version", "1")["quote"]["superseded"] == "yes"
    assert done(command, "show", quote)["discount_percent"] == "8"
    expected = ["Total $9,180.00 → $9,936.00 (+$756.00)", "Pro: $9,180.00 → $9,936.00", "Discount 15% → 8%"]
    assert done(command, "compare", quote)["differences"] == expected
    assert command("quote", "compare", quote, "1", "2").stdout.splitlines() == expected
    assert command("quote", "compare", quote, "2", "2").stdout == "Nothing differs.\n"
    assert command("quote", "compare", quote, "1", "9").returncode == 4


def test_a_price_is_explained(command: Run, quote: str) -> None:
    line, *steps = done(command, "explain", quote, "--line", "1")["trace"]
    assert line.startswith("Pro 150 \u00d7 $6.00 \u00d7 12 months")
    assert steps[:3] == ["Price book: list, kind range.", "base: 10 (tier 1-49)", "tier: 6 (tier 100+ prices every unit)"]
    *whole, policy, total = command("quote", "explain", quote).stdout.splitlines()
    assert "  \u2022 tier: 6 (tier 100+ prices every unit)" in whole
    assert policy == "Approval: Sales Manager · discount 15% (limit 10%)"
    assert total.startswith("Total:")
    assert command("quote", "explain", quote, "--line", "2").returncode == 4


def test_a_price_and_a_preview_record_nothing(command: Run, quote: str, dead: Path) -> None:
    before = read_ledger(dead, OPERATIONS)
    assert done(command, "price", "150 pro, 150 sso, 1 support;", "term 12m")["net_total"] == "20400.00"
    assert done(command, "preview", "150 pro; discount 15%")["required_roles"] == ["sales_manager"]
    assert done(command, "preview", quote)["required_roles"] == ["sales_manager"]
    assert done(command, "preview", f"{quote}: discount 41%")["blocked"] is True
    assert command("quote", "preview", f"{quote}: discount 5%").stdout == "Needs no approval.\n"
    assert "9,180.00" in command("quote", "price", "150 pro; discount 15%").stdout
    asked = "150 pro @5.40 because volume deal, 10 sso (optional)"
    (line,), (option,) = (done(command, "price", asked)[name] for name in ("lines", "optional_lines"))
    assert (line["agreed_price"], line["price_reason"], option["sku"]) == ("5.4", "volume deal", "sso")
    shown = command("quote", "price", asked).stdout
    assert "Pro (pro), agreed price $5.40" in shown
    assert "SSO (sso), optional" in shown
    assert read_ledger(dead, OPERATIONS) == before


def test_a_list_is_filtered_and_paged(command: Run, quote: str) -> None:
    def ids(*arguments: str) -> list[str]:
        return [row["quote_id"] for row in done(command, "list", *arguments)["quotes"]]

    everything = ids()
    assert everything[0] == quote
    assert len(everything) == 3
    assert ids("--state", "priced") == [quote]
    assert ids("--state", "approved", "--state", "open") == everything
    assert ids("--account", "zed") == [quote]
    assert ids("--owner", "U0NOBODY") == []
    assert [ids("--limit", "2", "--page", str(page)) for page in (1, 2, 3)] == [everything[:2], everything[2:], []]
    assert done(command, "list", "--limit", "2")["more"] is True
    table = command("quote", "list", "--limit", "1")
    assert quote in table.stdout
    assert "There are more: --page 2" in table.stderr
